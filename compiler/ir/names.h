/* The names that scripts and readers use for the stages and microbatches of a compile. */
#ifndef PIANOLA_NAMES_H
#define PIANOLA_NAMES_H
#include "base/base.h"

/* The names of stages and microbatches. Inside the compiler, each member of a team is a stage, and each slice is a
 * microbatch, so stages and microbatches are consecutive numbers. Only input and output say 1.0 and 3.1. */
struct names {
    int slices;            /* per microbatch; 0: not cut into slices */
    int sets;              /* sets of weights after the stages' own: the token tables, */
    int tables;            /* one for each member of stage 0's team, then the sets that teams share */
    const int32_t *shared; /* per stage: the set that its team shares, or -1; NULL: none shares one */
    const bool *whole; /* per stage: whether its team's members hold some of its parameters whole; NULL: no team's do */
    int stages;        /* with teams: the script's number of stages, */
    const int32_t *first;    /* [stages + 1]: the first member of each */
    const struct member {    /* per set of weights, the stages' first; NULL: there are no teams */
        int32_t stage;       /* the script's stage */
        int32_t place, size; /* size: of its team; place -1: it belongs to no member */
    } * member;
};

/* Returns the slices of a microbatch, at least 1. */
static inline int slices_of(const struct names *names) { return names->slices ? names->slices : 1; }
/* Returns the place of a stage's member in its team; 0 if it has none. */
static inline int place_of_stage(const struct names *names, int s) {
    return names->member && names->member[s].place > 0 ? names->member[s].place : 0;
}

/* Returns the script's number of stages, given the compiler's. */
static inline int script_stages(const struct names *names, int stages) {
    return names->member ? names->stages : stages;
}

/* teams.c: counts and names the sets after the stages' own. Needs member and first. */
void name_sets(struct names *names, int stages, bool tied, bool shared);
#endif
