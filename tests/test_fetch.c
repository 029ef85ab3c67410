/* Which weights are fetched, against an exhaustive search over all evictions. */
#include "../compiler/lower.h"
#include "random_spec.h"
#include <criterion/criterion.h>

static bool named_home(const struct spec *sp, int stage, int rank) {
    for (int j = 0; j < sp->njobs; j++)
        if (sp->job[j].s == stage && sp->job[j].home == rank)
            return true;
    return false;
}

static bool travels(const struct spec *sp, const struct job *j) {
    return j->d != OP_W && !named_home(sp, j->s, j->rank); /* W reads its wstash only */
}

/* Fewest fetches for these uses (stages) with `slots` slots: all sets of stages that may be held, use by use. */
static int fewest(const int *use, int n, int stages, int slots) {
    enum { SETS = 64, FAR = 1 << 20 };
    int cost[SETS], next[SETS];
    if (slots == 0)
        return n;
    for (int m = 0; m < SETS; m++)
        cost[m] = m ? FAR : 0;
    for (int i = 0; i < n; i++) {
        int bit = 1 << use[i];
        for (int m = 0; m < SETS; m++)
            next[m] = FAR;
        for (int m = 0; m < SETS; m++) {
            int miss = cost[m] + 1;
            if (m & bit)
                next[m] = cost[m] < next[m] ? cost[m] : next[m];
            else if (__builtin_popcount((unsigned)m) < slots)
                next[m | bit] = miss < next[m | bit] ? miss : next[m | bit];
            for (int v = 0; !(m & bit) && v < stages; v++)
                if (m >> v & 1) {
                    int to = (m & ~(1 << v)) | bit;
                    next[to] = miss < next[to] ? miss : next[to];
                }
        }
        memcpy(cost, next, sizeof cost);
    }
    int best = FAR;
    for (int m = 0; m < SETS; m++)
        best = cost[m] < best ? cost[m] : best;
    return best;
}

/* One rank's fetches: as few as can be, numbered per stage, each used as often as it says and never after it left. */
static int check_rank(const struct spec *sp, const struct sched *sc, const struct fetches *f, int r) {
    int use[300], nuse = 0, nfetch = 0, last = -1;
    int32_t *insts = NEW(int32_t, sp->stages), *uses = NEW(int32_t, f->n + 1), *place = NEW(int32_t, sp->njobs);
    int *opens = NEW(int, f->n + 1), *ends = NEW(int, f->n + 1);
    for (int i = 0; i < sc->norder[r]; i++) {
        int32_t j = sc->order[r][i], of = f->of_job[j];
        const struct job *job = &sp->job[j];
        place[j] = i;
        if (!travels(sp, job)) {
            cr_assert_eq(of, -1);
            continue;
        }
        use[nuse++] = job->s;
        cr_assert(of >= 0 && f->a[of].rank == r && f->a[of].stage == job->s && named_home(sp, job->s, f->a[of].home));
        if (!uses[of]++) { /* fetched in the order of first use */
            cr_assert_gt(of, last);
            last = of;
            nfetch++;
            cr_assert_eq(f->a[of].inst, insts[job->s]++);
            cr_assert_eq(f->a[of].home, job->home);
            opens[of] = f->a[of].after < 0 ? -1 : place[f->a[of].after];
        }
        ends[of] = i;
    }
    int limit = sp->slots[r] > 0 ? sp->slots[r] : 1;
    for (int i = -1; i < sc->norder[r]; i++) { /* once job i has ended: what has come and is yet to be used */
        int held = 0;
        for (int k = 0; k < f->n; k++)
            held += uses[k] && opens[k] <= i && ends[k] > i;
        cr_assert_leq(held, limit);
    }
    for (int k = 0; k < f->n; k++) { /* it comes as soon as a slot is free: until then all are held */
        int held = 0;
        for (int o = 0; o < f->n; o++)
            held += uses[o] && opens[o] < opens[k] && ends[o] >= opens[k];
        cr_assert(!uses[k] || opens[k] < 0 || held == limit);
    }
    for (int k = 0; k < f->n; k++)
        cr_assert(f->a[k].rank != r || uses[k] == f->a[k].uses);
    cr_assert_eq(nfetch, fewest(use, nuse, sp->stages, sp->slots[r]), "rank %d, %d slots", r, sp->slots[r]);
    return nfetch;
}

Test(fetch, as_few_as_can_be) {
    int total = 0;
    for (int seed = 0; seed < 300; seed++) {
        struct spec *sp = draw_spec((uint64_t)seed, 0);
        struct sched *sc = sched_run(sp, unit_stages(sp), graph_build(sp));
        struct homes h = homes_of(sp);
        for (int s = 0; s < sp->stages; s++)
            for (int r = 0; r < sp->workers; r++)
                cr_assert_eq(is_home(&h, s, r), named_home(sp, s, r));
        struct fetches f = fetch_plan(sp, sc, &h);
        int n = 0, listed = 0;
        for (int r = 0; r < sp->workers; r++)
            n += check_rank(sp, sc, &f, r);
        cr_assert_eq(f.n, n);
        for (int j = 0; f.n && j <= sp->njobs; j++)
            for (int k = f.after[j]; k >= 0; k = f.next[k], listed++)
                cr_assert_eq(f.a[k].after, j == sp->njobs ? -1 : j);
        cr_assert_eq(listed, f.n);
        total += n;
        free_all();
    }
    cr_assert_gt(total, 1000);
}

/* Rank 1 runs 0F0 1F0 2F0 0F1 1F1 2F1, all weights and backwards at home on rank 0. */
static struct fetches three_stages_twice(int slots, struct spec **spec) {
    struct spec *sp = *spec = empty_spec(2, 3, 2);
    for (int s = 0; s < 3; s++)
        for (int b = 0; b < 2; b++) {
            add_job(sp, s, b, OP_F, 0, 1);
            add_job(sp, s, b, OP_B, 0, 0);
        }
    sp->slots[1] = slots;
    struct homes h = homes_of(sp);
    return fetch_plan(sp, sched_run(sp, unit_stages(sp), graph_build(sp)), &h);
}

static void expect_fetch(const struct spec *sp, const struct fetch *f, int stage, int inst, int uses,
                         const char *after) {
    const struct job *j = f->after < 0 ? NULL : &sp->job[f->after];
    cr_assert(f->rank == 1 && f->home == 0 && f->stage == stage && f->inst == inst && f->uses == uses);
    cr_assert_str_eq(j ? job_name(j->s, j->b, j->d) : "", after);
}

/* Of stages 0 and 1, 1 is needed later: 2 takes its place, and 1 comes again in place of 0, which is needed no more. */
Test(fetch, belady_by_hand) {
    struct spec *sp;
    struct fetches f = three_stages_twice(2, &sp);
    cr_assert_eq(f.n, 4);
    expect_fetch(sp, &f.a[0], 0, 0, 2, "");
    expect_fetch(sp, &f.a[1], 1, 0, 1, "");
    expect_fetch(sp, &f.a[2], 2, 0, 2, "1F0");
    expect_fetch(sp, &f.a[3], 1, 1, 1, "0F1");
    cr_assert_eq(three_stages_twice(0, &sp).n, 6);
    cr_assert_eq(three_stages_twice(1, &sp).n, 6);
    cr_assert_eq(three_stages_twice(3, &sp).n, 3);
}

/* No slot: the weights are fetched for every job, even for the same stage again. */
Test(fetch, without_slots_every_job_fetches) {
    struct spec *sp = empty_spec(2, 1, 2);
    for (int b = 0; b < 2; b++) {
        add_job(sp, 0, b, OP_F, 0, 1);
        add_job(sp, 0, b, OP_I, 0, 1);
        add_job(sp, 0, b, OP_W, 0, 1);
    }
    struct homes h = homes_of(sp);
    struct sched *sc = sched_run(sp, unit_stages(sp), graph_build(sp));
    cr_assert_eq(fetch_plan(sp, sc, &h).n, 1);
    sp->slots[1] = 0;
    cr_assert_eq(fetch_plan(sp, sc, &h).n, 4, "F and I of two microbatches; W reads no weights");
}
