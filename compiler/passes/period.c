/* The part of a program that repeats: matches the buffers that take each other's places from one repetition to the
 * next. */
#include "period.h"
#include <stdlib.h>
#include <string.h>

/* A buffer's name after n more microbatches; fetched weights are named by their version. */
struct name {
    int32_t kind, stage, batch, inst, buf;
};

static struct name name_after(const struct program *p, int r, int32_t b, int n, const int32_t *version) {
    const struct buf *x = &p->rank[r].buf[b];
    struct name name = {x->kind, x->stage, x->batch, x->inst, b};
    if (x->batch >= 0)
        name.batch += n;
    if (x->kind == K_wgrad)
        name.inst = (x->inst < 0 ? r : x->inst) + p->workers * (n / p->update[x->stage]);
    if (x->kind == K_weight)
        name.inst = version[b] + n / p->update[x->stage];
    return name;
}

static int by_buffer(const void *x, const void *y) {
    const struct name *a = x, *b = y;
    if (a->kind != b->kind)
        return a->kind - b->kind;
    if (a->stage != b->stage)
        return a->stage - b->stage;
    if (a->batch != b->batch)
        return a->batch - b->batch;
    return a->inst != b->inst ? a->inst - b->inst : a->buf - b->buf;
}

/* Returns, per buffer of weights, the version in it. A copy of an earlier version has the version in its name; for
 * fetched weights, their readers have it. */
static int32_t *versions_in(const struct program *p, int r) {
    const struct rank *k = &p->rank[r];
    int32_t *version = NEW(int32_t, k->nbufs + 1);
    for (int32_t i = 0; i < k->nins; i++) {
        const struct instr *x = &k->ins[i];
        for (uint32_t a = x->arg; is_job(x->op) && a < x->arg + x->narg; a++)
            if (k->arg[a].role == ROLE_w)
                version[k->arg[a].buf] = x->inst;
    }
    for (int32_t b = 0; b < k->nbufs; b++)
        if (is_copy_of_version(p, r, &k->buf[b]))
            version[b] = k->buf[b].inst;
    return version;
}

/* Lists the buffers that events [0, end) open and do not close, under the names that they have `after` microbatches
 * later. */
static struct name *open_at(const struct program *p, int r, size_t end, int after, const int32_t *version, int *n) {
    const struct rank *k = &p->rank[r];
    bool *open = NEW(bool, k->nbufs + 1);
    for (size_t e = 0; e < end; e++)
        open[opener(k, k->event[e] >= 0 ? k->event[e] : ~k->event[e])] = k->event[e] >= 0;
    struct name *name = NEW(struct name, k->nbufs + 1);
    *n = 0;
    for (int32_t b = 0; b < k->nbufs; b++)
        if (open[b])
            name[(*n)++] = name_after(p, r, b, after, version);
    sort(name, (size_t)*n, sizeof *name, by_buffer);
    return name;
}

bool match_period(const struct program *p, int r, int32_t *before) {
    const struct rank *k = &p->rank[r];
    int n, m;
    const int32_t *version = versions_in(p, r);
    struct name *old = open_at(p, r, k->period.event_begin, p->period, version, &n);
    struct name *now = open_at(p, r, k->period.event_end, 0, version, &m);
    bool good = n == m;
    memset(before, -1, sizeof *before * (size_t)k->nbufs);
    for (int i = 0; good && i < n; i++) {
        good = old[i].kind == now[i].kind && old[i].stage == now[i].stage && old[i].batch == now[i].batch &&
               old[i].inst == now[i].inst && old[i].buf < now[i].buf;
        before[now[i].buf] = old[i].buf;
    }
    if (!good)
        return false;
    size_t *closes = NEW(size_t, k->nbufs + 1); /* event in the period that closes a buffer; it must come before its
                                                 * counterpart opens */
    for (size_t e = k->period.event_begin; e < k->period.event_end; e++) {
        int32_t b = k->event[e];
        if (b < 0)
            closes[opener(k, ~b)] = e;
        else if (before[b] >= 0 && closes[before[b]] == 0)
            return false;
    }
    return true;
}

bool period_fits(const struct program *p) {
    struct scratch scratch = scratch_begin();
    bool fits = true;
    for (int r = 0; r < p->workers && fits; r++)
        fits = match_period(p, r, NEW(int32_t, p->rank[r].nbufs + 1));
    scratch_end(scratch);
    return fits;
}
