/* The unit of scale.cpp for CPUs, as plain loops: y = (x scale) w, where scale has a number for each column of x. The
 * stash has x scale. */
#include <pianola/unit.h>

static const float *matrix_of(const float *w, int in) { return w + in; }

void scale_forward(const struct pianola_unit_call *c) {
    const float *x = c->x, *scale = c->w, *w = matrix_of(scale, c->in);
    float *y = c->y, *stash = c->stash;
    for (int i = 0; i < c->rows * c->in; i++)
        stash[i] = x[i] * scale[i % c->in];
    for (int r = 0; r < c->rows; r++)
        for (int j = 0; j < c->out; j++) {
            float sum = 0;
            for (int k = 0; k < c->in; k++)
                sum += stash[r * c->in + k] * w[k * c->out + j];
            y[r * c->out + j] = sum;
        }
}

/* Leaves the gradient of x scale in extra. */
void scale_input(const struct pianola_unit_call *c) {
    const float *dy = c->dy, *scale = c->w, *w = matrix_of(scale, c->in);
    float *extra = c->extra, *dx = c->dx;
    for (int r = 0; r < c->rows; r++)
        for (int k = 0; k < c->in; k++) {
            float sum = 0;
            for (int j = 0; j < c->out; j++)
                sum += dy[r * c->out + j] * w[k * c->out + j];
            extra[r * c->in + k] = sum;
            if (dx)
                dx[r * c->in + k] = sum * scale[k];
        }
}

void scale_weight(const struct pianola_unit_call *c) {
    const float *x = c->x, *dy = c->dy, *extra = c->extra, *stash = c->stash;
    float *dscale = c->dw, *dw = dscale + c->in;
    for (int k = 0; k < c->in; k++) {
        float sum = 0;
        for (int r = 0; r < c->rows; r++)
            sum += extra[r * c->in + k] * x[r * c->in + k];
        dscale[k] = c->add ? dscale[k] + sum : sum;
        for (int j = 0; j < c->out; j++) {
            sum = 0;
            for (int r = 0; r < c->rows; r++)
                sum += stash[r * c->in + k] * dy[r * c->out + j];
            dw[k * c->out + j] = c->add ? dw[k * c->out + j] + sum : sum;
        }
    }
}
