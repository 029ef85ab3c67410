/* Programs with their period or step written out several times, against the judge's, which identifies buffers by their
 * bytes; and their times against a relaxation of everything that an instruction waits for. */
#include "cli/pipeline.h"
#include "compiler.h"
#include "judge.h"
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

/* Compiles for a cluster; links are free, or take a unit per byte on both sides of a message at once. */
static struct compile compiled_for(const char *cluster, const char *schedule, const char *a, const char *b) {
    const char **set = NEW(const char *, 3);
    int n = 0;
    if (cluster)
        set[n++] = "bandwidth=1";
    if (a)
        set[n++] = a;
    if (b)
        set[n++] = b;
    struct compile c = {.args = {.schedule = schedule, .cluster = cluster, .set = set, .nset = n}};
    compile_all(&c, "");
    return c;
}

static struct compile compiled(const char *schedule, const char *a, const char *b) {
    return compiled_for(NULL, schedule, a, b);
}

/* Checks that each buffer of one program always corresponds to the same one of the other, with the same tensor. */
static void expect_same_buffers(const struct rank *k, const struct rank *l, const struct instr *x,
                                const struct instr *y, int32_t *twin) {
    cr_assert_eq(x->narg, y->narg);
    for (int a = 0; a < x->narg; a++) {
        const struct arg *p = &k->arg[x->arg + (uint32_t)a], *q = &l->arg[y->arg + (uint32_t)a];
        const struct buf *b = &k->buf[p->buf], *c = &l->buf[q->buf];
        cr_assert_eq(p->role, q->role);
        cr_assert(b->kind == c->kind && b->stage == c->stage && b->batch == c->batch && b->bytes == c->bytes);
        if (b->kind == K_wgrad)
            cr_assert_eq(b->inst, c->inst);
        if (twin[p->buf] < 0)
            twin[p->buf] = q->buf;
        cr_assert_eq(twin[p->buf], q->buf, "%s", short_name(NULL, x));
    }
}

static void expect_judges(const struct program *p, int times) {
    const struct program *ours = unroll_program(p, times), *judges = unroll(p, times);
    cr_assert_eq(ours->batches, judges->batches);
    for (int r = 0; r < p->workers; r++) {
        const struct rank *k = &ours->rank[r], *l = &judges->rank[r];
        int32_t *twin = NEW(int32_t, k->nbufs), *back = NEW(int32_t, l->nbufs);
        memset(twin, -1, sizeof *twin * (size_t)k->nbufs);
        memset(back, -1, sizeof *back * (size_t)l->nbufs);
        cr_assert_eq(k->nins, l->nins);
        for (int32_t i = 0; i < k->nins; i++) {
            const struct instr *x = &k->ins[i], *y = &l->ins[i];
            cr_assert(x->op == y->op && x->stage == y->stage && x->batch == y->batch && x->peer == y->peer);
            cr_assert(x->inst == y->inst || op_row(x->op)->tensor == K_weight, "%s: %d, %d", short_name(NULL, x),
                      x->inst, y->inst);       /* fetched weights may have any numbers */
            cr_assert_leq(x->nwait, y->nwait); /* the judge has waits instead of joins */
            expect_same_buffers(k, l, x, y, twin);
            expect_same_buffers(l, k, y, x, back);
        }
    }
}

static const char *const asynchronous[][2] = {
    {"schedules/pipedream.lua", NULL},
    {"schedules/pipedream.lua", "replicas=2,1"},
    {"schedules/pipedream.lua", "replicas=7,1"},
    {"schedules/pipedream_vertical.lua", NULL},
    {"schedules/pipedream_naive.lua", NULL},
    {"schedules/pipedream_2bw.lua", NULL},
    {"schedules/asp.lua", NULL},
    {"schedules/bsp.lua", NULL},
};
enum { NASYNCHRONOUS = sizeof asynchronous / sizeof *asynchronous };

Test(unroll, periods_are_as_the_judge_writes_them) {
    for (int i = 0; i < NASYNCHRONOUS; i++) {
        struct compile c = compiled(asynchronous[i][0], "batches=1680", asynchronous[i][1]);
        cr_assert_gt(c.program->period, 0, "%s", asynchronous[i][0]);
        for (int times = 1; times <= 4; times++)
            expect_judges(c.program, times);
        free_all();
    }
}

/* ---- times ---- */

/* Returns the earliest start of an instruction, ignoring the other sides of its message. */
static double earliest(const struct program *p, const struct timeline *tl, int r, int32_t i, int32_t before) {
    const struct rank *k = &p->rank[r];
    const struct instr *x = &k->ins[i];
    double t = before >= 0 ? tl->end[r][before] : 0;
    for (uint32_t w = x->wait; w < x->wait + x->nwait; w++)
        t = fmax(t, tl->end[r][k->wait[w]]);
    for (int n = 0; n < joins_of(p); n++)
        for (int32_t j = 0; join_at(p, k, n) <= i && j < join_at(p, k, n); j++)
            t = fmax(t, tl->end[r][j]);
    return t;
}

static void expect_earliest(const struct program *p, const struct timeline *tl) {
    double *meet = NEW(double, p->nmsgs);
    for (int way = 0; way < 2; way++) /* first all sides of a message */
        for (int r = 0; r < p->workers; r++) {
            const struct rank *k = &p->rank[r];
            int32_t *before = NEW(int32_t, k->nlanes);
            memset(before, -1, sizeof *before * (size_t)k->nlanes);
            for (int32_t i = 0; i < k->nins; before[k->ins[i].lane] = i, i++) {
                double t = earliest(p, tl, r, i, before[k->ins[i].lane]);
                int msg = k->ins[i].msg;
                if (msg >= 0)
                    t = meet[msg] = fmax(meet[msg], t);
                if (way == 1)
                    cr_assert_float_eq(tl->start[r][i], t, 1e-9, "%s of rank %d: %g, not %g",
                                       short_name(NULL, &k->ins[i]), r, tl->start[r][i], t);
            }
        }
}

Test(unroll, every_instruction_starts_as_soon_as_it_can) {
    static const char *const flush[] = {"schedules/1f1b.lua",   "schedules/zb_h1.lua",  "schedules/zb_h2.lua",
                                        "schedules/zbv.lua",    "schedules/lpp.lua",    "schedules/apart.lua",
                                        "schedules/cuckoo.lua", "schedules/weipipe.lua"};
    for (int i = 0; i < 2 * (NASYNCHRONOUS + 8); i++) {
        const char *links = i % 2 ? "schedules/clusters/latency.lua" : NULL;
        bool steps = i / 2 >= NASYNCHRONOUS;
        struct compile c = steps ? compiled_for(links, flush[i / 2 - NASYNCHRONOUS], NULL, NULL)
                                 : compiled_for(links, asynchronous[i / 2][0], "batches=1680", asynchronous[i / 2][1]);
        for (int times = 1; times <= 4; times++) {
            const struct program *p = unroll_program(c.program, times);
            struct timeline *tl = sim_unrolled(&c, times);
            expect_earliest(p, tl);
            cr_assert(times > 1 || tl->makespan == c.timeline->makespan);
        }
        free_all();
    }
}

/* All repetitions written out end the step when predicted. PipeDream in closed form: N microbatches of P stages take
 * 3 (N + P - 1). */
Test(unroll, a_whole_step_ends_as_foretold) {
    for (int P = 2; P <= 4; P++) {
        static const char *const replicas[] = {"replicas=1,1", "replicas=1,1,1", "replicas=1,1,1,1"};
        struct compile c = compiled("schedules/pipedream.lua", "batches=240", replicas[P - 2]);
        struct timeline *tl = sim_unrolled(&c, (int)c.program->repeats);
        cr_assert_eq(tl->makespan, 3 * (240 + P - 1));
        cr_assert_eq(c.timeline->step, tl->makespan);
        free_all();
    }
}

/* ZB-H2 (Qi 2023) has no bubble between steps. Its ranks begin each step 24 units after the previous one. */
Test(unroll, steps_of_zb_h2_do_not_join) {
    struct compile c = compiled("schedules/zb_h2.lua", NULL, NULL);
    struct program *p = unroll_program(c.program, 5);
    struct timeline *tl = sim_unrolled(&c, 5);
    cr_assert_eq(tl->makespan, 27 + 4 * 24);
    cr_assert_eq(joins_of(p), 6);
    for (int r = 0; r < 4; r++) {
        const double *join = join_times(p, tl, r);
        cr_assert_eq(join[0], 0);
        for (int i = 1; i < 5; i++)
            cr_assert_eq(join[i + 1] - join[i], 24, "rank %d", r);
    }
    int jobs = 0; /* every microbatch of every step, once */
    bool seen[4][40][3] = {{{0}}};
    for (int r = 0; r < 4; r++)
        for (int32_t i = 0; i < p->rank[r].nins; i++) {
            const struct instr *x = &p->rank[r].ins[i];
            int d = x->op == OP_F ? 0 : x->op == OP_I ? 1 : 2;
            if (!is_job(x->op))
                continue;
            cr_assert(!seen[x->stage][x->batch][d]);
            seen[x->stage][x->batch][d] = true;
            jobs++;
        }
    cr_assert_eq(jobs, 4 * 40 * 3);
}

/* The drawn memory is within the plan, and each later repetition equals the first. */
Test(unroll, memory_in_use_is_that_of_a_step) {
    struct compile c = compiled("schedules/pipedream.lua", "batches=2400", NULL);
    struct program *p = unroll_program(c.program, 6);
    struct timeline *tl = sim_unrolled(&c, 6);
    for (int r = 0; r < 4; r++) {
        struct usage once = memory_use(&c.program->rank[r], c.timeline->start[r], c.timeline->end[r]);
        struct usage all = memory_use(&p->rank[r], tl->start[r], tl->end[r]);
        int64_t most[2] = {0, 0};
        for (int i = 0; i < once.n; i++)
            most[0] = once.at[i].bytes > most[0] ? once.at[i].bytes : most[0];
        for (int i = 0; i < all.n; i++)
            most[1] = all.at[i].bytes > most[1] ? all.at[i].bytes : most[1];
        cr_assert_eq(most[0], most[1], "rank %d: %lld, %lld", r, (long long)most[0], (long long)most[1]);
        cr_assert_eq(once.at[once.n - 1].bytes, all.at[all.n - 1].bytes);
    }
}

/* If every instruction starts as soon as another ends, the path has no gap from the end to the beginning. With links
 * that take time, steps begin when a rank's last message has left. */
Test(unroll, the_critical_path_crosses_joins) {
    static const char *const schedules[] = {"schedules/zb_h2.lua", "schedules/1f1b.lua", "schedules/apart.lua",
                                            "schedules/cuckoo.lua", "schedules/weipipe.lua"};
    for (int i = 0; i < 10; i++) {
        const char *links = i % 2 ? "schedules/clusters/latency.lua" : NULL;
        struct compile c = compiled_for(links, schedules[i / 2], NULL, NULL);
        struct program *p = unroll_program(c.program, 3);
        struct timeline *tl = sim_unrolled(&c, 3);
        bool **on = critical_path(p, tl);
        double took = 0;
        for (int r = 0; r < p->workers; r++)
            for (int32_t k = 0; k < p->rank[r].nins; k++)
                if (on[r][k] && !is_recv(p->rank[r].ins[k].op)) /* for a message, its SEND */
                    took += tl->end[r][k] - tl->start[r][k];
        cr_assert_eq(took, tl->makespan, "%s: %g of %g", schedules[i / 2], took, tl->makespan);
        free_all();
    }
}
