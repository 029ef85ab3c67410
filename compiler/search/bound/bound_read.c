/* Reads a certificate of a lower bound. The form is strict, with one blank between words. Programs write certificates,
 * so any deviation from the description is refused rather than guessed at. */
#include "bound.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const bound_proof_word[] = {"work", "path", "memory", "cover"};

struct reader {
    const char *at, *line_start, *end;
    int line;
    struct bound *b;
    int64_t times, takes, gives; /* sums so far; times include lags */
    int32_t narcs;
};

static _Noreturn void bad(const struct reader *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static _Noreturn void bad(const struct reader *r, const char *fmt, ...) {
    char why[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(why, sizeof why, fmt, ap);
    va_end(ap);
    die_at(r->b->file, r->b->src, r->line, (int)(r->at - r->line_start) + 1, "%s", why);
}

static bool next_is(const struct reader *r, const char *word) { return strncmp(r->at, word, strlen(word)) == 0; }

static void expect(struct reader *r, const char *word, const char *form) {
    if (!next_is(r, word))
        bad(r, "expected \"%s\": the line is `%s`", word, form);
    r->at += strlen(word);
}

static void end_line(struct reader *r) {
    if (*r->at != '\n')
        bad(r, *r->at ? "expected the end of the line" : "the file ends within a line: write the certificate again");
    r->line_start = ++r->at;
    r->line++;
}

/* Reads a whole number without leading zeros. */
static int64_t read_count(struct reader *r, const char *what, int64_t least, int64_t most) {
    const char *s = r->at;
    bool minus = *s == '-', ok;
    s += minus;
    ok = *s >= '0' && *s <= '9' && !(*s == '0' && (minus || (s[1] >= '0' && s[1] <= '9')));
    int64_t n = 0;
    for (; ok && *s >= '0' && *s <= '9'; s++)
        ok = !__builtin_mul_overflow(n, 10, &n) && !__builtin_add_overflow(n, *s - '0', &n);
    n = minus ? -n : n;
    if (!ok || n < least || n > most)
        bad(r, "expected %s: a whole number from %lld to %lld", what, (long long)least, (long long)most);
    r->at = s;
    return n;
}

static int64_t read_named(struct reader *r, const char *word, const char *form, int64_t least, int64_t most) {
    expect(r, word, form);
    return read_count(r, word, least, most);
}

static void add_product(struct reader *r, int64_t *sum, int64_t each, int64_t n, const char *what) {
    int64_t all;
    if (__builtin_mul_overflow(each, n, &all) || all > MOST_SUM - *sum)
        bad(r, "the sum of all %s is more than 2^59: use a larger tick or unit", what);
    *sum += all;
}

static void read_bound_head(struct reader *r) {
    struct bound *b = r->b;
    if (!next_is(r, "pianola bound 1\n"))
        bad(r, "expected \"pianola bound 1\", the first line of a certificate of a lower bound");
    r->at += strlen("pianola bound 1");
    end_line(r);
    expect(r, "schedule ", "schedule TEXT");
    size_t n = strcspn(r->at, "\n");
    b->schedule = format("%.*s", (int)(n < 4096 ? n : 4096), r->at);
    r->at += n;
    end_line(r);
    expect(r, "tick ", "tick TIME");
    char digits[40] = "", *end;
    n = strspn(r->at, "0123456789.e+-");
    memcpy(digits, r->at, n < sizeof digits ? n : 0);
    b->tick = strtod(digits, &end);
    if (!*digits || *end || !isfinite(b->tick) || !(b->tick > 0))
        bad(r, "expected the length of a tick: a number above 0");
    r->at += n;
    end_line(r);
    b->limit = read_named(r, "limit ", "limit TICKS", 0, MOST_SUM);
    end_line(r);
    if (next_is(r, "objective ")) {
        expect(r, "objective span", "objective span");
        b->spans = true;
        end_line(r);
    }
    b->ranks = (int32_t)read_named(r, "ranks ", "ranks N", 1, MOST_BOUND_RANKS);
    end_line(r);
}

static void read_rooms(struct reader *r) {
    struct bound *b = r->b;
    b->room = NEW(int64_t, b->ranks);
    b->room_line = NEW(int, b->ranks);
    for (int32_t k = 0; k < b->ranks; k++)
        b->room[k] = -1;
    while (next_is(r, "room ")) {
        int64_t k = read_named(r, "room ", "room RANK UNITS", 0, b->ranks - 1);
        if (b->room[k] >= 0)
            bad(r, "rank %lld already has a room: keep one line for it", (long long)k);
        expect(r, " ", "room RANK UNITS");
        b->room[k] = read_count(r, "the units", 0, MOST_SUM);
        b->room_line[k] = r->line;
        end_line(r);
    }
}

static void read_class(struct reader *r, struct bound_class *c, int32_t number) {
    static const char form[] = "class NUMBER NAME rank RANK time TICKS items N take UNITS give UNITS";
    c->line = r->line;
    if (read_named(r, "class ", form, 0, MOST_CLASSES) != number)
        bad(r, "expected class %d: classes are numbered from 0, in order", (int)number);
    expect(r, " ", form);
    size_t n = 0;
    while (r->at[n] > ' ' && r->at[n] < 127)
        n++;
    if (n == 0 || n > 64)
        bad(r, "expected the class's name: 1 to 64 characters of ASCII");
    c->name = format("%.*s", (int)n, r->at);
    r->at += n;
    c->rank = (int32_t)read_named(r, " rank ", form, 0, r->b->ranks - 1);
    c->time = read_named(r, " time ", form, 0, MOST_SUM);
    c->items = (int32_t)read_named(r, " items ", form, 1, MOST_ITEMS);
    c->take = read_named(r, " take ", form, 0, MOST_SUM);
    c->give = read_named(r, " give ", form, 0, MOST_SUM);
    add_product(r, &r->times, c->time, c->items, "times and lags");
    add_product(r, &r->takes, c->take, c->items, "units taken");
    add_product(r, &r->gives, c->give, c->items, "units given back");
    end_line(r);
}

static void read_classes(struct reader *r) {
    struct bound *b = r->b;
    size_t cap = 0;
    if (!next_is(r, "class "))
        bad(r, "expected `class 0 …`, or `room RANK UNITS` before it");
    while (next_is(r, "class ")) {
        if (b->nclass == MOST_CLASSES)
            bad(r, "more than %d classes: too many to check", MOST_CLASSES);
        GROW(b->class, cap, (size_t)b->nclass + 1);
        b->class[b->nclass] = (struct bound_class){0};
        read_class(r, &b->class[b->nclass], b -> nclass);
        b->nclass++;
    }
}

/* Reads an arc: a class and its lag. seen: per class, the line that last named it. */
static struct bound_arc read_arc(struct reader *r, int *seen) {
    struct bound *b = r->b;
    const char *start = r->at;
    struct bound_arc arc = {.class = (int32_t)read_count(r, "a class", 0, b->nclass - 1)};
    const struct bound_class *from = &b->class[arc.class];
    if (seen[arc.class] == r->line) {
        r->at = start;
        bad(r, "class %d is named twice: keep the larger lag", (int)arc.class);
    }
    seen[arc.class] = r->line;
    expect(r, "+", "after CLASS: CLASS+LAG CLASS+LAG …");
    arc.lag = read_count(r, "the lag, at least the time of the class named", from->time, MOST_SUM);
    add_product(r, &r->times, arc.lag, 1, "times and lags");
    if (++r->narcs > MOST_ARCS)
        bad(r, "more than %d classes are named: too many to check", MOST_ARCS);
    return arc;
}

static void check_items(const struct reader *r, const struct bound_class *c) {
    int64_t sum = 0;
    for (int32_t i = 0; i < c->narc; i++) {
        const struct bound_class *from = &r->b->class[c->arc[i].class];
        sum += from->items;
        if (!c->pool && from->items != c->items)
            bad(r, "%s has %d items, but %s before it has %d: both need equally many", c->name, (int)c->items,
                from->name, (int)from->items);
    }
    if (c->pool && sum != c->items)
        bad(r, "pool %s has %d items, but the classes before it have %lld together: both need equally many", c->name,
            (int)c->items, (long long)sum);
}

static void read_arcs(struct reader *r) {
    struct bound *b = r->b;
    int *seen = NEW(int, b->nclass);
    while (next_is(r, "after ") || next_is(r, "pool ")) {
        bool pool = *r->at == 'p';
        r->at += pool ? 5 : 6;
        struct bound_class *c = &b->class[read_count(r, "a class", 0, b->nclass - 1)];
        if (c->arc_line)
            bad(r, "class %s already has a line (%d): name all classes in that one", c->name, c->arc_line);
        c->arc_line = r->line;
        c->pool = pool;
        expect(r, ":", "after CLASS: CLASS+LAG CLASS+LAG …");
        size_t cap = 0;
        do {
            expect(r, " ", "after CLASS: CLASS+LAG CLASS+LAG …");
            struct bound_arc arc = read_arc(r, seen);
            GROW(c->arc, cap, (size_t)c->narc + 1);
            c->arc[c->narc++] = arc;
        } while (*r->at == ' ');
        check_items(r, c);
        end_line(r);
    }
    for (const struct bound_class *c = b->class; c < b->class + b->nclass; c++)
        for (int32_t i = 0; i < c->narc; i++)
            if (b->class[c->arc[i].class].pool)
                die_at(b->file, b->src, c->arc_line, 0, "%s is a pool: nothing can come after its items",
                       b->class[c->arc[i].class].name);
}

static void read_recent(struct reader *r, struct cover *v, int64_t *last) {
    static const char form[] = "at TIME: STARTED … | CLASS START START … | …";
    struct bound *b = r->b;
    int64_t number = read_named(r, " | ", form, *last + 1, b->nclass - 1), n = 0, before = -MOST_SUM - 1;
    const struct bound_class *c = &b->class[number];
    size_t group = v->nrecent;
    GROW(v->recent, v->cap, v->nrecent + 2);
    v->nrecent += 2;
    for (; r->at[0] == ' ' && r->at[1] != '|'; n++) {
        if (n == v->started[(size_t)(v->n - 1) * (size_t)b->nclass + (size_t)number])
            bad(r, "more starts of %s than its items that have started", c->name);
        expect(r, " ", form);
        int64_t start = read_count(r, "a start, ascending, before the state's time and recent enough to matter",
                                   before + 1 > 1 - c->latest ? before + 1 : 1 - c->latest, -1);
        GROW(v->recent, v->cap, v->nrecent + 1);
        v->recent[v->nrecent++] = before = start;
    }
    if (n == 0)
        bad(r, "expected the starts of class %lld after its number", (long long)number);
    v->recent[group] = *last = number;
    v->recent[group + 1] = n;
}

/* Reads how long ago ranks began. The started items determine which ranks have begun; these and the running items
 * determine which have ended. */
static void read_since(struct reader *r) {
    static const char form[] = "at TIME: STARTED … | CLASS START … | … | since RANK:TICKS …";
    struct bound *b = r->b;
    struct cover *v = &b->cover;
    const int32_t *started = v->started + (size_t)(v->n - 1) * (size_t)b->nclass;
    int64_t *since = v->since + (size_t)(v->n - 1) * (size_t)b->nused;
    bool *runs = NEW(bool, b->ranks);
    for (size_t at = v->recent_at[v->n - 1]; at < v->nrecent; at += 2 + (size_t)v->recent[at + 1]) {
        const struct bound_class *c = &b->class[v->recent[at]];
        runs[c->rank] |= v->recent[at + 1 + (size_t)v->recent[at + 1]] + c->time > 0;
    }
    bool first = true;
    for (int32_t i = 0; i < b->nused; i++) {
        int32_t rank = b->used[i];
        if (!has_begun(b, started, rank) || (!has_left(b, started, rank) && !runs[rank]))
            continue;
        expect(r, first ? " | since " : " ", form);
        first = false;
        const char *start = r->at;
        if (read_count(r, "a rank", 0, b->ranks - 1) != rank) {
            r->at = start;
            bad(r, "expected rank %d, which has begun and not ended: name all such ranks, in order", (int)rank);
        }
        expect(r, ":", form);
        since[i] = read_count(r, "how long ago the rank began", 1, MOST_SUM);
    }
}

static void read_state(struct reader *r) {
    static const char form[] = "at TIME: STARTED … | CLASS START START … | …";
    struct bound *b = r->b;
    struct cover *v = &b->cover;
    int32_t *started = v->started + (size_t)v->n * (size_t)b->nclass;
    v->at[v->n] = read_named(r, "at ", form, v->n ? v->at[v->n - 1] : 0, v->n ? MOST_SUM : 0);
    v->recent_at[v->n++] = v->nrecent;
    expect(r, ":", form);
    for (int32_t c = 0; c < b->nclass; c++) {
        expect(r, " ", form);
        started[c] = (int32_t)read_count(r, "how many items of each class have started (none in the first state)", 0,
                                         v->n == 1 ? 0 : b->class[c].items);
    }
    for (int64_t last = -1; *r->at == ' ' && !next_is(r, " | since");)
        read_recent(r, v, &last);
    if (b->spans) {
        struct scratch scratch = scratch_begin();
        read_since(r);
        scratch_end(scratch);
    }
    end_line(r);
}

static void read_cover(struct reader *r) {
    struct bound *b = r->b;
    struct cover *v = &b->cover;
    for (const struct bound_class *c = b->class; c < b->class + b->nclass; c++)
        if (c->time == 0)
            die_at(b->file, b->src, c->line, 0,
                   "a cover needs times of at least 1: %s takes none, so a rank could start several items at once",
                   c->name);
    int64_t n = read_named(r, " ", "proof cover N", 1, MOST_STATES);
    if (n > (r->end - r->at) / (2 * (int64_t)b->nclass + 6))
        bad(r, "%lld states are more than the file holds: it was cut off", (long long)n);
    end_line(r);
    v->first_line = r->line;
    v->at = NEW(int64_t, n);
    v->started = NEW(int32_t, n * b->nclass);
    v->recent_at = NEW(size_t, n + 1);
    v->since = b->spans ? NEW(int64_t, n * b->nused) : NULL;
    while (v->n < n)
        read_state(r);
    v->recent_at[n] = v->nrecent;
}

static void read_proof(struct reader *r) {
    struct bound *b = r->b;
    expect(r, "proof ", "proof work | path | memory | cover N, after all classes, after and pool lines");
    size_t n = strcspn(r->at, " \n");
    for (int p = BOUND_WORK; p <= BOUND_COVER; p++)
        if (strlen(bound_proof_word[p]) == n && strncmp(r->at, bound_proof_word[p], n) == 0) {
            b->proof = (enum bound_proof)p;
            r->at += n;
            if (b->spans && (p == BOUND_PATH || p == BOUND_MEMORY)) {
                r->at -= n;
                bad(r, "no span is proved by %s: expected work or cover N", bound_proof_word[p]);
            }
            if (p == BOUND_COVER)
                read_cover(r);
            else
                end_line(r);
            return;
        }
    bad(r, "expected a proof: work, path, memory or cover N");
}

struct bound *read_bound(const char *file, const char *src) {
    struct bound *b = NEW(struct bound, 1);
    struct reader r = {.at = src, .line_start = src, .end = src + strlen(src), .line = 1, .b = b};
    b->file = file;
    b->src = src;
    read_bound_head(&r);
    read_rooms(&r);
    read_classes(&r);
    read_arcs(&r);
    bound_link(b);
    read_proof(&r);
    expect(&r, "end", b->proof == BOUND_COVER ? "end, after as many states as `proof cover N` says" : "end");
    end_line(&r);
    if (*r.at)
        bad(&r, "expected nothing after `end`");
    return b;
}
