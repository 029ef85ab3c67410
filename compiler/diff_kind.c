/* Durations of a kind of operation on both sides: how far a prediction is from a measurement, say. Each operation gives
 * one ratio, its duration in B over that in A; a kind's bias is their median, its spread the quartiles. */
#include "diff.h"
#include <stdlib.h>

static int by_size(const void *x, const void *y) {
    double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

/* Of n sorted numbers, the one that `share` of them do not exceed. */
static double quantile(const double *x, int n, double share) { return x[(int)(share * (n - 1) + 0.5)]; }

static struct diff_kind kind_of(const struct diff *d, int op, double *ratio) {
    const struct side *a = d->side[0], *b = d->side[1];
    struct diff_kind k = {.op = op};
    for (int i = 0; i < a->n; i++) {
        const struct diff_op *x = &a->op[i];
        if (x->op != op || x->match < 0)
            continue;
        double in_a = (double)diff_took(a, x) * d->tick, in_b = (double)diff_took(b, &b->op[x->match]) * d->tick;
        k.longer += x->longer;
        k.a += in_a;
        k.b += in_b;
        if (in_a > 0)
            ratio[k.n++] = in_b / in_a;
    }
    if (k.n > 0) {
        qsort(ratio, (size_t)k.n, sizeof *ratio, by_size);
        k.bias = quantile(ratio, k.n, 0.5);
        k.low = quantile(ratio, k.n, 0.25);
        k.high = quantile(ratio, k.n, 0.75);
    }
    return k;
}

void diff_kinds(struct diff *d) {
    double *ratio = NEW(double, d->side[0]->n);
    for (int op = 0; op < NOPS; op++) {
        struct diff_kind k = kind_of(d, op, ratio);
        if (k.longer)
            d->kind[d->nkinds++] = k;
    }
}
