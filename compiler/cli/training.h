/* Training with all ranks in this process, for `run`, `compare --train` and `profile`. */
#ifndef PIANOLA_TRAINING_H
#define PIANOLA_TRAINING_H
#include "../../runtime/process/train.h"
#include "../../runtime/process/train_cuda.h"
#include "command.h"
#include "pipeline.h"

struct trained {
    struct rt_program *program;
    float *loss;
    double *makespan;
    struct rt_stamp **stamp; /* [rank]: [kept][instructions], for the last steps */
    int64_t kept;
    struct rt_took *
        *took; /* [rank]: [instructions], of the last `timed` steps, where the listener times them; on the host */
    int64_t timed;
    char **arena;
    double seconds;
    struct rt_result result;
    struct cuda_run cuda; /* its results, with --device cuda */
};

/* A caller's further wishes. `ended` is told of each step, as rt_run.ended is; or it is NULL. */
struct listener {
    void (*ended)(void *context, const struct rt_program *p, const struct rt_ended *of);
    void *context;
    struct data *held_out; /* as in rt_run */
    const double *predicted;
    double predicted_step;
    bool records; /* writes all that `run` is asked for as it goes, and looks for numbers that are not finite */
    bool times;   /* what instructions take in the last steps, which it slows down a little */
};

/* Dies if the model has no layers, or the device cannot train it. */
void check_device(const struct compile *c, bool cuda);
/* Trains by settings' seed and device. kept: of so many last steps there are stamps; what: the name in the progress
 * line, or NULL: there is none. Dies without memory; free the arenas with host_free. */
struct trained train(const struct compile *c, const struct settings *settings, struct data *data, int64_t steps,
                     int64_t kept, const char *what, struct listener listener);
double median(const double *x, int64_t n);
#endif
