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
    const struct rt_program *self; /* as compiled: this rank's view */
    struct rank_flags flags;
    struct world world;
    const struct rt_run *whole;   /* process/train.h: of all ranks, where they are threads; NULL: they are processes */
    void *shared;                 /* likewise: what the backends of all ranks share, their own; or NULL */
    struct data *data, *held_out; /* held_out: NULL without --val */
    int64_t held_steps;           /* of a validation */
    struct start start;
    struct checkpoint_run is; /* the run's seed and data: the same on all ranks */
    struct rt_program program;
    struct replay *replay; /* the backend's */
    struct rank_backend *backend;
    int32_t *owner;         /* per set of weights, [size + 1]: see rank_owners */
    int lock;               /* of the checkpoint folder, as checkpoint_lock has it */
    int64_t from;           /* steps done before this run */
    int64_t from_sequence;  /* and sequences read of its data */
    struct rt_stamp *times; /* [keeps][instructions], of the last steps: rank_times. NULL: nobody asks */
    int64_t keeps;
    double origin; /* of the timeline: seconds of the monotonic clock */
    struct rt_stamp
        *spans; /* [workers][steps], of all ranks that are threads: when each step began and ended; or NULL */
};

/* Does it tell losses alone, as validations do? */
static inline bool rank_evaluates(const struct rank_run *run) { return run->whole && run->whole->evaluates; }
/* Returns whether every step is recorded. */
bool rank_records(const struct rank_run *run);

/* rank_flags.c: ends the process on --help, and with an error on anything invalid. */
extern const char *const rank_messages[]; /* the values of --messages */
void rank_parse(struct rank_flags *flags, int argc, char **argv, const struct rt_program *self);

/* rank_agree.c: before anything runs, refuses by name another rank's program, and a different world size, compile,
 * flags or data. Sets run->is. */
void rank_agree(struct rank_run *run);
bool rank_reads(const struct rank_run *run); /* does it need the data? */

/* rank_checkpoint.c */
void rank_find_owners(struct rank_run *run); /* collective: sets run->owner */
/* The ranks that a set's checkpoint is taken from, ended by -1: of the homes that update the same elements, the first;
 * in the order of the elements. At least one. */
const int32_t *rank_owners(const struct rank_run *run, int set);
bool rank_owns(const struct rank_run *run, int set); /* is this rank one of them, and a home? */
/* Checks that no other run uses the folder and that it can be written, before an hour's work depends on it. */
void rank_try_checkpoint(struct rank_run *run);
/* Loads weights and optimizer state of all homes from the newest whole checkpoint, if there is one; sets run->from. */
void rank_resume(struct rank_run *run);
/* Looks for numbers that are not finite in what a home of this rank has learned by the step. */
void rank_scan(struct rank_run *run, const struct rt_home *home, int64_t step);
void rank_save(struct rank_run *run, int64_t step);
/* For errors while training: why, and how to go on. Ends this rank, or with a verdict all of them. */
__attribute__((noreturn)) void rank_fail(const struct rank_run *run, const char *why);
const struct rt_home *rank_home(const struct rank_run *run, int stage); /* on this rank; NULL: its home is elsewhere */

/* Returns whether the times of a step, from 0, are asked for: a process, which a signal may end, keeps them of every
 * step. */
static inline bool rank_keeps(const struct rank_run *run, int64_t step) {
    return run->times && (!run->whole || step >= run->flags.steps - run->keeps);
}
/* Where they are, if the step is one of the last `keeps`. */
static inline struct rt_stamp *rank_times(const struct rank_run *run, int64_t step) {
    int64_t turn = (step - run->flags.steps) % run->keeps;
    return run->times + (turn < 0 ? turn + run->keeps : turn) * run->program.rank[run->world.rank].nins;
}

/* rank_timeline.c, where --timeline is given */
void rank_timeline_open(struct rank_run *run); /* collective: is its file writable? Allocates all memory */
void rank_timeline_write(struct rank_run *run, int64_t steps); /* collective. steps: how many are done */
#endif
