/* A stage of layers as the subject of a trial: its jobs F, I and W as the host runs them, in the memory that the
 * compiler has laid out. Its weights are followed by the table that it computes with, if any. The loss of a last stage
 * stands for y, and its gradient for dy is 1. */
#include "data.h"
#include "store/hash.h"
#include "unit_check.h"
#include "unit_trial.h"
#include <stdio.h>

static const struct rt_layer *last_layer(const struct trial *t) { return t->stage->layer + t->stage->nlayers - 1; }

static bool stage_runs(const struct trial *t, enum unit_operation op) {
    return op != UNIT_WEIGHT || t->room[OPERAND_w].bytes > 0;
}

static int64_t stage_bytes(const struct trial *t, enum operand operand) {
    const struct rt_stage *s = t->stage;
    switch (operand) {
    case OPERAND_x: return s->input;
    case OPERAND_dx: return s->grad;
    case OPERAND_y:
    case OPERAND_dy: return ends_in_loss(s) ? (int64_t)sizeof(float) : s->act;
    case OPERAND_stash: return s->stash;
    case OPERAND_extra: return s->ext;
    case OPERAND_work: return s->work;
    case OPERAND_w:
    case OPERAND_dw: return s->weight + (t->table ? t->table->weight : 0);
    case OPERAND_frozen: return s->frozen;
    case OPERAND_tokens:
    case OPERAND_targets: return (int64_t)data_half(t->m);
    case OPERAND_inputs: return (int64_t)(data_input_at(t->m, t->m->ninputs) - data_input_at(t->m, 0));
    default: return 0;
    }
}

/* Returns whether a job has an operand: I and W have what F kept, and W what I left. */
static bool stage_has_operand(const struct trial *t, enum unit_operation op, enum operand operand) {
    if (operand == OPERAND_dy)
        return op == UNIT_INPUT && !ends_in_loss(t->stage);
    return op == UNIT_FORWARD || (operand != OPERAND_x && operand != OPERAND_y);
}

static void draw_inputs_of_units(const struct trial *t) {
    for (int k = 0; k < t->m->ninputs; k++) {
        const struct rt_input *input = &t->m->input_of_units[k];
        char *at = t->value[OPERAND_inputs] + (data_input_at(t->m, k) - data_input_at(t->m, 0));
        for (int64_t i = 0; i < (int64_t)t->m->rows * input->columns; i++)
            if (input->floats)
                ((float *)(void *)at)[i] = trial_random(OPERAND_inputs, i);
            else
                ((int32_t *)(void *)at)[i] = (int32_t)(host_hash(OPERAND_inputs, (uint64_t)i) % (uint64_t)input->below);
    }
}

/* Draws parameters as a training's first ones, with a little noise on those that are 0. */
static bool draw_stage(const struct trial *t) {
    float *w = (float *)(void *)t->value[OPERAND_w], *frozen = (float *)(void *)t->value[OPERAND_frozen];
    draw_inputs_of_units(t);
    if (t->stage->weight > 0)
        host_init(t->m, t->stage, w, 1);
    if (t->table)
        host_init(t->m, t->table, w + t->stage->weight / 4, 1);
    for (int64_t i = 0; i < t->room[OPERAND_w].bytes / 4; i++)
        w[i] += 0.02f * trial_random(OPERAND_w, i);
    for (int64_t i = 0; i < t->room[OPERAND_frozen].bytes / 4; i++)
        frozen[i] = 0.2f * trial_random(OPERAND_frozen, i);
    if (ends_in_loss(t->stage))
        *(float *)(void *)t->value[OPERAND_dy] = 1;
    return true;
}

/* A job, which reaches the runtime's guarded call of units as such a call's config. */
struct job {
    const struct trial *t;
    enum unit_operation op;
    char *const *at;
};

static void run_in_room(const struct pianola_unit_call *call) {
    const struct job *job = call->config;
    const struct trial *t = job->t;
    const struct rt_draw draw = {.seed = 1};
    char *const *at = job->at;
    const struct rt_batch batch = {.token = (const int32_t *)(const void *)at[OPERAND_tokens],
                                   .target = (const int32_t *)(const void *)at[OPERAND_targets],
                                   .x = (const float *)(const void *)at[OPERAND_tokens],
                                   .y = (const float *)(const void *)at[OPERAND_targets],
                                   .inputs = at[OPERAND_inputs]};
    const bool loss = ends_in_loss(t->stage);
    struct rt_bind bind = {.batch = &batch, .draw = &draw, .first = !t->add, .vfirst = !t->add};
    bind.w = (float *)(void *)at[OPERAND_w], bind.dw = (float *)(void *)at[OPERAND_dw];
    bind.v = t->table ? bind.w + t->stage->weight / 4 : NULL;
    bind.dv = t->table && bind.dw ? bind.dw + t->stage->weight / 4 : NULL;
    bind.frozen = (float *)(void *)at[OPERAND_frozen];
    bind.at[SP_X] = at[OPERAND_x], bind.at[SP_Y] = loss ? NULL : at[OPERAND_y];
    bind.loss = loss ? (float *)(void *)at[OPERAND_y] : NULL;
    bind.at[SP_STASH] = at[OPERAND_stash], bind.at[SP_EXT] = at[OPERAND_extra];
    bind.at[SP_WORK] = at[OPERAND_work];
    bind.at[SP_DY] = at[OPERAND_dy], bind.at[SP_DX] = at[OPERAND_dx];
    if (job->op == UNIT_FORWARD)
        host_forward(t->m, t->stage, &bind);
    else
        host_backward(t->m, t->stage, &bind, job->op == UNIT_INPUT, job->op == UNIT_WEIGHT);
}

static struct unit_fault call_stage(const struct trial *t, enum unit_operation op, char *const at[NOPERANDS]) {
    struct job job = {t, op, at};
    struct pianola_unit_call call = {.config = &job};
    return t->memory->call(run_in_room, &call);
}

static int name_stage(const struct trial *t, char *out, size_t n) {
    const struct rt_layer *first = t->stage->layer, *last = last_layer(t);
    if (first == last)
        return snprintf(out, n, "layer %d (%s)", first->index, name_of_layer(first));
    return snprintf(out, n, "layers %d to %d (%s to %s)", first->index, last->index, name_of_layer(first),
                    name_of_layer(last));
}
static int name_job(const struct trial *t, enum unit_operation op, char *out, size_t n) {
    static const char *const job[UNIT_OPERATIONS] = {"forward", "input gradient", "weight gradient"};
    int length = name_stage(t, out, n);
    return length + snprintf(out + length, n - (size_t)length, ": the %s ", job[op]);
}

static const struct subject subject_stage = {stage_runs, stage_bytes, stage_has_operand, draw_stage,
                                             call_stage, name_job,    name_stage};

bool stage_check(const struct rt_model *m, const struct rt_stage *s, const struct rt_stage *table, char *why,
                 size_t nwhy) {
    struct trial t = {.of = &subject_stage, .m = m, .stage = s, .table = table, .why = why, .nwhy = nwhy};
    t.memory = &unit_memory_host;
    return trial_check(&t, false);
}

int stage_slopes(const struct rt_model *m, const struct rt_stage *s, const struct rt_stage *table,
                 struct unit_slope *slope, char *why, size_t nwhy) {
    struct trial t = {.of = &subject_stage, .m = m, .stage = s, .table = table, .why = why, .nwhy = nwhy};
    t.memory = &unit_memory_host;
    return trial_slopes(&t, slope);
}
