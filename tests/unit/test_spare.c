/* The memory plan with spare memory: never later than the least plan, and no instruction waits for bytes. */
#include "random_spec.h"
#include "script/scripts.h"
#include <criterion/criterion.h>
#include <math.h>

enum plan { NO_PLAN, LEAST, SPARE };

struct planned {
    struct spec *sp;
    struct costs *costs;
    struct program *p;
    struct timeline *tl;
    bool spares; /* whether bytes are reused by lifetimes */
};

static struct spec *drawn(int seed, double memory) {
    struct spec *sp = draw_spec((uint64_t)seed, ORDERS | BANDWIDTH | COARSE | (seed % 3 ? 0 : PAIRS));
    sp->choices.launch = (enum launch_order)(seed / 3 % 3);
    sp->machine.memory = memory;
    return sp;
}

static struct planned planned(int seed, enum plan plan, double memory) {
    struct planned c = {.sp = drawn(seed, memory)};
    c.costs = draw_stages(c.sp);
    struct graph *g = graph_of(c.sp);
    c.p = lower_of(c.sp, c.costs, g, sched_of(c.sp, c.costs, g));
    if (plan == LEAST)
        mem_of(c.sp, c.p);
    else if (plan == SPARE)
        c.spares = spare_of(c.sp, c.costs, c.p);
    lanes_sync(c.p);
    c.tl = sim_of(c.sp, c.costs, c.p);
    return c;
}

static bool fetches(const struct program *p) {
    for (int r = 0; r < p->workers; r++)
        for (int b = 0; b < p->rank[r].nbufs; b++)
            if (p->rank[r].buf[b].kind == K_weight && p->rank[r].buf[b].inst >= 0)
                return true;
    return false;
}

static bool later(double x, double y) { return x > y * (1 + 1e-9); }

static bool same_plan(const struct rank *x, const struct rank *y) {
    bool same = x->arena == y->arena;
    for (int b = 0; b < x->nbufs; b++)
        same &= x->buf[b].off == y->buf[b].off;
    return same;
}

static int64_t most(const struct program *p) {
    int64_t most = 0;
    for (int r = 0; r < p->workers; r++)
        most = p->rank[r].arena > most ? p->rank[r].arena : most;
    return most;
}

Test(spare, ends_no_later_than_the_least_plan) {
    int earlier = 0, larger = 0;
    for (int seed = 0; seed < 1000; seed++) {
        struct planned least = planned(seed, LEAST, INFINITY), spare = planned(seed, SPARE, INFINITY);
        cr_assert_not(later(spare.tl->makespan, least.tl->makespan), "seed %d", seed);
        earlier += later(least.tl->makespan, spare.tl->makespan);
        for (int r = 0; r < least.p->workers; r++) {
            const struct rank *x = &least.p->rank[r], *y = &spare.p->rank[r];
            cr_assert_eq(x->least, x->arena);
            cr_assert_eq(y->least, x->arena < y->arena ? x->arena : y->arena, "seed %d, rank %d", seed, r);
            larger += y->arena > x->arena;
        }
        free_all();
    }
    cr_assert(earlier > 200 && larger > 500, "%d, %d", earlier, larger);
}

/* Every instruction starts as if no bytes were reused. Only fetches wait for room. */
Test(spare, nobody_waits_for_bytes) {
    int n = 0;
    for (int seed = 0; seed < 1000; seed++) {
        struct planned free = planned(seed, NO_PLAN, INFINITY), spare = planned(seed, SPARE, INFINITY);
        for (int r = 0; r < free.p->workers && !fetches(free.p); r++)
            for (int i = 0; i < free.p->rank[r].nins; i++, n++)
                cr_assert_not(later(spare.tl->start[r][i], free.tl->start[r][i]), "seed %d, rank %d, instruction %d",
                              seed, r, i);
        free_all();
    }
    cr_assert_gt(n, 10000);
}

static void plan_seed(void *with) {
    const struct planned *how = with;
    planned((int)how->sp->declared.effort, SPARE, how->sp->machine.memory);
}

/* If the plan with spare memory does not fit, uses one with some delay, or the least one if nothing can be spared. */
Test(spare, keeps_to_the_cluster_s_memory) {
    int some = 0, dropped = 0;
    for (int seed = 0; seed < 500; seed++) {
        struct planned least = planned(seed, LEAST, INFINITY), spare = planned(seed, SPARE, INFINITY);
        int64_t limit = 0;
        for (int r = 0; r < least.p->workers; r++)
            limit = spare.p->rank[r].least > limit ? spare.p->rank[r].least : limit;
        if (limit < most(least.p)) /* this limit may happen to be smaller */
            continue;
        struct planned tight = planned(seed, SPARE, (double)limit);
        cr_assert_eq(most(tight.p), limit);
        cr_assert_not(later(tight.tl->makespan, least.tl->makespan), "seed %d", seed);
        bool any = tight.spares;
        for (int r = 0; r < least.p->workers; r++) {
            const struct rank *k = &tight.p->rank[r], *x = &least.p->rank[r], *y = &spare.p->rank[r];
            bool fits = y->arena <= limit;
            if (!any || (!fits && x->arena == limit))
                cr_assert(same_plan(k, x), "seed %d, rank %d", seed, r);
            else if (fits)
                cr_assert(same_plan(k, y), "seed %d, rank %d", seed, r);
            some += any && !fits && !same_plan(k, x);
            dropped += !any && fits;
        }
        struct spec how = {.declared.effort = seed, .machine.memory = (double)limit - 1};
        const char *why = death_of(plan_seed, &(struct planned){.sp = &how});
        cr_assert(why && strstr(why, format("needs %lld bytes, 1 more than", (long long)limit)), "seed %d: %s", seed,
                  why);
        free_all();
    }
    cr_assert(some > 5 && dropped > 5, "%d, %d", some, dropped);
}

/* ---- on slow links, causes of waits on the compute lane ---- */

static bool shares(const struct rank *k, const struct instr *x, const struct instr *y) {
    for (uint32_t a = x->arg; a < x->arg + x->narg; a++)
        for (uint32_t b = y->arg; b < y->arg + y->narg; b++)
            if (k->arg[a].buf == k->arg[b].buf)
                return true;
    return false;
}

/* Counts compute instructions that start just when another one ends from which they need only its bytes. */
static int held_up(const struct program *p, const struct timeline *tl) {
    int n = 0;
    for (int r = 0; r < p->workers; r++) {
        const struct rank *k = &p->rank[r];
        double end = 0;
        for (int i = 0; i < k->nins; i++) {
            const struct instr *x = &k->ins[i];
            double other = end, bytes = 0;
            if (x->lane != 0)
                continue;
            for (uint32_t w = x->wait; w < x->wait + x->nwait; w++) {
                double *t = shares(k, x, &k->ins[k->wait[w]]) ? &other : &bytes;
                *t = fmax(*t, tl->end[r][k->wait[w]]);
            }
            n += later(bytes, other);
            end = tl->end[r][i];
        }
    }
    return n;
}

static int held_up_in(const char *schedule, bool spare) {
    const char *set[] = {"bandwidth=0.25"};
    struct script_args args = {
        .schedule = schedule, .cluster = "schedules/clusters/latency.lua", .set = set, .nset = 1};
    struct spec *sp = script_load(&args);
    struct costs *costs = costs_make(sp);
    struct graph *g = graph_build(costs);
    struct program *p = lower_of(sp, costs, g, sched_of(sp, costs, g));
    if (spare)
        spare_of(sp, costs, p);
    else
        mem_of(sp, p);
    lanes_sync(p);
    return held_up(p, sim_of(sp, costs, p));
}

Test(spare, compute_waits_for_no_message_to_leave_bytes) {
    const char *const file[] = {"1f1b", "fsdp", "lpp", "zbv", "breadth_first"};
    int least = 0;
    for (int i = 0; i < 5; i++) {
        const char *schedule = format("schedules/%s.lua", file[i]);
        cr_assert_eq(held_up_in(schedule, true), 0, "%s: %d", schedule, held_up_in(schedule, true));
        least += held_up_in(schedule, false) > 0;
        free_all();
    }
    cr_assert_geq(least, 3, "%d", least);
}
