/* Timelines: one that can be read is consistent. Written again in its plainest form, it reads as the same. */
#include "fuzz.h"

struct reading {
    const char *src;
    struct timeline_rows *rows;
};

static void read_rows(void *with) {
    struct reading *r = with;
    r->rows = read_tsv("timeline.tsv", r->src);
}

static void put_row(struct text *t, const struct timeline_row *r, const char *unit) {
    char start[32], end[32];
    put(t, "%d\t%s\t%s\t%s\t%s\t%d\t", r->rank, r->lane, number(r->start, start), number(r->end, end), op_name[r->op],
        r->stage);
    put(t, r->batch < 0 ? "\t" : "%d\t", r->batch);
    put(t, r->peer < 0 ? "\t" : "%d\t", r->peer);
    if (r->bytes >= 0)
        put(t, "%lld", (long long)r->bytes);
    put(t, unit ? "\t%s\n" : "\n", unit);
}

static char *write_rows(const struct timeline_rows *rows) {
    struct text t = {0};
    put(&t, "%srank\tlane\tstart\tend\top\tstage\tbatch\tpeer\tbytes", rows->step ? "step\t" : "");
    put(&t, "%s\n", rows->unit ? "\tunit" : "");
    for (int k = 0; k < (rows->step ? rows->nsteps : 1); k++)
        for (int i = 0; i < rows->n; i++) {
            const struct timeline_row *r = &rows->row[(size_t)k * (size_t)rows->n + (size_t)i], *above = i ? r - 1 : r;
            bool same_lane = above->rank == r->rank && !strcmp(above->lane, r->lane);
            if (r->end < r->start || r->rank < above->rank || (same_lane && r->start < above->start))
                abort();
            if (rows->step)
                put(&t, "%d\t", rows->step[k]);
            put_row(&t, r, rows->unit);
        }
    return t.s;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *src = string_of(data, size);
    struct reading first = {.src = src}, second;
    if (src && lives(read_rows, &first)) {
        second.src = write_rows(first.rows);
        if (!lives(read_rows, &second) || strcmp(write_rows(second.rows), second.src))
            abort();
    }
    free_all();
    free(src);
    return 0;
}
