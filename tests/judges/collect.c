/* Pieces and collectives: an operand's bytes, its part of the set, and the result of a collective. */
#include "symbols.h"

struct span span_at(const struct rank *k, const struct instr *x, int a) {
    struct arg o = operand(k, x, a);
    struct span s = span_of(k, o.buf);
    if (k->buf[o.buf].bytes) {
        s.n = arg_bytes(k, &o);
        s.at += s.n * (int64_t)o.piece;
    }
    return s;
}

bool is_collective(int op) { return op_lane[op] >= LANE_GATHER && op_lane[op] <= LANE_TEAM; }

bool lies_in(const struct rank *k, const struct instr *x, int a, int b) {
    struct arg in = operand(k, x, a), out = operand(k, x, b);
    bool gather = x->op == OP_ALL_GATHER && in.role == ROLE_src && out.role == ROLE_w;
    bool scatter = x->op == OP_REDUCE_SCATTER && x->first && in.role == ROLE_dw && out.role == ROLE_src;
    bool reduce = x->op == OP_REDUCE && x->first && in.role == ROLE_dw && out.role == ROLE_src;
    return in.buf == out.buf && (gather || scatter || reduce);
}

int inside_of(const struct rank *k, const struct instr *x, int b) {
    for (int a = 0; a < x->narg; a++)
        if (a != b && lies_in(k, x, a, b))
            return a;
    return -1;
}

/* ---- parts of a set ---- */

bool is_weights(int kind) { return kind == K_weight || kind == K_wshard; }
bool is_gradient(int kind) { return kind == K_wgrad || kind == K_gshard || kind == K_gown; }

static int units(const struct homes *h) { return h->size * (h->zero ? h->lists : 1); }

struct part own_part(const struct promise *want, int r, int set) {
    const struct homes *h = &want->homes[set];
    int at = place_in(h, r);
    if (at < 0)
        return (struct part){0, 0, 0};
    return (struct part){h->zero ? at % h->size * h->lists + at / h->size : at % h->size, 1, units(h)};
}

struct part part_of_arg(const struct promise *want, int r, struct arg a) {
    const struct buf *b = &want->program->rank[r].buf[a.buf];
    const struct homes *h = &want->homes[b->stage];
    int at = place_in(h, r);
    struct part p = {0, 1, 1};
    if (b->kind == K_gown)
        p = own_part(want, r, b->stage);
    else if (b->kind == K_wshard || b->kind == K_gshard)
        p = at < 0 ? (struct part){0, 0, 0} : (struct part){at % h->size, 1, h->size};
    return piece_of(p, (int)a.piece, pieces_of(&a));
}

struct part piece_of(struct part p, int i, int n) {
    return (struct part){p.from * n + i * p.size, p.size, p.of * n};
}

bool same_part(struct part a, struct part b) {
    return a.of && b.of && a.from * b.of == b.from * a.of && a.size * b.of == b.size * a.of;
}

/* ---- collectives ---- */

static int to_role(int op) {
    return op_lane[op] == LANE_TEAM     ? ROLE_t
           : op_lane[op] == LANE_GATHER ? ROLE_w
           : op == OP_ALL_REDUCE_N      ? ROLE_norm
                                        : ROLE_dw;
}

/* Returns the plain collective that moves bytes as this one does. */
static int moves_as(int op) {
    switch (op) {
    case OP_ALL_REDUCE_A:
    case OP_ALL_REDUCE_N: return OP_ALL_REDUCE;
    case OP_ALL_GATHER_A: return OP_ALL_GATHER;
    case OP_REDUCE_SCATTER_A: return OP_REDUCE_SCATTER;
    default: return op;
    }
}

const char *collective_error(const struct rank *k, const struct instr *x, int r, int me, int n) {
    int src = operand_of(k, x, ROLE_src), to = operand_of(k, x, to_role(x->op));
    bool root = x->peer == r, gives = x->op == OP_BROADCAST ? root : moves_as(x->op) != OP_ALL_REDUCE;
    bool takes = x->op == OP_BROADCAST ? !root : x->op == OP_REDUCE ? root : true;
    if ((src >= 0) != gives || (to >= 0) != takes || x->narg != gives + takes)
        return "has not the operands of its place";
    if (!gives || !takes)
        return NULL;
    struct arg a = operand(k, x, src), b = operand(k, x, to);
    int64_t from = arg_bytes(k, &a), into = arg_bytes(k, &b);
    bool fits = moves_as(x->op) == OP_ALL_GATHER       ? from * n == into
                : moves_as(x->op) == OP_REDUCE_SCATTER ? into * n == from
                : x->op == OP_ALL_TO_ALL_A             ? from == into && from % n == 0
                                                       : from == into;
    if (!fits)
        return "its operands have not the bytes for all members";
    bool gather = x->op == OP_ALL_GATHER;
    struct span in = span_at(k, x, gather ? src : to), out = span_at(k, x, gather ? to : src);
    if (a.buf == b.buf && k->buf[a.buf].bytes &&
        (!lies_in(k, x, gather ? src : to, gather ? to : src) ||
         in.at != out.at + (x->op == OP_REDUCE ? 0 : me * in.n)))
        return "it writes over its own source";
    return NULL;
}

bool gives_to(const struct instr *x, int from, int to) {
    switch (x->op) {
    case OP_BROADCAST: return from == x->peer;
    case OP_REDUCE: return to == x->peer;
    default: return true;
    }
}

/* Returns the cell of a byte; a tensor of no bytes has one cell, shared by all its pieces. */
static int64_t cell(struct span s, int64_t at) { return at < s.n ? at : s.n - 1; }

void make_collective(const struct party *party, int n, int me, uint64_t **made) {
    const struct rank *k = party[me].k;
    const struct instr *x = party[me].x;
    int to = operand_of(k, x, to_role(x->op)), src = operand_of(k, x, ROLE_src), op = moves_as(x->op);
    struct span out = to < 0 ? (struct span){0, 0} : span_at(k, x, to);
    for (int64_t b = 0; b < out.n; b++) {
        bool adds = op != OP_ALL_REDUCE && op_accumulates(x->op, ROLE_dw) && !x->first;
        bool gradient = op_row(x->op)->tensor == K_wgrad;
        uint64_t sum = adds ? party[me].seen[to][b] : 0, next;
        for (int m = 0; m < n; m++) {
            const struct party *p = &party[m];
            int from = operand_of(p->k, p->x, op == OP_ALL_REDUCE ? to_role(x->op) : ROLE_src);
            if (from < 0)
                continue;
            struct span in = span_at(p->k, p->x, from);
            switch (op) {
            case OP_ALL_GATHER:
                made[to][b] = b >= m * in.n || m == 0 ? p->seen[from][cell(in, b - m * in.n)] : made[to][b];
                break;
            case OP_BROADCAST: made[to][b] = p->seen[from][b]; break;
            case OP_ALL_TO_ALL_A:
                if (b / (in.n < n ? 1 : in.n / n) == m || in.n < n)
                    made[to][b] = p->seen[from][cell(in, in.n < n ? 0 : me * (in.n / n) + b % (in.n / n))];
                break;
            default:
                next = p->seen[from][op == OP_REDUCE_SCATTER ? cell(in, me * out.n + b) : b];
                sum = gradient ? added(sum, next) : sum + next;
                break;
            }
        }
        if (gradient || op == OP_ALL_REDUCE || op == OP_REDUCE_SCATTER)
            made[to][b] = sum & ~STAMP;
    }
    if (src >= 0 && inside_of(k, x, src) >= 0) /* the rest of its source is garbage */
        for (int64_t b = 0; b < span_at(k, x, src).n; b++)
            made[src][b] = STAMP;
}

bool spoils(const struct rank *k, const struct instr *x, int a) {
    return (x->op == OP_REDUCE_SCATTER || x->op == OP_REDUCE) && operand(k, x, a).role == ROLE_src &&
           inside_of(k, x, a) >= 0;
}
