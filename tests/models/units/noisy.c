/* y = x with some values turned, as the seed says, plus a number for each row's token: what a unit reads besides x. */
#include <pianola/unit.h>

/* Returns 1 or -1 for value i of a microbatch, or 1 where nothing is drawn. */
static float turn(const uint64_t *seed, int i) {
    uint64_t z = seed ? *seed + (uint64_t)i * 0x9E3779B97F4A7C15u : 0;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    return z >> 61 == 1 ? -1 : 1;
}

void noisy_forward(const struct pianola_unit_call *c) {
    const float *x = c->x;
    float *y = c->y;
    for (int i = 0; i < c->rows * c->in; i++)
        y[i] = x[i] * turn(c->seed, i) + 0.01f * (float)c->tokens[i / c->in];
}

void noisy_input(const struct pianola_unit_call *c) {
    const float *dy = c->dy;
    float *dx = c->dx;
    for (int i = 0; i < c->rows * c->in; i++)
        dx[i] = dy[i] * turn(c->seed, i);
}
