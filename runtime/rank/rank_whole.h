/* A run whose ranks are threads of one process, as its caller requests it: process/train.h. Each rank does the same as
 * a rank that is a process, and leaves the requested results here. */
#ifndef PIANOLA_RANK_WHOLE_H
#define PIANOLA_RANK_WHOLE_H
#include "device/nonfinite.h"
#include "rank_flags.h"

/* A step that has ended, counted from 0. loss[batches]: loss of each microbatch; when[updates_per_step]: end of each
 * update of the last stage, in seconds since the training began. validation: loss on held-out text after the step; NAN:
 * there was no validation. Step -1: nothing has been trained yet, and only validation is set. */
struct rt_ended {
    int64_t step;
    const float *loss;
    const double *when;
    double validation;
};
struct rt_result {
    int64_t from, done; /* steps done before this run, and steps done now */
    int64_t twice;      /* number of steps that ran twice: layers/post_validation.h */
    double norm;        /* norm of the last step's gradient; NAN: it is not clipped */
    struct rt_routed routed;
    struct nonfinite bad; /* the first number that is not finite */
    int signal;           /* the signal that ended the run early; 0: none */
    double handoff;       /* turns_handoff, on the host */
};
struct rt_run {
    const struct rt_program *program;
    struct rank_flags flags;
    struct data *data, *held_out; /* held_out: for validations; NULL: there are none */
    struct named_file *weights;   /* as in struct start */
    const char *what;             /* title of the lines of progress; NULL: none are printed */
    bool looks;                   /* the run checks for numbers that are not finite, and ends in order on SIGINT and
                                   * SIGTERM */
    bool evaluates;               /* the run only computes losses, as validations do, and trains nothing */
    const double *predicted;      /* predicted ends of the last stage's updates in the first step, for --losses; */
    double predicted_step;        /* and predicted seconds from one step to the next. NULL: there is no prediction */
    void (*begun)(void *context); /* called once all ranks have agreed to begin, or NULL */
    void (*ended)(void *context, const struct rt_ended *of); /* called after each step, or NULL */
    void *context;
    /* Results, in the caller's memory; NULL: not requested. */
    float *loss;             /* [steps]: mean over the step's microbatches */
    double *makespan;        /* [steps]: seconds from the first start to the last end */
    struct rt_stamp **stamp; /* [rank]: [kept][instructions], times in the last `kept` steps; or NULL */
    int64_t kept;
    struct rt_result *result;
};
#endif
