/* What a rank's compute lane waits for, over the timeline: the time between two of its instructions goes to the awaited
 * one that ends last, by the tensor that it moves. */
#include "passes.h"
#include <math.h>

const char *const exposed_name[NEXPOSED] = {"activations", "gradients", "weights", "reductions", "copies"};

static int exposed_by(const struct instr *x) {
    if (is_copy(x->op))
        return EXPOSED_COPIES;
    switch (op_row(x->op)->tensor) {
    case K_grad:
    case K_wstash: return EXPOSED_GRADIENTS;
    case K_weight: return EXPOSED_WEIGHTS;
    case K_wgrad: return EXPOSED_REDUCTIONS;
    default: return EXPOSED_ACTIVATIONS;
    }
}

void exposed_waits(const struct rank *k, const double *start, const double *end, double exposed[NEXPOSED]) {
    double last = 0;
    for (int i = 0; i < k->nins; i++) {
        const struct instr *x = &k->ins[i];
        int32_t late = -1;
        if (x->lane != 0)
            continue;
        for (uint32_t w = x->wait; w < x->wait + x->nwait; w++)
            if (late < 0 || end[k->wait[w]] > end[late])
                late = k->wait[w];
        if (late >= 0 && start[i] > last)
            exposed[exposed_by(&k->ins[late])] += start[i] - last;
        last = fmax(last, end[i]);
    }
}
