/* The control: must be reported as passed, including an expected death and a forked process that succeeds. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

Test(guard_proof, dies_as_expected, .exit_code = 2) { exit(2); }

Test(guard_proof, forks) {
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    int status = 1;
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert_eq(status, 0);
}
