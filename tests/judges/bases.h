/* Small programs to break: schedules, graphs, splits, recompute, a shared table, all kinds of lanes, random specs. */
#ifndef PIANOLA_BASES_H
#define PIANOLA_BASES_H
#include "promise.h"

struct base {
    const char *file, *model; /* a schedule; NULL: a random spec from the seed */
    bool text;                /* the file is a program's text */
    const char *set[6];
    int nset, lanes; /* enum lanes_per */
    bool recompute;
    uint64_t seed;
    bool sizes;           /* tensors have several bytes, at random, instead of one each */
    bool no_token;        /* tokens have no bytes */
    bool tied;            /* drawn with a token table */
    bool sharded;         /* drawn with lists of homes, and zero */
    bool rounds;          /* drawn with few sums at a time, gradients in pieces, and backwards in parts */
    bool host;            /* drawn with stashes, inputs and state in host memory */
    bool slices;          /* drawn with slices */
    bool bare;            /* drawn with stages without weights */
    bool shared;          /* the members of teams share weights */
    bool clip;            /* updates are clipped by the norm of all gradients */
    bool post_validation; /* updates do not wait for the norm */
    bool steady;          /* a step of many microbatches, with a repeating period */
};

struct compiled { /* a text has no spec and no graph */
    struct spec *spec;
    struct graph *graph;
    struct program *program;
};

bool compile_base(const struct base *b, struct compiled *c); /* false: the settings do not fit, or it deadlocks */
const char *describe_base(const struct base *b);
int all_bases(struct base *out, int most);
#endif
