/* A script that gives an order by a rule, for any number of microbatches, instead of listing jobs. */
#ifndef PIANOLA_CLOSED_H
#define PIANOLA_CLOSED_H
#include "base/text.h"
#include "instance.h"
#include "order.h"

/* emit_script.c: writes schedule scripts, without a comment at the top. Dies if a script cannot express this one. */
void emit_sequence(struct text *t, const struct costs *costs, struct lists lists);
struct rule {
    const char *n;  /* priority n, in Lua */
    bool strict;    /* run in exactly this order; else weight gradients fill gaps */
    const int *cap; /* per rank; INT_MAX: none; NULL: no caps at all */
};
void emit_rule(struct text *t, const struct costs *costs, const struct rule *rule);
/* Writes the fields of such a script up to its sequence. */
void emit_before_sequence(struct text *t, const struct costs *costs, const char *batches);

/* rules.c: the rules to try, simplest first. lists: the order that they should match; bytes: memory is limited in
 * bytes, not by the script's caps. */
struct rules {
    struct rule *rule;
    size_t n, cap;
};
bool has_direction(const struct spec *sp, int d); /* whether some stage has jobs of direction d */
struct rules rules_for(const struct spec *sp, struct lists lists, bool bytes);
/* Returns whether a script with an n can express this script's jobs: their ranks, their times, and which are split. */
bool can_scale(const struct costs *costs);

/* pattern.c: writes the script whose ranks each have a warm-up, a repeated period of `period` microbatches, and an end.
 * Its default number of microbatches is `batches`. Returns false if these lists are not of that form. */
bool emit_pattern(struct text *t, const struct costs *costs, struct lists lists, int period, int batches);
/* Returns the lists for longer->batches microbatches. Those after `cut` are moved later. In between, the `period`
 * microbatches before the cut are repeated, each time `ticks` later. */
struct lists stretched(const struct spec *sp, const struct spec *longer, const int64_t *start, int cut, int period,
                       int64_t ticks);

/* closed.c: finds a rule or pattern that takes no longer than the order and, with more microbatches, the least time. */
struct hold { /* result for another number of microbatches */
    int batches;
    double makespan;    /* INFINITY: the rule cannot be used with that many */
    double best, lower; /* best known makespan of any order, its bound. NAN: the script cannot be run with that many */
};
enum { HOLDS = 2 };
/* Aim of a written script: a makespan no longer than the order's and, with more microbatches, the least; or the least
 * time per further microbatch, whatever the first ones take. */
enum aim { AIM_MAKESPAN, AIM_PERIOD };
struct closed {
    const char *kind; /* "n" or "pattern"; NULL: neither was found */
    struct text body; /* the script */
    double makespan;  /* makespan of its jobs; if kind is NULL, of the sequence */
    struct hold hold[HOLDS];
    int nholds;
    double period; /* AIM_PERIOD: time per further microbatch */
};
/* c: the script's compile, up to its graph; lists: the order; start: when its jobs start, in ticks of `in`. states,
 * until: as in find_optimum, for each other number of microbatches. */
struct closed find_closed(const struct compile *c, struct lists lists, const int64_t *start, const struct instance *in,
                          enum aim aim, int64_t states, double until);
#endif
