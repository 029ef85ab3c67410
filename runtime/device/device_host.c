/* The host as a device: layers run at once in the rank's own thread, messages through comm_local. */
#include "host_device.h"
#include "job.h"
#include "store/seconds.h"
#include <stdlib.h>
#include <string.h>

static struct host_rank *self(const struct replay *z) { return z->self; }

static double host_clock(struct replay *z) {
    return seconds() - self(z)->origin;
}

static void host_record(struct replay *z, int32_t i, double start, double end) {
    self(z)->ended[i] = z->step + 1;
    self(z)->stamp[i] = (struct rt_stamp){start, end};
}

static bool ended(const struct replay *z, int32_t i) { return self(z)->ended[i] > z->step; }

static bool host_wait(struct replay *z, const struct rt_instr *x, int32_t i) {
    (void)x;
    return ended(z, i);
}

static bool host_stamp(struct replay *z, int32_t i, double *start, double *end) {
    *start = self(z)->stamp[i].start;
    *end = self(z)->stamp[i].end;
    return ended(z, i);
}

static void run_job(struct replay *z, const struct rt_instr *x) {
    struct host_rank *h = self(z);
    const struct rt_program *p = z->program;
    const struct rt_stage *s = &p->stage[x->stage];
    struct rt_batch batch = {0};
    float lost; /* the loss of a forward that is repeated */
    struct rt_bind at = job_bind(p, z->rank, h->arena, x);
    at.batch = &batch;
    at.loss = x->op == OP_F ? &h->loss[x->batch] : &lost;
    if (stage_reads_batch(p, x->stage))
        data_batch(h->data, z->step, x->batch, h->batch, &batch);
    if (x->op == OP_F && x->at[ROLE_input] >= 0 && at.at[SP_X]) { /* recompute: keep the input only */
        char *input = job_operand(h->arena, x, ROLE_input);
        memcpy(input, at.at[SP_X], (size_t)s->input);
        host_add_more(&at, input, s->input / 4);
        at.at[SP_X] = input;
        at.nmore = 0;
    }
    if (x->op == OP_F || x->op == OP_R)
        host_forward(p->model, s, &at);
    else
        host_backward(p->model, s, &at, x->op != OP_W, x->op != OP_I);
}

static void host_launch(struct replay *z, const struct rt_instr *x) {
    char *arena = self(z)->arena;
    float *dw = (float *)(void *)job_operand(arena, x, ROLE_dw);
    if (x->op == OP_U)
        host_update(z->program->model, &z->program->stage[x->stage], (float *)(void *)job_operand(arena, x, ROLE_w), dw,
                    (float *)(void *)job_operand(arena, x, ROLE_opt), z->step + 1);
    else if (x->op == OP_ADD)
        host_add(dw, (const float *)(const void *)job_operand(arena, x, ROLE_src), x->bytes / 4, x->first);
    else if (x->op == OP_ZERO)
        memset(dw, 0, (size_t)x->bytes);
    else
        run_job(z, x);
}

static bool host_meet(struct replay *z, const struct rt_instr *x) {
    double start, end;
    struct host_rank *h = self(z);
    if (!(x->op == OP_REDUCE ? h->comm->reduce : h->comm->message)(h->link, z, x, &start, &end))
        return false;
    host_record(z, (int32_t)(x - z->program->rank[z->rank].ins), start, end);
    return true;
}

static void host_idle(struct replay *z) { self(z)->comm->idle(self(z)->link, z); }

const struct device host_device = {
    .wait = host_wait,
    .launch = host_launch,
    .send = host_meet,
    .recv = host_meet,
    .reduce = host_meet,
    .record = host_record,
    .clock = host_clock,
    .stamp = host_stamp,
    .idle = host_idle,
};

void *host_pages(size_t n, size_t size) {
    size_t bytes = (n * size + 4095) / 4096 * 4096;
    void *p = aligned_alloc(4096, bytes ? bytes : 4096);
    return p ? memset(p, 0, bytes) : NULL;
}

bool host_take(struct replay *z, struct host_rank *h, const struct rt_program *p, int rank) {
    const struct rt_rank *k = &p->rank[rank];
    *z = (struct replay){.device = &host_device, .program = p, .rank = rank, .running = -1, .self = h};
    z->cursor = host_pages((size_t)k->nlanes, sizeof *z->cursor);
    z->blocked = host_pages((size_t)k->nlanes, sizeof *z->blocked);
    h->arena = host_pages((size_t)k->arena, 1);
    h->ended = host_pages((size_t)k->nins, sizeof *h->ended);
    h->stamp = host_pages((size_t)k->nins, sizeof *h->stamp);
    h->batch = host_pages(data_bytes(p->model), 1);
    return z->cursor && z->blocked && h->arena && h->ended && h->stamp && h->batch;
}

void host_release(struct replay *z, struct host_rank *h) {
    free(z->cursor);
    free(z->blocked);
    free(h->ended);
    free(h->stamp);
    free(h->batch);
}

/* Everything but the weights stays as it came: nothing reads it before it is written, verify has proved. */
void host_begin(struct replay *z, uint64_t seed) {
    const struct rt_program *p = z->program;
    const struct rt_rank *k = &p->rank[z->rank];
    for (int i = 0; i < k->nhomes; i++)
        host_init(p->model, &p->stage[k->home[i].stage], (float *)(void *)(self(z)->arena + k->home[i].weight), seed);
}
