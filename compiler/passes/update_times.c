/* Ends of the updates of the last stage with weights. Updates in a period, and after it, repeat; each repetition ends
 * later by the average time of one. */
#include "passes.h"
#include <math.h>

/* Sets the end of update k, which is the end on the last of the stage's homes. */
static void ends(struct update_times *times, int64_t k, double at) { times->at[k] = fmax(times->at[k], at); }

struct update_times update_times(const struct program *p, const struct timeline *tl) {
    int last = p->stages - 1;
    while (last > 0 && !has_weights(p, last))
        last--;
    int each = p->update ? p->update[last] : 0; /* microbatches of an update; 0: all of the step */
    struct update_times times = {.n = each ? step_batches(p) / each : 1};
    int64_t again = p->repeats - 1, further = each ? p->period / each : 0; /* updates per repetition */
    double later = again > 0 ? (tl->step - tl->makespan) / (double)again : 0;
    times.at = NEW(double, times.n);
    times.step = p->period > 0 ? tl->step : tl->period;
    for (int r = 0; r < p->workers; r++)
        for (int32_t i = 0; i < p->rank[r].nins; i++) {
            const struct instr *x = &p->rank[r].ins[i];
            if (x->op != OP_U || x->stage != last)
                continue;
            int section = p->period > 0 ? section_of(&p->rank[r], i) : 0;
            int64_t first = section == 2 ? again : 0, past = section == 0 ? 0 : again, k = each ? x->batch : 0;
            for (int64_t n = first; n <= past; n++)
                ends(&times, k + n * further, tl->end[r][i] + (double)n * later);
        }
    return times;
}
