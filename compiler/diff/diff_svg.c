/* Draws a diff: A's timeline, below it B's, below that B's operations coloured by how much earlier or later they end
 * than in A, all three over one time axis.
 *
 * In A and B, operations that changed only in time, or not at all, are faded so that the others stand out. An operation
 * that moved to another rank or was reordered is framed, and a line joins its places in A and B. An operation on one
 * side only has a dark corner. */
#include "diff.h"
#include "diff_draw.h"
#include "draw/svg.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { A, B, DELTA, NPANELS };
enum { TOP = 44, HEAD = 36, ROW = 20, LOW_ROW = 11, BAND = 15, GAP = 6, LOW_GAP = 2, BELOW = 18, LEGEND = 102 };

struct picture {
    const struct diff *d;
    bool stages; /* names include the stage */
    struct span time;
    double y[NPANELS], pitch[NPANELS], bottom; /* per panel: top of its first row; distance between rows */
    bool low;                                  /* rows are low, because there are many */
    double row, gap;                           /* height of a row; space below its band */
    double top, limit;                         /* bytes at the top of a band; the smaller of the sides' memory limits */
    int64_t most;                              /* ticks: the largest shift */
    uint32_t drawn;
    int joined; /* number of operations joined, that is, moved or reordered, and drawn */
};

/* ---- where operations are drawn ---- */

static const struct side *panel_side(const struct picture *picture, int panel) {
    return picture->d->side[panel == A ? A : B];
}

static struct paint paint_op(const struct diff_op *op) {
    struct instr x = diff_instr(op);
    return paint_of(&x, BY_OP);
}

static double limit_of(const struct side *side) { return side->on.memory > 0 ? side->on.memory : INFINITY; }

static struct box box_of(const struct picture *picture, int panel, int i) {
    const struct side *side = panel_side(picture, panel);
    const struct diff_op *op = &side->op[i];
    double from = x_of(&picture->time, diff_time(picture->d, op->start)),
           to = x_of(&picture->time, diff_time(picture->d, op->end));
    struct box box = {from, picture->y[panel] + picture->pitch[panel] * op->rank, to - from, picture->row, 0};
    int half = diff_half(side, i);
    if (half) {
        box.height = picture->row / 2;
        box.y += half == 1 ? 0 : box.height;
    }
    return box;
}

static bool framed(const struct diff_op *op) { return op->moved || op->reordered; }

/* ---- colours ---- */

static uint32_t mix_colors(uint32_t a, uint32_t b, double of_b) {
    uint32_t rgb = 0;
    for (int at = 16; at >= 0; at -= 8)
        rgb |= (uint32_t)lround((a >> at & 255) * (1 - of_b) + (b >> at & 255) * of_b) << at;
    return rgb;
}

/* Returns a colour from blue through white to red, for -1 to 1: ColorBrewer's RdBu, which suits colour-blind
 * readers. */
static uint32_t diverging(double at) {
    static const uint32_t stop[] = {0x2166ac, 0x67a9cf, 0xf7f7f7, 0xef8a62, 0xb2182b};
    double x = (at + 1) * 2;
    int low = x < 3 ? (int)x : 3;
    return mix_colors(stop[low], stop[low + 1], x - low);
}

static uint32_t fill_of(const struct picture *picture, int panel, int i, bool root) {
    enum { NEITHER = 0xd9d9d9, WHITE = 0xffffff };
    const struct diff_op *op = &panel_side(picture, panel)->op[i];
    if (panel == DELTA && op->match < 0)
        return NEITHER;
    if (panel == DELTA)
        return diverging(picture->most ? (double)diff_shift(picture->d, B, i) / (double)picture->most : 0);
    uint32_t fill = paint_op(op).fill;
    return diff_changed(op) || root ? fill : mix_colors(WHITE, fill, 0.3);
}

/* ---- an operation ---- */

static const char *const letter[] = {"A", "B"};

static void put_op_times(struct text *t, const struct picture *picture, int side, const struct diff_op *op) {
    char from[32], to[32];
    put(t, "; in %s rank %d, %s to %s %s", letter[side], op->rank,
        time_text(diff_time(picture->d, op->start), &picture->time.m, from),
        time_text(diff_time(picture->d, op->end), &picture->time.m, to), picture->time.m.name);
}

/* Writes what an operation is, when it ran, and why it changed; the same in all panels. */
static void put_op_title(struct text *t, const struct picture *picture, int side, int i) {
    const struct diff_op *op = &picture->d->side[side]->op[i];
    const struct diff_op *twin = op->match >= 0 ? &picture->d->side[!side]->op[op->match] : NULL, *in[2];
    in[side] = op;
    in[!side] = twin;
    put(t, "<title>%s: %s of stage %d", diff_op_name(op), paint_op(op).name, op->stage);
    if (op->batch >= 0)
        svg_put_number(t, op->op, op->batch, op->slices);
    for (int k = A; k <= B; k++)
        if (in[k])
            put_op_times(t, picture, k, in[k]);
    diff_put_note(t, picture->d, side, i, false);
    put(t, "</title>");
}

static void put_operation(struct text *t, struct picture *picture, int panel, int i) {
    const struct diff_op *op = &panel_side(picture, panel)->op[i];
    struct box box = box_of(picture, panel, i);
    int side = panel == A ? A : B;
    box.fill = fill_of(picture, panel, i, diff_is_root(diff_root(picture->d, side, i), side, i));
    picture->drawn |= 1u << op->op;
    put(t, "<rect class=\"o%s\" fill=\"#%06x\" x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\">",
        panel == DELTA ? " d"
        : op->critical ? " c"
                       : "",
        box.fill, box.x, box.y, box.width, box.height);
    put_op_title(t, picture, side, i);
    put(t, "</rect>\n");
    if (op->match < 0 && !op->split && panel != DELTA)
        put(t, "<path class=\"e\" d=\"M%.2f %.2fh-5l5 5z\"/>\n", box.x + box.width, box.y);
    if (framed(op) && panel != DELTA)
        put(t, "<rect class=\"v%s\" x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\"/>\n", op->moved ? "" : " r",
            box.x + 1.7, box.y + 1.7, fmax(box.width - 3.4, 0.5), box.height - 3.4);
    struct instr x = diff_instr(op);
    struct names names = diff_names(op);
    put_name(t, &names, &x, &box, picture->stages);
}

/* ---- panels ---- */

static void put_memory_panel(struct text *t, const struct picture *picture, int side, int r) {
    const struct side *s = picture->d->side[side];
    const struct rank *k = &s->p->rank[r];
    double *start, *end;
    diff_rank_times(picture->d, side, r, &start, &end);
    struct span time = picture->time;
    double y = picture->y[side] + picture->pitch[side] * r + picture->row;
    struct band band = {y + (picture->low ? FOLDED : BAND), picture->low ? FOLDED - 1 : BAND - 3, picture->top,
                        limit_of(s), picture->low};
    time.to = diff_time(picture->d, s->makespan);
    put_band(t, &time, &band, k, format("rank %d", r), start, end);
}

static void put_heading(struct text *t, const struct picture *picture, int panel) {
    static const char *const what[] = {"A", "B", "difference"};
    const struct side *side = panel_side(picture, panel);
    char buf[32];
    put(t, "<text class=\"p\" x=\"%d\" y=\"%.2f\">%s</text>\n<text x=\"%d\" y=\"%.2f\">", LEFT, picture->y[panel] - 22,
        what[panel], LEFT + (panel == DELTA ? 70 : 14), picture->y[panel] - 22);
    if (panel != DELTA) {
        put_xml(t, side->name);
        put(t, "; makespan %s %s", time_text(diff_time(picture->d, side->makespan), &picture->time.m, buf),
            picture->time.m.name);
    } else
        put(t, "B's operations, by how much earlier or later they end than in A");
    put(t, "</text>\n");
    put_axis(t, &picture->time, picture->y[panel] - 6,
             picture->y[panel] + picture->pitch[panel] * side->workers - picture->gap);
}

static void put_panel(struct text *t, struct picture *picture, int panel) {
    const struct side *side = panel_side(picture, panel);
    double right = x_of(&picture->time, diff_time(picture->d, side->makespan));
    put_heading(t, picture, panel);
    for (int r = 0; r < side->workers; r++) {
        const struct diff_lane *lane = diff_job_lane(side, r);
        double y = picture->y[panel] + picture->pitch[panel] * r;
        put(t, "<text class=\"l\" x=\"%d\" y=\"%.2f\">rank %d</text>\n", LEFT - 5, y + picture->row / 2 + 3.6, r);
        put(t, "<rect fill=\"url(#idle)\" x=\"%d\" y=\"%.2f\" width=\"%.2f\" height=\"%g\"/>\n", LEFT, y, right - LEFT,
            picture->row);
        for (int critical = 0; lane && critical < 2; critical++) /* critical ones last: nothing covers them */
            for (int i = lane->first; i < lane->first + lane->n; i++)
                if (side->op[i].critical == critical && diff_draws(side, i))
                    put_operation(t, picture, panel, i);
        if (panel != DELTA && side->p)
            put_memory_panel(t, picture, panel, r);
    }
}

/* Draws a line from the foot of each framed operation in A to its head in B. */
static void put_links(struct text *t, struct picture *picture) {
    const struct side *a = picture->d->side[A], *b = picture->d->side[B];
    for (int i = 0; i < a->n; i++) {
        const struct diff_op *op = &a->op[i];
        if (!framed(op) || !diff_draws(a, i) || !diff_draws(b, op->match))
            continue;
        struct box from = box_of(picture, A, i), to = box_of(picture, B, op->match);
        double x = from.x + from.width / 2, y = from.y + from.height, high = (to.y - y) * 0.45;
        put(t, "<path class=\"j%s\"", op->moved ? "" : " r");
        put(t, " d=\"M%.2f %.2fc0 %.2f %.2f %.2f %.2f %.2f\"/>\n", x, y, high, to.x + to.width / 2 - x, to.y - y - high,
            to.x + to.width / 2 - x, to.y - y);
        picture->joined++;
    }
}

/* ---- axis, legend and headings ---- */

static void put_scale(struct text *t, const struct picture *picture, double y) {
    enum { WIDTH = 160 };
    if (!picture->most) {
        put(t, "<text x=\"%d\" y=\"%.2f\">no job ends earlier or later</text>\n", LEFT, y + 9);
        return;
    }
    put(t, "<text class=\"a\" x=\"%d\" y=\"%.2f\">%s</text><text class=\"a\" x=\"%d\" y=\"%.2f\">0</text>", LEFT,
        y + 22, diff_signed_time(picture->d, -picture->most, &picture->time.m), LEFT + WIDTH / 2, y + 22);
    put(t, "<text class=\"a\" x=\"%d\" y=\"%.2f\">%s</text>\n", LEFT + WIDTH, y + 22,
        diff_signed_time(picture->d, picture->most, &picture->time.m));
    put(t,
        "<rect fill=\"url(#delta)\" stroke=\"#999\" stroke-width=\".5\" x=\"%d\" y=\"%.2f\" width=\"%d\" "
        "height=\"10\"/>\n",
        LEFT, y, WIDTH);
    put(t, "<text x=\"%d\" y=\"%.2f\">ends earlier in B (blue), later in B (red)%s</text>\n", LEFT + WIDTH + 34, y + 9,
        picture->d->only[B] || picture->d->split ? "; grey: not in A" : "");
}

static void put_diff_legend(struct text *t, const struct picture *picture) {
    const struct diff *diff = picture->d;
    struct pen at = {LEFT, picture->bottom + 50, svg_width(&picture->time)};
    int frames = diff->moved + diff->reordered;
    put_scale(t, picture, picture->bottom + 4);
    put_op_keys(t, &at, picture->drawn);
    put_key(t, &at, "fill=\"#99c7e0\"", "faded: only its time changed");
    if (diff->moved)
        put_key(t, &at, "class=\"v\"", "moved to another rank");
    if (diff->reordered)
        put_key(t, &at, "class=\"v r\"", "reordered");
    if (diff->only[A] || diff->only[B])
        put_key(t, &at, "fill=\"url(#ear)\"", "only in A, or only in B");
    put_key(t, &at, "fill=\"url(#idle)\" stroke=\"#ddd\"", "idle");
    put_key(t, &at, "fill=\"#fff\" class=\"c\"", "critical path");
    if (diff->side[A]->p || diff->side[B]->p)
        put_band_keys(t, &at, picture->top, picture->limit, picture->low);
    if (frames > picture->joined)
        put(t,
            "<text x=\"%d\" y=\"%.2f\">not drawn: %d moved or reordered messages, or operations of zero "
            "length</text>\n",
            LEFT, at.y + 15, frames - picture->joined);
}

static void put_counts(struct text *t, const struct picture *picture) {
    const struct diff *diff = picture->d;
    double a = diff_time(picture->d, diff->side[A]->makespan), b = diff_time(picture->d, diff->side[B]->makespan);
    char x[32], y[32];
    put(t, "<text x=\"%d\" y=\"%d\">makespan %s", LEFT, HEADING, time_text(a, &picture->time.m, x));
    if (a != b)
        put(t, " → %s", time_text(b, &picture->time.m, y));
    put(t, " %s", picture->time.m.name);
    if (a != b && a > 0)
        put(t, " (%+.1f %%)", 100 * (b / a - 1));
    put_changes(t, diff);
    put(t, "</text>\n");
}

/* ---- layout ---- */

/* Chooses a width for the names of both sides' jobs, and the largest shift. */
static void choose_width(struct picture *picture) {
    double *length = NEW(double, picture->d->side[A]->n + picture->d->side[B]->n);
    int stage = 0, longest = 0, jobs = 0;
    for (int k = A; k <= B; k++)
        for (int i = 0; i < picture->d->side[k]->n; i++) {
            const struct diff_op *op = &picture->d->side[k]->op[i];
            if (!is_job(op->op) || !diff_draws(picture->d->side[k], i))
                continue;
            length[jobs++] = diff_time(picture->d, op->end - op->start);
            stage = op->stage > stage ? op->stage : stage;
            int letters = (int)strlen(diff_op_name(op));
            longest = letters > longest ? letters : longest;
            if (llabs(diff_shift(picture->d, k, i)) > picture->most)
                picture->most = llabs(diff_shift(picture->d, k, i));
        }
    picture->stages = diff_several_stages(picture->d->side[A]) || diff_several_stages(picture->d->side[B]);
    span_scale(&picture->time, length, jobs, longest - (picture->stages ? 0 : snprintf(NULL, 0, "%d", stage)));
}

static void place_panels(struct picture *picture) {
    double y = TOP, plan = 0;
    picture->limit = diff_limit(picture->d);
    picture->low = picture->d->side[A]->workers > MANY_ROWS || picture->d->side[B]->workers > MANY_ROWS;
    picture->row = picture->low ? LOW_ROW : ROW;
    picture->gap = picture->low ? LOW_GAP : GAP;
    for (int k = 0; k < NPANELS; k++) {
        const struct side *side = panel_side(picture, k);
        picture->y[k] = y + HEAD;
        picture->pitch[k] = picture->row + picture->gap + (k == DELTA || !side->p ? 0 : picture->low ? FOLDED : BAND);
        y = picture->y[k] + picture->pitch[k] * side->workers + BELOW;
        plan = fmax(plan, (double)side->peak_bytes);
    }
    picture->bottom = y - BELOW;
    picture->top = band_top(plan, picture->limit);
}

static char *blend_colors(void) {
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
                            ".r { stroke-dasharray: 3 2 }\n";

void emit_diff_svg(struct text *t, const struct diff *diff) {
    struct picture picture = {.d = diff};
    picture.time = (struct span){.to = diff_span(diff), .m = diff_measure(diff, false)};
    choose_width(&picture);
    place_panels(&picture);
    struct svg svg = {.name = format("%s → %s", diff->side[A]->name, diff->side[B]->name),
                      .style = picture.low ? format("%s%s", style, folded_style) : style,
                      .top = blend_colors(),
                      .width = svg_width(&picture.time),
                      .height = picture.bottom + LEGEND};
    svg_begin(t, &svg);
    put_counts(t, &picture);
    for (int k = 0; k < NPANELS; k++)
        put_panel(t, &picture, k);
    put_links(t, &picture);
    put_diff_legend(t, &picture);
    put(t, "</svg>\n");
}
