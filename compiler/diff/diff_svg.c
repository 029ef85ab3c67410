/* A diff as a picture: A's timeline, below it B's, below that B's operations coloured by how much earlier or later they
 * end than in A, all three over one time axis.
 *
 * In A and B what has not changed but for its time is faded, so that what has changed stands out. An operation that
 * moved to another rank or changed its place in the order is framed, and a line joins its places in A and in B. What is
 * on one side only has a dark corner. A page also says of each operation which it is in the other panels (data-t), what
 * it needs (data-p), and which root made it earlier or later (data-r), all as panel and number: a12. */
#include "diff.h"
#include "draw/svg.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { A, B, DELTA, NPANELS };
enum { TOP = 44, HEAD = 36, ROW = 20, BAND = 15, GAP = 6, BELOW = 18, LEGEND = 102 };

struct picture {
    const struct diff *d;
    bool html, stages; /* stages: names say them */
    struct span time;
    double y[NPANELS], pitch[NPANELS], bottom; /* of each panel's first row; from row to row */
    double top, limit;                         /* bytes: what a band is high; of the ranks' memories the smaller */
    int64_t most;                              /* ticks: the largest shift */
    uint32_t drawn;
    int joined;                     /* moved or reordered, and drawn */
    int32_t **op_at[2], *ins_of[2]; /* of a side whose waits are known: op of a rank's instruction, and back */
    struct producers producers[2];
};

/* ---- what is drawn where ---- */

static const struct side *side_of(const struct picture *p, int panel) { return p->d->side[panel == A ? A : B]; }

static struct instr instr_of(const struct diff_op *o) {
    return (struct instr){.op = o->op, .stage = o->stage, .batch = o->batch, .peer = o->peer, .inst = -1, .msg = -1};
}

static struct paint paint_op(const struct diff_op *o) {
    struct instr x = instr_of(o);
    return paint_of(&x, BY_OP);
}

static bool is_block(const struct side *s, int i) {
    const struct diff_op *o = &s->op[i];
    return o->end > o->start && paint_op(o).name && s->lane[o->lane].kind == LANE_COMPUTE;
}

static const struct diff_lane *jobs_of(const struct side *s, int r) { /* NULL: the rank has none */
    const struct diff_lane *l = &s->lane[s->lane_at[r]];
    return s->lane_at[r] < s->lane_at[r + 1] && l->kind == LANE_COMPUTE ? l : NULL;
}

static double limit_of(const struct side *s) { return s->limit > 0 ? s->limit : INFINITY; }

static double time_of(const struct picture *p, int64_t ticks) { return (double)ticks * p->d->tick; }

/* Two that overlap, by more than medians of steps may. */
static bool together(const struct diff_op *x, const struct diff_op *y) {
    int64_t start = x->start > y->start ? x->start : y->start, end = x->end < y->end ? x->end : y->end;
    int64_t least = x->end - x->start < y->end - y->start ? x->end - x->start : y->end - y->start;
    return 2 * (end - start) > least;
}

static struct box box_of(const struct picture *p, int panel, int i) {
    const struct side *s = side_of(p, panel);
    const struct diff_op *o = &s->op[i];
    const struct diff_lane *l = &s->lane[o->lane];
    double from = x_of(&p->time, time_of(p, o->start)), to = x_of(&p->time, time_of(p, o->end));
    struct box b = {from, p->y[panel] + p->pitch[panel] * o->rank, to - from, ROW, 0};
    bool upper = i + 1 < l->first + l->n && is_block(s, i + 1) && together(o, o + 1);
    bool lower = i > l->first && is_block(s, i - 1) && together(o - 1, o);
    if (upper || lower) {
        b.height = ROW / 2;
        b.y += upper ? 0 : b.height;
    }
    return b;
}

static bool framed(const struct diff_op *o) { return o->moved || o->reordered; }

/* ---- colours ---- */

static uint32_t mix(uint32_t a, uint32_t b, double of_b) {
    uint32_t rgb = 0;
    for (int at = 16; at >= 0; at -= 8)
        rgb |= (uint32_t)lround((a >> at & 255) * (1 - of_b) + (b >> at & 255) * of_b) << at;
    return rgb;
}

/* From blue over white to red: ColorBrewer's RdBu, which colour-blind readers can tell apart too. at: from -1 to 1. */
static uint32_t diverging(double at) {
    static const uint32_t stop[] = {0x2166ac, 0x67a9cf, 0xf7f7f7, 0xef8a62, 0xb2182b};
    double x = (at + 1) * 2;
    int low = x < 3 ? (int)x : 3;
    return mix(stop[low], stop[low + 1], x - low);
}

static uint32_t fill_of(const struct picture *p, int panel, int i, bool root) {
    enum { NEITHER = 0xd9d9d9, WHITE = 0xffffff };
    const struct diff_op *o = &side_of(p, panel)->op[i];
    if (panel == DELTA && o->match < 0)
        return NEITHER;
    if (panel == DELTA)
        return diverging(p->most ? (double)diff_shift(p->d, B, i) / (double)p->most : 0);
    uint32_t fill = paint_op(o).fill;
    return diff_changed(o) || root ? fill : mix(WHITE, fill, 0.3);
}

/* ---- an operation ---- */

static const char *const letter[] = {"A", "B"};

static void put_times(struct text *t, const struct picture *p, int side, const struct diff_op *o) {
    char from[32], to[32];
    put(t, "; in %s rank %d, %s to %s %s", letter[side], o->rank, time_text(time_of(p, o->start), &p->time.m, from),
        time_text(time_of(p, o->end), &p->time.m, to), p->time.m.name);
}

static const char *signed_text(const struct picture *p, int64_t ticks) {
    char buf[32];
    return format("%s%s %s", ticks > 0 ? "+" : "", time_text(time_of(p, ticks), &p->time.m, buf), p->time.m.name);
}

static const char *before(const struct side *s, int i) {
    return i > s->lane[s->op[i].lane].first ? diff_op_name(&s->op[i - 1]) : "nothing";
}

static void put_root(struct text *t, const struct picture *p, const struct root *r, bool itself) {
    const struct diff_op *o = r->a >= 0 ? &p->d->side[A]->op[r->a] : &p->d->side[B]->op[r->b];
    if (!itself)
        put(t, "; pushed by %s of rank %d", diff_op_name(o), o->rank);
    else if (r->pushed)
        put(t, "; a root: pushed %d", r->pushed);
}

static bool is_root(const struct root *r, int side, int i) { return r && (side == A ? r->a : r->b) == i; }

/* What it is, when, and why it changed: the same in all panels. */
static void put_title(struct text *t, const struct picture *p, int side, int i) {
    const struct side *s = p->d->side[side], *other = p->d->side[!side];
    const struct diff_op *o = &s->op[i], *twin = o->match >= 0 ? &other->op[o->match] : NULL, *in[2];
    const struct root *root = diff_root(p->d, side, i);
    in[side] = o;
    in[!side] = twin;
    put(t, "<title>%s: %s of stage %d", diff_op_name(o), paint_op(o).name, o->stage);
    if (o->batch >= 0)
        put(t, ", microbatch %d", o->batch);
    for (int k = A; k <= B; k++)
        if (in[k])
            put_times(t, p, k, in[k]);
    if (o->split)
        put(t, "; a backward that is split in %s", letter[o->op == OP_B ? !side : side]);
    else if (!twin)
        put(t, "; only in %s", letter[side]);
    if (diff_shift(p->d, side, i))
        put(t, "; ends %s", signed_text(p, diff_shift(p->d, side, i)));
    if (o->longer)
        put(t, "; takes %s", signed_text(p, diff_took(p->d->side[B], in[B]) - diff_took(p->d->side[A], in[A])));
    if (o->moved)
        put(t, "; moved");
    if (o->reordered) {
        int a = side == A ? i : o->match, b = side == A ? o->match : i;
        put(t, "; reordered: after %s, was after %s", before(p->d->side[B], b), before(p->d->side[A], a));
    }
    if (root)
        put_root(t, p, root, is_root(root, side, i));
    if (o->critical || (twin && twin->critical))
        put(t, "; on the critical path of %s",
            !twin || o->critical != twin->critical ? (o->critical == (side == A) ? "A" : "B") : "A and B");
    put(t, "</title>");
}

/* Of a timeline alone: what it waited for, and when that was no job, what that waited for. */
static int waited_for(const struct side *s, int i) {
    int by = s->op[i].bind;
    for (int steps = 0; by >= 0 && !is_block(s, by) && steps < s->n; steps++)
        by = s->op[by].bind;
    return by;
}

static void put_needs(struct text *t, const struct picture *p, int side, int i) {
    const struct side *s = p->d->side[side];
    int n = 0;
    if (!s->waits) {
        int by = waited_for(s, i);
        if (by >= 0)
            put(t, " data-p=\"%c%d\"", "ab"[side], by);
        return;
    }
    const int32_t *at = &p->producers[side].at[s->op[i].rank][p->ins_of[side][i]];
    for (int32_t f = at[0]; f < at[1]; f++) {
        const struct producer *x = &p->producers[side].a[f];
        int by = x->i >= 0 ? p->op_at[side][x->rank][x->i] : -1;
        if (by >= 0 && is_block(s, by))
            put(t, "%s%c%d", n++ ? " " : " data-p=\"", "ab"[side], by);
    }
    put(t, "%s", n ? "\"" : "");
}

/* For the page's script. A root that is not drawn, a message, is said in the title only. */
static void put_relations(struct text *t, const struct picture *p, int panel, int i) {
    int side = panel == A ? A : B, twin = p->d->side[side]->op[i].match, n = 0;
    const struct root *r = diff_root(p->d, side, i);
    int at[NPANELS] = {side == A ? i : twin, side == B ? i : twin, side == B ? i : twin};
    put(t, " id=\"o%c%d\"", "abd"[panel], i);
    for (int k = 0; k < NPANELS; k++)
        if (k != panel && at[k] >= 0 && is_block(side_of(p, k), at[k]))
            put(t, "%s%c%d", n++ ? " " : " data-t=\"", "abd"[k], at[k]);
    if (at[A] >= 0 && at[B] >= 0 && framed(&p->d->side[A]->op[at[A]]))
        put(t, "%sj%d", n++ ? " " : " data-t=\"", at[A]);
    put(t, "%s", n ? "\"" : "");
    if (panel != DELTA)
        put_needs(t, p, side, i);
    if (r && !is_root(r, side, i))
        put(t, " data-r=\"%c%d\"", r->a >= 0 ? 'a' : 'b', r->a >= 0 ? r->a : r->b);
}

static void put_job(struct text *t, struct picture *p, int panel, int i) {
    const struct diff_op *o = &side_of(p, panel)->op[i];
    struct box b = box_of(p, panel, i);
    int side = panel == A ? A : B;
    b.fill = fill_of(p, panel, i, is_root(diff_root(p->d, side, i), side, i));
    p->drawn |= 1u << o->op;
    put(t, "<rect class=\"o%s\" fill=\"#%06x\" x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\"",
        panel == DELTA ? " d"
        : o->critical  ? " c"
                       : "",
        b.fill, b.x, b.y, b.width, b.height);
    if (p->html)
        put_relations(t, p, panel, i);
    put(t, ">");
    put_title(t, p, side, i);
    put(t, "</rect>\n");
    if (o->match < 0 && !o->split && panel != DELTA)
        put(t, "<path class=\"e\" d=\"M%.2f %.2fh-5l5 5z\"/>\n", b.x + b.width, b.y);
    if (framed(o) && panel != DELTA)
        put(t, "<rect class=\"v%s\" x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\"/>\n", o->moved ? "" : " r",
            b.x + 1.7, b.y + 1.7, fmax(b.width - 3.4, 0.5), b.height - 3.4);
    struct instr x = instr_of(o);
    put_name(t, &x, &b, p->stages);
}

/* ---- panels ---- */

static void put_memory(struct text *t, const struct picture *p, int side, int r) {
    const struct side *s = p->d->side[side];
    const struct rank *k = &s->p->rank[r];
    double *start = NEW(double, k->nins), *end = NEW(double, k->nins);
    for (int i = 0; i < k->nins; i++) {
        const struct diff_op *o = &s->op[p->op_at[side][r][i]];
        start[i] = time_of(p, o->start);
        end[i] = time_of(p, o->end);
    }
    struct span time = p->time;
    struct band b = {p->y[side] + p->pitch[side] * r + ROW + BAND, BAND - 3, p->top, limit_of(s)};
    time.to = time_of(p, s->makespan);
    put_band(t, &time, &b, k, r, start, end);
}

static void put_heading(struct text *t, const struct picture *p, int panel) {
    static const char *const what[] = {"A", "B", "difference"};
    const struct side *s = side_of(p, panel);
    char buf[32];
    put(t, "<text class=\"p\" x=\"%d\" y=\"%.2f\">%s</text>\n<text x=\"%d\" y=\"%.2f\">", LEFT, p->y[panel] - 22,
        what[panel], LEFT + (panel == DELTA ? 70 : 14), p->y[panel] - 22);
    if (panel != DELTA) {
        put_xml(t, s->name);
        put(t, "; makespan %s %s", time_text(time_of(p, s->makespan), &p->time.m, buf), p->time.m.name);
    } else
        put(t, "B's operations, by how much earlier or later they end than in A");
    put(t, "</text>\n");
    put_axis(t, &p->time, p->y[panel] - 6, p->y[panel] + p->pitch[panel] * s->workers - GAP);
}

static void put_panel(struct text *t, struct picture *p, int panel) {
    const struct side *s = side_of(p, panel);
    double right = x_of(&p->time, time_of(p, s->makespan));
    put_heading(t, p, panel);
    for (int r = 0; r < s->workers; r++) {
        const struct diff_lane *l = jobs_of(s, r);
        double y = p->y[panel] + p->pitch[panel] * r;
        put(t, "<text class=\"l\" x=\"%d\" y=\"%.2f\">rank %d</text>\n", LEFT - 5, y + ROW / 2 + 3.6, r);
        put(t, "<rect fill=\"url(#idle)\" x=\"%d\" y=\"%.2f\" width=\"%.2f\" height=\"%d\"/>\n", LEFT, y, right - LEFT,
            ROW);
        for (int critical = 0; l && critical < 2; critical++) /* those last, that their outlines are whole */
            for (int i = l->first; i < l->first + l->n; i++)
                if (s->op[i].critical == critical && is_block(s, i))
                    put_job(t, p, panel, i);
        if (panel != DELTA && s->p)
            put_memory(t, p, panel, r);
    }
}

/* From the foot of each framed operation in A to its head in B. */
static void put_joins(struct text *t, struct picture *p) {
    const struct side *a = p->d->side[A], *b = p->d->side[B];
    for (int i = 0; i < a->n; i++) {
        const struct diff_op *o = &a->op[i];
        if (!framed(o) || !is_block(a, i) || !is_block(b, o->match))
            continue;
        struct box from = box_of(p, A, i), to = box_of(p, B, o->match);
        double x = from.x + from.width / 2, y = from.y + from.height, high = (to.y - y) * 0.45;
        put(t, "<path class=\"j%s\"", o->moved ? "" : " r");
        if (p->html)
            put(t, " id=\"oj%d\"", i);
        put(t, " d=\"M%.2f %.2fc0 %.2f %.2f %.2f %.2f %.2f\"/>\n", x, y, high, to.x + to.width / 2 - x, to.y - y - high,
            to.x + to.width / 2 - x, to.y - y);
        p->joined++;
    }
}

/* ---- what is around them ---- */

static void put_scale(struct text *t, const struct picture *p, double y) {
    enum { WIDTH = 160 };
    if (!p->most) {
        put(t, "<text x=\"%d\" y=\"%.2f\">no job ends earlier or later</text>\n", LEFT, y + 9);
        return;
    }
    put(t, "<text class=\"a\" x=\"%d\" y=\"%.2f\">%s</text><text class=\"a\" x=\"%d\" y=\"%.2f\">0</text>", LEFT,
        y + 22, signed_text(p, -p->most), LEFT + WIDTH / 2, y + 22);
    put(t, "<text class=\"a\" x=\"%d\" y=\"%.2f\">%s</text>\n", LEFT + WIDTH, y + 22, signed_text(p, p->most));
    put(t,
        "<rect fill=\"url(#delta)\" stroke=\"#999\" stroke-width=\".5\" x=\"%d\" y=\"%.2f\" width=\"%d\" "
        "height=\"10\"/>\n",
        LEFT, y, WIDTH);
    put(t, "<text x=\"%d\" y=\"%.2f\">ends earlier in B (blue), later in B (red)%s</text>\n", LEFT + WIDTH + 34, y + 9,
        p->d->only[B] || p->d->split ? "; grey: not in A" : "");
}

static void put_legend(struct text *t, const struct picture *p) {
    const struct diff *d = p->d;
    struct pen at = {LEFT, p->bottom + 50, svg_width(&p->time)};
    int frames = d->moved + d->reordered;
    put_scale(t, p, p->bottom + 4);
    put_op_keys(t, &at, p->drawn);
    put_key(t, &at, "fill=\"#99c7e0\"", "faded: unchanged but for its time");
    if (d->moved)
        put_key(t, &at, "class=\"v\"", "moved to another rank");
    if (d->reordered)
        put_key(t, &at, "class=\"v r\"", "reordered");
    if (d->only[A] || d->only[B])
        put_key(t, &at, "fill=\"url(#ear)\"", "only in A, or only in B");
    put_key(t, &at, "fill=\"url(#idle)\" stroke=\"#ddd\"", "idle");
    put_key(t, &at, "fill=\"#fff\" class=\"c\"", "critical path");
    if (d->side[A]->p || d->side[B]->p)
        put_band_keys(t, &at, p->top, p->limit);
    if (frames > p->joined)
        put(t,
            "<text x=\"%d\" y=\"%.2f\">not drawn: %d moved or reordered messages, or operations of no length</text>\n",
            LEFT, at.y + 15, frames - p->joined);
}

static void put_counts(struct text *t, const struct picture *p) {
    const struct diff *d = p->d;
    double a = time_of(p, d->side[A]->makespan), b = time_of(p, d->side[B]->makespan);
    char x[32], y[32];
    put(t, "<text x=\"%d\" y=\"34\">makespan %s", LEFT, time_text(a, &p->time.m, x));
    if (a != b)
        put(t, " → %s", time_text(b, &p->time.m, y));
    put(t, " %s", p->time.m.name);
    if (a != b && a > 0)
        put(t, " (%+.1f %%)", 100 * (b / a - 1));
    put_changes(t, d);
    put(t, "</text>\n");
}

/* ---- layout ---- */

/* The operation of every instruction, and back. */
static void number_ops(struct picture *p, int side) {
    const struct side *s = p->d->side[side];
    p->op_at[side] = NEW(int32_t *, s->workers);
    p->ins_of[side] = NEW(int32_t, s->n);
    for (int r = 0; r < s->workers; r++) {
        p->op_at[side][r] = side_ops(s, r);
        for (int i = 0; i < s->waits->rank[r].nins; i++)
            p->ins_of[side][p->op_at[side][r][i]] = i;
    }
    if (p->html)
        p->producers[side] = producers_of(s->waits);
}

/* Whether a microbatch alone does not say which job it is. */
static bool several(const struct side *s) {
    for (int r = 0; r < s->workers; r++) {
        const struct diff_lane *l = jobs_of(s, r);
        for (int i = l ? l->first : 0, first = -1; l && i < l->first + l->n; i++) {
            if (!is_job(s->op[i].op))
                continue;
            if (first >= 0 && s->op[i].stage != first)
                return true;
            first = s->op[i].stage;
        }
    }
    return false;
}

/* As wide as both sides' jobs need for their names. */
static void choose_scale(struct picture *p) {
    double *length = NEW(double, p->d->side[A]->n + p->d->side[B]->n);
    int stage = 0, batch = 0, jobs = 0;
    for (int k = A; k <= B; k++)
        for (int i = 0; i < p->d->side[k]->n; i++) {
            const struct diff_op *o = &p->d->side[k]->op[i];
            if (!is_job(o->op) || !is_block(p->d->side[k], i))
                continue;
            length[jobs++] = time_of(p, o->end - o->start);
            stage = o->stage > stage ? o->stage : stage;
            batch = o->batch > batch ? o->batch : batch;
            if (llabs(diff_shift(p->d, k, i)) > p->most)
                p->most = llabs(diff_shift(p->d, k, i));
        }
    p->stages = several(p->d->side[A]) || several(p->d->side[B]);
    int letters = snprintf(NULL, 0, "F%d", batch) + (p->stages ? snprintf(NULL, 0, "%d", stage) : 0);
    span_scale(&p->time, length, jobs, letters);
}

static void place_panels(struct picture *p) {
    double y = TOP, plan = 0;
    p->limit = INFINITY;
    for (int k = 0; k < NPANELS; k++) {
        const struct side *s = side_of(p, k);
        p->y[k] = y + HEAD;
        p->pitch[k] = ROW + GAP + (k != DELTA && s->p ? BAND : 0);
        y = p->y[k] + p->pitch[k] * s->workers + BELOW;
        plan = fmax(plan, (double)s->peak_bytes);
        p->limit = fmin(p->limit, limit_of(s));
    }
    p->bottom = y - BELOW;
    p->top = band_top(plan, p->limit);
}

static char *gradient(void) {
    struct text t = {0};
    put(&t, "<linearGradient id=\"delta\">");
    for (int i = 0; i <= 4; i++)
        put(&t, "<stop offset=\"%d%%\" stop-color=\"#%06x\"/>", 25 * i, diverging(i / 2.0 - 1));
    put(&t, "</linearGradient>\n"
            "<linearGradient id=\"ear\" x1=\"1\" x2=\"0\" y2=\"1\"><stop offset=\".4\" stop-color=\"#222\"/>"
            "<stop offset=\".4\" stop-color=\"#ddd\"/></linearGradient>\n");
    return t.s;
}

static const char style[] = "text.p { font-size: 11px; font-weight: bold }\n"
                            ".d { stroke: #bbb }\n"
                            ".e { fill: #222; pointer-events: none }\n"
                            ".v { fill: none; stroke: #d55e00; stroke-width: 1.6; pointer-events: none }\n"
                            ".j { fill: none; stroke: #d55e00; stroke-width: 1; opacity: .55; pointer-events: none }\n"
                            ".r { stroke-dasharray: 3 2 }\n"
                            ".j.this { stroke-width: 2.4; opacity: 1 }\n"
                            ".o.root { stroke: #e69f00; stroke-width: 3.2 }\n";

void emit_diff_svg(struct text *t, const struct diff *d, bool html) {
    struct picture p = {.d = d, .html = html};
    double last =
        time_of(&p, d->side[A]->makespan > d->side[B]->makespan ? d->side[A]->makespan : d->side[B]->makespan);
    p.time = (struct span){.to = last, .m = measure_of(last, d->unit ? d->unit : "units", false)};
    choose_scale(&p);
    place_panels(&p);
    for (int k = A; k <= B; k++)
        if (d->side[k]->waits)
            number_ops(&p, k);
    struct svg page = {.name = format("%s → %s", d->side[A]->name, d->side[B]->name),
                       .style = style,
                       .top = gradient(),
                       .width = svg_width(&p.time),
                       .height = p.bottom + LEGEND,
                       .html = html};
    svg_begin(t, &page);
    put_counts(t, &p);
    for (int k = 0; k < NPANELS; k++)
        put_panel(t, &p, k);
    put_joins(t, &p);
    put_legend(t, &p);
    svg_end(t, &page, "what it needs, and its root");
}
