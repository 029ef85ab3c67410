/* y = x² scale + shift, with x² in the stash, dx of a product in extra and a copy in work. Frozen may be neither
 * parameter, both, or scale. BROKEN_… breaks one thing. */
#include <pianola/unit.h>
#include <stdlib.h>
#include <string.h>

#ifndef NAME
#define NAME(operation) fine_##operation
#endif

static const float *scale_of(const struct pianola_unit_call *c) { return c->frozen ? c->frozen : c->w; }

void NAME(forward)(const struct pianola_unit_call *c) {
    const float *x = c->x, *scale = scale_of(c), *shift = c->frozen && c->w ? c->w : scale + c->in;
    float *y = c->y, *square = c->stash, *work = c->work;
    for (int r = 0; r < c->rows; r++)
        for (int j = 0; j < c->in; j++) {
            int i = r * c->in + j;
#ifndef BROKEN_UNWRITTEN_WORK
            work[i] = x[i] * x[i];
#endif
            square[i] = work[i];
            y[i] = square[i] * scale[j] + shift[j];
        }
#ifdef BROKEN_AFTER_STASH
    square[c->rows * c->in] = 1;
#endif
#ifdef BROKEN_BEFORE_Y
    y[-1] = 1;
#endif
#ifdef BROKEN_FAR_AFTER_Y
    y[c->rows * c->in + 4096] = 1;
#endif
#ifdef BROKEN_WRITES_X
    ((float *)c->x)[3] = 1;
#endif
#ifdef BROKEN_RANDOM
    y[5] += (float)rand();
#endif
#ifdef BROKEN_WILD
    *(volatile int *)(uintptr_t)0x123456789000 = 1;
#endif
#ifdef BROKEN_TOKENS
    y[0] += (float)c->tokens[0];
#endif
#ifdef BROKEN_NAN
    y[0] = y[0] / 0 - y[0] / 0;
#endif
}

void NAME(input)(const struct pianola_unit_call *c) {
    const float *x = c->x, *dy = c->dy, *scale = scale_of(c);
    float *dx = c->dx, *extra = c->extra;
    for (int r = 0; r < c->rows; r++)
        for (int j = 0; j < c->in; j++) {
            int i = r * c->in + j;
            extra[i] = dy[i] * ((float *)c->stash)[i];
#ifdef BROKEN_GRADIENT
            if (dx)
                dx[i] = dy[i] * scale[j] * x[i];
#elif defined BROKEN_NULL_DX
            dx[i] = 2 * dy[i] * scale[j] * x[i];
#elif defined BROKEN_Y
            dx[i] = 2 * dy[i] * scale[j] * x[i] + ((const float *)c->y)[i];
#elif defined BROKEN_UNWRITTEN_DX
            if (dx && i > 0)
                dx[i] = 2 * dy[i] * scale[j] * x[i];
#else
            if (dx)
                dx[i] = 2 * dy[i] * scale[j] * x[i];
#endif
        }
#ifdef BROKEN_WRITES_STASH
    ((float *)c->stash)[1] = 0;
#endif
}

void NAME(weight)(const struct pianola_unit_call *c) {
    const float *dy = c->dy, *extra = c->extra;
    float *scale = c->frozen ? NULL : c->dw, *shift = scale ? scale + c->in : c->dw;
    for (int j = 0; j < c->in; j++) {
        float a = 0, b = 0;
        for (int r = 0; r < c->rows; r++) {
            a += extra[r * c->in + j];
            b += dy[r * c->in + j];
        }
#ifdef BROKEN_ADD
        scale[j] = a;
        shift[j] = b;
#else
        if (scale)
            scale[j] = c->add ? scale[j] + a : a;
        shift[j] = c->add ? shift[j] + b : b;
#endif
    }
#ifdef BROKEN_AFTER_DW
    shift[c->in] = 0;
#endif
}
