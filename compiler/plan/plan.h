/* The passes in their order, and the searches between them. A search tries variations of a compile: it copies the
 * value, changes a choice, compiles as far as it needs to compare, and keeps the best. */
#ifndef PIANOLA_PLAN_H
#define PIANOLA_PLAN_H
#include "ir/compile.h"
#include "passes/passes.h"

/* ---- table.c ---- */

struct pass {
    char letter; /* for -d; 0: it has none */
    bool search;
    const char *name;
    void (*run)(struct compile *c);
    int needs, gives;
    const char *what;
};
extern const struct pass passes[];
extern const int npasses;

enum { FIRST_TRY = 64 }; /* microbatches that are written out at first, of a step whose updates are jobs */

/* Runs the passes and searches whose results are part of the goal, or needed for it, and are not there yet. A search
 * runs only if the goal names its result. */
void compile_until(struct compile *c, int goal);
/* The results that are there. */
int compile_has(const struct compile *c);
/* Drops a result, and all that come after it. Offsets stay in the program until others are written over them. */
void compile_forget(struct compile *c, int from);
/* A copy to be varied: it has none of the results from `from` on. */
struct compile compile_vary(const struct compile *c, int from);

/* ---- tried.c: the record of what was tried ---- */

/* Notes a variation. makespan: NAN where the search compares something else. why: it was refused; NULL: it was not. */
void tried_add(struct compile *c, const char *search, const char *variation, double makespan, const char *why);
/* Notes which of a search's variations it chose: the newest one of that name. */
void tried_ships(struct compile *c, const char *variation);
/* Prints a line for each variation, in the order in which they were tried. */
void tried_put(struct text *out, const struct compile *c);

/* ---- the searches, each in the file of its name; what they choose, they leave in the compile ---- */

void search_periods(struct compile *c);  /* how much of a step is written out, where its updates are jobs */
void search_offloads(struct compile *c); /* which stashes leave the device, where the script says "auto" */
void search_room(struct compile *c);     /* fit.c: how many of the weights that travel are kept */
void search_prefetch(struct compile *c); /* when weights that travel come: needs search_room */
void search_spare(struct compile *c);    /* when bytes are reused; leaves the offsets, too */

/* prefetch.c: a variation with a fixed prefetch, without what fit.c found. */
struct compile vary_prefetch(const struct compile *c, enum prefetch prefetch);

/* fit.c: the plans of weights for the cluster's memory. */
struct fit {
    int *slots;               /* per rank: with these, each fits */
    const int64_t *bound;     /* per rank: the bytes of weights that any plan for this memory receives */
    struct compile *by_slots; /* keeps so many sets at a time */
    struct compile *by_room;  /* keeps what there is room for; NULL: that is no better */
};
/* Plans as small a memory as the schedule permits, whatever the cluster has. Returns whether that suffices. */
bool plan_least(struct compile *c);
int64_t beyond_memory(const struct compile *c, int r); /* bytes by which the plan of rank r exceeds the memory */
void unplan(struct compile *c);                        /* leaves the program as it was lowered */
#endif
