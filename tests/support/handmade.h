/* Handmade models for tests: layers in reading order, and a job that runs on plain memory. */
#ifndef PIANOLA_HANDMADE_H
#define PIANOLA_HANDMADE_H
#include "compiler.h"
#include "rt.h"
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

static inline struct model *model_tokens(int rows, int context, int vocab, int batches) {
    struct model *m = NEW(struct model, 1);
    m->rt = (struct rt_model){.input = INPUT_TOKENS, .rows = rows, .context = context, .vocab = vocab};
    m->rt.batches = batches;
    m->rt.optimizer = OPT_SGD;
    m->rt.lr = 0.125f;
    m->layer = NEW(struct model_layer, 1000);
    return m;
}

static inline struct model *model_integers(int rows, int features, int batches) {
    struct model *m = model_tokens(rows, 0, 0, batches);
    m->rt.input = INPUT_INTEGERS;
    m->rt.features = features;
    return m;
}

/* Returns the values of fields that scripts leave out. */
static inline struct rt_config default_config(int kind) {
    switch (kind) {
    case LAYER_embedding: return (struct rt_config){.embedding = {.positions = true, .scale = 1}};
    case LAYER_linear: return (struct rt_config){.linear.bias = true};
    case LAYER_layernorm:
    case LAYER_rmsnorm:
    case LAYER_headnorm: return (struct rt_config){.norm.eps = 1e-5f};
    default: return (struct rt_config){0};
    }
}

/* Adds a layer; layers between a fork and its join belong to one unit. x: out of a linear, heads of an attention. */
static inline void add(struct model *m, int kind, int x) {
    static int depth;
    depth = m->nlayers == 0 ? 0 : depth;
    bool inside = depth > 0;
    depth += (kind == LAYER_fork) - (kind == LAYER_join);
    m->nitems += !inside;
    struct model_layer *l = &m->layer[m->nlayers++];
    *l = (struct model_layer){.kind = kind, .item = m->nitems - 1, .config = default_config(kind)};
    *(kind == LAYER_attention ? &l->config.attention.heads : &l->out) = x;
}

static inline struct model *gpt(int rows, int context, int vocab, int batches, int layers, int width, int heads) {
    struct model *m = model_tokens(rows, context, vocab, batches);
    add(m, LAYER_embedding, width);
    for (int i = 0; i < layers; i++) {
        add(m, LAYER_fork, 0);
        add(m, LAYER_layernorm, 0);
        add(m, LAYER_linear, 3 * width);
        add(m, LAYER_attention, heads);
        add(m, LAYER_linear, width);
        add(m, LAYER_join, 0);
        add(m, LAYER_fork, 0);
        add(m, LAYER_layernorm, 0);
        add(m, LAYER_linear, 4 * width);
        add(m, LAYER_gelu, 0);
        add(m, LAYER_linear, width);
        add(m, LAYER_join, 0);
    }
    add(m, LAYER_layernorm, 0);
    add(m, LAYER_linear, vocab);
    add(m, LAYER_cross_entropy, 0);
    return m;
}

static inline struct spec *spec_of(struct model *m, int stages) {
    struct spec *sp = NEW(struct spec, 1);
    sp->model = m;
    sp->stages = stages;
    sp->workers = 1;
    sp->batches = m ? m->rt.batches : 1;
    for (int i = 0; m && i < m->nlayers; i++)
        m->tied |= m->layer[i].kind == LAYER_unembedding;
    name_spec_sets(sp, m && m->tied, false);
    return sp;
}

/* Returns memory of one stage and microbatch, aligned and exact to the byte, so that ASan catches overruns. It starts
 * as NaN, which exposes reads before writes. A list keeps it reachable: a test is one process and frees nothing. */
static inline void *fresh(int64_t bytes) {
    static void **kept;
    void **p = memalign(64, 64 + (size_t)bytes);
    *p = (void *)kept;
    kept = p;
    return memset((char *)p + 64, 0xff, (size_t)bytes);
}

struct bench {
    struct stage *st;
    int n;
    struct rt_bind *at; /* per stage */
    float loss;
};

/* Chains the operands of all stages: y of one is x of the next, and dx of one is dy of the previous. table: the weights
 * that the stages share, or NULL. */
static inline struct bench bench_tied(struct stage *st, int n, const struct rt_stage *table,
                                      const struct rt_batch *batch) {
    struct bench r = {.st = st, .n = n, .at = NEW(struct rt_bind, n)};
    for (int s = 0; s < n; s++) {
        const struct rt_stage *t = &st[s].rt;
        struct rt_bind *at = &r.at[s];
        at->at[SP_STASH] = fresh(t->stash);
        at->at[SP_EXT] = fresh(t->ext);
        at->at[SP_WORK] = fresh(t->work);
        at->at[SP_Y] = fresh(t->act);
        at->at[SP_DX] = fresh(t->grad);
        at->at[SP_X] = s > 0 ? r.at[s - 1].at[SP_Y] : NULL;
        at->at[SP_DY] = NULL;
        if (s > 0)
            r.at[s - 1].at[SP_DY] = at->at[SP_DX];
        at->w = fresh(t->weight);
        at->dw = fresh(t->weight);
        at->v = table ? r.at[0].v ? r.at[0].v : fresh(table->weight) : NULL;
        at->dv = table ? r.at[0].dv ? r.at[0].dv : fresh(table->weight) : NULL;
        at->vfirst = true;
        at->batch = batch;
        at->first = true;
    }
    return r;
}
static inline struct bench bench_of(struct stage *st, int n, const struct rt_batch *batch) {
    return bench_tied(st, n, NULL, batch);
}
#endif
