/* check-bound's proofs of spans against exhaustive search, on tiny random instances. For each order, cycles of
 * constraints give the least whole number that no rank's span exceeds. The checker must accept a cover of all states
 * for the optimum, and never accept one tick more. */
#include "bound_instance.h"
#include "bound_verdict.h"
#include "search/bound/bound.h"
#include <criterion/criterion.h>

#ifdef __SANITIZE_ADDRESS__
enum { INSTANCES = 150 };
#else
enum { INSTANCES = 1000 };
#endif
enum { TICKS = 40, AT_ONCE = 400 };

/* ---- the optimum ---- */

struct least_gap { /* job `to` starts at least `gap` after job `from` */
    int from, to, gap;
};

static bool has_schedule(const struct least_gap *gap, int ngap, int njob) {
    int start[TINY_JOBS] = {0};
    for (int round = 0; round <= njob; round++) {
        bool moved = false;
        for (int i = 0; i < ngap; i++)
            if (start[gap[i].to] < start[gap[i].from] + gap[i].gap) {
                start[gap[i].to] = start[gap[i].from] + gap[i].gap;
                moved = true;
            }
        if (!moved)
            return true;
    }
    return false;
}

static int largest_span(const struct orders *o) {
    struct least_gap gap[TINY_JOBS * (MOST_TINY + 2)];
    int n = 0, fixed, most = makespan_of(o);
    if (most == NO_SCHEDULE)
        return NO_SCHEDULE;
    for (int j = 0; j < o->njob; j++)
        for (int i = 0; i < o->job[j].nbefore; i++)
            gap[n++] = (struct least_gap){o->job[j].before[i].job, j, o->job[j].before[i].lag};
    for (int k = 0; k < o->t->ranks; k++)
        for (int i = 1; i < o->n[k]; i++)
            gap[n++] = (struct least_gap){o->order[k][i - 1], o->order[k][i],
                                          o->t->class[o->job[o->order[k][i - 1]].class].time};
    fixed = n;
    for (int d = 0; d < most; d++) {
        n = fixed;
        for (int k = 0; k < o->t->ranks; k++)
            if (o->n[k]) {
                int last = o->order[k][o->n[k] - 1];
                gap[n++] = (struct least_gap){last, o->order[k][0], o->t->class[o->job[last].class].time - d};
            }
        if (has_schedule(gap, n, o->njob))
            return d;
    }
    return most;
}

static int least_span(const struct tiny *t) {
    struct orders o = {.t = t, .best = NO_SCHEDULE, .least = largest_span};
    label(&o);
    permute(&o, 0, 0, 0);
    return o.best;
}

/* ---- covers of all states, tick by tick ---- */

struct span_state {
    struct tiny_state x;
    int since[3]; /* 0: not begun, or ended */
};
struct span_states {
    struct span_state *a;
    size_t n, cap;
};

static bool runs_or_left(const struct tiny *t, const struct tiny_state *x, int rank, bool *begun) {
    bool result = false;
    *begun = false;
    for (int c = 0; c < t->nclass; c++)
        if (t->class[c].rank == rank) {
            *begun |= x->n[c] > 0;
            result |= x->n[c] < t->class[c].items || tiny_ago(x, c, t->class[c].time) < x->n[c];
        }
    return result;
}

static bool nothing_ahead(const struct tiny *t, const struct tiny_state *x) {
    for (int c = 0; c < t->nclass; c++)
        if (x->n[c] && x->start[c][x->n[c] - 1] != LONG_AGO)
            return false;
    return true;
}

/* Adds the states of the next tick. Returns false if there are too many. */
static bool go_on(struct span_states *to, const struct tiny *t, const struct span_state *from, int limit) {
    struct tiny_states next = {0};
    choose(&next, t, &from->x, from->x, 0);
    for (size_t i = 0; i < next.n; i++) {
        struct span_state y = {.x = next.a[i]};
        bool late = false, known = memcmp(&y.x, &from->x, sizeof y.x) == 0 && nothing_ahead(t, &from->x);
        for (int k = 0; k < t->ranks; k++) {
            bool begun, before, was = runs_or_left(t, &from->x, k, &before), is = runs_or_left(t, &y.x, k, &begun);
            int since = before && !was ? 0 : begun ? from->since[k] + 1 : 0;
            late |= since >= limit;
            y.since[k] = is ? since : 0;
        }
        for (size_t j = 0; j < to->n; j++)
            known |= memcmp(&to->a[j], &y, sizeof y) == 0;
        if (late || known)
            continue;
        GROW(to->a, to->cap, to->n + 1);
        to->a[to->n++] = y;
    }
    return to->n <= AT_ONCE;
}

static void put_span_state(struct text *to, const struct tiny *t, const struct span_state *y, int at) {
    put_tiny_state(to, t, &y->x, at);
    for (int k = 0, n = 0; k < t->ranks; k++)
        if (y->since[k]) {
            to->n -= n == 0; /* at the end of the line */
            put(to, "%s%d:%d", n++ ? " " : " | since ", k, y->since[k]);
        }
    if (to->s[to->n - 1] != '\n')
        put(to, "\n");
}

static const char *with_objective(const struct tiny *t, int limit, const char *rest) {
    struct text head = {0};
    put_tiny(&head, t, limit);
    const char *ranks = strstr(head.s, "ranks ");
    return format("%.*sobjective span\n%s%s", (int)(ranks - head.s), head.s, ranks, rest);
}

/* Ignores, wrongly, which ranks have begun, and when. */
static bool seems_as_good(const struct tiny *t, const struct tiny_state *z, const struct tiny_state *y) {
    for (int c = 0; c < t->nclass; c++) {
        if (z->n[c] < y->n[c] || tiny_ago(z, c, t->class[c].time) < z->n[c])
            return false;
        for (int k = 0; k < y->n[c]; k++)
            if (z->start[c][k] > y->start[c][k])
                return false;
    }
    return true;
}

/* Leaves out states that another one seems to dominate, with all that follows from them. */
static void prune(const struct tiny *t, struct span_states *s) {
    for (size_t i = 0; i < s->n;) {
        bool left_out = false;
        for (size_t j = 0; j < s->n && !left_out; j++)
            left_out = j != i && !all_tiny_started(t, &s->a[j].x) && seems_as_good(t, &s->a[j].x, &s->a[i].x);
        if (left_out)
            s->a[i] = s->a[--s->n];
        else
            i++;
    }
}

/* Writes a cover. *states: their number; NULL: too many. skip: leaves out one of `skip` states, 0: none. */
static const char *cover_text(const struct tiny *t, int limit, uint64_t *seed, int skip, bool pruned, int *states) {
    struct span_states now = {0}, next;
    struct text text = {0};
    *states = 0;
    GROW(now.a, now.cap, 1);
    memset(&now.a[now.n++], 0, sizeof *now.a);
    for (int tick = 0; now.n; tick++, now = next) {
        next = (struct span_states){0};
        if (tick == TICKS)
            return NULL;
        if (pruned)
            prune(t, &now);
        for (size_t i = 0; i < now.n; i++) {
            if (all_tiny_started(t, &now.a[i].x))
                continue;
            if (!skip || tick == 0 || random_below(seed, skip)) {
                put_span_state(&text, t, &now.a[i], tick);
                ++*states;
            }
            if (!go_on(&next, t, &now.a[i], limit))
                return NULL;
        }
    }
    return with_objective(t, limit, format("proof cover %d\n%send\n", *states, text.s));
}

/* Changes digits in the states: items that never started, starts and begins that never were. */
static const char *mutated(const char *src, uint64_t *seed) {
    char *s = copy_string(src), *states = strstr(s, "at 0:");
    for (int i = 1 + random_below(seed, 5); i > 0; i--) {
        char *at = states + random_below(seed, (int)strlen(states));
        if (random_below(seed, 3) == 0 && strstr(at, "since "))
            at = strstr(at, "since ") + 8;
        if (*at >= '0' && *at <= '9')
            *at = (char)('0' + random_below(seed, 5));
    }
    return s;
}

static struct { int instances, impossible, accepted, lies, unreadable, tight, late; } seen;

static void lie(const struct tiny *t, int limit, uint64_t *seed) {
    int states;
    for (int i = 0; i < 12; i++) {
        const char *src = cover_text(t, limit, seed, i < 2 ? 0 : random_below(seed, 4), i % 2, &states);
        if (!src)
            return;
        int result = verdict(i < 2 ? src : mutated(src, seed));
        seen.lies++;
        seen.unreadable += result < 0;
        cr_assert_neq(result, 1, "%d is the least largest span; accepted, maybe with other digits:\n%s", limit - 1,
                      src);
    }
}

Test(bound_span, brute_force) {
    uint64_t seed = 61;
    for (int i = 0; i < INSTANCES; i++) {
        struct tiny t = draw_tiny(&seed);
        int best = least_span(&t), states;
        seen.instances++;
        if (best == NO_SCHEDULE) {
            seen.impossible++;
            continue;
        }
        seen.late += best < optimum(&t);
        cr_assert_neq(verdict(with_objective(&t, best + 1, "proof work\nend\n")), 1, "work proves %d", best + 1);
        seen.tight += verdict(with_objective(&t, best, "proof work\nend\n")) == 1;
        const char *src = cover_text(&t, best, &seed, 0, false, &states);
        if (src) {
            cr_assert_eq(verdict(src), 1, "%s: not accepted:\n%s", diag_text, src);
            seen.accepted++;
        }
        lie(&t, best + 1, &seed);
        free_all();
    }
    printf("%d instances, %d without a schedule; %d covers accepted; %d lies, of which %d unreadable; work is tight "
           "for %d; "
           "the makespan is longer for %d\n",
           seen.instances, seen.impossible, seen.accepted, seen.lies, seen.unreadable, seen.tight, seen.late);
    cr_assert(seen.accepted > INSTANCES / 4 && seen.lies > INSTANCES && seen.unreadable < seen.lies / 2);
    cr_assert(seen.tight > 0 && seen.tight < seen.instances && seen.late > 0);
}
