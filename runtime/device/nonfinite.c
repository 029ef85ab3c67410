#include "nonfinite.h"
#include "store/parameter_walk.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Compares bits as integers: an integer maximum vectorises, comparisons of floats would not. */
static int64_t first_bad(const float *w, int64_t n) {
    enum { PART = 4096 };
    const uint32_t infinite = 0x7f800000;
    for (int64_t at = 0; at < n; at += PART) {
        int64_t end = at + PART < n ? at + PART : n;
        uint32_t most = 0, bits;
        for (int64_t i = at; i < end; i++) {
            memcpy(&bits, &w[i], sizeof bits);
            bits &= 0x7fffffff;
            most = bits > most ? bits : most;
        }
        for (; most >= infinite && at < end; at++)
            if (!isfinite(w[at]))
                return at;
    }
    return -1;
}

void nonfinite_look(struct nonfinite *bad, int64_t step, int rank, const float *loss, int64_t n) {
    int64_t at = bad->step > 0 ? -1 : first_bad(loss, n);
    if (at >= 0)
        *bad = (struct nonfinite){
            .step = step, .kind = NONFINITE_LOSS, .rank = rank, .batch = (int32_t)at, .value = loss[at]};
}

bool nonfinite_scan(struct nonfinite *bad, const struct nonfinite_at *at, struct rt_piece piece, const float *w) {
    for (struct parameter_walk walk = walk_parameters(piece); next_parameter(&walk);) {
        int64_t k = first_bad(w + (walk.from - piece.first), walk.to - walk.from);
        if (k < 0)
            continue;
        struct nonfinite here = {.step = at->step, .kind = at->kind, .rank = at->rank, .layer = walk.l->index};
        here.value = w[walk.from - piece.first + k];
        snprintf(here.tensor, sizeof here.tensor, "%s%s%.1s", walk.p->name, at->moment ? "." : "", &at->moment);
        nonfinite_join(bad, &here);
        return false;
    }
    return true;
}

void nonfinite_join(struct nonfinite *bad, const struct nonfinite *other) {
    const int64_t a[] = {bad->step, bad->kind, bad->layer, bad->batch, bad->rank},
                  b[] = {other->step, other->kind, other->layer, other->batch, other->rank};
    int i = 0;
    while (i < 4 && a[i] == b[i])
        i++;
    if (other->step > 0 && (bad->step == 0 || b[i] < a[i]))
        *bad = *other;
}

const char *nonfinite_say(const struct nonfinite *bad, char *out, size_t n) {
    static const char *const what[] = {
        [NONFINITE_GRADIENT] = "the gradient of", [NONFINITE_STATE] = "after the update,"};
    const char *value = isnan(bad->value) ? "nan" : bad->value > 0 ? "inf" : "-inf";
    if (bad->unlabelled)
        snprintf(out, n, "step %lld: no label counts, so it has no loss", (long long)bad->step);
    else if (bad->kind == NONFINITE_LOSS)
        snprintf(out, n, "step %lld: the loss of microbatch %d, on rank %d, is %s", (long long)bad->step, bad->batch,
                 bad->rank, value);
    else
        snprintf(out, n, "step %lld: %s layer.%d.%s on rank %d has %s", (long long)bad->step, what[bad->kind],
                 bad->layer, bad->tensor, bad->rank, value);
    return out;
}
