/* Post-validation (Qi et al. 2023, "Zero Bubble Pipeline Parallelism", section 4): no update waits for the norm by
 * which it would be clipped. It is made as if it were not clipped, and a copy is kept of what it was made from. The
 * ranks add up their norms at the beginning of the next step, and the next update finds the sum. Where it had to be
 * clipped, it is taken back, and made again from the copy, clipped; the step that ran meanwhile had wrong weights, and
 * is run again. So the weights have the same bits as where all wait, and as of one rank. What is still open before a
 * checkpoint, a validation or the end, all settle: only messages, norms and updates run.
 *
 * The copy lies behind the optimizer's state of what a home updates, `n` weights: a header, then fp32 the weights, or
 * the masters where there are any, the moments, and the gradient. */
#ifndef PIANOLA_POST_VALIDATION_H
#define PIANOLA_POST_VALIDATION_H
#include "clip.h"

/* The header. It is 0 at the start: nothing is open. */
struct kept {
    int32_t open;    /* the last update: it may yet be taken back */
    int32_t verdict; /* this one's: enum verdict */
    int32_t unused[KEPT_HEADER - 2];
};
enum verdict {
    GOES_ON,    /* the last update stands, and this one is made */
    TAKES_BACK, /* the last one is made again, clipped; not this one */
    STANDS      /* the last one does, and there is no other: all settle */
};

ON_BOTH bool is_clipped_by(const struct rt_model *m, const uint64_t *norm) {
    return clip_scale(m->clip, norm) != 1; /* what is no number clips, too */
}

ON_BOTH void judge_update(struct kept *kept, const struct rt_model *m, const uint64_t *norm, bool settles) {
    bool back = kept->open && is_clipped_by(m, norm);
    kept->verdict = back ? TAKES_BACK : settles ? STANDS : GOES_ON;
    kept->open = kept->verdict == GOES_ON;
}

/* The number of the update that is made: a step that takes the one before back has its own to come. */
ON_BOTH int64_t made_number(const struct kept *kept, int64_t number, bool settles) {
    return number - (kept->verdict == TAKES_BACK && !settles);
}
#endif
