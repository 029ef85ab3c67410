/* All ranks of a program in this process, a thread each: process/train_host.c. */
#ifndef PIANOLA_RUN_H
#define PIANOLA_RUN_H
#include "data.h"
#include "rt_program.h"

/* What a training starts from. */
struct start {
    uint64_t seed;
    struct named_file *weights; /* store/import.h; NULL: random ones, by the seed */
};

struct rt_stamp { /* seconds since the run began */
    double start, end;
};
/* How often an instruction ran, and the seconds of its thread's CPU time that this took: those it would take alone. */
struct rt_took {
    double seconds;
    int64_t times;
};
/* A step that has ended, from 0. loss[batches]: of each microbatch; when[updates_per_step]: when the last stage's
 * updates had ended, in seconds since the training began. seconds: it took; waited: store/metrics.h; NAN: not measured.
 * validation: the loss after it, on held-out text; NAN: there was none. norm: of the gradient; NAN: it is not clipped.
 * Step -1: nothing has been trained yet, and only validation is told.
 */
struct rt_ended {
    int64_t step;
    const float *loss;
    const double *when;
    double seconds, waited, validation, norm;
};
struct rt_run {
    const struct rt_program *program;
    const struct data *data;
    uint64_t seed;
    struct named_file *weights;  /* as in struct start */
    int64_t steps;               /* to come to, those before `from` included */
    int64_t from;                /* done in earlier runs */
    int64_t of;                  /* over which the learning rate goes its way; 0: steps */
    const struct saving *saving; /* process/saving.h: checkpoints; NULL: none */
    /* results, in the caller's memory, at places from `from` on */
    float *loss;             /* [steps]: mean over the step's microbatches */
    struct rt_stamp **stamp; /* [rank]: [kept][instructions], of the last `kept` steps; or NULL */
    int64_t kept;
    struct rt_took **took; /* [rank]: [instructions], on the host, of the last `timed` steps; or NULL */
    int64_t timed;
    double *makespan;         /* [steps]: seconds from the first start to the last end */
    double *norm;             /* [steps]: of the gradient, NAN: it is not clipped; or NULL */
    struct rt_routed *routed; /* of all steps; NULL: nobody asks */
    int64_t *twice;           /* how many steps ran twice: layers/post_validation.h. NULL: nobody asks */
    void (*progress)(void *context, int64_t step, float loss, double seconds); /* about ten times a second, or NULL */
    void (*ended)(void *context, const struct rt_ended *of);                   /* after each step, or NULL */
    void *context;
    struct nonfinite *bad; /* the first number that is not finite (device/nonfinite.h); NULL: nobody asks */
    bool stops;            /* after the step that follows it, or at the latest before a checkpoint */
    bool evaluates;        /* it tells losses alone, as validations do, and trains nothing */
    /* For validations, before the first step and after every `every`; NULL: there are none. */
    const struct data *held_out;
    int64_t every;
};
/* The mean of a step's losses, of all its microbatches in their order. */
static inline double mean_loss(const float *loss, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)loss[i];
    return sum / (double)n;
}
/* How often a step of so many microbatches updates a stage. */
static inline int32_t updates_per_step(int32_t batches, const struct rt_stage *s) {
    return s->update > 0 ? batches / s->update : 1;
}
/* Trains, and returns the arenas, [memory * workers + rank], NULL where one has no bytes in host memory; free them with
 * host_free. NULL: out of memory. */
char **host_train(const struct rt_run *run);
void host_free(const struct rt_program *p, char **arena);
#endif
