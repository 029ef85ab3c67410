/* One run at a time uses a checkpoint folder: its holder is named, and holds it until it ends. */
#include "store/checkpoint.h"
#include "checkpoint_room.h"
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

TestSuite(checkpoint_lock, .init = make_dir, .fini = remove_dir);

static int lock = -1; /* held by this process, as a rank of its own run */

static bool keeps(int rank, const char *run) { return checkpoint_lock(&lock, dir, rank, run, why, sizeof why); }

/* Starts a process that holds the folder as a rank of another run, until it is killed. */
static pid_t other_run(int rank, const char *run) {
    int ready[2];
    char byte;
    cr_assert_eq(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (write(ready[1], keeps(rank, run) ? "y" : "n", 1) == 1)
            pause();
        _exit(1);
    }
    cr_assert(read(ready[0], &byte, 1) == 1 && byte == 'y');
    close(ready[0]);
    close(ready[1]);
    return child;
}

static void end(pid_t child) {
    kill(child, SIGKILL);
    cr_assert_eq(waitpid(child, NULL, 0), child);
}

static void expect_kept_out(const char *who, const char *run) {
    char wanted[512];
    cr_expect_not(keeps(0, "ours"));
    int n = snprintf(wanted, sizeof wanted, "%s: %s (%s", dir, who, run);
    cr_expect(strncmp(why, wanted, (size_t)n) == 0, "%s", why);
    cr_expect(strstr(why, "); let it end, or name another folder"), "%s", why);
}

Test(checkpoint_lock, one_run_at_a_time) {
    char run[128];
    pid_t rank0 = other_run(0, "theirs"), rank2 = other_run(2, "theirs");
    snprintf(run, sizeof run, "theirs: rank 0 is process %d on ", (int)rank0);
    expect_kept_out("another run is writing its checkpoints there", run);
    end(rank0);
    expect_kept_out("rank 2 of another run still runs", run);
    end(rank2);
    cr_assert(keeps(0, "ours"), "%s", why);
    cr_expect_str_empty(why);
    end(other_run(1, "ours"));
    cr_expect(keeps(0, "ours"), "once more: %s", why);
    cr_expect_str_empty(why);
}

/* A holder may have locked the file without naming itself yet; text from others in the file is not believed. */
Test(checkpoint_lock, a_run_without_a_name) {
    pid_t rank0 = other_run(0, "theirs");
    spill(in_dir(".lock"), "", 0);
    expect_kept_out("another run is writing its checkpoints there", "it has only begun");
    spill(in_dir(".lock"), "bell\a\033[31m", 10);
    expect_kept_out("another run is writing its checkpoints there", "bell??[31m");
    end(rank0);
}

Test(checkpoint_lock, a_folder_that_is_moved_is_kept_anew) {
    char moved[80], gone[512];
    snprintf(moved, sizeof moved, "%s/moved", dir);
    strcat(dir, "/saved");
    snprintf(gone, sizeof gone, "%s: was moved or removed: continuing in a new folder", dir);
    cr_assert(keeps(0, "ours"), "%s", why);
    cr_assert_eq(rename(dir, moved), 0);
    cr_expect(keeps(0, "ours"), "%s", why);
    cr_expect_str_eq(why, gone);
    pid_t child = fork();
    if (child == 0) {
        lock = -1;                         /* a separate process inherits nothing */
        _exit(keeps(0, "theirs") ? 1 : 7); /* 7: kept out of the new folder */
    }
    int status;
    waitpid(child, &status, 0);
    cr_expect_eq(WEXITSTATUS(status), 7);
    *strrchr(dir, '/') = 0;
}
