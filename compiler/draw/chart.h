/* Shared by the pictures with two axes: of losses, and of the least makespan over memory. */
#ifndef PIANOLA_CHART_H
#define PIANOLA_CHART_H
#include "base/text.h"

struct axis {
    double from, to, at, px; /* at: the coordinate of `from`; px: pixels of one, negative upwards */
    const char *name;
};
void reach(struct axis *axis, double value);             /* `from` and `to` begin at INFINITY and -INFINITY */
void scale(struct axis *axis, double at, double pixels); /* once all values are in reach */
double on(const struct axis *axis, double value);        /* its coordinate */
/* The frame, a grid line and a number at round values, and the names: x's below, y's above. */
void put_axes(struct text *t, const struct axis *x, const struct axis *y);

uint32_t line_color(int number);
const char *line_dash(int number); /* an attribute, or "" */
extern const char chart_style[];   /* CSS: of text t a title, b the frame, z a line, text k with a halo, m a mark */
#endif
