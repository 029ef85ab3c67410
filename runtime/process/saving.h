/* Checkpoints of a run whose ranks share a process: one thread writes and reads those of all ranks. */
#ifndef PIANOLA_SAVING_H
#define PIANOLA_SAVING_H
#include "store/checkpoint.h"

struct saving {
    const char *dir;
    const char *how; /* the command to go on with, for the end of errors */
    int64_t every, keep;
    bool writes, loads;
    int64_t loaded; /* the step of the checkpoint that it loads */
    int64_t from;
    struct checkpoint_run is; /* sequences: read before that step */
};
struct saving_memory { /* how a loop reaches what its ranks have learned */
    void *context;
    struct checkpoint_shard (*pull)(void *context, int rank, const struct rt_home *home);
    void (*push)(void *context, int rank, const struct rt_home *home, const float *weight, const float *moments);
};

/* Returns whether a checkpoint is due after `done` steps. */
static inline bool saving_is_due(const struct rt_run *run, int64_t done) {
    const struct saving *saving = run->saving;
    return saving && saving->writes && done > saving->from && (done % saving->every == 0 || done == run->steps);
}
bool saving_load(const struct saving *saving, const struct rt_program *p, const struct saving_memory *memory, char *why,
                 size_t n);
bool saving_write(const struct saving *saving, const struct rt_program *p, int64_t done, bool nonfinite,
                  const struct saving_memory *memory, char *why, size_t n);
#endif
