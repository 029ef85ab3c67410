/* Which sets a place of limited room keeps between their uses, so that the fewest bytes come in: weighted caching where
 * the limit is a number of sets, general caching where it is one of bytes. Knows nothing of jobs. */
#ifndef PIANOLA_RESIDENCY_H
#define PIANOLA_RESIDENCY_H
#include "base/base.h"

struct residency_use {
    int32_t turn, set;
};
struct residency_problem {
    int sets, turns, nuses;
    const struct residency_use *use; /* by turn; each set at most once per turn */
    const int64_t *size;             /* per set: the bytes that it takes */
    const int64_t *fetch;            /* per set: the bytes that come in when it does; at most 2^50 over all uses */
    int slots;                       /* how many sets there may be in a turn, those in use included */
    const int64_t *room;             /* per turn: how many bytes of sets; NULL: no limit */
};
struct residency {
    bool *kept;              /* per use: the set is still there since its use before */
    int64_t received, bound; /* bytes that come in, and the least that could, by a proof; equal: it is the least */
};

/* What is in use must be there, whether it fits or not; nothing is kept beside what does not fit.
 *
 * The least wherever a limit counts sets, also where it is one of bytes and all sets are of one size: a flow of minimal
 * cost (Arkin & Silverberg 1987, "Scheduling jobs with fixed start and end times"). With a limit in bytes and unequal
 * sizes, which is NP-hard (Chrobak et al. 2012, "Caching is hard, even in the fault model"), the flow bounds a search
 * through at most RESIDENCY_NODES decisions, beyond which `bound` is the flow's. n^2 log n in uses at worst, and about
 * linear where few sets are there at a time. */
enum { RESIDENCY_NODES = 1 << 15 };
struct residency residency_solve(const struct residency_problem *problem);
#endif
