/* A rank of a run, shared by the files that train it: rank_begin.c, rank_train.c, rank_record.c, rank_checkpoint.c,
 * rank_timeline.c, and rank_host.c or rank_cuda.cu, which is C++. It is a process of its own (rank_main.c,
 * rank_flags.c, rank_agree.c), or one of the threads of a process that runs them all (process/train.c). */
#ifndef PIANOLA_RANK_RUN_H
#define PIANOLA_RANK_RUN_H
#include "store/checkpoint.h"
#include "device/replay.h"
#include "rank_backend.h"
#include "rank_whole.h"
#include "comm/world.h"

struct rank_run {
    const struct rt_program *self; /* the compiled program, as this rank sees it */
    struct rank_flags flags;
    struct world world;
    const struct rt_run *whole;   /* process/train.h: the run of all ranks, if they are threads; NULL: they are
                                   * processes */
    void *shared;                 /* state that the backends of threads share, defined by them; or NULL */
    struct data *data, *held_out; /* held_out: NULL without --val */
    int64_t held_steps;           /* steps of a validation */
    int reader;                   /* a rank that reads data */
    struct start start;
    struct checkpoint_run is; /* the run's seed and data, the same on all ranks */
    struct rt_program program;
    struct replay *replay; /* owned by the backend */
    struct rank_backend *backend;
    int32_t *owner;         /* per set of weights, [size + 1]: see rank_owners */
    int lock;               /* lock of the checkpoint folder, for checkpoint_lock */
    int64_t from;           /* steps done before this run */
    int64_t from_sequence;  /* sequences of its data read before this run */
    struct rt_stamp *times; /* [keeps][instructions], times of the last steps: rank_times. NULL: not recorded */
    int64_t keeps;
    double origin; /* start of the timeline, in seconds of the monotonic clock */
    struct rt_stamp
        *spans; /* [workers][steps], start and end of each step of all ranks, if they are threads; or NULL */
};

/* Returns whether the run only computes losses, like a validation. */
static inline bool rank_evaluates(const struct rank_run *run) { return run->whole && run->whole->evaluates; }
/* Returns whether every step is recorded. */
bool rank_records(const struct rank_run *run);

/* rank_flags.c: exits on --help, and with an error on anything invalid. */
extern const char *const rank_messages[]; /* values of --messages */
void rank_parse(struct rank_flags *flags, int argc, char **argv, const struct rt_program *self);

/* rank_agree.c: before anything runs, refuses another rank's program, and a different world size, compile, flags or
 * data, and names what differs. Sets run->is. */
void rank_agree(struct rank_run *run);
bool rank_reads(const struct rank_run *run); /* returns whether the rank needs the data */

/* rank_checkpoint.c */
void rank_find_owners(struct rank_run *run); /* collective: sets run->owner */
/* Returns the ranks whose shards make a set's checkpoint, in the order of the elements, ended by -1. If several homes
 * update the same elements, only the first counts. There is at least one rank. */
const int32_t *rank_owners(const struct rank_run *run, int set);
bool rank_owns(const struct rank_run *run, int set); /* returns whether this rank is one of them, and a home */
/* Checks that no other run uses the folder and that it is writable, before hours of work depend on it. */
void rank_try_checkpoint(struct rank_run *run);
/* Loads weights and optimizer state of all homes from the newest complete checkpoint, if there is one; sets
 * run->from. */
void rank_resume(struct rank_run *run);
/* Checks the learned state of a home of this rank after the step for non-finite numbers. */
void rank_scan(struct rank_run *run, const struct rt_home *home, int64_t step);
void rank_save(struct rank_run *run, int64_t step);
/* Reports an error during training, with why and how to resume. Ends this rank, or all of them by a verdict. */
__attribute__((noreturn)) void rank_fail(const struct rank_run *run, const char *why);
const struct rt_home *rank_home(const struct rank_run *run, int stage); /* the stage's home on this rank, or NULL */

/* Returns whether the times of a step are recorded; steps count from 0. A process, which a signal may end, records
 * every step. */
static inline bool rank_keeps(const struct rank_run *run, int64_t step) {
    return run->times && (!run->whole || step >= run->flags.steps - run->keeps);
}
/* Returns where the times of a step are, if it is one of the last `keeps`. */
static inline struct rt_stamp *rank_times(const struct rank_run *run, int64_t step) {
    int64_t turn = (step - run->flags.steps) % run->keeps;
    return run->times + (turn < 0 ? turn + run->keeps : turn) * run->program.rank[run->world.rank].nins;
}

/* rank_timeline.c, called with --timeline */
void rank_timeline_open(struct rank_run *run); /* collective: checks that its file is writable; allocates all memory */
void rank_timeline_write(struct rank_run *run, int64_t steps); /* collective. steps: number of steps done */
#endif
