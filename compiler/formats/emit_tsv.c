/* Writes the timeline as tab-separated values: one line per instruction, by rank, lane and start. The last column, in
 * every row, is the unit of the times: readers identify columns by name and position, and rows of several files can be
 * concatenated. */
#include "formats.h"

static void put_column(struct text *t, int64_t v, bool applies) {
    put_bytes(t, "\t", 1);
    if (applies)
        put_int(t, v);
}

void emit_tsv(struct text *out, const struct program *p, const struct timeline *tl, const char *unit) {
    put(out, "rank\tlane\tstart\tend\top\tstage\tbatch\tpeer\tbytes\tunit\n");
    for (int r = 0; r < p->workers; r++) {
        const struct rank *k = &p->rank[r];
        const int32_t *order = lane_lists(k).ins; /* lanes run in issue order, so this is also the order of starts */
        for (int i = 0; i < k->nins; i++) {
            const struct instr *in = &k->ins[order[i]];
            char start[32], end[32];
            put_int(out, r);
            put_bytes(out, "\t", 1);
            put_lane(out, p, &k->lane[in->lane]);
            put(out, "\t%s\t%s\t%s", number(tl->start[r][order[i]], start), number(tl->end[r][order[i]], end),
                op_name[in->op]);
            put_column(out, in->stage, true);
            put_bytes(out, "\t", 1);
            if (in->batch >= 0)
                put_batch(out, in->op == OP_U ? NULL : &p->names, in->batch);
            put_column(out, in->peer, in->peer >= 0);
            put_column(out, moved_bytes(k, in), has_bytes(in->op) && in->narg);
            put(out, "\t%s\n", unit);
        }
    }
}
