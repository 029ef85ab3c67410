/* Writes out a program with a period as one without.
 *
 * The i-th repetition, from 0 on, is the period's instructions with i periods added to the microbatches in their names
 * and operands, and the corresponding number to updates and versions. Instructions after the period are shifted like
 * the last repetition. As on a machine, bytes identify a buffer: an instruction of a later repetition uses what lies
 * where the instruction that it repeats found its operand. Instead of a mark, the first instruction of each lane after
 * it waits for the last of each lane before it. */
#include "judge.h"
#include "symbols.h"
#include <string.h>

enum { STAYS = 100000 }; /* exceeds the numbers of fetched weights in one repetition */

struct unrolling {
    const struct program *p;
    struct rank *k; /* the unrolled rank */
    const struct rank *old;
    int r, times;
    int shift;     /* repetitions by which the current instructions are shifted */
    int32_t *now;  /* per old buffer: the new buffer in this repetition, or -1 */
    int32_t *open; /* the new buffers in use */
    int32_t *last; /* per lane: the last instruction before the mark, or -1 */
    int nopen;
    size_t bufs, args, waits, frees, ins;
};

static int32_t updates_in(const struct unrolling *u, int set) {
    return set >= 0 ? u->shift * u->p->period / u->p->update[set] : 0;
}

/* ---- buffers ---- */

/* Returns whether it exists once: weights and optimizer state at home, and the workspace. */
static bool is_one(const struct buf *b) {
    return b->kind == K_work || b->kind == K_opt || (b->kind == K_weight && b->inst < 0);
}

static struct buf moved_buffer(const struct unrolling *u, const struct buf *b) {
    struct buf m = *b;
    int W = u->p->workers, more = updates_in(u, b->stage);
    m.batch += kind_has_batch[b->kind] ? u->shift * u->p->period : 0;
    m.grows = u->shift ? -1 : b->grows;
    if (is_gradient(b->kind) && more)
        m.inst = b->inst < 0 ? u->r + W * more : b->inst + W * more;
    else if (b->kind == K_weight && b->inst >= 0)
        m.inst += u->shift * STAYS;
    return m;
}

static bool same_bytes(const struct buf *a, const struct buf *b) {
    return memory_of(a) == memory_of(b) && a->off == b->off && a->bytes == b->bytes && a->kind == b->kind &&
           a->stage == b->stage;
}

/* Returns the buffer in use with that name, or else at that place, or -1. */
static int32_t find_open(const struct unrolling *u, const struct buf *b) {
    for (int named = 1; named >= 0; named--)
        for (int n = 0; n < u->nopen; n++) {
            const struct buf *o = &u->k->buf[u->open[n]];
            if (same_bytes(o, b) && (!named || (o->batch == b->batch && o->inst == b->inst)))
                return u->open[n];
        }
    return -1;
}

/* Returns the new buffer for old buffer b in this repetition. */
static int32_t buffer_of(struct unrolling *u, int32_t b, bool reads) {
    struct rank *k = u->k;
    if (u->now[b] >= 0)
        return u->now[b];
    struct buf moved = moved_buffer(u, &u->old->buf[b]);
    int32_t found = u->shift == 0 || is_one(&moved) ? b : reads ? find_open(u, &moved) : -1;
    if (found < 0) {
        GROW(k->buf, u->bufs, (size_t)k->nbufs + 1);
        found = k->nbufs++;
        k->buf[found] = moved;
    }
    return u->now[b] = found;
}

static void set_open(struct unrolling *u, int32_t b, bool on) {
    for (int n = 0; n < u->nopen; n++)
        if (u->open[n] == b) {
            if (!on)
                u->open[n] = u->open[--u->nopen];
            return;
        }
    if (on)
        u->open[u->nopen++] = b;
}

/* ---- instructions ---- */

static void rename_moved(const struct unrolling *u, struct instr *x) {
    int more = updates_in(u, x->stage), tensor = op_row(x->op)->tensor;
    if (x->op == OP_U)
        x->batch += more;
    else if (x->batch >= 0)
        x->batch += u->shift * u->p->period;
    if (x->op == OP_U || !u->shift)
        return;
    if (x->op <= OP_W)
        x->inst += x->inst >= 0 ? more : 0;
    else if (tensor == K_weight)
        x->inst += x->inst >= 0 ? u->shift * STAYS : 0;
    else if (tensor == K_wgrad || x->op == OP_ZERO)
        x->inst = (x->inst < 0 ? 0 : x->inst) + more;
}

/* Returns the copy of an old instruction to which a current one refers. */
static int32_t copy_of(const struct unrolling *u, int32_t i) {
    int32_t period = u->old->period.end - u->old->period.begin, section = section_of(u->old, i);
    return section == 0 ? i : section == 2 ? i + (u->times - 1) * period : i + u->shift * period;
}

static void add_wait(struct unrolling *u, struct instr *x, int32_t on) {
    GROW(u->k->wait, u->waits, u->k->nwaits + 1);
    u->k->wait[u->k->nwaits++] = on;
    x->nwait++;
}

static void add_copy(struct unrolling *u, int32_t i, bool *begun) {
    struct rank *k = u->k;
    const struct rank *old = u->old;
    struct instr x = old->ins[i];
    x.arg = (uint32_t)k->nargs;
    x.wait = (uint32_t)k->nwaits;
    x.free = (uint32_t)k->nfrees;
    x.nwait = 0;
    for (int pass = 0; pass < 2; pass++) /* finds its inputs before it opens its outputs */
        for (int a = 0; a < x.narg; a++) {
            bool reads = access_of(old, &old->ins[i], a) & ACC_READ;
            int32_t b = operand(old, &old->ins[i], a).buf;
            if (reads == !pass)
                buffer_of(u, b, reads);
        }
    for (int a = 0; a < x.narg; a++) {
        struct arg o = operand(old, &old->ins[i], a);
        o.buf = buffer_of(u, o.buf, true);
        GROW(k->arg, u->args, k->nargs + 1);
        k->arg[k->nargs++] = o;
        if (access_of(old, &old->ins[i], a) & ACC_WRITE && !is_one(&k->buf[o.buf]))
            set_open(u, o.buf, true);
    }
    for (uint32_t f = old->ins[i].free; f < old->ins[i].free + x.nfree; f++) {
        int32_t b = buffer_of(u, old->freed[f], true);
        GROW(k->freed, u->frees, k->nfrees + 1);
        k->freed[k->nfrees++] = b;
        set_open(u, b, false);
    }
    for (uint32_t w = old->ins[i].wait; w < old->ins[i].wait + old->ins[i].nwait; w++)
        add_wait(u, &x, copy_of(u, old->wait[w]));
    for (int l = 0; l < k->nlanes && !begun[x.lane]; l++)
        if (u->last[l] >= 0)
            add_wait(u, &x, u->last[l]);
    begun[x.lane] = true;
    rename_moved(u, &x);
    GROW(k->ins, u->ins, (size_t)k->nins + 1);
    k->ins[k->nins++] = x;
}

static void add_section(struct unrolling *u, int32_t from, int32_t to, int shift) {
    struct rank *k = u->k;
    bool *begun = NEW(bool, k->nlanes);
    if (shift != u->shift)
        memset(u->now, -1, sizeof *u->now * (size_t)u->old->nbufs);
    u->shift = shift;
    memset(u->last, -1, sizeof *u->last * (size_t)k->nlanes);
    for (int32_t i = 0; i < k->nins; i++)
        u->last[k->ins[i].lane] = i;
    for (int32_t i = from; i < to; i++)
        add_copy(u, i, begun);
}

static void unroll_rank(const struct program *p, int r, int times, struct rank *k) {
    const struct rank *old = &p->rank[r];
    struct unrolling u = {.p = p, .k = k, .old = old, .r = r, .times = times};
    u.now = NEW(int32_t, old->nbufs);
    u.open = NEW(int32_t, (old->nbufs + 1) * (times + 2));
    u.last = NEW(int32_t, old->nlanes);
    *k = *old;
    k->nins = k->nbufs = 0;
    k->nargs = k->nwaits = k->nfrees = 0;
    k->ins = NULL;
    k->arg = NULL;
    k->buf = NULL;
    k->wait = k->freed = k->line = NULL;
    k->period.begin = k->period.end = 0;
    for (int32_t b = 0; b < old->nbufs; b++) {
        GROW(k->buf, u.bufs, (size_t)b + 1);
        k->buf[k->nbufs++] = old->buf[b];
    }
    memset(u.now, -1, sizeof *u.now * (size_t)old->nbufs);
    add_section(&u, 0, old->period.begin, 0);
    for (int i = 0; i < times; i++)
        add_section(&u, old->period.begin, old->period.end, i);
    add_section(&u, old->period.end, old->nins, times - 1);
}

struct program *unroll(const struct program *p, int times) {
    struct program *q = NEW(struct program, 1);
    *q = *p;
    q->batches = p->batches + (times - 1) * p->period;
    q->period = 0;
    q->repeats = 1;
    q->rank = NEW(struct rank, p->workers);
    for (int r = 0; r < p->workers; r++)
        unroll_rank(p, r, times, &q->rank[r]);
    number_messages(q, true);
    return q;
}

/* ---- promises ---- */

/* Returns the rule of the original job that a job of the longer program repeats. */
static int32_t rule_of(const struct spec *sp, const struct job *job, int more) {
    int32_t like = job_at(sp, job->s, job->b < sp->batches ? job->b : job->b - more, job->d);
    return like >= 0 ? sp->updates.reads[like] : READ_LATEST;
}

bool promise_of_unrolled(const struct promise *want, const struct program *unrolled, const struct program *p,
                         struct promise *out, const char **why) {
    if (!promise_of_text(unrolled, out, why))
        return false;
    struct spec *sp = memcpy(NEW(struct spec, 1), out->sp, sizeof *sp);
    struct costs *costs = memcpy(NEW(struct costs, 1), out->costs, sizeof *costs);
    costs->stage = want->costs->stage;
    costs->spec = sp;
    out->costs = costs;
    sp->updates.reads = want->sp->updates.reads ? NEW(int32_t, sp->njobs) : NULL;
    for (int32_t j = 0; sp->updates.reads && j < sp->njobs; j++)
        sp->updates.reads[j] = rule_of(want->sp, &sp->job[j], unrolled->batches - p->batches);
    out->sp = sp;
    return true;
}

const char *crosses_mark(const struct program *p) {
    for (int r = 0; r < p->workers; r++) {
        const struct rank *k = &p->rank[r];
        for (int32_t i = 0; i < k->nins; i++) {
            const struct instr *x = &k->ins[i];
            for (uint32_t w = x->wait; w < x->wait + x->nwait; w++)
                if (section_of(k, k->wait[w]) != section_of(k, i))
                    return "a wait crosses a mark of the period";
            for (int q = 0; q < p->workers && x->msg >= 0; q++)
                for (int32_t j = 0; j < p->rank[q].nins; j++)
                    if (p->rank[q].ins[j].msg == x->msg && section_of(&p->rank[q], j) != section_of(k, i))
                        return "a message crosses a mark of the period";
        }
    }
    return NULL;
}
