/* Tests of units on random data, before a training relies on them. */
#ifndef PIANOLA_UNIT_CHECK_H
#define PIANOLA_UNIT_CHECK_H
#include "unit_room.h"

/* Checks the unit of layer l: its functions write only what they say, and all of it, read only what they are given, and
 * give the same bits twice, whatever was in their memory before. Returns false and sets why, which names the unit, the
 * function and the operand. Not for several threads at once. */
bool unit_check(const struct rt_model *m, const struct rt_layer *l, const struct unit_memory *memory, char *why,
                size_t nwhy);
/* Returns whether a check of one layer's unit serves the other's: it is the same code, in the same sizes. */
bool unit_same(const struct rt_layer *a, const struct rt_layer *b);
/* stage_host.c: checks the layers of a stage in the same ways: its jobs F, I and W as the host runs them, in the places
 * of its layout. table: the table of tokens that it computes with, or NULL. */
bool stage_check(const struct rt_model *m, const struct rt_stage *s, const struct rt_stage *table, char *why,
                 size_t nwhy);
/* Checks all units of a program, once for each size. */
bool units_check(const struct rt_program *p, const struct unit_memory *memory, char *why, size_t nwhy);

/* The slope along a direction of x, or of a parameter. gradient: from the unit's gradient. difference: from forwards.
 * They may differ by a tolerance times `scale`, the sum of the gradient's absolute values, plus `rounding`, the error
 * of differences in fp32. */
struct unit_slope {
    const char *name; /* "x", or the parameter's */
    int32_t layer;    /* the parameter's, by its index in the model */
    double gradient, difference, scale, rounding;
};
/* Compares gradients with differences. slope: has room for the parameters and x; returns their number, or -1 with why.
 */
int unit_slopes(const struct rt_model *m, const struct rt_layer *l, const struct unit_memory *memory,
                struct unit_slope *slope, char *why, size_t nwhy);
int stage_slopes(const struct rt_model *m, const struct rt_stage *s, const struct rt_stage *table,
                 struct unit_slope *slope, char *why, size_t nwhy);
#endif
