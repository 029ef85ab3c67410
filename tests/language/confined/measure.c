/* measure SECONDS COMMAND...: runs a command and prints its exit code (or "signal N", or "hangs" after that many
 * seconds of wall-clock time), its CPU time in milliseconds, and its peak memory in MiB, as the kernel counts both. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static pid_t child;
static volatile sig_atomic_t late;

static void on_alarm(int sig) {
    (void)sig;
    late = 1;
    kill(child, SIGKILL);
}

int main(int argc, char **argv) {
    if (argc < 3)
        return 2;
    child = fork();
    if (child == 0) {
        execvp(argv[2], argv + 2);
        _exit(127);
    }
    signal(SIGALRM, on_alarm);
    alarm((unsigned)atoi(argv[1]));
    int status;
    struct rusage use;
    while (wait4(child, &status, 0, &use) < 0)
        ;
    if (late)
        printf("hangs");
    else if (WIFSIGNALED(status))
        printf("signal %d", WTERMSIG(status));
    else
        printf("%d", WEXITSTATUS(status));
    printf("\t%ld\t%ld\n",
           (use.ru_utime.tv_sec + use.ru_stime.tv_sec) * 1000 + (use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1000,
           use.ru_maxrss / 1024);
    return 0;
}
