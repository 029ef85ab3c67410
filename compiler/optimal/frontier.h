/* The least makespan over the cap on live activations, all ranks having the same one: the more room, the shorter, until
 * room does not matter any more. */
#ifndef PIANOLA_FRONTIER_H
#define PIANOLA_FRONTIER_H
#include "ir/graph.h"

struct point {
    int cap;         /* of each rank; 0: none */
    double makespan; /* of the best known order, in the script's unit; NAN: none is known */
    double lower;    /* no order with this cap takes less; NAN: none fits at all, which is proved */
    bool proved;     /* makespan and lower are equal, or none fits */
};
struct frontier {
    struct point *point; /* of caps 1, 2, ..., n, of which the last is as good as none */
    int n;
    struct point free; /* without a cap */
};
struct pains {
    int64_t states;          /* of each search, at most */
    double seconds;          /* for each cap; 0: no limit */
    void (*begins)(int cap); /* is told before each; 0: without a cap */
};
/* Leaves sp's caps replaced. Dies as instance_of does. */
struct frontier find_frontier(struct spec *sp, const struct stage *st, const struct graph *graph, struct pains pains);
#endif
