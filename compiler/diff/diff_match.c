/* Matches the operations of two sides, and finds what changed about them: their place, their order, their durations and
 * their ends. */
#include "base/map.h"
#include "diff.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct matcher {
    struct side *side[2];
    int32_t *nth[2]; /* per operation: its number among its equals */
    struct map map;
    bool ranks; /* operations are equal only if on the same rank */
};

static bool same_operation(const struct matcher *matcher, const struct diff_op *x, int nx, const struct diff_op *y,
                           int ny) {
    return x->op == y->op && x->stage == y->stage && x->batch == y->batch && x->slices == y->slices &&
           x->peer == y->peer && x->number == y->number && nx == ny && (!matcher->ranks || x->rank == y->rank);
}

static uint32_t place_operation(const struct matcher *matcher, const struct diff_op *op, int nth) {
    uint64_t h = hash_add(hash_add(hash_add(hash_add(1, op->op), op->stage), op->batch), op->peer);
    return map_start(&matcher->map, hash_add(hash_add(hash_add(h, op->number), nth), matcher->ranks ? op->rank : -1));
}

static bool is_left(const struct diff_op *op) { return op->match < 0 && !op->split; }

/* Puts a side's unmatched operations into the map. */
static void map_left(struct matcher *matcher, int side) {
    const struct side *s = matcher->side[side];
    matcher->map = map_new((size_t)s->n);
    for (int i = 0; i < s->n; i++) {
        if (!is_left(&s->op[i]))
            continue;
        uint32_t at = place_operation(matcher, &s->op[i], matcher->nth[side][i]);
        while (matcher->map.slot[at])
            at = map_next(&matcher->map, at);
        matcher->map.slot[at] = i + 1;
    }
}

/* Returns the nth equal of op in the side that is in the map; -1: none. */
static int find_nth_equal(const struct matcher *matcher, int side, const struct diff_op *op, int nth) {
    uint32_t at = place_operation(matcher, op, nth);
    for (int i; (i = matcher->map.slot[at] - 1) >= 0; at = map_next(&matcher->map, at))
        if (same_operation(matcher, &matcher->side[side]->op[i], matcher->nth[side][i], op, nth))
            return i;
    return -1;
}

static void match_left(struct matcher *matcher) {
    struct side *a = matcher->side[0], *b = matcher->side[1];
    map_left(matcher, 0);
    for (int j = 0; j < b->n; j++) {
        int i = is_left(&b->op[j]) ? find_nth_equal(matcher, 0, &b->op[j], matcher->nth[1][j]) : -1;
        if (i < 0)
            continue;
        a->op[i].match = j;
        b->op[j].match = i;
    }
}

/* Renumbers unmatched operations in the order of ranks and lanes, since ignoring the rank gives them other equals. */
static void renumber_unmatched(struct matcher *matcher, int side) {
    const struct side *s = matcher->side[side];
    int32_t *nth = matcher->nth[side];
    matcher->map = map_new((size_t)s->n);
    for (int i = 0; i < s->n; i++) {
        const struct diff_op *op = &s->op[i];
        int k;
        if (!is_left(op))
            continue;
        nth[i] = 0;
        uint32_t at = place_operation(matcher, op, 0);
        for (; (k = matcher->map.slot[at] - 1) >= 0; at = map_next(&matcher->map, at))
            if (same_operation(matcher, &s->op[k], 0, op, 0)) {
                nth[i] = nth[k] + 1;
                break;
            }
        matcher->map.slot[at] = i + 1;
    }
}

/* Matches an unmatched B with the other side's I, if that and its W are unmatched too. Returns the number of
 * matches. */
static int match_split(struct matcher *matcher, int whole) {
    struct side *side = matcher->side[whole], *parts = matcher->side[!whole];
    int n = 0;
    map_left(matcher, !whole);
    for (int j = 0; j < side->n; j++) {
        struct diff_op *o = &side->op[j], x = *o;
        if (!is_left(o) || o->op != OP_B)
            continue;
        x.op = OP_I;
        int i = find_nth_equal(matcher, !whole, &x, matcher->nth[whole][j]);
        x.op = OP_W;
        int w = find_nth_equal(matcher, !whole, &x, matcher->nth[whole][j]);
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

/* Marks the fewest operations that need to move: those outside a longest increasing subsequence. at: the operations of
 * a lane in A's order, compared by their positions in B. Patience sorting (Fredman 1975): best[k] ends a subsequence of
 * k + 1. */
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

static void find_order(struct diff *diff) {
    struct side *a = diff->side[0], *b = diff->side[1];
    int32_t *at = NEW(int32_t, a->n), *best = NEW(int32_t, a->n), *before = NEW(int32_t, a->n);
    for (int l = 0; l < a->nlanes; l++) {
        int n = 0;
        for (int i = a->lane[l].first; i < a->lane[l].first + a->lane[l].n; i++)
            if (a->op[i].match >= 0 && !a->op[i].moved)
                at[n++] = i;
        mark_reordered(a, b, at, n, best, before);
        for (int i = 0; i < n; i++)
            diff->reordered += a->op[at[i]].reordered;
    }
}

static int32_t *number_alike(const struct side *side) {
    int32_t *nth = NEW(int32_t, side->n);
    for (int i = 0; i < side->n; i++)
        nth[i] = side->op[i].nth;
    return nth;
}

static int count_left(const struct side *side) {
    int n = 0;
    for (int i = 0; i < side->n; i++)
        n += is_left(&side->op[i]);
    return n;
}

static void match_sides(struct diff *diff) {
    struct side *a = diff->side[0], *b = diff->side[1];
    struct matcher matcher = {.side = {a, b}, .nth = {number_alike(a), number_alike(b)}, .ranks = true};
    match_left(&matcher);
    matcher.ranks = false;
    renumber_unmatched(&matcher, 0);
    renumber_unmatched(&matcher, 1);
    match_left(&matcher);
    diff->split = match_split(&matcher, 0) + match_split(&matcher, 1);
    for (int i = 0; i < a->n; i++) {
        struct diff_op *x = &a->op[i], *y = x->match >= 0 ? &b->op[x->match] : NULL;
        if (!y)
            continue;
        x->moved = y->moved = x->rank != y->rank || strcmp(a->lane[x->lane].name, b->lane[y->lane].name) != 0;
        diff->moved += x->moved;
        x->reread = y->reread = x->version >= 0 && y->version >= 0 && x->version != y->version;
        diff->reread += x->reread;
    }
    diff->only[0] = count_left(a);
    diff->only[1] = count_left(b);
    find_order(diff);
}

bool diff_compares(const struct diff_op *op) { return op->match >= 0 && !op->split; }

/* ---- time ---- */

static void set_ticks(struct side *side, double tick) {
    for (int i = 0; i < side->n; i++) {
        side->op[i].start = llround(side->start[i] / tick);
        side->op[i].end = llround(side->end[i] / tick);
        side->makespan = side->op[i].end > side->makespan ? side->op[i].end : side->makespan;
    }
}

/* Returns the work of a compute lane, in which some jobs may overlap. */
static int64_t work_of(const struct side *side, const struct diff_lane *lane) {
    int64_t work = 0, until = 0;
    for (int i = lane->first; i < lane->first + lane->n; i++) {
        const struct diff_op *op = &side->op[i];
        bool works = is_job(op->op) || (op->op == OP_U && op->batch >= 0); /* updates that are jobs */
        if (!works || op->end <= until)
            continue;
        work += op->end - (op->start > until ? op->start : until);
        until = op->end;
    }
    return work;
}

/* Returns when a message began: a RECV begins with its SEND, a latency earlier. */
int64_t diff_begin(const struct side *side, const struct diff_op *op) {
    int64_t other = side->op[op->ring].start;
    return is_recv(op->op) && other < op->start ? other : op->start;
}

int64_t diff_took(const struct side *side, const struct diff_op *op) { return op->end - diff_begin(side, op); }

/* Joins two overlapping jobs, so that each waits for what the other waits for. */
static void join_pairs(struct side *side) {
    for (int i = 1; i < side->n; i++) {
        struct diff_op *x = &side->op[i - 1], *y = &side->op[i];
        if (x->lane == y->lane && is_job(x->op) && is_job(y->op) && x->start == y->start && x->end == y->end &&
            x->end > x->start && x->ring == i - 1) {
            x->ring = i;
            y->ring = i - 1;
        }
    }
}

int diff_partner(const struct side *side, int o) {
    return side->op[o].ring == o || is_message(side->op[o].op) ? -1 : side->op[o].ring;
}

/* Finds the jobs that overlap otherwise on the two predicted sides. A pair that both sides have counts once if its
 * duration differs. */
static void find_overlaps(struct diff *diff) {
    struct side *a = diff->side[0], *b = diff->side[1];
    for (int i = 0; !a->steps && !b->steps && i < a->n; i++) {
        if (!diff_compares(&a->op[i]))
            continue;
        int j = a->op[i].match, pa = diff_partner(a, i), pb = diff_partner(b, j);
        bool same = pa < 0 || pb < 0 ? pa == pb : a->op[pa].match == pb;
        a->op[i].overlaps = b->op[j].overlaps = !same;
        if (same && pa >= 0 && pa < i)
            a->op[i].longer = b->op[j].longer = false;
    }
}

static void match_ticks(struct diff *diff) {
    double last = 0;
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < diff->side[k]->n; i++)
            last = fmax(last, diff->side[k]->end[i]);
    int exponent;
    frexp(last, &exponent);
    diff->tick = last > 0 ? fmax(ldexp(1, exponent - 53), 0x1p-1074) : 1;
    for (int k = 0; k < 2; k++) {
        struct side *side = diff->side[k];
        set_ticks(side, diff->tick);
        join_pairs(side);
        for (int l = 0; l < side->nlanes; l++)
            if (side->lane[l].kind == LANE_COMPUTE)
                side->work += (double)work_of(side, &side->lane[l]);
    }
    /* Sums of decimal fractions differ in their last bits with the order of addition; that does not count as a
     * change. */
    int64_t least = diff->least = llround(last / diff->tick * 1e-9);
    /* A message's duration is only as accurate as the clocks at its two ends. */
    double error = diff->side[0]->clocks.error + diff->side[1]->clocks.error;
    int64_t unsure = least + llround(2 * fmin(error, last) / diff->tick);
    for (int i = 0; i < diff->side[0]->n; i++) {
        struct diff_op *x = &diff->side[0]->op[i], *y = diff_compares(x) ? &diff->side[1]->op[x->match] : NULL;
        if (!y)
            continue;
        int64_t slack = is_message(x->op) ? unsure : least;
        x->longer = y->longer = llabs(diff_took(diff->side[1], y) - diff_took(diff->side[0], x)) > slack;
    }
    find_overlaps(diff);
}

/* Counts the changes that remain after the tests for chance. */
static void count_changes(struct diff *diff) {
    for (int i = 0; i < diff->side[0]->n; i++) {
        const struct diff_op *x = &diff->side[0]->op[i], *y = x->match >= 0 ? &diff->side[1]->op[x->match] : NULL;
        diff->longer += x->longer;
        diff->shifted +=
            y && !x->steady && (llabs(y->end - x->end) > diff->least || llabs(y->start - x->start) > diff->least);
    }
}

/* Scales a prediction in units or FLOP that is compared with measured seconds, so that all jobs together take the same
 * time in both. Leaves out backwards that only one side splits. */
static void set_rate(struct diff *diff) {
    struct side *a = diff->side[0], *b = diff->side[1], *predicted = a->steps ? b : a;
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
    diff->base.rate = a->steps ? took[0] / took[1] : took[1] / took[0];
    if (!(diff->base.rate >= LEAST_TIME && diff->base.rate <= MOST_TIME))
        die("%s has no job in common with %s that takes time in both, so their units, %s and %s, cannot be compared",
            a->name, b->name, a->unit, b->unit);
    diff->unit = "s";
    for (int i = 0; i < predicted->n; i++) {
        predicted->start[i] *= diff->base.rate;
        predicted->end[i] *= diff->base.rate;
    }
}

/* Gives a timeline the waits of the other side's program, if it has exactly that program's instructions, as its
 * measurement does. */
static void lend_waits(struct side *to, const struct side *from) {
    bool same = to->n == from->n && to->nlanes == from->nlanes && to->workers == from->workers;
    for (int i = 0; same && i < to->n; i++)
        same = to->op[i].match == i && to->op[i].rank == from->op[i].rank && to->op[i].lane == from->op[i].lane;
    for (int l = 0; same && l < to->nlanes; l++)
        same = strcmp(to->lane[l].name, from->lane[l].name) == 0;
    if (!to->waits && same)
        to->waits = from->p;
}

/* Returns a program's text without its name and the number of its period's repetitions. */
static const char *body_of(const struct program *p) {
    struct text t = {0};
    struct program once = *p;
    once.repeats = 1;
    emit_text(&t, &once);
    return strstr(t.s, " workers ");
}

static bool repeats_otherwise(const struct program *a, const struct program *b) {
    if (!a->update != !b->update || a->period != b->period || a->repeats != b->repeats)
        return true;
    for (int s = 0; a->update && s < a->stages && s < b->stages; s++)
        if (a->update[s] != b->update[s])
            return true;
    return false;
}

struct diff *diff_make(struct side *a, struct side *b) {
    struct diff *diff = NEW(struct diff, 1);
    diff->side[0] = a;
    diff->side[1] = b;
    diff->unit = a->unit ? a->unit : b->unit;
    for (int k = 0; k < 2; k++) /* a timeline has no numbers */
        if (!diff->side[!k]->p)
            side_forget_numbers(diff->side[k]);
    match_sides(diff);
    lend_waits(a, b);
    lend_waits(b, a);
    if (a->timed && b->timed) {
        set_rate(diff);
        diff_scale(diff);
        match_ticks(diff);
        diff_significance(diff);
        count_changes(diff);
        diff_causes(diff);
        if (!diff_resized(diff, SIZE_STAGES))
            diff_groups(diff);
    }
    bool same = !diff->only[0] && !diff->only[1] && !diff->split && !diff->moved && !diff->reordered && !diff->longer &&
                !diff->reread && !diff->shifted;
    diff->repeated = a->p && b->p && repeats_otherwise(a->p, b->p);
    diff->rewired = same && a->p && b->p && strcmp(body_of(a->p), body_of(b->p)) != 0;
    return diff;
}
