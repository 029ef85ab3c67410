/* A head with its loss: y = -log softmax(x W)[target], one number a row, 0 where the target is negative. The stash has
 * the probabilities. */
#include <math.h>
#include <pianola/unit.h>

enum { VOCAB = 16 };

void head_forward(const struct pianola_unit_call *c) {
    const float *x = c->x, *w = c->w;
    float *y = c->y, *p = c->stash;
    for (int r = 0; r < c->rows; r++, x += c->in, p += VOCAB) {
        float total = 0;
        for (int k = 0; k < VOCAB; k++) {
            float z = 0;
            for (int j = 0; j < c->in; j++)
                z += x[j] * w[j * VOCAB + k];
            total += p[k] = expf(z);
        }
        for (int k = 0; k < VOCAB; k++)
            p[k] /= total;
        y[r] = c->targets[r] < 0 ? 0 : -logf(p[c->targets[r]]);
    }
}

/* Returns the gradient of a row's logit. */
static float slope(const struct pianola_unit_call *c, int r, int k) {
    const float *p = (const float *)c->stash + r * VOCAB, *dy = c->dy;
    return c->targets[r] < 0 ? 0 : dy[r] * (p[k] - (k == c->targets[r]));
}

void head_input(const struct pianola_unit_call *c) {
    const float *w = c->w;
    float *dx = c->dx;
    for (int r = 0; dx && r < c->rows; r++)
        for (int j = 0; j < c->in; j++) {
            float sum = 0;
            for (int k = 0; k < VOCAB; k++)
                sum += slope(c, r, k) * w[j * VOCAB + k];
            dx[r * c->in + j] = sum;
        }
}

void head_weight(const struct pianola_unit_call *c) {
    const float *x = c->x;
    float *dw = c->dw;
    for (int j = 0; j < c->in; j++)
        for (int k = 0; k < VOCAB; k++) {
            float sum = 0;
            for (int r = 0; r < c->rows; r++)
                sum += x[r * c->in + j] * slope(c, r, k);
            dw[j * VOCAB + k] = c->add ? dw[j * VOCAB + k] + sum : sum;
        }
}
