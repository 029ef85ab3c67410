/* Which instructions must end before another starts, and the races that leaves. */
#ifndef PIANOLA_VERIFY_ORDERS_H
#define PIANOLA_VERIFY_ORDERS_H
#include "check.h"

/* verify_bits.c: a set of numbers with nearest-neighbour lookup. */
struct bits {
    uint64_t *level[6];
    int depth;
};
void bits_init(struct bits *bits, int n); /* empty, for members 0 .. n-1 */
void bits_set(struct bits *bits, int i, bool on);
int bits_near(const struct bits *bits, int i, bool above); /* the nearest member below or above i, or -1 */

/* verify_orders.c: which instructions must end before another starts. */
struct orders;
struct orders *orders_begin(struct check *check);
void orders_rank(struct orders *orders, int r);      /* the instructions that follow are this rank's, in issue order */
void orders_start(struct orders *orders, int32_t i); /* i is next */
void orders_end(struct orders *orders, int32_t i);
/* Must j have ended before i, the current instruction, starts? Considers only the rank's own lanes and waits. */
bool ordered_here(const struct orders *orders, int32_t i, int32_t j);
/* Two accesses on rank r: must j have ended before i starts, by any chain of orders? aj, ai: their operands. */
struct question {
    int32_t r, j, i, aj, ai;
    bool wrote, writes;
};
void orders_ask(struct orders *orders, struct question question); /* about the current rank and instruction */
bool orders_many(const struct orders *orders); /* whether to answer those pending before asking more */
/* The first question, in the order asked, whose answer is no, or NULL. Forgets all questions. */
const struct question *orders_answer(struct orders *orders);

/* verify_races.c */
bool races(struct check *check);
/* The rank of each key among the sorted distinct keys; returns how many distinct keys there are, at least 1. Keys are
 * >= 0. scratch: 2 n numbers. */
int places_of(const int64_t *key, int n, int32_t *place, int64_t *sorted, int32_t *scratch);
#endif
