/* Axes and lines of pictures with two axes: losses, and the least makespan over memory. */
#ifndef PIANOLA_CHART_H
#define PIANOLA_CHART_H
#include "base/text.h"

struct axis {
    double from, to, at, px; /* at: the coordinate of `from`; px: pixels per unit, negative upwards */
    const char *name;
};
void reach(struct axis *axis, double value); /* extends the range; `from` and `to` start as INFINITY and -INFINITY */
void scale(struct axis *axis, double at, double pixels); /* sets at and px once the range is known */
double on(const struct axis *axis, double value);        /* the value's coordinate */
/* Writes the frame, a grid line and a number at round values, and the names: x's below, y's above. */
void put_axes(struct text *t, const struct axis *x, const struct axis *y);

uint32_t line_color(int number);
const char *line_dash(int number); /* an attribute, or "" */
extern const char chart_style[];   /* CSS: text t is a title, b the frame, z a line, text k has a halo, m is a mark */
#endif
