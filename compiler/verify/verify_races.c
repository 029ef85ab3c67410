/* No races: any two accesses to a byte, one of which writes, are ordered on every machine (verify_orders.c says what
 * that means). Per rank, in issue order, a map of its bytes remembers who last wrote each and who has read it since:
 * orders are transitive, so older accesses need not be asked about. */
#include "check.h"
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
    struct bits begins;              /* the places where a segment begins */
    int64_t *key;                    /* to sort the places by */
    int32_t *scratch;
};

struct races {
    struct check *z;
    struct orders *orders;
    int r;
    const struct rank *k;
    struct bytes m;
    struct reader *reader;
    size_t nreaders, cap;
    int32_t spare;
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
        m->key[b] = first_byte(x->k, b);
        m->key[n + b] = end_byte(x->k, b);
    }
    m->n = places_of(m->key, 2 * n, m->from, m->off, m->scratch);
    m->to = m->from + n;
    memset(m->end, -1, sizeof *m->end * (size_t)(m->n + 1));
    m->begins.depth = 0;
    bits_init(&m->begins, m->n + 1);
    bits_set(&m->begins, 0, true);
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

/* Makes a segment begin at place a, where none does. */
static void cut(struct races *x, int32_t a) {
    struct bytes *m = &x->m;
    int32_t s = bits_near(&m->begins, a, false);
    bits_set(&m->begins, a, true);
    m->end[a] = m->end[s];
    m->end[s] = a;
    m->writer[a] = m->writer[s];
    m->by[a] = m->by[s];
    m->readers[a] = -1;
    for (int32_t n = m->readers[s]; n >= 0; n = x->reader[n].next)
        m->readers[a] = new_reader(x, x->reader[n].lane, x->reader[n].i, m->readers[a]);
}

/* ---- accesses ---- */

static bool refute_race(struct check *z, const struct question *q) {
    const struct rank *k = &z->p->rank[q->r];
    const struct buf *a = &k->buf[q->bj], *b = &k->buf[q->bi];
    int64_t from = a->off > b->off ? a->off : b->off;
    int64_t to = a->off + a->bytes < b->off + b->bytes ? a->off + a->bytes : b->off + b->bytes;
    z->failed = CLAIM_RACES;
    put_place(z, q->r, q->j);
    put(&z->why, " %s ", q->wrote ? "writes" : "reads");
    put_buf(&z->why, a);
    put(&z->why, "\n");
    put_place(z, q->r, q->i);
    put(&z->why, " %s ", q->writes ? "writes" : "reads");
    put_buf(&z->why, b);
    if (to <= from)
        put(&z->why, "\nit has no bytes, but the two must be in order, and nothing orders them");
    else if (to - from == 1)
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

/* Remembers that i has read segment s. One read for each lane is enough, the newest; the list begins with the lane that
 * read last, since the same lane often reads again. */
static void add_reader(struct races *x, int32_t s, int32_t i) {
    int32_t *at = &x->m.readers[s], n;
    int lane = x->k->ins[i].lane;
    for (n = *at; n >= 0 && x->reader[n].lane != lane; n = *at)
        at = &x->reader[n].next;
    if (n >= 0)
        *at = x->reader[n].next;
    else
        n = new_reader(x, lane, i, -1);
    x->reader[n] = (struct reader){lane, i, x->m.readers[s]};
    x->m.readers[s] = n;
}

static void touch(struct races *x, int32_t i, int32_t b, bool writes) {
    struct bytes *m = &x->m;
    int32_t from = m->from[b], to = m->to[b];
    if (m->end[from] < 0) /* buffers begin and end where segments do already, but for the first time */
        cut(x, from);
    if (to < m->n && m->end[to] < 0)
        cut(x, to);
    for (int32_t s = from, end; s < to; s = end) {
        end = m->end[s];
        int32_t w = m->writer[s];
        if (w >= 0 && !ordered_here(x->orders, i, w))
            orders_ask(x->orders, (struct question){x->r, w, i, m->by[s], b, true, writes});
        if (!writes) {
            add_reader(x, s, i);
            continue;
        }
        for (int32_t n = m->readers[s], j; n >= 0; n = x->reader[n].next)
            if (!ordered_here(x->orders, i, j = x->reader[n].i))
                orders_ask(x->orders, (struct question){x->r, j, i, read_through(x, j, s), b, false, true});
        drop_readers(x, &m->readers[s]);
        if (s != from) { /* all becomes one segment */
            m->end[s] = -1;
            bits_set(&m->begins, s, false);
        }
    }
    if (writes) {
        m->end[from] = to;
        m->writer[from] = i;
        m->by[from] = b;
        m->readers[from] = -1;
    }
}

/* Returns two that nothing orders, or NULL: none yet. */
static const struct question *rank_races(struct races *x) {
    const struct rank *k = x->k;
    const struct question *no = NULL;
    for (int32_t i = 0; i < k->nins && !no; i++) {
        const struct instr *y = &k->ins[i];
        orders_start(x->orders, i);
        /* Reads before writes: an instruction may write what it reads. */
        for (int writes = 0; writes < 2; writes++)
            for (uint32_t a = y->arg; a < y->arg + y->narg; a++) {
                bool w = op_access(y->op, k->arg[a].role) & ACC_WRITE;
                if (w == writes)
                    touch(x, i, k->arg[a].buf, w);
            }
        orders_end(x->orders, i);
        if (orders_many(x->orders))
            no = orders_answer(x->orders);
    }
    return no;
}

bool races(struct check *z) {
    int64_t bufs = 0;
    for (int r = 0; r < z->p->workers; r++)
        bufs = z->p->rank[r].nbufs > bufs ? z->p->rank[r].nbufs : bufs;
    struct races x = {.z = z, .spare = -1, .orders = orders_begin(z)};
    take_map(&x.m, bufs);
    const struct question *no = NULL;
    for (int r = 0; r < z->p->workers && !no; r++) {
        x.r = r;
        x.k = &z->p->rank[r];
        x.nreaders = 0;
        x.spare = -1;
        map_bytes(&x);
        orders_rank(x.orders, r);
        no = rank_races(&x);
    }
    no = no ? no : orders_answer(x.orders);
    return !no || refute_race(z, no);
}
