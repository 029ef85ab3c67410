/* Paths to the ends of a rank, and the proof by work that the rank's span reaches a limit. The span lasts from the
 * start of its first item to the end of its last.
 *
 * At least way(C, R) passes from the end of an item of class C to the end of some item of rank R: item k of each class
 * after it starts a lag after item k's start. Pools only count items, so no path leads to or through them.
 *
 * work: take a rank's classes with paths of at least x to its own ends. Their items run one after another, not before
 * the rank's first start, and x passes after the last of them. */
#include "bound.h"

void bound_ways(struct bound *b) {
    b->way = NEW(int64_t, (size_t)b->nclass * (size_t)b->nused);
    for (int32_t n = b->nclass - 1; n >= 0; n--) {
        const struct bound_class *c = &b->class[b->order[n]];
        int64_t *way = b->way + (size_t)b->order[n] * (size_t)b->nused;
        for (int32_t i = 0; i < b->nused; i++) {
            way[i] = c->rank == b->used[i] ? 0 : -1;
            for (int32_t k = 0; k < c->nnext; k++) {
                const struct bound_class *next = &b->class[c->next[k].class];
                int64_t on = b->way[(size_t)c->next[k].class * (size_t)b->nused + (size_t)i];
                if (!next->pool && on >= 0 && c->next[k].lag - c->time + next->time + on > way[i])
                    way[i] = c->next[k].lag - c->time + next->time + on;
            }
        }
    }
}

/* Returns the bound by work of rank used[i]. */
static int64_t work_at(const struct bound *b, int32_t i) {
    int64_t best = 0;
    for (int32_t c = 0; c < b->nclass; c++) {
        int64_t x = b->way[(size_t)c * (size_t)b->nused + (size_t)i], sum = x;
        if (b->class[c].rank != b->used[i])
            continue;
        for (int32_t d = 0; d < b->nclass; d++)
            if (b->class[d].rank == b->used[i] && b->way[(size_t)d * (size_t)b->nused + (size_t)i] >= x)
                sum += b->class[d].time * b->class[d].items;
        best = sum > best ? sum : best;
    }
    return best;
}

const char *check_span_work(const struct bound *b, const char **by) {
    int64_t best = -1;
    int32_t of = 0;
    for (int32_t i = 0; i < b->nused; i++) {
        int64_t work = work_at(b, i);
        if (work > best) {
            best = work;
            of = b->used[i];
        }
    }
    *by = format("work of rank %d", (int)of);
    return best >= b->limit ? NULL
                            : format("by work, no rank's span is %lld: the longest is rank %d's, of %lld",
                                     (long long)b->limit, (int)of, (long long)best);
}
