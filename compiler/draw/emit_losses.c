/* Draws losses in two panels with the same loss axis: over predicted time on the left, over microbatches on the right.
 * The left panel shows a schedule's gain per hour, the right one its cost in samples. A circle marks where a line falls
 * below the target and stays there. */
#include "chart.h"
#include "svg.h"
#include <math.h>
#include <string.h>

enum { TOP = 64, WIDTH = 400, HEIGHT = 280, BETWEEN = 76, MOST_POINTS = 800 };

struct panel {
    struct axis x, y;
    bool by_time;
    struct measure unit; /* the x axis's */
};

static double x_value(const struct panel *panel, const struct loss_line *line, int64_t k) {
    return panel->by_time ? line->seconds[k] / panel->unit.one : (double)(k + 1) * line->each;
}

static void put_target(struct text *t, const struct panel *panel, double target) {
    if (!(target >= panel->y.from && target <= panel->y.to))
        return;
    double y = on(&panel->y, target), right = panel->x.at + WIDTH;
    put(t, "<path class=\"q\" d=\"M%.2f %.2fh%d\"/><text class=\"l k\" x=\"%.2f\" y=\"%.2f\">target %.4g</text>\n",
        panel->x.at, y, WIDTH, right - 4, y - 4, target);
}

/* ---- the lines ---- */

static void put_line(struct text *t, const struct panel *panel, const struct loss_line *line, int number) {
    int64_t every = (line->n + MOST_POINTS - 1) / MOST_POINTS;
    char letter = 'M';
    put(t, "<path class=\"z\" stroke=\"#%06x\"%s d=\"", line_color(number), line_dash(number));
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
    put(t, "<circle class=\"m\" stroke=\"#%06x\" cx=\"%.2f\" cy=\"%.2f\" r=\"4\"><title>", line_color(number),
        on(&panel->x, value), on(&panel->y, line->loss[line->reached]));
    put_xml(t, line->name);
    put(t, ": at the target after %.6g %s</title></circle>\n", value, panel->unit.name);
}

/* ---- layout ---- */

static struct panel panel_of(const char *time, const struct loss_line *line, int n, double target, bool by_time) {
    struct panel panel = {.by_time = by_time, .unit = {1, "microbatches"}};
    double most = 0;
    for (int i = 0; i < n; i++)
        most = fmax(most, line[i].seconds[line[i].n - 1]);
    if (by_time)
        panel.unit = measure_of(most, "s", false);
    panel.x.name = by_time ? format("%s, %s", time, panel.unit.name) : panel.unit.name;
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

void emit_losses(struct text *out, const char *title, const char *time, const struct loss_line *line, int n,
                 double target) {
    double width = LEFT + 2 * WIDTH + BETWEEN + RIGHT;
    struct pen pen = {LEFT, TOP + HEIGHT + 56, width};
    struct text keys = {0};
    for (int i = 0; i < n; i++) {
        struct text name = {0};
        put_xml(&name, line[i].name);
        put_key(&keys, &pen, format("fill=\"#%06x\"", line_color(i)), name.s ? name.s : "");
    }
    struct svg page = {.name = title, .style = chart_style, .top = "", .width = width, .height = pen.y + 16};
    svg_begin(out, &page);
    put_bytes(out, keys.s, keys.n);
    for (int by_time = 1; by_time >= 0; by_time--) {
        struct panel panel = panel_of(time, line, n, target, by_time);
        put_axes(out, &panel.x, &panel.y);
        for (int i = 0; i < n; i++)
            put_line(out, &panel, &line[i], i);
        put_target(out, &panel, target);
        for (int i = 0; i < n; i++)
            put_reached(out, &panel, &line[i], i);
    }
    put(out, "</svg>\n");
}
