/* Muon (Jordan 2024, "Muon: An optimizer for hidden layers in neural networks"): a matrix moves along its momentum,
 * made nearly orthogonal by Newton-Schulz iterations. An iteration is X <- A X + (B S + C S S) X with S = X X^T, and
 * takes all singular values in (0, 1] near 1. */
#ifndef PIANOLA_MUON_H
#define PIANOLA_MUON_H
#include "both.h"
#include "parameters.h"
#include <math.h>

enum { MUON_STEPS = 5 };
#define MUON_A   3.4445f
#define MUON_B   -4.7750f
#define MUON_C   2.0315f
#define MUON_EPS 1e-7

/* Adds a gradient to the momentum, and returns Nesterov's direction. */
ON_BOTH float muon_direction(const struct rt_model *m, float g, float *momentum) {
    float keep = m->momentum, take = 1 - m->momentum;
    *momentum = times(keep, *momentum) + times(take, g);
    return times(keep, *momentum) + times(take, g);
}
/* Returns the factor that scales a direction to length 1, from the sum of its squares. */
ON_BOTH float muon_unit(double square) { return (float)(1 / (sqrt(square) + MUON_EPS)); }
/* Returns the factor that makes steps equally large for all shapes. W is in x out, PyTorch's is out x in. */
static inline float muon_size(const struct rt_parameter *p) {
    float in = (float)p->dim[0], out = (float)p->dim[1];
    return out > in ? sqrtf(out / in) : 1;
}
/* Moves a weight along x, by lr * size. */
ON_BOTH void muon_move(const struct rt_model *m, float lr, float size, float x, float *w) {
    *w -= times(lr, times(m->decay, *w)) + times(times(lr, size), x);
}

#endif
