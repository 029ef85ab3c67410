/* Between lower.c and fetch.c: who owns weights, and which ones travel. */
#ifndef PIANOLA_LOWER_H
#define PIANOLA_LOWER_H
#include "pass.h"

/* A job reads sets of weights and adds to their gradients: its stage's own, and where its layers use it the table.
 * -1: not this one. */
enum which_set { OWN, TABLE, NSETS };
int32_t set_read(const struct spec *sp, const struct job *j, enum which_set which);
int32_t set_added(const struct spec *sp, const struct job *j, enum which_set which);
/* The home that w() names for it: of the table, the home of stage 0's forward of the same microbatch. */
int32_t home_of_set(const struct spec *sp, const struct job *j, enum which_set which);
static inline int sets_of(const struct spec *sp) { return sp->stages + sp->tied; }

struct homes {
    int32_t *at, *rank; /* the homes of set s: rank[at[s] .. at[s+1]), ascending; the table's are stage 0's */
};
struct homes homes_of(const struct spec *sp);
bool is_home(const struct homes *h, int set, int rank);

struct fetch {
    int32_t rank, stage, home, inst, uses; /* stage: the set of weights */
    int32_t after;                         /* the job whose end leaves the slot; -1: the slot is free from the start */
};
struct fetches {
    struct fetch *a;
    int n;
    int32_t *of_job;       /* [job * NSETS + which]: the fetch whose weights it reads, or -1 */
    int32_t *after, *next; /* fetches that job j's end lets go: after[j], then next[]; after[njobs]: at the start */
};
struct fetches fetch_plan(const struct spec *sp, const struct sched *sc, const struct homes *h);
#endif
