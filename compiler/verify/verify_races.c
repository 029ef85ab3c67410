/* Proves that there are no races: any two accesses to a byte, of which one writes, are ordered on every machine
 * (verify_orders.c defines that). For each rank, walked in issue order, a map of its bytes records each byte's last
 * writer and its readers since then. Order is transitive, so older accesses need no check. */
#include "check_orders.h"
#include <string.h>

struct reader {
    int32_t lane, i, next; /* a lane's latest read; next in a linked list */
};

struct bytes { /* the bytes of one rank, cut wherever a buffer, or a piece that is an operand, begins or ends */
    int n;     /* number of places */
    int32_t *from, *to; /* first and end place of each buffer, then of each operand that is a piece */
    int32_t *piece;     /* per operand: its index in from and to, if it is a piece; else 0 */
    int64_t *off;       /* offset of each place */
    int32_t *end, *writer,
        *readers;       /* per place where a segment begins: its end, or -1; its last writer; its list of readers */
    int32_t *by;        /* the writer's operand */
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

/* Radix sort, 12 bits at a time */
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

/* Allocates one map for all ranks, sized for the largest. n: its buffers plus its operands that are pieces. */
static void take_map(struct bytes *bytes, int64_t n, int64_t args) {
    bytes->key = NEW(int64_t, 2 * n + 1);
    bytes->from = NEW(int32_t, 2 * n + 1);
    bytes->piece = NEW(int32_t, args + 1);
    bytes->off = NEW(int64_t, 2 * n + 1);
    bytes->end = NEW(int32_t, 2 * n + 2);
    bytes->writer = NEW(int32_t, 2 * n + 2);
    bytes->readers = NEW(int32_t, 2 * n + 2);
    bytes->by = NEW(int32_t, 2 * n + 2);
    bytes->scratch = NEW(int32_t, 4 * n + 2);
}

static int32_t count_pieces(const struct rank *k) {
    int32_t n = 0;
    for (size_t a = 0; a < k->nargs; a++)
        n += k->arg[a].last > 0;
    return n;
}

/* Returns the end of an operand's bytes, and sets *from to their beginning. */
static int64_t bytes_of(const struct rank *k, const struct arg *a, int64_t *from) {
    int64_t size = size_of(k, a->buf), n = pieces_of(a), first = first_byte(k, a->buf);
    *from = first + size * (int64_t)a->piece / n;
    return first + size * ((int64_t)a->piece + 1) / n;
}

static void map_bytes(struct races *races) {
    struct bytes *bytes = &races->m;
    const struct rank *k = races->k;
    int n = k->nbufs + count_pieces(k), at = k->nbufs;
    for (int b = 0; b < k->nbufs; b++) {
        bytes->key[b] = first_byte(k, b);
        bytes->key[n + b] = end_byte(k, b);
    }
    for (size_t a = 0; a < k->nargs; a++) {
        bytes->piece[a] = k->arg[a].last ? at++ : 0;
        if (bytes->piece[a])
            bytes->key[n + bytes->piece[a]] = bytes_of(k, &k->arg[a], &bytes->key[bytes->piece[a]]);
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
static void cut_segment(struct races *races, int32_t a) {
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
    const struct arg *a = &k->arg[question->aj], *b = &k->arg[question->ai];
    int64_t from = arg_off(k, a) > arg_off(k, b) ? arg_off(k, a) : arg_off(k, b);
    int64_t to = arg_off(k, a) + arg_bytes(k, a), end = arg_off(k, b) + arg_bytes(k, b);
    const char *where = in_host(&k->buf[a->buf]) ? " of host memory" : "";
    to = to < end ? to : end;
    check->failed = CLAIM_RACES;
    put_place(check, question->r, question->j);
    put(&check->why, " %s ", question->wrote ? "writes" : "reads");
    put_arg(&check->why, &check->p->names, k, a);
    put(&check->why, "\n");
    put_place(check, question->r, question->i);
    put(&check->why, " %s ", question->writes ? "writes" : "reads");
    put_arg(&check->why, &check->p->names, k, b);
    if (to <= from)
        put(&check->why, "\nit has no bytes, but the two must be in order, and nothing orders them");
    else if (to - from == 1)
        put(&check->why, "\nboth touch byte %lld%s, and nothing orders the two", (long long)from, where);
    else
        put(&check->why, "\nboth touch bytes %lld to %lld%s, and nothing orders the two", (long long)from,
            (long long)to - 1, where);
    return false;
}

/* Returns the index in from and to of an operand's places. */
static int32_t places(const struct races *races, int32_t a) {
    return races->m.piece[a] ? races->m.piece[a] : races->k->arg[a].buf;
}

/* Returns the operand through which instruction j read the bytes of segment s. */
static int32_t read_through(const struct races *races, int32_t j, int32_t s) {
    const struct instr *x = &races->k->ins[j];
    for (uint32_t a = x->arg; a < x->arg + x->narg; a++) {
        int32_t at = places(races, (int32_t)a);
        if (races->m.from[at] <= s && s < races->m.to[at])
            return (int32_t)a;
    }
    return 0;
}

/* Records that i has read segment s. Only each lane's latest read is kept. The list begins with the lane that read
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

static void touch(struct races *races, int32_t i, int32_t a, bool writes) {
    struct bytes *bytes = &races->m;
    int32_t from = bytes->from[places(races, a)], to = bytes->to[places(races, a)];
    if (bytes->end[from] < 0) /* after the first access, an operand's ends are segment boundaries already */
        cut_segment(races, from);
    if (to < bytes->n && bytes->end[to] < 0)
        cut_segment(races, to);
    for (int32_t s = from, end; s < to; s = end) {
        end = bytes->end[s];
        int32_t w = bytes->writer[s];
        if (w >= 0 && !ordered_here(races->orders, i, w))
            orders_ask(races->orders, (struct question){races->r, w, i, bytes->by[s], a, true, writes});
        if (!writes) {
            add_reader(races, s, i);
            continue;
        }
        for (int32_t n = bytes->readers[s], j; n >= 0; n = races->reader[n].next)
            if (!ordered_here(races->orders, i, j = races->reader[n].i))
                orders_ask(races->orders, (struct question){races->r, j, i, read_through(races, j, s), a, false, true});
        drop_readers(races, &bytes->readers[s]);
        if (s != from) { /* merge into one segment */
            bytes->end[s] = -1;
            bits_set(&bytes->begins, s, false);
        }
    }
    if (writes) {
        bytes->end[from] = to;
        bytes->writer[from] = i;
        bytes->by[from] = a;
        bytes->readers[from] = -1;
    }
}

/* Returns whether an operand is the source of an in-place REDUCE_SCATTER, which leaves only the member's own piece
 * defined. */
static bool is_spoilt(const struct rank *k, const struct instr *x, int32_t a) {
    return x->op == OP_REDUCE_SCATTER && k->arg[a].role == ROLE_src && operand(k, x, ROLE_dw, 0) == k->arg[a].buf;
}

/* Returns two unordered accesses, or NULL if none are found yet. */
static const struct question *rank_races(struct races *races) {
    const struct rank *k = races->k;
    const struct question *no = NULL;
    for (int32_t i = 0; i < k->nins && !no; i++) {
        const struct instr *x = &k->ins[i];
        orders_start(races->orders, i);
        /* Reads come before writes: an instruction may write what it reads. */
        for (int writes = 0; writes < 2; writes++)
            for (uint32_t a = x->arg; a < x->arg + x->narg; a++) {
                bool w = op_access(x->op, k->arg[a].role) & ACC_WRITE || is_spoilt(k, x, (int32_t)a);
                if (w == writes)
                    touch(races, i, (int32_t)a, w);
            }
        orders_end(races->orders, i);
        if (orders_many(races->orders))
            no = orders_answer(races->orders);
    }
    return no;
}

bool races(struct check *check) {
    int64_t most = 0, args = 0;
    for (int r = 0; r < check->p->workers; r++) {
        const struct rank *k = &check->p->rank[r];
        int64_t n = k->nbufs + count_pieces(k), nargs = (int64_t)k->nargs;
        most = n > most ? n : most;
        args = nargs > args ? nargs : args;
    }
    struct races x = {.check = check, .spare = -1, .orders = orders_begin(check)};
    take_map(&x.m, most, args);
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
