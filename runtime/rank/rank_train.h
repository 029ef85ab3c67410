/* The training loop of a rank: rank_begin.c, rank_train.c, rank_record.c. */
#ifndef PIANOLA_RANK_TRAIN_H
#define PIANOLA_RANK_TRAIN_H
#include "device/ahead.h"
#include "rank_run.h"
#include "store/journal.h"
#include "store/tensorboard.h"

/* Destinations of the records of steps and validations, if any are requested. */
struct record {
    struct journal losses, metrics; /* rank 0's, open with --losses and --metrics */
    struct tensorboard board;       /* rank 0's, open with --tensorboard */
    float *loss;                    /* loss of each microbatch */
    double *mine, *all;             /* this rank's figures and times of updates; all ranks' */
    double *when;                   /* end of each update of the last stage in a step */
    double *predicted;
    int teller; /* the rank that measures these times and sends them to rank 0 */
    struct rt_ended ended;
};
enum { INTS, TERMS, NONFINITE, LOSSES }; /* contents of a pulse */
struct training {
    /* Numbers of ranks that received SIGINT, that received SIGTERM, and that have found a number that is not finite;
     * then the last step's loss of each microbatch. */
    float *pulse;
    float *loss; /* this rank's loss of each microbatch */
    struct record record;
    float *held_out[2]; /* losses of two steps of a validation; NULL: there are none */
    float first, last;
    double begun, seconds, took; /* took: seconds of the last step */
    int64_t saved;               /* step of the last checkpoint, or of the run's start; 0: there is none */
    int signal;                  /* the signal that ended the training early; 0: none */
    struct ahead ahead;
    int64_t step, enqueued; /* steps that have ended, and that have been enqueued, counting earlier runs too */
};

/* Returns the number of updates of the last stage in a step. */
static inline int32_t rank_updates(const struct rank_run *run) {
    return updates_per_step(run->program.batches, &run->program.stage[run->program.updated]);
}
/* Returns the learning rate of the last stage's last update in the step-th step. */
double rank_rate(const struct rank_run *run, int64_t step);
/* Returns the seconds from the first start of a step to the last end, if ranks are threads; steps count from 0. */
double rank_makespan(const struct rank_run *run, int64_t step);

/* rank_begin.c, collective: takes all memory that the run needs, and resumes from a checkpoint if asked to. From the
 * first step on, nothing is allocated. */
void rank_begin(struct rank_run *run, struct training *training);
void rank_end(struct rank_run *run, struct training *training); /* releases all but the backend and the world */

/* rank_train.c, collective: trains from step run->from on. Ends the process if the training produces numbers that are
 * not finite, unless --allow-nonfinite is given. */
void rank_train(struct rank_run *run, struct training *training);

/* Reports that a signal has ended the training. */
void rank_tell_signal(const struct rank_run *run, const struct training *training);

/* rank_record.c */
void rank_record_open(struct rank_run *run, struct record *record); /* collective */
static inline bool rank_tells(const struct rank_run *run, const struct record *record) {
    return record->when && record->teller == run->world.rank;
}
void rank_record_step(struct rank_run *run, struct training *training); /* collective: writes the lines of a step */
void rank_record_validation(struct rank_run *run, struct training *training, double loss); /* rank 0 only */
void rank_record_end(const struct rank_run *run, const struct training *training);         /* ends the step's record */
void rank_record_close(struct rank_run *run, struct record *record);
#endif
