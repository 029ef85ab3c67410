/* Records the content of a buffer's units, if they do not all hold the same.
 *
 * Units are fine enough that every piece of a set is a whole number of them (verify_homes.c). Most buffers hold one
 * thing in all their units, which their value records. Only if units differ, as when some shards of weights have
 * arrived, a list of runs is taken from a pool. Its length grows with the number of differences, not of units. It goes
 * back to the pool once the units agree again. */
#include "check_homes.h"
#include <string.h>

struct run {
    int32_t to; /* end of the run, counted from the buffer's first unit; it begins where the run before ends */
    struct content held;
};
struct runs {
    struct run *run;
    size_t n, cap;
    int32_t next; /* next in the list of spare ones */
};
struct pool {
    struct runs *runs; /* index 0 means none */
    size_t n, cap;
    int32_t spare;
};

static struct pool *pool_of(const struct check *check) {
    struct values *values = check->values;
    if (!values->pool) {
        values->pool = NEW(struct pool, 1);
        values->pool->n = 1;
    }
    return values->pool;
}

static int32_t take_runs(struct pool *pool) {
    int32_t p = pool->spare;
    if (p)
        pool->spare = pool->runs[p].next;
    else {
        GROW(pool->runs, pool->cap, pool->n + 1);
        p = (int32_t)pool->n++;
        pool->runs[p] = (struct runs){0};
    }
    pool->runs[p].n = 0;
    return p;
}

void drop_pieces(struct check *check, struct value *value) {
    if (value->pieces) {
        struct pool *pool = pool_of(check);
        pool->runs[value->pieces].next = pool->spare;
        pool->spare = value->pieces;
    }
    value->pieces = 0;
    value->set = value->half = false;
    value->count = 0;
    value->sum = NO_SUM;
}

static struct span whole_span(const struct check *check, int r, int32_t b) {
    return units_of(check, r, &(struct arg){.buf = b});
}

static struct content held_by(const struct value *value) {
    return value->set || value->half ? (struct content){value->count, value->sum, value->set, value->half}
                                     : (struct content){0};
}

static bool same_content(struct content a, struct content b) {
    return a.set == b.set && a.half == b.half && a.count == b.count && a.sum == b.sum;
}

/* Returns the first run that ends after the unit. */
static size_t run_at(const struct runs *runs, int32_t unit) {
    size_t low = 0, high = runs->n - 1;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (runs->run[middle].to > unit)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

struct content held_at(const struct check *check, int r, int32_t b, int32_t unit, int32_t *to) {
    const struct value *value = &check->values->val[r][b];
    struct span all = whole_span(check, r, b);
    if (!value->pieces) {
        *to = all.to;
        return held_by(value);
    }
    const struct runs *runs = &pool_of(check)->runs[value->pieces];
    const struct run *run = &runs->run[run_at(runs, unit - all.from)];
    *to = all.from + run->to;
    return run->held;
}

/* Appends to the n runs of `out`, or extends the last of them. Returns the new number of runs. */
static int append(struct run *out, int n, int32_t from, int32_t to, struct content held) {
    if (from >= to)
        return n;
    if (n > 0 && same_content(out[n - 1].held, held))
        n--;
    out[n] = (struct run){to, held};
    return n + 1;
}

void hold(struct check *check, int r, int32_t b, struct span span, struct content held) {
    struct value *value = &check->values->val[r][b];
    struct span all = whole_span(check, r, b);
    if (!same_span(span, all)) {
        if (!value->pieces && same_content(held_by(value), held))
            return;
        struct pool *pool = pool_of(check);
        if (!value->pieces) {
            int32_t pieces = take_runs(pool);
            struct runs *runs = &pool->runs[pieces];
            GROW(runs->run, runs->cap, 1);
            runs->run[runs->n++] = (struct run){all.to - all.from, held_by(value)};
            value->pieces = pieces;
        }
        struct runs *runs = &pool->runs[value->pieces];
        int32_t from = span.from - all.from, to = span.to - all.from;
        size_t a = run_at(runs, from), z = run_at(runs, to - 1); /* replaced with their neighbours, which may merge */
        a -= a > 0;
        z += z + 1 < runs->n;
        struct run put[5];
        int n = 0;
        int32_t at = a > 0 ? runs->run[a - 1].to : 0;
        for (size_t i = a; i <= z && at < from; at = runs->run[i++].to)
            n = append(put, n, at, runs->run[i].to < from ? runs->run[i].to : from, runs->run[i].held);
        n = append(put, n, from, to, held);
        at = to;
        for (size_t i = run_at(runs, to < all.to - all.from ? to : to - 1); i <= z; at = runs->run[i++].to)
            n = append(put, n, at, runs->run[i].to, runs->run[i].held);
        size_t after = runs->n - z - 1;
        GROW(runs->run, runs->cap, a + (size_t)n + after);
        memmove(runs->run + a + n, runs->run + z + 1, sizeof *runs->run * after);
        memcpy(runs->run + a, put, sizeof *put * (size_t)n);
        runs->n = a + (size_t)n + after;
        if (runs->n > 1)
            return;
        held = runs->run[0].held;
    }
    drop_pieces(check, value);
    value->set = held.set;
    value->half = held.half;
    value->count = held.count;
    value->sum = held.sum;
}

static int32_t first_that(const struct check *check, int r, int32_t b, struct span span, bool set) {
    for (int32_t at = span.from, to; at < span.to; at = to)
        if (held_at(check, r, b, at, &to).set == set)
            return at;
    return -1;
}

int32_t first_unset(const struct check *check, int r, int32_t b, struct span span) {
    return first_that(check, r, b, span, false);
}
int32_t first_set(const struct check *check, int r, int32_t b, struct span span) {
    return first_that(check, r, b, span, true);
}

void copy_span(struct check *check, int from, int32_t b, int to, int32_t c, struct span span) {
    for (int32_t at = span.from, end; at < span.to; at = end) {
        struct content held = held_at(check, from, b, at, &end);
        end = end < span.to ? end : span.to;
        hold(check, to, c, (struct span){at, end}, held);
    }
}
