/* The search for the best order of an instance's items.
 *
 * A state is a moment at which something may start: how many items of each class have started, and when the last ones
 * did, as long as that matters. From it, each rank that is free starts an item that can start, or none; the next state
 * is at the next moment at which anything ends or arrives. States are visited in the order of time. One is dropped if
 * even the least time for what is left (bound) ends no sooner than the best schedule so far, or if another one at the
 * same time is as far in everything (dominates). What is visited, down to no state, is a proof that nothing is better:
 * certify.c writes it down.
 *
 * For spans (instance.h), events are not enough: a rank may gain by beginning just in time for something later. So as
 * long as a rank has not begun, each tick is a moment: what is found is the least at whole ticks, which may be more
 * than the least of all, but by less than a tick (compiler/certificates.md). Once all have begun, moving any later item
 * to an earlier event moves no rank's first, and no last to later. While nothing runs and nothing is on its way, nobody
 * need wait: all that starts later could start that much earlier. In a state that dominates another, the same ranks
 * have begun, and none earlier: what completes the other completes it, with no longer spans. For the same reason a rank
 * that has not begun is never said to waste time. The bound of a dominating state is no larger, so what it stands for
 * may be dropped even where it is itself dropped by its bound.
 *
 * With a beam, only so many states of each moment are followed: quick, and no proof. */
#ifndef PIANOLA_SEARCH_H
#define PIANOLA_SEARCH_H
#include "instance.h"

struct effort {
    int beam;       /* states of each moment; 0: all */
    int64_t states; /* so many at most, then it gives up */
    double until;   /* seconds since the epoch; 0: for ever */
};
struct visited { /* states in the order of time, as rows of words */
    int64_t *time;
    size_t *at; /* in word: n of each class; free of each rank; for spans, since when each rank runs, 0 if it has not
                 * begun, and its span once it has ended; how many recent starts, and class, age of each */
    int32_t *parent, *word;
    bool *kept;  /* it was followed, not dropped as dominated */
    int n, best; /* best: the state in which everything has started; -1: nothing ends before the limit */
};
struct found {
    int64_t makespan; /* or largest span: the best below the limit, or the limit */
    bool all;         /* nothing was left out: no schedule is shorter */
    struct visited visited;
};
double seconds_now(void);           /* since the epoch */
double seconds_until(double limit); /* when that many seconds have passed; 0 if there is no limit, 0 */
/* Looks for a schedule that ends before `limit`, or whose largest span is less. */
struct found search(const struct instance *in, int64_t limit, struct effort effort);

/* starts.c: per job, when it starts, in ticks. */
int64_t *starts_of(const struct instance *in, const struct found *found, const struct graph *graph);
#endif
