/* The host's side of post-validation: steps run ahead of the norms of earlier steps. All ranks decide alike, since all
 * read the same norm. */
#ifndef PIANOLA_AHEAD_H
#define PIANOLA_AHEAD_H
#include "layers/post_validation.h"

struct ahead {
    bool open;     /* the last step's updates may yet be rolled back */
    bool careful;  /* an update was clipped recently: the next ones settle at once, so that fewer steps run twice */
    int64_t twice; /* steps that have run twice */
};

/* Records a step whose updates read this norm. Returns whether they rolled back the step before; the step then runs
 * again, once. */
static inline bool runs_again(struct ahead *ahead, const struct rt_model *m, const uint64_t *norm) {
    bool again = ahead->open && is_clipped_by(m, norm);
    ahead->open = m->post_validation;
    ahead->careful |= again;
    ahead->twice += again;
    return again;
}

/* Returns whether all ranks must settle now. asked: someone is about to use the state or the norm. */
static inline bool must_settle(const struct ahead *ahead, bool asked) {
    return ahead->open && (asked || ahead->careful);
}
/* Records that all ranks have settled, with this norm. */
static inline void settled(struct ahead *ahead, const struct rt_model *m, const uint64_t *norm) {
    ahead->open = false;
    ahead->careful = is_clipped_by(m, norm);
}
#endif
