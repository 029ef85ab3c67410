/* The least makespan over the cap on live activations, all ranks having the same one: the more room, the shorter, until
 * room does not matter any more. */
#ifndef PIANOLA_FRONTIER_H
#define PIANOLA_FRONTIER_H
#include "optimal.h"

struct point {
    int cap;         /* of each rank; 0: none */
    int64_t memory;  /* of a rank, in bytes: that of the curve over bytes; 0: of no other one, or unlimited */
    double makespan; /* of the best known order, in the script's unit; NAN: none is known */
    double lower;    /* no order with this cap takes less; NAN: none fits at all */
    int by;          /* the cap whose certificate says so: its own, or a larger one */
    bool proved;     /* makespan and lower are equal, or none fits, and the certificate is accepted */
};
struct frontier {
    struct point
        *point; /* of caps 1, 2, ..., n, of which the last is as good as none; or over bytes, from few to many */
    int n;
    struct point free; /* without a cap */
    struct point none; /* over bytes: with that memory no order fits, or none was found */
};
struct searches {
    int64_t states; /* of each, at most */
    double seconds; /* for each cap; 0: no limit */
    void *context;
    void (*begins)(void *context, int cap); /* is told before each; 0: without a cap; NULL: nobody is */
    /* Whether an independent checker accepts the certificate of the point's bound. start: of the best order's jobs, in
     * ticks; NULL: none is known. */
    bool (*ended)(void *context, const struct point *point, const char *certificate, const int64_t *start);
    const char *command; /* what the certificates are of */
};
/* Leaves sp's caps replaced. Dies as instance_of does. */
struct frontier find_frontier(struct compile *c, struct searches searches);
/* staircase.c: the same over bytes: of what stays for the whole step and what microbatches keep, on the rank that has
 * most. Below the first point's memory no order fits; every further point is the least memory of a lesser makespan. */
struct frontier find_staircase(struct compile *c, struct searches searches);
/* Gives every rank room for any number of activations: the script's own caps limit neither curve. */
void lift_caps(struct spec *sp);

/* One search of either curve. */
struct searched {
    const struct compile *c;
    struct searches searches;
};
struct optimum search_at(const struct searched *what, const struct instance *in, int64_t own);
const char *certificate_text(const struct searched *what, const struct instance *in, const struct optimum *best,
                             const char *with); /* with: follows the command that the certificate is for */
/* Ends the scratch, and has the point's certificate checked: what is refused bounds nothing. start: as searches.ended
 * takes it. */
struct point end_search(const struct searched *what, struct scratch scratch, struct point point,
                        const char *certificate, const int64_t *start);

/* ---- emit_frontier.c: draws the least makespan over memory, beside known schedules ---- */

struct frontier_step {
    double room;
    double makespan, lower; /* NAN: there is none */
};
struct frontier_mark {
    const char *name;
    double peak, makespan;
};
/* Draws the steps as a staircase and each known schedule as a mark. what: the memory axis's name. */
void emit_frontier(struct text *out, const char *title, const char *what, const struct frontier_step *step, int n,
                   const struct frontier_mark *mark, int nmarks);
#endif
