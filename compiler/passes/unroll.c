/* A program whose period, or whole step, is written out several times, so that a timeline of it shows how one
 * repetition meets the next.
 *
 * A repetition has the same instructions, with later microbatches. Buffers that are open where the period begins are
 * those that are open at its end in the previous repetition (period.h). Buffers that a repetition opens are its own.
 * Buffers that stay for the whole step are shared by all repetitions. */
#include "period.h"
#include <string.h>

/* Copying of one rank. */
struct unrolling {
    const struct program *p;
    const struct rank *k;
    struct rank *to;
    int r, stays;    /* stays: numbers of fetched weights in a step; each repetition has numbers of its own */
    int32_t *before; /* result of match_period; all -1 if whole steps repeat */
    int32_t *last;   /* per buffer open where the period begins: the buffer in its place at the end; else -1 */
    bool *passes;    /* per buffer: it opens and closes; other buffers stay */
    int32_t *now;    /* per buffer: its counterpart in the current copy; -1: not copied yet */
    bool behind;     /* the part after the period is being copied */
    size_t cap, argcap, waitcap, freecap;
};

static int updates_in(const struct unrolling *u, int set, int microbatches) {
    return u->p->update ? microbatches / u->p->update[set] : 0;
}

static struct buf moved_buf(const struct unrolling *u, struct buf b, int microbatches, int copy) {
    int updates = updates_in(u, b.stage, microbatches);
    if (b.batch >= 0)
        b.batch += microbatches;
    if (b.kind == K_wgrad && updates > 0)
        b.inst = (b.inst < 0 ? u->r : b.inst) + u->p->workers * updates;
    if (b.kind == K_weight && b.inst >= 0)
        b.inst += is_copy_of_version(u->p, u->r, &b) ? updates : copy * u->stays;
    return b;
}

/* Copies a buffer. One that opens after the period exists once, but with later microbatches than in the program. */
static int32_t copy_buf(struct unrolling *u, int32_t b, int microbatches, int copy) {
    struct rank *to = u->to;
    int32_t at = b;
    if (!u->behind) {
        GROW(to->buf, u->cap, (size_t)to->nbufs + 1);
        at = to->nbufs++;
    }
    to->buf[at] = moved_buf(u, u->k->buf[b], microbatches, copy);
    return at;
}

/* Returns the counterpart of b in this copy. A buffer that grows into another is copied with it. */
static int32_t buf_in(struct unrolling *u, int32_t b, int microbatches, int copy) {
    int32_t open = opener(u->k, b), close = closer(u->k, open);
    if (copy == 0 || !u->passes[open])
        return b;
    if (u->now[b] < 0) {
        u->now[open] = copy_buf(u, open, microbatches, copy);
        if (close != open) {
            u->now[close] = copy_buf(u, close, microbatches, copy);
            u->to->buf[u->now[open]].grows = u->now[close];
        }
    }
    return u->now[b];
}

static int32_t moved_inst(const struct unrolling *u, const struct instr *x, int microbatches, int copy) {
    int tensor = op_row(x->op)->tensor;
    bool fetches = tensor == K_weight && x->op != OP_U && (x->op != OP_COPY || !u->p->update);
    if (x->inst < 0)
        return x->inst;
    if (fetches)
        return x->inst + copy * u->stays;
    bool counts = is_job(x->op) || x->op == OP_COPY || tensor == K_wgrad; /* inst counts updates, or versions */
    return x->inst + (counts ? updates_in(u, x->stage, microbatches) : 0);
}

static void add_instr(struct unrolling *u, int32_t i, int microbatches, int copy) {
    const struct rank *k = u->k;
    struct rank *to = u->to;
    struct instr x = k->ins[i];
    int32_t delta = to->nins - i; /* waits stay within a section */
    GROW(to->arg, u->argcap, to->nargs + x.narg + 1u);
    GROW(to->wait, u->waitcap, to->nwaits + x.nwait + 1u);
    GROW(to->freed, u->freecap, to->nfrees + x.nfree + 1u);
    for (uint32_t a = x.arg; a < x.arg + x.narg; a++) {
        struct arg arg = k->arg[a];
        arg.buf = buf_in(u, arg.buf, microbatches, copy);
        to->arg[to->nargs++] = arg;
    }
    for (uint32_t w = x.wait; w < x.wait + x.nwait; w++)
        to->wait[to->nwaits++] = k->wait[w] + delta;
    for (uint32_t f = x.free; f < x.free + x.nfree; f++)
        to->freed[to->nfrees++] = buf_in(u, k->freed[f], microbatches, copy);
    x.arg = (uint32_t)to->nargs - x.narg;
    x.wait = (uint32_t)to->nwaits - x.nwait;
    x.free = (uint32_t)to->nfrees - x.nfree;
    x.inst = moved_inst(u, &x, microbatches, copy);
    if (x.op == OP_U && x.batch >= 0)
        x.batch += updates_in(u, x.stage, microbatches);
    else if (x.batch >= 0)
        x.batch += microbatches;
    x.msg += x.msg >= 0 ? copy * u->p->nmsgs : 0;
    to->ins[to->nins++] = x;
}

/* Maps the buffers that are open where the next copy begins to those that are open where the last one ends. end: the
 * part after the period follows, and uses the buffers open at its end. */
static void pass_mark(struct unrolling *u, int copy, bool end) {
    int32_t n = u->k->nbufs, *now = NEW(int32_t, n + 1);
    memset(now, -1, sizeof *now * ((size_t)n + 1));
    for (int32_t b = 0; b < n; b++) {
        int32_t from = end && u->before[b] >= 0 ? b : u->last[b];
        if (from < 0)
            continue;
        bool own = copy == 1; /* the first copy's buffers are the program's */
        now[b] = own ? from : u->now[from];
        if (closer(u->k, b) != b && closer(u->k, from) != from)
            now[closer(u->k, b)] = own ? closer(u->k, from) : u->now[closer(u->k, from)];
    }
    u->now = now;
}

static void find_places(struct unrolling *u) {
    const struct rank *k = u->k;
    u->before = NEW(int32_t, k->nbufs + 1);
    u->last = NEW(int32_t, k->nbufs + 1);
    u->passes = NEW(bool, k->nbufs + 1);
    memset(u->before, -1, sizeof *u->before * ((size_t)k->nbufs + 1));
    memset(u->last, -1, sizeof *u->last * ((size_t)k->nbufs + 1));
    for (size_t e = 0; e < k->nevents; e++)
        u->passes[opener(k, k->event[e] >= 0 ? k->event[e] : ~k->event[e])] = true;
    if (u->p->period)
        match_period(u->p, u->r, u->before);
    for (int32_t b = 0; b < k->nbufs; b++)
        if (u->before[b] >= 0)
            u->last[u->before[b]] = b;
}

static void unroll_rank(struct unrolling *u, int copies, int microbatches) {
    const struct rank *k = u->k;
    int32_t begin = u->p->period ? k->period.begin : 0, end = u->p->period ? k->period.end : k->nins;
    *u->to = (struct rank){.lane = k->lane, .nlanes = k->nlanes, .arena = k->arena, .host = k->host, .least = k->least};
    u->to->period.begin = u->p->period ? begin : 0;
    u->to->period.end = u->p->period ? begin + copies * (end - begin) : 0;
    u->to->ins = NEW(struct instr, k->nins + (copies - 1) * (end - begin) + 1);
    GROW(u->to->buf, u->cap, (size_t)k->nbufs + 1);
    memcpy(u->to->buf, k->buf, sizeof *k->buf * (size_t)k->nbufs);
    u->to->nbufs = k->nbufs;
    find_places(u);
    for (int32_t i = 0; i < begin; i++)
        add_instr(u, i, 0, 0);
    for (int copy = 0; copy < copies; copy++) {
        if (copy > 0)
            pass_mark(u, copy, false);
        for (int32_t i = begin; i < end; i++)
            add_instr(u, i, copy * microbatches, copy);
    }
    if (copies > 1)
        pass_mark(u, copies, true);
    u->behind = true;
    for (int32_t i = end; i < k->nins; i++)
        add_instr(u, i, (copies - 1) * microbatches, copies - 1);
}

/* Returns how many numbers of fetched weights a step uses. */
static int count_stays(const struct program *p) {
    int n = 0;
    for (int r = 0; r < p->workers; r++)
        for (int b = 0; b < p->rank[r].nbufs; b++)
            if (p->rank[r].buf[b].kind == K_weight && p->rank[r].buf[b].inst >= n)
                n = p->rank[r].buf[b].inst + 1;
    return n;
}

struct program *unroll_program(const struct program *p, int copies) {
    struct program *to = NEW(struct program, 1);
    int microbatches = p->period ? p->period : p->batches, stays = count_stays(p);
    *to = *p;
    to->copies = copies;
    to->batches += (copies - 1) * microbatches;
    to->nmsgs *= copies;
    to->need = NULL; /* only the step's own jobs have needs */
    to->nneeds = 0;
    to->rank = NEW(struct rank, p->workers);
    for (int r = 0; r < p->workers; r++)
        unroll_rank(&(struct unrolling){.p = p, .k = &p->rank[r], .to = &to->rank[r], .r = r, .stays = stays}, copies,
                    microbatches);
    return to;
}

double *join_times(const struct program *p, const struct timeline *tl, int r) {
    const struct rank *k = &p->rank[r];
    int n = joins_of(p), join = 0;
    double *t = NEW(double, n + 1), last = 0;
    for (int32_t i = 0; join < n; i++) {
        for (; join < n && join_at(p, k, join) == i; join++)
            t[join] = last;
        if (i < k->nins && tl->end[r][i] > last)
            last = tl->end[r][i];
    }
    return t;
}
