/* Judges exactly: plays a program once, one instruction at a time, on symbolic memory, then considers every order.
 *
 * If no two conflicting accesses can overlap, all runs give the values of this one. Besides values, memory keeps the
 * owner of each byte: the buffer it was last written as, until that is freed. */
#include "judge.h"
#include "symbols.h"
#include <string.h>

struct arena { /* one rank's memory */
    uint64_t *symbol;
    int32_t *owner; /* the buffer that owns the byte, or -1 */
    bool *live;     /* per buffer: written, and not yet freed */
    bool *used;     /* per buffer: written at least once */
};
struct taken { /* per byte of a gradient, the sum that an update took, or 0 */
    uint64_t *sum;
    int64_t bytes;
};
struct court {
    const struct promise *want;
    struct order z;
    struct arena *of;     /* per rank */
    uint64_t ***seen;     /* [number][operand]: the symbols it read when it started */
    int32_t *ran;         /* per job: the number of its last part's instruction, or -1 */
    int32_t *began;       /* per job: the number of its first part's instruction */
    int32_t *halfway;     /* per rank and workspace: the job whose next part is due, or -1 */
    int *parts;           /* per rank and workspace: how many of its parts have run */
    const char *formal;   /* the first false statement */
    struct taken **taken; /* sums with an order, by the first member's stage and update */
    const char *order;    /* the first update with a sum of another order */
};

static const char *said(struct court *c, int number, const char *what) {
    if (!c->formal)
        c->formal = told(&c->z, number, "%s", what);
    return NULL;
}

/* ---- sizes, and operands against each other ---- */

static const char *check_workspace(const struct court *c, int number) {
    int r = c->z.rank[number];
    const struct rank *k = &c->z.p->rank[r];
    const struct instr *x = instr_of(&c->z, number);
    int32_t work = workspace_of(k, x);
    int64_t has = work < 0 ? 0 : k->buf[work].bytes;
    if (work >= 0 && k->buf[work].kind != K_work)
        return told(&c->z, number, "it works in what is no workspace");
    if (work >= 0 && (k->buf[work].off < 0 || k->buf[work].off > k->arena - has))
        return told(&c->z, number, "the workspace lies outside the arena");
    if (x->op <= OP_W && c->want->costs->stage && has < c->want->costs->stage[x->stage].bytes[K_work])
        return told(&c->z, number, "the workspace is too small");
    return NULL;
}

static bool overlap(struct span a, struct span b) { return a.at < b.at + b.n && b.at < a.at + a.n; }

/* Returns whether something lies in a workspace of the rank, its own or the other one of a pair. */
static bool in_workspace(const struct rank *k, struct span s) {
    for (int32_t b = 0; b < k->nbufs; b++)
        if (k->buf[b].kind == K_work && overlap(s, span_of(k, b)))
            return true;
    return false;
}

/* Checks that what an instruction writes overlaps nothing else it uses, except the stash in which the wstash grows. */
static const char *check_apart(const struct court *c, int number) {
    const struct rank *k = &c->z.p->rank[c->z.rank[number]];
    const struct instr *x = instr_of(&c->z, number);
    for (int a = 0; a < x->narg; a++) {
        struct span s = span_at(k, x, a);
        bool stash = x->op == OP_I && operand(k, x, a).role == ROLE_stash;
        if (operand(k, x, a).role != ROLE_work && in_workspace(k, s))
            return told(&c->z, number, "%s lies in the workspace", role_name[operand(k, x, a).role]);
        if (stash && operand_of(k, x, ROLE_wstash) >= 0 && !grows_here(k, x, a))
            return told(&c->z, number, "the wstash is not at the address of the stash");
        for (int b = 0; b < x->narg; b++)
            if (a != b && access_of(k, x, b) & ACC_WRITE && overlap(s, span_at(k, x, b)) && !lies_in(k, x, a, b) &&
                !lies_in(k, x, b, a) && !(grows_here(k, x, a) && operand(k, x, b).role == ROLE_wstash))
                return told(&c->z, number, "it writes over its own %s", role_name[operand(k, x, a).role]);
    }
    return NULL;
}

static const char *check_operands(struct court *c) {
    int64_t(*size)[NKINDS] = alloc(sizeof *size * size_entries(c->want));
    for (int i = 0; i < c->z.n; i++) {
        const struct rank *k = &c->z.p->rank[c->z.rank[i]];
        const struct instr *x = instr_of(&c->z, i);
        const char *why = check_workspace(c, i);
        for (int a = 0; a < x->narg && !why; a++)
            if ((why = memory_error(k, x, a)) || (why = size_error(c->want, k, operand(k, x, a).buf, size)))
                why = told(&c->z, i, "%s", why);
        if (!why)
            why = check_apart(c, i);
        if (why)
            return why;
    }
    return mid_error(c->want, c->z.p);
}

/* ---- memory ---- */

/* Returns whether an owner of the set has such a buffer for the whole step. */
static bool stays(const struct homes *h, const struct buf *b, bool update) {
    bool shards = h->size > 1;
    if (update && is_gradient(b->kind))
        return false;
    switch (b->kind) {
    case K_opt:
    case K_hopt: return true;
    case K_weight: return !shards && b->inst < 0;
    case K_wshard: return shards;
    case K_wgrad: return !shards && b->inst < 0 && h->zero < 2;
    case K_gshard: return shards && b->inst < 0 && h->zero < 2;
    case K_gown: return h->zero == 2;
    default: return false;
    }
}

static bool is_permanent(const struct court *c, int r, int32_t buf) {
    const struct buf *b = &c->z.p->rank[r].buf[buf];
    bool set = b->stage >= 0 && b->stage < sets_of(c->want) && owns(c->want, r, b->stage);
    return b->kind == K_work || b->kind == K_norm ||
           (set && stays(&c->want->homes[b->stage], b, c->want->sp->updates.every) &&
            home_buffer(&c->z.p->rank[r], b->kind, b->stage) == buf &&
            (b->kind != K_opt || home_state(&c->z.p->rank[r], b->stage) == buf));
}

/* Takes a buffer's bytes, except the first `kept`, which may still belong to another buffer. */
static void take(struct court *c, int r, int32_t buf, int64_t kept) {
    struct span s = span_of(&c->z.p->rank[r], buf);
    for (int64_t n = kept; n < s.n; n++)
        c->of[r].owner[s.at + n] = buf;
    c->of[r].live[buf] = c->of[r].used[buf] = true;
}

/* Opens home weights and optimizer state, which exist from the start, and the workspace, which always exists. */
static const char *open_homes(struct court *c, int r) {
    const struct rank *k = &c->z.p->rank[r];
    int64_t(*size)[NKINDS] = alloc(sizeof *size * size_entries(c->want));
    for (int s = 0; s < sets_of(c->want); s++) {
        int32_t w = -1, o = home_state(k, s);
        const char *why = NULL;
        if (!owns(c->want, r, s))
            continue;
        w = home_weights(c->want, r, s);
        if (w < 0 || (why = size_error(c->want, k, w, size)))
            return format("rank %d, weight(%d): %s", r, s, why ? why : "it has no place");
        if (c->want->costs->stage && c->want->costs->stage[s].bytes[K_opt] > 0 && o < 0)
            return format("rank %d, opt(%d) has no place", r, s);
        if (o >= 0 && (why = size_error(c->want, k, o, size)))
            return format("rank %d, opt(%d): %s", r, s, why);
        fill_home(c->want, r, s, c->of[r].symbol);
    }
    for (int32_t b = 0; b < k->nbufs; b++) {
        struct span s = span_of(k, b);
        bool empty = k->buf[b].kind == K_norm && !c->want->costs->post_validation;
        if (!is_permanent(c, r, b) || is_gradient(k->buf[b].kind) || empty)
            continue;
        for (int64_t n = 0; n < s.n; n++)
            if (c->of[r].owner[s.at + n] >= 0)
                return format("rank %d: buffers that stay overlap", r);
        take(c, r, b, 0);
    }
    fill_norm(c->want, r, c->of[r].symbol);
    return NULL;
}

static void open_memory(struct court *c) {
    c->of = NEW(struct arena, c->z.p->workers);
    for (int r = 0; r < c->z.p->workers; r++) {
        int64_t n = cells(&c->z.p->rank[r]);
        c->of[r] = (struct arena){NEW(uint64_t, n), NEW(int32_t, n), NEW(bool, c->z.p->rank[r].nbufs),
                                  NEW(bool, c->z.p->rank[r].nbufs)};
        for (int64_t i = 0; i < n; i++) {
            c->of[r].symbol[i] = STAMP;
            c->of[r].owner[i] = -1;
        }
    }
}

static const char *read_operand(struct court *c, int number, int a) {
    int r = c->z.rank[number];
    const struct rank *k = &c->z.p->rank[r];
    const struct instr *x = instr_of(&c->z, number);
    int32_t buf = operand(k, x, a).buf;
    struct span s = span_at(k, x, a);
    uint64_t *seen = c->seen[number][a] = NEW(uint64_t, s.n);
    int64_t first = (int64_t)operand(k, x, a).piece * s.n;
    bool reads = access_of(k, x, a) & ACC_READ, half = is_half_before(k, x, a);
    for (int64_t n = kept_of_stash(k, x, a); half && !reads && n < s.n; n++)
        if (c->of[r].symbol[s.at + n] != half_made(x, operand(k, x, a).role, first + n))
            return told(&c->z, number, "what the part before made is gone");
    for (int64_t n = 0; reads && n < s.n; n++) {
        seen[n] = c->of[r].symbol[s.at + n];
        if (seen[n] & STAMP && !half)
            return told(&c->z, number, "reads byte %lld, which holds nothing", (long long)(s.at + n));
        if (c->of[r].owner[s.at + n] != buf)
            said(c, number, "reads a tensor by another's name");
    }
    return NULL;
}

/* Returns whether the buffer overlaps a home's gradient or a norm. These have their place for the whole step, but hold
 * nothing before their first contribution. */
static bool touches_home_gradient(const struct court *c, int r, int32_t buf) {
    const struct rank *k = &c->z.p->rank[r];
    for (int32_t b = 0; b < k->nbufs; b++)
        if (b != buf && (is_gradient(k->buf[b].kind) || k->buf[b].kind == K_norm) && is_permanent(c, r, b) &&
            overlap(span_of(k, b), span_of(k, buf)))
            return true;
    return false;
}

/* Returns whether weights come, by fetch, copy or gather, to a place that already holds some. Only one may come. */
static bool comes_again(const struct court *c, int r, const struct instr *x, int a) {
    const struct rank *k = &c->z.p->rank[r];
    struct span s = span_at(k, x, a);
    int32_t buf = operand(k, x, a).buf;
    int own = inside_of(k, x, a);
    bool once = (is_message(x->op) || x->op == OP_COPY) && is_weights(k->buf[buf].kind) && !is_permanent(c, r, buf);
    for (int64_t n = 0; once && n < s.n; n++)
        if (!(c->of[r].symbol[s.at + n] & STAMP) &&
            !(own >= 0 && overlap(span_at(k, x, own), (struct span){s.at + n, 1})))
            return true;
    return false;
}

static const char *write_operand(struct court *c, int number, int a, const uint64_t *made) {
    int r = c->z.rank[number];
    const struct rank *k = &c->z.p->rank[r];
    const struct instr *x = instr_of(&c->z, number);
    int32_t buf = operand(k, x, a).buf;
    struct span s = span_at(k, x, a), all = span_of(k, buf);
    int stash = x->op == OP_I && operand(k, x, a).role == ROLE_wstash ? operand_of(k, x, ROLE_stash) : -1;
    if (comes_again(c, r, x, a))
        said(c, number, "writes weights that have come already");
    for (int64_t n = 0; n < all.n; n++) { /* a piece opens its whole buffer */
        int32_t owner = c->of[r].owner[all.at + n];
        if (owner >= 0 && owner != buf && !(stash >= 0 && operand(k, x, stash).buf == owner))
            return told(&c->z, number, "writes byte %lld, which holds another tensor", (long long)(all.at + n));
    }
    for (int64_t n = 0; n < s.n; n++)
        c->of[r].symbol[s.at + n] = made[n];
    if (touches_home_gradient(c, r, buf))
        said(c, number, "writes where a gradient that stays has its place");
    if (stash >= 0 && k->buf[operand(k, x, stash).buf].grows != buf)
        said(c, number, "the wstash takes its stash's place, and the plan does not say so");
    take(c, r, buf, is_half_after(k, x, a) ? kept_of_stash(k, x, a) : 0);
    return NULL;
}

static bool uses(const struct rank *k, const struct instr *x, int32_t buf, int how) {
    for (int a = 0; a < x->narg; a++)
        if (operand(k, x, a).buf == buf && access_of(k, x, a) & how)
            return true;
    return false;
}

/* Frees the buffers that the instruction wrote, or first the others: a wstash takes over its stash's bytes. */
static const char *run_frees(struct court *c, int number, bool written) {
    int r = c->z.rank[number];
    const struct rank *k = &c->z.p->rank[r];
    const struct instr *x = instr_of(&c->z, number);
    for (uint32_t f = x->free; f < x->free + x->nfree; f++) {
        int32_t buf = k->freed[f];
        struct span s = span_of(k, buf);
        if (uses(k, x, buf, ACC_WRITE) != written)
            continue;
        if (!c->of[r].live[buf] || is_permanent(c, r, buf))
            return told(&c->z, number, "frees what is not there, or what stays");
        if (!uses(k, x, buf, ACC_READ | ACC_WRITE))
            said(c, number, "frees what it does not use");
        c->of[r].live[buf] = false;
        for (int64_t n = 0; n < s.n; n++) {
            if (c->of[r].owner[s.at + n] != buf)
                return told(&c->z, number, "frees what another holds");
            c->of[r].symbol[s.at + n] = STAMP;
            c->of[r].owner[s.at + n] = -1;
        }
    }
    return NULL;
}

/* ---- instructions ---- */

/* Begins a job or its next part. Returns an error, or NULL. */
static const char *come_to(struct court *c, int number, int32_t j) {
    const struct instr *x = instr_of(&c->z, number);
    int r = c->z.rank[number], at = 2 * r + works_apart(&c->z.p->rank[r], x);
    int32_t under_way = c->halfway[at];
    if (under_way >= 0 && under_way != j)
        return "another job is half done";
    if (x->part != (under_way < 0 ? 0 : c->parts[at]) ||
        (under_way >= 0 && instr_of(&c->z, c->began[j])->last != x->last))
        return "its parts come in another order";
    c->began[j] = under_way < 0 ? number : c->began[j];
    c->parts[at] = x->part + 1;
    c->halfway[at] = x->part < x->last ? j : -1;
    c->ran[j] = x->part < x->last ? -1 : number;
    return NULL;
}

static const char *start(struct court *c, int number) {
    const struct spec *sp = c->want->sp;
    const struct instr *x = instr_of(&c->z, number);
    const char *why = NULL;
    if (x->op <= OP_W) {
        bool inside = x->stage >= 0 && x->stage < sp->stages && x->batch >= 0 && x->batch < sp->batches;
        int32_t j = inside ? job_at(sp, x->stage, x->batch, x->op) : -1;
        if (j < 0 || sp->job[j].rank != c->z.rank[number] || c->ran[j] >= 0)
            return told(&c->z, number, "no job of this rank, or it runs twice");
        if ((why = come_to(c, number, j)))
            return told(&c->z, number, "%s", why);
    }
    c->seen[number] = NEW(uint64_t *, x->narg);
    for (int a = 0; a < x->narg && !why; a++)
        why = read_operand(c, number, a);
    return why;
}

/* Delivers a message: what its SEND read. */
static void arrive(const struct court *c, int number, uint64_t *made, int64_t bytes) {
    for (int64_t n = 0; n < bytes; n++)
        made[n] = c->seen[c->z.meets[number]][0][n];
}

/* Computes a collective's result from what those members read whose data reach this one. */
static void meet(const struct court *c, int number, uint64_t **made) {
    int r = c->z.rank[number], me = 0;
    const struct group *g = &c->z.p->group[c->z.p->rank[r].lane[instr_of(&c->z, number)->lane].group];
    struct party *party = NEW(struct party, g->n);
    while (g->rank[me] != r)
        me++;
    for (int m = me, at = number, n = 0; n < g->n; n++, m = (m + 1) % g->n, at = c->z.meets[at])
        party[m] = (struct party){&c->z.p->rank[g->rank[m]], instr_of(&c->z, at), c->seen[at]};
    make_collective(party, g->n, me, made);
}

/* Checks that an update takes the whole sum, even for weights of no bytes, whose values cannot show it. */
static void check_sum(struct court *c, int number) {
    const struct promise *want = c->want;
    int r = c->z.rank[number], dw = operand_of(&c->z.p->rank[r], instr_of(&c->z, number), ROLE_dw);
    struct span s = dw < 0 ? (struct span){0, 0} : span_at(&c->z.p->rank[r], instr_of(&c->z, number), dw);
    int set = instr_of(&c->z, number)->stage;
    int64_t first = set < sets_of(want) ? own_part(want, r, set).from * s.n : 0;
    for (int64_t n = 0; n < s.n && set < sets_of(want); n++)
        if (c->seen[number][dw][n] !=
            ((want->sum[set] + (uint64_t)(first + n) * (uint64_t)want->parts[set] * STEP) & ~STAMP))
            said(c, number, "takes what is not the gradient");
}

/* Checks parameters that all members have whole: each update must take a sum of the same order as all others. */
static void check_order_of_sum(struct court *c, int number) {
    const struct promise *want = c->want;
    const struct instr *x = instr_of(&c->z, number);
    int r = c->z.rank[number], dw = operand_of(&c->z.p->rank[r], x, ROLE_dw), set = x->stage;
    if (dw < 0 || set >= want->sp->stages || !want->costs->whole[set])
        return;
    struct part own = own_part(want, r, set);
    int64_t n = span_at(&c->z.p->rank[r], x, dw).n, first = own.from * n, all = own.of * n;
    struct taken **of = &c->taken[first_member(want, set)];
    if (!c->z.p->rank[r].buf[operand(&c->z.p->rank[r], x, dw).buf].bytes)
        return;
    if (!*of)
        *of = NEW(struct taken, want->sp->batches + 1);
    struct taken *taken = &(*of)[x->batch < 0 ? 0 : x->batch];
    if (!taken->sum)
        *taken = (struct taken){NEW(uint64_t, all), all};
    for (int64_t i = 0; i < n; i++) { /* members' gradients may differ in size */
        uint64_t *sum = &taken->sum[(first + i) * taken->bytes / all];
        if (*sum && *sum != c->seen[number][dw][i] && !c->order)
            c->order = told(&c->z, number, "its gradient is summed in another order than that of another member");
        *sum = c->seen[number][dw][i];
    }
}

static const char *end(struct court *c, int number) {
    const struct rank *k = &c->z.p->rank[c->z.rank[number]];
    const struct instr *x = instr_of(&c->z, number);
    uint64_t **made = NEW(uint64_t *, x->narg);
    const char *why = NULL;
    for (int a = 0; a < x->narg; a++)
        made[a] = NEW(uint64_t, span_at(k, x, a).n);
    if (is_collective(x->op))
        meet(c, number, made);
    else if (is_message(x->op))
        arrive(c, number, made[0], op_lane[x->op] == LANE_RECV ? span_at(k, x, 0).n : 0);
    else if ((why = make_values(c->want, k, x, c->seen[number], made)))
        return told(&c->z, number, "%s", why);
    if (x->op == OP_U && !c->want->sp->updates.every)
        check_sum(c, number);
    if (x->op == OP_U && sums_have_order)
        check_order_of_sum(c, number);
    why = run_frees(c, number, false);
    for (int a = 0; a < x->narg && !why; a++) /* garbage first, because a piece of it may be written */
        if (spoils(k, x, a))
            why = write_operand(c, number, a, made[a]);
    for (int a = 0; a < x->narg && !why; a++)
        if (access_of(k, x, a) & ACC_WRITE)
            why = write_operand(c, number, a, made[a]);
    return why ? why : run_frees(c, number, true);
}

/* ---- the whole ---- */

static const uint64_t *memory_at(void *of, int r) { return ((const struct court *)of)->of[r].symbol; }

static const char *run_events(struct court *c) {
    const struct promise *want = c->want;
    const char *why = NULL;
    c->seen = NEW(uint64_t **, c->z.n);
    c->ran = NEW(int32_t, want->sp->njobs);
    c->began = NEW(int32_t, want->sp->njobs);
    c->halfway = NEW(int32_t, 2 * c->z.p->workers);
    c->parts = NEW(int, 2 * c->z.p->workers);
    memset(c->ran, -1, sizeof *c->ran * (size_t)want->sp->njobs);
    memset(c->halfway, -1, sizeof *c->halfway * 2 * (size_t)c->z.p->workers);
    open_memory(c);
    for (int r = 0; r < c->z.p->workers && !why; r++)
        why = open_homes(c, r);
    for (int e = 0; e < c->z.nevents && !why; e++)
        why = c->z.event[e] % 2 ? end(c, c->z.event[e] / 2) : start(c, c->z.event[e] / 2);
    return why;
}

/* Replays a program whose values are right, this time with sums that depend on their order. */
static const char *check_orders_of_sums(const struct court *right) {
    struct court c = {.want = right->want, .z = right->z};
    if (!c.want->costs->whole)
        return NULL;
    c.taken = NEW(struct taken *, c.want->sp->stages);
    sums_have_order = true;
    const char *why = run_events(&c);
    sums_have_order = false;
    return why ? why : c.order;
}

static const char *check_values(struct court *c) {
    const struct promise *want = c->want;
    const char *why = run_events(c);
    for (int32_t j = 0; j < want->sp->njobs && !why; j++)
        if (c->ran[j] < 0)
            why = format("%s has not run", job_name(NULL, want->sp->job[j].s, want->sp->job[j].b, want->sp->job[j].d));
    for (int r = 0; r < c->z.p->workers; r++)
        for (int s = 0; s < sets_of(want) && !why; s++)
            if (owns(want, r, s) && (why = home_error(want, r, s, c->of[r].symbol)))
                why = format("rank %d: %s", r, why);
    return !why && want->costs->post_validation ? last_norms_error(want, memory_at, c) : why;
}

static const char *check_needs(const struct court *c) {
    const struct graph *g = c->want->g;
    for (int32_t j = 0; j < c->want->sp->njobs; j++)
        for (int32_t e = g->pred_at[j]; e < g->pred_at[j + 1]; e++)
            if (g->pred[e] < c->want->sp->njobs &&
                !comes_before(&c->z, end_of(c->ran[g->pred[e]]), start_of(c->began[j])))
                return told(&c->z, c->ran[j], "may start before %s ends, which it needs",
                            short_name(NULL, instr_of(&c->z, c->ran[g->pred[e]])));
    return NULL;
}

/* ---- false statements ---- */

/* Checks tokens: a job reads one for each job on another rank that it needs and gets nothing else from. No run need
 * depend on it, since other messages may keep the order. */
static void check_tokens(struct court *c, int32_t j) {
    const struct spec *sp = c->want->sp;
    const struct graph *g = c->want->g;
    const struct rank *k = &c->z.p->rank[sp->job[j].rank];
    const struct instr *x = instr_of(&c->z, c->ran[j]);
    uint64_t needs = 0, has = 0;
    for (int32_t e = g->pred_at[j]; e < g->pred_at[j + 1]; e++) {
        const struct job *from = &sp->job[g->pred[e]];
        if (g->pred[e] < sp->njobs && gets(c->want->costs, g->pred[e], j, K_token) && from->rank != sp->job[j].rank)
            needs += mix(value(K_token, from->s, from->b, from->d, 0));
    }
    for (int a = 0; a < x->narg; a++)
        has += operand(k, x, a).role == ROLE_t ? mix(c->seen[c->ran[j]][a][0]) : 0;
    if (has != needs)
        said(c, c->ran[j], "reads tokens that it does not need, or not those that it does");
}

/* Reports a breach of the plan's rules on which no run depends, or NULL: there are two workspaces, state of no bytes
 * has no buffer, and only a stash grows, into the wstash at its place. */
static const char *false_plan(const struct rank *k, int32_t b) {
    const struct buf *x = &k->buf[b], *y = x->grows >= 0 ? &k->buf[x->grows] : NULL;
    if (x->kind == K_work && x->inst >= 0 && x->inst != 1)
        return "there are two workspaces";
    if (x->kind == K_work && x->off < 0)
        return "a workspace without a place";
    if ((x->kind == K_opt || x->kind == K_hopt) && !x->bytes)
        return "optimizer state that has no bytes needs no buffer";
    if (y && ((x->kind != K_stash && x->kind != K_rstash) || y->kind != K_wstash || x->stage != y->stage ||
              x->batch != y->batch || x->off != y->off || x->bytes > y->bytes))
        return "a buffer grows that cannot";
    return NULL;
}

/* Returns whether b is a home's weights, or a part of a gradient, that no owner can have. */
static bool is_nobodys(const struct court *c, int r, const struct buf *b) {
    bool shard = b->kind == K_wshard || b->kind == K_gshard || b->kind == K_gown;
    if (!shard && (b->kind != K_weight || b->inst >= 0))
        return false;
    const struct homes *h = &c->want->homes[b->stage];
    bool fits = b->kind == K_gown ? h->zero == 2 : shard == (h->size > 1);
    return !owns(c->want, r, b->stage) || !fits;
}

/* Checks a norm at the end; no run depends on what is added after its last update. */
static void check_norm(struct court *c, int r, int32_t buf) {
    struct span s = span_of(&c->z.p->rank[r], buf);
    for (int64_t n = 0; n < s.n && !c->formal; n++)
        if (c->of[r].symbol[s.at + n] != norm_symbol(c->want, n))
            c->formal = format("rank %d: it ends with another norm", r);
}

static void check_said(struct court *c) {
    for (int i = 0; i < c->z.n; i++) {
        const char *why = false_name(c->want, &c->z, i);
        if (why)
            said(c, i, why);
    }
    for (int32_t j = 0; j < c->want->sp->njobs; j++)
        check_tokens(c, j);
    for (int r = 0; r < c->z.p->workers; r++)
        for (int32_t b = 0; b < c->z.p->rank[r].nbufs && !c->formal; b++) {
            const char *why = false_plan(&c->z.p->rank[r], b);
            why = is_nobodys(c, r, &c->z.p->rank[r].buf[b]) ? "a part of weights of which it owns none" : why;
            c->formal = why ? format("rank %d: %s", r, why) : NULL;
        }
    for (int r = 0; r < c->z.p->workers; r++)
        for (int32_t b = 0; b < c->z.p->rank[r].nbufs; b++)
            if (c->z.p->rank[r].buf[b].kind == K_norm && c->of[r].live[b] && !c->want->costs->post_validation)
                check_norm(c, r, b);
    for (int r = 0; r < c->z.p->workers; r++)
        for (int32_t b = 0; b < c->z.p->rank[r].nbufs; b++)
            if ((c->of[r].live[b] || !c->of[r].used[b]) && !is_permanent(c, r, b) && !c->formal)
                c->formal = format("rank %d: a buffer is never %s", r, c->of[r].live[b] ? "freed" : "used");
}

static struct judgement judge_straight(const struct promise *wanted, const struct program *p) {
    struct promise own = promise_for(wanted, p), *want = &own;
    struct court c = {.want = want, .z = order_of(p)};
    const char *why = check_form(&c.z);
    if (why)
        return (struct judgement){MALFORMED, why};
    why = match(&c.z);
    if (!why)
        why = check_operands(&c);
    if (!why)
        why = range_error(want, &c.z);
    if (!why && !want->costs->stage)
        why = text_size_error(want, &c.z);
    if (!why)
        why = play(&c.z, false);
    if (!why)
        why = play(&c.z, true);
    if (!why)
        why = check_values(&c);
    if (!why)
        why = check_orders_of_sums(&c);
    if (why)
        return (struct judgement){WRONG, why};
    close_order(&c.z);
    if ((why = find_race(&c.z)) || (why = check_needs(&c)))
        return (struct judgement){WRONG, why};
    check_said(&c);
    return (struct judgement){c.formal ? FORMAL : RIGHT, c.formal};
}

/* Judges a period as if written out: once, as in the program, then twice and three times. Reports false names once. */
struct judgement judge(const struct promise *want, const struct program *p) {
    if (!p->period)
        return judge_straight(want, p);
    const char *across = crosses_mark(p);
    struct judgement first = judge_straight(want, unroll(p, 1));
    for (int times = 2; times <= 3 && first.is < MALFORMED; times++) {
        struct program *longer = unroll(p, times);
        struct promise promised;
        const char *why;
        if (!promise_of_unrolled(want, longer, p, &promised, &why))
            return (struct judgement){WRONG, format("%d times: %s", times, why)};
        struct judgement again = judge_straight(&promised, longer);
        if (again.is >= MALFORMED)
            return (struct judgement){WRONG, format("%d times: %s", times, again.why)};
    }
    return first.is == RIGHT && across ? (struct judgement){FORMAL, across} : first;
}
