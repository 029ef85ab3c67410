/* The program in the runtime's form: what `run` replays, and what rank<k>.cu says. */
#ifndef PIANOLA_RUNTIME_PROGRAM_H
#define PIANOLA_RUNTIME_PROGRAM_H
#include "../../runtime/rt_program.h"
#include "ir/program.h"

/* All ranks and meetings. hash 0. */
struct rt_program *runtime_program(const struct spec *sp, const struct stage *st, const struct program *p);

/* One rank's view, and what its buffers are: buffer i is the whole of one of the rank's, or a piece of it. */
struct runtime_view {
    struct rt_program program;
    struct rt_rank rank;
    const struct rt_buffer *buffer;
    const struct arg *of;
    int nbuffers;
};
struct runtime_view *runtime_view(const struct spec *sp, const struct stage *st, const struct program *p, int r);
#endif
