/* Sets of weights in parts: who owns which part, and what the units of a buffer hold. */
#ifndef PIANOLA_VERIFY_HOMES_H
#define PIANOLA_VERIFY_HOMES_H
#include "check.h"

/* A range of units of a set of weights; every piece is a whole number of units (verify_homes.c). Other tensors have one
 * unit. */
struct span {
    int32_t from, to; /* to < 0: not a whole number of units */
};
/* Content of one unit */
struct content {
    int32_t count, sum; /* as in struct value; 0 unless set; if half: what the job in progress adds to */
    bool set, half;
};

/* verify_homes.c: who owns which part of a set of weights. */
bool homes_begin(struct check *check);
/* Returns the units of its set that an operand covers; to < 0: no whole number of units, or its rank owns no such
 * shard. */
struct span units_of(const struct check *check, int r, const struct arg *a);
/* Returns the units that rank r updates; to < 0: none. */
struct span own_span(const struct check *check, int r, int set);
int32_t weights_at_home(const struct check *check, int r, int set); /* rank r's buffer if it is a home; else -1 */
bool keeps(const struct check *check, int r, const struct buf *b);  /* whether it exists for the whole step */
const char *arg_text(const struct check *check, int r, const struct arg *a);
const char *span_text(struct span span); /* "unit 3", "units 0 to 3" */
static inline bool same_span(struct span a, struct span b) { return a.from == b.from && a.to == b.to; }
/* Returns the i-th of n equal parts of a span; to < 0: they are not whole units. */
static inline struct span part_of(struct span all, int i, int n) {
    int32_t size = (all.to - all.from) / n;
    return size * n == all.to - all.from ? (struct span){all.from + i * size, all.from + (i + 1) * size}
                                         : (struct span){0, -1};
}

/* verify_pieces.c: what the units of a buffer hold. */
/* Returns what a unit of the set holds. *to: end of the run of units that hold the same. */
struct content held_at(const struct check *check, int r, int32_t b, int32_t unit, int32_t *to);
void hold(struct check *check, int r, int32_t b, struct span span, struct content held);
/* Return the first unit of the span that holds nothing, or something; -1: none. */
int32_t first_unset(const struct check *check, int r, int32_t b, struct span span);
int32_t first_set(const struct check *check, int r, int32_t b, struct span span);
void drop_pieces(struct check *check, struct value *value); /* empties it */
void copy_span(struct check *check, int from, int32_t b, int to, int32_t c, struct span span);
#endif
