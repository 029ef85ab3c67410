/* The order of instructions on every machine, and the race check built on it. */
#ifndef PIANOLA_VERIFY_ORDERS_H
#define PIANOLA_VERIFY_ORDERS_H
#include "check.h"

/* verify_bits.c: a set of numbers with nearest-neighbour lookup. */
struct bits {
    uint64_t *level[6];
    int depth;
};
void bits_init(struct bits *bits, int n); /* makes it empty, for members 0 .. n-1 */
void bits_set(struct bits *bits, int i, bool on);
int bits_near(const struct bits *bits, int i, bool above); /* returns the nearest member below or above i, or -1 */

/* verify_orders.c: which instructions must end before another starts. */
struct orders;
struct orders *orders_begin(struct check *check);
void orders_rank(struct orders *orders, int r);      /* moves on to rank r, whose instructions follow in issue order */
void orders_start(struct orders *orders, int32_t i); /* makes i the current instruction */
void orders_end(struct orders *orders, int32_t i);
/* Returns whether j must have ended before i, the current instruction, starts. Considers only the rank's own lanes and
 * waits. */
bool ordered_here(const struct orders *orders, int32_t i, int32_t j);
/* A question about two accesses on rank r: must j have ended before i starts, by some chain of orders? aj, ai: their
 * operands. */
struct question {
    int32_t r, j, i, aj, ai;
    bool wrote, writes;
};
void orders_ask(struct orders *orders, struct question question); /* asks about the current rank and instruction */
bool orders_many(const struct orders *orders); /* whether to answer the pending questions before asking more */
/* Returns the first question, in the order asked, whose answer is no, or NULL. Forgets all questions. */
const struct question *orders_answer(struct orders *orders);

/* verify_races.c */
bool races(struct check *check);
/* Sets place[i] to key i's rank among the sorted distinct keys. Returns the number of distinct keys, at least 1. Keys
 * are >= 0. scratch: 2 n numbers. */
int places_of(const int64_t *key, int n, int32_t *place, int64_t *sorted, int32_t *scratch);
#endif
