/* Additions to drawings of timelines: the critical path, memory in use, and the source of operands. */
#include "random_spec.h"
#include <criterion/criterion.h>
#include <stdlib.h>

struct compiled {
    struct spec *sp;
    struct costs *costs;
    struct graph *g;
    struct program *p;
    struct timeline *tl;
};

static struct compiled compile(struct spec *sp, struct costs *costs) {
    struct compiled c = {.sp = sp, .costs = costs, .g = graph_of(sp)};
    c.p = lower_of(sp, costs, c.g, sched_of(sp, costs, c.g));
    mem_of(sp, c.p);
    lanes_sync(c.p);
    c.tl = sim_of(sp, costs, c.p);
    return c;
}

static struct compiled draw(int seed) {
    static const int flags[] = {0, LATENCY, BANDWIDTH, BANDWIDTH | COARSE, BANDWIDTH | PAIRS, BANDWIDTH | ORDERS};
    struct spec *sp = draw_spec((uint64_t)seed, flags[seed / 100]);
    sp->choices.launch = (enum launch_order)(seed % 3);
    return compile(sp, draw_stages(sp));
}

enum { SEEDS = 600 }; /* a hundred of each kind */

/* ---- the critical path ---- */

struct span {
    double start, end, sent; /* sent: of a message, when its sender's lane is free again; of a reduction, when it lets
                                the rank's next communication be launched */
};

static int in_time(const void *x, const void *y) {
    const struct span *a = x, *b = y;
    return a->start != b->start ? (a->start > b->start) - (a->start < b->start) : (a->end > b->end) - (a->end < b->end);
}

/* Collects the time of everything on the path; a message's lasts from its departure to its arrival. */
static int spans_of(const struct compiled *c, bool **on, struct span *out) {
    struct span *message = NEW(struct span, c->p->nmsgs + 1);
    int n = 0;
    for (int m = 0; m < c->p->nmsgs; m++)
        message[m].start = INFINITY;
    for (int r = 0; r < c->p->workers; r++)
        for (int i = 0; i < c->p->rank[r].nins; i++) {
            struct span s = {c->tl->start[r][i], c->tl->end[r][i], c->tl->end[r][i]};
            int m = c->p->rank[r].ins[i].msg;
            if (c->sp->choices.launch == LAUNCH_ISSUE &&
                is_group(c->p->rank[r].ins[i].op)) /* a reduction in one piece */
                s.sent = s.end - (s.end - s.start) / 2;
            if (!on[r][i])
                continue;
            if (m < 0)
                out[n++] = s;
            else
                message[m] = (struct span){fmin(message[m].start, s.start), fmax(message[m].end, s.end),
                                           op_lane[c->p->rank[r].ins[i].op] == LANE_RECV ? message[m].sent : s.sent};
        }
    for (int m = 0; m < c->p->nmsgs; m++)
        if (message[m].end > 0)
            out[n++] = message[m];
    qsort(out, (size_t)n, sizeof *out, in_time);
    return n;
}

/* From the beginning, each item on the path begins when another ends, up to the makespan, in each launch order. A
 * sender's lane continues while its message still travels. */
Test(path, runs_without_a_gap_from_the_beginning_to_the_end) {
    for (int seed = 0; seed < SEEDS; seed++) {
        struct compiled c = draw(seed);
        bool **on = critical_path(c.p, c.tl);
        int total = 0;
        for (int r = 0; r < c.p->workers; r++)
            total += c.p->rank[r].nins;
        struct span *s = NEW(struct span, total);
        int n = spans_of(&c, on, s);
        double at = 0;
        for (int i = 0; i < n; at = fmax(at, s[i++].end)) {
            bool follows = s[i].start == 0;
            for (int j = 0; j < n; j++)
                follows |= j != i && (s[i].start == s[j].end || fabs(s[i].start - s[j].sent) < 1e-9);
            cr_assert(follows, "seed %d: at %g comes what starts at %g", seed, at, s[i].start);
        }
        cr_assert_eq(at, c.tl->makespan, "seed %d: ends at %g, not %g", seed, at, c.tl->makespan);
        free_all();
    }
}

/* If a job on the path takes longer, the whole step takes that much longer. */
Test(path, is_critical) {
    for (int seed = 0; seed < SEEDS; seed++) {
        struct compiled c = draw(seed);
        bool **on = critical_path(c.p, c.tl);
        for (int r = 0; r < c.p->workers; r++)
            for (int i = 0; i < c.p->rank[r].nins; i++) {
                const struct instr *x = &c.p->rank[r].ins[i];
                int32_t k = x->op <= OP_W ? job_at(c.sp, x->stage, x->batch, x->op) : -1;
                const struct job *j = &c.sp->job[k < 0 ? 0 : k];
                if (k < 0 || j->pair || !on[r][i])
                    continue;
                c.costs->computes[k] += 0.25;
                double makespan = sim_of(c.sp, c.costs, c.p)->makespan;
                c.costs->computes[k] -= 0.25;
                cr_assert_float_eq(makespan, c.tl->makespan + 0.25, 1e-9, "seed %d: %s of rank %d: %g, not %g", seed,
                                   job_name(NULL, j->s, j->b, j->d), r, makespan, c.tl->makespan + 0.25);
            }
        free_all();
    }
}

/* ---- memory in use ---- */

/* Returns the arena bytes that the plan gives, at time t, to buffers between their first and last use. */
static int64_t covered(const struct compiled *c, int r, double t) {
    const struct rank *k = &c->p->rank[r];
    char *in = NEW(char, k->arena);
    int64_t n = 0;
    for (int b = 0; b < k->nbufs; b++) {
        double from = INFINITY, to = 0;
        bool stays = true;
        for (int i = 0; i < k->nins; i++) {
            const struct instr *x = &k->ins[i];
            for (uint32_t a = x->arg; a < x->arg + x->narg; a++)
                if (k->arg[a].buf == b) {
                    from = fmin(from, c->tl->start[r][i]);
                    to = fmax(to, c->tl->end[r][i]);
                }
            for (uint32_t f = x->free; f < x->free + x->nfree; f++)
                stays &= k->freed[f] != b;
        }
        if (stays || (from <= t && t < to))
            memset(in + k->buf[b].off, 1, (size_t)k->buf[b].bytes);
    }
    for (int64_t i = 0; i < k->arena; i++)
        n += in[i];
    return n;
}

/* Gives everything that a stash grows into its own room of the same size, so that no byte counts twice. */
Test(usage, counts_the_bytes_of_the_arena_that_hold_something) {
    for (int seed = 0; seed < 60; seed++) {
        struct spec *sp = draw_spec((uint64_t)seed, BANDWIDTH);
        struct compiled c = compile(sp, unit_stages(sp));
        for (int r = 0; r < c.p->workers; r++) {
            struct usage u = memory_use(&c.p->rank[r], c.tl->start[r], c.tl->end[r]);
            for (int i = 0; i < u.n; i++)
                cr_assert_eq(u.at[i].bytes, covered(&c, r, u.at[i].t), "seed %d rank %d, at %g: %lld, not %lld", seed,
                             r, u.at[i].t, (long long)u.at[i].bytes, (long long)covered(&c, r, u.at[i].t));
        }
        free_all();
    }
}

Test(usage, is_never_more_than_the_plan) {
    for (int seed = 0; seed < SEEDS; seed++) {
        struct compiled c = draw(seed);
        for (int r = 0; r < c.p->workers; r++) {
            struct usage u = memory_use(&c.p->rank[r], c.tl->start[r], c.tl->end[r]);
            for (int i = 0; i < u.n; i++) {
                cr_assert(u.at[i].bytes >= 0 && u.at[i].bytes <= c.p->rank[r].arena, "seed %d rank %d", seed, r);
                cr_assert(i == 0 || u.at[i].t > u.at[i - 1].t);
            }
        }
        free_all();
    }
}

/* ---- producers ---- */

static int32_t job_of(const struct compiled *c, const struct producer *f) {
    const struct instr *x = f->i >= 0 ? &c->p->rank[f->rank].ins[f->i] : NULL;
    return x && x->op <= OP_W ? job_at(c->sp, x->stage, x->batch, x->op) : -1;
}

/* The producers of a job's operands are its predecessors in the graph, including all on other ranks. */
Test(producers, are_the_predecessors_of_the_job_graph) {
    for (int seed = 0; seed < SEEDS; seed++) {
        struct compiled c = draw(seed);
        struct producers f = producers_of(c.p);
        for (int r = 0; r < c.p->workers; r++)
            for (int i = 0; i < c.p->rank[r].nins; i++) {
                const struct instr *x = &c.p->rank[r].ins[i];
                if (x->op > OP_W)
                    continue;
                int32_t j = job_at(c.sp, x->stage, x->batch, x->op);
                int fed = 0, far = 0;
                for (int32_t n = f.at[r][i]; n < f.at[r][i + 1]; n++) {
                    int32_t from = job_of(&c, &f.a[n]);
                    cr_assert(from < 0 || has_edge(c.g, j, from), "seed %d: %s", seed,
                              job_name(NULL, x->stage, x->batch, x->op));
                    cr_assert_eq(f.a[n].msg < 0, f.a[n].rank == r);
                    fed += from >= 0 && c.sp->job[from].rank != r;
                }
                for (int32_t n = c.g->pred_at[j]; n < c.g->pred_at[j + 1]; n++)
                    far += c.sp->job[c.g->pred[n]].rank != r;
                cr_assert_eq(fed, far, "seed %d: %s: %d of %d", seed, job_name(NULL, x->stage, x->batch, x->op), fed,
                             far);
            }
        free_all();
    }
}

/* An update reads a gradient to which several jobs add: its producer is the last of them. */
Test(producers, of_an_update_are_the_last_that_wrote_its_gradient) {
    for (int seed = 0; seed < SEEDS; seed++) {
        struct compiled c = draw(seed);
        struct producers f = producers_of(c.p);
        for (int r = 0; r < c.p->workers; r++) {
            const struct rank *k = &c.p->rank[r];
            for (int i = 0; i < k->nins; i++)
                for (int32_t n = f.at[r][i]; k->ins[i].op == OP_U && n < f.at[r][i + 1]; n++)
                    for (int later = f.a[n].i + 1; f.a[n].rank == r && later < i; later++)
                        for (uint32_t a = k->ins[later].arg; a < k->ins[later].arg + k->ins[later].narg; a++)
                            cr_assert(k->arg[a].role != ROLE_dw || k->arg[a].buf != k->arg[k->ins[i].arg].buf);
        }
        free_all();
    }
}
