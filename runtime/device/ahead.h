/* Post-validation as the host sees it: steps that go ahead of the norms of those before them. What it decides, all
 * ranks decide alike, since all find the same norm. */
#ifndef PIANOLA_AHEAD_H
#define PIANOLA_AHEAD_H
#include "layers/post_validation.h"

struct ahead {
    bool open;     /* the last step's updates may yet be taken back */
    bool careful;  /* an update was clipped of late: the next ones settle at once, rather than that steps run twice */
    int64_t twice; /* how many steps have run twice */
};

/* A step has run, whose updates found this norm. True: it has taken those of the step before back, and runs again,
 * once.
 */
static inline bool runs_again(struct ahead *ahead, const struct rt_model *m, const uint64_t *norm) {
    bool again = ahead->open && is_clipped_by(m, norm);
    ahead->open = m->post_validation;
    ahead->careful |= again;
    ahead->twice += again;
    return again;
}

/* Must all settle now? asked: the state is about to be used, or the norm. */
static inline bool must_settle(const struct ahead *ahead, bool asked) {
    return ahead->open && (asked || ahead->careful);
}
/* They have, by this norm. */
static inline void settled(struct ahead *ahead, const struct rt_model *m, const uint64_t *norm) {
    ahead->open = false;
    ahead->careful = is_clipped_by(m, norm);
}
#endif
