/* Breaks names of instructions, and the buffers that they use. */
#include "mutate_parts.h"
#include <string.h>

/* Draws another instruction with its operation on the rank, or returns -1. */
static int another(struct place *m) {
    int from = draw(m, m->k->nins);
    for (int n = 0; n < m->k->nins; n++) {
        int j = (from + n) % m->k->nins;
        if (j != m->i && m->k->ins[j].op == m->x->op)
            return j;
    }
    return -1;
}

static const char *other_operation(struct place *m) {
    int op = draw(m, NOPS), lane = m->k->lane[m->x->lane].kind;
    bool same = op_cost[op] == op_cost[m->x->op] || (op_lane[op] == LANE_COMPUTE && op > OP_W && m->x->op > OP_W);
    if (op == m->x->op || !lane_takes(lane, op) || !same || (op <= OP_W) != (m->x->op <= OP_W))
        return NULL;
    if ((op_lane[op] == LANE_SEND) != (op_lane[m->x->op] == LANE_SEND) && draw(m, 4))
        return NULL;
    m->x->op = (uint8_t)op;
    return op_name[op];
}

static const char *swap_names(struct place *m) {
    int j = another(m);
    if (j < 0)
        return NULL;
    struct instr *y = &m->k->ins[j], old = *m->x;
    m->x->stage = y->stage;
    m->x->batch = y->batch;
    m->x->inst = y->inst;
    y->stage = old.stage;
    y->batch = old.batch;
    y->inst = old.inst;
    return label_of(m->k, m->i);
}

const char *mutate_name(struct place *m, enum mutation how) {
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
        n = draw(m, m->p->stages + m->p->names.sets);
        if (n == x->stage)
            return NULL;
        x->stage = n;
        return format("stage %d", n);
    case MUT_OTHER_PEER:
        n = draw(m, m->p->workers);
        if (x->peer < 0 || n == x->peer || n == m->r)
            return NULL;
        x->peer = n;
        kind = m->k->lane[x->lane].kind; /* an edge has one lane; the peer's may be coarser than its own */
        if (!is_group(x->op))            /* for a collective, peer is the root */
            x->lane = (uint16_t)lane_to(m->k, kind, kind == LANE_ALL ? -1 : n);
        return format("peer %d", n);
    case MUT_OTHER_OPERATION: return other_operation(m);
    case MUT_SWAP_NAMES: return swap_names(m);
    case MUT_OTHER_PART:
        n = draw(m, 3);
        if (!x->last)
            return NULL;
        x->last = (uint8_t)(n == 0 ? 0 : n == 1 ? x->last + 1 : x->last);
        x->part = (uint8_t)(n == 0 ? 0 : draw(m, x->last + 1));
        return format("%d of %d", x->part, x->last + 1);
    default:
        n = draw(m, 4) - 1;
        if (n == x->inst || op_cost[x->op] != COST_LINK)
            return NULL;
        x->inst = n;
        return format("instance %d", n);
    }
}

/* ---- operands ---- */

static const char *flip_first(struct place *m) {
    int adds[3], n = 0;
    for (int a = 0; a < m->x->narg; a++) {
        int role = m->k->arg[m->x->arg + (uint32_t)a].role;
        if (op_accumulates(m->x->op, role) && (n == 0 || adds[n - 1] != role))
            adds[n++] = role;
    }
    if (!n)
        return NULL;
    int role = adds[draw(m, n)];
    *(role == ROLE_dv ? &m->x->vfirst : role == ROLE_du ? &m->x->ufirst : &m->x->first) ^= true;
    return role_name[role];
}

static const char *other_buffer(struct place *m, struct arg *list, int a, enum mutation how) {
    struct rank *k = m->k;
    int32_t b = draw(m, k->nbufs), old = list[a].buf;
    if (b == old || (how != MUT_ANY_OPERAND && k->buf[b].kind != k->buf[old].kind))
        return NULL;
    struct text t = {0};
    put_buf(&t, NULL, &k->buf[old]);
    put(&t, " to ");
    put_buf(&t, NULL, &k->buf[b]);
    list[a].buf = b;
    for (size_t i = 0; how == MUT_EVERY_USE && i < k->nargs; i++)
        k->arg[i].buf = k->arg[i].buf == old ? b : k->arg[i].buf;
    return t.s;
}

static const char *swap_bodies(struct place *m) {
    int j = another(m);
    if (j < 0)
        return NULL;
    struct instr *x = m->x, *y = &m->k->ins[j], old = *x;
    x->arg = y->arg;
    x->narg = y->narg;
    y->arg = old.arg;
    y->narg = old.narg;
    return format("with %s", label_of(m->k, j));
}

/* Makes one operand of an ADD equal to the other: the one at place a, or the other one. */
static const char *add_itself(struct place *m, struct arg *list, int n, int a) {
    if (m->x->op != OP_ADD || n != 2 || list[0].buf == list[1].buf)
        return NULL;
    list[a].buf = list[1 - a].buf;
    return role_name[list[a].role];
}

/* Lets the next part of the same job name the piece at place a too. */
static const char *move_piece(struct place *m, struct arg *list, int *n, int a) {
    struct rank *k = m->k;
    struct arg moved = list[a];
    if (!m->x->last || moved.role != ROLE_dw)
        return NULL;
    for (int i = 0; i < k->nins; i++) {
        struct instr *y = &k->ins[i];
        if (y->op != m->x->op || y->stage != m->x->stage || y->batch != m->x->batch || y->part != m->x->part + 1)
            continue;
        struct arg *to = NEW(struct arg, y->narg + 1);
        int at = 0;
        while (at < y->narg && k->arg[y->arg + (uint32_t)at].role != ROLE_dw)
            at++;
        memcpy(to, k->arg + y->arg, sizeof *to * (size_t)at);
        to[at] = moved;
        memcpy(to + at + 1, k->arg + y->arg + at, sizeof *to * (size_t)(y->narg - at));
        set_operands(k, y, to, y->narg + 1);
        if (draw(m, 2))
            memmove(list + a, list + a + 1, sizeof *list * (size_t)(--*n - a));
        return format("%u/%d", (unsigned)moved.piece, pieces_of(&moved));
    }
    return NULL;
}

/* Uses the same part of a gradient in another round. */
static const char *other_round(struct place *m, struct arg *a) {
    struct buf like = m->k->buf[a->buf];
    int W = m->p->workers, by = draw(m, 2) ? W : -W;
    if (like.kind != K_wgrad && like.kind != K_gshard)
        return NULL;
    like.inst = like.inst < 0 ? m->r + W : like.inst + by < 0 ? -1 : like.inst + by == m->r ? -1 : like.inst + by;
    a->buf = buffer_like(m->k, &like);
    return format("#%d", like.inst);
}

/* Uses another piece; only pieces of whole bytes have a text form. */
static const char *other_piece(struct place *m, struct arg *a) {
    int whole = a->last && draw(m, 3) ? pieces_of(a) : 1 + draw(m, 4);
    uint32_t n = (uint32_t)whole, piece = (uint32_t)draw(m, whole);
    if ((a->last == n - 1 && a->piece == piece) || m->k->buf[a->buf].bytes % n || !m->k->buf[a->buf].bytes)
        return NULL;
    a->last = (n - 1) & 4095;
    a->piece = piece & 4095;
    return format("%u/%u", piece, n);
}

const char *mutate_operand(struct place *m, enum mutation how) {
    struct instr *x = m->x;
    int n = x->narg, a = n ? draw(m, n) : 0, b = n ? draw(m, n) : 0;
    struct arg *list = NEW(struct arg, n + 1), old;
    const char *did = n ? role_name[m->k->arg[x->arg + (uint32_t)a].role] : NULL;
    const uint8_t *roles;
    if (!n || how == MUT_FLIP_FIRST || how == MUT_SWAP_BODIES)
        return !n ? NULL : how == MUT_FLIP_FIRST ? flip_first(m) : swap_bodies(m);
    memcpy(list, m->k->arg + x->arg, sizeof *list * (size_t)n);
    old = list[a];
    switch (how) {
    case MUT_OTHER_PIECE: did = other_piece(m, &list[a]); break;
    case MUT_MOVE_PIECE: did = move_piece(m, list, &n, a); break;
    case MUT_OTHER_ROUND: did = other_round(m, &list[a]); break;
    case MUT_ADD_ITSELF: did = add_itself(m, list, n, a); break;
    case MUT_DROP_OPERAND: memmove(list + a, list + a + 1, sizeof *list * (size_t)(--n - a)); break;
    case MUT_DOUBLE_OPERAND: memmove(list + a + 1, list + a, sizeof *list * (size_t)(n++ - a)); break;
    case MUT_SWAP_OPERANDS:
        list[a].buf = list[b].buf;
        list[b].buf = old.buf;
        did = old.buf != list[a].buf ? role_name[list[b].role] : NULL;
        break;
    case MUT_OTHER_ROLE:
        list[a].role = (op_roles(x->op, &roles), roles[draw(m, op_roles(x->op, &roles))]);
        did = list[a].role != old.role ? role_name[list[a].role] : NULL;
        break;
    default: did = other_buffer(m, list, a, how);
    }
    if (did)
        set_operands(m->k, x, list, n);
    return did;
}
