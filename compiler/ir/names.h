/* The names that scripts and readers use for the stages and microbatches of a compile. */
#ifndef PIANOLA_NAMES_H
#define PIANOLA_NAMES_H
#include "base/base.h"

/* The names of stages and microbatches. Inside the compiler, each member of a team has a stage of its own, and each
 * slice is a microbatch of its own: stage and microbatch are consecutive numbers everywhere, and only what is read and
 * written says 1.0 and 3.1. */
struct names {
    int slices;              /* of a microbatch; 0: it is not cut */
    int sets;                /* of weights behind the stages' own: the tables of tokens, */
    int tables;              /* which are so many, one for each member of stage 0's team; then what teams share */
    const int32_t *shared;   /* per stage: the set that its team shares, or -1; NULL: none shares one */
    const bool *whole;       /* per stage: its team's members have some of its parameters whole; NULL: no team's do */
    int stages;              /* where teams are named: as scripts count them, */
    const int32_t *first;    /* and the first member's of each of these, [stages + 1] */
    const struct member {    /* per set of weights, of which the first are the stages'; NULL: no team is named */
        int32_t stage;       /* as scripts count */
        int32_t place, size; /* in a team of so many; place -1: it is no member's */
    } * member;
};

/* Slices of a microbatch, at least 1. */
static inline int slices_of(const struct names *names) { return names->slices ? names->slices : 1; }
/* The place of a stage's member in its team; 0: it has none. */
static inline int place_of_stage(const struct names *names, int s) {
    return names->member && names->member[s].place > 0 ? names->member[s].place : 0;
}

/* How many stages the script has, of so many here. */
static inline int script_stages(const struct names *names, int stages) {
    return names->member ? names->stages : stages;
}

/* teams.c: how the sets behind those of so many stages are called, and how many there are. Needs member and first. */
void name_sets(struct names *names, int stages, bool tied, bool shared);
#endif
