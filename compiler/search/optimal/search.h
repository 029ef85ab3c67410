/* The search for the best order of an instance's items.
 *
 * A state is a moment at which something may start: how many items of each class have started, and when the last ones
 * did, as long as that matters. From it, each rank that is free starts an item that can start, or none. The next state
 * is at the next moment at which anything ends or arrives. States are visited in the order of time. A state is dropped
 * if its lower bound (bound) is no sooner than the end of the best schedule so far. It is also dropped if another state
 * at the same time is at least as far in every respect (dominates it). If no state is left, what was visited proves
 * that nothing is better: certify.c writes it down.
 *
 * For spans (instance.h), events are not enough, because a rank may gain by beginning just in time for something later.
 * So as long as a rank has not begun, each tick is a moment. The result is the least span at whole ticks, which exceeds
 * the true minimum by less than a tick (compiler/certificates.md). Once all have begun, moving any later item to an
 * earlier event moves no rank's first item, and no last item to later. While nothing runs and nothing is in transit, no
 * rank needs to wait, since everything that starts later could start that much earlier. If a state dominates another,
 * the same ranks have begun, and none earlier: what completes the other completes it, with no longer spans. For the
 * same reason a rank that has not begun never counts as wasting time. The bound of a dominating state is no larger, so
 * the state it stands for may be dropped even if the dominating state is itself dropped by its bound.
 *
 * With a beam, only that many states of each moment are followed: this is quick, and proves nothing. */
#ifndef PIANOLA_SEARCH_H
#define PIANOLA_SEARCH_H
#include "instance.h"

struct effort {
    int beam;       /* states per moment; 0: all */
    int64_t states; /* limit, after which it gives up */
    double until;   /* seconds since the epoch; 0: no limit */
};
struct visited { /* states in the order of time, as rows of words */
    int64_t *time;
    size_t *at; /* offset of each state in word: started items of each class; busy time of each rank; for spans, time
                   since each rank began, 0 if it has not, and its span once it has ended; the number of recent starts,
                   then class and age of each */
    int32_t *parent, *word;
    bool *kept;  /* whether it was followed, not dropped as dominated */
    int n, best; /* best: the state in which everything has started; -1: nothing ends before the limit */
};
struct found {
    int64_t makespan; /* or largest span: the best below the limit, or the limit */
    bool all;         /* the search was exhaustive: no schedule is shorter */
    struct visited visited;
};
double seconds_now(void);           /* since the epoch */
double seconds_until(double limit); /* returns the time in `limit` seconds; 0 if limit is 0 */
/* Searches for a schedule that ends before `limit`, or whose largest span is less. */
struct found search(const struct instance *in, int64_t limit, struct effort effort);

/* starts.c: returns, per job, when it starts, in ticks. */
int64_t *starts_of(const struct instance *in, const struct found *found, const struct graph *graph);
#endif
