/* The call of a unit's function, from a layer's slots, for hosts and devices alike. */
#ifndef PIANOLA_UNIT_CALL_H
#define PIANOLA_UNIT_CALL_H
#include "compute.h"
#include "data.h"
#include "dropout.h"
#include <string.h>

static inline void *unit_operand(const struct rt_bind *at, struct slot slot, bool has) {
    char *base = has ? at->at[slot.space] : NULL;
    return base ? base + slot.off : NULL;
}

/* Returns the place of the unit's random number, before its workspace; NULL: it draws none, or nothing is drawn. */
static inline uint64_t *unit_seed_at(const struct rt_bind *at, const struct rt_layer *l) {
    return (uint64_t *)unit_operand(at, l->tmp, l->unit->side & UNIT_READS_SEED && at->draw);
}

/* Returns the call of an operation on layer l of model m. w, dw: the layer's trained parameters and their gradient. */
static inline struct pianola_unit_call unit_call(const struct rt_model *m, const struct rt_bind *at,
                                                 const struct rt_layer *l, enum unit_operation op, const void *w,
                                                 void *dw) {
    const struct rt_unit *unit = l->unit;
    const bool forward = op == UNIT_FORWARD, weight = op == UNIT_WEIGHT;
    const bool reads_x = forward || unit->keeps & UNIT_KEEPS_X, reads_y = forward || unit->keeps & UNIT_KEEPS_Y;
    struct slot work = l->tmp;
    struct pianola_unit_call call;
    memset(&call, 0, sizeof call);
    work.off += unit_seed_bytes(unit);
    call.rows = l->rows;
    call.out_rows = rows_out(l);
    call.in = l->in;
    call.out = l->out;
    call.x = reads_x && l->x.space == SP_NONE ? (const void *)at->batch->x : unit_operand(at, l->x, reads_x);
    call.y = unit_operand(at, l->y, reads_y);
    call.stash = unit_operand(at, l->aux, unit->stash > 0);
    call.extra = unit_operand(at, l->left, !forward && unit->extra > 0);
    call.work = unit_operand(at, work, unit->work[op] > 0);
    call.w = w;
    call.frozen = unit_elements(unit, true) > 0 ? at->frozen + l->frozen / (int64_t)sizeof *at->frozen : NULL;
    call.dw = weight ? dw : NULL;
    call.add = weight && !writes_gradient(at, l);
    call.dy = unit_operand(at, l->dy, !forward);
    call.dx = unit_operand(at, l->dx, op == UNIT_INPUT && l->dx.space != SP_NONE);
    call.tokens = unit->side & UNIT_READS_TOKENS ? at->batch->token : NULL;
    call.targets = unit->side & UNIT_READS_TARGETS ? at->batch->target : NULL;
    call.seed = unit_seed_at(at, l);
    for (int32_t i = 0; i < unit->ninputs; i++)
        call.inputs[i] = at->batch->inputs + data_input_at(m, unit->input[i]) - data_input_at(m, 0);
    call.config = unit->code->config;
    return call;
}

/* Returns the random number of a unit's layer for a step's microbatch. seed: the training's. */
ON_BOTH uint64_t unit_seed(uint64_t seed, uint32_t step, uint32_t batch, uint32_t layer) {
    struct words4 counter = {{0x756e6974, batch, step, layer}};
    struct words4 words = philox(counter, (uint32_t)seed, (uint32_t)(seed >> 32));
    return (uint64_t)words.at[1] << 32 | words.at[0];
}
#endif
