/* Axes, and the colours and dashes that distinguish lines: see chart.h. */
#include "chart.h"
#include <math.h>

/* Okabe & Ito's palette, safe for colour-blind readers; further lines repeat it with other dashes. */
static const uint32_t color[] = {0x0072b2, 0xd55e00, 0x009e73, 0xcc79a7, 0x000000, 0x56b4e9, 0xe69f00};
enum { NCOLORS = sizeof color / sizeof *color };
static const char *const dash[] = {"", " stroke-dasharray=\"6 3\"", " stroke-dasharray=\"2 3\""};
enum { NDASHES = sizeof dash / sizeof *dash };

const char chart_style[] = "text.t { font-size: 11px; font-weight: bold }\n"
                           ".b { stroke: #666; fill: none }\n"
                           ".z { stroke-width: 1.8; stroke-linejoin: round; fill: none }\n"
                           "text.k { paint-order: stroke; stroke: #fff; stroke-width: 3px }\n"
                           ".m { stroke-width: 1.8; fill: #fff }\n";

uint32_t line_color(int number) { return color[number % NCOLORS]; }
const char *line_dash(int number) { return dash[number / NCOLORS % NDASHES]; }

void reach(struct axis *axis, double value) {
    if (!isfinite(value))
        return;
    axis->from = fmin(axis->from, value);
    axis->to = fmax(axis->to, value);
}

void scale(struct axis *axis, double at, double pixels) {
    if (!(axis->to > axis->from)) /* nothing to draw, or a flat line */
        *axis = (struct axis){isfinite(axis->from) ? axis->from - 0.5 : 0, isfinite(axis->from) ? axis->from + 0.5 : 1,
                              0, 0, axis->name};
    axis->at = at;
    axis->px = pixels / (axis->to - axis->from);
}

double on(const struct axis *axis, double value) { return axis->at + (value - axis->from) * axis->px; }

/* Returns the distance between ticks: 1, 2 or 5 times a power of ten, so that labels have about `room` pixels. */
static double tick_of(const struct axis *axis, double room) {
    double least = room / fabs(axis->px), power = pow(10, floor(log10(least)));
    return power * (least <= power ? 1 : least <= 2 * power ? 2 : least <= 5 * power ? 5 : 10);
}

void put_axes(struct text *t, const struct axis *x, const struct axis *y) {
    double left = x->at, right = on(x, x->to), bottom = y->at, top = on(y, y->to), every = tick_of(x, 60);
    for (double n = ceil(x->from / every); n * every <= x->to * (1 + 1e-9); n++) {
        double at = on(x, n * every);
        put(t, "<path class=\"g\" d=\"M%.2f %.2fV%.2f\"/><text class=\"a\" x=\"%.2f\" y=\"%.2f\">%.6g</text>\n", at,
            top, bottom, at, bottom + 14, n * every);
    }
    every = tick_of(y, 30);
    for (double n = ceil(y->from / every - 1e-9); n * every <= y->to + every * 1e-9; n++) {
        double at = on(y, n * every);
        put(t, "<path class=\"g\" d=\"M%.2f %.2fH%.2f\"/><text class=\"l\" x=\"%.2f\" y=\"%.2f\">%.6g</text>\n", left,
            at, right, left - 6, at + 3.6, n * every + 0.0);
    }
    put(t, "<path class=\"b\" d=\"M%.2f %.2fV%.2fH%.2f\"/>\n", left, top, bottom, right);
    put(t, "<text class=\"a\" x=\"%.2f\" y=\"%.2f\">%s</text>\n", (left + right) / 2, bottom + 30, x->name);
    put(t, "<text class=\"t\" x=\"%.2f\" y=\"%.2f\">%s</text>\n", left, top - 10, y->name);
}
