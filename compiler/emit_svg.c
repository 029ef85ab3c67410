/* The timeline as a picture: per rank a row of its jobs, what its communication lanes do where that was asked for, and
 * under it the bytes of its arena that are in use, with the plan and the limit as lines. The same input gives the same
 * bytes: coordinates are printed to a hundredth.
 *
 * The width is the time's: the shortest job has room for its name, as long as the whole stays printable. What does not
 * fit is not written; the tooltip has it. Two jobs that overlap share their row, one above the other. */
#include "pass.h"
#include "emit_svg.h"
#include <math.h>
#include <string.h>

enum { LEFT = 64, TOP = 62, ROW = 22, LANE = 11, BAND = 26, GAP = 9, RIGHT = 16, NARROW = 560, WIDE = 14000 };
static const double LETTER = 6.4; /* a digit's width at the size of names; W takes half as much again */

struct picture {
    const struct program *p;
    const struct timeline *tl;
    const struct report *rep;
    const struct style *style;
    struct measure m;
    bool html, names; /* names: with stages */
    bool **path;
    struct feeds feeds;
    double from, to, px; /* the part of the time that is drawn, and the width of one */
    double limit, top;   /* bytes: a rank's memory, and what a band is high */
    double *y, bottom;   /* per rank: the top of its row */
    uint32_t drawn;
};

/* ---- what is drawn where ---- */

static bool visible(const struct picture *d, int r, int i) {
    double start = d->tl->start[r][i], end = d->tl->end[r][i];
    return end > start && end > d->from && start < d->to;
}

static bool is_job(const struct picture *d, int r, int i) {
    const struct instr *x = &d->p->rank[r].ins[i];
    return x->lane == 0 && paint_of(x, BY_OP).name && visible(d, r, i);
}

/* 1: the upper of two that overlap, 2: the lower, 0: alone. */
static int half_of(const struct picture *d, int r, int i) {
    const double *start = d->tl->start[r];
    if (i + 1 < d->p->rank[r].nins && is_job(d, r, i + 1) && start[i] == start[i + 1])
        return 1;
    return i > 0 && is_job(d, r, i - 1) && start[i] == start[i - 1] ? 2 : 0;
}

static double x_of(const struct picture *d, double t) {
    return LEFT + (fmin(fmax(t, d->from), d->to) - d->from) * d->px;
}

/* Lanes that have something to show, in their order: row[lane] is 1 for the first. Returns how many. */
static int lane_rows(const struct picture *d, int r, int *row) {
    const struct rank *k = &d->p->rank[r];
    int n = 0;
    memset(row, 0, sizeof *row * (size_t)k->nlanes);
    if (d->style->with & WITH_LANES)
        for (int i = 0; i < k->nins; i++)
            if (k->ins[i].lane > 0 && visible(d, r, i))
                row[k->ins[i].lane] = 1;
    for (int l = 1; l < k->nlanes; l++)
        if (row[l])
            row[l] = ++n;
    return n;
}

static void choose_scale(struct picture *d) {
    double shortest = INFINITY, span = d->to - d->from;
    for (int r = 0; r < d->p->workers; r++)
        for (int i = 0; i < d->p->rank[r].nins; i++)
            if (d->p->rank[r].ins[i].op <= OP_W && is_job(d, r, i))
                shortest = fmin(shortest, d->tl->end[r][i] - d->tl->start[r][i]);
    int letters = snprintf(NULL, 0, "F%d", d->p->batches - 1);
    letters += d->names ? snprintf(NULL, 0, "%d", d->p->stages - 1) : 0;
    double width = isinf(shortest) ? NARROW : (letters * LETTER + 8) / shortest * span;
    d->px = span > 0 ? fmin(fmax(width, NARROW), WIDE) / span : 1;
    double y = TOP, plan = 0;
    d->y = NEW(double, d->p->workers);
    for (int r = 0; r < d->p->workers; r++) {
        const struct rank *k = &d->p->rank[r];
        d->y[r] = y;
        y += ROW + LANE * lane_rows(d, r, NEW(int, k->nlanes)) + BAND + GAP;
        plan = fmax(plan, (double)k->arena);
    }
    d->bottom = y;
    d->top = d->limit <= 4 * plan ? fmax(plan, d->limit) : plan; /* a limit far off would flatten the curves */
}

/* ---- writing ---- */

static void put_xml(struct text *t, const char *s) {
    for (; *s; s++)
        if (*s == '<' || *s == '&' || *s == '"')
            put(t, "&#%d;", *s);
        else
            put_bytes(t, s, 1);
}

static const char *name_of(const struct instr *x) {
    struct text t = {0};
    if (x->op <= OP_W)
        return job_name(x->stage, x->batch, x->op);
    put_label(&t, x);
    return t.s;
}

static void put_times(struct text *t, const struct picture *d, int r, int i) {
    char a[32], b[32];
    put(t, "; %s to %s %s", time_text(d->tl->start[r][i], &d->m, a), time_text(d->tl->end[r][i], &d->m, b), d->m.name);
}

static void put_needs(struct text *t, const struct picture *d, int r, int i) {
    int32_t from = d->feeds.at[r][i], to = d->feeds.at[r][i + 1];
    put(t, " id=\"o%d.%d\"%s", r, i, from < to ? " data-p=\"" : "");
    for (int32_t f = from; f < to; f++) {
        const struct feed *x = &d->feeds.feed[f];
        put(t, "%s%d.%d", f > from ? " " : "", x->rank, x->i);
        if (x->msg >= 0)
            put(t, ":%d", x->msg);
    }
    put(t, "%s", from < to ? "\"" : "");
}

/* The longest name that fits: 1F3, F3, 3, or none. */
static void put_name(struct text *t, const struct picture *d, const struct instr *x, double mid, double base,
                     double width, uint32_t fill, double size) {
    const char *all = name_of(x);
    if (x->op == OP_U)
        all = "U";
    const char *s = d->names || x->op > OP_W ? all : all + strspn(all, "0123456789");
    double room = (width - 2) / (LETTER * size / 10) - (x->op == OP_W ? 0.5 : 0);
    if ((double)strlen(s) > room && x->op <= OP_W)
        s = all + strspn(all, "0123456789");
    if ((double)strlen(s) > room && x->op <= OP_W)
        s++;
    if ((double)strlen(s) <= room)
        put(t, "<text class=\"n%s%s\" x=\"%.2f\" y=\"%.2f\">%s</text>\n", dark(fill) ? " w" : "", size < 10 ? " s" : "",
            mid, base, s);
}

static void put_job(struct text *t, struct picture *d, int r, int i) {
    const struct instr *x = &d->p->rank[r].ins[i];
    struct paint k = paint_of(x, d->style->by);
    double from = x_of(d, d->tl->start[r][i]), to = x_of(d, d->tl->end[r][i]), y = d->y[r], high = ROW;
    int half = half_of(d, r, i);
    if (half) {
        high = ROW / 2;
        y += half == 2 ? high : 0;
    }
    d->drawn |= 1u << x->op;
    put(t, "<rect class=\"o%s\" fill=\"#%06x\" x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\"",
        d->path[r][i] ? " c" : "", k.fill, from, y, to - from, high);
    if (d->html)
        put_needs(t, d, r, i);
    put(t, "><title>%s: %s of stage %d", name_of(x), k.name, x->stage);
    if (x->batch >= 0)
        put(t, ", microbatch %d", x->batch);
    put(t, "; rank %d", r);
    put_times(t, d, r, i);
    put(t, "%s</title></rect>\n", d->path[r][i] ? "; on the critical path" : "");
    put_name(t, d, x, (from + to) / 2, y + high / 2 + (half ? 2.9 : 3.6), to - from, k.fill, half ? 8 : 10);
}

static void put_lanes(struct text *t, const struct picture *d, int r) {
    const struct rank *k = &d->p->rank[r];
    int *row = NEW(int, k->nlanes);
    if (lane_rows(d, r, row) == 0)
        return;
    for (int l = 1; l < k->nlanes; l++)
        if (row[l])
            put(t, "<text class=\"l s\" x=\"%d\" y=\"%.2f\">%s</text>\n", LEFT - 5, d->y[r] + ROW + LANE * row[l] - 2.5,
                lane_label(d->p, &k->lane[l]));
    for (int i = 0; i < k->nins; i++) {
        const struct instr *x = &k->ins[i];
        if (x->lane == 0 || !visible(d, r, i))
            continue;
        double from = x_of(d, d->tl->start[r][i]), y = d->y[r] + ROW + LANE * (row[x->lane] - 1) + 1;
        put(t, "<rect class=\"o%s\" fill=\"#%06x\" x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%d\"",
            d->path[r][i] ? " c" : "", paint_of(x, BY_OP).fill, from, y, x_of(d, d->tl->end[r][i]) - from, LANE - 2);
        if (d->html)
            put_needs(t, d, r, i);
        put(t, "><title>%s; rank %d", name_of(x), r);
        put_times(t, d, r, i);
        put(t, "</title></rect>\n");
    }
}

/* ---- memory ---- */

static void put_level(struct text *t, const struct picture *d, const char *class, double y, const char *what,
                      double bytes) {
    char buf[32];
    put(t, "<path class=\"%s\" d=\"M%d %.2fH%.2f\"><title>%s %s</title></path>\n", class, LEFT, y, x_of(d, d->to), what,
        bytes_text((int64_t)bytes, buf));
}

static void put_memory(struct text *t, const struct picture *d, int r) {
    const struct rank *k = &d->p->rank[r];
    struct usage u = memory_use(k, d->tl->start[r], d->tl->end[r]);
    double base = d->y[r + 1 < d->p->workers ? r + 1 : r] - GAP, scale = d->top > 0 ? (BAND - 5) / d->top : 0;
    if (r + 1 == d->p->workers)
        base = d->bottom - GAP;
    int64_t most = 0;
    put(t, "<path class=\"u\" d=\"M%d %.2f", LEFT, base);
    for (int i = 0; i < u.n; i++) {
        double end = i + 1 < u.n ? u.at[i + 1].t : d->to;
        if (end <= d->from || u.at[i].t >= d->to)
            continue;
        most = u.at[i].bytes > most ? u.at[i].bytes : most;
        put(t, "V%.2fH%.2f", base - (double)u.at[i].bytes * scale, x_of(d, end));
    }
    char a[32], b[32];
    put(t, "V%.2fZ\"><title>rank %d: at most %s in use, of a plan of %s</title></path>\n", base, r, bytes_text(most, a),
        bytes_text(k->arena, b));
    put_level(t, d, "q", base - (double)k->arena * scale, "the plan:", (double)k->arena);
    if (d->limit <= d->top)
        put_level(t, d, "x", base - d->limit * scale, "the limit:", d->limit);
    put(t, "<text class=\"l s\" x=\"%d\" y=\"%.2f\">%s</text>\n", LEFT - 5, base - 2, bytes_text(k->arena, a));
}

/* ---- messages as arrows ---- */

static void put_arrow(struct text *t, const struct picture *d, int src, int i, int dst, int j) {
    const struct instr *x = &d->p->rank[src].ins[i];
    const struct buf *b = &d->p->rank[src].buf[d->p->rank[src].arg[x->arg].buf];
    double start = d->tl->start[src][i], end = d->tl->end[dst][j];
    if (end < d->from || start > d->to)
        return;
    double y = d->y[src] + (src < dst ? ROW : 0), to = d->y[dst] + (src < dst ? 0 : ROW);
    put(t, "<path class=\"m\"");
    if (d->html)
        put(t, " id=\"m%d\"", x->msg);
    put(t, " marker-end=\"url(#tip)\" d=\"M%.2f %.2fL%.2f %.2f\"><title>", x_of(d, start), y, x_of(d, end), to);
    char a[32], size[32];
    put_buf(t, b);
    put(t, ", %s, from rank %d to rank %d; %s", bytes_text(b->bytes, size), src, dst, time_text(start, &d->m, a));
    put(t, " to %s %s</title></path>\n", time_text(end, &d->m, a), d->m.name);
}

/* A page has them all, and shows those of the operation under the mouse. */
static void put_arrows(struct text *t, const struct picture *d) {
    int32_t(*from)[2] = alloc(sizeof *from * (size_t)d->p->nmsgs);
    for (int r = 0; r < d->p->workers; r++)
        for (int i = 0; i < d->p->rank[r].nins; i++)
            if (d->p->rank[r].ins[i].msg >= 0 && op_lane[d->p->rank[r].ins[i].op] == LANE_SEND) {
                from[d->p->rank[r].ins[i].msg][0] = r;
                from[d->p->rank[r].ins[i].msg][1] = i;
            }
    for (int r = 0; r < d->p->workers; r++)
        for (int i = 0; i < d->p->rank[r].nins; i++) {
            const struct instr *x = &d->p->rank[r].ins[i];
            if (x->msg >= 0 && op_lane[x->op] == LANE_RECV)
                put_arrow(t, d, from[x->msg][0], from[x->msg][1], r, i);
        }
}

/* ---- what is around the rows ---- */

static double width_of(const struct picture *d) { return fmax(x_of(d, d->to), LEFT + NARROW) + RIGHT; }

static void put_head(struct text *t, const struct picture *d) {
    double width = width_of(d), height = d->bottom + 48; /* the legend has two lines, perhaps three */
    char a[32];
    put(t, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.2f %.2f\" width=\"%.2f\" height=\"%.2f\">\n",
        width, height, width, height);
    put(t, "<style>\n"
           "text { font: 10px Helvetica, Arial, 'DejaVu Sans', sans-serif; fill: #222; pointer-events: none }\n"
           "text.h { font-size: 13px; font-weight: bold }\n"
           "text.n { text-anchor: middle; fill: #000 }\n"
           "text.n.w { fill: #fff }\n"
           "text.l { text-anchor: end }\n"
           "text.s { font-size: 8px }\n"
           "text.a { text-anchor: middle; fill: #666 }\n"
           ".g { stroke: #ddd; fill: none }\n"
           ".o { stroke: #fff; stroke-width: .6 }\n"
           ".c { stroke: #000; stroke-width: 1.8 }\n"
           ".u { fill: #b8bec6 }\n"
           ".q { stroke: #666; stroke-dasharray: 3 2; fill: none }\n"
           ".x { stroke: #c00; stroke-width: 1.4; fill: none }\n");
    put(t, ".m { stroke: #333; stroke-width: .8; fill: none; opacity: .75%s }\n",
        d->style->with & WITH_SENDS ? "" : "; display: none");
    put(t, "%s",
        d->html ? ".m.show { display: inline; stroke: #c00; stroke-width: 1.6; opacity: 1 }\n"
                  ".o.need { stroke: #c00; stroke-width: 2.4 }\n"
                  ".o.this { stroke: #000; stroke-width: 2.8 }\n"
                : "");
    put(t, "</style>\n<defs>\n<pattern id=\"idle\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\">"
           "<path d=\"M0 6L6 0\" stroke=\"#dcdcdc\" stroke-width=\".8\"/></pattern>\n"
           "<marker id=\"tip\" viewBox=\"0 0 6 6\" refX=\"5.5\" refY=\"3\" markerWidth=\"5\" markerHeight=\"5\" "
           "orient=\"auto\"><path d=\"M0 .5L6 3L0 5.5Z\" fill=\"#333\"/></marker>\n</defs>\n");
    put(t, "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n<text class=\"h\" x=\"%d\" y=\"19\">", LEFT);
    put_xml(t, d->p->name);
    put(t,
        "</text>\n<text x=\"%d\" y=\"34\">%d ranks, %d stages, %d microbatches; makespan %s %s%s; bubble %.1f "
        "%%</text>\n",
        LEFT, d->p->workers, d->p->stages, d->p->batches, time_text(d->tl->makespan, &d->m, a), d->m.name,
        d->rep->measured ? " measured" : "", 100 * d->rep->bubble);
}

/* A tick every 1, 2, 5, 10, 20, 50… of the unit, such that their labels have room. */
static void put_axis(struct text *t, const struct picture *d) {
    double every = pow(10, floor(log10(70 / d->px / d->m.one))), span = (d->to - d->from) / d->m.one;
    every *= every * d->px * d->m.one >= 70       ? 1
             : 2 * every * d->px * d->m.one >= 70 ? 2
             : 5 * every * d->px * d->m.one >= 70 ? 5
                                                  : 10;
    put(t, "<text class=\"l\" x=\"%d\" y=\"%d\">%s</text>\n", LEFT - 12, TOP - 6,
        !strcmp(d->m.name, "units") ? "time" : d->m.name);
    for (double n = ceil(d->from / d->m.one / every - 1e-9) + 0.0; n * every <= d->from / d->m.one + span * (1 + 1e-9);
         n++) {
        double x = x_of(d, n * every * d->m.one);
        put(t, "<path class=\"g\" d=\"M%.2f %dV%.2f\"/><text class=\"a\" x=\"%.2f\" y=\"%d\">%.6g</text>\n", x, TOP - 3,
            d->bottom - GAP, x, TOP - 6, n * every);
    }
}

/* Where the next entry of the legend goes: a new line begins where the width ends. */
struct pen {
    double x, y, right;
};

static void put_key(struct text *t, struct pen *at, const char *shape, const char *what) {
    double width = 30 + 5.6 * (double)strlen(what);
    if (at->x + width > at->right) {
        at->x = LEFT;
        at->y += 15;
    }
    put(t, "<rect %s x=\"%.2f\" y=\"%.2f\" width=\"14\" height=\"10\"/>", shape, at->x, at->y - 8.5);
    put(t, "<text x=\"%.2f\" y=\"%.2f\">%s</text>\n", at->x + 18, at->y, what);
    at->x += width;
}

static void put_legend(struct text *t, const struct picture *d) {
    static const uint8_t order[] = {OP_F, OP_R, OP_I, OP_B, OP_W, OP_U};
    struct pen at = {LEFT, d->bottom + 12, width_of(d)};
    for (size_t i = 0; i < sizeof order && d->style->by == BY_OP; i++)
        if (d->drawn >> order[i] & 1) {
            struct paint k = paint_of(&(struct instr){.op = order[i]}, BY_OP);
            put_key(t, &at, format("fill=\"#%06x\"", k.fill), format("%s %s", op_name[order[i]], k.name));
        }
    if (d->style->by != BY_OP)
        put_key(t, &at, "fill=\"#666\"",
                d->style->by == BY_MB ? "a hue per microbatch, dark forward" : "a hue per stage, dark forward");
    if (d->style->with & WITH_LANES)
        put_key(t, &at, "fill=\"#e69f00\"", "message");
    put_key(t, &at, "fill=\"url(#idle)\" stroke=\"#ddd\"", "idle");
    put_key(t, &at, "fill=\"#fff\" class=\"c\"", "critical path");
    put_key(t, &at, "class=\"u\"", "memory in use");
    put_key(t, &at, "fill=\"#666\" style=\"height:2px\"", "dashed: the plan, what is allocated");
    char buf[32];
    if (isfinite(d->limit))
        put_key(t, &at, "fill=\"#c00\" style=\"height:2px\"",
                format("the limit, %s%s", bytes_text((int64_t)d->limit, buf),
                       d->limit > d->top ? ": beyond the scale" : ""));
}

static void put_ranks(struct text *t, struct picture *d) {
    for (int r = 0; r < d->p->workers; r++) {
        put(t, "<text class=\"l\" x=\"%d\" y=\"%.2f\">rank %d</text>\n", LEFT - 5, d->y[r] + ROW / 2 + 3.6, r);
        put(t, "<rect fill=\"url(#idle)\" x=\"%d\" y=\"%.2f\" width=\"%.2f\" height=\"%d\"/>\n", LEFT, d->y[r],
            x_of(d, d->to) - LEFT, ROW);
        for (int critical = 0; critical < 2; critical++) /* those last, that their outlines are whole */
            for (int i = 0; i < d->p->rank[r].nins; i++)
                if (d->path[r][i] == critical && is_job(d, r, i))
                    put_job(t, d, r, i);
        put_lanes(t, d, r);
        put_memory(t, d, r);
    }
}

void emit_svg(struct text *t, const struct program *p, const struct timeline *tl, const struct report *rep,
              double limit, const struct style *style, bool html) {
    struct picture d = {.p = p, .tl = tl, .rep = rep, .style = style, .html = html, .limit = limit};
    d.m = measure_of(tl->makespan, rep->unit, false);
    d.from = style->from * d.m.one;
    d.to = style->to > 0 ? fmin(style->to * d.m.one, tl->makespan) : tl->makespan;
    d.names = several_stages(p);
    d.path = critical_path(p, tl);
    if (html)
        d.feeds = feeds_of(p);
    choose_scale(&d);
    if (html) {
        put(t, "<!DOCTYPE html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>");
        put_xml(t, p->name);
        put(t, "</title>\n<style>\nbody { margin: 0; font-family: sans-serif }\n"
               "svg { display: block; width: 100vw; height: 100vh; cursor: grab }\n"
               "#info { position: fixed; right: 8px; top: 8px; padding: 6px 9px; background: #fffe; border: 1px solid "
               "#999;\n"
               "  font-size: 12px; white-space: pre-line; max-width: 60ch; pointer-events: none }\n</style>\n");
    }
    put_head(t, &d);
    put_axis(t, &d);
    put_ranks(t, &d);
    if (html || style->with & WITH_SENDS)
        put_arrows(t, &d);
    put_legend(t, &d);
    put(t, "</svg>\n");
    if (html)
        put(t,
            "<div id=\"info\">The mouse over an operation: what it needs. Wheel: zoom; drag: pan; double click: all."
            "</div>\n<script>\n%s</script>\n</html>\n",
            emit_svg_js);
}
