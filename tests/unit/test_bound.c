/* check-bound against exhaustive search: tiny random instances whose optimum comes from enumerating all orders
 * (bound_instance.h). It must accept a cover of all states for the optimum, also without dominated states, and never
 * accept one tick more. */
#include "bound_instance.h"
#include "bound_verdict.h"
#include "search/bound/bound.h"
#include <criterion/criterion.h>
#include <stdlib.h>

#ifdef __SANITIZE_ADDRESS__
enum { INSTANCES = 400 };
#else
enum { INSTANCES = 3000 };
#endif
enum { MOST_TICKS = 64, MOST_AT_ONCE = 600 };

struct tiny_cover {
    int ticks;
    struct tiny_states at[MOST_TICKS];
};

/* Dominance rules: none, the right one, and wrong ones that lack one of its parts. */
enum { ALL, SOUND, LACKS_STARTS, LACKS_BUSY, LACKS_ROOM, RULES };

static int busy_until(const struct tiny *t, const struct tiny_state *x, int rank) {
    int until = 0;
    for (int c = 0; c < t->nclass; c++)
        for (int k = 0; k < x->n[c]; k++)
            if (t->class[c].rank == rank && x->start[c][k] + t->class[c].time > until)
                until = x->start[c][k] + t->class[c].time;
    return until;
}

static bool room_allows(const struct tiny *t, const struct tiny_state *z, const struct tiny_state *y, int rank) {
    int takers = 0, ahead = 0;
    for (int c = 0; c < t->nclass; c++)
        if (t->class[c].rank == rank && t->class[c].take) {
            takers++;
            ahead += z->n[c] > y->n[c];
        }
    return t->room[rank] < 0 || ahead == 0 || takers == 1;
}

static bool as_good(const struct tiny *t, const struct tiny_state *z, const struct tiny_state *y, int rule) {
    for (int c = 0; c < t->nclass; c++) {
        if (z->n[c] < y->n[c])
            return false;
        for (int k = 0; k < y->n[c] && rule != LACKS_STARTS; k++)
            if (z->start[c][k] > y->start[c][k])
                return false;
    }
    for (int k = 0; k < t->ranks; k++)
        if ((rule != LACKS_BUSY && busy_until(t, z, k) > busy_until(t, y, k)) ||
            (rule != LACKS_ROOM && !room_allows(t, z, y, k)))
            return false;
    return true;
}

/* Leaves out states dominated by those that stay. */
static void prune(const struct tiny *t, struct tiny_states *s, int rule) {
    for (size_t i = 0; i < s->n;) {
        bool left_out = false;
        for (size_t j = 0; j < s->n && !left_out; j++)
            left_out = j != i && !all_tiny_started(t, &s->a[j]) && as_good(t, &s->a[j], &s->a[i], rule);
        if (left_out)
            s->a[i] = s->a[--s->n];
        else
            i++;
    }
}

/* Collects all states before the limit, without dominated ones and their descendants. Returns false if too many. */
static bool all_states(const struct tiny *t, int limit, int rule, struct tiny_cover *v) {
    *v = (struct tiny_cover){.ticks = limit};
    if (limit > MOST_TICKS - 1)
        return false;
    GROW(v->at[0].a, v->at[0].cap, 1);
    v->at[0].a[v->at[0].n++] = (struct tiny_state){0};
    for (int tick = 0; tick < limit; tick++) {
        struct tiny_states *s = &v->at[tick];
        if (rule != ALL)
            prune(t, s, rule);
        for (size_t i = 0; i < s->n; i++)
            if (!all_tiny_started(t, &s->a[i])) {
                choose(&v->at[tick + 1], t, &s->a[i], s->a[i], 0);
                if (v->at[tick + 1].n > MOST_AT_ONCE)
                    return false;
            }
    }
    return true;
}

/* Writes the certificate. whole: includes the states in which nothing is left. */
static const char *text_of(const struct tiny *t, const struct tiny_cover *v, int limit, bool whole) {
    struct text text = {0}, states = {0};
    int n = 0;
    put_tiny(&text, t, limit);
    for (int tick = 0; tick < v->ticks; tick++)
        for (size_t i = 0; i < v->at[tick].n; i++)
            if (whole || !all_tiny_started(t, &v->at[tick].a[i])) {
                put_tiny_state(&states, t, &v->at[tick].a[i], tick);
                n++;
            }
    put(&text, "proof cover %d\n%send\n", n, states.s);
    return text.s;
}

static const char *cover_text(const struct tiny *t, const struct tiny_cover *v, int limit) {
    return text_of(t, v, limit, false);
}

static int tiny_verdict(const struct tiny *t, int limit, const char *proof) {
    struct text text = {0};
    put_tiny(&text, t, limit);
    put(&text, "proof %s\nend\n", proof);
    return verdict(text.s);
}

/* Returns a limit to claim if there is no schedule at all. */
static int claim(int best) { return best == NO_SCHEDULE ? 12 : best; }

static struct { int instances, impossible, pruned_states, states, lies, unreadable, tight[3]; } seen;

static void expect_accepted(const struct tiny *t, int best) {
    struct tiny_cover v;
    if (!all_states(t, claim(best), ALL, &v))
        return;
    const char *src = cover_text(t, &v, claim(best));
    cr_assert_eq(verdict(src), 1, "not accepted:\n%s", src);
    for (int i = 0; i < v.ticks; i++)
        seen.states += (int)v.at[i].n;
    cr_assert(all_states(t, claim(best), SOUND, &v));
    for (int i = 0; i < v.ticks; i++)
        seen.pruned_states += (int)v.at[i].n;
    src = cover_text(t, &v, claim(best));
    cr_assert_eq(verdict(src), 1, "not accepted without what is dominated:\n%s", src);
}

static void expect_refuted(const char *src, const char *what) {
    int result = verdict(src);
    seen.lies++;
    seen.unreadable += result < 0;
    cr_assert_neq(result, 1, "accepted %s:\n%s", what, src);
}

/* Changes some numbers of some states at random, adds states that do not exist, and leaves some out. */
static void lie(const struct tiny *t, struct tiny_cover *v, uint64_t *seed) {
    for (int n = 1 + random_below(seed, 4); n > 0; n--) {
        struct tiny_states *s = &v->at[1 + random_below(seed, v->ticks - 1)];
        if (s->n == 0)
            continue;
        struct tiny_state *x = &s->a[random_below(seed, (int)s->n)], y = *x;
        int c = random_below(seed, t->nclass), k = y.n[c] ? random_below(seed, y.n[c]) : 0;
        switch (random_below(seed, 5)) {
        case 0: *x = s->a[--s->n]; break;
        case 1: /* one more item, long ago */
            if (x->n[c] < t->class[c].items) {
                memmove(&x->start[c][1], &x->start[c][0], sizeof(int) * (size_t)x->n[c]);
                x->start[c][0] = LONG_AGO;
                x->n[c]++;
            }
            break;
        case 2: /* an earlier start */
            if (x->n[c])
                x->start[c][k] = LONG_AGO;
            break;
        case 3:
            if (x->n[c] && x->start[c][k] < -1 && x->start[c][k] != LONG_AGO)
                x->start[c][k]++;
            break;
        case 4: /* all items but one, long ago */
            for (int i = 0; i < t->nclass; i++)
                for (y.n[i] = 0; y.n[i] < t->class[i].items - (i == c); y.n[i]++)
                    y.start[i][y.n[i]] = LONG_AGO;
            GROW(s->a, s->cap, s->n + 1);
            s->a[s->n++] = y;
            break;
        }
    }
}

static const char *mutated(const char *src, uint64_t *seed) {
    char *s = copy_string(src);
    char *states = strstr(s, "at 0:");
    size_t n = strlen(states);
    for (int i = 1 + random_below(seed, 6); i > 0; i--) {
        size_t at = (size_t)random_below(seed, (int)n);
        if (states[at] >= '0' && states[at] <= '9')
            states[at] = (char)('0' + random_below(seed, 4));
    }
    return s;
}

static void expect_no_lie(const struct tiny *t, int best, uint64_t *seed) {
    struct tiny_cover v;
    for (int i = 0; i < 3; i++) {
        static const char *const proof[] = {"work", "path", "memory"};
        cr_assert_neq(tiny_verdict(t, best + 1, proof[i]), 1, "%s proves %d, but %d can be", proof[i], best + 1, best);
        seen.tight[i] += tiny_verdict(t, best, proof[i]) == 1;
    }
    for (int rule = ALL; rule < RULES; rule++) {
        if (!all_states(t, best + 1, rule, &v))
            continue;
        const char *src = cover_text(t, &v, best + 1);
        cr_assert_eq(verdict(src), 0, "not refuted, without what rule %d leaves out:\n%s", rule, src);
        for (int i = 0; i < 4; i++)
            expect_refuted(mutated(src, seed), "a tick too many, with other digits");
    }
    for (int i = 0; i < 12; i++) {
        bool whole = random_below(seed, 2);
        if (!all_states(t, best + 1, random_below(seed, RULES), &v))
            continue;
        lie(t, &v, seed);
        expect_refuted(text_of(t, &v, best + 1, whole), "a tick too many, with lies");
    }
}

Test(bound, brute_force) {
    uint64_t seed = 2026;
    for (int i = 0; i < INSTANCES; i++) {
        struct tiny t = draw_tiny(&seed);
        int best = optimum(&t);
        seen.instances++;
        seen.impossible += best == NO_SCHEDULE;
        expect_accepted(&t, best);
        if (best != NO_SCHEDULE)
            expect_no_lie(&t, best, &seed);
        free_all();
    }
    printf("%d instances, %d of them impossible; %d states, %d not dominated; %d lies, %d of them unreadable; tight by "
           "work %d, path %d, memory %d\n",
           seen.instances, seen.impossible, seen.states, seen.pruned_states, seen.lies, seen.unreadable, seen.tight[0],
           seen.tight[1], seen.tight[2]);
    cr_assert(seen.impossible < seen.instances / 2 && seen.pruned_states < seen.states && seen.lies > INSTANCES);
    cr_assert(seen.tight[0] > 0 && seen.tight[1] > 0 && seen.tight[2] > 0);
}

/* Changes, drops or repeats bytes, or cuts off the end: every text gets a verdict, or an error with its line. */
static const char *damaged(const char *src, uint64_t *seed) {
    struct text t = {0};
    size_t n = strlen(src), from = (size_t)random_below(seed, (int)n + 1), to = from + (size_t)random_below(seed, 30);
    static const char *const put_in[] = {"",     " ", "\n", "-", "99999999999999999999", "576460752303423488",
                                         "\xff", "0", "|"};
    to = to < n ? to : n;
    put_bytes(&t, src, from);
    switch (random_below(seed, 4)) {
    case 0: put(&t, "%s", put_in[random_below(seed, sizeof put_in / sizeof *put_in)]); break;
    case 1: put(&t, "%c", 1 + random_below(seed, 126)); break;
    case 2: put_bytes(&t, src + from, to - from); break;
    case 3:
        if (random_below(seed, 4) == 0)
            return t.s ? t.s : "";
        break;
    }
    put(&t, "%s", src + (random_below(seed, 2) ? from : to));
    return t.s;
}

Test(bound, any_bytes) {
    uint64_t seed = 7;
    int count[3] = {0};
    for (int i = 0; i < INSTANCES; i++) {
        struct tiny t = draw_tiny(&seed);
        struct tiny_cover v;
        if (!all_states(&t, 9, SOUND, &v))
            continue;
        const char *src = cover_text(&t, &v, 9);
        for (int j = 0; j < 30; j++) {
            const char *s = damaged(src, &seed);
            if (random_below(&seed, 2))
                s = damaged(s, &seed);
            int result = verdict(s);
            cr_assert(result >= 0 || strncmp(diag_text, "tiny.bound:", 11) == 0, "%s:\n%s", diag_text, s);
            count[result + 1]++;
        }
        free_all();
    }
    printf("%d damaged texts unreadable, %d refuted, %d accepted\n", count[0], count[1], count[2]);
    cr_assert(count[0] > 0 && count[1] > 0 && count[2] > 0);
}
