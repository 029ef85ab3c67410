/* The dynamic program over states: see search.h. */
#include "state.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    COMPARED = 4096,     /* upper bound on the states that one is compared with for dominance */
    MOST_WORDS = 1 << 28 /* limit for all states: a gigabyte, which matters for few but long states */
};

struct layer { /* the states of one moment */
    int64_t time;
    int32_t *state;
    size_t n, cap;
};
struct rank_of { /* sort keys of a state in its layer */
    int64_t bound, progress;
    uint64_t group; /* hash of what dominating states have in common */
    int32_t state;
};
struct search {
    const struct instance *in;
    struct effort effort;
    struct found found;
    struct layer *layer; /* the layers ahead, in no order */
    size_t nlayers, cap_layers;
    size_t cap_time, cap_at, cap_parent, cap_word, cap_kept, words;
    int64_t **after; /* per class: its time and the lags after it, ascending, terminated by INT64_MAX */
    int32_t *row;    /* the current state */
    int32_t *table;  /* state + 1, by its time and row; 0: empty */
    size_t size;     /* slots of the table, a power of two */
    int64_t *bound;  /* per state */
    struct rank_of *list;
    size_t cap_bound, cap_list;
    int32_t **choice; /* per rank: the classes that can start, then -1 for none */
    int *nchoices;    /* length of each list */
    int32_t *chosen;
};

static const int32_t *state_row(const struct search *s, int32_t state) {
    return s->found.visited.word + s->found.visited.at[state];
}
static size_t row_words(const struct instance *in, const int32_t *row) {
    return (size_t)state_width(in) + 2 * (size_t)recent_starts(in, row);
}

/* ---- what can start ---- */

/* Returns the number of items of class c that have started at least `ticks` ago. */
static int32_t started_before(const struct instance *in, const int32_t *row, int32_t c, int64_t ticks) {
    const int32_t *recent = row + state_width(in);
    int32_t n = row[c];
    for (int32_t i = 0; i < recent_starts(in, row); i++)
        n -= recent[2 * i] == c && recent[2 * i + 1] < ticks;
    return n;
}

static bool is_ready(const struct instance *in, const int32_t *row, const struct class *class, int32_t item) {
    int64_t there = 0;
    for (int l = 0; l < class->nlags; l++) {
        int32_t started = started_before(in, row, class->lag[l].from, class->lag[l].ticks);
        if (!class->pool && started <= item)
            return false;
        there += started;
    }
    return !class->pool || there > item;
}

static int64_t level_of(const struct instance *in, const int32_t *row, int r) {
    int64_t level = 0;
    for (int i = in->of_rank_at[r]; i < in->of_rank_at[r + 1]; i++) {
        const struct class *class = &in->class[in->of_rank[i]];
        level += class->take * row[in->of_rank[i]];
        if (class->give)
            level -= class->give * started_before(in, row, in->of_rank[i], class->time);
    }
    return level;
}

static void find_choices(struct search *s, const int32_t *row) {
    const struct instance *in = s->in;
    for (int r = 0; r < in->ranks; r++) {
        int64_t level = in->room[r] < INT64_MAX ? level_of(in, row, r) : 0;
        s->nchoices[r] = 0;
        for (int i = in->of_rank_at[r]; i < in->of_rank_at[r + 1] && row[in->n + r] == 0; i++) {
            int c = in->of_rank[i];
            const struct class *class = &in->class[c];
            bool fits = !class->take || in->room[r] == INT64_MAX || level + class->take <= in->room[r];
            if (row[c] < class->items && fits && is_ready(in, row, class, row[c]))
                s->choice[r][s->nchoices[r]++] = c;
        }
        s->choice[r][s->nchoices[r]++] = -1;
    }
}

/* ---- the next state ---- */

static int64_t next_event(const struct search *s, int32_t c, int64_t age) {
    const int64_t *after = s->after[c];
    while (*after <= age)
        after++;
    return *after == INT64_MAX ? INT64_MAX : *after - age;
}

/* Returns whether a rank that starts nothing could have run something that ends by then, at no cost. */
static bool wastes_time(const struct search *s, const int32_t *row, int64_t step) {
    const struct instance *in = s->in;
    for (int r = 0; r < in->ranks; r++)
        for (int i = 0; i < s->nchoices[r] - 1 && s->chosen[r] < 0; i++) {
            const struct class *class = &in->class[s->choice[r][i]];
            bool may_wait = in->span && row[in->n + in->ranks + r] == 0; /* the later it begins, the better */
            if (!may_wait && class->time == step && (!class->take || in->one_taker[r] || in->room[r] == INT64_MAX))
                return true;
        }
    return false;
}

static bool has_ended(const struct instance *in, const int32_t *row, int r) {
    for (int i = in->of_rank_at[r]; i < in->of_rank_at[r + 1]; i++)
        if (row[in->of_rank[i]] < in->class[in->of_rank[i]].items)
            return false;
    return row[in->n + r] == 0;
}

/* Returns how long ago rank r began, in s->row, which comes `step` ticks after row; once it has ended, its span. */
static int32_t since(const struct search *s, const int32_t *row, int r, int64_t step) {
    const struct instance *in = s->in;
    int32_t before = row[in->n + in->ranks + r], c = s->chosen[r];
    if (has_ended(in, row, r) || (before == 0 && c < 0))
        return before;
    if (has_ended(in, s->row, r))
        return before + (c < 0 ? row[in->n + r] : (int32_t)in->class[c].time);
    return before + (int32_t)step;
}

/* Ages the recent starts of row by `step` ticks into s->row, adding the chosen ones, in the order of classes. */
static void make_row(struct search *s, const int32_t *row, int64_t step) {
    const struct instance *in = s->in;
    const int32_t *recent = row + state_width(in), *end = recent + 2 * recent_starts(in, row);
    int32_t *out = s->row + state_width(in), n = 0;
    memcpy(s->row, row, sizeof *row * (size_t)in->n);
    memset(s->row + in->n, 0, sizeof *row * (size_t)in->ranks);
    for (int c = 0; c < in->n; c++) {
        const struct class *class = &in->class[c];
        bool starts = s->chosen[class->rank] == c;
        s->row[c] += starts;
        for (; (recent < end && recent[0] == c) || starts;) {
            bool old = recent < end && recent[0] == c;
            int64_t age = (old ? recent[1] : 0) + step;
            recent += old ? 2 : 0;
            starts = old && starts;
            if (class->time > age)
                s->row[in->n + class->rank] = (int32_t)(class->time - age);
            if (age < class->reach) {
                out[2 * n] = c;
                out[2 * n++ + 1] = (int32_t)age;
            }
        }
    }
    s->row[state_width(in) - 1] = n;
    for (int r = 0; r < in->ranks && in->span; r++)
        s->row[in->n + in->ranks + r] = since(s, row, r, step);
}

/* Returns the least time until rank r can end, given what is left on rank q. For each class: the work of all classes
 * whose path to r's end is at least as long, then that path. */
static int64_t left_for(const struct instance *in, const int32_t *row, int q, int r) {
    int64_t bound = q == r ? row[in->n + q] : 0;
    for (int i = in->of_rank_at[q]; i < in->of_rank_at[q + 1]; i++) {
        int64_t work = row[in->n + q], least_to = in->tail_to[in->of_rank[i] * in->ranks + r];
        if (least_to < 0 || row[in->of_rank[i]] == in->class[in->of_rank[i]].items)
            continue;
        for (int k = in->of_rank_at[q]; k < in->of_rank_at[q + 1]; k++) {
            const struct class *class = &in->class[in->of_rank[k]];
            if (in->tail_to[in->of_rank[k] * in->ranks + r] >= least_to)
                work += class->time * (class->items - row[in->of_rank[k]]);
        }
        bound = work + least_to > bound ? work + least_to : bound;
    }
    return bound;
}

/* Returns a lower bound on the largest span. */
static int64_t span_from(const struct instance *in, const int32_t *row) {
    int64_t bound = 0;
    for (int r = 0; r < in->ranks; r++) {
        int64_t span = row[in->n + in->ranks + r], left = 0;
        if (span == 0)
            span = span_bound(in, r);
        else if (!has_ended(in, row, r)) {
            for (int q = 0; q < in->ranks; q++) {
                int64_t more = left_for(in, row, q, r);
                left = more > left ? more : left;
            }
            const int32_t *recent = row + state_width(in);
            for (int32_t i = 0; i < recent_starts(in, row); i++) {
                int64_t to = in->tail_to[recent[2 * i] * in->ranks + r];
                int64_t more = in->class[recent[2 * i]].time - recent[2 * i + 1] + to;
                left = to >= 0 && more > left ? more : left;
            }
        }
        bound = span + left > bound ? span + left : bound;
    }
    return bound;
}

/* Returns the earliest time at which everything left can have ended, from time t on. */
static int64_t bound_of(const struct instance *in, const int32_t *row, int64_t t) {
    if (in->span)
        return span_from(in, row);
    int64_t bound = t;
    for (int r = 0; r < in->ranks; r++) {
        int64_t work = t + row[in->n + r];
        bound = work > bound ? work : bound;
        for (int i = in->of_rank_at[r]; i < in->of_rank_at[r + 1]; i++) {
            int c = in->of_rank[i];
            work += in->class[c].time * (in->class[c].items - row[c]);
            if (row[c] < in->class[c].items && work + in->class[c].tail > bound)
                bound = work + in->class[c].tail;
        }
    }
    const int32_t *recent = row + state_width(in);
    for (int32_t i = 0; i < recent_starts(in, row); i++) {
        const struct class *class = &in->class[recent[2 * i]];
        int64_t end = t - recent[2 * i + 1] + class->time + class->tail;
        bound = end > bound ? end : bound;
    }
    return bound;
}

static bool is_complete(const struct instance *in, const int32_t *row) {
    for (int c = 0; c < in->n; c++)
        if (row[c] < in->class[c].items)
            return false;
    return true;
}

/* ---- the states ---- */

static uint64_t hash(const int32_t *row, size_t words, int64_t time) {
    uint64_t h = 0xcbf29ce484222325u ^ (uint64_t)time;
    for (size_t i = 0; i < words; i++)
        h = (h ^ (uint32_t)row[i]) * 0x100000001b3u;
    return h ^ h >> 29;
}

/* Returns the slot in the table where a state is, or would be. */
static int32_t *place_for(const struct search *s, const int32_t *row, int64_t time) {
    const struct visited *v = &s->found.visited;
    size_t words = row_words(s->in, row), i = hash(row, words, time) & (s->size - 1);
    for (;; i = (i + 1) & (s->size - 1)) {
        int32_t x = s->table[i] - 1;
        if (x < 0 || (v->time[x] == time && row_words(s->in, state_row(s, x)) == words &&
                      !memcmp(state_row(s, x), row, words * sizeof *row)))
            return &s->table[i];
    }
}

static void grow_table(struct search *s) {
    const struct visited *v = &s->found.visited;
    if (2 * (size_t)v->n < s->size)
        return;
    s->size = s->size ? 2 * s->size : 1024;
    s->table = NEW(int32_t, s->size);
    for (int32_t i = 0; i < v->n; i++)
        *place_for(s, state_row(s, i), v->time[i]) = i + 1;
}

static struct layer *layer_at(struct search *s, int64_t time) {
    for (size_t i = 0; i < s->nlayers; i++)
        if (s->layer[i].time == time)
            return &s->layer[i];
    GROW(s->layer, s->cap_layers, s->nlayers + 1);
    s->layer[s->nlayers] = (struct layer){.time = time};
    return &s->layer[s->nlayers++];
}

/* Adds s->row as a state, unless it is one already. */
static void add_state(struct search *s, int64_t time, int32_t parent, int64_t bound) {
    struct visited *v = &s->found.visited;
    size_t words = row_words(s->in, s->row), n = (size_t)v->n + 1;
    grow_table(s);
    int32_t *place = place_for(s, s->row, time);
    if (*place)
        return;
    GROW(v->time, s->cap_time, n);
    GROW(v->at, s->cap_at, n);
    GROW(v->parent, s->cap_parent, n);
    GROW(v->kept, s->cap_kept, n);
    GROW(s->bound, s->cap_bound, n);
    GROW(v->word, s->cap_word, s->words + words);
    memcpy(v->word + s->words, s->row, words * sizeof *s->row);
    v->time[v->n] = time;
    v->at[v->n] = s->words;
    v->parent[v->n] = parent;
    v->kept[v->n] = false;
    s->bound[v->n] = bound;
    s->words += words;
    *place = (int32_t)n;
    struct layer *layer = layer_at(s, time);
    GROW(layer->state, layer->cap, layer->n + 1);
    layer->state[layer->n++] = v->n++;
}

/* ---- dominance ---- */

static int by_progress(const void *x, const void *y) {
    const struct rank_of *a = x, *b = y;
    if (a->group != b->group)
        return a->group < b->group ? -1 : 1;
    return a->progress != b->progress ? (a->progress < b->progress ? 1 : -1)
                                      : (a->state > b->state) - (a->state < b->state);
}
static int by_bound(const void *x, const void *y) {
    const struct rank_of *a = x, *b = y;
    if (a->bound != b->bound)
        return a->bound < b->bound ? -1 : 1;
    return a->progress != b->progress ? (a->progress < b->progress ? 1 : -1)
                                      : (a->state > b->state) - (a->state < b->state);
}

static struct rank_of rank_state(const struct search *s, int32_t state) {
    const int32_t *row = state_row(s, state);
    int64_t progress = 0;
    for (int c = 0; c < s->in->n; c++)
        progress += row[c] * s->in->class[c].time;
    for (int r = 0; r < s->in->ranks; r++)
        progress -= row[s->in->n + r];
    return (struct rank_of){s->bound[state], progress, state_key(s->in, row), state};
}

/* Moves the states of a layer that no other dominates, at most as many as the beam, to the front of list. Returns their
 * number. */
static size_t thin_out(struct search *s, const struct layer *layer, struct rank_of *list) {
    size_t n = 0, kept = 0, begin = 0;
    for (size_t i = 0; i < layer->n; i++)
        if (s->bound[layer->state[i]] < s->found.makespan)
            list[n++] = rank_state(s, layer->state[i]);
    sort(list, n, sizeof *list, by_progress);
    for (size_t i = 0; i < n; i++) {
        bool drop = false;
        if (i == 0 || list[i].group != list[i - 1].group)
            begin = kept;
        size_t from = kept - begin > COMPARED ? kept - COMPARED : begin;
        for (size_t k = from; k < kept && !drop; k++)
            drop = state_dominates(s->in, state_row(s, list[k].state), state_row(s, list[i].state));
        if (!drop)
            list[kept++] = list[i];
    }
    if (s->effort.beam && kept > (size_t)s->effort.beam) {
        sort(list, kept, sizeof *list, by_bound);
        kept = (size_t)s->effort.beam;
        s->found.all = false;
    }
    return kept;
}

/* ---- the search ---- */

static void visit(struct search *s, int32_t state, int64_t step) {
    const struct instance *in = s->in;
    struct visited *v = &s->found.visited;
    if (step == INT64_MAX || wastes_time(s, state_row(s, state), step))
        return;
    make_row(s, state_row(s, state), step);
    int64_t time = v->time[state] + step, bound = bound_of(in, s->row, time);
    if (bound >= s->found.makespan)
        return;
    int32_t before = v->n;
    add_state(s, time, state, bound);
    if (v->n > before && is_complete(in, s->row)) {
        s->found.makespan = bound; /* only running items are left */
        v->best = before;
    }
}

/* Returns the step to the next moment. A rank that has not begun may begin at any tick, not only at events:
 * search.h. */
static int64_t next_tick(const struct search *s, const int32_t *row, int64_t step) {
    const struct instance *in = s->in;
    for (int r = 0; r < in->ranks && step < INT64_MAX; r++)
        if (row[in->n + in->ranks + r] == 0 && s->chosen[r] < 0 && in->of_rank_at[r] < in->of_rank_at[r + 1])
            return 1;
    return step;
}

/* Tries all that the ranks from r on can start. step: ticks to the next event. */
static void choose_from(struct search *s, int32_t state, int r, int64_t step) {
    if (r == s->in->ranks) {
        visit(s, state, s->in->span ? next_tick(s, state_row(s, state), step) : step);
        return;
    }
    for (int i = 0; i < s->nchoices[r]; i++) {
        s->chosen[r] = s->choice[r][i];
        choose_from(s, state, r + 1, s->chosen[r] < 0 ? step : least(step, next_event(s, s->chosen[r], 0)));
    }
}

static void follow_choices(struct search *s, int32_t state) {
    const struct instance *in = s->in;
    const int32_t *row = state_row(s, state), *recent = row + state_width(in);
    int64_t step = INT64_MAX;
    s->found.visited.kept[state] = true;
    for (int32_t i = 0; i < recent_starts(in, row); i++)
        step = least(step, next_event(s, recent[2 * i], recent[2 * i + 1]));
    find_choices(s, row);
    choose_from(s, state, 0, step);
}

static struct layer next_layer(struct search *s) {
    size_t first = 0;
    for (size_t i = 1; i < s->nlayers; i++)
        first = s->layer[i].time < s->layer[first].time ? i : first;
    struct layer layer = s->layer[first];
    s->layer[first] = s->layer[--s->nlayers];
    return layer;
}

double seconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

double seconds_until(double limit) { return limit > 0 ? seconds_now() + limit : 0; }

static bool gives_up(const struct search *s) {
    return s->found.visited.n > s->effort.states || s->words > MOST_WORDS ||
           (s->effort.until > 0 && seconds_now() > s->effort.until);
}

static int by_value64(const void *x, const void *y) {
    int64_t a = *(const int64_t *)x, b = *(const int64_t *)y;
    return (a > b) - (a < b);
}

static void list_events(struct search *s) {
    const struct instance *in = s->in;
    int *n = NEW(int, in->n);
    for (int c = 0; c < in->n; c++)
        for (int l = 0; l < in->class[c].nlags; l++)
            n[in->class[c].lag[l].from]++;
    s->after = NEW(int64_t *, in->n);
    for (int c = 0; c < in->n; c++) {
        s->after[c] = NEW(int64_t, n[c] + 2);
        s->after[c][0] = in->class[c].time;
        n[c] = 1;
    }
    for (int c = 0; c < in->n; c++)
        for (int l = 0; l < in->class[c].nlags; l++) {
            int from = in->class[c].lag[l].from;
            s->after[from][n[from]++] = in->class[c].lag[l].ticks;
        }
    for (int c = 0; c < in->n; c++) {
        sort(s->after[c], (size_t)n[c], sizeof **s->after, by_value64);
        s->after[c][n[c]] = INT64_MAX;
    }
}

static void make_tables(struct search *s) {
    const struct instance *in = s->in;
    size_t recent = 0; /* the most that fit one after the other */
    for (int c = 0; c < in->n; c++)
        recent += (size_t)least(in->class[c].reach / in->class[c].time + 2, in->class[c].items);
    s->row = NEW(int32_t, (size_t)state_width(in) + 2 * recent);
    s->choice = NEW(int32_t *, in->ranks);
    s->nchoices = NEW(int, in->ranks);
    s->chosen = NEW(int32_t, in->ranks);
    for (int r = 0; r < in->ranks; r++)
        s->choice[r] = NEW(int32_t, in->of_rank_at[r + 1] - in->of_rank_at[r] + 1);
    list_events(s);
}

struct found search(const struct instance *in, int64_t limit, struct effort effort) {
    struct search s = {.in = in, .effort = effort, .found = {.makespan = limit, .all = true, .visited.best = -1}};
    make_tables(&s);
    memset(s.row, 0, sizeof *s.row * (size_t)state_width(in));
    int64_t bound = bound_of(in, s.row, 0);
    if (bound < limit)
        add_state(&s, 0, -1, bound);
    while (s.nlayers > 0) {
        struct layer layer = next_layer(&s);
        if (gives_up(&s)) {
            s.found.all = false;
            break;
        }
        GROW(s.list, s.cap_list, layer.n);
        size_t n = thin_out(&s, &layer, s.list);
        for (size_t i = 0; i < n; i++)
            if (s.bound[s.list[i].state] < s.found.makespan)
                follow_choices(&s, s.list[i].state);
    }
    return s.found;
}
