/* Growth of the verifier's work, counted rather than timed: linear in instructions, n log n in operands. */
#include "compiler.h"
#include <criterion/criterion.h>

/* One microbatch after another through two ranks. On rank 0, act(0,b) and grad(1,b+2) share a place; on rank 1,
 * grad(1,b) and act(0,b+3) do. No wait of their rank separates these, only the messages in between do. */
static void put_rank(struct text *t, int r, int n) {
    int other = 1 - r;
    put(t, "rank %d lane compute\n", r);
    for (int b = 0; b < n; b++)
        if (r == 0)
            put(t,
                "F 0 %d w=weight(0) stash=stash(0,%d) y=act(0,%d)\n"
                "B 0 %d w=weight(0) stash=stash(0,%d) dy=grad(1,%d) dw%s=wgrad(0) wait(RECV_B 1 %d from 1) "
                "free(stash(0,%d) grad(1,%d))\n",
                b, b, b, b, b, b, b ? "+" : "", b, b, b);
        else
            put(t,
                "F 1 %d w=weight(1) x=act(0,%d) stash=stash(1,%d) wait(RECV_F 0 %d from 0) free(act(0,%d))\n"
                "B 1 %d w=weight(1) stash=stash(1,%d) dx=grad(1,%d) dw%s=wgrad(1) free(stash(1,%d))\n",
                b, b, b, b, b, b, b, b, b ? "+" : "", b);
    put(t, "U %d dw=wgrad(%d) w=weight(%d)\nrank %d lane send %d\n", r, r, r, r, other);
    for (int b = 0; b < n; b++)
        if (r == 0)
            put(t, "SEND_F 0 %d to 1 t=act(0,%d) wait(F 0 %d) free(act(0,%d))\n", b, b, b, b);
        else
            put(t, "SEND_B 1 %d to 0 t=grad(1,%d) wait(B 1 %d) free(grad(1,%d))\n", b, b, b, b);
    put(t, "rank %d lane recv %d\n", r, other);
    for (int b = 0; b < n; b++)
        put(t, r == 0 ? "RECV_B 1 %d from 1 t=grad(1,%d)\n" : "RECV_F 0 %d from 0 t=act(0,%d)\n", b, b);
    put(t, "rank %d issue\n", r);
    for (int b = 0; b < n; b++)
        put(t, r == 0 ? "0 1 2 0\n" : "2 0*2 1\n");
    put(t, "0\nrank %d memory 7\nweight(%d) 0 1\nwgrad(%d) 1 1\n", r, r, r);
    for (int b = 0; b < n; b++) {
        put(t, "stash(%d,%d) 2 1\n", r, b);
        put(t, "act(0,%d) %d 1\ngrad(1,%d) %d 1\n", b, 3 + b % (3 + r), b, 3 + (b + (r ? 3 : 1)) % (3 + r));
    }
}

static struct program *through_messages(int n) {
    struct text t = {0};
    put(&t, "pianola 1\nprogram p workers 2 stages 2 batches %d\n", n);
    put_rank(&t, 0, n);
    put_rank(&t, 1, n);
    return read_text("through_messages", t.s);
}

struct cost {
    int64_t work;
    size_t memory;
};

static struct cost cost_of(struct program *p) {
    struct cost before = {verify_work, allocated()};
    struct refutation *no = verify_text(p);
    cr_assert(!no, "%s", no ? no->why : "");
    struct cost c = {verify_work - before.work, allocated() - before.memory};
    free_all();
    return c;
}

Test(verify, orders_through_messages_are_linear) {
    struct cost small = cost_of(through_messages(1000)), large = cost_of(through_messages(16000));
    cr_expect_gt(small.work, 8000, "both ranks are swept, or the program does not ask what it should");
    cr_expect_leq(large.work, 17 * small.work);
    cr_expect_leq(large.memory, 20 * small.memory);
}

/* Returns a program of n ranks over which `stages` stages are sharded. Each rank gathers all weights, runs a
 * microbatch, and has its gradients reduced and scattered. */
static struct program *sharded(int n, int stages) {
    struct text t = {0}, g = {0};
    put(&t, "pianola 1\nprogram p workers %d stages %d batches %d\n", n, stages, n);
    for (int r = 0; r < n; r++)
        put(&g, "%s%d", r ? "," : "", r);
    for (int s = 0; s < stages; s++) {
        put(&t, "homes %d:", s);
        for (int r = 0; r < n; r++)
            put(&t, " %d", r);
        put(&t, "\n");
    }
    for (int r = 0; r < n; r++) {
        int last = stages - 1;
        put(&t, "rank %d lane compute\n", r);
        for (int s = 0; s < stages; s++)
            put(&t, s > 0 ? "F %d %d w=weight(%d)#0 x=act(%d,%d) stash=stash(%d,%d)" : "F %d %d w=weight(%d)#0", s, r,
                s, s - 1, r, s, r),
                put(&t, s > 0 ? "" : " stash=stash(0,%d)", r), put(&t, s < last ? " y=act(%d,%d)" : "", s, r),
                put(&t, " wait(ALL_GATHER %d#0)", s), put(&t, s > 0 ? " free(act(%d,%d))\n" : "\n", s - 1, r);
        for (int s = last; s >= 0; s--)
            put(&t, "B %d %d w=weight(%d)#0 stash=stash(%d,%d)", s, r, s, s, r),
                put(&t, s < last ? " dy=grad(%d,%d)" : "", s + 1, r), put(&t, s > 0 ? " dx=grad(%d,%d)" : "", s, r),
                put(&t, " dw=wgrad(%d) free(weight(%d)#0 stash(%d,%d)", s, s, s, r),
                put(&t, s < last ? " grad(%d,%d))\n" : ")\n", s + 1, r);
        for (int s = last; s >= 0; s--)
            put(&t, "U %d dw=gshard(%d) w=wshard(%d) wait(REDUCE_SCATTER %d)\n", s, s, s, s);
        put(&t, "rank %d lane gather %s\n", r, g.s);
        for (int s = 0; s < stages; s++)
            put(&t, "ALL_GATHER %d#0 by ring src=wshard(%d) w=weight(%d)#0\n", s, s, s);
        put(&t, "rank %d lane group %s\n", r, g.s);
        for (int s = last; s >= 0; s--)
            put(&t, "REDUCE_SCATTER %d by ring src=wgrad(%d) dw=gshard(%d) wait(B %d %d) free(wgrad(%d))\n", s, s, s, s,
                r, s);
        put(&t, "rank %d issue\n1*%d 0*%d 2*%d 0*%d\nrank %d memory %d\n", r, stages, 2 * stages, stages, stages, r,
            stages * (2 * n + 5));
        for (int s = 0, at = 0; s < stages; s++, at += 2 * n + 5)
            put(&t, "wshard(%d) %d 1\nweight(%d)#0 %d %d\nwgrad(%d) %d %d\ngshard(%d) %d 1\nstash(%d,%d) %d 1\n", s, at,
                s, at + 1, n, s, at + 1 + n, n, s, at + 1 + 2 * n, s, r, at + 2 + 2 * n),
                put(&t, s < last ? "act(%d,%d) %d 1\n" : "", s, r, at + 3 + 2 * n),
                put(&t, s > 0 ? "grad(%d,%d) %d 1\n" : "", s, r, at + 4 + 2 * n);
    }
    return read_text("sharded", t.s);
}

Test(verify, collectives_are_linear_in_their_members) {
    struct cost few = cost_of(sharded(16, 8)), many = cost_of(sharded(256, 8));
    cr_expect_gt(few.work, 2 * 8 * 16, "every member of every collective is gone through");
    cr_expect_leq(many.work, 17 * few.work);
    cr_expect_leq(many.memory, 18 * few.memory);
}

/* Returns the cost of a compiled program with `many` predecessors for each of `batches` forwards and backwards. */
static struct cost cost_of_needs(int batches, int many) {
    char b[32], m[32];
    snprintf(b, sizeof b, "batches=%d", batches);
    snprintf(m, sizeof m, "many=%d", many);
    const char *set[] = {b, m};
    struct script_args args = {.schedule = "tests/papers/formulas/needs.lua", .set = set, .nset = 2};
    struct spec *sp = script_load(&args);
    struct costs *costs = costs_make(sp);
    struct graph *g = graph_build(costs);
    struct program *p = lower_of(sp, costs, g, sched_of(sp, costs, g));
    mem_of(sp, p);
    lanes_sync(p);
    struct text t = {0};
    emit_text(&t, p);
    p = read_text("needs", t.s);
    return cost_of(p);
}

Test(verify, operands_are_n_log_n) {
    struct cost few = cost_of_needs(400, 20), many = cost_of_needs(400, 200);
    cr_expect_gt(few.work, 2 * 400 * 20 * 2, "every operand is gone through");
    cr_expect_leq(many.work, 10 * few.work * 2, "ten times as many operands, whose logarithm is less than twice");
    cr_expect_leq(many.memory, 12 * few.memory);
}
