/* Updates that may be rolled back, in fp32. */
#include "post_validation.h"
#include "host.h"
#include <string.h>

bool host_update_ahead(const struct rt_update *u) {
    const struct rt_model *m = u->piece.m;
    const int64_t n = u->piece.n;
    size_t weights = (size_t)n * sizeof(float), state = (size_t)count_moments(m->optimizer) * weights;
    struct kept *kept = (void *)(u->opt + state / sizeof *u->opt);
    float *kept_w = (float *)(kept + 1), *kept_opt = kept_w + n, *kept_dw = kept_opt + state / sizeof *u->opt;
    judge_update(kept, m, u->norm, u->settles);
    if (kept->verdict == STANDS)
        return true;
    if (kept->verdict == TAKES_BACK) {
        memcpy(u->w, kept_w, weights);
        memcpy(u->opt, kept_opt, state);
    } else {
        memcpy(kept_w, u->w, weights);
        memcpy(kept_opt, u->opt, state);
        memcpy(kept_dw, u->dw, weights);
    }
    struct rt_update made = *u;
    made.dw = kept_dw;
    made.norm = kept->verdict == TAKES_BACK ? u->norm : NULL;
    made.number = made_number(kept, u->number, u->settles);
    return host_update(&made);
}
