/* Compares the kept sets with an exhaustive search over all sets that could be held, turn by turn. */
#include "passes/residency.h"
#include "random_spec.h"
#include <criterion/criterion.h>

enum { SETS = 6, TURNS = 14, FAR = 1 << 28 };

struct drawn {
    struct residency_problem p;
    int64_t size[SETS], fetch[SETS], room[TURNS];
    struct residency_use use[SETS * TURNS];
    int in_use[TURNS]; /* bits of sets */
};

enum { EQUAL = 1, BYTES = 2, PARTS = 4 }; /* PARTS: a part of each set is already here, and need not come in */

static void draw(struct drawn *d, int seed, int how) {
    random_state = (uint64_t)seed * 77 + (uint64_t)how;
    *d = (struct drawn){.p = {.sets = 2 + below(SETS - 1), .turns = 3 + below(TURNS - 2)}};
    int one = 1 + below(9);
    for (int s = 0; s < d->p.sets; s++) {
        d->size[s] = how & EQUAL ? one : 1 + below(9);
        d->fetch[s] = how & PARTS ? d->size[s] * (1 + below(4)) : 4 * d->size[s];
    }
    for (int t = 0; t < d->p.turns; t++) {
        for (int n = below(4) ? 1 : below(3); n > 0; n--)
            d->in_use[t] |= 1 << below(d->p.sets);
        for (int s = 0; s < d->p.sets; s++)
            if (d->in_use[t] >> s & 1)
                d->use[d->p.nuses++] = (struct residency_use){t, s};
        d->room[t] = 4 + below(26);
    }
    d->p.slots = 1 + below(how & BYTES ? 6 : 4);
    d->p.size = d->size;
    d->p.fetch = d->fetch;
    d->p.use = d->use;
    d->p.room = how & BYTES ? d->room : NULL;
}

/* Returns whether the sets `held` may be there in turn t: what is in use always may, if nothing else is. */
static bool holds(const struct drawn *d, int held, int t) {
    int64_t bytes = 0;
    for (int s = 0; s < d->p.sets; s++)
        bytes += held >> s & 1 ? d->size[s] : 0;
    return held == d->in_use[t] ||
           (__builtin_popcount((unsigned)held) <= d->p.slots && (!d->p.room || bytes <= d->room[t]));
}

static int64_t least(const struct drawn *d) {
    int64_t cost[1 << SETS], next[1 << SETS], best = FAR;
    for (int m = 0; m < 1 << SETS; m++)
        cost[m] = m ? FAR : 0;
    for (int t = 0; t < d->p.turns; t++) {
        for (int m = 0; m < 1 << SETS; m++)
            next[m] = FAR;
        for (int m = 0; m < 1 << d->p.sets; m++)
            for (int kept = m; cost[m] < FAR; kept = (kept - 1) & m) { /* every subset of what was held */
                int64_t sum = cost[m];
                for (int s = 0; s < d->p.sets; s++)
                    sum += (d->in_use[t] & ~kept) >> s & 1 ? d->fetch[s] : 0;
                int held = kept | d->in_use[t];
                if (holds(d, held, t) && sum < next[held])
                    next[held] = sum;
                if (!kept)
                    break;
            }
        memcpy(cost, next, sizeof cost);
    }
    for (int m = 0; m < 1 << SETS; m++)
        best = cost[m] < best ? cost[m] : best;
    return best;
}

/* Checks that the sets reported as kept can be kept, and that the reported number of bytes comes in. */
static void check_kept(const struct drawn *d, const struct residency *x) {
    int64_t sum = 0;
    int held[TURNS] = {0}, last[SETS];
    memset(last, -1, sizeof last);
    for (int i = 0; i < d->p.nuses; i++) {
        int s = d->use[i].set, t = d->use[i].turn;
        cr_assert(!x->kept[i] || last[s] >= 0);
        sum += x->kept[i] ? 0 : d->fetch[s];
        for (int u = x->kept[i] ? last[s] : t; u <= t; u++)
            held[u] |= 1 << s;
        last[s] = t;
    }
    for (int t = 0; t < d->p.turns; t++)
        cr_assert(holds(d, held[t], t), "turn %d", t);
    cr_assert_eq(sum, x->received);
}

Test(residency, the_least_bytes) {
    static const int hows[] = {0, EQUAL, PARTS, BYTES, BYTES | EQUAL, BYTES | PARTS, BYTES | PARTS | EQUAL};
    for (size_t h = 0; h < sizeof hows / sizeof *hows; h++) {
        int kept = 0;
        for (int seed = 0; seed < 3000; seed++) {
            struct drawn d;
            draw(&d, seed, hows[h]);
            struct residency x = residency_solve(&d.p);
            check_kept(&d, &x);
            cr_assert_eq(x.received, least(&d), "seed %d of %d: %lld", seed, hows[h], (long long)x.received);
            cr_assert_eq(x.bound, x.received, "seed %d of %d: %lld", seed, hows[h], (long long)x.bound);
            for (int i = 0; i < d.p.nuses; i++)
                kept += x.kept[i];
            free_all();
        }
        cr_assert_gt(kept, 3000);
    }
}

/* Too large to search: the kept sets still fit, and no bound exceeds the bytes that come in. */
Test(residency, beyond_the_search_a_bound_and_a_gap) {
    enum { MANY = 40, USES = 2000 };
    static int64_t size[MANY], room[USES];
    static struct residency_use use[USES];
    int gaps = 0;
    for (int seed = 0; seed < 20; seed++) {
        random_state = (uint64_t)seed;
        for (int s = 0; s < MANY; s++)
            size[s] = 100 + below(1000);
        for (int i = 0; i < USES; i++) {
            use[i] = (struct residency_use){i, below(MANY)};
            room[i] = 4000 + below(6000);
        }
        struct residency_problem p = {MANY, USES, USES, use, size, size, MANY, room};
        struct residency x = residency_solve(&p);
        int64_t held[USES] = {0};
        int last[MANY];
        for (int i = 0; i < USES; i++) {
            for (int t = x.kept[i] ? last[use[i].set] + 1 : i; t <= i; t++)
                held[t] += size[use[i].set];
            last[use[i].set] = i;
        }
        for (int i = 0; i < USES; i++)
            cr_assert_leq(held[i], room[i]);
        cr_assert_leq(x.bound, x.received);
        cr_assert_lt((double)x.received, 1.05 * (double)x.bound, "seed %d: %lld, %lld", seed, (long long)x.received,
                     (long long)x.bound);
        gaps += x.bound < x.received;
        free_all();
    }
    cr_assert_gt(gaps, 10);
}
