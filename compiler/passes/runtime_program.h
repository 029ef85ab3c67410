/* The program in the runtime's form, which `run` replays and rank<k>.cu prints. */
#ifndef PIANOLA_RUNTIME_PROGRAM_H
#define PIANOLA_RUNTIME_PROGRAM_H
#include "../../runtime/rt_program.h"
#include "ir/costs.h"
#include "ir/program.h"

/* Returns the program with all ranks and meetings. hash is 0. */
struct rt_program *runtime_program(const struct costs *costs, const struct program *p);

/* One rank's view, and the identity of its buffers: buffer i is a whole buffer of the rank's, or a piece of one. */
struct runtime_view {
    struct rt_program program;
    struct rt_rank rank;
    const struct rt_buffer *buffer;
    const struct arg *of;
    int nbuffers;
};
struct runtime_view *runtime_view(const struct costs *costs, const struct program *p, int r);
#endif
