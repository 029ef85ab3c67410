/* A script that says an order by a rule, for any number of microbatches, instead of listing jobs. */
#ifndef PIANOLA_CLOSED_H
#define PIANOLA_CLOSED_H
#include "base/text.h"
#include "instance.h"
#include "order.h"

/* emit_script.c: schedule scripts, without a comment at the top. Die where a script cannot say what this one says. */
void emit_sequence(struct text *t, const struct spec *sp, struct lists lists);
struct rule {
    const char *n;  /* in Lua */
    bool strict;    /* in exactly this order; weight gradients fill gaps */
    const int *cap; /* per rank, INT_MAX: none; NULL: none at all */
};
void emit_rule(struct text *t, const struct spec *sp, const struct rule *rule);
/* The fields of such a script up to its sequence. */
void emit_before_sequence(struct text *t, const struct spec *sp, const char *batches);

/* rules.c: the rules to try, the simplest first. lists: the order that they should come up to; bytes: memory is
 * limited, though not by the script's caps. */
struct rules {
    struct rule *rule;
    size_t n, cap;
};
bool has_direction(const struct spec *sp, int d); /* on some stage */
struct rules rules_for(const struct spec *sp, struct lists lists, bool bytes);
/* Whether a script with an n can say what this one says of jobs: where they run, how long they take, what is split. */
bool can_scale(const struct spec *sp);

/* pattern.c: the script whose ranks each have a warm-up, a period that comes as often as there are microbatches for,
 * and an end, with `period` microbatches in a period. By default, it has so many batches. False: these lists are not of
 * that form. */
bool emit_pattern(struct text *t, const struct spec *sp, struct lists lists, int period, int batches);
/* The lists for as many microbatches more, with those behind `cut` moved on, and in between those before it repeated:
 * `period` of them, each time `ticks` later. sp: the spec of that many microbatches. */
struct lists stretched(const struct spec *sp, const struct spec *longer, const int64_t *start, int cut, int period,
                       int64_t ticks);

/* closed.c: looks for the rule or pattern that takes no longer than the order and, for more microbatches, least. */
struct hold { /* how it does with more microbatches */
    int batches;
    double makespan;    /* INFINITY: it has no place for so many */
    double best, lower; /* of any order: the best known, and a bound. NAN: the script cannot be asked for so many */
};
enum { HOLDS = 2 };
/* What a written script should do: take no longer than the order, and with more microbatches least; or take least for
 * each further microbatch, whatever its first ones take. */
enum aim { AIM_MAKESPAN, AIM_PERIOD };
struct closed {
    const char *kind; /* "n" or "pattern"; NULL: neither is known */
    struct text body; /* the script */
    double makespan;  /* what its jobs take; of kind NULL, the sequence's */
    struct hold hold[HOLDS];
    int nholds;
    double period; /* AIM_PERIOD: for each further microbatch */
};
/* c: the script's, up to its graph; lists: the order; start: when its jobs start, in ticks
 * of in. states, until: as in find_optimum, for each other number of microbatches. */
struct closed find_closed(const struct compile *c, struct lists lists, const int64_t *start, const struct instance *in,
                          enum aim aim, int64_t states, double until);
#endif
