/* Decoding: decode.h.
 *
 * Runs the layers' own forwards, on copies of the layers that have the call's rows and another layout of tensors:
 * nothing is kept for a backward, so a few buffers take turns. A residual block adds to its input in place. Two layers
 * run differently: attention, which reads the kept keys and values, and products with a single row, for which BLAS has
 * a routine that does not pack the matrix. */
#include "decode.h"
#include "attend.h"
#include "host.h"
#include <cblas.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_BUFFERS = 8 };

struct step {
    struct rt_layer l;
    float *w;             /* its stage's weights */
    float *keys, *values; /* an attention's: room x kv_heads x dim */
};
struct decoder {
    struct decode_model model;
    struct step *step;
    int32_t nsteps, room, most, done;
    char *memory;
    int64_t bytes;
    float *logits;
};

static const struct host_layer *layer_of(int kind) {
    switch (kind) {
#define X(name, ...)                                                                                                   \
    case LAYER_##name: return &host_##name;
        LAYERS(X)
#undef X
    default: return NULL;
    }
}

const char *decode_refuses(const struct rt_model *m, const struct rt_stage *stage, int32_t nstages) {
    const struct rt_stage *last = &stage[nstages - 1];
    int depth = 0;
    if (m->input != INPUT_TOKENS || last->nlayers == 0 || last->layer[last->nlayers - 1].kind != LAYER_cross_entropy)
        return "the model does not predict tokens";
    for (int32_t s = 0; s < nstages; s++)
        for (const struct rt_layer *l = stage[s].layer; l < stage[s].layer + stage[s].nlayers; l++) {
            depth += (l->kind == LAYER_fork) - (l->kind == LAYER_join);
            if (l->kind == LAYER_route)
                return "a mixture of experts cannot be decoded: its experts' room is counted per whole sequence";
            if (rt_kind_of(l)->whole)
                return "a unit cannot be decoded: its code works on whole microbatches";
            if (l->set == SET_FROZEN)
                return "a frozen layer cannot be decoded yet: take the weights with export-weights, and generate with "
                       "a model that does not freeze it";
            if (depth > MOST_BUFFERS - 2)
                return "its residual blocks are nested too deeply to be decoded";
        }
    return NULL;
}

/* ---- layout ---- */

/* Buffers of `most` rows of the widest layer: the one with the latest output, and those with the inputs of open
 * residual blocks. */
struct turns {
    int now, open[MOST_BUFFERS], nopen, nbuffers;
};
static int next_buffer(struct turns *turns) {
    for (int b = 0; b < MOST_BUFFERS; b++) {
        bool taken = b == turns->now;
        for (int i = 0; i < turns->nopen; i++)
            taken |= turns->open[i] == b;
        if (taken)
            continue;
        turns->nbuffers = b < turns->nbuffers ? turns->nbuffers : b + 1;
        return b;
    }
    return -1;
}

/* Sets the layers' slots to numbers of buffers. */
static void take_turns(struct decoder *d, struct turns *turns) {
    *turns = (struct turns){.now = -1};
    for (struct step *step = d->step; step < d->step + d->nsteps; step++) {
        struct rt_layer *l = &step->l;
        bool opens = l->kind == LAYER_fork, closes = l->kind == LAYER_join;
        l->x = (struct slot){turns->now < 0 ? SP_NONE : SP_STASH, turns->now};
        if (opens)
            turns->open[turns->nopen++] = turns->now;
        else
            turns->now = closes ? turns->open[--turns->nopen] : next_buffer(turns);
        l->y = (struct slot){SP_STASH, turns->now};
        l->aux = closes ? l->y : (struct slot){SP_WORK, 0};
    }
}

static int64_t whole_line(int64_t bytes) { return (bytes + 63) / 64 * 64; }

static bool lay_out_decoder(struct decoder *d) {
    struct turns turns;
    int64_t widest = 0, aux = 2, kept = 0, head = d->nsteps - 1; /* the last layer makes logits, for one row */
    take_turns(d, &turns);
    for (int32_t i = 0; i < d->nsteps; i++) {
        const struct rt_layer *l = &d->step[i].l;
        int64_t columns = i == head || l->in > l->out ? l->in : l->out;
        int64_t each = l->config.attention.heads + l->config.attention.kv_heads;
        widest = columns > widest ? columns : widest;
        aux = each > aux ? each : aux;
        kept += l->kind == LAYER_attention ? 2 * whole_line(4 * (int64_t)d->room * (l->in - l->out) / 2) : 0;
    }
    int64_t buffer = whole_line(4 * widest * d->most), logits = whole_line(4 * (int64_t)d->step[head].l.out);
    aux = whole_line(4 * aux * d->most);
    d->bytes = turns.nbuffers * buffer + aux + logits + kept;
    if (!(d->memory = aligned_alloc(64, (size_t)d->bytes)))
        return false;
    char *at = d->memory + turns.nbuffers * buffer + aux;
    d->logits = (float *)(void *)at;
    at += logits;
    for (struct step *step = d->step; step < d->step + d->nsteps; step++) {
        struct rt_layer *l = &step->l;
        int64_t cache = whole_line(4 * (int64_t)d->room * (l->in - l->out) / 2);
        l->x.off *= buffer;
        l->y.off *= buffer;
        l->aux.off = l->aux.space == SP_WORK ? turns.nbuffers * buffer : l->y.off;
        if (l->kind != LAYER_attention)
            continue;
        step->keys = (float *)(void *)at;
        step->values = (float *)(void *)(at + cache);
        at += 2 * cache;
    }
    return true;
}

/* Returns the layer with its parameters at their fp32 offsets. */
static struct rt_layer fp32_layer(const struct decode_model *model, const struct rt_layer *l) {
    struct rt_layer fp32 = *l;
    fp32.param = 4 * (l->param / precision_bytes(model->m->precision));
    return fp32;
}

struct decoder *decoder_open(const struct decode_model *model, int32_t room, int32_t most) {
    struct decoder *d = calloc(1, sizeof *d);
    int32_t n = 0;
    for (int32_t s = 0; s < model->nstages; s++)
        n += model->stage[s].nlayers;
    if (d && (d->step = calloc((size_t)n, sizeof *d->step))) {
        *d = (struct decoder){.model = *model, .step = d->step, .room = room, .most = most};
        for (int32_t s = 0; s < model->nstages; s++)
            for (int32_t i = 0; i < model->stage[s].nlayers; i++)
                d->step[d->nsteps++] =
                    (struct step){.l = fp32_layer(model, &model->stage[s].layer[i]), .w = model->weight[s]};
        d->nsteps--; /* the loss */
        if (lay_out_decoder(d))
            return d;
    }
    decoder_close(d);
    return NULL;
}

int64_t decoder_bytes(const struct decoder *d) { return d->bytes; }

void decoder_close(struct decoder *d) {
    if (!d)
        return;
    free(d->memory);
    free(d->step);
    free(d);
}

/* ---- running ---- */

static void attend_to_kept(const struct host_call *c, const struct step *step, int32_t before) {
    const struct rt_layer *l = c->l;
    const struct attention_config *of = &l->config.attention;
    int32_t columns = (l->in - l->out) / 2;
    float *x = host_at(c, l->x);
    host_rotate(l, x, false);
    for (int64_t r = 0; r < l->rows; r++) {
        memcpy(step->keys + (before + r) * columns, x + r * l->in + l->out, (size_t)columns * sizeof *x);
        memcpy(step->values + (before + r) * columns, x + r * l->in + l->out + columns, (size_t)columns * sizeof *x);
    }
    struct segment all = {.k = step->keys, .v = step->values, .stride = columns, .rows = before + l->rows};
    struct attend a = {.q = x,
                       .y = host_at(c, l->y),
                       .lse = host_at(c, l->aux),
                       .q_stride = l->in,
                       .y_stride = l->out,
                       .sequences = 1,
                       .first = before,
                       .rows = l->rows,
                       .heads = of->heads,
                       .kv_heads = of->kv_heads,
                       .dim = l->out / of->heads,
                       .nsegments = 1,
                       .segment = &all};
    host_attend(&a);
}

/* Multiplies one row: a linear layer, or an unembedding. */
static void multiply_row(const struct host_call *c, float *y) {
    const struct rt_layer *l = c->l;
    const float *w = host_w(c), *bias = w + (int64_t)l->in * l->out;
    bool table = l->kind == LAYER_unembedding, biased = !table && l->nparam > (int64_t)l->in * l->out;
    if (biased)
        memcpy(y, bias, (size_t)l->out * sizeof *y);
    if (table)
        cblas_sgemv(CblasRowMajor, CblasNoTrans, l->out, l->in, 1, c->at->v, l->in, host_x(c), 1, 0, y, 1);
    else
        cblas_sgemv(CblasRowMajor, CblasTrans, l->in, l->out, 1, w, l->out, host_x(c), 1, biased ? 1 : 0, y, 1);
}

const float *decode_next(struct decoder *d, const int32_t *token, int32_t n) {
    struct rt_batch batch = {.token = token};
    struct rt_bind at = {.v = d->model.table, .batch = &batch};
    struct rt_model m = *d->model.m;
    at.at[SP_STASH] = at.at[SP_WORK] = d->memory;
    m.rows = n;
    for (const struct step *step = d->step; step < d->step + d->nsteps; step++) {
        struct rt_layer l = step->l;
        struct host_call c = {&m, &l, &at};
        bool head = step == d->step + d->nsteps - 1, product = l.kind == LAYER_linear || l.kind == LAYER_unembedding;
        l.rows = n;
        l.first = d->done;
        l.length = n;
        at.w = step->w;
        if (head) {
            l.x.off += 4 * (int64_t)(n - 1) * l.in;
            l.rows = 1;
        }
        if (product && l.rows == 1)
            multiply_row(&c, head ? d->logits : host_at(&c, l.y));
        else if (l.kind == LAYER_attention)
            attend_to_kept(&c, step, d->done);
        else if (layer_of(l.kind)->forward)
            layer_of(l.kind)->forward(&c);
    }
    d->done += n;
    return d->logits;
}
