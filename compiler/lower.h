/* Between lower.c and fetch.c: who owns weights, and which ones travel. */
#ifndef PIANOLA_LOWER_H
#define PIANOLA_LOWER_H
#include "pass.h"

struct homes {
    int32_t *at, *rank; /* the homes of stage s: rank[at[s] .. at[s+1]), ascending */
};
struct homes homes_of(const struct spec *sp);
bool is_home(const struct homes *h, int stage, int rank);

struct fetch {
    int32_t rank, stage, home, inst, uses;
    int32_t after; /* the job whose end leaves the slot; -1: the slot is free from the start */
};
struct fetches {
    struct fetch *a;
    int n;
    int32_t *of_job;       /* per job: the fetch whose weights it reads, or -1 */
    int32_t *after, *next; /* fetches that job j's end lets go: after[j], then next[]; after[njobs]: at the start */
};
struct fetches fetch_plan(const struct spec *sp, const struct sched *sc, const struct homes *h);
#endif
