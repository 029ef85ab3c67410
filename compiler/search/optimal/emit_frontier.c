/* Draws the least makespan over memory, with a step for each point, up to where more room does not help. The bound is
 * dashed where it is lower, and each known schedule is a circle. Nothing lies below the bound. Each step also has a
 * wide invisible line, which carries its label and is easy to click. */
#include "curve.h"
#include "draw/chart.h"
#include "draw/svg.h"
#include <math.h>

enum { TOP = 64, WIDTH = 560, HEIGHT = 320 };

struct picture {
    struct axis x, y;
};

/* Draws the steps: each point's makespan holds until the next point. */
static void put_steps(struct text *t, const struct picture *picture, const struct frontier_step *step, int n,
                      bool lower, const char *what) {
    char letter = 'M';
    put(t, "<path class=\"%s\" stroke=\"#%06x\" d=\"", lower ? "q" : "z", line_color(0));
    for (int i = 0; i < n; i++) {
        double value = lower ? step[i].lower : step[i].makespan;
        if (!isfinite(value))
            continue;
        double y = on(&picture->y, value), end = i + 1 < n ? step[i + 1].room : picture->x.to;
        put(t, "%c%.2f %.2fH%.2f", letter, on(&picture->x, step[i].room), y, on(&picture->x, end));
        letter = 'L';
    }
    put(t, "\"><title>%s</title></path>\n", what);
}

const char *step_place(int i) { return format("step-%d", i); }
const char *mark_place(int i) { return format("mark-%d", i); }

static void put_tooltip(struct text *t, const char *label) {
    put_word(t, "<title>");
    put_xml(t, label);
    put_word(t, "</title>");
}

static void put_hidden_steps(struct text *t, const struct picture *picture, const struct frontier_step *step, int n) {
    for (int i = 0; i < n; i++) {
        double end = i + 1 < n ? step[i + 1].room : picture->x.to;
        if (!isfinite(step[i].makespan))
            continue;
        put(t, "<path id=\"%s\" class=\"e\" d=\"M%.2f %.2fH%.2f\">", step_place(i), on(&picture->x, step[i].room),
            on(&picture->y, step[i].makespan), on(&picture->x, end));
        put_tooltip(t, step[i].label);
        put_word(t, "</path>\n");
    }
}

/* Draws a mark. The names of marks at one position are stacked. */
static void put_mark(struct text *t, const struct picture *picture, const struct frontier_mark *all, int number) {
    const struct frontier_mark *mark = &all[number];
    double x = on(&picture->x, mark->peak), y = on(&picture->y, mark->makespan);
    int same = 0;
    for (int i = 0; i < number; i++)
        same += all[i].peak == mark->peak && all[i].makespan == mark->makespan;
    put(t, "<g id=\"%s\">", mark_place(number));
    put_tooltip(t, mark->label);
    put(t, "\n<circle class=\"m\" stroke=\"#%06x\" cx=\"%.2f\" cy=\"%.2f\" r=\"4\"/>\n", line_color(number + 1), x, y);
    put(t, "<text class=\"k\" x=\"%.2f\" y=\"%.2f\">", x + 7, y - 5 - 11 * same);
    put_xml(t, mark->name);
    put(t, "</text></g>\n");
}

static struct picture frame(const struct frontier_chart *chart) {
    struct picture picture = {.x = {.from = INFINITY, .to = -INFINITY, .name = chart->room},
                              .y = {.from = INFINITY, .to = -INFINITY, .name = chart->time}};
    const struct frontier_step *step = chart->step;
    int n = chart->nsteps;
    for (int i = 0; i < n; i++) {
        reach(&picture.x, step[i].room);
        reach(&picture.y, step[i].makespan);
        reach(&picture.y, step[i].lower);
    }
    double step_length = n > 1 ? (step[n - 1].room - step[0].room) / (n - 1) : 1;
    reach(&picture.x, step[n - 1].room + step_length); /* gives the last step the length of the others */
    for (int i = 0; i < chart->nmarks; i++) {
        reach(&picture.x, chart->mark[i].peak);
        reach(&picture.y, chart->mark[i].makespan);
    }
    double margin = 0.06 * (picture.y.to - picture.y.from);
    picture.y.from -= margin > 0 ? margin : 0;
    picture.y.to += margin > 0 ? margin : 0;
    scale(&picture.x, LEFT, WIDTH);
    scale(&picture.y, TOP + HEIGHT, -HEIGHT);
    return picture;
}

void emit_frontier(struct text *out, const struct frontier_chart *chart) {
    struct picture picture = frame(chart);
    const char *hidden =
        ".e { stroke: #0072b2; stroke-width: 22; stroke-opacity: 0; fill: none; pointer-events: stroke }\n";
    struct svg page = {.name = chart->title,
                       .style = format("%s%s", chart_style, hidden),
                       .top = "",
                       .width = LEFT + WIDTH + 5 * RIGHT,
                       .height = TOP + HEIGHT + 48};
    svg_begin(out, &page);
    put_axes(out, &picture.x, &picture.y);
    put_steps(out, &picture, chart->step, chart->nsteps, true, "no order takes less");
    put_steps(out, &picture, chart->step, chart->nsteps, false, "the best order");
    put_hidden_steps(out, &picture, chart->step, chart->nsteps);
    for (int i = 0; i < chart->nmarks; i++)
        put_mark(out, &picture, chart->mark, i);
    put(out, "</svg>\n");
}
