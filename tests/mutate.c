/* One place of a program is broken: what is left is a program again, with a text form (but for labels that come twice),
 * that no compiler would make. Instructions refer to each other by index, so those that move take the waits with them.
 */
#include "mutate.h"
#include "executor.h"
#include <assert.h>
#include <string.h>

#define X(name, what) #name,
const char *const mutation_name[NMUTATIONS] = {MUTATIONS(X)};
#undef X
#define X(name, what) what,
const char *const mutation_what[NMUTATIONS] = {MUTATIONS(X)};
#undef X

static void *copy(const void *from, size_t n, size_t size) {
    return n ? memcpy(alloc((n + 1) * size), from, n * size) : alloc(size);
}
#define COPY(from, n) copy(from, (size_t)(n), sizeof *(from))

struct program *copy_program(const struct program *p) {
    struct program *q = COPY(p, 1);
    q->rank = COPY(p->rank, p->workers);
    q->group = COPY(p->group, p->ngroups);
    for (int r = 0; r < p->workers; r++) {
        struct rank *k = &q->rank[r];
        k->ins = COPY(k->ins, k->nins);
        k->lane = COPY(k->lane, k->nlanes);
        k->buf = COPY(k->buf, k->nbufs);
        k->arg = COPY(k->arg, k->nargs);
        k->wait = COPY(k->wait, k->nwaits);
        k->freed = COPY(k->freed, k->nfrees);
        k->event = k->over = k->over_at = NULL; /* notes between passes, no part of what runs */
        k->nevents = 0;
    }
    return q;
}

/* ---- edits ---- */

/* Instruction k of the new order is old[order[k]]; -1 stands for `extra`. Waits follow; on what is gone there is none.
 */
static void reorder(struct rank *k, const int32_t *order, int n, struct instr extra) {
    int32_t *now = NEW(int32_t, k->nins + 1);
    struct instr *ins = NEW(struct instr, n);
    memset(now, -1, sizeof *now * ((size_t)k->nins + 1));
    for (int i = 0; i < n; i++) {
        ins[i] = order[i] < 0 ? extra : k->ins[order[i]];
        if (order[i] >= 0)
            now[order[i]] = i;
    }
    int32_t *wait = NEW(int32_t, k->nwaits + 1 + (size_t)extra.nwait);
    size_t nwaits = 0;
    for (int i = 0; i < n; i++) {
        uint32_t from = ins[i].wait, to = from + ins[i].nwait;
        ins[i].wait = (uint32_t)nwaits;
        for (; from < to; from++)
            if (now[k->wait[from]] >= 0)
                wait[nwaits++] = now[k->wait[from]];
        ins[i].nwait = (uint16_t)(nwaits - ins[i].wait);
    }
    k->wait = wait;
    k->nwaits = nwaits;
    k->ins = ins;
    k->nins = n;
}

static void move(struct rank *k, int from, int to) {
    int32_t *order = NEW(int32_t, k->nins);
    for (int i = 0, old = 0; i < k->nins; i++)
        order[i] = i == to ? from : (old += old == from, old++);
    reorder(k, order, k->nins, k->ins[0]);
}

static void exchange(struct rank *k, int i, int j) {
    int32_t *order = NEW(int32_t, k->nins);
    for (int n = 0; n < k->nins; n++)
        order[n] = n == i ? j : n == j ? i : n;
    reorder(k, order, k->nins, k->ins[0]);
}

static void remove_at(struct rank *k, int at) {
    int32_t *order = NEW(int32_t, k->nins);
    for (int i = 0; i < k->nins - 1; i++)
        order[i] = i + (i >= at);
    reorder(k, order, k->nins - 1, k->ins[0]);
}

static void insert_at(struct rank *k, int at, struct instr x) {
    int32_t *order = NEW(int32_t, k->nins + 1);
    for (int i = 0; i <= k->nins; i++)
        order[i] = i == at ? -1 : i - (i > at);
    reorder(k, order, k->nins + 1, x);
}

/* The instruction's waits become those of `list`. */
static void set_waits(struct rank *k, struct instr *x, const int32_t *list, int n) {
    int32_t *wait = NEW(int32_t, k->nwaits + (size_t)n);
    memcpy(wait, k->wait, sizeof *wait * k->nwaits);
    for (int i = 0; i < n; i++)
        wait[k->nwaits + (size_t)i] = list[i];
    k->wait = wait;
    x->wait = (uint32_t)k->nwaits;
    x->nwait = (uint16_t)n;
    k->nwaits += (size_t)n;
}

static void set_frees(struct rank *k, struct instr *x, const int32_t *list, int n) {
    int32_t *freed = NEW(int32_t, k->nfrees + (size_t)n);
    memcpy(freed, k->freed, sizeof *freed * k->nfrees);
    for (int i = 0; i < n; i++)
        freed[k->nfrees + (size_t)i] = list[i];
    k->freed = freed;
    x->free = (uint32_t)k->nfrees;
    x->nfree = (uint8_t)n;
    k->nfrees += (size_t)n;
}

static void add_wait(struct rank *k, struct instr *x, int32_t on) {
    int32_t *list = NEW(int32_t, x->nwait + 1);
    memcpy(list, k->wait + x->wait, sizeof *list * x->nwait);
    list[x->nwait] = on;
    set_waits(k, x, list, x->nwait + 1);
}

static void add_free(struct rank *k, struct instr *x, int32_t buf) {
    int32_t *list = NEW(int32_t, x->nfree + 1);
    memcpy(list, k->freed + x->free, sizeof *list * x->nfree);
    list[x->nfree] = buf;
    set_frees(k, x, list, x->nfree + 1);
}

static void drop_wait(struct rank *k, struct instr *x, int nth) {
    memmove(&k->wait[x->wait + (uint32_t)nth], &k->wait[x->wait + (uint32_t)nth + 1],
            sizeof *k->wait * (size_t)(x->nwait - nth - 1));
    x->nwait--;
}

static void drop_free(struct rank *k, struct instr *x, int nth) {
    memmove(&k->freed[x->free + (uint32_t)nth], &k->freed[x->free + (uint32_t)nth + 1],
            sizeof *k->freed * (size_t)(x->nfree - nth - 1));
    x->nfree--;
}

/* The rank's lane of this kind; a new one takes its place in their order: compute, sends, receives by peer, groups. */
static int lane_to(struct rank *k, int kind, int peer) {
    int at = 0;
    while (at < k->nlanes && (k->lane[at].kind < kind || (k->lane[at].kind == kind && k->lane[at].peer < peer)))
        at++;
    if (at < k->nlanes && k->lane[at].kind == kind && k->lane[at].peer == peer)
        return at;
    struct lane *lane = NEW(struct lane, k->nlanes + 1);
    memcpy(lane, k->lane, sizeof *lane * (size_t)at);
    memcpy(lane + at + 1, k->lane + at, sizeof *lane * (size_t)(k->nlanes++ - at));
    lane[at] = (struct lane){(uint8_t)kind, peer, -1};
    k->lane = lane;
    for (int i = 0; i < k->nins; i++)
        k->ins[i].lane += k->ins[i].lane >= at;
    return at;
}

static int32_t buffer_like(struct rank *k, const struct buf *b) {
    for (int32_t i = 0; i < k->nbufs; i++)
        if (k->buf[i].kind == b->kind && k->buf[i].stage == b->stage && k->buf[i].batch == b->batch &&
            k->buf[i].inst == b->inst)
            return i;
    struct buf *buf = NEW(struct buf, k->nbufs + 1);
    memcpy(buf, k->buf, sizeof *buf * (size_t)k->nbufs);
    buf[k->nbufs] = *b;
    buf[k->nbufs].grows = -1;
    if (b->off + b->bytes > k->arena) /* room at the end */
        buf[k->nbufs].off = k->arena;
    if (buf[k->nbufs].off + b->bytes > k->arena)
        k->arena = buf[k->nbufs].off + b->bytes;
    k->buf = buf;
    return k->nbufs++;
}

/* ---- mutations: each at a random place, true when there is one ---- */

struct place {
    struct program *p;
    uint64_t *random;
    int r, i;
    struct rank *k;
    struct instr *x;
};

static int draw(struct place *m, int n) { return random_below(m->random, n); }

static const char *mutate_order(struct place *m, enum mutation how) {
    struct rank *k = m->k;
    int j;
    switch (how) {
    case MUT_DELETE: remove_at(k, m->i); return "";
    case MUT_DUPLICATE:
        j = m->i + 1 + (draw(m, 2) ? draw(m, k->nins - m->i) : 0);
        insert_at(k, j, *m->x);
        return format("again at %d", j);
    case MUT_SWAP_LANE:
        for (j = m->i + 1; j < k->nins && k->ins[j].lane != m->x->lane;)
            j++;
        if (j == k->nins)
            return NULL;
        exchange(k, m->i, j);
        return "with the next of its lane";
    case MUT_SWAP_ISSUE:
        if (m->i + 1 == k->nins || k->ins[m->i + 1].lane == m->x->lane)
            return NULL;
        exchange(k, m->i, m->i + 1);
        return "with the next in issue order";
    default:
        j = draw(m, k->nins);
        if (j == m->i)
            return NULL;
        move(k, m->i, j);
        return format("to %d", j);
    }
}

static const char *move_to_rank(struct place *m) {
    int q = draw(m, m->p->workers), kind = m->k->lane[m->x->lane].kind, lane = 0;
    if (q == m->r || m->x->peer == q)
        return NULL;
    struct rank *to = &m->p->rank[q];
    struct instr x = *m->x;
    int32_t freed[UINT8_MAX];
    int group = m->k->lane[x.lane].group;
    if (kind == LANE_GROUP) {
        while (lane < to->nlanes && (to->lane[lane].kind != LANE_GROUP || to->lane[lane].group != group))
            lane++;
        if (lane == to->nlanes)
            return NULL;
    } else if (kind != LANE_COMPUTE)
        lane = lane_to(to, kind, m->k->lane[x.lane].peer);
    x.lane = (uint16_t)lane;
    x.nwait = 0;
    struct arg *arg = NEW(struct arg, to->nargs + x.narg);
    memcpy(arg, to->arg, sizeof *arg * to->nargs);
    for (int a = 0; a < x.narg; a++) {
        struct arg old = m->k->arg[x.arg + (uint32_t)a];
        arg[to->nargs + (size_t)a] = (struct arg){old.role, buffer_like(to, &m->k->buf[old.buf])};
    }
    to->arg = arg;
    x.arg = (uint32_t)to->nargs;
    to->nargs += x.narg;
    for (int f = 0; f < x.nfree; f++)
        freed[f] = buffer_like(to, &m->k->buf[m->k->freed[x.free + (uint32_t)f]]);
    set_frees(to, &x, freed, x.nfree);
    remove_at(m->k, m->i);
    int at = draw(m, to->nins + 1);
    insert_at(to, at, x);
    return format("to rank %d at %d", q, at);
}

static const char *mutate_name(struct place *m, enum mutation how) {
    struct instr *x = m->x;
    int n, kind;
    switch (how) {
    case MUT_OTHER_BATCH:
        n = draw(m, m->p->batches);
        if (x->batch < 0 || n == x->batch)
            return NULL;
        x->batch = n;
        return format("batch %d", n);
    case MUT_OTHER_STAGE:
        n = draw(m, m->p->stages + m->p->tied);
        if (n == x->stage)
            return NULL;
        x->stage = n;
        return format("stage %d", n);
    case MUT_OTHER_PEER:
        n = draw(m, m->p->workers);
        if (x->peer < 0 || n == x->peer || n == m->r)
            return NULL;
        x->peer = n;
        kind = m->k->lane[x->lane].kind; /* an edge has one lane: what takes this message may be coarser than its own */
        x->lane = (uint16_t)lane_to(m->k, kind, kind == LANE_ALL ? -1 : n);
        return format("peer %d", n);
    default:
        n = draw(m, 4) - 1;
        if (n == x->inst || op_cost[x->op] != COST_LINK)
            return NULL;
        x->inst = n;
        return format("instance %d", n);
    }
}

static const char *mutate_memory(struct place *m, enum mutation how) {
    struct rank *k = m->k;
    struct buf *b = &k->buf[draw(m, k->nbufs)], *o = &k->buf[draw(m, k->nbufs)];
    struct text name = {0};
    put_buf(&name, b);
    int64_t by, old = b->off;
    switch (how) {
    case MUT_OFFSET_ONE:
    case MUT_OFFSET_SIZE:
        by = how == MUT_OFFSET_ONE ? 1 : b->bytes;
        b->off += draw(m, 2) || b->off < by ? by : -by;
        if (draw(m, 2) && b->off + b->bytes > k->arena) /* sometimes where there is room */
            k->arena = b->off + b->bytes;
        break;
    case MUT_OFFSET_OTHER:
        if (o->off == old)
            return NULL;
        b->off = o->off;
        break;
    case MUT_OFFSET_SWAP:
        if (o->off == old)
            return NULL;
        put(&name, " and ");
        put_buf(&name, o);
        b->off = o->off;
        o->off = old;
        break;
    case MUT_BYTES:
        by = draw(m, 2) ? 1 : -1;
        b->bytes += by;
        return format("%s has %lld bytes", name.s, (long long)b->bytes);
    default:
        if (!k->arena)
            return NULL;
        by = draw(m, 2) ? 1 : 1 + draw(m, (int)k->arena);
        k->arena -= by;
        return format("by %lld", (long long)by);
    }
    return format("%s from %lld to %lld", name.s, (long long)old, (long long)b->off);
}

static const char *label_of(const struct rank *k, int32_t i) {
    struct text t = {0};
    put_label(&t, &k->ins[i]);
    return t.s;
}

static const char *drop_record(struct place *m) {
    struct rank *k = m->k;
    int n = 0;
    for (int i = 0; i < k->nins; i++)
        for (int w = k->ins[i].nwait - 1; w >= 0; w--)
            if (k->wait[k->ins[i].wait + (uint32_t)w] == m->i) {
                drop_wait(k, &k->ins[i], w);
                n++;
            }
    return n ? format("%d waits", n) : NULL;
}

static const char *mutate_waits(struct place *m, enum mutation how) {
    struct rank *k = m->k;
    struct instr *x = m->x;
    int n = x->nwait ? draw(m, x->nwait) : 0, on = draw(m, k->nins);
    if (how == MUT_DROP_RECORD)
        return drop_record(m);
    bool adds = how != MUT_DROP_WAIT, drops = how != MUT_ADD_WAIT;
    if ((drops && !x->nwait) || (adds && k->ins[on].lane == x->lane))
        return NULL;
    int32_t old = drops ? k->wait[x->wait + (uint32_t)n] : -1;
    if (drops)
        drop_wait(k, x, n);
    if (adds)
        add_wait(k, x, on);
    return format("%s%s%s%s", drops ? "not for " : "", drops ? label_of(k, old) : "", adds ? " but for " : "",
                  adds ? label_of(k, on) : "");
}

static const char *mutate_frees(struct place *m, enum mutation how) {
    struct rank *k = m->k;
    int n = m->x->nfree ? draw(m, m->x->nfree) : 0, to = draw(m, k->nins);
    if (!m->x->nfree || (how == MUT_MOVE_FREE && to == m->i))
        return NULL;
    int32_t buf = k->freed[m->x->free + (uint32_t)n];
    if (how != MUT_DOUBLE_FREE)
        drop_free(k, m->x, n);
    if (how != MUT_DROP_FREE)
        add_free(k, &k->ins[to], buf);
    struct text t = {0};
    put_buf(&t, &k->buf[buf]);
    put(&t, how == MUT_DROP_FREE ? "" : " at %s", label_of(k, to));
    return t.s;
}

static const char *mutate_operands(struct place *m, enum mutation how) {
    struct rank *k = m->k;
    struct instr *x = m->x;
    if (how == MUT_FLIP_FIRST) {
        bool dw = false, dv = false;
        for (int a = 0; a < x->narg; a++) {
            int role = k->arg[x->arg + (uint32_t)a].role;
            *(role == ROLE_dv ? &dv : &dw) |= op_accumulates(x->op, role);
        }
        bool table = dv && draw(m, 2);
        *(table ? &x->vfirst : &x->first) ^= dw || table;
        return dw || table ? table ? "dv" : "dw" : NULL;
    }
    if (!x->narg)
        return NULL;
    uint32_t a = x->arg + (uint32_t)draw(m, x->narg);
    int32_t b = draw(m, k->nbufs), old = k->arg[a].buf;
    struct text t = {0};
    put(&t, "%s=", role_name[k->arg[a].role]);
    put_buf(&t, &k->buf[old]);
    if (how == MUT_DROP_OPERAND) {
        memmove(&k->arg[a], &k->arg[a + 1], sizeof *k->arg * (x->arg + x->narg - a - 1));
        x->narg--;
        return t.s;
    }
    if (b == old || k->buf[b].kind != k->buf[old].kind)
        return NULL;
    k->arg[a].buf = b;
    put(&t, " to ");
    put_buf(&t, &k->buf[b]);
    return t.s;
}

static const char *mutate_at(struct place *m, enum mutation how) {
    if (how <= MUT_MOVE)
        return mutate_order(m, how);
    if (how == MUT_OTHER_RANK)
        return move_to_rank(m);
    if (how <= MUT_OTHER_INSTANCE)
        return mutate_name(m, how);
    if (how <= MUT_BYTES || how == MUT_SHRINK_ARENA)
        return mutate_memory(m, how);
    if (how <= MUT_ADD_WAIT)
        return mutate_waits(m, how);
    if (how <= MUT_MOVE_FREE)
        return mutate_frees(m, how);
    return mutate_operands(m, how);
}

const char *mutate(struct program *p, enum mutation how, uint64_t *random) {
    for (int tries = 0; tries < 40; tries++) { /* what returns NULL has changed nothing */
        struct place m = {.p = p, .random = random, .r = random_below(random, p->workers)};
        m.k = &p->rank[m.r];
        if (!m.k->nins || !m.k->nbufs)
            continue;
        m.i = random_below(random, m.k->nins);
        m.x = &m.k->ins[m.i];
        const char *where = format("rank %d: %s", m.r, label_of(m.k, m.i)), *did = mutate_at(&m, how);
        if (!did)
            continue;
        number_messages(p, true);
        return format("%s (%s; %s)", mutation_what[how], how >= MUT_OFFSET_ONE && how <= MUT_BYTES ? "" : where, did);
    }
    return NULL;
}
