/* The timeline as a picture: per rank a row of its jobs, what its communication lanes do where that was asked for, and
 * under it the bytes of its arena that are in use, with the plan and the limit as lines. Two jobs that overlap share
 * their row, one above the other. svg.c has what is not the timeline's own. */
#include "svg.h"
#include <math.h>
#include <string.h>

enum { TOP = 62, ROW = 22, LANE = 11, BAND = 26, GAP = 9 };

struct picture {
    const struct program *p;
    const struct timeline *tl;
    const struct report *rep;
    const struct style *style;
    bool html, names; /* names: with stages */
    bool **path;
    struct producers producers;
    struct span time;
    double limit, top; /* bytes: a rank's memory, and what a band is high */
    double *y, bottom; /* per rank: the top of its row */
    uint32_t drawn;
};

/* ---- what is drawn where ---- */

static bool visible(const struct picture *d, int r, int i) {
    double start = d->tl->start[r][i], end = d->tl->end[r][i];
    return end > start && end > d->time.from && start < d->time.to;
}

static bool is_block(const struct picture *d, int r, int i) {
    const struct instr *x = &d->p->rank[r].ins[i];
    return x->lane == 0 && paint_of(x, BY_OP).name && visible(d, r, i);
}

/* 1: the upper of two that overlap, 2: the lower, 0: alone. */
static int half_of(const struct picture *d, int r, int i) {
    const double *start = d->tl->start[r];
    if (i + 1 < d->p->rank[r].nins && is_block(d, r, i + 1) && start[i] == start[i + 1])
        return 1;
    return i > 0 && is_block(d, r, i - 1) && start[i] == start[i - 1] ? 2 : 0;
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
    int jobs = 0;
    for (int r = 0; r < d->p->workers; r++)
        jobs += d->p->rank[r].nins;
    double *length = NEW(double, jobs);
    jobs = 0;
    for (int r = 0; r < d->p->workers; r++)
        for (int i = 0; i < d->p->rank[r].nins; i++)
            if (is_job(d->p->rank[r].ins[i].op) && is_block(d, r, i))
                length[jobs++] = d->tl->end[r][i] - d->tl->start[r][i];
    int letters = snprintf(NULL, 0, "F%d", d->p->batches - 1);
    letters += d->names ? snprintf(NULL, 0, "%d", d->p->stages - 1) : 0;
    span_scale(&d->time, length, jobs, letters);
    double y = TOP, plan = 0;
    d->y = NEW(double, d->p->workers);
    for (int r = 0; r < d->p->workers; r++) {
        const struct rank *k = &d->p->rank[r];
        d->y[r] = y;
        y += ROW + LANE * lane_rows(d, r, NEW(int, k->nlanes)) + BAND + GAP;
        plan = fmax(plan, (double)k->arena);
    }
    d->bottom = y;
    d->top = band_top(plan, d->limit);
}

/* ---- writing ---- */

static void put_times(struct text *t, const struct picture *d, int r, int i) {
    char a[32], b[32];
    put(t, "; %s to %s %s", time_text(d->tl->start[r][i], &d->time.m, a), time_text(d->tl->end[r][i], &d->time.m, b),
        d->time.m.name);
}

static void put_needs(struct text *t, const struct picture *d, int r, int i) {
    int32_t from = d->producers.at[r][i], to = d->producers.at[r][i + 1];
    put(t, " id=\"o%d.%d\"%s", r, i, from < to ? " data-p=\"" : "");
    for (int32_t f = from; f < to; f++) {
        const struct producer *x = &d->producers.a[f];
        put(t, "%s%d.%d", f > from ? " " : "", x->rank, x->i);
        if (x->msg >= 0)
            put(t, ":%d", x->msg);
    }
    put(t, "%s", from < to ? "\"" : "");
}

static void put_job(struct text *t, struct picture *d, int r, int i) {
    const struct instr *x = &d->p->rank[r].ins[i];
    struct paint k = paint_of(x, d->style->by);
    double from = x_of(&d->time, d->tl->start[r][i]), to = x_of(&d->time, d->tl->end[r][i]);
    struct box b = {from, d->y[r], to - from, ROW, k.fill};
    int half = half_of(d, r, i);
    if (half) {
        b.height = ROW / 2;
        b.y += half == 2 ? b.height : 0;
    }
    d->drawn |= 1u << x->op;
    put(t, "<rect class=\"o%s\" fill=\"#%06x\" x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\"",
        d->path[r][i] ? " c" : "", b.fill, b.x, b.y, b.width, b.height);
    if (d->html)
        put_needs(t, d, r, i);
    put(t, "><title>%s: %s of stage %d", short_name(x), k.name, x->stage);
    if (x->batch >= 0)
        put(t, ", microbatch %d", x->batch);
    put(t, "; rank %d", r);
    put_times(t, d, r, i);
    put(t, "%s</title></rect>\n", d->path[r][i] ? "; on the critical path" : "");
    put_name(t, x, &b, d->names);
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
        double from = x_of(&d->time, d->tl->start[r][i]), y = d->y[r] + ROW + LANE * (row[x->lane] - 1) + 1;
        put(t, "<rect class=\"o%s\" fill=\"#%06x\" x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%d\"",
            d->path[r][i] ? " c" : "", paint_of(x, BY_OP).fill, from, y, x_of(&d->time, d->tl->end[r][i]) - from,
            LANE - 2);
        if (d->html)
            put_needs(t, d, r, i);
        put(t, "><title>%s; rank %d", short_name(x), r);
        put_times(t, d, r, i);
        put(t, "</title></rect>\n");
    }
}

/* ---- messages as arrows ---- */

static void put_arrow(struct text *t, const struct picture *d, int src, int i, int dst, int j) {
    const struct instr *x = &d->p->rank[src].ins[i];
    const struct buf *b = payload(&d->p->rank[src], x);
    double start = d->tl->start[src][i], end = d->tl->end[dst][j];
    if (end < d->time.from || start > d->time.to)
        return;
    double y = d->y[src] + (src < dst ? ROW : 0), to = d->y[dst] + (src < dst ? 0 : ROW);
    put(t, "<path class=\"m\"");
    if (d->html)
        put(t, " id=\"m%d\"", x->msg);
    put(t, " marker-end=\"url(#tip)\" d=\"M%.2f %.2fL%.2f %.2f\"><title>", x_of(&d->time, start), y,
        x_of(&d->time, end), to);
    char a[32], size[32];
    put_buf(t, b);
    put(t, ", %s, from rank %d to rank %d; %s", bytes_text(b->bytes, size), src, dst, time_text(start, &d->time.m, a));
    put(t, " to %s %s</title></path>\n", time_text(end, &d->time.m, a), d->time.m.name);
}

/* A page has them all, and shows those of the operation under the mouse. */
static void put_arrows(struct text *t, const struct picture *d) {
    int32_t(*from)[2] = alloc(sizeof *from * (size_t)d->p->nmsgs);
    for (int r = 0; r < d->p->workers; r++)
        for (int i = 0; i < d->p->rank[r].nins; i++)
            if (d->p->rank[r].ins[i].msg >= 0 && is_send(d->p->rank[r].ins[i].op)) {
                from[d->p->rank[r].ins[i].msg][0] = r;
                from[d->p->rank[r].ins[i].msg][1] = i;
            }
    for (int r = 0; r < d->p->workers; r++)
        for (int i = 0; i < d->p->rank[r].nins; i++) {
            const struct instr *x = &d->p->rank[r].ins[i];
            if (x->msg >= 0 && is_recv(x->op))
                put_arrow(t, d, from[x->msg][0], from[x->msg][1], r, i);
        }
}

/* ---- what is around the rows ---- */

static void put_head(struct text *t, const struct picture *d, const struct svg *s) {
    char a[32];
    svg_begin(t, s);
    put(t, "<text x=\"%d\" y=\"34\">%d ranks, %d stages, %d microbatches; makespan %s %s%s; bubble %.1f %%</text>\n",
        LEFT, d->p->workers, d->p->stages, d->p->batches, time_text(d->tl->makespan, &d->time.m, a), d->time.m.name,
        d->rep->measured ? " measured" : "", 100 * d->rep->bubble);
}

static void put_legend(struct text *t, const struct picture *d) {
    struct pen at = {LEFT, d->bottom + 12, svg_width(&d->time)};
    if (d->style->by == BY_OP)
        put_op_keys(t, &at, d->drawn);
    else
        put_key(t, &at, "fill=\"#666\"",
                d->style->by == BY_MB ? "a hue per microbatch, dark forward" : "a hue per stage, dark forward");
    if (d->style->with & WITH_LANES)
        put_key(t, &at, "fill=\"#e69f00\"", "message");
    put_key(t, &at, "fill=\"url(#idle)\" stroke=\"#ddd\"", "idle");
    put_key(t, &at, "fill=\"#fff\" class=\"c\"", "critical path");
    put_band_keys(t, &at, d->top, d->limit);
}

static void put_ranks(struct text *t, struct picture *d) {
    for (int r = 0; r < d->p->workers; r++) {
        put(t, "<text class=\"l\" x=\"%d\" y=\"%.2f\">rank %d</text>\n", LEFT - 5, d->y[r] + ROW / 2 + 3.6, r);
        put(t, "<rect fill=\"url(#idle)\" x=\"%d\" y=\"%.2f\" width=\"%.2f\" height=\"%d\"/>\n", LEFT, d->y[r],
            x_of(&d->time, d->time.to) - LEFT, ROW);
        for (int critical = 0; critical < 2; critical++) /* those last, that their outlines are whole */
            for (int i = 0; i < d->p->rank[r].nins; i++)
                if (d->path[r][i] == critical && is_block(d, r, i))
                    put_job(t, d, r, i);
        put_lanes(t, d, r);
        double base = (r + 1 < d->p->workers ? d->y[r + 1] : d->bottom) - GAP;
        put_band(t, &d->time, &(struct band){base, BAND - 5, d->top, d->limit}, &d->p->rank[r], r, d->tl->start[r],
                 d->tl->end[r]);
    }
}

static const char tip[] =
    "<marker id=\"tip\" viewBox=\"0 0 6 6\" refX=\"5.5\" refY=\"3\" markerWidth=\"5\" markerHeight=\"5\" "
    "orient=\"auto\"><path d=\"M0 .5L6 3L0 5.5Z\" fill=\"#333\"/></marker>\n";

void emit_svg(struct text *t, const struct program *p, const struct timeline *tl, const struct report *rep,
              double limit, const struct style *style, bool html) {
    struct picture d = {.p = p, .tl = tl, .rep = rep, .style = style, .html = html, .limit = limit};
    struct svg page = {.name = p->name, .top = tip, .html = html};
    d.time.m = measure_of(tl->makespan, rep->unit, false);
    d.time.from = style->from * d.time.m.one;
    d.time.to = style->to > 0 ? fmin(style->to * d.time.m.one, tl->makespan) : tl->makespan;
    d.names = several_stages(p);
    d.path = critical_path(p, tl);
    if (html)
        d.producers = producers_of(p);
    choose_scale(&d);
    page.width = svg_width(&d.time);
    page.height = d.bottom + 48; /* the legend has two lines, perhaps three */
    page.style = format(".m { stroke: #333; stroke-width: .8; fill: none; opacity: .75%s }\n%s",
                        style->with & WITH_SENDS ? "" : "; display: none",
                        html ? ".m.show { display: inline; stroke: #c00; stroke-width: 1.6; opacity: 1 }\n" : "");
    put_head(t, &d, &page);
    put_axis(t, &d.time, TOP - 6, d.bottom - GAP);
    put_ranks(t, &d);
    if (html || style->with & WITH_SENDS)
        put_arrows(t, &d);
    put_legend(t, &d);
    svg_end(t, &page, "what it needs");
}
