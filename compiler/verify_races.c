/* No races: any two accesses to a byte, one of which writes, are ordered by what the lanes keep.
 *
 * Per rank, in issue order, a map of its bytes remembers who last wrote each and who has read it since; a vector clock
 * per lane tells how far every other lane must have come. Orders that run through other ranks' messages are not in the
 * clocks. Where those alone keep two accesses apart, a search backwards through all lanes finds it: exact, but linear
 * in the program for each such pair. Programs of this compiler have none. */
#include "verify.h"
#include <string.h>

struct reader {
    int32_t lane, i, next; /* the newest read of the lane; a list */
};

struct bytes {                       /* of one rank, cut at every place where some buffer begins or ends */
    int n;                           /* places */
    int32_t *from, *to;              /* per buffer: its places */
    int64_t *off;                    /* per place */
    int32_t *end, *writer, *readers; /* per place where a segment begins: its end, or -1; who wrote it; a list */
    int32_t *by;                     /* the writer's buffer */
    int64_t *key;                    /* to sort the places by */
    int32_t *scratch;
};

struct races {
    struct check *z;
    int r;
    const struct rank *k;
    struct bytes m;
    struct reader *reader;
    size_t nreaders, cap;
    int32_t spare;
    int32_t *clock, *shot; /* [lane][lane], [instruction][lane] */
    int32_t **before;      /* per rank and instruction: the one before it in its lane; made when first needed */
    uint32_t **seen, stamp;
};

/* ---- the map of bytes ---- */

/* Radix sort, 12 bits at a time. */
int places_of(const int64_t *key, int n, int32_t *place, int64_t *sorted, int32_t *scratch) {
    int32_t *order = scratch, *tmp = scratch + n;
    int64_t most = 0;
    for (int i = 0; i < n; i++) {
        order[i] = i;
        most = key[i] > most ? key[i] : most;
    }
    for (int shift = 0; shift < 63 && most >> shift; shift += 12) {
        int32_t count[4097] = {0};
        for (int i = 0; i < n; i++)
            count[(key[i] >> shift & 4095) + 1]++;
        for (int d = 0; d < 4096; d++)
            count[d + 1] += count[d];
        for (int i = 0; i < n; i++)
            tmp[count[key[order[i]] >> shift & 4095]++] = order[i];
        int32_t *other = order;
        order = tmp;
        tmp = other;
    }
    int m = 0;
    for (int i = 0; i < n; i++) {
        m += i > 0 && key[order[i]] != key[order[i - 1]];
        place[order[i]] = m;
        sorted[m] = key[order[i]];
    }
    return m + 1;
}

/* The largest rank's map serves them all. */
static void take_map(struct bytes *m, int64_t bufs) {
    m->key = NEW(int64_t, 2 * bufs + 1);
    m->from = NEW(int32_t, 2 * bufs + 1);
    m->off = NEW(int64_t, 2 * bufs + 1);
    m->end = NEW(int32_t, 2 * bufs + 2);
    m->writer = NEW(int32_t, 2 * bufs + 2);
    m->readers = NEW(int32_t, 2 * bufs + 2);
    m->by = NEW(int32_t, 2 * bufs + 2);
    m->scratch = NEW(int32_t, 4 * bufs + 2);
}

static void map_bytes(struct races *x) {
    struct bytes *m = &x->m;
    int n = x->k->nbufs;
    for (int b = 0; b < n; b++) {
        m->key[b] = x->k->buf[b].off < 0 ? 0 : x->k->buf[b].off;
        m->key[n + b] = m->key[b] + x->k->buf[b].bytes;
    }
    m->n = places_of(m->key, 2 * n, m->from, m->off, m->scratch);
    m->to = m->from + n;
    memset(m->end, -1, sizeof *m->end * (size_t)(m->n + 1));
    m->end[0] = m->n; /* one segment that nobody has touched */
    m->writer[0] = m->readers[0] = -1;
}

static int32_t new_reader(struct races *x, int lane, int32_t i, int32_t next) {
    int32_t n = x->spare;
    if (n >= 0)
        x->spare = x->reader[n].next;
    else {
        GROW(x->reader, x->cap, x->nreaders + 1);
        n = (int32_t)x->nreaders++;
    }
    x->reader[n] = (struct reader){lane, i, next};
    return n;
}

static void drop_readers(struct races *x, int32_t *list) {
    while (*list >= 0) {
        int32_t n = *list;
        *list = x->reader[n].next;
        x->reader[n].next = x->spare;
        x->spare = n;
    }
}

/* Makes a segment begin at place a. Buffers begin where segments begin already, but for the first time. */
static void cut(struct races *x, int32_t a) {
    struct bytes *m = &x->m;
    if (a >= m->n || m->end[a] >= 0)
        return;
    int32_t s = a;
    while (m->end[s] < 0)
        s--;
    m->end[a] = m->end[s];
    m->end[s] = a;
    m->writer[a] = m->writer[s];
    m->by[a] = m->by[s];
    m->readers[a] = -1;
    for (int32_t n = m->readers[s]; n >= 0; n = x->reader[n].next)
        m->readers[a] = new_reader(x, x->reader[n].lane, x->reader[n].i, m->readers[a]);
}

/* ---- orders ---- */

static void find_before(struct races *x) {
    int W = x->z->p->workers;
    x->before = NEW(int32_t *, W);
    x->seen = NEW(uint32_t *, W);
    for (int r = 0; r < W; r++) {
        const struct rank *k = &x->z->p->rank[r];
        int32_t *last = NEW(int32_t, k->nlanes);
        memset(last, -1, sizeof *last * (size_t)k->nlanes);
        x->before[r] = NEW(int32_t, k->nins);
        x->seen[r] = NEW(uint32_t, k->nins);
        for (int32_t i = 0; i < k->nins; i++) {
            x->before[r][i] = last[k->ins[i].lane];
            last[k->ins[i].lane] = i;
        }
    }
}

struct node {
    int32_t r, i;
};
struct search {
    struct node *todo;
    size_t n, cap;
};

static void visit(struct races *x, struct search *q, int r, int32_t i) {
    if (i < 0 || x->seen[r][i] == x->stamp)
        return;
    x->seen[r][i] = x->stamp;
    GROW(q->todo, q->cap, q->n + 1);
    q->todo[q->n++] = (struct node){r, i};
}

static void visit_needs(struct races *x, struct search *q, int r, int32_t i) {
    const struct rank *k = &x->z->p->rank[r];
    visit(x, q, r, x->before[r][i]);
    for (uint32_t w = k->ins[i].wait; w < k->ins[i].wait + k->ins[i].nwait; w++)
        visit(x, q, r, k->wait[w]);
}

/* All that must have ended before instruction i can start: its own needs, and those of whom it meets. */
static void visit_all(struct races *x, struct search *q, int r, int32_t i) {
    const struct program *p = x->z->p;
    const struct instr *y = &p->rank[r].ins[i];
    visit_needs(x, q, r, i);
    if (y->op == OP_REDUCE) {
        const struct group *g = &p->group[p->rank[r].lane[y->lane].group];
        for (int m = 0; m < g->n; m++)
            visit_needs(x, q, g->rank[m], x->z->reductions[g - p->group][m][x->z->mate[r][i]]);
    } else if (op_cost[y->op] == COST_LINK)
        visit_needs(x, q, y->peer, x->z->mate[r][i]);
}

/* Must j have ended before i starts, by any chain of lanes, waits and messages? */
static bool follows(struct races *x, int32_t j, int32_t i) {
    if (!x->before)
        find_before(x);
    x->stamp++;
    struct search q = {0};
    visit_all(x, &q, x->r, i);
    while (q.n > 0) {
        struct node v = q.todo[--q.n];
        if (v.r == x->r && v.i == j)
            return true;
        visit_all(x, &q, v.r, v.i);
    }
    return false;
}

static bool ordered(struct races *x, int32_t j, int32_t i) {
    int a = x->k->ins[j].lane, b = x->k->ins[i].lane;
    return j == i || a == b || x->clock[(int64_t)b * x->k->nlanes + a] >= j || follows(x, j, i);
}

/* ---- accesses ---- */

static bool refute_race(struct races *x, int32_t j, int32_t bj, bool wrote, int32_t i, int32_t bi, bool writes) {
    struct check *z = x->z;
    const struct buf *a = &x->k->buf[bj], *b = &x->k->buf[bi];
    int64_t from = a->off > b->off ? a->off : b->off;
    int64_t to = a->off + a->bytes < b->off + b->bytes ? a->off + a->bytes : b->off + b->bytes;
    z->failed = CLAIM_RACES;
    put_place(z, x->r, j);
    put(&z->why, " %s ", wrote ? "writes" : "reads");
    put_buf(&z->why, a);
    put(&z->why, "\n");
    put_place(z, x->r, i);
    put(&z->why, " %s ", writes ? "writes" : "reads");
    put_buf(&z->why, b);
    if (to - from == 1)
        put(&z->why, "\nboth touch byte %lld, and nothing orders the two", (long long)from);
    else
        put(&z->why, "\nboth touch bytes %lld to %lld, and nothing orders the two", (long long)from, (long long)to - 1);
    return false;
}

/* The buffer through which instruction j read the bytes of segment s. */
static int32_t read_through(const struct races *x, int32_t j, int32_t s) {
    const struct instr *y = &x->k->ins[j];
    for (uint32_t a = y->arg; a < y->arg + y->narg; a++) {
        int32_t b = x->k->arg[a].buf;
        if (x->m.from[b] <= s && s < x->m.to[b])
            return b;
    }
    return 0;
}

static bool touch(struct races *x, int32_t i, int32_t b, bool writes) {
    struct bytes *m = &x->m;
    int32_t from = m->from[b], to = m->to[b];
    cut(x, from);
    cut(x, to);
    for (int32_t s = from, end; s < to; s = end) {
        end = m->end[s];
        if (m->writer[s] >= 0 && !ordered(x, m->writer[s], i))
            return refute_race(x, m->writer[s], m->by[s], true, i, b, writes);
        int32_t mine = -1;
        for (int32_t n = m->readers[s]; n >= 0; n = x->reader[n].next) {
            if (writes && !ordered(x, x->reader[n].i, i))
                return refute_race(x, x->reader[n].i, read_through(x, x->reader[n].i, s), false, i, b, true);
            mine = x->reader[n].lane == x->k->ins[i].lane ? n : mine;
        }
        if (writes) {
            drop_readers(x, &m->readers[s]);
            m->end[s] = -1;
        } else if (mine >= 0)
            x->reader[mine].i = i;
        else
            m->readers[s] = new_reader(x, x->k->ins[i].lane, i, m->readers[s]);
    }
    if (writes && from < to) {
        m->end[from] = to;
        m->writer[from] = i;
        m->by[from] = b;
        m->readers[from] = -1;
    }
    return true;
}

static bool rank_races(struct races *x) {
    const struct rank *k = x->k;
    int L = k->nlanes;
    memset(x->clock, -1, sizeof *x->clock * (size_t)L * (size_t)L);
    for (int32_t i = 0; i < k->nins; i++) {
        const struct instr *y = &k->ins[i];
        int32_t *clock = x->clock + (int64_t)y->lane * L;
        for (uint32_t w = y->wait; w < y->wait + y->nwait; w++) {
            if (k->wait[w] >= i)
                continue; /* it has no past yet: refuted as a deadlock where that is asked */
            const int32_t *then = x->shot + (int64_t)k->wait[w] * L;
            for (int l = 0; l < L; l++)
                clock[l] = then[l] > clock[l] ? then[l] : clock[l];
        }
        /* Reads before writes: an instruction may write what it reads. */
        for (int writes = 0; writes < 2; writes++)
            for (uint32_t a = y->arg; a < y->arg + y->narg; a++) {
                bool w = op_access(y->op, k->arg[a].role) & ACC_WRITE;
                if (w == writes && !touch(x, i, k->arg[a].buf, w))
                    return false;
            }
        clock[y->lane] = i;
        memcpy(x->shot + (int64_t)i * L, clock, sizeof *clock * (size_t)L);
    }
    return true;
}

bool races(struct check *z) {
    int64_t most = 0, lanes = 0, bufs = 0;
    for (int r = 0; r < z->p->workers; r++) {
        const struct rank *k = &z->p->rank[r];
        bufs = k->nbufs > bufs ? k->nbufs : bufs;
        most = (int64_t)k->nins * k->nlanes > most ? (int64_t)k->nins * k->nlanes : most;
        lanes = k->nlanes > lanes ? k->nlanes : lanes;
    }
    struct races x = {.z = z, .spare = -1, .clock = NEW(int32_t, lanes * lanes + 1), .shot = NEW(int32_t, most + 1)};
    take_map(&x.m, bufs);
    for (int r = 0; r < z->p->workers; r++) {
        x.r = r;
        x.k = &z->p->rank[r];
        x.nreaders = 0;
        x.spare = -1;
        map_bytes(&x);
        if (!rank_races(&x))
            return false;
    }
    return true;
}
