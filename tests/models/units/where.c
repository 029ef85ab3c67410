/* y = gain x + places[position], where a file has a gain and a position for each token. */
#include <pianola/unit.h>

enum { PLACES = 6 };

void where_forward(const struct pianola_unit_call *c) {
    const float *x = c->x, *gain = c->inputs[0], *places = c->w;
    const int32_t *position = c->inputs[1];
    float *y = c->y;
    for (int r = 0; r < c->rows; r++)
        for (int j = 0; j < c->in; j++)
            y[r * c->in + j] = gain[r] * x[r * c->in + j] + places[position[r] * c->in + j];
}

void where_input(const struct pianola_unit_call *c) {
    const float *dy = c->dy, *gain = c->inputs[0];
    float *dx = c->dx;
    for (int r = 0; dx && r < c->rows; r++)
        for (int j = 0; j < c->in; j++)
            dx[r * c->in + j] = gain[r] * dy[r * c->in + j];
}

void where_weight(const struct pianola_unit_call *c) {
    const float *dy = c->dy;
    const int32_t *position = c->inputs[1];
    float *places = c->dw;
    for (int i = 0; !c->add && i < PLACES * c->in; i++)
        places[i] = 0;
    for (int r = 0; r < c->rows; r++)
        for (int j = 0; j < c->in; j++)
            places[position[r] * c->in + j] += dy[r * c->in + j];
}
