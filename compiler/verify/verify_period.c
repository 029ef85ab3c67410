/* Proves the period by induction: what holds for the one repetition that is written out holds for all.
 *
 * Messages and collectives stay within their section (verify_pair.c), waits do not cross a mark, and all of a rank's
 * lanes join there. So what a rank does after a mark depends only on what its buffers hold there. Suppose that the
 * state at the period's end equals the state at its beginning, shifted by the period's K microbatches and their
 * updates. Then the instructions of the period, shifted as well, find and leave in the second repetition what they
 * found and left in the first, and so on. The instructions after the period find what they found after one repetition.
 *
 * Shifted means: the same bytes are in use, with the same kind and stage. The microbatches in names and in sums are K
 * later, and weights and optimizer state have K / m more updates.
 *
 * Each job runs once, however often the period does. Among the jobs of one stage and direction for microbatches b, b +
 * K, b + 2K .. the first ones run before the period, one runs in it, and the others after it. */
#include "check_homes.h"
#include <stdlib.h>
#include <string.h>

struct stretch { /* content of a range of units of a buffer */
    struct span span;
    struct content content;
};
struct open {                       /* a buffer that is in use at a mark */
    int32_t b, batch, round, count; /* as they must be where the period ends; count: for weights and optimizer state */
    int memory;
    const struct buf *buf;
    struct value value;
    struct stretch *stretch;
    size_t nstretches;
};
struct state { /* a rank's state where the period begins, sorted */
    struct open *open;
    int n;
};

static bool is_counted(const struct value *value) { return value->kind == K_weight || value->kind == K_opt; }

static int32_t updates_per_period(const struct check *check, int set) {
    return check->p->period / check->p->update[set];
}

static struct open take_open(const struct check *check, int r, int32_t b, bool at_begin) {
    const struct buf *x = &check->p->rank[r].buf[b];
    const struct value *value = &check->values->val[r][b];
    struct open open = {.b = b, .batch = x->batch, .memory = memory_of(x), .buf = x, .value = *value};
    struct span all = units_of(check, r, &(struct arg){.buf = b});
    size_t cap = 0;
    for (int32_t at = all.from, to; at < all.to; at = to) {
        struct content content = held_at(check, r, b, at, &to);
        GROW(open.stretch, cap, open.nstretches + 1);
        open.stretch[open.nstretches++] = (struct stretch){{at, to}, content};
    }
    open.round = holds_gradient(x->kind) ? round_of(check, x) : 0;
    open.count = is_counted(value) && open.nstretches ? open.stretch[0].content.count : 0;
    if (at_begin) {
        open.batch += kind_has_batch[x->kind] ? check->p->period : 0;
        open.round += holds_gradient(x->kind) ? updates_per_period(check, x->stage) : 0;
        open.count += is_counted(value) ? updates_per_period(check, x->stage) : 0;
    }
    return open;
}

static int64_t offset_of(const struct open *open) { return open->buf->off; }

/* Orders by position; zero-byte buffers, which may lie anywhere, by content. */
static int by_place(const void *x, const void *y) {
    const struct open *a = x, *b = y;
    int64_t ka[] = {a->memory,    a->buf->bytes > 0, a->buf->bytes ? offset_of(a) : 0,
                    a->buf->kind, a->buf->stage,     a->batch,
                    a->round,     a->count,          a->value.part};
    int64_t kb[] = {b->memory,    b->buf->bytes > 0, b->buf->bytes ? offset_of(b) : 0,
                    b->buf->kind, b->buf->stage,     b->batch,
                    b->round,     b->count,          b->value.part};
    for (size_t i = 0; i < sizeof ka / sizeof *ka; i++)
        if (ka[i] != kb[i])
            return ka[i] < kb[i] ? -1 : 1;
    return 0;
}

static struct state state_at(const struct check *check, int r, bool at_begin) {
    struct state state = {0};
    const struct rank *k = &check->p->rank[r];
    size_t cap = 0;
    for (int32_t b = 0; b < k->nbufs; b++)
        if (check->values->val[r][b].live) {
            GROW(state.open, cap, (size_t)state.n + 1);
            state.open[state.n++] = take_open(check, r, b, at_begin);
        }
    if (state.n > 1)
        sort(state.open, (size_t)state.n, sizeof *state.open, by_place);
    return state;
}

/* ---- comparing the two states ---- */

static bool refute_state(struct check *check, int r, const char *what) {
    return refute_all(check, CLAIM_PERIOD, "rank %d: %s", r, what);
}

static bool overlap_exactly(const struct open *a, const struct open *b) {
    return a->memory == b->memory && a->buf->bytes == b->buf->bytes &&
           (!a->buf->bytes || offset_of(a) == offset_of(b)) && a->buf->kind == b->buf->kind &&
           a->buf->stage == b->buf->stage && a->batch == b->batch && a->round == b->round;
}

static const char *content_at(const struct check *check, int r, const struct open *open) {
    return format("%s at %lld%s", buf_text(check, r, open->b), (long long)offset_of(open),
                  open->memory == MEMORY_HOST ? " of host memory" : "");
}

/* Reports that a buffer does not hold at the period's end what it held at the beginning, shifted. */
static bool refute_content(struct check *check, int r, const struct open *a, const struct open *b,
                           const struct content *x, const struct content *y) {
    const char *what =
        format("%s where the period begins and %s where it ends", content_at(check, r, a), buf_text(check, r, b->b));
    if (x->set != y->set)
        return refute_state(check, r, format("of %s, one holds something and the other nothing", what));
    if (is_counted(&a->value))
        return refute_state(check, r,
                            format("%s have had %d and %d updates, but a period has %d", what, x->count, y->count,
                                   updates_per_period(check, a->buf->stage)));
    return refute_state(
        check, r,
        format("the sums in %s do not have the same contributions, %d microbatches later", what, check->p->period));
}

static bool holds_the_same(struct check *check, int r, const struct open *a, const struct open *b) {
    if (a->nstretches != b->nstretches)
        return refute_state(
            check, r,
            format("%s holds the same data where the period begins and where it ends, but in different pieces",
                   content_at(check, r, a)));
    for (size_t n = 0; n < a->nstretches; n++) {
        const struct content *x = &a->stretch[n].content, *y = &b->stretch[n].content;
        int32_t more = is_counted(&a->value) && x->set ? updates_per_period(check, a->buf->stage) : 0;
        if (!same_span(a->stretch[n].span, b->stretch[n].span) || x->set != y->set || x->count + more != y->count ||
            !is_moved_on(check, x->sum, y->sum))
            return refute_content(check, r, a, b, x, y);
    }
    const struct value *x = &a->value, *y = &b->value;
    int32_t moved = x->batch + (kind_has_batch[a->buf->kind] ? check->p->period : 0);
    return (x->kind == y->kind && x->part == y->part && x->stage == y->stage && moved == y->batch) ||
           refute_state(check, r,
                        format("%s holds %s where the period begins, and %s where it ends", content_at(check, r, a),
                               value_text(check, x), value_text(check, y)));
}

/* Compares the state at the period's end with the state at its beginning. */
static bool has_come_back(struct check *check, int r, const struct state *begin) {
    struct state end = state_at(check, r, false);
    for (int i = 0; i < begin->n || i < end.n; i++) {
        const struct open *a = i < begin->n ? &begin->open[i] : NULL, *b = i < end.n ? &end.open[i] : NULL;
        bool first = a && (!b || by_place(a, b) < 0);
        if (!a || !b || !overlap_exactly(a, b))
            return refute_state(
                check, r,
                first
                    ? format("%s is open where the period begins, but nothing that it could become is there at its end",
                             content_at(check, r, a))
                    : format("%s is open where the period ends, but nothing that could become it is there at its "
                             "beginning",
                             content_at(check, r, b)));
        if (!holds_the_same(check, r, a, b))
            return false;
    }
    return true;
}

/* ---- marks ---- */

void period_begin(struct check *check) {
    if (!check->p->period)
        return;
    check->values->state = NEW(struct state, check->p->workers);
    check->values->section = NEW(uint8_t, check->sp->njobs);
}

bool at_mark(struct check *check, int r) {
    const struct rank *k = &check->p->rank[r];
    int32_t i = check->at[r];
    if (!check->values || !check->p->period || (i != k->period.begin && i != k->period.end))
        return true;
    if (in_parts(check, r, i))
        return refute(check, CLAIM_PERIOD, r, i, "a mark is between the parts of a job");
    if (i == k->period.begin)
        check->values->state[r] = state_at(check, r, true);
    return i != k->period.end || has_come_back(check, r, &check->values->state[r]);
}

bool waits_stay(struct check *check) {
    for (int r = 0; check->p->period && r < check->p->workers; r++) {
        const struct rank *k = &check->p->rank[r];
        for (int32_t i = 0; i < k->nins; i++)
            for (uint32_t w = k->ins[i].wait; w < k->ins[i].wait + k->ins[i].nwait; w++)
                if (section_of(k, k->wait[w]) != section_of(k, i)) {
                    struct text t = {0};
                    put_label(&t, &check->p->names, &k->ins[k->wait[w]]);
                    return refute(check, CLAIM_PERIOD, r, i, "waits for %s across a mark, where all lanes join anyway",
                                  t.s);
                }
    }
    return true;
}

/* ---- jobs ---- */

static const char *const where[] = {"before the period", "in the period", "behind the period"};

/* Returns the job of the same stage and direction `later` microbatches after j; -1: none. */
static int32_t like(const struct check *check, int32_t j, int32_t later) {
    const struct job *job = &check->sp->job[j];
    int32_t b = job->b + later;
    return b >= 0 && b < check->sp->batches ? job_at(check->sp, job->s, b, job->d) : -1;
}

bool jobs_repeat(struct check *check) {
    const uint8_t *section = check->values->section;
    int K = check->p->period;
    if (!K)
        return true;
    if (check->sp->batches < K)
        return refute_all(check, CLAIM_PERIOD, "a period of %d microbatches, and there are %d", K, check->sp->batches);
    for (int32_t j = 0; j < check->sp->njobs; j++) {
        int32_t next = like(check, j, K), b = check->sp->job[j].b;
        if ((b + K < check->sp->batches && next < 0) || (b >= K && like(check, j, -K) < 0))
            return refute_all(check, CLAIM_PERIOD, "there is %s, but no such job %d microbatches %s",
                              job_text(check, j), K, b >= K && like(check, j, -K) < 0 ? "before it" : "after it");
        bool none = (next < 0 && section[j] == 0) || (b < K && section[j] == 2);
        if (next >= 0 && (section[next] < section[j] || (section[j] == 1 && section[next] == 1)))
            return refute_all(check, CLAIM_PERIOD, "%s runs %s, but %s, a period later, %s", job_text(check, j),
                              where[section[j]], job_text(check, next), where[section[next]]);
        if (none || (next >= 0 && section[j] == 0 && section[next] == 2))
            return refute_all(check, CLAIM_PERIOD,
                              "%s runs %s, but no such job %d microbatches apart runs in the period",
                              job_text(check, j), where[section[j]], K);
    }
    return versions_repeat(check);
}
