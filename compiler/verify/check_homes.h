/* Sets of weights in parts: who owns which part, and what the units of a buffer hold. */
#ifndef PIANOLA_VERIFY_HOMES_H
#define PIANOLA_VERIFY_HOMES_H
#include "check.h"

/* Part of a set of weights, in its units, of which all of its pieces have whole numbers (verify_homes.c). Of another
 * tensor: all of it. */
struct span {
    int32_t from, to; /* to < 0: it is no whole number of units */
};
/* What a unit holds. */
struct content {
    int32_t count, sum; /* as in struct value; 0 unless set; where it is half made, what that is added to */
    bool set, half;
};

/* verify_homes.c: who owns which part of a set of weights. */
bool homes_begin(struct check *check);
/* The part of its set that an operand is; to < 0: none, since it is a piece of what has none. */
struct span units_of(const struct check *check, int r, const struct arg *a);
/* The part that rank r updates; to < 0: none. */
struct span own_span(const struct check *check, int r, int set);
int32_t weights_at_home(const struct check *check, int r, int set); /* where rank r is a home: its weights; else -1 */
bool keeps(const struct check *check, int r, const struct buf *b);  /* it exists for the whole step */
const char *arg_text(const struct check *check, int r, const struct arg *a);
const char *span_text(struct span span); /* "unit 3", "units 0 to 3" */
static inline bool same_span(struct span a, struct span b) { return a.from == b.from && a.to == b.to; }
/* The i-th of n equal parts of a span; to < 0: they aren't whole. */
static inline struct span part_of(struct span all, int i, int n) {
    int32_t size = (all.to - all.from) / n;
    return size * n == all.to - all.from ? (struct span){all.from + i * size, all.from + (i + 1) * size}
                                         : (struct span){0, -1};
}

/* verify_pieces.c: what the units of a buffer hold. */
/* At a unit of the set; *to: as far as it holds the same. */
struct content held_at(const struct check *check, int r, int32_t b, int32_t unit, int32_t *to);
void hold(struct check *check, int r, int32_t b, struct span span, struct content held);
/* The first unit of the span that holds nothing, or whether it holds anything; -1: none. */
int32_t first_unset(const struct check *check, int r, int32_t b, struct span span);
int32_t first_set(const struct check *check, int r, int32_t b, struct span span);
void drop_pieces(struct check *check, struct value *value); /* it holds nothing */
void copy_span(struct check *check, int from, int32_t b, int to, int32_t c, struct span span);
#endif
