/* The proof of a lower bound by a cover: a list of states, none of which has a completion that ends before the limit.
 *
 * A state says which items have started before its time T, and when, as far as that still matters. A completion gives
 * each other item a start at T or later. In the first state, nothing has started at 0, so its completions are all
 * schedules. For each state X, each choice is followed. In a choice, every idle rank starts one item that may start at
 * T, or none. Time then moves to the next event T', the least time after T at which a started item ends or has started
 * a lag ago. The state Y there must have a bound that reaches the limit, or be dominated (bound_index.c) by a state of
 * the list. Time grows with each step and all work ends. So by induction, from the last states back to the first, no
 * completion of any state ends before the limit.
 *
 * Starts at events suffice. Take a completion of X, and the first of its starts strictly between T and T', where T' is
 * determined by what it starts at T. Between T and that start nothing ends, no lag runs out and nothing else starts. So
 * its rank was idle at T, its inputs were there at T, and its rank's room was the same at T: it may start at T. It then
 * ends earlier, which keeps no other item from starting when it did, and gives room back earlier. So one more item
 * starts at T. Repeat this, with the T' of the larger choice, until nothing starts in between. If no event lies ahead,
 * the same argument moves any later start to T, so starting nothing while items are left needs no check of its own. All
 * this requires that what starts at T ends after T: times are at least 1 (bound_read.c).
 *
 * The bound of Y. A rank's remaining items start once it is free, at T' at the earliest, and run one after another.
 * After the last item of classes with tails of at least q, at least q passes (bound_check.c). Each started item is
 * followed by its tail.
 *
 * Spans. A state also says, for each rank that has begun and not ended, how long ago it began. A rank has ended if none
 * of its items is left and none runs. The claim is that, however the state is completed, one of these ranks, or of
 * those that have not begun, has a span of the limit or more. Whole ticks are a restriction here: the claim is only
 * about schedules that start their items at whole ticks.
 *
 * An earlier start of an item never hurts the span of a rank that has begun, but it may hurt a rank that has not. As
 * long as there is such a rank, even after the choice, every tick is visited, and T' is T + 1. As above, the choice of
 * nothing when no event lies ahead is not followed: everything that is left can move a tick earlier, which also moves
 * ranks' beginnings and lengthens no span.
 *
 * The bound of Y by spans. For a rank that has begun in Y, add the time since then and what must still happen before
 * its end. On any rank, the remaining items of classes with paths of at least x to an end of this rank run one after
 * another, and then at least x passes. Likewise, each started item is followed by its path. For a rank that ends by T',
 * this is its span. */
#include "base/text.h"
#include "bound.h"
#include <stdlib.h>

/* A rank's choices at a state: nothing, or an item of one of the classes in option */
struct rank_choice {
    const struct bound_class **of; /* its classes, longest tail first */
    int32_t *option;
    int64_t *left;    /* per choice, nothing first: time from when the rank is free to the end of all; -1: none */
    int64_t *left_to; /* for spans, per choice and used rank: time to the end of that rank */
    int32_t nof, noption, chosen; /* chosen: 0 for nothing, else option[chosen - 1] */
};

struct walk {
    const struct bound *b;
    struct cover_index *index;
    struct bound_state x, y;
    struct rank_choice *choice; /* per used rank */
    bool *starts;               /* per class: whether the choice starts an item */
    int64_t next, end; /* the next event caused by what x has started, relative; the end including tails, absolute */
    bool *begun;       /* for spans, per used rank */
    int64_t *reach;    /* for spans, per used rank: its earliest end, given what x has started, relative */
    int64_t steps, choices; /* counts so far */
};

static int by_falling_tail(const void *x, const void *y) {
    const struct bound_class *a = *(const struct bound_class *const *)x, *b = *(const struct bound_class *const *)y;
    if (a->tail != b->tail)
        return a->tail < b->tail ? 1 : -1;
    return a < b ? -1 : a > b;
}

static void prepare_walk(struct walk *w) {
    const struct bound *b = w->b;
    int32_t *used_at = NEW(int32_t, b->ranks);
    w->choice = NEW(struct rank_choice, b->nused);
    w->starts = NEW(bool, b->nclass);
    w->begun = NEW(bool, b->nused);
    w->reach = NEW(int64_t, b->nused);
    for (int32_t i = 0; i < b->nused; i++)
        used_at[b->used[i]] = i;
    for (const struct bound_class *c = b->class; c < b->class + b->nclass; c++)
        w->choice[used_at[c->rank]].nof++;
    for (struct rank_choice *k = w->choice; k < w->choice + b->nused; k++) {
        k->of = NEW(const struct bound_class *, k->nof);
        k->option = NEW(int32_t, k->nof);
        k->left = NEW(int64_t, k->nof + 1);
        k->left_to = b->spans ? NEW(int64_t, (size_t)(k->nof + 1) * (size_t)b->nused) : NULL;
        k->nof = 0;
    }
    for (const struct bound_class *c = b->class; c < b->class + b->nclass; c++) {
        struct rank_choice *k = &w->choice[used_at[c->rank]];
        k->of[k->nof++] = c;
    }
    for (struct rank_choice *k = w->choice; k < w->choice + b->nused; k++)
        sort(k->of, (size_t)k->nof, sizeof *k->of, by_falling_tail);
}

/* Returns the number of items of a class that have started in x at least lag ago. */
static int32_t effective(const struct bound_state *x, int32_t class, int64_t lag) {
    int32_t n = x->started[class];
    for (int32_t i = x->first[class + 1] - 1; i >= x->first[class] && x->start[i] + lag > 0; i--)
        n--;
    return n;
}

static int64_t way_of(const struct bound *b, const struct bound_class *c, int32_t i) {
    return b->way[(size_t)(c - b->class) * (size_t)b->nused + (size_t)i];
}

/* Raises w->reach for each rank that class c has a path to, for an item started at `start`. */
static void reach_ends(struct walk *w, const struct bound_class *c, int64_t start) {
    const struct bound *b = w->b;
    for (int32_t i = 0; i < b->nused; i++)
        if (way_of(b, c, i) >= 0 && start + c->time + way_of(b, c, i) > w->reach[i])
            w->reach[i] = start + c->time + way_of(b, c, i);
    w->steps += b->nused;
}

/* Finds the next event caused by what has started, and the latest end including tails. */
static void find_next_event(struct walk *w) {
    const struct bound_state *x = &w->x;
    w->next = INT64_MAX;
    w->end = 0;
    for (int32_t i = 0; w->b->spans && i < w->b->nused; i++) {
        w->begun[i] = has_begun(w->b, x->started, w->b->used[i]);
        w->reach[i] = x->free[w->b->used[i]];
    }
    for (int32_t n = 0; n < w->b->nclass; n++) {
        const struct bound_class *c = &w->b->class[n];
        for (int32_t i = x->first[n]; i < x->first[n + 1]; i++) {
            int64_t start = x->start[i], end = start + c->time;
            w->next = end > 0 && end < w->next ? end : w->next;
            w->end = x->at + end + c->tail > w->end ? x->at + end + c->tail : w->end;
            for (int32_t j = 0; j < c->nnext; j++)
                if (start + c->next[j].lag > 0 && start + c->next[j].lag < w->next)
                    w->next = start + c->next[j].lag;
            w->steps += c->nnext;
            if (w->b->spans)
                reach_ends(w, c, start);
        }
    }
}

/* Returns whether everything that the next item of a class waits for has happened. */
static bool may_start(const struct walk *w, const struct bound_class *c) {
    const struct bound_state *x = &w->x;
    int32_t number = (int32_t)(c - w->b->class);
    int64_t there = 0;
    if (x->started[number] == c->items)
        return false;
    for (int32_t i = 0; i < c->narc; i++) {
        int32_t n = effective(x, c->arc[i].class, c->arc[i].lag);
        if (!c->pool && n <= x->started[number])
            return false;
        there += n;
    }
    return !c->pool || there > x->started[number];
}

static int64_t level_after(const struct walk *w, const struct rank_choice *k) {
    int64_t level = 0;
    for (int32_t i = 0; i < k->nof; i++) {
        int32_t number = (int32_t)(k->of[i] - w->b->class);
        level += k->of[i]->take * w->x.started[number] - k->of[i]->give * effective(&w->x, number, k->of[i]->time);
    }
    return level;
}

/* Returns a lower bound on the time from when the rank is free to the end of all, after it starts an item of class
 * `now` (-1: none). */
static int64_t left_of(const struct walk *w, const struct rank_choice *k, int32_t now) {
    int64_t sum = 0, best = -1;
    for (int32_t i = 0; i < k->nof; i++) {
        int32_t number = (int32_t)(k->of[i] - w->b->class);
        int64_t items = k->of[i]->items - w->x.started[number] - (number == now);
        if (items == 0)
            continue;
        sum += items * k->of[i]->time;
        best = sum + k->of[i]->tail > best ? sum + k->of[i]->tail : best;
    }
    return best;
}

/* Returns the same bound for the end of rank used[i]. */
static int64_t left_to(struct walk *w, const struct rank_choice *k, int32_t now, int32_t i) {
    int64_t best = -1;
    for (int32_t j = 0; j < k->nof; j++) {
        int64_t x = way_of(w->b, k->of[j], i), sum = 0;
        for (int32_t l = 0; l < k->nof && x >= 0; l++) {
            int32_t number = (int32_t)(k->of[l] - w->b->class);
            if (way_of(w->b, k->of[l], i) >= x)
                sum += k->of[l]->time * (k->of[l]->items - w->x.started[number] - (number == now));
        }
        best = sum > 0 && sum + x > best ? sum + x : best; /* class j may have none left; others reach x, too */
    }
    w->steps += k->nof * k->nof;
    return best;
}

static void list_left_to(struct walk *w, struct rank_choice *k) {
    for (int32_t o = 0; o <= k->noption; o++)
        for (int32_t i = 0; i < w->b->nused; i++)
            k->left_to[(size_t)o * (size_t)w->b->nused + (size_t)i] = left_to(w, k, o ? k->option[o - 1] : -1, i);
}

static void list_choices(struct walk *w) {
    const struct bound *b = w->b;
    for (int32_t i = 0; i < b->nused; i++) {
        struct rank_choice *k = &w->choice[i];
        int64_t level = level_after(w, k), room = b->room[b->used[i]];
        k->noption = k->chosen = 0;
        k->left[0] = left_of(w, k, -1);
        for (int32_t j = 0; j < k->nof && w->x.free[b->used[i]] == 0; j++) {
            const struct bound_class *c = k->of[j];
            if ((room >= 0 && c->take > 0 && level + c->take > room) || !may_start(w, c))
                continue;
            k->option[k->noption++] = (int32_t)(c - b->class);
            k->left[k->noption] = left_of(w, k, k->option[k->noption - 1]);
            w->steps += k->nof;
        }
        w->steps += 2 * k->nof;
        if (b->spans)
            list_left_to(w, k);
    }
}

/* Moves on to the next choice in order. Returns false after the last one, when all ranks choose nothing again. */
static bool next_choice(struct walk *w) {
    for (int32_t i = 0; i < w->b->nused; i++) {
        struct rank_choice *k = &w->choice[i];
        if (k->chosen > 0)
            w->starts[k->option[k->chosen - 1]] = false;
        k->chosen = k->chosen < k->noption ? k->chosen + 1 : 0;
        if (k->chosen > 0) {
            w->starts[k->option[k->chosen - 1]] = true;
            return true;
        }
    }
    return false;
}

static const struct bound_class *chosen(const struct walk *w, const struct rank_choice *k) {
    return k->chosen ? &w->b->class[k->option[k->chosen - 1]] : NULL;
}

/* Returns the time to the next event after the choice; INT64_MAX: none is ahead. */
static int64_t time_to_event(const struct walk *w) {
    int64_t next = w->next;
    for (const struct rank_choice *k = w->choice; k < w->choice + w->b->nused; k++)
        if (k->chosen && chosen(w, k)->time < next) /* lags are at least as long */
            next = chosen(w, k)->time;
    return next;
}

/* Returns the time to the next moment to visit; INT64_MAX: no event is ahead. */
static int64_t time_to_next(const struct walk *w) {
    int64_t event = time_to_event(w);
    for (int32_t i = 0; w->b->spans && event < INT64_MAX && i < w->b->nused; i++)
        if (!w->begun[i] && !w->choice[i].chosen)
            return 1;
    return event;
}

/* Returns how long ago rank used[i] began, seen `step` after the choice; 0: it has not begun, or has ended. */
static int64_t since_after(const struct walk *w, int32_t i, int64_t step) {
    int64_t since = w->x.since[w->b->used[i]];
    return since > 0 ? since + step : !w->begun[i] && w->choice[i].chosen ? step : 0;
}

/* Returns a lower bound on the largest span in the state that the choice leads to, `step` later. */
static int64_t span_after(const struct walk *w, int64_t step) {
    const struct bound *b = w->b;
    int64_t best = 0;
    for (int32_t i = 0; i < b->nused; i++) {
        int64_t since = since_after(w, i, step), end = w->reach[i];
        for (int32_t q = 0; since > 0 && q < b->nused; q++) {
            const struct rank_choice *k = &w->choice[q];
            const struct bound_class *c = chosen(w, k);
            int64_t free = c ? c->time : w->x.free[b->used[q]],
                    left = k->left_to[(size_t)k->chosen * (size_t)b->nused + (size_t)i];
            if (c && way_of(b, c, i) >= 0 && free + way_of(b, c, i) > end)
                end = free + way_of(b, c, i);
            if (left >= 0 && (free > step ? free : step) + left > end)
                end = (free > step ? free : step) + left;
        }
        if (since > 0 && since + end - step > best)
            best = since + end - step;
    }
    return best;
}

/* Returns the bound of the state that the choice leads to, `step` later. */
static int64_t bound_after(const struct walk *w, int64_t step) {
    const struct bound *b = w->b;
    if (b->spans)
        return span_after(w, step);
    int64_t best = w->end;
    for (int32_t i = 0; i < b->nused; i++) {
        const struct rank_choice *k = &w->choice[i];
        const struct bound_class *c = chosen(w, k);
        int64_t free = c ? c->time : w->x.free[b->used[i]], left = k->left[k->chosen];
        if (c && w->x.at + c->time + c->tail > best)
            best = w->x.at + c->time + c->tail;
        if (left >= 0 && w->x.at + (free > step ? free : step) + left > best)
            best = w->x.at + (free > step ? free : step) + left;
    }
    return best;
}

/* Sets y to what the choice leads to. */
static void apply_choice(struct walk *w, int64_t step) {
    const struct bound *b = w->b;
    const struct bound_state *x = &w->x;
    struct bound_state *y = &w->y;
    int32_t n = 0;
    GROW(y->start, y->cap, (size_t)x->first[b->nclass] + (size_t)b->nused);
    y->at = x->at + step;
    for (int32_t c = 0; c < b->nclass; c++) {
        y->started[c] = x->started[c] + w->starts[c];
        y->first[c] = n;
        for (int32_t i = x->first[c]; i < x->first[c + 1]; i++)
            if (x->start[i] + b->class[c].latest > step)
                y->start[n++] = x->start[i] - step;
        if (w->starts[c] && b->class[c].latest > step)
            y->start[n++] = -step;
    }
    y->first[b->nclass] = n;
    for (int32_t i = 0; i < b->nused; i++) {
        const struct bound_class *c = chosen(w, &w->choice[i]);
        int64_t free = (c ? c->time : x->free[b->used[i]]) - step;
        y->free[b->used[i]] = free > 0 ? free : 0;
        bool runs = free > 0 || (b->spans && has_left(b, y->started, b->used[i]));
        y->since[b->used[i]] = b->spans && runs ? since_after(w, i, step) : 0;
    }
}

/* Returns a state as the certificate writes it. */
static const char *written(const struct bound *b, const struct bound_state *x) {
    struct text t = {0};
    put(&t, "at %lld:", (long long)x->at);
    for (int32_t c = 0; c < b->nclass; c++)
        put(&t, " %d", (int)x->started[c]);
    for (int32_t c = 0; c < b->nclass; c++)
        for (int32_t i = x->first[c]; i < x->first[c + 1]; i++) {
            if (i == x->first[c])
                put(&t, " | %d", (int)c);
            put(&t, " %lld", (long long)x->start[i]);
        }
    for (int32_t i = 0, n = 0; i < b->nused; i++)
        if (x->since[b->used[i]] > 0)
            put(&t, "%s%d:%lld", n++ ? " " : " | since ", (int)b->used[i], (long long)x->since[b->used[i]]);
    return t.s;
}

static const char *written_choice(const struct walk *w) {
    struct text t = {0};
    for (int32_t i = 0; i < w->b->nused; i++) {
        const struct bound_class *c = chosen(w, &w->choice[i]);
        if (c)
            put(&t, "%srank %d starts item %d of %s", t.n ? ", " : "", (int)c->rank, (int)w->x.started[c - w->b->class],
                c->name);
    }
    return t.n ? t.s : "no rank starts anything";
}

/* Returns whether the started items imply an end, or a span, at the limit or later. */
static bool is_late(const struct walk *w) {
    const struct bound *b = w->b;
    for (int32_t i = 0; b->spans && i < b->nused; i++)
        if (w->x.since[b->used[i]] > 0 && w->x.since[b->used[i]] + w->reach[i] >= b->limit)
            return true;
    return !b->spans && w->end >= b->limit;
}

static bool all_started(const struct walk *w) {
    for (int32_t c = 0; c < w->b->nclass; c++)
        if (w->x.started[c] < w->b->class[c].items)
            return false;
    return true;
}

static const char *refute_at(const struct walk *w, int32_t n, const char *why) {
    const struct bound *b = w->b;
    return format("%s:%d: `%s`: %s", b->file, b->cover.first_line + (int)n, written(b, &w->x), why);
}

/* Checks one choice at the cover's state n. Returns why it is not covered, or NULL. */
static const char *check_choice(struct walk *w, int32_t n) {
    const struct bound *b = w->b;
    int64_t step = time_to_next(w);
    if (step == INT64_MAX)
        return NULL;
    w->steps += b->nused;
    int64_t bound = bound_after(w, step);
    if (bound >= b->limit)
        return NULL;
    apply_choice(w, step);
    w->steps += b->nclass;
    if (cover_dominates(w->index, &w->y, &w->steps))
        return NULL;
    return refute_at(
        w, n,
        format("if %s, what follows is `%s`; no state of the cover dominates it, and its own bound is %lld",
               written_choice(w), written(b, &w->y), (long long)bound));
}

static void check_limits(struct walk *w, int32_t n) {
    const struct bound *b = w->b;
    int64_t most = MOST_CHOICES + (int64_t)STATE_CHOICES * b->cover.n;
    int line = b->cover.first_line + (int)n;
    if (++w->choices > most)
        die_at(
            b->file, b->src, line, 1,
            "the ranks have more than %lld choices from this state and those before it, and a cover of %d state%s may "
            "leave no more to check; ranks that start one after another leave fewer",
            (long long)most, (int)b->cover.n, b->cover.n == 1 ? "" : "s");
    if (w->steps > MOST_STEPS)
        die_at(b->file, b->src, line, 1,
               "checking this cover takes too long: a smaller one, with more states dominated, is needed");
}

static const char *check_state(struct walk *w, int32_t n) {
    const struct bound *b = w->b;
    const char *why;
    state_of_cover(b, n, &w->x);
    find_next_event(w);
    if (all_started(w))
        return is_late(w)
                   ? NULL
                   : refute_at(w, n,
                               b->spans
                                   ? "everything has started, and no rank that runs has a span of the limit or more"
                                   : "everything has started, and nothing in it shows an end at the limit or later");
    list_choices(w);
    do {
        if ((why = check_choice(w, n)))
            return why;
        check_limits(w, n);
    } while (next_choice(w));
    return NULL;
}

const char *check_cover(const struct bound *b) {
    struct walk w = {.b = b, .index = cover_index_new(b), .x = bound_state_new(b), .y = bound_state_new(b)};
    const char *why = NULL;
    prepare_walk(&w);
    for (int32_t n = 0; n < b->cover.n && !why; n++)
        why = check_state(&w, n);
    return why;
}
