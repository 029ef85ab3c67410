/* The least makespan as a function of the cap on live activations, which is the same for all ranks. More room allows a
 * shorter makespan, until room no longer matters. */
#ifndef PIANOLA_FRONTIER_H
#define PIANOLA_FRONTIER_H
#include "optimal.h"

struct point {
    int cap;         /* per rank; 0: none */
    int64_t memory;  /* bytes per rank, for the curve over bytes; 0: the curve over caps, or unlimited */
    double makespan; /* makespan of the best known order, in the script's unit; NAN: none known */
    double lower;    /* no order with this cap takes less; NAN: none fits at all */
    int by;          /* the cap whose certificate proves it: its own, or a larger one */
    bool proved;     /* makespan and lower are equal, or none fits, and the certificate is accepted */
};
struct frontier {
    struct point *point; /* points for caps 1, 2, ..., n, where the last cap restricts nothing; or points over bytes,
                          * ascending */
    int n;
    struct point free; /* without a cap */
    struct point none; /* over bytes: with this memory no order fits, or none was found */
};
struct searches {
    int64_t states; /* limit of each search */
    double seconds; /* limit for each cap; 0: none */
    void *context;
    void (*begins)(void *context, int cap); /* called before each search; 0: without a cap; may be NULL */
    /* Returns whether an independent checker accepts the certificate of the point's bound. start: of the best order's
     * jobs, in ticks; NULL: no order is known. */
    bool (*ended)(void *context, const struct point *point, const char *certificate, const int64_t *start);
    const char *command; /* the command that the certificates are for */
};
/* Finds the least makespan for each cap. Leaves the compile with a spec of other caps. Dies as instance_of does. */
struct frontier find_frontier(struct compile *c, struct searches searches);
/* staircase.c: the same over bytes: what stays for the whole step plus what microbatches keep, on the rank that has
 * most. No order fits below the first point's memory. Each further point is the least memory for a shorter makespan. */
struct frontier find_staircase(struct compile *c, struct searches searches);
/* Gives the compile another spec, with this cap on every rank; INT_MAX: the script's own caps limit neither curve. */
void set_caps(struct compile *c, int cap);

/* One search of either curve */
struct searched {
    const struct compile *c;
    struct searches searches;
};
struct optimum search_at(const struct searched *what, const struct instance *in, int64_t own);
const char *certificate_text(const struct searched *what, const struct instance *in, const struct optimum *best,
                             const char *with); /* with: appended to the command that the certificate is for */
/* Ends the scratch, and has the point's certificate checked: if it is refused, it bounds nothing. start: as for
 * searches.ended. */
struct point end_search(const struct searched *what, struct scratch scratch, struct point point,
                        const char *certificate, const int64_t *start);
#endif
