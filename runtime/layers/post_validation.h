/* Post-validation (Qi et al. 2023, "Zero Bubble Pipeline Parallelism", section 4): no update waits for the norm that
 * may clip it. The update runs unclipped, and keeps a copy of all its inputs. The ranks add up their norms at the
 * beginning of the next step, and the next update reads the sum. If the last update should have been clipped, it is
 * rolled back and redone from the copy, clipped. The step that ran in the meantime had wrong weights, and runs again.
 * So the weights have the same bits as if all ranks had waited, and as on one rank. Before a checkpoint, a validation
 * or the end, all ranks settle open updates: only messages, norms and updates run.
 *
 * The copy follows the optimizer's state of the `n` weights that a home updates: a header, then in fp32 the weights (or
 * the masters if there are any), the moments, and the gradient. */
#ifndef PIANOLA_POST_VALIDATION_H
#define PIANOLA_POST_VALIDATION_H
#include "clip.h"

/* The header of the copy. It starts as 0: nothing is open. */
struct kept {
    int32_t open;    /* the last update may yet be rolled back */
    int32_t verdict; /* enum verdict: on the update under way */
    int32_t unused[KEPT_HEADER - 2];
};
enum verdict {
    GOES_ON,    /* the last update stands, and this one is made */
    TAKES_BACK, /* the last update is made again, clipped; this one is not made */
    STANDS      /* the last update stands, and there is no further one: all settle */
};

ON_BOTH bool is_clipped_by(const struct rt_model *m, const uint64_t *norm) {
    return clip_scale(m->clip, norm) != 1; /* NaN clips, too */
}

ON_BOTH void judge_update(struct kept *kept, const struct rt_model *m, const uint64_t *norm, bool settles) {
    bool back = kept->open && is_clipped_by(m, norm);
    kept->verdict = back ? TAKES_BACK : settles ? STANDS : GOES_ON;
    kept->open = kept->verdict == GOES_ON;
}

/* Returns the number of the update that runs. A step that rolls back the previous update runs its own update later. */
ON_BOTH int64_t made_number(const struct kept *kept, int64_t number, bool settles) {
    return number - (kept->verdict == TAKES_BACK && !settles);
}
#endif
