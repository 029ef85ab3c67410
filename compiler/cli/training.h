/* Training with all ranks in this process, for `run`, `compare --train` and `profile`. */
#ifndef PIANOLA_TRAINING_H
#define PIANOLA_TRAINING_H
#include "../../runtime/device/nonfinite.h"
#include "../../runtime/process/saving.h"
#include "../../runtime/process/train_cuda.h"
#include "command.h"
#include "pipeline.h"

struct trained {
    struct rt_program *program;
    float *loss;
    double *makespan, *norm;
    struct rt_stamp **stamp; /* [rank]: [kept][instructions], for the last steps */
    int64_t kept;
    struct rt_took *
        *took; /* [rank]: [instructions], of the last `timed` steps, where the listener times them; on the host */
    int64_t timed;
    char **arena;
    double seconds;
    struct rt_routed routed; /* to experts, and dropped */
    int64_t twice;           /* steps that ran twice, with post-validation */
    struct nonfinite bad;    /* the first number that was not finite; step 0: none was */
    struct cuda_run cuda;    /* its results, with --device cuda */
};

/* Is told of each step, as rt_run.ended is; or ended is NULL. held_out: as in rt_run. */
struct listener {
    void (*ended)(void *context, const struct rt_program *p, const struct rt_ended *of);
    void *context;
    const struct data *held_out;
    const struct saving *saving; /* as in rt_run */
    int64_t of;
    bool stops; /* at a number that is not finite */
    bool times; /* what instructions take in the last steps, which it slows down a little */
};

/* The learning rate of the last stage's last update in a step, which is the step-th of so many. */
double rate_after(const struct rt_program *p, int64_t step, int64_t steps);
/* Dies if the model has no layers, or the device cannot train it. */
void check_device(const struct compile *c, bool cuda);
/* Trains by settings' seed and device. kept: of so many last steps there are stamps; what: the name in the progress
 * line, or NULL: there is none. Dies without memory; free the arenas with host_free. */
struct trained train(const struct compile *c, const struct settings *settings, struct data *data, int64_t steps,
                     int64_t kept, const char *what, struct listener listener);
double median(const double *x, int64_t n);
#endif
