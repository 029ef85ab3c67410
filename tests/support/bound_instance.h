/* Tiny random instances for check-bound, their true optimum, and certificates for them. They share only the meaning of
 * the text with the checker. The optimum comes from all orders of labelled items, without ordered classes, events or
 * dominance, and the states come from every tick. */
#ifndef BOUND_INSTANCE_H
#define BOUND_INSTANCE_H
#include "base/text.h"
#include "random.h"
#include <limits.h>
#include <string.h>

enum { MOST_TINY = 6, TINY_ITEMS = 9, TINY_JOBS = 7, NO_SCHEDULE = INT_MAX };

struct tiny_class {
    int rank, time, items, take, give;
    bool pool;
    int narc, from[MOST_TINY], lag[MOST_TINY];
};
struct tiny {
    int ranks, room[3], nclass, njobs; /* room: -1: no limit */
    struct tiny_class class[MOST_TINY];
};

/* A job that an item of a class waits for. Items are labelled; one of a pool waits for all items before it. */
struct tiny_before {
    int job, lag;
};
struct tiny_job {
    int class, nbefore;
    struct tiny_before before[MOST_TINY];
};

static inline bool named_by_any(const struct tiny *t, int class) {
    for (int c = 0; c < t->nclass; c++)
        for (int i = 0; i < t->class[c].narc; i++)
            if (t->class[c].from[i] == class)
                return true;
    return false;
}

static inline void draw_arcs(struct tiny *t, struct tiny_class *c, uint64_t *seed) {
    int sum = 0;
    c->pool = random_below(seed, 5) == 0;
    for (int from = 0; from < t->nclass; from++) {
        const struct tiny_class *f = &t->class[from];
        if (f->pool || random_below(seed, 2) || (!c->pool && f->items != c->items) ||
            (c->pool && sum + f->items > TINY_JOBS))
            continue;
        sum += f->items;
        c->from[c->narc] = from;
        c->lag[c->narc++] = f->time + random_below(seed, 3) * random_below(seed, 2);
    }
    c->pool &= c->narc > 0;
    if (c->pool)
        c->items = sum;
}

static inline struct tiny draw_tiny(uint64_t *seed) {
    struct tiny t = {.ranks = 1 + random_below(seed, 3)};
    int want = 2 + random_below(seed, MOST_TINY - 1), items = 1 + random_below(seed, 3);
    bool narrow = random_below(seed, 2); /* jobs take much, and there is little room */
    for (int k = 0; k < 3; k++)
        t.room[k] = narrow ? 1 + random_below(seed, 2) : random_below(seed, 3) ? 1 + random_below(seed, 3) : -1;
    for (int tries = 0; tries < 30 && t.nclass < want; tries++) {
        struct tiny_class c = {.rank = random_below(seed, t.ranks), .time = 1 + random_below(seed, 3), .items = items};
        int on = 0;
        if (random_below(seed, 4) == 0)
            c.items = 1 + random_below(seed, 3);
        if (narrow || t.nclass % 2 == 0 || random_below(seed, 4) == 0)
            c.take = random_below(seed, narrow ? 2 : 3);
        if (narrow || t.nclass % 2 == 1 || random_below(seed, 4) == 0)
            c.give = random_below(seed, narrow ? 2 : 3);
        for (int i = 0; i < t.nclass; i++)
            on += t.class[i].rank == c.rank;
        draw_arcs(&t, &c, seed);
        if (on == 3 || t.njobs + c.items > TINY_JOBS)
            continue;
        t.njobs += c.items;
        t.class[t.nclass++] = c;
    }
    return t;
}

/* ---- the true optimum ---- */

struct orders {
    const struct tiny *t;
    struct tiny_job job[TINY_JOBS];
    int njob, first[MOST_TINY];                      /* per class: its first job */
    int n[3], order[3][TINY_JOBS], best, nschedules; /* n, order: the jobs of each rank */
    int (*least)(const struct orders *o);            /* the objective to minimize, for one order */
};

static inline void label(struct orders *o) {
    const struct tiny *t = o->t;
    for (int c = 0; c < t->nclass; c++) {
        o->first[c] = o->njob;
        for (int k = 0; k < t->class[c].items; k++)
            o->job[o->njob++] = (struct tiny_job){.class = c};
    }
    for (int c = 0; c < t->nclass; c++)
        for (int i = 0, at = 0; i < t->class[c].narc; i++)
            for (int k = 0; k < t->class[t->class[c].from[i]].items; k++) {
                struct tiny_job *j = &o->job[o->first[c] + (t->class[c].pool ? at++ : k)];
                j->before[j->nbefore++] = (struct tiny_before){o->first[t->class[c].from[i]] + k, t->class[c].lag[i]};
            }
}

/* Returns the end of the last job, if every rank runs its order and each job starts as early as possible. */
static inline int makespan_of(const struct orders *o) {
    int start[TINY_JOBS], at[3] = {0}, free[3] = {0}, done = 0, end = 0;
    memset(start, -1, sizeof start);
    for (bool moved = true; moved;) {
        moved = false;
        for (int k = 0; k < o->t->ranks; k++) {
            if (at[k] == o->n[k])
                continue;
            int j = o->order[k][at[k]], when = free[k];
            bool ready = true;
            for (int i = 0; i < o->job[j].nbefore; i++) {
                struct tiny_before b = o->job[j].before[i];
                ready &= start[b.job] >= 0;
                when = start[b.job] + b.lag > when ? start[b.job] + b.lag : when;
            }
            if (!ready)
                continue;
            start[j] = when;
            free[k] = when + o->t->class[o->job[j].class].time;
            end = free[k] > end ? free[k] : end;
            at[k]++;
            done++;
            moved = true;
        }
    }
    return done == o->njob ? end : NO_SCHEDULE;
}

/* Tries all orders of all ranks, one rank after another. used: the jobs rank k has run; level: the room they occupy. */
static inline void permute(struct orders *o, int k, int used, int level) {
    const struct tiny *t = o->t;
    bool left = false;
    if (k == t->ranks) {
        int end = o->least(o);
        o->best = end < o->best ? end : o->best;
        o->nschedules++;
        return;
    }
    for (int j = 0; j < o->njob; j++) {
        const struct tiny_class *c = &t->class[o->job[j].class];
        if (c->rank != k || used >> j & 1)
            continue;
        left = true;
        if (c->take && t->room[k] >= 0 && level + c->take > t->room[k])
            continue;
        o->order[k][o->n[k]++] = j;
        permute(o, k, used | 1 << j, level + c->take - c->give);
        o->n[k]--;
    }
    if (!left)
        permute(o, k + 1, used, 0);
}

static inline int optimum(const struct tiny *t) {
    struct orders o = {.t = t, .best = NO_SCHEDULE, .least = makespan_of};
    label(&o);
    permute(&o, 0, 0, 0);
    return o.best;
}

/* ---- states, tick by tick ---- */

enum { LONG_AGO = -1000 };
struct tiny_state {
    int n[MOST_TINY], start[MOST_TINY][TINY_ITEMS]; /* relative to now; LONG_AGO: all effects have passed */
};
struct tiny_states { /* all states of one tick */
    struct tiny_state *a;
    size_t n, cap;
};

static inline int latest_effect(const struct tiny *t, int class) {
    int most = t->class[class].time;
    for (int c = 0; c < t->nclass; c++)
        for (int i = 0; i < t->class[c].narc; i++)
            if (t->class[c].from[i] == class && t->class[c].lag[i] > most)
                most = t->class[c].lag[i];
    return most;
}

static inline int tiny_ago(const struct tiny_state *x, int class, int lag) {
    int n = 0;
    for (int k = 0; k < x->n[class]; k++)
        n += x->start[class][k] + lag <= 0;
    return n;
}

static inline bool tiny_may_start(const struct tiny *t, const struct tiny_state *x, int class) {
    const struct tiny_class *c = &t->class[class];
    int level = 0, there = 0;
    if (x->n[class] == c->items)
        return false;
    for (int i = 0; i < t->nclass; i++)
        if (t->class[i].rank == c->rank) {
            if (tiny_ago(x, i, t->class[i].time) < x->n[i])
                return false;
            level += (t->class[i].take - t->class[i].give) * x->n[i];
        }
    for (int i = 0; i < c->narc; i++) {
        int n = tiny_ago(x, c->from[i], c->lag[i]);
        if (!c->pool && n <= x->n[class])
            return false;
        there += n;
    }
    return (!c->pool || there > x->n[class]) &&
           (!c->take || t->room[c->rank] < 0 || level + c->take <= t->room[c->rank]);
}

static inline void add_tiny(struct tiny_states *to, const struct tiny *t, struct tiny_state x) {
    for (int c = 0; c < t->nclass; c++)
        for (int k = 0; k < x.n[c]; k++)
            if (x.start[c][k] != LONG_AGO && --x.start[c][k] + latest_effect(t, c) <= 0)
                x.start[c][k] = LONG_AGO;
    for (size_t i = to->n; i-- > 0;)
        if (memcmp(&to->a[i], &x, sizeof x) == 0)
            return;
    GROW(to->a, to->cap, to->n + 1);
    to->a[to->n++] = x;
}

/* Adds the states that follow x one tick later, with ranks from k on free to start a job each. */
static inline void choose(struct tiny_states *to, const struct tiny *t, const struct tiny_state *x, struct tiny_state y,
                          int k) {
    if (k == t->ranks) {
        add_tiny(to, t, y);
        return;
    }
    choose(to, t, x, y, k + 1);
    for (int c = 0; c < t->nclass; c++)
        if (t->class[c].rank == k && tiny_may_start(t, x, c)) {
            struct tiny_state z = y;
            z.start[c][z.n[c]++] = 0;
            choose(to, t, x, z, k + 1);
        }
}

static inline bool all_tiny_started(const struct tiny *t, const struct tiny_state *x) {
    for (int c = 0; c < t->nclass; c++)
        if (x->n[c] < t->class[c].items)
            return false;
    return true;
}

/* ---- text ---- */

static inline void put_tiny(struct text *to, const struct tiny *t, int limit) {
    put(to, "pianola bound 1\nschedule tiny\ntick 1\nlimit %d\nranks %d\n", limit, t->ranks);
    for (int k = 0; k < t->ranks; k++)
        if (t->room[k] >= 0)
            put(to, "room %d %d\n", k, t->room[k]);
    for (int c = 0; c < t->nclass; c++)
        put(to, "class %d X%d rank %d time %d items %d take %d give %d\n", c, c, t->class[c].rank, t->class[c].time,
            t->class[c].items, t->class[c].take, t->class[c].give);
    for (int c = 0; c < t->nclass; c++) {
        if (t->class[c].narc)
            put(to, t->class[c].pool ? "pool %d:" : "after %d:", c);
        for (int i = 0; i < t->class[c].narc; i++)
            put(to, " %d+%d", t->class[c].from[i], t->class[c].lag[i]);
        if (t->class[c].narc)
            put(to, "\n");
    }
}

static inline void put_tiny_state(struct text *to, const struct tiny *t, const struct tiny_state *x, int at) {
    put(to, "at %d:", at);
    for (int c = 0; c < t->nclass; c++)
        put(to, " %d", x->n[c]);
    for (int c = 0; c < t->nclass; c++)
        for (int k = 0, listed = 0; k < x->n[c]; k++)
            if (x->start[c][k] != LONG_AGO) {
                if (!listed++)
                    put(to, " | %d", c);
                put(to, " %d", x->start[c][k]);
            }
    put(to, "\n");
}
#endif
