/* Checks what each part of a backward contributes to its stage's gradient, byte by byte, as the program declares it. */
#include "judge.h"
#include "symbols.h"

static const struct instr *part_at(const struct rank *k, const struct instr *x, int part) {
    for (const struct instr *y = k->ins; y < k->ins + k->nins; y++)
        if (y->op == x->op && y->stage == x->stage && y->batch == x->batch && y->last == x->last && y->part == part)
            return y;
    return NULL;
}

/* Returns whether it names that byte of its gradient. */
static bool names(const struct rank *k, const struct instr *x, int64_t byte) {
    for (int a = 0; a < x->narg; a++) {
        struct arg o = operand(k, x, a);
        int64_t n = arg_bytes(k, &o);
        if (o.role == ROLE_dw && byte >= o.piece * n && byte < (o.piece + 1) * n)
            return true;
    }
    return false;
}

/* Returns the size of the gradient that the parts of a job name, or -1 if none names any. */
static int64_t gradient_bytes(const struct rank *k, const struct instr *x) {
    for (int part = 0; part <= x->last; part++) {
        const struct instr *y = part_at(k, x, part);
        int dw = y ? operand_of(k, y, ROLE_dw) : -1;
        if (dw >= 0)
            return k->buf[operand(k, y, dw).buf].bytes;
    }
    return -1;
}

/* Reports a part that names a piece but contributes to none of its bytes, or NULL. */
static const char *needless(const struct rank *k, const struct instr *x, struct byte_range range) {
    for (int a = 0; a < x->narg; a++) {
        struct arg o = operand(k, x, a);
        int64_t n = arg_bytes(k, &o), inside = 0;
        for (int64_t byte = o.piece * n; byte < (o.piece + 1) * n; byte++)
            inside += byte >= range.from && byte < range.to;
        if (o.role == ROLE_dw && n && !inside)
            return "a part names a piece of its gradient to which it contributes nothing";
    }
    return NULL;
}

static const char *job_error(const struct rank *k, const struct instr *x, const struct ranges *ranges) {
    int64_t bytes = gradient_bytes(k, x), begun = bytes;
    if (ranges->n != x->last + 1)
        return "has other parts than the program says of it";
    if (bytes < 0)
        return NULL;
    uint8_t *times = NEW(uint8_t, bytes);
    for (int part = 0; part <= x->last; part++) {
        const struct instr *y = part_at(k, x, part);
        struct byte_range range = ranges->at[part];
        if (!y)
            return NULL;
        if (range.from < range.to && range.to > begun)
            return "a part contributes bytes above those of the part before it, or past the gradient";
        begun = range.from < range.to ? range.from : begun;
        for (int64_t byte = range.from; byte < range.to; byte++) {
            times[byte]++;
            if (!names(k, y, byte))
                return "a part does not name what it contributes to";
        }
        const char *why = needless(k, y, range);
        if (why)
            return why;
    }
    for (int64_t byte = 0; byte < bytes; byte++)
        if (times[byte] != 1)
            return format("%d parts contribute byte %lld of its gradient", times[byte], (long long)byte);
    return NULL;
}

const char *range_error(const struct promise *want, const struct order *z) {
    const struct program *p = z->p;
    for (int i = 0; i < z->n && p->contributed; i++) {
        const struct instr *x = instr_of(z, i);
        bool adds = x->op == OP_B || x->op == OP_W;
        if (!adds || !x->last || x->part || is_without_weights(want, x->stage))
            continue;
        const char *why = job_error(&p->rank[z->rank[i]], x, &p->contributed[(int64_t)x->stage * NDIRS + x->op]);
        if (why)
            return told(z, i, "%s", why);
    }
    return NULL;
}
