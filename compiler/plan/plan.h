/* The passes in their order, and the searches between them. A search tries variations of a compile: it copies the
 * value, changes a choice, compiles as far as it needs to compare, and keeps the best. */
#ifndef PIANOLA_PLAN_H
#define PIANOLA_PLAN_H
#include "ir/compile.h"
#include "passes/passes.h"

/* ---- table.c ---- */

struct pass {
    char letter; /* for -d; 0: none */
    bool search;
    const char *name;
    void (*run)(struct compile *c);
    int needs, gives;
    const char *what;
};
extern const struct pass passes[];
extern const int npasses;

enum { FIRST_TRY = 64 }; /* microbatches written out at first, for a step whose updates are jobs */

/* Runs the missing passes and searches that the goal names or needs. A search runs only if the goal names its
 * result. */
void compile_until(struct compile *c, int goal);
/* Returns the results that the compile has. */
int compile_has(const struct compile *c);
/* Drops a result and all later ones. Offsets stay in the program until the next plan overwrites them. */
void compile_forget(struct compile *c, int from);
/* Returns a copy to vary, without the results from `from` on. */
struct compile compile_vary(const struct compile *c, int from);

/* ---- tried.c: the record of variations ---- */

/* Records a variation. makespan: NAN if the search compares something else. why: reason for refusing it; NULL: not
 * refused. */
void tried_add(struct compile *c, const char *search, const char *variation, double makespan, const char *why);
/* Records which of a search's variations it chose: the newest one of that name. */
void tried_ships(struct compile *c, const char *variation);
/* Prints a line for each variation, in order of trial. */
void tried_put(struct text *out, const struct compile *c);

/* ---- the searches, each in the file of its name; they leave their choices in the compile ---- */

void search_periods(struct compile *c);  /* how much of a step to write out, if its updates are jobs */
void search_offloads(struct compile *c); /* which stashes leave the device, if the script says "auto" */
void search_room(struct compile *c);     /* fit.c: how many fetched weights to keep */
void search_prefetch(struct compile *c); /* when fetched weights arrive; needs search_room */
void search_spare(struct compile *c);    /* when to reuse bytes; also leaves the offsets */

/* prefetch.c: returns a variation with a fixed prefetch, without the choices of fit.c. */
struct compile vary_prefetch(const struct compile *c, enum prefetch prefetch);

/* fit.c: plans of weights for the cluster's memory. */
struct fit {
    int *slots;               /* per rank: number of slots that fits */
    const int64_t *bound;     /* per rank: bytes of weights that any plan for this memory receives */
    struct compile *by_slots; /* keeps that number of sets at a time */
    struct compile *by_room;  /* keeps as many bytes of sets as fit; NULL: not better than by_slots */
};
/* Makes the plan with the least memory that the schedule permits, even beyond the cluster's. Returns whether it
 * fits. */
bool plan_least(struct compile *c);
int64_t beyond_memory(const struct compile *c, int r); /* excess of rank r's plan over the memory, in bytes */
void unplan(struct compile *c);                        /* restores the program as it was lowered */
#endif
