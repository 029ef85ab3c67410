/* How much each side does: its ranks, stages and microbatches. Without a model, every F costs 1 however small its stage
 * is. If the sides cut the model differently, their times are scaled as `compare` scales them. */
#include "diff.h"
#include <string.h>

const char *const size_name[NSIZES] = {"ranks", "stages", "microbatches"};

void side_sizes(struct side *side) {
    int64_t stages = 0, batches = 0;
    side->size.slices = 1;
    for (int i = 0; i < side->n; i++) {
        const struct diff_op *op = &side->op[i];
        if (!is_job(op->op))
            continue;
        stages = op->stage >= stages ? (int64_t)op->stage + 1 : stages;
        batches = op->batch >= batches ? (int64_t)op->batch + 1 : batches;
        side->size.slices = op->slices > side->size.slices ? op->slices : side->size.slices;
    }
    side->size.of[SIZE_RANKS] = side->workers;
    side->size.of[SIZE_STAGES] = stages;
    side->size.of[SIZE_BATCHES] = (batches + side->size.slices - 1) / side->size.slices;
}

bool diff_resized(const struct diff *diff, int size) {
    return diff->side[0]->size.of[size] != diff->side[1]->size.of[size];
}

static bool is_abstract(const struct side *side) {
    return !side->steps && (!side->unit || strcmp(side->unit, "F") == 0) && side->size.of[SIZE_STAGES] > 0;
}

bool diff_compares_bytes(const struct diff *diff) {
    return !diff_resized(diff, SIZE_STAGES) || !is_abstract(diff->side[0]) || !is_abstract(diff->side[1]);
}

void diff_scale(struct diff *diff) {
    double ranks = (double)diff->side[0]->size.of[SIZE_RANKS], scale[2];
    for (int k = 0; k < 2; k++)
        scale[k] = ranks / ((double)diff->side[k]->size.of[SIZE_STAGES] * diff->side[k]->size.slices);
    if (!is_abstract(diff->side[0]) || !is_abstract(diff->side[1]) || scale[0] == scale[1])
        return;
    diff->share = ranks;
    for (int k = 0; k < 2; k++) {
        diff->side[k]->step.period *= scale[k];
        for (int i = 0; i < diff->side[k]->n; i++) {
            diff->side[k]->start[i] *= scale[k];
            diff->side[k]->end[i] *= scale[k];
        }
    }
}

double diff_per_work(const struct diff *diff, int side, const char **per) {
    const int64_t *size = diff->side[side]->size.of;
    double x = (double)diff->side[side]->makespan * diff->tick;
    bool ranks = diff_resized(diff, SIZE_RANKS), batches = diff_resized(diff, SIZE_BATCHES);
    *per = ranks ? "rank time per microbatch" : batches ? "per microbatch" : NULL;
    x = ranks ? x * (double)size[SIZE_RANKS] : x;
    return *per && size[SIZE_BATCHES] > 0 ? x / (double)size[SIZE_BATCHES] : x;
}

void put_resized(struct text *t, const struct diff *diff) {
    static const char *const verb[NSIZES] = {"runs on", "cuts the model into", "runs"};
    static const char *const one[NSIZES] = {"rank", "stage", "microbatch"};
    int n = 0, left = 0;
    for (int i = 0; i < NSIZES; i++)
        left += diff_resized(diff, i);
    for (int i = 0; i < NSIZES; i++) {
        int64_t a = diff->side[0]->size.of[i], b = diff->side[1]->size.of[i];
        if (a == b)
            continue;
        left--;
        put(t, "%s%s %lld %s instead of %lld",
            n++ == 0 ? "B "
            : left   ? ", "
                     : " and ",
            verb[i], (long long)b, b == 1 ? one[i] : size_name[i], (long long)a);
    }
}
