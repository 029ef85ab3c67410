/* Updates that are jobs: each job's version, judged by the text of the rules, and proofs of the programs. */
#include "passes/lower.h"
#include "passes/period.h"
#include "random_spec.h"
#include "verify/verify.h"
#include <criterion/criterion.h>

struct drawn {
    struct spec *sp;
    struct costs *costs;
    struct graph *g;
    struct sched *sc;
    struct program *p;
};

static void compile(void *with) {
    struct drawn *x = with;
    x->g = graph_of(x->sp);
    x->sc = sched_of(x->sp, x->costs, x->g);
    x->p = lower_of(x->sp, x->costs, x->g, x->sc);
    mem_of(x->sp, x->p);
    lanes_sync(x->p);
}

/* Returns the rank from which job j takes its weights. */
static int source_of_job(const struct spec *sp, const struct job *job) {
    return place_in(&costs_of(sp)->homes[job->s], job->rank) >= 0 ? job->rank : job->home;
}

/* Returns when version v of the job's stage reaches it: 0, or once its update has ended and the weights have arrived.
 * */
static double arrives(const struct drawn *x, const struct job *job, int v) {
    const struct spec *sp = x->sp;
    int from = source_of_job(sp, job);
    if (v == 0)
        return 0;
    for (int j = sp->njobs; j < costs_of(sp)->njobs; j++)
        if (x->costs->job[j].s == job->s && x->costs->job[j].b == v - 1 && x->costs->job[j].rank == from)
            return x->sc->end[j] + link_time(sp, from, job->rank, (double)x->costs->stage[job->s].bytes[K_weight]);
    return INFINITY;
}

/* Checks for the newest version that has arrived when j starts. If events coincide, order decides: both are right. */
static void expect_latest(const struct drawn *x, int j) {
    const struct job *job = &x->sp->job[j];
    int v = x->sc->version[j], newest = 0;
    double t = x->sc->start[j];
    while (arrives(x, job, newest + 1) < t)
        newest++;
    cr_assert(v >= newest && arrives(x, job, v) <= t, "%s reads version %d", job_name(NULL, job->s, job->b, job->d), v);
}

static void expect_version(const struct drawn *x, int j) {
    const struct spec *sp = x->sp;
    const struct job *job = &sp->job[j];
    int v = x->sc->version[j], rule = sp->updates.reads[j], m = sp->updates.every[job->s];
    int forward = job_at(sp, job->s, job->b, OP_F), input = job_at(sp, 0, job->b, OP_F);
    cr_assert(arrives(x, job, v) <= x->sc->start[j]);
    if (rule >= 0)
        cr_assert_eq(v, job->b / m - rule > 0 ? job->b / m - rule : 0);
    else if (rule == READ_FORWARD && j != forward)
        cr_assert_eq(v, x->sc->version[forward]);
    else if (rule == READ_INPUT && j != input)
        cr_assert_eq(v, x->sc->version[input] * sp->updates.every[0] / m);
    else
        expect_latest(x, j);
}

/* Checks that every home runs its updates in order, each after the backwards of its microbatches. */
static void expect_updates(const struct drawn *x) {
    const struct spec *sp = x->sp;
    for (int u = sp->njobs; u < costs_of(sp)->njobs; u++) {
        const struct job *job = &x->costs->job[u];
        int m = sp->updates.every[job->s];
        for (int b = job->b * m; b < (job->b + 1) * m; b++) {
            int back = job_at(sp, job->s, b, job_at(sp, job->s, b, OP_W) >= 0 ? OP_W : OP_B);
            double travel =
                link_time(sp, sp->job[back].rank, job->rank, (double)x->costs->stage[job->s].bytes[K_wgrad]);
            cr_assert(x->sc->start[u] >= x->sc->end[back] + travel);
        }
        if (job->b > 0)
            cr_assert(x->sc->start[u] >= x->sc->end[u - costs_of(sp)->homes[job->s].lists]);
    }
}

/* Returns the number of specs that compile: a random order may require a version that is made later. */
static int try_one(int first, int n, int flags) {
    int compiled = 0, versions = 0;
    for (int seed = first; seed < first + n; seed++) {
        struct scratch scratch = scratch_begin();
        struct drawn x = {.sp = draw_spec((uint64_t)seed, flags)};
        x.costs = draw_stages(x.sp);
        if (draw_updates(x.sp)) {
            const char *why = death_of(compile, &x);
            cr_assert(!why || strstr(why, "deadlock") || strstr(why, "pred() must say"), "seed %d: %s", seed, why);
            if (!why) {
                struct refutation *no = verify(costs_of(x.sp), x.g, x.p, CLAIM_ALL);
                cr_assert_null(no, "seed %d: %s", seed, no ? no->why : "");
                for (int j = 0; j < x.sp->njobs; j++)
                    if (x.sp->job[j].d != OP_W)
                        expect_version(&x, j);
                expect_updates(&x);
                compiled++;
                for (int r = 0; r < x.sp->workers; r++)
                    for (int b = 0; b < x.p->rank[r].nbufs; b++)
                        versions += is_copy_of_version(x.p, r, &x.p->rank[r].buf[b]);
            }
        }
        scratch_end(scratch);
    }
    cr_assert(versions > compiled / 4 || (flags & PAIRS && versions > 0));
    return compiled;
}

Test(versions, at_home) { cr_expect(try_one(1, 300, AT_HOME | CAPS) > 100); }
Test(versions, anywhere) { cr_expect(try_one(1000, 300, CAPS | LATENCY) > 100); }
Test(versions, messages_that_take_time) { cr_expect(try_one(2000, 300, BANDWIDTH | COARSE) > 100); }
Test(versions, pairs_orders_and_host_memory) { cr_expect(try_one(3000, 300, ORDERS | HOST | PAIRS) > 20); }
