/* The training loop of a rank that is a process: rank_train.c. */
#ifndef PIANOLA_RANK_TRAIN_H
#define PIANOLA_RANK_TRAIN_H
#include "device/ahead.h"
#include "rank_run.h"
#include "store/journal.h"
#include "store/tensorboard.h"

enum { INTS, TERMS, NONFINITE, LOSSES }; /* what is in a pulse */
enum { NORM_FLOATS = 4 };                /* of 16 bits of a double each */
struct training {
    /* How many ranks received SIGINT, and SIGTERM, and have found a number that is not finite; then the last step's
     * loss of each microbatch. */
    float *pulse;
    float *loss;                    /* of this rank, per microbatch */
    struct journal losses, metrics; /* where --losses, --metrics are given, and then: */
    struct tensorboard board;       /* likewise --tensorboard */
    double *when;                   /* per update of the last stage in a step: when it ended */
    bool tells;                     /* this rank knows that, for all */
    float *known;    /* a step's loss of each microbatch, then times, what compute lanes waited in all, and the norm */
    float *held_out; /* a validation's losses; NULL: there are none */
    float first, last;
    int64_t memory; /* that a rank's arena takes, at most */
    double begun, seconds;
    int64_t saved; /* the step of the last checkpoint, or where the run began; 0: there is none */
    int signal;    /* that ended it early; 0: none */
    struct ahead ahead;
    int64_t step, enqueued; /* how many have ended, have been enqueued, in earlier runs too */
};

/* Updates of the last stage in a step. */
static inline int32_t rank_updates(const struct rank_run *run) {
    return updates_per_step(run->program.batches, &run->program.stage[run->program.updated]);
}
/* Collective: trains from step run->from on. Ends the process where the training has come to numbers that are not
 * finite, unless --allow-nonfinite. */
void rank_train(struct rank_run *run, struct training *training);
#endif
