/* Prints a diff for people, as plain text or as Markdown: what changed, where the time went, and why. */
#include "diff.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LINES = 20, CAUSES = 5 }; /* per list; --json has all */

struct diff_style {
    bool markdown, ascii, all; /* all: every change */
};

const char *const figure_name[NFIGURES] = {"makespan", "bubble", "period", "peak_bytes", "bytes_sent", "operations"};

bool diff_figure(const struct diff *diff, int which, int side, double *x) {
    const struct side *s = diff->side[side];
    bool timed = diff->tick > 0;
    switch (which) {
    case F_MAKESPAN: *x = (double)s->makespan * diff->tick; return timed;
    case F_BUBBLE: *x = s->makespan ? 1 - s->work / ((double)s->makespan * s->workers) : 0; return timed;
    case F_PERIOD: *x = s->step.period; return timed && s->step.period > 0 && diff->base.rate <= 0;
    case F_PEAK: *x = (double)s->peak_bytes; return s->peak_bytes >= 0;
    case F_SENT: *x = s->step.sent; return s->step.sent >= 0;
    default: *x = s->n; return true;
    }
}

bool diff_same(const struct diff *diff) {
    bool same = !diff->only[0] && !diff->only[1] && !diff->split && !diff->moved && !diff->reordered && !diff->longer &&
                !diff->reread && !diff->shifted && !diff->repeated && !diff->rewired;
    for (int f = 0; same && f < NFIGURES; f++) {
        double a, b;
        if (f > F_PERIOD && diff_figure(diff, f, 0, &a) && diff_figure(diff, f, 1, &b))
            same = a == b;
    }
    return same;
}

bool diff_has(const struct diff_op *op, enum diff_class c) {
    switch (c) {
    case ONLY_A:
    case ONLY_B: return op->match < 0 && !op->split;
    case SPLIT: return op->split && op->op != OP_W; /* counts A's operation: B, or I */
    case MOVED: return op->moved;
    case REORDERED: return op->reordered;
    case REREAD: return op->reread;
    default: return op->longer;
    }
}

struct names diff_names(const struct diff_op *op) {
    return (struct names){.slices = op->slices};
}

const char *diff_op_name(const struct diff_op *op) {
    struct names names = diff_names(op);
    struct instr x = {.op = op->op, .stage = op->stage, .batch = op->batch, .inst = op->number, .peer = op->peer};
    return short_name(&names, &x);
}

double diff_span(const struct diff *diff) {
    return fmax((double)diff->side[0]->makespan, (double)diff->side[1]->makespan) * diff->tick;
}

struct measure diff_measure(const struct diff *diff, bool ascii) {
    return measure_of(diff_span(diff), diff->unit ? diff->unit : "units", ascii);
}

const struct diff_op *diff_before(const struct side *side, int i) {
    return i > side->lane[side->op[i].lane].first ? &side->op[i - 1] : NULL;
}

const char *diff_time_text(double x, const struct measure *measure) {
    char time[32];
    bool one = strcmp(time_text(fabs(x), measure, time), "1") == 0 && strcmp(measure->name, "units") == 0;
    time_text(x, measure, time);
    return format("%s %s", time, one ? "unit" : measure->name);
}

const char *diff_signed_time(const struct diff *diff, int64_t ticks, const struct measure *measure) {
    return format("%s%s", ticks > 0 ? "+" : "", diff_time_text((double)ticks * diff->tick, measure));
}

const char *diff_figure_text(int which, double x, const struct measure *measure, char buf[32]) {
    if (which == F_MAKESPAN || which == F_PERIOD)
        snprintf(buf, 32, "%s", diff_time_text(x, measure));
    else if (which == F_BUBBLE)
        snprintf(buf, 32, "%.1f %%", 100 * x);
    else if (which == F_OPERATIONS)
        snprintf(buf, 32, "%.0f", x);
    else
        bytes_text(x, buf);
    return buf;
}

/* Compares with a tolerance: sums of decimal fractions differ in their last bits with the order of addition. */
static bool nearly_equal(double a, double b) { return fabs(a - b) <= 1e-9 * fmax(fabs(a), fabs(b)); }

bool diff_figure_changed(const struct diff *diff, int which, double a, double b) {
    return !nearly_equal(a, b) && !(diff->tells && diff_by_chance(diff->p[which]));
}

static const char *delta_text(const struct diff *diff, int which, double a, double b, char buf[32]) {
    if (nearly_equal(a, b))
        snprintf(buf, 32, "=");
    else if (!diff_figure_changed(diff, which, a, b))
        snprintf(buf, 32, "~");
    else if (which == F_BUBBLE)
        snprintf(buf, 32, "%+.1f pt", 100 * (b - a));
    else if (which == F_OPERATIONS || a == 0)
        snprintf(buf, 32, "%+.6g", b - a);
    else
        snprintf(buf, 32, "%+.1f %%", 100 * (b / a - 1));
    return buf;
}

static void put_figure_row(struct text *t, bool markdown, const char *a, const char *b, const char *c, const char *e) {
    if (markdown)
        put(t, "| %s | %s | %s | %s |\n", a, b, c, e);
    else
        put(t, "%-14s %14s %14s %14s\n", a, b, c, e);
}

static void put_table_head(struct text *t, bool markdown, const char *last) {
    put_figure_row(t, markdown, "", "A", "B", last);
    if (markdown)
        put(t, "|---|---:|---:|---:|\n");
}

static void put_size_rows(struct text *t, const struct diff *diff, bool markdown) {
    for (int i = 0; i < NSIZES; i++) {
        long long a = diff->side[0]->size.of[i], b = diff->side[1]->size.of[i];
        if (a != b)
            put_figure_row(t, markdown, size_name[i], format("%lld", a), format("%lld", b), format("%+lld", b - a));
    }
}

static void put_figures(struct text *t, const struct diff *diff, const struct measure *measure, bool markdown) {
    put_table_head(t, markdown, "delta");
    put_size_rows(t, diff, markdown);
    for (int f = 0; f < NFIGURES; f++) {
        double a, b;
        char x[32] = "", y[32] = "", delta[32] = "";
        bool in_a = diff_figure(diff, f, 0, &a), in_b = diff_figure(diff, f, 1, &b);
        if ((!in_a && !in_b) || (f == F_PERIOD && in_a != in_b))
            continue;
        put_figure_row(t, markdown, figure_name[f], in_a ? diff_figure_text(f, a, measure, x) : "?",
                       in_b ? diff_figure_text(f, b, measure, y) : "?",
                       in_a && in_b ? delta_text(diff, f, a, b, delta) : "?");
    }
}

static const char *signed_time(int64_t ticks, const struct diff *diff, const struct measure *measure, char buf[32]) {
    char time[32];
    snprintf(buf, 32, "%s%s", ticks > 0 ? "+" : "", time_text((double)ticks * diff->tick, measure, time));
    return llabs(ticks) > diff->least ? buf : "=";
}

static void put_account(struct text *t, const struct diff *diff, const struct measure *measure, bool markdown) {
    put(t, "\n%sWhere the time went, on the rank that ends last (A: rank %d, B: rank %d; %s)\n\n",
        markdown ? "### " : "", diff->ends[0], diff->ends[1], measure->name);
    put_table_head(t, markdown, "delta");
    char a[32], b[32], delta[32];
    for (int k = 0; k < NACCOUNTS; k++) {
        int64_t x = diff->account[0][k], y = diff->account[1][k];
        if (x || y)
            put_figure_row(t, markdown, account_name[k], time_text((double)x * diff->tick, measure, a),
                           time_text((double)y * diff->tick, measure, b), signed_time(y - x, diff, measure, delta));
    }
    int64_t x = diff->side[0]->makespan, y = diff->side[1]->makespan;
    bool idle = llabs(diff->account[0][ACC_OTHER]) > diff->least || llabs(diff->account[1][ACC_OTHER]) > diff->least;
    put_figure_row(t, markdown, "makespan", time_text((double)x * diff->tick, measure, a),
                   time_text((double)y * diff->tick, measure, b), signed_time(y - x, diff, measure, delta));
    if (idle)
        put(t, "\n"
               "other: nothing known kept the rank waiting. A timeline without its program may not show the cause\n");
}

/* Prints each group's change: its ratios, or ~ if it may be chance. */
static void put_groups(struct text *t, const struct diff *diff, const struct diff_group *group, int n, const char *by,
                       const struct measure *measure, bool markdown) {
    char a[32], b[32], ratio[64];
    if (!n)
        return;
    put(t, "\n%sDurations by %s, all together (%s), and B / A of each: median, quartiles\n\n", markdown ? "### " : "",
        by, measure->name);
    put_table_head(t, markdown, "B / A");
    for (int i = 0; i < n; i++) {
        const struct diff_group *k = &group[i];
        snprintf(ratio, sizeof ratio, k->n ? "%.3g (%.3g .. %.3g)" : "-", k->bias, k->low, k->high);
        put_figure_row(t, markdown, k->name, time_text(k->a, measure, a), time_text(k->b, measure, b),
                       diff->tells && diff_by_chance(k->p) ? "~" : ratio);
    }
}

/* Prints an operation of a class, after the class's sign. */
static void put_one_member(struct text *t, const struct diff *diff, int class, int i, const struct measure *measure) {
    static const char sign[] = "-+/>~dv";
    const struct side *a = diff->side[0], *b = diff->side[1], *s = class == ONLY_B ? b : a;
    const struct diff_op *op = &s->op[i], *o2 = class >= SPLIT ? &b->op[op->match] : NULL;
    char x[32], y[32];
    put(t, "%c rank %d %s  %s", sign[class], op->rank, s->lane[op->lane].name, diff_op_name(op));
    struct names names = diff_names(op);
    if (class == SPLIT)
        put(t, op->op == OP_B ? "  is %s and %s" : "  and %s are %s",
            job_name(&names, op->stage, op->batch, op->op == OP_B ? OP_I : OP_W),
            job_name(&names, op->stage, op->batch, op->op == OP_B ? OP_W : OP_B));
    if (class == MOVED)
        put(t, "  to rank %d %s", o2->rank, b->lane[o2->lane].name);
    if (class == REORDERED) {
        const struct diff_op *was = diff_before(a, i), *is = diff_before(b, op->match);
        put(t, "  %s%s", is ? "after " : "first", is ? diff_op_name(is) : "");
        put(t, " (was %s%s)", was ? "after " : "first", was ? diff_op_name(was) : "");
    }
    if (class == REREAD)
        put(t, "  reads v%d instead of v%d", o2->version, op->version);
    if (class == LONGER)
        put(t, "  %s -> %s %s", time_text((double)diff_took(a, op) * diff->tick, measure, x),
            time_text((double)diff_took(b, o2) * diff->tick, measure, y), measure->name);
    put(t, "\n");
}

static const struct diff *sorted; /* sort has no context argument */

/* Sorts by the change of duration, largest first. */
static int by_change(const void *x, const void *y) {
    int32_t i = *(const int32_t *)x, j = *(const int32_t *)y;
    const struct side *a = sorted->side[0], *b = sorted->side[1];
    int64_t p = llabs(diff_took(b, &b->op[a->op[i].match]) - diff_took(a, &a->op[i]));
    int64_t q = llabs(diff_took(b, &b->op[a->op[j].match]) - diff_took(a, &a->op[j]));
    return p != q ? (p < q) - (p > q) : i - j;
}

static void put_classes(struct text *t, const struct diff *diff, const struct measure *measure, bool markdown) {
    static const char *const title[NCLASSES] = {"only in A",
                                                "only in B",
                                                "backwards that are one job on one side and two, I and W, on the other",
                                                "moved to another rank or lane",
                                                "reordered, the fewest that explain the change of order",
                                                "longer or shorter, those with the largest change first",
                                                "that read another version of the weights"};
    int count[NCLASSES] = {diff->only[0],   diff->only[1], diff->split, diff->moved,
                           diff->reordered, diff->longer,  diff->reread};
    for (int c = 0; c < NCLASSES; c++) {
        const struct side *side = diff->side[c == ONLY_B];
        if (!count[c])
            continue;
        put(t, "\n%s%d %s\n%s", markdown ? "### " : "", count[c], title[c], markdown ? "\n```\n" : "");
        int32_t *member = NEW(int32_t, count[c]);
        for (int i = 0, n = 0; i < side->n; i++)
            if (diff_has(&side->op[i], (enum diff_class)c))
                member[n++] = i;
        sorted = diff;
        if (c == LONGER)
            sort(member, (size_t)count[c], sizeof *member, by_change);
        for (int n = 0; n < count[c] && n < LINES; n++)
            put_one_member(t, diff, c, member[n], measure);
        if (count[c] > LINES)
            put(t, "  and %d more; --json has all\n", count[c] - LINES);
        put(t, "%s", markdown ? "```\n" : "");
    }
}

static char root_sign(const struct diff *diff, const struct root *root) {
    const struct diff_op *op = root->a >= 0 ? &diff->side[0]->op[root->a] : NULL;
    return !op             ? '+'
           : root->b < 0   ? '-'
           : op->split     ? '/'
           : op->moved     ? '>'
           : op->reordered ? '~'
           : op->longer    ? 'd'
                           : ' ';
}

static void put_root(struct text *t, const struct diff *diff, const struct root *root, const struct measure *measure) {
    int side = root->a < 0, i = side ? root->b : root->a;
    const struct diff_op *op = &diff->side[side]->op[i];
    put(t, "%c rank %d  %s", root_sign(diff, root), op->rank, diff_op_name(op));
    bool own = root->a >= 0 && root->b >= 0 &&
               llabs(diff->side[1]->op[root->b].end - diff->side[0]->op[root->a].end) > diff->least;
    put(t, "  %s %s", own ? "ends" : "moves others by up to", diff_signed_time(diff, root->shift, measure));
    if (llabs(root->effect) > diff->least)
        put(t, "; makes B %s", diff_signed_time(diff, root->effect, measure));
    put(t, "%s", root->critical ? "; critical" : "");
    if (root->pushed)
        put(t, "; pushed %d", root->pushed);
    put(t, "\n");
}

static void put_roots(struct text *t, const struct diff *diff, const struct measure *measure, bool markdown) {
    if (!diff->nroots)
        return;
    put(t,
        "\n"
        "%sRoots: %d, which explain all %d operations that shifted\n"
        "%s",
        markdown ? "### " : "", diff->nroots, diff->shifted, markdown ? "\n```\n" : "");
    for (int i = 0; i < diff->nroots && i < LINES; i++)
        put_root(t, diff, &diff->root[i], measure);
    if (diff->nroots > LINES)
        put(t, "  and %d more; --json has all\n", diff->nroots - LINES);
    put(t, "%s", markdown ? "```\n" : "");
}

/* Prints how a side was measured, and what was done to its times. */
static void put_measured(struct text *t, const struct diff *diff, int k, bool ascii) {
    static const double least = 1e-8; /* seconds: more than sums of times lose by rounding */
    const struct side *side = diff->side[k];
    char x[32], y[32];
    if (!side->steps)
        return;
    put(t, "%c is measured: %s%d step%s", 'A' + k, side->steps->nsteps > 1 ? "medians of " : "", side->steps->nsteps,
        side->steps->nsteps > 1 ? "s" : "");
    put(t, side->clocks.offset ? "; clocks set, such that no message arrives before it was sent:"
                               : "; no message contradicts the clocks\n");
    double most = 0;
    for (int r = 0; side->clocks.offset && r < side->workers; r++)
        most = fmax(most, fabs(side->clocks.offset[r]));
    struct measure m = measure_of(most, "s", ascii), e = measure_of(side->clocks.error, "s", ascii);
    for (int r = 0, n = 0; side->clocks.offset && r < side->workers; r++)
        if (side->clocks.offset[r] != 0)
            put(t, "%s rank %d's by %s%s", n++ ? "," : "", r, side->clocks.offset[r] > 0 ? "+" : "",
                time_text(side->clocks.offset[r], &m, x));
    if (side->clocks.offset)
        put(t, isinf(side->clocks.error) ? " %s\n" : " %s, each to %s %s or better\n", m.name,
            time_text(side->clocks.error, &e, y), e.name);
    struct measure u = measure_of(side->clocks.unmet, "s", ascii);
    if (side->clocks.unmet > least)
        put(t, "  a message still arrives %s %s before it was sent: clocks drift, or the files are of several runs\n",
            time_text(side->clocks.unmet, &u, x), u.name);
}

void put_changes(struct text *t, const struct diff *diff) {
    const char *const what[] = {
        "only in A", "only in B", "split", "moved", "reordered", "longer or shorter", "read another version",
        "shifted"};
    int count[] = {diff->only[0],   diff->only[1], diff->split,  diff->moved,
                   diff->reordered, diff->longer,  diff->reread, diff->shifted};
    for (int i = 0, n = 0; i < 8; i++)
        if (count[i])
            put(t, "%s %d %s", n++ ? "," : ";", count[i], what[i]);
}

/* Prints how many microbatches an update covers, as the program's text does. */
static void put_update_rule(struct text *t, const struct program *p) {
    if (!p->update)
        put(t, "one at the end of the step");
    for (int s = 0; p->update && s < p->stages; s++)
        put(t, "%s%d", s ? " " : "", p->update[s]);
}

static void put_repetition(struct text *t, const struct program *p) {
    if (p->period)
        put(t, "%d times %lld", p->period, (long long)p->repeats);
    else
        put(t, "none");
}

/* Prints how the sides' headers differ, and that times and counts cover only the part of a step that is written out. */
static void put_written_out(struct text *t, const struct diff *diff) {
    for (int k = 0; k < 2; k++) {
        const struct program *p = diff->side[k]->p;
        if (p && p->period)
            put(t, "%c writes out %d of a step's %lld microbatches; its times and counts are of these\n", 'A' + k,
                p->batches, (long long)step_batches(p));
    }
    if (!diff->repeated)
        return;
    const struct program *a = diff->side[0]->p, *b = diff->side[1]->p;
    void (*const put_line[])(struct text *, const struct program *) = {put_update_rule, put_repetition};
    for (int i = 0; i < 2; i++) {
        struct text x = {0}, y = {0};
        put_line[i](&x, a);
        put_line[i](&y, b);
        if (strcmp(x.s, y.s) != 0)
            put(t, "%s %s in A, %s in B\n", i ? "period" : "updates", x.s, y.s);
    }
}

/* Prints what the sides are, and the sources of their times. */
static void put_sides(struct text *t, const struct diff *diff, bool ascii) {
    put(t, "A %s\nB %s\n", diff->side[0]->name, diff->side[1]->name);
    for (int k = 0; k < 2; k++)
        put_measured(t, diff, k, ascii);
    for (int k = 0; k < 2; k++)
        if (diff->base.of[k])
            put(t, "%c is predicted from %s\n", 'A' + k, diff->base.of[k]);
    put_written_out(t, diff);
    if (diff->base.rate > 0)
        put(t, "%c's times are in %s; taken as seconds at %.4g a second, where all jobs of both take the same time\n",
            diff->side[0]->steps ? 'B' : 'A', diff->side[diff->side[0]->steps != NULL]->unit, 1 / diff->base.rate);
    if (diff->share > 0)
        put(t, "times are scaled to equal work: F is 1 for 1/%g of the model, a rank's share%s\n", diff->share,
            diff_resized(diff, SIZE_RANKS) ? " in A" : "");
    bool steps = diff->side[0]->steps || diff->side[1]->steps;
    if (diff->tick > 0 && steps && !diff->tells)
        put(t, "too few steps to tell a change from chance: record more (6 against a prediction, 4 on each side of two "
               "measurements)\n");
    for (int k = 0; diff->tick > 0 && diff->unit && k < 2; k++)
        if (!diff->side[k]->unit)
            put(t, "%c names no unit; its times are taken as %s, as %c's are\n", 'A' + k,
                strcmp(diff->unit, "F") ? diff->unit : "units", 'B' - k);
    put(t, "\n");
}

/* Prints how to see each change. */
static void put_hint(struct text *t, const struct diff *diff) {
    struct text changes = {0};
    put_changes(&changes, diff);
    if (changes.n > 2)
        put(t, "\n%s; --all lists them\n", changes.s + 2);
}

/* Returns whether a cause is worth a line. Effects that are small beside the makespan and beside the largest are not.
 */
static bool matters(const struct diff *diff, const struct diff_cause *cause) {
    double effect = fabs((double)cause->effect) * diff->tick,
           first = fabs((double)diff->causes.of->effect) * diff->tick;
    bool noise = effect < diff_span(diff) / 1000 && effect < first / 5;
    return cause->unknown || (llabs(cause->effect) > diff->least && !noise);
}

/* Returns the cause of most operations, jobs first, for a list in which none has an effect. */
static int widest_cause(const struct diff_causes *causes) {
    int best = 0;
    for (int i = 1; i < causes->n; i++) {
        bool job = causes->of[i].op < 0 || is_job(causes->of[i].op);
        bool also = causes->of[best].op < 0 || is_job(causes->of[best].op);
        if (job != also ? job : causes->of[i].n > causes->of[best].n)
            best = i;
    }
    return best;
}

static void put_cause_line(struct text *t, const struct diff *diff, const struct diff_cause *cause,
                           const struct measure *measure) {
    char effect[32];
    put(t, "%10s  ", cause->unknown ? "?" : signed_time(cause->effect, diff, measure, effect));
    put_diff_cause(t, diff, cause);
    put(t, "\n");
}

static void put_causes(struct text *t, const struct diff *diff, const struct measure *measure,
                       struct diff_style style) {
    const struct diff_causes *causes = &diff->causes;
    int shown = 0, smaller = 0;
    if (causes->n == 0)
        return;
    put(t, "%sCauses, by how much longer (+) or shorter (-) each alone makes B (%s)\n%s", style.markdown ? "### " : "",
        measure->name, style.markdown ? "\n```\n" : "");
    for (int i = 0; i < causes->n; i++) {
        bool matter = matters(diff, &causes->of[i]);
        if (style.all || (matter && shown < CAUSES)) {
            put_cause_line(t, diff, &causes->of[i], measure);
            shown++;
        } else
            smaller += llabs(causes->of[i].effect) > diff->least || causes->of[i].unknown;
    }
    if (shown == 0)
        put_cause_line(t, diff, &causes->of[widest_cause(causes)], measure);
    if (smaller > 0)
        put(t, "%10s  and %d smaller; --all lists them\n", "", smaller);
    if (diff_resized(diff, SIZE_STAGES))
        put(t, "%10s  No finer causes: a stage of A and a stage of B are different parts of the model\n", "");
    put(t, "%s\n", style.markdown ? "```\n" : "");
}

static void put_diff(struct text *out, const struct diff *diff, struct diff_style style) {
    struct measure measure = diff_measure(diff, style.ascii);
    put_diff_sentence(out, diff, &measure);
    put(out, "\n");
    put_sides(out, diff, style.ascii);
    put_causes(out, diff, &measure, style);
    put_figures(out, diff, &measure, style.markdown);
    if (diff->rewired)
        put(out, "\n"
                 "The operations are the same, but some operands, waits or addresses differ.\n");
    if (diff->tick > 0 && diff->side[0]->n && diff->side[1]->n && !diff_same(diff))
        put_account(out, diff, &measure, style.markdown);
    put_groups(out, diff, diff->kinds.of, diff->kinds.n, "kind", &measure, style.markdown);
    if (!style.all) {
        put_hint(out, diff);
        return;
    }
    put_groups(out, diff, diff->links.of, diff->links.n, "link", &measure, style.markdown);
    put_classes(out, diff, &measure, style.markdown);
    put_roots(out, diff, &measure, style.markdown);
}

void emit_diff_summary(struct text *out, const struct diff *diff, bool markdown, bool ascii) {
    put_diff(out, diff, (struct diff_style){markdown, ascii, false});
}

void emit_diff(struct text *out, const struct diff *diff, bool markdown, bool ascii) {
    put_diff(out, diff, (struct diff_style){markdown, ascii, true});
}
