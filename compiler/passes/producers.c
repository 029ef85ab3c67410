/* The producers of each instruction's operands. In issue order every buffer is written before it is read. So an operand
 * comes from the last instruction that wrote its buffer; if that is a receive, from the one that wrote what was
 * sent. */
#include "passes.h"

struct trace {
    const struct program *p;
    int32_t **wrote;    /* parallel to a rank's arg: the instruction that wrote it last, or -1 */
    int32_t (*from)[2]; /* per message between two ranks: the sender's rank and its instruction */
};

static void find_writers(struct trace *trace, int r) {
    const struct rank *k = &trace->p->rank[r];
    int32_t *last = NEW(int32_t, k->nbufs);
    trace->wrote[r] = NEW(int32_t, k->nargs);
    for (int i = 0; i < k->nins; i++) {
        const struct instr *x = &k->ins[i];
        for (uint32_t a = x->arg; a < x->arg + x->narg; a++)
            trace->wrote[r][a] = last[k->arg[a].buf] - 1;
        for (uint32_t a = x->arg; a < x->arg + x->narg; a++)
            if (op_access(x->op, k->arg[a].role) & ACC_WRITE)
                last[k->arg[a].buf] = i + 1;
        if (x->msg >= 0 && is_send(x->op)) {
            trace->from[x->msg][0] = r;
            trace->from[x->msg][1] = i;
        }
    }
}

static struct producer producer_of(const struct trace *trace, int r, uint32_t arg) {
    struct producer producer = {r, trace->wrote[r][arg], -1};
    while (producer.i >= 0) {
        const struct instr *x = &trace->p->rank[producer.rank].ins[producer.i];
        if (x->msg < 0 || !is_recv(x->op))
            break;
        producer.msg = producer.msg < 0 ? x->msg : producer.msg;
        producer.rank = trace->from[x->msg][0];
        producer.i = trace->wrote[producer.rank][trace->p->rank[producer.rank].ins[trace->from[x->msg][1]].arg];
    }
    return producer;
}

struct producers producers_of(const struct program *p) {
    struct trace trace = {p, NEW(int32_t *, p->workers), alloc(sizeof(int32_t[2]) * (size_t)p->nmsgs)};
    size_t most = 0;
    int32_t n = 0;
    for (int r = 0; r < p->workers; r++, most += p->rank[r - 1].nargs)
        find_writers(&trace, r);
    struct producers producers = {NEW(struct producer, most), NEW(int32_t *, p->workers)};
    for (int r = 0; r < p->workers; r++) {
        const struct rank *k = &p->rank[r];
        producers.at[r] = NEW(int32_t, k->nins + 1);
        for (int i = 0; i < k->nins; i++) {
            const struct instr *x = &k->ins[i];
            producers.at[r][i] = n;
            for (uint32_t a = x->arg; a < x->arg + x->narg; a++) {
                int role = k->arg[a].role;
                if (!(op_access(x->op, role) & ACC_READ) || op_accumulates(x->op, role))
                    continue;
                struct producer one = producer_of(&trace, r, a);
                if (one.i >= 0 || one.msg >= 0)
                    producers.a[n++] = one;
            }
        }
        producers.at[r][k->nins] = n;
    }
    return producers;
}
