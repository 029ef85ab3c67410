/* Writes a sentence on what changed between two sides and its effect, and lists the largest causes. */
#include "diff.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SENTENCE = 3 }; /* maximum number of changes in the sentence */

/* ---- what changed ---- */

enum sort { JOBS, UPDATES, MESSAGES, REDUCTIONS, GATHERS, EXCHANGES, HOST_COPIES, COPIES, OTHERS, NSORTS };
static const struct {
    const char *one, *many;
} sort_name[NSORTS] = {{"job", "jobs"},
                       {"update", "updates"},
                       {"message", "messages"},
                       {"reduction", "reductions"},
                       {"gather of weights", "gathers of weights"},
                       {"exchange within a team", "exchanges within teams"},
                       {"offload or reload", "offloads and reloads"},
                       {"copy", "copies"},
                       {"other operation", "other operations"}};

/* All causes of one class and sort. */
struct part {
    enum diff_class class;
    enum sort sort;
    bool less; /* LONGER, but shorter */
    int n;
    int64_t effect; /* the largest of its causes' */
};

static bool is_less(const struct diff *diff, const struct diff_cause *cause) {
    const struct side *a = diff->side[0], *b = diff->side[1];
    return cause->class == LONGER && diff_took(b, &b->op[cause->b]) < diff_took(a, &a->op[cause->a]);
}

static enum sort sort_of(int op) {
    if (op < 0 || is_job(op) || op == OP_U)
        return op == OP_U ? UPDATES : JOBS;
    if (is_group(op))
        return op_lane[op] == LANE_GATHER ? GATHERS : op_lane[op] == LANE_GROUP ? REDUCTIONS : EXCHANGES;
    return is_message(op) ? MESSAGES : is_copy(op) ? HOST_COPIES : op == OP_COPY ? COPIES : OTHERS;
}

/* Orders jobs first, then by effect, sort and class. */
static int by_importance(const void *x, const void *y) {
    const struct part *a = x, *b = y;
    if ((a->sort == JOBS) != (b->sort == JOBS))
        return a->sort == JOBS ? -1 : 1;
    if (llabs(a->effect) != llabs(b->effect))
        return llabs(a->effect) > llabs(b->effect) ? -1 : 1;
    if (a->sort != b->sort)
        return a->sort < b->sort ? -1 : 1;
    return a->class != b->class ? (a->class < b->class ? -1 : 1) : a->less - b->less;
}

static int list_parts(const struct diff *diff, struct part *part) {
    int n = 0;
    for (int i = 0; i < diff->causes.n; i++) {
        const struct diff_cause *cause = &diff->causes.of[i];
        struct part here = {cause->class, sort_of(cause->op), is_less(diff, cause), cause->n, cause->effect};
        int k = 0;
        while (k < n && (part[k].class != here.class || part[k].sort != here.sort || part[k].less != here.less))
            k++;
        if (k == n) {
            part[n++] = here;
            continue;
        }
        part[k].n += here.n;
        if (llabs(here.effect) > llabs(part[k].effect))
            part[k].effect = here.effect;
    }
    sort(part, (size_t)n, sizeof *part, by_importance);
    return n;
}

/* Writes which pairs of jobs overlap only in B, or only in A. */
static void put_overlaps(struct text *t, const struct diff *diff, int n) {
    bool in[2] = {false, false};
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < diff->side[k]->n; i++)
            in[k] |= diff->side[k]->op[i].overlaps && diff_partner(diff->side[k], i) >= 0;
    put(t, "%d pair%s of jobs overlap%s%s", n, n == 1 ? "" : "s", n == 1 ? "s" : "",
        in[0] && in[1] ? " otherwise"
        : in[0]        ? " no longer"
                       : "");
}

static void put_part(struct text *t, const struct diff *diff, const struct part *part) {
    bool one = part->n == 1, joined = diff->side[0]->n > 0;
    const char *were = one ? "was" : "were", *take = one ? "takes" : "take";
    for (int i = 0; part->class == SPLIT && i < diff->side[0]->n; i++)
        if (diff->side[0]->op[i].split && diff->side[0]->op[i].op == OP_B)
            joined = false;
    if (part->class == SPLIT) {
        put(t, "%d backward%s %s %s", part->n, one ? "" : "s", were, joined ? "joined" : "split");
        return;
    }
    if (part->class == OVERLAPPED) {
        put_overlaps(t, diff, part->n);
        return;
    }
    put(t, "%d %s ", part->n, one ? sort_name[part->sort].one : sort_name[part->sort].many);
    switch (part->class) {
    case ONLY_A: put(t, "%s dropped", were); return;
    case ONLY_B: put(t, "%s added", were); return;
    case MOVED:
        put(t, "moved to %s", part->sort <= UPDATES ? (one ? "another rank" : "other ranks") : "other ranks or lanes");
        return;
    case REORDERED: put(t, "%s reordered", were); return;
    default: put(t, "%s %s", take, part->less ? "less time" : "longer");
    }
}

/* Lists the changes, jobs first. Returns whether there are any. */
static bool put_parts(struct text *t, const struct diff *diff) {
    struct part part[2 * NSORTS * (RECUT + 1)];
    int n = list_parts(diff, part), jobs = 0, shown, rest = 0;
    while (jobs < n && part[jobs].sort == JOBS)
        jobs++;
    n = jobs > 0 ? jobs : n;
    shown = n < SENTENCE ? n : SENTENCE;
    for (int i = shown; i < n; i++)
        rest += part[i].n;
    for (int i = 0; i < shown; i++) {
        put(t, "%s", i == 0 ? "" : i + 1 < shown || rest ? ", " : " and ");
        put_part(t, diff, &part[i]);
    }
    if (rest)
        put(t, " and %d other change%s", rest, rest > 1 ? "s" : "");
    if (diff->reread)
        put(t, "%s%d job%s another version of the weights", n ? ", and " : "", diff->reread,
            diff->reread > 1 ? "s read" : " reads");
    return n > 0 || diff->reread > 0;
}

/* ---- its effect ---- */

enum { ALL_WAITS = NACCOUNTS, NSHARES }; /* ALL_WAITS: the sum of all waits, if they are not told apart */

/* Writes how a share of the time changed. */
static void put_share(struct text *t, const struct diff *diff, const struct measure *measure, int share,
                      int64_t change) {
    static const char *const of[NSHARES] = {"",
                                            " for its dependencies",
                                            " for messages",
                                            " for lanes",
                                            " for copies to host memory or back",
                                            " for memory",
                                            " for a core",
                                            " without a known cause",
                                            ""};
    put(t, "%s %s %s%s", share == ACC_WORK ? "works" : "waits",
        diff_time_text((double)llabs(change) * diff->tick, measure), change < 0 ? "less" : "more", of[share]);
}

/* Finds by how much each share changed. Waits for different reasons that nearly cancel each other are one share: often
 * two reasons end at nearly one time, and a small change then turns one into the other. */
static void find_changes(const struct diff *diff, int64_t change[NSHARES]) {
    int64_t more = 0, less = 0;
    memset(change, 0, sizeof *change * NSHARES);
    for (int k = 0; k < NACCOUNTS; k++) {
        change[k] = diff->account[1][k] - diff->account[0][k];
        more += k != ACC_WORK && change[k] > 0 ? change[k] : 0;
        less += k != ACC_WORK && change[k] < 0 ? -change[k] : 0;
    }
    if (llabs(more - less) * 4 >= (more > less ? more : less))
        return;
    for (int k = 0; k < NACCOUNTS; k++)
        change[k] = k == ACC_WORK ? change[k] : 0;
    change[ALL_WAITS] = more - less;
}

/* Returns the share that changes most in the direction of sign; -1: none does. */
static int largest_change(const int64_t change[NSHARES], int sign) {
    int best = -1;
    for (int k = 0; k < NSHARES; k++)
        if (sign * change[k] > (best < 0 ? 0 : sign * change[best]))
            best = k;
    return best;
}

static bool ends_last(const struct side *side, int rank, int64_t least) {
    for (int i = 0; i < side->n; i++)
        if (side->op[i].rank == rank && side->op[i].end + least >= side->makespan)
            return true;
    return false;
}

/* Returns how to call the rank whose time is divided. */
static const char *last_rank(const struct diff *diff) {
    if (diff->ends[0] != diff->ends[1])
        return "the rank that ends last";
    for (int k = 0; k < 2; k++)
        for (int r = 0; r < diff->side[k]->workers; r++)
            if (r != diff->ends[k] && !ends_last(diff->side[k], r, diff->least))
                return format("rank %d, which ends last,", diff->ends[0]);
    return format("rank %d", diff->ends[0]);
}

/* Writes where the time went. Lists the shares that change in the makespan's direction, largest first, until they
 * explain most of its change; then the largest share that changes the other way, if it matters. */
static void put_shares(struct text *t, const struct diff *diff, const struct measure *measure) {
    int64_t total = diff->side[1]->makespan - diff->side[0]->makespan, left = total, change[NSHARES];
    int sign = total < 0 ? -1 : 1;
    find_changes(diff, change);
    for (int n = 0; n < 2 && sign * left * 5 > sign * total; n++) {
        int best = largest_change(change, sign);
        if (best < 0)
            break;
        put(t, n ? " and " : ", so %s ", last_rank(diff));
        put_share(t, diff, measure, best, change[best]);
        left -= change[best];
        change[best] = 0;
    }
    int worst = largest_change(change, -sign);
    if (worst < 0 || llabs(change[worst]) * 5 < llabs(total))
        return;
    put(t, ", though it ");
    put_share(t, diff, measure, worst, change[worst]);
}

/* ---- the comparison ---- */

static const double NEAR = 0.005, MATTERS = 0.1; /* shares of the makespan, and of the memory */

/* The makespans that the sentence compares */
struct comparison {
    double x, y;              /* of A and of B; per unit of work if the sides do different work */
    const char *per;          /* the unit of work, or NULL */
    bool chance, equal, near; /* near: they differ by less than NEAR */
    const struct measure *measure;
};

/* Writes by how much longer or shorter B is. sizes: how its sizes differ; if given, it comes first. */
static void put_comparison(struct text *t, const struct diff *diff, const struct comparison *c, const char *sizes) {
    char a[32];
    bool ranks = c->per && strncmp(c->per, "per ", 4) != 0, less = c->y < c->x;
    const char *per = !c->per ? "" : format(" %s", c->per);
    time_text(c->x, c->measure, a);
    if (*sizes)
        put(t, "%s: ", sizes);
    if (c->chance) {
        put(t, "no significant change of the makespan (%s -> %s, p = %.2g)", a, diff_time_text(c->y, c->measure),
            diff->p[F_MAKESPAN]);
        return;
    }
    if (c->equal || c->near) {
        const char *about = c->equal ? "" : "about ";
        put(t, "%s%s%s", *sizes ? "" : "B takes ", about, ranks ? "as much" : "as long");
        put(t, *sizes ? "%s (" : "%s as A (", per);
        put(t, c->equal ? "%s" : "%s -> %s", c->equal ? diff_time_text(c->y, c->measure) : a,
            diff_time_text(c->y, c->measure));
        put(t, ")");
        return;
    }
    put(t, *sizes ? "" : "B is ");
    put(t, "%.1f %% %s%s (%s -> %s", 100 * fabs(c->y / c->x - 1),
        ranks ? (less ? "less" : "more") : (less ? "shorter" : "longer"), per, a, diff_time_text(c->y, c->measure));
    put(t, diff->tells ? ", p = %.2g)" : ")", diff->p[F_MAKESPAN]);
}

/* Writes what else changed: the period, if the makespan hardly did, and the memory. */
static void put_other_changes(struct text *t, const struct diff *diff, const struct comparison *c) {
    double x, y;
    char was[32];
    const char *subject = ", and B";
    bool hardly = c->equal || c->near || c->chance;
    if (hardly && !c->per && diff_figure(diff, F_PERIOD, 0, &x) && diff_figure(diff, F_PERIOD, 1, &y) &&
        fabs(y - x) > NEAR * x) {
        put(t, "%s repeats every %s instead of %s", subject, diff_time_text(y, c->measure),
            time_text(x, c->measure, was));
        subject = " and";
    }
    if (diff_compares_bytes(diff) && diff_figure(diff, F_PEAK, 0, &x) && diff_figure(diff, F_PEAK, 1, &y) && x > 0 &&
        x != y && fabs(y - x) > (c->equal ? 0 : MATTERS * x))
        put(t, "%s needs %.3g %% %s memory", subject, 100 * fabs(y / x - 1), y < x ? "less" : "more");
}

void put_diff_sentence(struct text *t, const struct diff *diff, const struct measure *measure) {
    struct comparison c = {.measure = measure};
    bool timed = diff_figure(diff, F_MAKESPAN, 0, &c.x) && diff_figure(diff, F_MAKESPAN, 1, &c.y);
    struct text changes = {0}, sizes = {0};
    if (diff_same(diff)) {
        put(t, "the same");
        return;
    }
    put(&sizes, "%s", "");
    put_resized(&sizes, diff);
    if (!timed || c.x <= 0) {
        put(t, sizes.n ? "%s; they differ" : "they differ", sizes.s);
        put_changes(t, diff);
        return;
    }
    c.x = diff_per_work(diff, 0, &c.per);
    c.y = diff_per_work(diff, 1, &c.per);
    c.chance = !c.per && diff->tells && diff_by_chance(diff->p[F_MAKESPAN]);
    c.equal = !diff_figure_changed(diff, F_MAKESPAN, c.x, c.y);
    c.near = fabs(c.y - c.x) < NEAR * c.x;
    put_comparison(t, diff, &c, sizes.s);
    const char *then = sizes.n ? ";" : ":";
    if (!diff_resized(diff, SIZE_STAGES) && put_parts(&changes, diff))
        put(t, "%s %s", then, changes.s);
    else if (diff->repeated)
        put(t, "%s updates or repetitions differ", then);
    else if (diff->rewired)
        put(t, "%s operands, waits or memory differ", then);
    if (!c.chance && !c.equal && !c.near && !c.per)
        put_shares(t, diff, measure);
    put_other_changes(t, diff, &c);
}

/* ---- causes ---- */

/* Names what a cause's operations did: "12 F moved from rank 0 to rank 3". */
void put_diff_cause(struct text *t, const struct diff *diff, const struct diff_cause *cause) {
    const struct diff_op *a = cause->a >= 0 ? &diff->side[0]->op[cause->a] : NULL;
    const struct diff_op *b = cause->b >= 0 ? &diff->side[1]->op[cause->b] : NULL;
    struct part part = {cause->class, JOBS, is_less(diff, cause), cause->n, 0};
    if (cause->class == SPLIT) {
        put_part(t, diff, &part);
        return;
    }
    if (cause->class == RECUT) {
        for (int i = 0, n = 0; i < NSIZES; i++)
            if (diff_resized(diff, i))
                put(t, "%s%s %lld -> %lld", n++ ? ", " : "", size_name[i], (long long)diff->side[0]->size.of[i],
                    (long long)diff->side[1]->size.of[i]);
        put(t, ": the cut of the model, and which rank has which part");
        return;
    }
    if (cause->class == OVERLAPPED) {
        put_overlaps(t, diff, cause->n);
        return;
    }
    if (cause->op < 0) {
        put(t, "%d jobs reordered, of all kinds together", cause->n);
        return;
    }
    const char *name = diff_op_name(a ? a : b);
    if (cause->class == LONGER && cause->rank < 0) {
        put(t, "%d %s take %.3g times as long", cause->n, op_name[cause->op],
            (double)diff_took(diff->side[1], b) / (double)diff_took(diff->side[0], a));
        return;
    }
    put(t, "%d %s %s", cause->n, op_name[cause->op],
        cause->class == ONLY_A      ? "only in A"
        : cause->class == ONLY_B    ? "only in B"
        : cause->class == MOVED     ? "moved"
        : cause->class == REORDERED ? "reordered"
        : part.less                 ? "shorter"
                                    : "longer");
    if (cause->rank >= 0)
        put(t, " on rank %d", cause->rank);
    if (cause->class == MOVED && a->rank != b->rank)
        put(t, "%s%s from rank %d to rank %d", cause->n > 1 ? ", such as " : ": ", name, a->rank, b->rank);
    else
        put(t, cause->rank < 0 ? "%s%s on rank %d" : "%s%s", cause->n > 1 ? ", such as " : ": ", name,
            (a ? a : b)->rank);
}
