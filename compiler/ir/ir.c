#include "program.h"
#include <assert.h>
#include <string.h>

#define X(name, ...) #name,
const char *const op_name[NOPS] = {OPS(X)};
const char *const kind_name[NKINDS] = {KINDS(X)};
#undef X
#define X(name) #name,
const char *const role_name[NROLES] = {ROLES(X)};
#undef X
#define X(name, lane, ...) LANE_##lane,
const uint8_t op_lane[NOPS] = {OPS(X)};
#undef X
#define X(name, lane, cost, ...) COST_##cost,
const uint8_t op_cost[NOPS] = {OPS(X)};
#undef X
#define X(name, has_batch, ...) has_batch,
const bool kind_has_batch[NKINDS] = {KINDS(X)};
#undef X

/* Operands of ops.h, parsed once, and the printed names of instructions. */
uint8_t op_accesses[NOPS][NROLES];
bool op_adds[NOPS][NROLES], operands_are_read;
static uint8_t roles_of[NOPS][NROLES], nroles_of[NOPS];

void read_operands(void) {
    for (int op = 0; op < NOPS; op++)
        for (const char *s = op_row(op)->operands; *s;) {
            size_t n = strcspn(s, ":");
            int role = 0;
            while (strncmp(role_name[role], s, n) || role_name[role][n])
                role++;
            assert(role < NROLES);
            char how = s[n + 1];
            op_accesses[op][role] = (how != 'w' ? ACC_READ : 0) | (how != 'r' ? ACC_WRITE : 0);
            op_adds[op][role] = how == 'a';
            roles_of[op][nroles_of[op]++] = (uint8_t)role;
            s += strcspn(s, " ");
            s += *s == ' ';
        }
    operands_are_read = true;
}

int op_roles(int op, const uint8_t **roles) {
    if (!operands_are_read)
        read_operands();
    *roles = roles_of[op];
    return nroles_of[op];
}

const char *const exchange_name[NEXCHANGES] = {"sum", "gather", "scatter", "exchange"};
const char *const algorithm_name[NALGORITHMS] = {"ring", "tree"};

int64_t moved_bytes(const struct rank *k, const struct instr *in) {
    int64_t least = in->narg ? INT64_MAX : 0;
    for (uint32_t a = in->arg; a < in->arg + in->narg; a++) {
        int64_t bytes = arg_bytes(k, &k->arg[a]);
        least = bytes < least ? bytes : least;
    }
    return least;
}

void put_stage(struct text *t, const struct names *names, int32_t s) {
    const struct member *member = names && names->member ? &names->member[s] : NULL;
    put_int(t, member ? member->stage : s);
    if (!member || member->place < 0)
        return;
    put_bytes(t, ".", 1);
    put_int(t, member->place);
}

void put_batch(struct text *t, const struct names *names, int32_t b) {
    int slices = names ? names->slices : 0;
    put_int(t, slices ? b / slices : b);
    if (!slices)
        return;
    put_bytes(t, ".", 1);
    put_int(t, b % slices);
}

const char *job_name(const struct names *names, int s, int b, int d) {
    struct text t = {0};
    put_stage(&t, names, s);
    put_word(&t, op_name[d]);
    put_batch(&t, d == OP_U ? NULL : names, b);
    return t.s;
}

void put_buf(struct text *t, const struct names *names,
             const struct buf *b) { /* printf is too slow for text that occurs several times per line */
    put_word(t, kind_name[b->kind]);
    if (b->stage >= 0) {
        put_word(t, "(");
        put_stage(t, names, b->stage);
        if (b->batch >= 0) {
            put_word(t, ",");
            put_batch(t, names, b->batch);
        }
        put_word(t, ")");
    }
    if (b->inst >= 0) {
        put_word(t, "#");
        put_int(t, b->inst);
    }
}

void put_arg(struct text *t, const struct names *names, const struct rank *k, const struct arg *a) {
    put_buf(t, names, &k->buf[a->buf]);
    if (a->last)
        put(t, "[%d/%d]", a->piece, pieces_of(a));
}

void put_label(struct text *t, const struct names *names, const struct instr *in) {
    put_word(t, op_name[in->op]);
    put_bytes(t, " ", 1);
    put_stage(t, names, in->stage);
    if (in->batch >= 0) {
        put_bytes(t, " ", 1);
        put_batch(t, in->op == OP_U ? NULL : names, in->batch);
    }
    if (in->last)
        put(t, "[%d/%d]", in->part, in->last + 1);
    if (in->inst >= 0 && !is_job(in->op)) {
        put_bytes(t, "#", 1);
        put_int(t, in->inst);
    }
    if (in->peer >= 0) {
        bool to = is_send(in->op) || in->op == OP_REDUCE;
        put_bytes(t, to ? " to " : " from ", to ? 4 : 6);
        put_int(t, in->peer);
    }
}

const char *short_name(const struct names *names, const struct instr *in) {
    struct text t = {0};
    if (is_job(in->op)) {
        const char *job = job_name(names, in->stage, in->batch, in->op);
        return in->last ? format("%s[%d/%d]", job, in->part, in->last + 1) : job;
    }
    put_label(&t, names, in);
    return t.s;
}

struct layer_span layers_of(const struct stage *s, const struct instr *x) {
    struct layer_span span = {0, s->rt.nlayers, 0, s->rt.nlayers, SWEEP_ALL};
    bool back = x->op != OP_F && x->op != OP_R, stops = x->last && x->last == s->nstops[x->op];
    const struct stop *begin = stops && x->part > 0 ? &s->stop[x->op][x->part - 1] : NULL,
                      *end = stops && x->part < x->last ? &s->stop[x->op][x->part] : NULL;
    bool gets = stops && stop_got(s->stop[x->op], x->part) >= 0;
    if (back && x->last && !stops)
        return (struct layer_span){s->cut[x->part + 1], s->cut[x->part], s->cut[x->part + 1], s->cut[x->part],
                                   SWEEP_ALL};
    if (!back) {
        span.from = begin ? begin->layer : span.from;
        span.to = end ? end->layer + 1 : span.to;
        return span;
    }
    span.from = end ? end->layer : span.from;
    span.to = begin ? begin->layer + gets : span.to;
    span.weights_from = end ? end->weights : span.weights_from;
    span.weights_to = begin ? begin->weights : span.weights_to;
    if (end && end->weights > end->layer + 1)
        span.sweep = SWEEP_PUT_OFF;
    if (begin && end && begin->exchange.late && end->exchange.op == OP_none) {
        span.sweep = SWEEP_WEIGHTS;
        span.from = span.weights_from;
        span.to = span.weights_to + gets;
    }
    return span;
}
