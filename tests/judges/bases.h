/* Small programs to break: every schedule, graphs, splits, recompute, a shared table, every kind of lanes, drawn specs.
 */
#ifndef PIANOLA_BASES_H
#define PIANOLA_BASES_H
#include "promise.h"

struct base {
    const char *file, *model; /* a schedule; NULL: drawn from the seed */
    const char *set[4];
    int nset, lanes; /* enum lanes_per */
    bool recompute;
    uint64_t seed;
    bool sizes;    /* tensors of several bytes, drawn, instead of one each */
    bool no_token; /* tokens have no bytes */
    bool tied;     /* drawn with a token table */
};

struct compiled {
    struct spec *spec;
    struct graph *graph;
    struct program *program;
};

bool compile_base(const struct base *b, struct compiled *c); /* false: the settings do not suit, or it deadlocks */
const char *describe_base(const struct base *b);
int all_bases(struct base *out, int most);
#endif
