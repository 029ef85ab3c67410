/* Units on the host: calls of their functions. */
#include "host.h"
#include "unit_call.h"

static void host_run_unit(const struct host_call *c, enum unit_operation op) {
    const struct rt_layer *l = c->l;
    const struct rt_draw *draw = c->at->draw;
    struct pianola_unit_call call =
        unit_call(c->m, c->at, l, op, l->nparam > 0 ? host_w(c) : NULL, op == UNIT_WEIGHT ? host_dw(c) : NULL);
    if (call.seed)
        *unit_seed_at(c->at, l) =
            unit_seed(draw->seed, (uint32_t)draw->step, (uint32_t)draw->batch, (uint32_t)l->index);
    l->unit->code->run[op](&call);
}

static void host_unit_forward(const struct host_call *c) { host_run_unit(c, UNIT_FORWARD); }
static void host_unit_input(const struct host_call *c) { host_run_unit(c, UNIT_INPUT); }
static void host_unit_weight(const struct host_call *c) { host_run_unit(c, UNIT_WEIGHT); }

const struct host_layer host_unit = {host_unit_forward, host_unit_input, host_unit_weight};
