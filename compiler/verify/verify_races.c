/* No races: any two accesses to a byte, of which one writes, are ordered on every machine (verify_orders.c defines
 * that). Per rank, in issue order, a map of its bytes records the last writer of each and its readers since: order is
 * transitive, so older accesses need no check. */
#include "check.h"
#include <string.h>

struct reader {
    int32_t lane, i, next; /* the lane's latest read; a linked list */
};

struct bytes {          /* of one rank, cut wherever a buffer begins or ends */
    int n;              /* places */
    int32_t *from, *to; /* per buffer: its places */
    int64_t *off;       /* per place */
    int32_t *end, *writer,
        *readers;       /* per place where a segment begins: its end, or -1; its last writer; its list of readers */
    int32_t *by;        /* the writer's buffer */
    struct bits begins; /* places where a segment begins */
    int64_t *key;       /* keys for sorting the places */
    int32_t *scratch;
};

struct races {
    struct check *check;
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

/* One map, sized for the largest rank, serves all ranks. */
static void take_map(struct bytes *bytes, int64_t bufs) {
    bytes->key = NEW(int64_t, 2 * bufs + 1);
    bytes->from = NEW(int32_t, 2 * bufs + 1);
    bytes->off = NEW(int64_t, 2 * bufs + 1);
    bytes->end = NEW(int32_t, 2 * bufs + 2);
    bytes->writer = NEW(int32_t, 2 * bufs + 2);
    bytes->readers = NEW(int32_t, 2 * bufs + 2);
    bytes->by = NEW(int32_t, 2 * bufs + 2);
    bytes->scratch = NEW(int32_t, 4 * bufs + 2);
}

static void map_bytes(struct races *races) {
    struct bytes *bytes = &races->m;
    int n = races->k->nbufs;
    for (int b = 0; b < n; b++) {
        bytes->key[b] = first_byte(races->k, b);
        bytes->key[n + b] = end_byte(races->k, b);
    }
    bytes->n = places_of(bytes->key, 2 * n, bytes->from, bytes->off, bytes->scratch);
    bytes->to = bytes->from + n;
    memset(bytes->end, -1, sizeof *bytes->end * (size_t)(bytes->n + 1));
    bytes->begins.depth = 0;
    bits_init(&bytes->begins, bytes->n + 1);
    bits_set(&bytes->begins, 0, true);
    bytes->end[0] = bytes->n; /* one untouched segment */
    bytes->writer[0] = bytes->readers[0] = -1;
}

static int32_t new_reader(struct races *races, int lane, int32_t i, int32_t next) {
    int32_t n = races->spare;
    if (n >= 0)
        races->spare = races->reader[n].next;
    else {
        GROW(races->reader, races->cap, races->nreaders + 1);
        n = (int32_t)races->nreaders++;
    }
    races->reader[n] = (struct reader){lane, i, next};
    return n;
}

static void drop_readers(struct races *races, int32_t *list) {
    while (*list >= 0) {
        int32_t n = *list;
        *list = races->reader[n].next;
        races->reader[n].next = races->spare;
        races->spare = n;
    }
}

/* Makes a segment begin at place a, where none does yet. */
static void cut(struct races *races, int32_t a) {
    struct bytes *bytes = &races->m;
    int32_t s = bits_near(&bytes->begins, a, false);
    bits_set(&bytes->begins, a, true);
    bytes->end[a] = bytes->end[s];
    bytes->end[s] = a;
    bytes->writer[a] = bytes->writer[s];
    bytes->by[a] = bytes->by[s];
    bytes->readers[a] = -1;
    for (int32_t n = bytes->readers[s]; n >= 0; n = races->reader[n].next)
        bytes->readers[a] = new_reader(races, races->reader[n].lane, races->reader[n].i, bytes->readers[a]);
}

/* ---- accesses ---- */

static bool refute_race(struct check *check, const struct question *question) {
    const struct rank *k = &check->p->rank[question->r];
    const struct buf *a = &k->buf[question->bj], *b = &k->buf[question->bi];
    int64_t from = a->off > b->off ? a->off : b->off;
    int64_t to = a->off + a->bytes < b->off + b->bytes ? a->off + a->bytes : b->off + b->bytes;
    check->failed = CLAIM_RACES;
    put_place(check, question->r, question->j);
    put(&check->why, " %s ", question->wrote ? "writes" : "reads");
    put_buf(&check->why, a);
    put(&check->why, "\n");
    put_place(check, question->r, question->i);
    put(&check->why, " %s ", question->writes ? "writes" : "reads");
    put_buf(&check->why, b);
    if (to <= from)
        put(&check->why, "\nit has no bytes, but the two must be in order, and nothing orders them");
    else if (to - from == 1)
        put(&check->why, "\nboth touch byte %lld, and nothing orders the two", (long long)from);
    else
        put(&check->why, "\nboth touch bytes %lld to %lld, and nothing orders the two", (long long)from,
            (long long)to - 1);
    return false;
}

/* The buffer through which instruction j read the bytes of segment s. */
static int32_t read_through(const struct races *races, int32_t j, int32_t s) {
    const struct instr *x = &races->k->ins[j];
    for (uint32_t a = x->arg; a < x->arg + x->narg; a++) {
        int32_t b = races->k->arg[a].buf;
        if (races->m.from[b] <= s && s < races->m.to[b])
            return b;
    }
    return 0;
}

/* Records that i has read segment s. Only each lane's latest read is kept; the list begins with the lane that read
 * last, since the same lane often reads again. */
static void add_reader(struct races *races, int32_t s, int32_t i) {
    int32_t *at = &races->m.readers[s], n;
    int lane = races->k->ins[i].lane;
    for (n = *at; n >= 0 && races->reader[n].lane != lane; n = *at)
        at = &races->reader[n].next;
    if (n >= 0)
        *at = races->reader[n].next;
    else
        n = new_reader(races, lane, i, -1);
    races->reader[n] = (struct reader){lane, i, races->m.readers[s]};
    races->m.readers[s] = n;
}

static void touch(struct races *races, int32_t i, int32_t b, bool writes) {
    struct bytes *bytes = &races->m;
    int32_t from = bytes->from[b], to = bytes->to[b];
    if (bytes->end[from] < 0) /* after the first access, a buffer's ends are segment boundaries already */
        cut(races, from);
    if (to < bytes->n && bytes->end[to] < 0)
        cut(races, to);
    for (int32_t s = from, end; s < to; s = end) {
        end = bytes->end[s];
        int32_t w = bytes->writer[s];
        if (w >= 0 && !ordered_here(races->orders, i, w))
            orders_ask(races->orders, (struct question){races->r, w, i, bytes->by[s], b, true, writes});
        if (!writes) {
            add_reader(races, s, i);
            continue;
        }
        for (int32_t n = bytes->readers[s], j; n >= 0; n = races->reader[n].next)
            if (!ordered_here(races->orders, i, j = races->reader[n].i))
                orders_ask(races->orders, (struct question){races->r, j, i, read_through(races, j, s), b, false, true});
        drop_readers(races, &bytes->readers[s]);
        if (s != from) { /* merge into one segment */
            bytes->end[s] = -1;
            bits_set(&bytes->begins, s, false);
        }
    }
    if (writes) {
        bytes->end[from] = to;
        bytes->writer[from] = i;
        bytes->by[from] = b;
        bytes->readers[from] = -1;
    }
}

/* Returns two unordered accesses, or NULL if none are found yet. */
static const struct question *rank_races(struct races *races) {
    const struct rank *k = races->k;
    const struct question *no = NULL;
    for (int32_t i = 0; i < k->nins && !no; i++) {
        const struct instr *x = &k->ins[i];
        orders_start(races->orders, i);
        /* Reads before writes: an instruction may write what it reads. */
        for (int writes = 0; writes < 2; writes++)
            for (uint32_t a = x->arg; a < x->arg + x->narg; a++) {
                bool w = op_access(x->op, k->arg[a].role) & ACC_WRITE;
                if (w == writes)
                    touch(races, i, k->arg[a].buf, w);
            }
        orders_end(races->orders, i);
        if (orders_many(races->orders))
            no = orders_answer(races->orders);
    }
    return no;
}

bool races(struct check *check) {
    int64_t bufs = 0;
    for (int r = 0; r < check->p->workers; r++)
        bufs = check->p->rank[r].nbufs > bufs ? check->p->rank[r].nbufs : bufs;
    struct races x = {.check = check, .spare = -1, .orders = orders_begin(check)};
    take_map(&x.m, bufs);
    const struct question *no = NULL;
    for (int r = 0; r < check->p->workers && !no; r++) {
        x.r = r;
        x.k = &check->p->rank[r];
        x.nreaders = 0;
        x.spare = -1;
        map_bytes(&x);
        orders_rank(x.orders, r);
        no = rank_races(&x);
    }
    no = no ? no : orders_answer(x.orders);
    return !no || refute_race(check, no);
}
