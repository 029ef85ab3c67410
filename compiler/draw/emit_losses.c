/* Losses as a picture: on the left over predicted time, on the right over microbatches, both down to the same losses.
 * What a schedule gains by the hour is on the left, what it pays by the sample on the right. A circle is where a line
 * is below the target for good. */
#include "svg.h"
#include <math.h>
#include <string.h>

enum { TOP = 64, WIDTH = 400, HEIGHT = 280, BETWEEN = 76, MOST_POINTS = 800 };

struct axis {
    double from, to, at, px; /* at: the coordinate of `from`; px: pixels of one, negative upwards */
    const char *name;
};
struct panel {
    struct axis x, y;
    bool by_time;
    struct measure unit; /* of x */
};

/* Okabe & Ito's palette, safe for colour-blind readers; a line beyond these has another dash. */
static const uint32_t color[] = {0x0072b2, 0xd55e00, 0x009e73, 0xcc79a7, 0x000000, 0x56b4e9, 0xe69f00};
enum { NCOLORS = sizeof color / sizeof *color };
static const char *const dash[] = {"", " stroke-dasharray=\"6 3\"", " stroke-dasharray=\"2 3\""};
enum { NDASHES = sizeof dash / sizeof *dash };

static double on(const struct axis *axis, double value) { return axis->at + (value - axis->from) * axis->px; }

/* The distance between ticks: 1, 2 or 5 of a power of ten, so that labels have about `room` pixels. */
static double tick_of(const struct axis *axis, double room) {
    double least = room / fabs(axis->px), power = pow(10, floor(log10(least)));
    return power * (least <= power ? 1 : least <= 2 * power ? 2 : least <= 5 * power ? 5 : 10);
}

static double x_value(const struct panel *panel, const struct loss_line *line, int64_t k) {
    return panel->by_time ? line->seconds[k] / panel->unit.one : (double)(k + 1) * line->each;
}

/* ---- what is around the lines ---- */

static void put_axes(struct text *t, const struct panel *panel) {
    double every = tick_of(&panel->x, 60), left = panel->x.at, right = left + WIDTH;
    for (double n = ceil(panel->x.from / every); n * every <= panel->x.to * (1 + 1e-9); n++) {
        double x = on(&panel->x, n * every);
        put(t, "<path class=\"g\" d=\"M%.2f %dv%d\"/><text class=\"a\" x=\"%.2f\" y=\"%d\">%.6g</text>\n", x, TOP,
            HEIGHT, x, TOP + HEIGHT + 14, n * every);
    }
    every = tick_of(&panel->y, 30);
    for (double n = ceil(panel->y.from / every - 1e-9); n * every <= panel->y.to + every * 1e-9; n++) {
        double y = on(&panel->y, n * every);
        put(t, "<path class=\"g\" d=\"M%.2f %.2fh%d\"/><text class=\"l\" x=\"%.2f\" y=\"%.2f\">%.6g</text>\n", left, y,
            WIDTH, left - 6, y + 3.6, n * every + 0.0);
    }
    put(t, "<path class=\"b\" d=\"M%.2f %dv%dH%.2f\"/>\n", left, TOP, HEIGHT, right);
    put(t, "<text class=\"a\" x=\"%.2f\" y=\"%d\">%s</text>\n", left + WIDTH / 2, TOP + HEIGHT + 30, panel->x.name);
    put(t, "<text class=\"t\" x=\"%.2f\" y=\"%d\">%s</text>\n", left, TOP - 10, panel->y.name);
}

static void put_target(struct text *t, const struct panel *panel, double target) {
    if (target < panel->y.from || target > panel->y.to)
        return;
    double y = on(&panel->y, target), right = panel->x.at + WIDTH;
    put(t, "<path class=\"q\" d=\"M%.2f %.2fh%d\"/><text class=\"l k\" x=\"%.2f\" y=\"%.2f\">target %.4g</text>\n",
        panel->x.at, y, WIDTH, right - 4, y - 4, target);
}

/* ---- the lines ---- */

static void put_line(struct text *t, const struct panel *panel, const struct loss_line *line, int number) {
    int64_t every = (line->n + MOST_POINTS - 1) / MOST_POINTS;
    char letter = 'M';
    put(t, "<path class=\"z\" stroke=\"#%06x\"%s d=\"", color[number % NCOLORS], dash[number / NCOLORS % NDASHES]);
    for (int64_t k = 0; k < line->n; k++) {
        if (!isfinite(line->loss[k]) || (k % every && k != line->n - 1 && k != line->reached))
            continue;
        put(t, "%c%.2f %.2f", letter, on(&panel->x, x_value(panel, line, k)),
            on(&panel->y, fmin(line->loss[k], panel->y.to)));
        letter = 'L';
    }
    put(t, "\"><title>");
    put_xml(t, line->name);
    put(t, "</title></path>\n");
}

static void put_reached(struct text *t, const struct panel *panel, const struct loss_line *line, int number) {
    if (line->reached < 0)
        return;
    double value = x_value(panel, line, line->reached);
    put(t, "<circle class=\"m\" stroke=\"#%06x\" cx=\"%.2f\" cy=\"%.2f\" r=\"4\"><title>", color[number % NCOLORS],
        on(&panel->x, value), on(&panel->y, line->loss[line->reached]));
    put_xml(t, line->name);
    put(t, ": at the target after %.6g %s</title></circle>\n", value, panel->unit.name);
}

/* ---- layout ---- */

static void reach(struct axis *axis, double value) {
    if (!isfinite(value))
        return;
    axis->from = fmin(axis->from, value);
    axis->to = fmax(axis->to, value);
}

static void scale(struct axis *axis, double at, double pixels) {
    if (!(axis->to > axis->from)) /* nothing to draw, or a flat line */
        *axis = (struct axis){isfinite(axis->from) ? axis->from - 0.5 : 0, isfinite(axis->from) ? axis->from + 0.5 : 1,
                              0, 0, axis->name};
    axis->at = at;
    axis->px = pixels / (axis->to - axis->from);
}

static struct panel panel_of(const struct loss_line *line, int n, double target, bool by_time) {
    struct panel panel = {.by_time = by_time, .unit = {1, "microbatches"}};
    double most = 0;
    for (int i = 0; i < n; i++)
        most = fmax(most, line[i].seconds[line[i].n - 1]);
    if (by_time)
        panel.unit = measure_of(most, "s", false);
    panel.x.name = by_time ? format("predicted time, %s", panel.unit.name) : panel.unit.name;
    panel.y = (struct axis){.from = INFINITY, .to = -INFINITY};
    panel.y.name = by_time ? "loss over time" : "loss over microbatches";
    reach(&panel.y, target);
    for (int i = 0; i < n; i++) {
        reach(&panel.x, x_value(&panel, &line[i], line[i].n - 1));
        for (int64_t k = 0; k < line[i].n; k++)
            reach(&panel.y, line[i].loss[k]);
    }
    double margin = 0.04 * (panel.y.to - panel.y.from);
    panel.y.from -= margin > 0 ? margin : 0;
    panel.y.to += margin > 0 ? margin : 0;
    scale(&panel.x, by_time ? LEFT : LEFT + WIDTH + BETWEEN, WIDTH);
    scale(&panel.y, TOP + HEIGHT, -HEIGHT);
    return panel;
}

static const char style[] = "text.t { font-size: 11px; font-weight: bold }\n"
                            ".b { stroke: #666; fill: none }\n"
                            ".z { stroke-width: 1.8; stroke-linejoin: round; fill: none }\n"
                            "text.k { paint-order: stroke; stroke: #fff; stroke-width: 3px }\n"
                            ".m { stroke-width: 1.8; fill: #fff }\n";

void emit_losses(struct text *out, const char *title, const struct loss_line *line, int n, double target) {
    double width = LEFT + 2 * WIDTH + BETWEEN + RIGHT;
    struct pen pen = {LEFT, TOP + HEIGHT + 56, width};
    struct text keys = {0};
    for (int i = 0; i < n; i++) {
        struct text name = {0};
        put_xml(&name, line[i].name);
        put_key(&keys, &pen, format("fill=\"#%06x\"", color[i % NCOLORS]), name.s ? name.s : "");
    }
    struct svg page = {.name = title, .style = style, .top = "", .width = width, .height = pen.y + 16, .html = false};
    svg_begin(out, &page);
    put_bytes(out, keys.s, keys.n);
    for (int by_time = 1; by_time >= 0; by_time--) {
        struct panel panel = panel_of(line, n, target, by_time);
        put_axes(out, &panel);
        for (int i = 0; i < n; i++)
            put_line(out, &panel, &line[i], i);
        put_target(out, &panel, target);
        for (int i = 0; i < n; i++)
            put_reached(out, &panel, &line[i], i);
    }
    svg_end(out, &page, "");
}
