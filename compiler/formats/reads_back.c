/* Checks that a program's text form contains everything that the program does.
 *
 * People diff, verify and keep the text, so it must distinguish everything. It is read again like any file, and the
 * result is compared with the program, instruction by instruction. */
#include "formats.h"
#include <string.h>

static bool same_buf(const struct rank *a, const struct rank *b, int32_t i) {
    const struct buf *x = &a->buf[i], *y = &b->buf[i];
    return x->kind == y->kind && x->stage == y->stage && x->batch == y->batch && x->inst == y->inst &&
           x->grows == y->grows && x->bytes == y->bytes && x->off == y->off;
}

static bool same_lane(const struct program *p, const struct program *q, int r, int l) {
    const struct lane *x = &p->rank[r].lane[l], *y = &q->rank[r].lane[l];
    if (x->kind != y->kind || x->peer != y->peer || (x->group < 0) != (y->group < 0))
        return false;
    const struct group *g = x->group < 0 ? NULL : &p->group[x->group], *h = g ? &q->group[y->group] : NULL;
    return !g || (g->n == h->n && memcmp(g->rank, h->rank, sizeof *g->rank * (size_t)g->n) == 0);
}

static bool same_args(const struct rank *a, const struct rank *b, const struct instr *x, const struct instr *y) {
    for (uint32_t i = 0; i < x->narg; i++) {
        const struct arg *m = &a->arg[x->arg + i], *n = &b->arg[y->arg + i];
        if (m->role != n->role || m->piece != n->piece || m->last != n->last || m->buf != n->buf ||
            (op_accumulates(x->op, m->role) && is_first(x, m->role) != is_first(y, n->role)))
            return false;
    }
    return true;
}

static bool same_list(const int32_t *a, uint32_t from, const int32_t *b, uint32_t other, int n) {
    return n == 0 || memcmp(a + from, b + other, sizeof *a * (size_t)n) == 0;
}

static bool same_instr(const struct rank *a, const struct rank *b, int32_t i) {
    const struct instr *x = &a->ins[i], *y = &b->ins[i];
    return x->op == y->op && x->lane == y->lane && x->stage == y->stage && x->batch == y->batch && x->part == y->part &&
           x->last == y->last && x->peer == y->peer && x->inst == y->inst &&
           (!is_group(x->op) || x->algorithm == y->algorithm) && x->narg == y->narg && x->nwait == y->nwait &&
           x->nfree == y->nfree && same_args(a, b, x, y) && same_list(a->wait, x->wait, b->wait, y->wait, x->nwait) &&
           same_list(a->freed, x->free, b->freed, y->free, x->nfree);
}

/* Returns what differs between p and q on rank r; NULL: nothing. */
static const char *other_in_rank(const struct program *p, const struct program *q, int r) {
    const struct rank *a = &p->rank[r], *b = &q->rank[r];
    struct text t = {0};
    if (a->nins != b->nins || a->nbufs != b->nbufs || a->nlanes != b->nlanes || a->arena != b->arena ||
        a->host != b->host || a->period.begin != b->period.begin || a->period.end != b->period.end)
        return format("the lengths of rank %d differ", r);
    for (int l = 0; l < a->nlanes; l++)
        if (!same_lane(p, q, r, l))
            return format("lane %d of rank %d differs", l, r);
    for (int i = 0; i < a->nbufs; i++)
        if (!same_buf(a, b, i)) {
            put_buf(&t, &p->names, &a->buf[i]);
            return format("buffer %s of rank %d differs", t.s, r);
        }
    for (int i = 0; i < a->nins; i++)
        if (!same_instr(a, b, i)) {
            put_label(&t, &p->names, &a->ins[i]);
            return format("%s of rank %d differs", t.s, r);
        }
    return NULL;
}

static const char *other_in(const struct program *p, const struct program *q) {
    struct text a = {0}, b = {0};
    emit_text_head(&a, p);
    emit_text_head(&b, q);
    if (a.n != b.n || memcmp(a.s, b.s, a.n) != 0)
        return "its first lines differ";
    const char *why = NULL;
    for (int r = 0; r < p->workers && !why; r++)
        why = other_in_rank(p, q, r);
    return why;
}

struct rereading {
    const struct program *p;
    const char *text, *why;
};

static void reread(void *context) {
    struct rereading *rereading = context;
    rereading->why = other_in(rereading->p, read_text("streams.txt", rereading->text));
}

const char *text_misread(const struct program *p, const char *text) {
    struct scratch scratch = scratch_begin();
    struct rereading rereading = {p, text, NULL};
    const char *why = try(reread, &rereading) ? rereading.why : diag_text;
    return why ? scratch_end_keeping(scratch, why) : (scratch_end(scratch), NULL);
}
