/* Compares the fetched weights with an exhaustive search over all evictions. */
#include "lowered.h"
#include "random_spec.h"
#include <criterion/criterion.h>

/* Returns whether the rank has the whole set at home: w() names it alone. The table is at home where stage 0 is. */
static bool named_home(const struct spec *sp, int set, int rank) {
    for (int j = 0; j < sp->njobs; j++)
        if (sp->job[j].s == (set == sp->stages ? 0 : set) && sp->job[j].home == rank)
            return true;
    return false;
}

/* Returns the sets that a job reads and its rank must fetch, as bits. W reads only its wstash. */
static int travels(const struct spec *sp, const struct job *j) {
    bool table =
        sp->names.tables > 0 && ((j->s == 0 && (j->d == OP_F || j->d == OP_R)) || j->s == costs_of(sp)->unembedding);
    int bits = named_home(sp, j->s, j->rank) ? 0 : 1 << j->s;
    if (table && !named_home(sp, sp->stages, j->rank))
        bits |= 1 << sp->stages;
    return j->d == OP_W ? 0 : bits;
}

/* Returns the cost of fetching these sets (bits). */
static int price(int bits, const int *bytes) {
    int sum = 0;
    for (int s = 0; bits >> s; s++)
        sum += bits >> s & 1 ? bytes[s] : 0;
    return sum;
}

/* Returns the least cost of these uses (bits of sets) with `slots` slots; tries all sets that may be held. */
static int fewest(const int *use, int n, int sets, int slots, const int *bytes) {
    enum { SETS = 128, FAR = 1 << 20 };
    int cost[SETS], next[SETS], all = 0;
    for (int i = 0; i < n; i++)
        all += price(use[i], bytes);
    if (slots == 0)
        return all;
    for (int m = 0; m < SETS; m++)
        cost[m] = m ? FAR : 0;
    for (int i = 0; i < n; i++) {
        for (int m = 0; m < SETS; m++)
            next[m] = FAR;
        for (int m = 0; m < 1 << sets; m++)
            for (int kept = m; cost[m] < FAR; kept = (kept - 1) & m) { /* every subset of what is held */
                int to = kept | use[i], missed = cost[m] + price(use[i] & ~m, bytes);
                if (__builtin_popcount((unsigned)to) <= slots && missed < next[to])
                    next[to] = missed;
                if (!kept)
                    break;
            }
        memcpy(cost, next, sizeof cost);
    }
    int best = FAR;
    for (int m = 0; m < SETS; m++)
        best = cost[m] < best ? cost[m] : best;
    return best;
}

/* Sets the cost of each set for the rank: 1, or its bytes minus the rank's own shard. */
static void find_prices(const struct spec *sp, int r, int *bytes) {
    for (int s = 0; s < sp->stages + sp->names.sets; s++) {
        bytes[s] = costs_of(sp)->stage ? (int)costs_of(sp)->stage[s].bytes[K_weight] : 1;
        const struct homes *homes = &costs_of(sp)->homes[s];
        for (int i = 0; i < homes->lists * homes->size; i++)
            if (costs_of(sp)->stage && homes->rank[i] == r && homes->size > 1)
                bytes[s] -= (int)costs_of(sp)->stage[s].bytes[K_weight] / homes->size;
    }
}

/* Checks one rank's fetches: the fewest, numbered per set, each used as often as stated, never after eviction. */
static int check_rank(const struct spec *sp, const struct sched *sc, const struct fetches *f, int r) {
    int use[300], nuse = 0, nfetch = 0, last = -1, sets = sp->stages + sp->names.sets, widest = 1, turn = -1;
    int32_t *insts = NEW(int32_t, sets), *uses = NEW(int32_t, f->n + 1), *place = NEW(int32_t, sp->njobs);
    int *opens = NEW(int, f->n + 1), *ends = NEW(int, f->n + 1), bytes[8], sum = 0;
    for (int i = 0; i < sc->norder[r]; i++) {
        int32_t j = sc->order[r][i];
        const struct job *job = &sp->job[j];
        int bits = travels(sp, job), before = i > 0 ? travels(sp, &sp->job[sc->order[r][i - 1]]) : 0;
        bool second = i > 0 && partner_of(sp, sc->order[r][i - 1]) == j; /* it shares the turn of the first */
        place[j] = turn += !second;
        if (second && bits && before)
            use[nuse - 1] |= bits;
        else if (bits)
            use[nuse++] = bits;
        int at_once = nuse ? __builtin_popcount((unsigned)use[nuse - 1]) : 0;
        widest = at_once > widest ? at_once : widest;
        for (int which = 0; which < NSETS; which++) {
            int set = which == SET_OWN ? job->s : sp->stages;
            int32_t of = f->of_job[j * NSETS + which];
            if (which == SET_SHARED || !(bits >> set & 1)) {
                cr_assert_eq(of, -1);
                continue;
            }
            cr_assert(of >= 0 && f->a[of].rank == r && f->a[of].set == set);
            if (!uses[of]++) { /* fetches follow the order of first use */
                cr_assert_gt(of, last);
                last = of;
                nfetch++;
                cr_assert_eq(f->a[of].inst, insts[set]++);
                cr_assert(which == SET_TABLE || f->a[of].home == job->home);
                cr_assert_eq(f->a[of].first, j);
                opens[of] = f->a[of].after < 0 ? -1 : place[f->a[of].after];
            }
            ends[of] = turn;
        }
    }
    int limit =
        sp->choices.slots[r] > widest ? sp->choices.slots[r] : widest; /* concurrent jobs get as many as they read */
    for (int i = -1; i <= turn; i++) { /* after the jobs of turn i: fetched sets that are still needed */
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
    find_prices(sp, r, bytes);
    for (int k = 0; k < f->n; k++)
        sum += uses[k] ? bytes[f->a[k].set] : 0;
    cr_assert_eq(sum, fewest(use, nuse, sets, sp->choices.slots[r] ? limit : 0, bytes), "rank %d, %d slots", r,
                 sp->choices.slots[r]);
    cr_assert_eq(sum, f->least[r]);
    return nfetch;
}

/* Tries sets of equal sizes, then of unequal ones. */
Test(fetch, as_few_as_can_be) {
    int total = 0;
    for (int seed = 0; seed < 1600; seed++) {
        static const int flags[] = {0, 0, 0, TIED, TIED | PAIRS, TIED | PAIRS, SHARDED, SHARDED | TIED};
        struct spec *sp = draw_spec((uint64_t)seed, flags[seed / 100 % 8]);
        struct costs *costs = seed < 800 ? unit_stages(sp) : (draw_stages(sp));
        struct sched *sc = sched_of(sp, costs, graph_of(sp));
        struct fetches f = fetch_of(sp, sc, home_places(costs_of(sp)));
        int n = 0;
        for (int r = 0; r < sp->workers; r++)
            n += check_rank(sp, sc, &f, r);
        cr_assert_eq(f.n, n);
        total += n;
        free_all();
    }
    cr_assert_gt(total, 2000);
}

/* Rank 1 runs 0F0 1F0 2F0 0F1 1F1 2F1; all weights and backwards are at home on rank 0. */
static struct fetches three_stages_twice(int slots, struct spec **spec) {
    struct spec *sp = *spec = empty_spec(2, 3, 2);
    for (int s = 0; s < 3; s++)
        for (int b = 0; b < 2; b++) {
            add_job(sp, s, b, OP_F, 0, 1);
            add_job(sp, s, b, OP_B, 0, 0);
        }
    sp->choices.slots[1] = slots;
    struct sched *sc = sched_of(sp, unit_stages(sp), graph_of(sp));
    return fetch_of(sp, sc, home_places(costs_of(sp)));
}

static void expect_fetch(const struct spec *sp, const struct fetch *f, int stage, int inst, int uses,
                         const char *after) {
    const struct job *j = f->after < 0 ? NULL : &sp->job[f->after];
    cr_assert(f->rank == 1 && f->home == 0 && f->set == stage && f->inst == inst && f->uses == uses);
    cr_assert_str_eq(j ? job_name(NULL, j->s, j->b, j->d) : "", after);
}

/* Stage 1 is needed later than stage 0, so 2 replaces it. Later 1 replaces 0, which is no longer needed. */
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

/* Without slots, weights are fetched for every job, even for the same stage again. */
Test(fetch, without_slots_every_job_fetches) {
    struct spec *sp = empty_spec(2, 1, 2);
    for (int b = 0; b < 2; b++) {
        add_job(sp, 0, b, OP_F, 0, 1);
        add_job(sp, 0, b, OP_I, 0, 1);
        add_job(sp, 0, b, OP_W, 0, 1);
    }
    struct sched *sc = sched_of(sp, unit_stages(sp), graph_of(sp));
    cr_assert_eq(fetch_of(sp, sc, home_places(costs_of(sp))).n, 1);
    sp->choices.slots[1] = 0;
    cr_assert_eq(fetch_of(sp, sc, home_places(costs_of(sp))).n, 4, "F and I of two microbatches; W reads no weights");
}

/* A token table: stages 0 and 1 and the table are at home on rank 0, all jobs on rank 1. F of stage 0 and F and B of
 * stage 1 read the table besides their own weights, B of stage 0 does not. With one slot they still get two. */
Test(fetch, a_table_by_hand) {
    struct spec *sp = empty_spec(2, 2, 1);
    for (int s = 0; s < 2; s++) {
        add_job(sp, s, 0, OP_F, 0, 1);
        add_job(sp, s, 0, OP_B, 0, 1);
    }
    costs_of(sp)->unembedding = 1;
    name_sets(&sp->names, sp->stages, true, false);
    struct sched *sc = sched_of(sp, unit_stages(sp), graph_of(sp)); /* 0F0 1F0 1B0 0B0 */
    static const int fetches[] = {7, 4, 4, 3};
    for (int slots = 0; slots < 4; slots++) {
        sp->choices.slots[1] = slots;
        cr_assert_eq(fetch_of(sp, sc, home_places(costs_of(sp))).n, fetches[slots], "%d slots", slots);
    }
    sp->choices.slots[1] = 1;
    struct fetches f = fetch_of(sp, sc, home_places(costs_of(sp)));
    expect_fetch(sp, &f.a[0], 0, 0, 1, "");
    expect_fetch(sp, &f.a[1], 2, 0, 3, ""); /* the table, kept for 1F0 and 1B0 */
    expect_fetch(sp, &f.a[2], 1, 0, 2, "0F0");
    expect_fetch(sp, &f.a[3], 0, 1, 1, "1B0");
}
