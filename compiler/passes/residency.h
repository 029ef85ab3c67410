/* Chooses the sets that a place of limited room keeps between their uses, so that the fewest bytes are received. This
 * is weighted caching if the limit is a number of sets, and general caching if it is in bytes. It does not depend on
 * jobs. */
#ifndef PIANOLA_RESIDENCY_H
#define PIANOLA_RESIDENCY_H
#include "base/base.h"

struct residency_use {
    int32_t turn, set;
};
struct residency_problem {
    int sets, turns, nuses;
    const struct residency_use *use; /* sorted by turn; each set at most once per turn */
    const int64_t *size;             /* per set: bytes that it occupies */
    const int64_t *fetch;            /* per set: bytes received when it is fetched; at most 2^50 over all uses */
    int slots;                       /* maximum number of sets in a turn, including those in use */
    const int64_t *room;             /* per turn: maximum bytes of sets; NULL: no limit */
};
struct residency {
    bool *kept;              /* per use: the set has been kept since its previous use */
    int64_t received, bound; /* bytes received, and a proven lower bound on them; equal: received is optimal */
};

/* Solves a problem. Sets in use must be present, whether they fit or not; if they do not fit, nothing else is kept.
 *
 * The result is optimal if the limit counts sets, or is in bytes and all sets have one size: a flow of minimal cost
 * (Arkin & Silverberg 1987, "Scheduling jobs with fixed start and end times"). With a limit in bytes and unequal sizes,
 * the problem is NP-hard (Chrobak et al. 2012, "Caching is hard, even in the fault model"). Then the flow bounds a
 * search through at most RESIDENCY_NODES decisions, beyond which `bound` is the flow's. Takes n^2 log n in uses at
 * worst, and about linear time if few sets are there at a time. */
enum { RESIDENCY_NODES = 1 << 15 };
struct residency residency_solve(const struct residency_problem *problem);
#endif
