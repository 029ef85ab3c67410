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
    struct rt_stamp **stamp; /* [rank]: [kept][instructions], for the last `kept` steps */
    int64_t kept;
    char **arena;
    double seconds;
    struct rt_result result;
    struct cuda_run cuda; /* results with --device cuda */
};

/* A run's introduction of itself, on stdout and on stderr. */
struct introduction {
    struct text out, notes;
};

/* Further requests of a caller. `ended`, if not NULL, is called after each step, as rt_run.ended is. */
struct listener {
    void (*ended)(void *context, const struct rt_program *p, const struct rt_ended *of);
    void *context;
    const struct introduction *introduction; /* printed once no rank refuses to begin; NULL: there is none */
    struct data *held_out;                   /* as in rt_run */
    const double *predicted;
    double predicted_step;
    bool records; /* writes the files that options of `run` name during training, and checks that numbers are finite */
};

/* Dies if the model has no layers, or the device cannot train it. */
void check_device(const struct compile *c, bool cuda);
/* Trains with settings' seed and device. kept: number of last steps to keep stamps of. what: the name in the progress
 * line; NULL: no progress. Dies if memory is short. The caller frees the arenas with host_free. */
struct trained train(const struct compile *c, const struct settings *settings, struct data *data, int64_t steps,
                     int64_t kept, const char *what, struct listener listener);
double median(const double *x, int64_t n);
#endif
