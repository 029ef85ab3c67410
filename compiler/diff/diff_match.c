/* Which operations of two sides are the same, what changed about them, and which take longer or end later. */
#include "base/map.h"
#include "diff.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct matcher {
    struct side *side[2];
    int32_t *nth[2]; /* per operation: which of its equals it is */
    struct map map;
    bool ranks; /* equal only on one rank */
};

static bool equal(const struct matcher *m, const struct diff_op *x, int nx, const struct diff_op *y, int ny) {
    return x->op == y->op && x->stage == y->stage && x->batch == y->batch && x->peer == y->peer && nx == ny &&
           (!m->ranks || x->rank == y->rank);
}

static uint32_t place(const struct matcher *m, const struct diff_op *o, int nth) {
    uint64_t h = hash_add(hash_add(hash_add(hash_add(1, o->op), o->stage), o->batch), o->peer);
    return map_start(&m->map, hash_add(hash_add(h, nth), m->ranks ? o->rank : -1));
}

static bool is_left(const struct diff_op *o) { return o->match < 0 && !o->split; }

/* Puts what is left of a side into the map. */
static void map_left(struct matcher *m, int side) {
    const struct side *s = m->side[side];
    m->map = map_new((size_t)s->n);
    for (int i = 0; i < s->n; i++) {
        if (!is_left(&s->op[i]))
            continue;
        uint32_t at = place(m, &s->op[i], m->nth[side][i]);
        while (m->map.slot[at])
            at = map_next(&m->map, at);
        m->map.slot[at] = i + 1;
    }
}

/* The equal of o, the nth such, in the side that is in the map; -1: none. */
static int find(const struct matcher *m, int side, const struct diff_op *o, int nth) {
    uint32_t at = place(m, o, nth);
    for (int i; (i = m->map.slot[at] - 1) >= 0; at = map_next(&m->map, at))
        if (equal(m, &m->side[side]->op[i], m->nth[side][i], o, nth))
            return i;
    return -1;
}

static void match_left(struct matcher *m) {
    struct side *a = m->side[0], *b = m->side[1];
    map_left(m, 0);
    for (int j = 0; j < b->n; j++) {
        int i = is_left(&b->op[j]) ? find(m, 0, &b->op[j], m->nth[1][j]) : -1;
        if (i < 0)
            continue;
        a->op[i].match = j;
        b->op[j].match = i;
    }
}

/* Without the rank, what is left has other equals: they count anew, in the order of ranks and lanes. */
static void renumber(struct matcher *m, int side) {
    const struct side *s = m->side[side];
    int32_t *nth = m->nth[side];
    m->map = map_new((size_t)s->n);
    for (int i = 0; i < s->n; i++) {
        const struct diff_op *o = &s->op[i];
        int k;
        if (!is_left(o))
            continue;
        nth[i] = 0;
        uint32_t at = place(m, o, 0);
        for (; (k = m->map.slot[at] - 1) >= 0; at = map_next(&m->map, at))
            if (equal(m, &s->op[k], 0, o, 0)) {
                nth[i] = nth[k] + 1;
                break;
            }
        m->map.slot[at] = i + 1;
    }
}

/* A B that is left and the other side's I and W of the same, left too: B and I are matched. Returns how many. */
static int match_split(struct matcher *m, int whole) {
    struct side *s = m->side[whole], *parts = m->side[!whole];
    int n = 0;
    map_left(m, !whole);
    for (int j = 0; j < s->n; j++) {
        struct diff_op *o = &s->op[j], x = *o;
        if (!is_left(o) || o->op != OP_B)
            continue;
        x.op = OP_I;
        int i = find(m, !whole, &x, m->nth[whole][j]);
        x.op = OP_W;
        int w = find(m, !whole, &x, m->nth[whole][j]);
        if (i < 0 || w < 0)
            continue;
        o->split = parts->op[i].split = parts->op[w].split = true;
        o->match = i;
        parts->op[i].match = j;
        n++;
    }
    return n;
}

/* ---- order ---- */

/* Of the places that a lane's operations have in B, in A's order, those outside a longest increasing subsequence: the
 * fewest that need to move. Patience sorting (Fredman 1975): best[k] ends a subsequence of k + 1. */
static void mark_reordered(struct side *a, struct side *b, const int32_t *at, int n, int32_t *best, int32_t *before) {
    int longest = 0;
    for (int i = 0; i < n; i++) {
        int low = 0, high = longest;
        while (low < high) {
            int mid = (low + high) / 2;
            if (a->op[at[best[mid]]].match < a->op[at[i]].match)
                low = mid + 1;
            else
                high = mid;
        }
        before[i] = low ? best[low - 1] : -1;
        best[low] = i;
        longest += low == longest;
    }
    for (int i = 0; i < n; i++)
        a->op[at[i]].reordered = true;
    for (int i = longest ? best[longest - 1] : -1; i >= 0; i = before[i])
        a->op[at[i]].reordered = false;
    for (int i = 0; i < n; i++)
        b->op[a->op[at[i]].match].reordered = a->op[at[i]].reordered;
}

static void find_order(struct diff *d) {
    struct side *a = d->side[0], *b = d->side[1];
    int32_t *at = NEW(int32_t, a->n), *best = NEW(int32_t, a->n), *before = NEW(int32_t, a->n);
    for (int l = 0; l < a->nlanes; l++) {
        int n = 0;
        for (int i = a->lane[l].first; i < a->lane[l].first + a->lane[l].n; i++)
            if (a->op[i].match >= 0 && !a->op[i].moved)
                at[n++] = i;
        mark_reordered(a, b, at, n, best, before);
        for (int i = 0; i < n; i++)
            d->reordered += a->op[at[i]].reordered;
    }
}

static int32_t *numbers_of(const struct side *s) {
    int32_t *nth = NEW(int32_t, s->n);
    for (int i = 0; i < s->n; i++)
        nth[i] = s->op[i].nth;
    return nth;
}

static int count_left(const struct side *s) {
    int n = 0;
    for (int i = 0; i < s->n; i++)
        n += is_left(&s->op[i]);
    return n;
}

static void match_sides(struct diff *d) {
    struct side *a = d->side[0], *b = d->side[1];
    struct matcher m = {.side = {a, b}, .nth = {numbers_of(a), numbers_of(b)}, .ranks = true};
    match_left(&m);
    m.ranks = false;
    renumber(&m, 0);
    renumber(&m, 1);
    match_left(&m);
    d->split = match_split(&m, 0) + match_split(&m, 1);
    for (int i = 0; i < a->n; i++) {
        struct diff_op *x = &a->op[i], *y = x->match >= 0 ? &b->op[x->match] : NULL;
        if (!y)
            continue;
        x->moved = y->moved = x->rank != y->rank || strcmp(a->lane[x->lane].name, b->lane[y->lane].name) != 0;
        d->moved += x->moved;
    }
    d->only[0] = count_left(a);
    d->only[1] = count_left(b);
    find_order(d);
}

bool diff_compares(const struct diff_op *o) { return o->match >= 0 && !o->split; }

/* ---- time ---- */

static void set_ticks(struct side *s, double tick) {
    for (int i = 0; i < s->n; i++) {
        s->op[i].start = llround(s->start[i] / tick);
        s->op[i].end = llround(s->end[i] / tick);
        s->makespan = s->op[i].end > s->makespan ? s->op[i].end : s->makespan;
    }
}

/* Of a compute lane, jobs of which some may overlap. */
static int64_t work_of(const struct side *s, const struct diff_lane *l) {
    int64_t work = 0, until = 0;
    for (int i = l->first; i < l->first + l->n; i++) {
        const struct diff_op *o = &s->op[i];
        if (!is_job(o->op) || o->end <= until)
            continue;
        work += o->end - (o->start > until ? o->start : until);
        until = o->end;
    }
    return work;
}

/* When a message began: a RECV's is its SEND's, a latency earlier. */
int64_t diff_begin(const struct side *s, const struct diff_op *o) {
    int64_t other = s->op[o->ring].start;
    return is_recv(o->op) && other < o->start ? other : o->start;
}

int64_t diff_took(const struct side *s, const struct diff_op *o) { return o->end - diff_begin(s, o); }

static void match_ticks(struct diff *d) {
    double last = 0;
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < d->side[k]->n; i++)
            last = fmax(last, d->side[k]->end[i]);
    int exponent;
    frexp(last, &exponent);
    d->tick = last > 0 ? fmax(ldexp(1, exponent - 53), 0x1p-1074) : 1;
    for (int k = 0; k < 2; k++) {
        struct side *s = d->side[k];
        set_ticks(s, d->tick);
        for (int l = 0; l < s->nlanes; l++)
            if (s->lane[l].kind == LANE_COMPUTE)
                s->work += (double)work_of(s, &s->lane[l]);
    }
    /* Sums of decimal fractions differ in their last bits by the order they are taken in: that is no change. */
    int64_t least = d->least = llround(last / d->tick * 1e-9);
    /* A message is as long as the clocks of its ends say. */
    double error = d->side[0]->clock_error + d->side[1]->clock_error;
    int64_t unsure = least + llround(2 * fmin(error, last) / d->tick);
    for (int i = 0; i < d->side[0]->n; i++) {
        struct diff_op *x = &d->side[0]->op[i], *y = diff_compares(x) ? &d->side[1]->op[x->match] : NULL;
        if (!y)
            continue;
        int64_t slack = is_message(x->op) ? unsure : least;
        x->longer = y->longer = llabs(diff_took(d->side[1], y) - diff_took(d->side[0], x)) > slack;
    }
}

/* What is left once chance is taken out. */
static void count_changes(struct diff *d) {
    for (int i = 0; i < d->side[0]->n; i++) {
        const struct diff_op *x = &d->side[0]->op[i], *y = x->match >= 0 ? &d->side[1]->op[x->match] : NULL;
        d->longer += x->longer;
        d->shifted += y && !x->steady && (llabs(y->end - x->end) > d->least || llabs(y->start - x->start) > d->least);
    }
}

/* A prediction in units or FLOP beside measured seconds: taken at the speed at which the jobs of both together take the
 * same time; a backward that is split on one of them tells nothing. */
static void set_rate(struct diff *d) {
    struct side *a = d->side[0], *b = d->side[1], *predicted = a->steps ? b : a;
    double took[2] = {0, 0};
    if (!a->unit || !b->unit || strcmp(a->unit, b->unit) == 0)
        return;
    for (int i = 0; i < a->n; i++) {
        int j = a->op[i].match;
        if (!diff_compares(&a->op[i]) || !is_job(a->op[i].op))
            continue;
        took[0] += a->end[i] - a->start[i];
        took[1] += b->end[j] - b->start[j];
    }
    d->rate = a->steps ? took[0] / took[1] : took[1] / took[0];
    if (!(d->rate >= LEAST_TIME && d->rate <= MOST_TIME))
        die("%s has no job that %s has too and that takes some time in both: their times, %s and %s, cannot be "
            "compared",
            a->name, b->name, a->unit, b->unit);
    d->unit = "s";
    for (int i = 0; i < predicted->n; i++) {
        predicted->start[i] *= d->rate;
        predicted->end[i] *= d->rate;
    }
}

/* A timeline of the very instructions of the other side's program, say its measurement, waited for the same. */
static void lend_waits(struct side *to, const struct side *from) {
    bool same = to->n == from->n && to->nlanes == from->nlanes && to->workers == from->workers;
    for (int i = 0; same && i < to->n; i++)
        same = to->op[i].match == i && to->op[i].rank == from->op[i].rank && to->op[i].lane == from->op[i].lane;
    for (int l = 0; same && l < to->nlanes; l++)
        same = strcmp(to->lane[l].name, from->lane[l].name) == 0;
    if (!to->waits && same)
        to->waits = from->p;
}

/* A program's text without its head, which has its name. */
static const char *body_of(const struct program *p) {
    struct text t = {0};
    emit_text(&t, p);
    return strstr(t.s, " workers ");
}

struct diff *diff_make(struct side *a, struct side *b) {
    struct diff *d = NEW(struct diff, 1);
    d->side[0] = a;
    d->side[1] = b;
    d->unit = a->unit ? a->unit : b->unit;
    match_sides(d);
    lend_waits(a, b);
    lend_waits(b, a);
    if (a->timed && b->timed) {
        set_rate(d);
        match_ticks(d);
        diff_significance(d);
        count_changes(d);
        diff_causes(d);
        diff_groups(d);
    }
    bool same = !d->only[0] && !d->only[1] && !d->split && !d->moved && !d->reordered && !d->longer && !d->shifted;
    d->rewired = same && a->p && b->p && strcmp(body_of(a->p), body_of(b->p)) != 0;
    return d;
}
