/* An update that may be taken back, fp32. */
#include "post_validation.h"
#include "host.h"
#include <string.h>

bool host_update_ahead(const struct rt_model *m, const struct rt_stage *s, int64_t first, int64_t n, float *w,
                       const float *dw, float *opt, float *work, const uint64_t *norm, int64_t number, int64_t of,
                       bool settles) {
    size_t weights = (size_t)n * sizeof *w, state = (size_t)count_moments(m->optimizer) * weights;
    struct kept *kept = (void *)(opt + state / sizeof *opt);
    float *kept_w = (float *)(kept + 1), *kept_opt = kept_w + n, *kept_dw = kept_opt + state / sizeof *opt;
    judge_update(kept, m, norm, settles);
    if (kept->verdict == STANDS)
        return true;
    if (kept->verdict == TAKES_BACK) {
        memcpy(w, kept_w, weights);
        memcpy(opt, kept_opt, state);
    } else {
        memcpy(kept_w, w, weights);
        memcpy(kept_opt, opt, state);
        memcpy(kept_dw, dw, weights);
    }
    return host_update(m, s, first, n, w, kept_dw, opt, work, kept->verdict == TAKES_BACK ? norm : NULL,
                       made_number(kept, number, settles), of);
}
