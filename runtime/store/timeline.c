#include "timeline.h"
#include <math.h>

void timeline_head(FILE *f) {
    fputs("step\trank\tlane\tstart\tend\top\tstage\tbatch\tpeer\tbytes\tunit\tcpu\tcores\thandoff\n", f);
}

/* Writes a column, which is empty if it does not apply. */
static void write_column(FILE *f, int64_t value, bool applies, char after) {
    if (applies)
        fprintf(f, "%lld", (long long)value);
    fputc(after, f);
}

void timeline_rows(FILE *f, int64_t step, const struct rt_rank *k, int32_t slices, const struct rt_stamp *stamp,
                   double origin, struct timeline_on on) {
    for (int32_t c = 0; c < k->nins; c++) {
        int32_t i = k->lane_ins[c]; /* one lane after the other; each runs in order, so rows are also in order of
                                     * start */
        const struct rt_instr *x = &k->ins[i];
        fprintf(f, "%lld\t%d\t%s\t%.9f\t%.9f\t%s\t", (long long)step + 1, k->number, k->lane[x->lane],
                stamp[i].start - origin, stamp[i].end - origin, op_row(x->op)->name);
        write_column(f, x->stage, true, '\t');
        bool sliced = slices > 0 && x->batch >= 0 && x->op != OP_U;
        write_column(f, sliced ? x->batch / slices : x->batch, x->batch >= 0, sliced ? '.' : '\t');
        if (sliced)
            write_column(f, x->batch % slices, true, '\t');
        bool root = has_root(x->op);
        write_column(f, root ? x->root : x->peer, root || has_peer(x->op), '\t');
        write_column(f, x->bytes, has_bytes(x->op), '\t');
        fputs("s\t", f);
        if (!isnan(stamp[i].cpu))
            fprintf(f, "%.9f", stamp[i].cpu);
        fputc('\t', f);
        if (on.cores > 0)
            fprintf(f, "%g\t%.9f", on.cores, on.handoff);
        else
            fputc('\t', f);
        fputc('\n', f);
    }
}
