/* y = x gain, by columns. */
#include <pianola/unit.h>

void gain_forward(const struct pianola_unit_call *c) {
    const float *x = c->x, *gain = c->w;
    float *y = c->y;
    for (int i = 0; i < c->rows * c->in; i++)
        y[i] = x[i] * gain[i % c->in];
}

void gain_input(const struct pianola_unit_call *c) {
    const float *dy = c->dy, *gain = c->w;
    float *dx = c->dx;
    for (int i = 0; i < c->rows * c->in && dx; i++)
        dx[i] = dy[i] * gain[i % c->in];
}

void gain_weight(const struct pianola_unit_call *c) {
    const float *x = c->x, *dy = c->dy;
    float *dgain = c->dw;
    for (int j = 0; j < c->in; j++) {
        float sum = 0;
        for (int r = 0; r < c->rows; r++)
            sum += x[r * c->in + j] * dy[r * c->in + j];
        dgain[j] = c->add ? dgain[j] + sum : sum;
    }
}
