/* Finds false names, on which no run depends: of instructions, operands, messages, and an operand's part of a set. */
#include "judge.h"
#include "symbols.h"

static bool same_label(const struct instr *x, const struct instr *y) {
    return x->op == y->op && x->stage == y->stage && x->batch == y->batch && x->inst == y->inst && x->peer == y->peer &&
           x->part == y->part && x->last == y->last;
}

/* Returns the instance in the name of an operand's buffer, or INT32_MIN for inputs of jobs: their names come from other
 * jobs. */
static int32_t inst_of(const struct instr *x, int role) {
    bool came = x->op == OP_RECV_G || (x->op == OP_ADD && role == ROLE_src);
    if (came)
        return INT32_MAX; /* no fixed instance: see is_numbered */
    switch (x->op) {
    case OP_SERVE: return INT32_MIN; /* at home or fetched: only the content counts */
    case OP_FETCH:
    case OP_SEND_T:
    case OP_RECV_T: return x->inst;
    case OP_ALL_REDUCE_A: return x->inst;
    case OP_ALL_GATHER_A:
    case OP_REDUCE_SCATTER_A:
    case OP_ALL_TO_ALL_A: return x->inst + (role == ROLE_t);
    case OP_COPY:
    case OP_ALL_GATHER:
    case OP_BROADCAST: return role == ROLE_w ? x->inst : -1;
    default:
        return role == ROLE_done                  ? x->op
               : role == ROLE_w && x->op != OP_U  ? INT32_MIN
               : role == ROLE_v || role == ROLE_u ? INT32_MIN
                                                  : -1;
    }
}

static bool names_input(const struct buf *b) {
    return b->kind == K_input || b->kind == K_hinput || b->kind == K_rinput;
}

static bool is_input(const struct rank *k, const struct instr *x, int role) {
    int a = operand_of(k, x, role);
    return a >= 0 && names_input(&k->buf[operand(k, x, a).buf]);
}

/* Returns the kind of buffer that an operand must be. b decides if both a stash and an input are possible. */
static int kind_of(const struct instr *x, int role, const struct buf *b) {
    static const uint8_t of_role[NROLES] = {
        [ROLE_w] = K_weight,      [ROLE_v] = K_weight,    [ROLE_dw] = K_wgrad,   [ROLE_dv] = K_wgrad,
        [ROLE_opt] = K_opt,       [ROLE_y] = K_act,       [ROLE_dx] = K_grad,    [ROLE_stash] = K_stash,
        [ROLE_wstash] = K_wstash, [ROLE_input] = K_input, [ROLE_done] = K_token, [ROLE_own] = K_kv,
        [ROLE_dpast] = K_dkv,     [ROLE_u] = K_weight,    [ROLE_du] = K_wgrad};
    bool input = names_input(b);
    switch (x->op) {
    case OP_OFFLOAD_S: return role == ROLE_src ? (input ? K_input : K_stash) : input ? K_hinput : K_hstash;
    case OP_RELOAD_S: return role == ROLE_src ? (input ? K_hinput : K_hstash) : input ? K_rinput : K_rstash;
    case OP_OFFLOAD_O: return role == ROLE_src ? K_opt : K_hopt;
    case OP_RELOAD_O: return role == ROLE_src ? K_hopt : K_opt;
    default: break;
    }
    if (role == ROLE_src)
        return op_row(x->op)->tensor;
    if (role != ROLE_t)
        return of_role[role];
    switch (x->op) {
    case OP_SERVE:
    case OP_FETCH: return K_weight;
    case OP_SEND_F:
    case OP_RECV_F: return K_act;
    case OP_SEND_B:
    case OP_RECV_B: return K_grad;
    case OP_SEND_W:
    case OP_RECV_W: return K_wstash;
    case OP_SEND_K:
    case OP_RECV_K: return K_kv;
    case OP_SEND_D:
    case OP_RECV_D: return K_dkv;
    case OP_SEND_G:
    case OP_RECV_G: return K_wgrad;
    case OP_SEND_T:
    case OP_RECV_T: return K_token;
    default: return -1; /* SEND_S sends a stash or an input */
    }
}

/* Returns whether a shard, or the piece that one rank owns, may stand for the whole. */
static bool may_stand(const struct instr *x, int role, int kind, int whole) {
    if (kind == whole)
        return true;
    bool home = x->op == OP_U || (is_collective(x->op) && x->inst < 0), message = x->op == OP_SERVE;
    if (whole == K_weight && kind == K_wshard)
        return home || message || role == ROLE_src;
    bool sums = !(x->op <= OP_W) && x->op != OP_SEND_G;
    return whole == K_wgrad && (kind == K_gshard || kind == K_gown) && sums;
}

/* Returns whether a gradient is named for its update, if updates are jobs: a rank's own part, or the peer's. */
static bool is_of_update(const struct promise *want, int r, const struct instr *x, bool came, const struct buf *b) {
    int W = want->program->workers, m = want->sp->updates.every[x->stage];
    int k = x->op <= OP_W ? x->batch / m : x->op == OP_U ? x->batch : x->inst < 0 ? 0 : x->inst;
    return b->inst == (came ? x->peer + W * k : k > 0 ? r + W * k : -1);
}

/* Returns whether a part of a gradient has a valid number: of the peer, or of this rank in some round. */
static bool is_numbered(const struct promise *want, int r, const struct instr *x, int role, const struct buf *b) {
    int W = want->program->workers;
    bool came = x->op == OP_RECV_G || (x->op == OP_ADD && role == ROLE_src);
    bool sums = x->op == OP_U || x->op == OP_NORM || x->op == OP_ZERO ||
                ((x->op == OP_ADD || x->op == OP_TAKE) && role == ROLE_dw);
    if (!is_gradient(b->kind) || (want->sp->updates.every ? !is_of_update(want, r, x, came, b) : b->inst < 0 || sums))
        return false;
    return want->sp->updates.every ? true : came ? b->inst % W == x->peer : b->inst >= W && b->inst % W == r;
}

/* Returns the round of a part of a gradient. */
static int round_of(const struct promise *want, const struct buf *b) {
    return b->inst < 0 ? 0 : b->inst / want->program->workers;
}

/* Returns whether the buffer has the right name for an operand in this role of this instruction. */
static bool is_named(const struct promise *want, int r, const struct instr *x, int role, const struct buf *b) {
    static const bool of_set[NROLES] = {
        [ROLE_w] = true, [ROLE_v] = true, [ROLE_u] = true, [ROLE_dw] = true, [ROLE_dv] = true, [ROLE_du] = true};
    bool reads = x->op <= OP_W && !(op_access(x->op, role) & ACC_WRITE);
    bool job = x->op <= OP_W && x->stage >= 0 && x->stage < want->sp->stages && of_set[role];
    int kind = kind_of(x, role, b);
    int32_t inst = inst_of(x, role);
    if (role == ROLE_norm)
        return b->kind == K_norm && b->inst < 0;
    if (role == ROLE_work)
        return b->kind == K_work;
    if (role == ROLE_give || role == ROLE_got)
        inst = role == ROLE_give ? mid_given(want, x) : mid_got(want, x);
    if (role == ROLE_give || role == ROLE_got || op_lane[x->op] == LANE_TEAM)
        return b->kind == K_mid && b->stage == x->stage && b->batch == x->batch && b->inst == inst && inst >= 0;
    if (reads && !of_set[role])
        return true;
    bool named_by_update = want->sp->updates.every && is_gradient(b->kind);
    bool either = kind < 0 && (b->kind == K_stash || b->kind == K_input);
    return (either || may_stand(x, role, b->kind, kind)) &&
           b->stage == (job ? set_used(want, x->op, x->stage, role) : x->stage) &&
           (!kind_has_batch[b->kind] || b->batch == x->batch) &&
           (inst == INT32_MIN || (b->inst == inst && !named_by_update) || is_numbered(want, r, x, role, b));
}

/* ---- parts ---- */

static bool is_of_set(const struct rank *k, struct arg a) {
    return is_weights(k->buf[a.buf].kind) || is_gradient(k->buf[a.buf].kind);
}

/* Returns the part of the set that the operand of member me of n must be. All members' parts make up `whole`. */
static struct part part_in(const struct instr *x, int role, struct part whole, int me, int n) {
    bool piece = (x->op == OP_ALL_GATHER && role == ROLE_src) || (x->op == OP_REDUCE_SCATTER && role == ROLE_dw);
    return piece ? piece_of(whole, me, n) : whole;
}

/* Returns what all members' parts make up, according to the given member. */
static struct part whole_of(const struct promise *want, const struct rank *k, const struct instr *x, int r) {
    int a = operand_of(k, x, x->op == OP_ALL_GATHER ? ROLE_w : ROLE_src);
    struct arg o = operand(k, x, a < 0 ? 0 : a);
    return is_of_set(k, o) ? part_of_arg(want, r, o) : (struct part){0, 0, 0};
}

static const char *false_part(const struct promise *want, const struct order *z, int number) {
    int r = z->rank[number];
    const struct rank *k = &z->p->rank[r];
    const struct instr *x = instr_of(z, number);
    struct part must = {0, 0, 0};
    for (int a = 0; a < x->narg; a++) {
        struct arg o = operand(k, x, a);
        if (o.last && (!is_of_set(k, o) || (x->op <= OP_W && (!x->last || o.role != ROLE_dw))))
            return "its operand is a piece";
        if (!is_of_set(k, o))
            continue;
        if (!part_of_arg(want, r, o).of)
            return "its rank has no such part";
    }
    if (x->op <= OP_W || x->op == OP_ZERO)
        return NULL;
    const struct group *g = is_collective(x->op) ? &z->p->group[k->lane[x->lane].group] : NULL;
    int me = 0;
    while (g && g->rank[me] != r)
        me++;
    int other = z->meets[number];
    if (g) {
        must = whole_of(want, &z->p->rank[z->rank[other]], instr_of(z, other), z->rank[other]);
    } else if (x->op == OP_U || x->op == OP_NORM)
        must = own_part(want, r, x->stage);
    else if (other != number) {
        const struct arg o = operand(&z->p->rank[z->rank[other]], instr_of(z, other), 0);
        if (!is_of_set(&z->p->rank[z->rank[other]], o))
            return NULL;
        must = part_of_arg(want, z->rank[other], o);
    } else if (is_of_set(k, operand(k, x, 0)))
        must = part_of_arg(want, r, operand(k, x, 0));
    for (int a = 0; a < x->narg; a++) {
        struct arg o = operand(k, x, a);
        if (is_of_set(k, o) && must.of &&
            !same_part(part_of_arg(want, r, o), g ? part_in(x, (int)o.role, must, me, g->n) : must))
            return "its operand is another part of the set";
    }
    return NULL;
}

/* ---- jobs in parts ---- */

static const struct instr *part_at(const struct rank *k, const struct instr *x, int part) {
    for (const struct instr *y = k->ins; y < k->ins + k->nins; y++)
        if (y->op == x->op && y->stage == x->stage && y->batch == x->batch && y->last == x->last && y->part == part)
            return y;
    return NULL;
}

/* Returns whether each part has its own operands of this role. */
static bool is_of_part(int role) { return role == ROLE_dw || role == ROLE_give || role == ROLE_got; }

/* Returns the n-th operand that all parts share, or -1 if there are fewer. */
static int other_operand(const struct rank *k, const struct instr *x, int n) {
    for (int a = 0; a < x->narg; a++)
        if (!is_of_part((int)operand(k, x, a).role) && n-- == 0)
            return a;
    return -1;
}

/* Reports parts whose operands differ, or NULL. All parts name the same operands, and the pieces of one gradient from
 * last to first; the next part may name one of them again. ranges.c checks that a part names what it contributes to. */
static const char *false_parts(const struct order *z, int number) {
    const struct rank *k = &z->p->rank[z->rank[number]];
    const struct instr *x = instr_of(z, number), *first = part_at(k, x, 0);
    int low = -1;
    struct arg of = {0};
    bool writes = false;
    for (int part = 0; part <= x->last; part++) {
        const struct instr *y = part_at(k, x, part);
        if (!y || !first)
            return NULL;
        if (y->vfirst != first->vfirst || y->ufirst != first->ufirst)
            return "its parts write and add";
        for (int n = 0, a = 0, b = 0; a >= 0 || b >= 0; n++) {
            a = other_operand(k, first, n);
            b = other_operand(k, y, n);
            struct arg o = a < 0 ? of : operand(k, first, a), q = b < 0 ? of : operand(k, y, b);
            if ((a < 0) != (b < 0) || (a >= 0 && (o.role != q.role || o.buf != q.buf)))
                return "its parts have different operands";
        }
        bool begins = true;
        for (int a = 0; a < y->narg; a++) {
            struct arg o = operand(k, y, a);
            if (o.role != ROLE_dw)
                continue;
            if (low < 0) {
                of = o;
                low = pieces_of(&o);
                writes = y->first;
            }
            if (y->first != writes)
                return "its parts write and add";
            bool again = begins && (int)o.piece == low;
            if (o.buf != of.buf || o.last != of.last || (!again && (int)o.piece != low - 1))
                return "its parts name pieces in another order";
            low = (int)o.piece;
            begins = false;
        }
    }
    return NULL;
}

/* ---- all ---- */

static int class_of(int kind) { return is_weights(kind) ? K_weight : is_gradient(kind) ? K_wgrad : kind; }

/* Returns whether the name has a number, because it may recur: travelling weights and tokens, and moved gradients. */
static bool may_have_number(int op) {
    int tensor = op_row(op)->tensor;
    return tensor == K_weight ? op != OP_U
                              : tensor == K_token || tensor == K_mid || (tensor == K_wgrad && op != OP_ZERO);
}

/* Returns the stage that all members agree on; in a team, each names its own. */
static int stage_met(const struct promise *want, const struct instr *x) {
    bool team = op_lane[x->op] == LANE_TEAM && x->stage >= 0 && x->stage < want->sp->stages;
    return team ? first_member(want, x->stage) : x->stage;
}

static int place_in_group(const struct group *g, int r) {
    int m = 0;
    while (g->rank[m] != r)
        m++;
    return m;
}

const char *false_name(const struct promise *want, const struct order *z, int number) {
    const struct rank *k = &z->p->rank[z->rank[number]];
    const struct instr *x = instr_of(z, number), *y = instr_of(z, z->meets[number]);
    for (int i = z->base[z->rank[number]]; i < number; i++)
        if (same_label(x, instr_of(z, i)))
            return "its rank has another instruction of that name";
    if (x->op == OP_ALL_REDUCE_N && x->stage != 0)
        return "a norm is of no stage";
    const char *version = false_version(want, x);
    if (version)
        return version;
    bool with_update = want->sp->updates.every && (x->op < OP_W || x->op == OP_ZERO);
    if (x->inst >= 0 && !may_have_number(x->op) && !with_update)
        return "a number that it cannot have";
    for (int a = 0; a < x->narg; a++)
        if (!is_named(want, z->rank[number], x, operand(k, x, a).role, &k->buf[operand(k, x, a).buf]))
            return "its operand has another name";
    if ((x->op == OP_OFFLOAD_S || x->op == OP_RELOAD_S) && is_input(k, x, ROLE_src) != is_input(k, x, ROLE_t))
        return "it copies an input as a stash";
    const char *why = x->last ? false_parts(z, number) : NULL;
    if (op_lane[x->op] == LANE_TEAM && !why) {
        const struct group *g = &z->p->group[k->lane[x->lane].group];
        why = false_exchange(want, x, place_in_group(g, z->rank[number]), g->n);
    }
    why = why ? why : false_part(want, z, number);
    if (why || !is_message(x->op))
        return why;
    const struct buf *a = payload(k, x), *b = payload(&z->p->rank[z->rank[z->meets[number]]], y);
    if (stage_met(want, x) != stage_met(want, y) || x->batch != y->batch || x->inst != y->inst ||
        (op_lane[x->op] == LANE_SEND && y->op != x->op + 1))
        return "its two ends have different names";
    if (x->op == OP_SEND_G && round_of(want, a) != round_of(want, b))
        return "it comes as the part of another round";
    return class_of(a->kind) != class_of(b->kind) ? "it carries what has another name" : NULL;
}

/* ---- sizes ---- */

/* A stage can keep its input, and the input's gradient is as large. An optimizer has state everywhere or nowhere. If
 * there is a model, it gives the sizes instead. */
const char *text_size_error(const struct promise *want, const struct order *z) {
    int64_t *most = NEW(int64_t, sets_of(want));
    bool state = false;
    for (int pass = 0; pass < 2; pass++)
        for (int number = 0; number < z->n; number++) {
            const struct rank *k = &z->p->rank[z->rank[number]];
            const struct instr *x = instr_of(z, number);
            for (int a = 0; a < x->narg; a++) {
                int role = operand(k, x, a).role;
                int64_t bytes = k->buf[operand(k, x, a).buf].bytes;
                state |= role == ROLE_opt;
                if (pass == 0 && x->op == OP_F && role == ROLE_x)
                    most[x->stage] = bytes > most[x->stage] ? bytes : most[x->stage];
                if (pass == 1 && bytes < most[x->stage] && (role == ROLE_input || role == ROLE_dx))
                    return told(z, number, "%s is smaller than what the stage reads", role_name[role]);
            }
            int w = operand_of(k, x, ROLE_w);
            if (pass == 1 && x->op == OP_U && state && operand_of(k, x, ROLE_opt) < 0 && w >= 0 &&
                k->buf[operand(k, x, w).buf].bytes > 0)
                return told(z, number, "it has no optimizer state, and others have");
        }
    return NULL;
}
