/* Waits of a rank's compute lane, over the timeline. The time between two of its instructions is attributed to the
 * awaited instruction that ends last, by the tensor that it moves. The time for which such instructions run while the
 * compute lane is busy is hidden. */
#include "passes.h"
#include <math.h>

const char *const exposed_name[NEXPOSED] = {"activations", "gradients", "weights", "reductions", "copies", "teams"};

int exposed_by(const struct instr *x) {
    if (is_copy(x->op))
        return EXPOSED_COPIES;
    switch (op_row(x->op)->tensor) {
    case K_grad:
    case K_dkv:
    case K_wstash: return EXPOSED_GRADIENTS;
    case K_weight: return EXPOSED_WEIGHTS;
    case K_norm:
    case K_wgrad: return EXPOSED_REDUCTIONS;
    case K_mid: return EXPOSED_TEAMS;
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

/* Busy intervals of the compute lane, from start[i] to end[i]; sum[i] is the total busy time up to end[i]. */
struct computed {
    double *start, *end, *sum;
    int n;
};

static struct computed when_computed(const struct rank *k, const double *start, const double *end) {
    struct computed c = {NEW(double, k->nins), NEW(double, k->nins), NEW(double, k->nins), 0};
    double last = 0, sum = 0;
    for (int i = 0; i < k->nins; i++)
        if (k->ins[i].lane == 0 && end[i] > fmax(start[i], last)) {
            c.start[c.n] = fmax(start[i], last); /* overlapping instructions count once */
            c.end[c.n] = last = end[i];
            c.sum[c.n] = sum += c.end[c.n] - c.start[c.n];
            c.n++;
        }
    return c;
}

static double computed_until(const struct computed *c, double t) {
    int ended = 0, more = c->n; /* bisects for the number of instructions that end by t */
    while (ended < more) {
        int middle = (ended + more) / 2;
        if (c->end[middle] <= t)
            ended = middle + 1;
        else
            more = middle;
    }
    return (ended > 0 ? c->sum[ended - 1] : 0) + (ended < c->n ? fmax(t - c->start[ended], 0) : 0);
}

void hidden_moves(const struct rank *k, const double *start, const double *end, double hidden[NEXPOSED]) {
    struct scratch scratch = scratch_begin();
    struct computed c = when_computed(k, start, end);
    for (int i = 0; i < k->nins; i++)
        if (k->ins[i].lane != 0 && !is_send(k->ins[i].op))
            hidden[exposed_by(&k->ins[i])] += computed_until(&c, end[i]) - computed_until(&c, start[i]);
    scratch_end(scratch);
}
