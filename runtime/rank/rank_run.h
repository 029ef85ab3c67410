/* A rank's process, shared by the files that make it up: rank_main.c, rank_flags.c, rank_agree.c, rank_checkpoint.c,
 * rank_timeline.c, and rank_host.c or rank_cuda.cu, which is C++. */
#ifndef PIANOLA_RANK_RUN_H
#define PIANOLA_RANK_RUN_H
#include "store/checkpoint.h"
#include "device/replay.h"
#include "rank_backend.h"
#include "comm/world.h"

struct rank_flags {
    const char **data, **held_out; /* ended by NULL; NULL: none is given */
    const char *weights, *checkpoint, *flight, *timeline, *losses, *metrics, *tensorboard, *algorithms;
    int64_t steps, every, val_every, keep, seed;
    double deadline;
    int messages; /* between GPUs: CUDA_nccl, CUDA_put */
    bool allow_nonfinite, new_data, resume, json, eager, ordered;
    struct launch launch;
};

/* Returns whether every step is recorded. */
static inline bool rank_records(const struct rank_flags *flags) {
    return flags->losses || flags->metrics || flags->tensorboard;
}

struct rank_run {
    const struct rt_program *self; /* as compiled: this rank's view */
    struct rank_flags flags;
    struct world world;
    struct data *data, *held_out; /* held_out: NULL without --val */
    int64_t held_steps;           /* of a validation */
    struct start start;
    struct checkpoint_run is; /* the run's seed and data: the same on all ranks */
    struct rt_program program;
    struct replay replay;
    struct rank_backend *backend;
    int32_t *owner;         /* per set of weights, [size + 1]: see rank_owners */
    int lock;               /* of the checkpoint folder, as checkpoint_lock has it */
    int64_t from;           /* steps done before this run */
    int64_t from_sequence;  /* and sequences read of its data */
    struct rt_stamp *times; /* [TIMELINE_STEPS][instructions]: of step s at s % TIMELINE_STEPS. NULL: no --timeline */
    double origin;          /* of the timeline: seconds of the monotonic clock */
};

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
const struct rt_home *rank_home(const struct rank_run *run, int stage); /* on this rank; NULL: its home is elsewhere */

/* rank_timeline.c, where --timeline is given */
void rank_timeline_open(struct rank_run *run); /* collective: is its file writable? Allocates all memory */
void rank_timeline_keep(struct rank_run *run, int64_t step);   /* records the step, which has just ended */
void rank_timeline_write(struct rank_run *run, int64_t steps); /* collective. steps: how many are done */
#endif
