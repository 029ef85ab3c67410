/* cmd_run.c: trains a compiled program in this process, on the host's cores or on one GPU. */
#ifndef PIANOLA_TRAINING_H
#define PIANOLA_TRAINING_H
#include "../../runtime/process/train_cuda.h"
#include "../../runtime/rt.h"
#include "command.h"
#include "compile.h"

struct trained {
    struct rt_program *program;
    float *loss;
    double *makespan;
    struct rt_stamp **stamp; /* [rank]: [kept][instructions], for the last steps */
    int64_t kept;
    char **arena;
    double seconds;
    struct cuda_run cuda; /* its results, with --device cuda */
};
struct losses;
/* what: for the progress line; losses: to be written; NULL: none. Dies if memory does not suffice. Free the arena with
 * host_free. */
struct trained train(const struct compile *c, const struct settings *settings, struct data *data, int64_t steps,
                     int64_t kept, const char *what, struct losses *losses);
/* Dies if the device cannot train this model. */
void check_device(const struct compile *c, bool cuda);
double median(const double *x, int64_t n);
#endif
