/* Draws the timeline: per rank, a row of its jobs and, if requested, its communication lanes. Below them is the use
 * of its arena in bytes, with lines for the plan and the limit. Two jobs that overlap share their row, one above the
 * other. svg.c has the parts not specific to timelines. */
#include "svg.h"
#include <math.h>
#include <string.h>

enum { TOP = 62, ROW = 22, LOW_ROW = 16, LANE = 11, BAND = 26, GAP = 9, LOW_GAP = 3 };

struct picture {
    const struct program *p;
    const struct timeline *tl;
    const struct report *rep;
    const struct style *style;
    bool names; /* job names include the stage */
    bool **path;
    struct span time;
    double limit, top; /* bytes: a rank's memory; at the top of a band */
    struct rows rows;
    bool low;          /* whether rows are low, since there are many */
    double row;        /* height of a row */
    double *y, bottom; /* per rank: the top of its row; the lowest edge */
    uint32_t drawn;
};

/* ---- layout ---- */

static bool leads_row(const struct picture *picture, int r) { return picture->rows.leader[r] == r; }

static bool visible(const struct picture *picture, int r, int i) {
    double start = picture->tl->start[r][i], end = picture->tl->end[r][i];
    return end > start && end > picture->time.from && start < picture->time.to;
}

static bool is_block(const struct picture *picture, int r, int i) {
    const struct instr *x = &picture->p->rank[r].ins[i];
    return x->lane == 0 && paint_of(x, BY_OP).name && visible(picture, r, i);
}

/* Returns 1 for the upper of two overlapping jobs, 2 for the lower, 0 without overlap. */
static int half_of(const struct picture *picture, int r, int i) {
    const double *start = picture->tl->start[r];
    if (i + 1 < picture->p->rank[r].nins && is_block(picture, r, i + 1) && start[i] == start[i + 1])
        return 1;
    return i > 0 && is_block(picture, r, i - 1) && start[i] == start[i - 1] ? 2 : 0;
}

/* Numbers the lanes to draw, in order: row[lane] is 1 for the first, 0 for none. Returns their number. */
static int lane_rows(const struct picture *picture, int r, int *row) {
    const struct rank *k = &picture->p->rank[r];
    int n = 0;
    memset(row, 0, sizeof *row * (size_t)k->nlanes);
    if (picture->style->with & WITH_LANES)
        for (int i = 0; i < k->nins; i++)
            if (k->ins[i].lane > 0 && visible(picture, r, i))
                row[k->ins[i].lane] = 1;
    for (int l = 1; l < k->nlanes; l++)
        if (row[l])
            row[l] = ++n;
    return n;
}

static void choose_scale(struct picture *picture) {
    int jobs = 0;
    for (int r = 0; r < picture->p->workers; r++)
        jobs += picture->p->rank[r].nins;
    double *length = NEW(double, jobs);
    jobs = 0;
    for (int r = 0; r < picture->p->workers; r++)
        for (int i = 0; i < picture->p->rank[r].nins; i++)
            if (is_job(picture->p->rank[r].ins[i].op) && is_block(picture, r, i))
                length[jobs++] = picture->tl->end[r][i] - picture->tl->start[r][i];
    struct text last = {0};
    put_batch(&last, &picture->p->names, picture->p->batches - 1);
    int letters = 1 + (int)last.n;
    letters += picture->names ? snprintf(NULL, 0, "%d", picture->p->stages - 1) : 0;
    span_scale(&picture->time, length, jobs, letters);
    double y = TOP, plan = 0;
    picture->y = NEW(double, picture->p->workers);
    for (int r = 0; r < picture->p->workers; r++) {
        const struct rank *k = &picture->p->rank[r];
        plan = fmax(plan, (double)k->arena);
        picture->y[r] = leads_row(picture, r) ? y : picture->y[picture->rows.leader[r]];
        if (leads_row(picture, r))
            y += picture->row + LANE * lane_rows(picture, r, NEW(int, k->nlanes)) +
                 (picture->low ? 1 + FOLDED + LOW_GAP : BAND + GAP);
    }
    picture->bottom = y;
    picture->top = band_top(plan, picture->limit);
}

/* Returns the bottom edge of a rank's part of the picture, which is the bottom of its band. */
static double foot_of(const struct picture *picture, int r) {
    int next = r + 1;
    while (next < picture->p->workers && !leads_row(picture, next))
        next++;
    return (next < picture->p->workers ? picture->y[next] : picture->bottom) - (picture->low ? LOW_GAP : GAP);
}

/* ---- writing ---- */

static void put_times(struct text *t, const struct picture *picture, int r, int i) {
    char a[32], b[32];
    put(t, "; %s to %s %s", time_text(picture->tl->start[r][i], &picture->time.m, a),
        time_text(picture->tl->end[r][i], &picture->time.m, b), picture->time.m.name);
}

/* Writes a tooltip. as: the name on the block */
static void put_title(struct text *t, const struct picture *picture, int r, int i, const char *as, int stage) {
    const struct instr *x = &picture->p->rank[r].ins[i];
    put(t, "<title>%s: %s of stage %d", as, paint_of(x, picture->style->by).name, stage);
    if (x->batch >= 0)
        svg_put_number(t, x->op, x->batch, picture->p->names.slices);
    if (is_job(x->op) && x->inst >= 0)
        put(t, ", weights of version %d", x->inst);
    put(t, "; %s", picture->rows.who[r]);
    put_times(t, picture, r, i);
    put(t, "%s</title>", picture->path[r][i] ? "; on the critical path" : "");
}

static void put_job(struct text *t, const struct picture *picture, int r, int i) {
    const struct instr *x = &picture->p->rank[r].ins[i];
    double from = x_of(&picture->time, picture->tl->start[r][i]), to = x_of(&picture->time, picture->tl->end[r][i]);
    struct box box = {from, picture->y[r], to - from, picture->row, paint_of(x, picture->style->by).fill};
    struct instr of = *x; /* with the script's stage, if members of its team share the row */
    of.stage = member_at(&picture->p->names, x->stage).stage;
    bool shared = picture->rows.label[r] != NULL;
    struct names names = picture->p->names, plain = {.slices = names.slices};
    int half = half_of(picture, r, i);
    if (half) {
        box.height = picture->row / 2;
        box.y += half == 2 ? box.height : 0;
    }
    put(t, "<rect class=\"o%s\" fill=\"#%06x\" x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\">",
        picture->path[r][i] ? " c" : "", box.fill, box.x, box.y, box.width, box.height);
    put_title(t, picture, r, i, shared ? short_name(&plain, &of) : short_name(&names, x), of.stage);
    put(t, "</rect>\n");
    put_name(t, shared ? &plain : &names, shared ? &of : x, &box, picture->names);
}

static void put_lanes(struct text *t, const struct picture *picture, int r) {
    const struct rank *k = &picture->p->rank[r];
    int *row = NEW(int, k->nlanes);
    if (lane_rows(picture, r, row) == 0)
        return;
    for (int l = 1; l < k->nlanes; l++)
        if (row[l])
            put(t, "<text class=\"l s\" x=\"%d\" y=\"%.2f\">%s</text>\n", LEFT - 5,
                picture->y[r] + picture->row + LANE * row[l] - 2.5, lane_label(picture->p, &k->lane[l]));
    for (int i = 0; i < k->nins; i++) {
        const struct instr *x = &k->ins[i];
        if (x->lane == 0 || !visible(picture, r, i))
            continue;
        double from = x_of(&picture->time, picture->tl->start[r][i]),
               y = picture->y[r] + picture->row + LANE * (row[x->lane] - 1) + 1;
        put(t,
            "<rect class=\"o%s\" fill=\"#%06x\" x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%d\"><title>%s; rank %d",
            picture->path[r][i] ? " c" : "", paint_of(x, BY_OP).fill, from, y,
            x_of(&picture->time, picture->tl->end[r][i]) - from, LANE - 2, short_name(&picture->p->names, x), r);
        put_times(t, picture, r, i);
        put(t, "</title></rect>\n");
    }
}

/* ---- messages as arrows ---- */

static void put_arrow(struct text *t, const struct picture *picture, int src, int i, int dst, int j) {
    const struct instr *x = &picture->p->rank[src].ins[i];
    const struct buf *b = payload(&picture->p->rank[src], x);
    double start = picture->tl->start[src][i], end = picture->tl->end[dst][j];
    if (end < picture->time.from || start > picture->time.to)
        return;
    double y = picture->y[src] + (src < dst ? picture->row : 0), to = picture->y[dst] + (src < dst ? 0 : picture->row);
    put(t, "<path class=\"m\" marker-end=\"url(#tip)\" d=\"M%.2f %.2fL%.2f %.2f\"><title>", x_of(&picture->time, start),
        y, x_of(&picture->time, end), to);
    char a[32], size[32];
    put_buf(t, &picture->p->names, b);
    put(t, ", %s, from rank %d to rank %d; %s", bytes_text(moved_bytes(&picture->p->rank[src], x), size), src, dst,
        time_text(start, &picture->time.m, a));
    put(t, " to %s %s</title></path>\n", time_text(end, &picture->time.m, a), picture->time.m.name);
}

/* Draws arrows between the ranks that lead their rows. */
static void put_arrows(struct text *t, const struct picture *picture) {
    int32_t(*from)[2] = alloc(sizeof *from * (size_t)picture->p->nmsgs);
    for (int r = 0; r < picture->p->workers; r++)
        for (int i = 0; i < picture->p->rank[r].nins; i++)
            if (picture->p->rank[r].ins[i].msg >= 0 && is_send(picture->p->rank[r].ins[i].op)) {
                from[picture->p->rank[r].ins[i].msg][0] = r;
                from[picture->p->rank[r].ins[i].msg][1] = i;
            }
    for (int r = 0; r < picture->p->workers; r++)
        for (int i = 0; leads_row(picture, r) && i < picture->p->rank[r].nins; i++) {
            const struct instr *x = &picture->p->rank[r].ins[i];
            if (x->msg >= 0 && is_recv(x->op))
                put_arrow(t, picture, from[x->msg][0], from[x->msg][1], r, i);
        }
}

/* ---- heading, legend and rows ---- */

static void put_head(struct text *t, const struct picture *picture, const struct svg *svg) {
    char a[32];
    svg_begin(t, svg);
    const char *batches = counted(picture->rep->step_batches, "microbatch");
    put(t, "<text x=\"%d\" y=\"%d\">%s, %s, ", LEFT, HEADING, counted(picture->p->workers, "rank"),
        counted(script_stages(&picture->p->names, picture->p->stages), "stage"));
    if (picture->p->period)
        put(t, "%d of a step's ", picture->p->batches);
    else if (picture->p->copies > 1)
        put(t, "%d steps of ", picture->p->copies);
    put(t, "%s", batches);
    if (picture->p->names.slices)
        put(t, " of %s", counted(picture->p->names.slices, "slice"));
    bool whole = picture->p->period || picture->p->copies > 1; /* the figures cover one step with all repetitions */
    put(t, "; %smakespan %s %s%s; bubble %.1f %%</text>\n", whole ? "a step's " : "",
        time_text(whole ? picture->rep->makespan : picture->tl->makespan, &picture->time.m, a), picture->time.m.name,
        picture->rep->measured ? " measured" : "", 100 * picture->rep->bubble);
}

static void put_legend(struct text *t, const struct picture *picture) {
    struct pen at = {LEFT, picture->bottom + 12, svg_width(&picture->time)};
    if (picture->style->by == BY_OP)
        put_op_keys(t, &at, picture->drawn);
    else
        put_key(t, &at, "fill=\"#666\"",
                picture->style->by == BY_MB ? "a hue per microbatch, dark forward" : "a hue per stage, dark forward");
    if (picture->style->with & WITH_LANES)
        put_key(t, &at, "fill=\"#e69f00\"", "message");
    put_key(t, &at, "fill=\"url(#idle)\" stroke=\"#ddd\"", "idle");
    put_key(t, &at, "fill=\"#fff\" class=\"c\"", "critical path");
    if (joins_of(picture->p) > 0)
        put_key(t, &at, "fill=\"none\" class=\"j\"", repeated_text(picture->p, picture->tl, &picture->time.m));
    put_band_keys(t, &at, picture->top, picture->limit, picture->low);
}

static void put_ranks(struct text *t, struct picture *picture) {
    for (int r = 0; r < picture->p->workers; r++) {
        if (!leads_row(picture, r))
            continue;
        const char *label = picture->rows.label[r];
        put(t, "<text class=\"l%s\" x=\"%d\" y=\"%.2f\">%s</text>\n", label ? " s" : "", LEFT - 5,
            picture->y[r] + picture->row / 2 + 3.6, label ? label : picture->rows.who[r]);
        put(t, "<rect fill=\"url(#idle)\" x=\"%d\" y=\"%.2f\" width=\"%.2f\" height=\"%g\"/>\n", LEFT, picture->y[r],
            x_of(&picture->time, picture->time.to) - LEFT, picture->row);
        for (int critical = 0; critical < 2; critical++) /* critical jobs last, to keep their outlines whole */
            for (int i = 0; i < picture->p->rank[r].nins; i++)
                if (picture->path[r][i] == critical && is_block(picture, r, i)) {
                    picture->drawn |= 1u << picture->p->rank[r].ins[i].op;
                    put_job(t, picture, r, i);
                }
        put_lanes(t, picture, r);
        struct band band = {foot_of(picture, r), picture->low ? FOLDED : BAND - 5, picture->top, picture->limit,
                            picture->low};
        put_band(t, &picture->time, &band, &picture->p->rank[r], picture->rows.who[r], picture->tl->start[r],
                 picture->tl->end[r]);
    }
}

/* Draws lines through each rank's row and memory where its lanes join, around repetitions. */
static void put_joins(struct text *t, const struct picture *picture) {
    int n = joins_of(picture->p);
    bool steps = picture->p->period == 0;
    char a[32];
    for (int r = 0; r < picture->p->workers && n > 0; r++) {
        const double *join = join_times(picture->p, picture->tl, r);
        for (int i = 0; leads_row(picture, r) && i < n; i++)
            if (join[i] >= picture->time.from && join[i] <= picture->time.to) {
                double x = x_of(&picture->time, join[i]);
                put(t, "<path class=\"j\" d=\"M%.2f %.2fV%.2f\"><title>%s; %s, at %s %s</title></path>\n", x,
                    picture->y[r] - (picture->low ? 2 : 3), foot_of(picture, r),
                    i == n - 1 ? steps ? "the last step ends" : "the period ends"
                    : steps    ? format("step %d begins", i + 1)
                               : format("the period begins%s", n > 2 ? format(", time %d", i + 1) : ""),
                    picture->rows.who[r], time_text(join[i], &picture->time.m, a), picture->time.m.name);
            }
    }
}

/* Merges the rows of equal ranks, unless lanes are drawn, since lanes differ. */
static void share_rows(struct picture *picture) {
    picture->rows = rows_of(picture->p, picture->tl, !(picture->style->with & WITH_LANES));
    picture->low = picture->rows.n > MANY_ROWS;
    picture->row = picture->low ? LOW_ROW : ROW;
    rows_share_path(&picture->rows, picture->p, picture->path);
}

static const char tip[] =
    "<marker id=\"tip\" viewBox=\"0 0 6 6\" refX=\"5.5\" refY=\"3\" markerWidth=\"5\" markerHeight=\"5\" "
    "orient=\"auto\"><path d=\"M0 .5L6 3L0 5.5Z\" fill=\"#333\"/></marker>\n";

void emit_svg(struct text *t, const struct program *p, const struct timeline *tl, const struct report *rep,
              double limit, const struct style *style) {
    struct picture picture = {.p = p, .tl = tl, .rep = rep, .style = style, .limit = limit};
    bool arrows = style->with & WITH_SENDS;
    struct svg svg = {.name = p->name, .top = arrows ? tip : ""};
    picture.time.m = measure_of(tl->makespan, rep->unit, false);
    picture.time.from = style->from * picture.time.m.one;
    picture.time.to = style->to > 0 ? fmin(style->to * picture.time.m.one, tl->makespan) : tl->makespan;
    picture.names = several_stages(p);
    picture.path = critical_path(p, tl);
    share_rows(&picture);
    choose_scale(&picture);
    svg.width = svg_width(&picture.time);
    svg.height = picture.bottom + 48; /* room for a legend of two or three lines */
    svg.style = format("%s%s%s",
                       joins_of(p) ? ".j { stroke: #000; stroke-width: 1.4; stroke-dasharray: 4 2; fill: none }\n" : "",
                       picture.low ? folded_style : "",
                       arrows ? ".m { stroke: #333; stroke-width: .8; fill: none; opacity: .75 }\n" : "");
    put_head(t, &picture, &svg);
    put_axis(t, &picture.time, TOP - 6, picture.bottom - (picture.low ? LOW_GAP : GAP));
    put_ranks(t, &picture);
    put_joins(t, &picture);
    if (arrows)
        put_arrows(t, &picture);
    put_legend(t, &picture);
    put(t, "</svg>\n");
}
