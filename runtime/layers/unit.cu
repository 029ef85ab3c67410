/* Units on a CUDA device: calls of their functions, which enqueue on the stream. */
#include "cuda.cuh"
extern "C" {
#include "unit_call.h"
}

/* Writes a layer's random number. counted, period: as in dropout.cu. */
static __global__ void draw_seed(uint64_t *to, uint64_t seed, uint32_t step, uint32_t batch, uint32_t layer,
                                 const int64_t *counted, int period) {
    if (counted)
        step = (uint32_t)(counted[0] - 1);
    batch += period > 0 ? (uint32_t)counted[1] * (uint32_t)period : 0;
    *to = unit_seed(seed, step, batch, layer);
}

static void cuda_run_unit(const struct cuda_call *c, enum unit_operation op) {
    const struct rt_layer *l = c->l;
    const struct rt_draw *draw = c->at->draw;
    void *dw = op == UNIT_WEIGHT ? cuda_dw<float>(c) : NULL;
    struct pianola_unit_call call = unit_call(c->m, c->at, l, op, l->nparam > 0 ? cuda_w<float>(c) : NULL, dw);
    call.stream = c->stream;
    if (call.seed)
        LAUNCH(draw_seed, 1, 1, 0, c->stream, unit_seed_at(c->at, l), draw->seed, (uint32_t)draw->step,
               (uint32_t)draw->batch, (uint32_t)l->index, draw->counted, draw->period);
    l->unit->code->run[op](&call);
    cuda_must(cudaGetLastError(), l->unit->name);
}

static void cuda_unit_forward(const struct cuda_call *c) { cuda_run_unit(c, UNIT_FORWARD); }
static void cuda_unit_input(const struct cuda_call *c) { cuda_run_unit(c, UNIT_INPUT); }
static void cuda_unit_weight(const struct cuda_call *c) { cuda_run_unit(c, UNIT_WEIGHT); }

const struct cuda_layer cuda_unit = {cuda_unit_forward, cuda_unit_input, cuda_unit_weight};
