/* Finds a state of a cover that dominates another.
 *
 * Z dominates Y, both at time T, when (1) Z has started at least as many items of each class, and none of those that Y
 * has started later than Y; (2) no rank is busy longer in Z than in Y; (3) on each rank with room, Z is ahead of Y in
 * no class that takes, unless the rank has only one such class; (4) for spans, the same ranks have begun, and each that
 * has ended in neither has begun in Z no earlier than in Y. Then, if nothing completes Z before the limit, nothing
 * completes Y before it. Take any completion of Y, and let Z do what it has not done yet at the same times. By (2), and
 * because no start is added, ranks run one item at a time. By (1), every item that another waits for, and every item
 * that gives room back, starts as early as in Y's completion. By (3), when an item takes room, no more items have taken
 * room before it than in Y's: of its own class, because items are numbered in order; of other classes, because Z is not
 * ahead. And no item ends later than in Y's. A start that is no longer listed has had all its effects by T. It counts
 * as earlier than any listed start, and the argument needs nothing more. Z need not even be reachable. With (4), no
 * rank that has not ended in Z has a longer span than in Y's, and Z's claim is about these ranks.
 *
 * The states of each time form a tree over what (1) to (3) compare: numbers that must be at least as large in Z as in
 * Y. A node keeps the largest of each among its states. A search skips a node if one of these is too small. */
#include "bound.h"
#include <stdlib.h>
#include <string.h>

enum { LEAF = 6 };

struct node {
    int32_t first, n;  /* its states are order[first .. first + n) */
    int32_t low, high; /* its two halves; -1: a leaf */
};

struct layer {
    int64_t at;
    int32_t root;
};

struct cover_index {
    const struct bound *b;
    int32_t width;  /* numbers per state: per class, per used rank, and per class of `equal` */
    int32_t *equal; /* classes that take, on ranks with room and more than one such class */
    int32_t nequal;
    int32_t *order; /* the cover's states, in the order of the trees */
    struct layer *layer;
    int32_t nlayer;
    struct node *node;
    int64_t *most; /* nodes x width */
    size_t nnode, node_cap, most_cap;
    int64_t *numbers; /* one time's states' numbers while their tree grows; afterwards the numbers of the state searched
                         for */
    struct key *key;
};

struct key {
    int64_t value;
    int32_t state;
};

static int by_key_value(const void *x, const void *y) {
    const struct key *a = x, *b = y;
    if (a->value != b->value)
        return a->value < b->value ? -1 : 1;
    return a->state < b->state ? -1 : a->state > b->state;
}

struct bound_state bound_state_new(const struct bound *b) {
    return (struct bound_state){.started = NEW(int32_t, b->nclass),
                                .first = NEW(int32_t, b->nclass + 1),
                                .free = NEW(int64_t, b->ranks),
                                .since = NEW(int64_t, b->ranks)};
}

bool has_begun(const struct bound *b, const int32_t *started, int32_t rank) {
    for (int32_t c = 0; c < b->nclass; c++)
        if (b->class[c].rank == rank && started[c] > 0)
            return true;
    return false;
}

bool has_left(const struct bound *b, const int32_t *started, int32_t rank) {
    for (int32_t c = 0; c < b->nclass; c++)
        if (b->class[c].rank == rank && started[c] < b->class[c].items)
            return true;
    return false;
}

void state_of_cover(const struct bound *b, int32_t n, struct bound_state *x) {
    const struct cover *v = &b->cover;
    size_t at = v->recent_at[n], end = v->recent_at[n + 1], nstart = 0;
    GROW(x->start, x->cap, end - at + 1);
    x->at = v->at[n];
    for (int32_t i = 0; i < b->nused; i++) {
        x->free[b->used[i]] = 0;
        x->since[b->used[i]] = b->spans ? v->since[(size_t)n * (size_t)b->nused + (size_t)i] : 0;
    }
    for (int32_t c = 0; c < b->nclass; c++) {
        const struct bound_class *class = &b->class[c];
        x->started[c] = v->started[(size_t)n * (size_t)b->nclass + (size_t)c];
        x->first[c] = (int32_t)nstart;
        if (at == end || v->recent[at] != c)
            continue;
        int64_t many = v->recent[at + 1];
        memcpy(x->start + nstart, v->recent + at + 2, sizeof *x->start * (size_t)many);
        nstart += (size_t)many;
        at += 2 + (size_t)many;
        int64_t busy = x->start[nstart - 1] + class->time;
        x->free[class->rank] = busy > x->free[class->rank] ? busy : x->free[class->rank];
    }
    x->first[b->nclass] = (int32_t)nstart;
}

static void find_equal(struct cover_index *index) {
    const struct bound *b = index->b;
    int32_t *takers = NEW(int32_t, b->ranks);
    index->equal = NEW(int32_t, b->nclass);
    for (int32_t c = 0; c < b->nclass; c++)
        takers[b->class[c].rank] += b->class[c].take > 0;
    for (int32_t c = 0; c < b->nclass; c++) {
        int32_t rank = b->class[c].rank;
        if (b->class[c].take > 0 && b->room[rank] >= 0 && takers[rank] > 1)
            index->equal[index->nequal++] = c;
    }
}

/* Returns (4) as a number. A rank that has not begun is never worse, but cannot stand in for one that has begun. A rank
 * that has ended is no worse than one that has begun; of two that have begun, the later one is no worse. */
static int64_t spanned(const struct bound *b, const int32_t *started, int32_t rank, int64_t since) {
    return has_begun(b, started, rank) ? -since : 1;
}

/* Writes the numbers that must be at least as large in Z as in Y. */
static void numbers_of(const struct cover_index *index, const struct bound_state *x, int64_t *to) {
    const struct bound *b = index->b;
    for (int32_t c = 0; c < b->nclass; c++)
        *to++ = x->started[c];
    for (int32_t i = 0; i < b->nused; i++)
        *to++ = -x->free[b->used[i]];
    for (int32_t i = 0; i < index->nequal; i++)
        *to++ = -x->started[index->equal[i]];
    for (int32_t i = 0; b->spans && i < b->nused; i++)
        *to++ = spanned(b, x->started, b->used[i], x->since[b->used[i]]);
}

/* Returns the number by which the states of a node differ most; -1: none. Also sets the node's largest numbers. */
static int32_t widest(const struct cover_index *index, const int32_t *state, int32_t n, int32_t first_state,
                      int64_t *most) {
    int32_t best = -1;
    int64_t spread = 0;
    for (int32_t d = 0; d < index->width; d++) {
        int64_t least = INT64_MAX;
        most[d] = INT64_MIN;
        for (int32_t i = 0; i < n; i++) {
            int64_t x = index->numbers[(size_t)(state[i] - first_state) * (size_t)index->width + (size_t)d];
            least = x < least ? x : least;
            most[d] = x > most[d] ? x : most[d];
        }
        if (most[d] - least > spread) {
            spread = most[d] - least;
            best = d;
        }
    }
    return best;
}

/* Builds a tree of n states of one time, whose states begin with first_state. Returns its root. */
static int32_t plant(struct cover_index *index, int32_t first, int32_t n, int32_t first_state) {
    int32_t me = (int32_t)index->nnode++, *state = index->order + first;
    size_t width = (size_t)index->width;
    GROW(index->node, index->node_cap, index->nnode);
    GROW(index->most, index->most_cap, index->nnode * width);
    index->node[me] = (struct node){first, n, -1, -1};
    int32_t by = widest(index, state, n, first_state, index->most + (size_t)me * width);
    if (n <= LEAF || by < 0)
        return me;
    for (int32_t i = 0; i < n; i++)
        index->key[i] = (struct key){index->numbers[(size_t)(state[i] - first_state) * width + (size_t)by], state[i]};
    sort(index->key, (size_t)n, sizeof *index->key, by_key_value);
    for (int32_t i = 0; i < n; i++)
        state[i] = index->key[i].state;
    int32_t low = plant(index, first, n / 2, first_state);
    int32_t high = plant(index, first + n / 2, n - n / 2, first_state);
    index->node[me].low = low;
    index->node[me].high = high;
    return me;
}

static void plant_layer(struct cover_index *index, int32_t first, int32_t n, struct bound_state *x) {
    for (int32_t i = 0; i < n; i++) {
        state_of_cover(index->b, first + i, x);
        numbers_of(index, x, index->numbers + (size_t)i * (size_t)index->width);
        index->order[first + i] = first + i;
    }
    int32_t root = plant(index, first, n, first);
    index->layer[index->nlayer++] = (struct layer){index->b->cover.at[first], root};
}

/* Returns how many states, from `first` on, have its time. */
static int32_t count_at_once(const struct cover *v, int32_t first) {
    int32_t n = 1;
    while (first + n < v->n && v->at[first + n] == v->at[first])
        n++;
    return n;
}

struct cover_index *cover_index_new(const struct bound *b) {
    const struct cover *v = &b->cover;
    struct cover_index *index = NEW(struct cover_index, 1);
    struct bound_state x = bound_state_new(b);
    index->b = b;
    find_equal(index);
    index->width = b->nclass + b->nused + index->nequal + (b->spans ? b->nused : 0);
    index->order = NEW(int32_t, v->n);
    index->layer = NEW(struct layer, v->n);
    int32_t largest = 0;
    for (int32_t first = 0, n; first < v->n; first += n)
        largest = (n = count_at_once(v, first)) > largest ? n : largest;
    index->numbers = NEW(int64_t, (size_t)largest * (size_t)index->width);
    index->key = NEW(struct key, largest);
    for (int32_t first = 0, n; first < v->n; first += n)
        plant_layer(index, first, n = count_at_once(v, first), &x);
    return index;
}

/* Checks (1) for starts, and (2), for the cover's state z, whose numbers of items are known to suffice. */
static bool as_early(const struct bound *b, int32_t z, const struct bound_state *y) {
    const struct cover *v = &b->cover;
    const int32_t *started = v->started + (size_t)z * (size_t)b->nclass;
    for (size_t at = v->recent_at[z]; at < v->recent_at[z + 1]; at += 2 + (size_t)v->recent[at + 1]) {
        int32_t c = (int32_t)v->recent[at];
        int64_t many = v->recent[at + 1];
        const int64_t *start = &v->recent[at + 2];
        int64_t item = started[c] - many, listed = y->started[c] - (y->first[c + 1] - y->first[c]);
        for (int64_t i = 0; i < many && item + i < y->started[c]; i++)
            if (item + i < listed || start[i] > y->start[y->first[c] + (item + i - listed)])
                return false;
        int64_t busy = start[many - 1] + b->class[c].time;
        if (busy > 0 && busy > y->free[b->class[c].rank])
            return false;
    }
    return true;
}

static bool dominates_state(const struct cover_index *index, int32_t z, const struct bound_state *y) {
    const struct bound *b = index->b;
    const int32_t *started = b->cover.started + (size_t)z * (size_t)b->nclass;
    for (int32_t c = 0; c < b->nclass; c++)
        if (started[c] < y->started[c])
            return false;
    for (int32_t i = 0; i < index->nequal; i++)
        if (started[index->equal[i]] > y->started[index->equal[i]])
            return false;
    for (int32_t i = 0; b->spans && i < b->nused; i++)
        if (spanned(b, started, b->used[i], b->cover.since[(size_t)z * (size_t)b->nused + (size_t)i]) <
            spanned(b, y->started, b->used[i], y->since[b->used[i]]))
            return false;
    return as_early(b, z, y);
}

static bool find_state(const struct cover_index *index, int32_t at, const struct bound_state *y, int64_t *steps) {
    const int64_t *most = index->most + (size_t)at * (size_t)index->width;
    const struct node *node = &index->node[at];
    *steps += index->width;
    for (int32_t d = 0; d < index->width; d++)
        if (most[d] < index->numbers[d])
            return false;
    if (node->low >= 0)
        return find_state(index, node->low, y, steps) || find_state(index, node->high, y, steps);
    *steps += node->n;
    for (int32_t i = 0; i < node->n; i++)
        if (dominates_state(index, index->order[node->first + i], y))
            return true;
    return false;
}

bool cover_dominates(const struct cover_index *index, const struct bound_state *y, int64_t *steps) {
    int32_t low = 0, high = index->nlayer;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if (index->layer[middle].at < y->at)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == index->nlayer || index->layer[low].at != y->at)
        return false;
    numbers_of(index, y, index->numbers);
    return find_state(index, index->layer[low].root, y, steps);
}
