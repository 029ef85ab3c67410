/* A run whose ranks are threads of one process, as its caller asks for it: process/train.h. Each rank does as one does
 * that is a process, and leaves what is asked for here. */
#ifndef PIANOLA_RANK_WHOLE_H
#define PIANOLA_RANK_WHOLE_H
#include "device/nonfinite.h"
#include "rank_flags.h"

/* A step that has ended, from 0. loss[batches]: of each microbatch; when[updates_per_step]: when the last stage's
 * updates had ended, in seconds since the training began. validation: the loss after it, on held-out text; NAN: there
 * was none. Step -1: nothing has been trained yet, and only validation is told. */
struct rt_ended {
    int64_t step;
    const float *loss;
    const double *when;
    double validation;
};
struct rt_result {
    int64_t from, done; /* steps that were done before, that are done now */
    int64_t twice;      /* how many steps ran twice: layers/post_validation.h */
    double norm;        /* of the last step's gradient; NAN: it is not clipped */
    struct rt_routed routed;
    struct nonfinite bad; /* the first number that is not finite */
    int signal;           /* that ended it early; 0: none */
};
struct rt_run {
    const struct rt_program *program;
    struct rank_flags flags;
    struct data *data, *held_out; /* held_out: for validations; NULL: there are none */
    struct named_file *weights;   /* as in struct start */
    const char *what;             /* in the lines of progress; NULL: there are none */
    bool looks;              /* for numbers that are not finite, and for SIGINT and SIGTERM, which end it in order */
    bool evaluates;          /* it tells losses alone, as validations do, and trains nothing */
    const double *predicted; /* when the last stage's updates in the first step are predicted to end, for --losses; */
    double predicted_step;   /* and seconds from one step to the next. NULL: nobody has predicted it */
    void (*ended)(void *context, const struct rt_ended *of); /* after each step, or NULL */
    void *context;
    /* Results, in the caller's memory; NULL: nobody asks. */
    float *loss;             /* [steps]: mean over the step's microbatches */
    double *makespan;        /* [steps]: seconds from the first start to the last end */
    struct rt_stamp **stamp; /* [rank]: [kept][instructions], of the last `kept` steps; or NULL */
    int64_t kept;
    struct rt_took **took; /* [rank]: [instructions], on the host, of the last `timed` steps but the first; or NULL */
    int64_t timed;
    struct rt_result *result;
};
#endif
