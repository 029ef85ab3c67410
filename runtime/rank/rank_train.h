/* The training loop of a rank: rank_begin.c, rank_train.c, rank_record.c. */
#ifndef PIANOLA_RANK_TRAIN_H
#define PIANOLA_RANK_TRAIN_H
#include "device/ahead.h"
#include "rank_run.h"
#include "store/journal.h"
#include "store/tensorboard.h"

/* Where a rank records steps, and validations, if it is asked to. */
struct record {
    struct journal losses, metrics; /* rank 0's, where --losses, --metrics are given */
    struct tensorboard board;       /* likewise --tensorboard */
    float *loss;                    /* of each microbatch */
    double *mine, *all;             /* a rank's figures, and its times of updates; of all ranks */
    double *when;                   /* per update of the last stage in a step: when it ended */
    double *predicted;
    int teller; /* the rank that knows that, for all */
    struct rt_ended ended;
};
enum { INTS, TERMS, NONFINITE, LOSSES }; /* what is in a pulse */
struct training {
    /* How many ranks received SIGINT, and SIGTERM, and have found a number that is not finite; then the last step's
     * loss of each microbatch. */
    float *pulse;
    float *loss; /* of this rank, per microbatch */
    struct record record;
    float *held_out[2]; /* losses of two steps of a validation; NULL: there are none */
    float first, last;
    double begun, seconds, took; /* took: the last step */
    int64_t saved;               /* the step of the last checkpoint, or where the run began; 0: there is none */
    int signal;                  /* that ended it early; 0: none */
    struct ahead ahead;
    int64_t step, enqueued; /* how many have ended, have been enqueued, in earlier runs too */
};

/* Updates of the last stage in a step. */
static inline int32_t rank_updates(const struct rank_run *run) {
    return updates_per_step(run->program.batches, &run->program.stage[run->program.updated]);
}
/* The learning rate of the last stage's last update in the step-th step. */
double rank_rate(const struct rank_run *run, int64_t step);
/* Where ranks are threads: seconds from the first start of the step, from 0, to the last end. */
double rank_makespan(const struct rank_run *run, int64_t step);

/* rank_begin.c, collective: takes all memory that the run needs, and goes on from a checkpoint if it is to. From the
 * first step on, nothing is allocated. */
void rank_begin(struct rank_run *run, struct training *training);
void rank_end(struct rank_run *run, struct training *training); /* all but the backend, and the world */

/* rank_train.c, collective: trains from step run->from on. Ends the process where the training has come to numbers that
 * are not finite, unless --allow-nonfinite. */
void rank_train(struct rank_run *run, struct training *training);

/* Says that a signal has ended the training. */
void rank_tell_signal(const struct rank_run *run, const struct training *training);

/* rank_record.c */
void rank_record_open(struct rank_run *run, struct record *record); /* collective */
static inline bool rank_tells(const struct rank_run *run, const struct record *record) {
    return record->when && record->teller == run->world.rank;
}
void rank_record_step(struct rank_run *run, struct training *training); /* collective: the lines of the step before */
void rank_record_validation(struct rank_run *run, struct training *training, double loss); /* rank 0 */
void rank_record_end(const struct rank_run *run, const struct training *training);         /* of the step */
void rank_record_close(struct rank_run *run, struct record *record);
#endif
