/* The layers on a CUDA device: the sweeps of layers_host.c, enqueued on a stream. */
#include "cuda_math.cuh"
#include "keys.h"

#define X(name, ...) &cuda_##name,
static const struct cuda_layer *const kinds[NLAYERS] = {LAYERS(X)};
#undef X
static const struct cuda_halves *halves_of(const struct rt_layer *l) {
    switch (l->kind) {
    case LAYER_cross_entropy: return &cuda_cross_entropy_halves;
    case LAYER_gather_kv: return &cuda_gather_kv_halves;
    case LAYER_again_kv: return &cuda_again_kv_halves;
    case LAYER_to_heads: return &cuda_to_heads_halves;
    case LAYER_to_rows: return &cuda_to_rows_halves;
    case LAYER_to_experts: return &cuda_to_experts_halves;
    case LAYER_to_tokens: return &cuda_to_tokens_halves;
    default: return NULL;
    }
}
static void do_half(void (*half)(const struct cuda_call *c), const struct cuda_call *c) {
    if (half)
        half(c);
}

/* ---- adjacent layers fused into one kernel ----
 *
 * Programs do not depend on fusion: each layer keeps its slots, and layers that a stage boundary separates run one by
 * one. Only calls of a sweep are fused, never weight gradients, which run layer by layer. In a backward in parts, a
 * fused kernel runs with the part of its first layer, whichever parts its other layers are in, so the calls are the
 * same as in a whole backward. Such a kernel writes some results early, which does no harm: the first layers read only
 * the stash, ext and operands, except for a join's input (see there). No kernel fuses across the middle of a layer
 * where a team exchanges: no row of these tables has such a layer. */
struct fusion {
    int n, kind[3]; /* in the order of the sweep */
    bool (*run)(const struct cuda_call *c, const struct rt_layer *end);
};
static const struct fusion forwards[] = {
    {2, {LAYER_linear, LAYER_gelu}, cuda_linear_map},
    {3, {LAYER_linear, LAYER_again, LAYER_gelu}, cuda_linear_map}, /* `again` does nothing in a forward */
    {2, {LAYER_linear, LAYER_relu}, cuda_linear_map},
    {3, {LAYER_linear, LAYER_again, LAYER_relu}, cuda_linear_map},
    {3, {LAYER_join, LAYER_fork, LAYER_layernorm}, cuda_join_norm},
    {2, {LAYER_join, LAYER_layernorm}, cuda_join_norm},
    {3, {LAYER_join, LAYER_fork, LAYER_rmsnorm}, cuda_join_norm},
    {2, {LAYER_join, LAYER_rmsnorm}, cuda_join_norm},
    {0, {}, NULL},
};
static const struct fusion inputs[] = {
    {2, {LAYER_linear, LAYER_gelu}, cuda_linear_gelu_input},
    {2, {LAYER_layernorm, LAYER_fork}, cuda_norm_fork_input},
    {2, {LAYER_rmsnorm, LAYER_fork}, cuda_norm_fork_input},
    {0, {}, NULL},
};

/* Enqueues the layers from c's on that a row of the table fuses, and returns their number, or 0. step is 1 or -1; left:
 * the layers to the end of the stage. */
static int fused(const struct fusion *fusion, const struct cuda_call *c, int step, int left) {
    for (; fusion->n > 0; fusion++) {
        int same = 0;
        while (same < fusion->n && same < left && c->l[same * step].kind == fusion->kind[same])
            same++;
        if (same == fusion->n && fusion->run(c, c->l + (fusion->n - 1) * step))
            return fusion->n;
    }
    return 0;
}

/* ---- sweeps ---- */

static size_t element(const struct rt_model *m) { return (size_t)precision_bytes(m->precision); }

static void copy_bytes(void *to, const void *from, size_t bytes, cudaStream_t stream) {
    CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream));
}

static size_t bytes_in(const struct rt_model *m, const struct rt_layer *l) { return element(m) * l->rows * l->in; }
static size_t bytes_out(const struct rt_model *m, const struct rt_layer *l) {
    return element(m) * rows_out(l) * l->out;
}

static void take_input(const struct rt_model *m, const struct rt_bind *at, const struct rt_layer *first,
                       cudaStream_t stream) {
    if (first->x.space == SP_STASH)
        copy_bytes(at->at[SP_STASH] + first->x.off, at->at[SP_X], bytes_in(m, first), stream);
    if (at->more)
        cuda_add_more(m, at, at->at[SP_STASH] + first->x.off, (int64_t)first->rows * first->in, stream);
}

/* Copy, in the middle of a layer, the data that it gives to its team, and the data that it gets. */
static void give(const struct cuda_call *c, const void *x, size_t bytes) {
    if ((const char *)x != c->at->at[SP_GIVE])
        copy_bytes(c->at->at[SP_GIVE], x, bytes, c->stream);
}
static void get(const struct cuda_call *c, struct slot to, size_t bytes) {
    if (to.space != SP_GOT && to.space != SP_NONE)
        copy_bytes(c->at->at[to.space] + to.off, c->at->at[SP_GOT], bytes, c->stream);
}
static const void *input_in(const struct cuda_call *c, struct slot x) {
    return x.space == SP_NONE ? (const void *)c->at->batch->x : c->at->at[x.space] + x.off;
}

/* Do the same in a backward. The data that `again` gathers stays where the layer before it reads it. */
static void give_back(const struct cuda_call *c) {
    if (c->l->kind == LAYER_again)
        give(c, input_in(c, c->l->aux), bytes_in(c->m, c->l));
    else
        give(c, c->at->at[c->l->dy.space] + c->l->dy.off, bytes_out(c->m, c->l));
}
static void get_back(const struct cuda_call *c) {
    if (c->l->kind != LAYER_again)
        get(c, c->l->dx, bytes_in(c->m, c->l));
}

void cuda_forward_part(const struct rt_model *m, const struct rt_stage *s, const struct rt_bind *at, int from, int to,
                       void *workspace, cudaStream_t stream) {
    const struct rt_layer *first = s->layer + from, *last = s->layer + to - 1;
    bool gets = at->at[SP_GOT], gives = at->at[SP_GIVE];
    const struct cuda_call begin = {m, first, at, stream, workspace}, end = {m, last, at, stream, workspace};
    if (gets && halves_of(first))
        do_half(halves_of(first)->get, &begin);
    else if (gets)
        get(&begin, first->y, bytes_out(m, first));
    else if (from == 0)
        take_input(m, at, first, stream);
    for (const struct rt_layer *l = first + gets; l <= last - gives;) {
        struct cuda_call c = {m, l, at, stream, workspace};
        int n = fused(forwards, &c, 1, (int)(last - l) + 1);
        if (n == 0 && kinds[l->kind]->forward)
            kinds[l->kind]->forward(&c);
        l += n > 0 ? n : 1;
    }
    if (gives && halves_of(last))
        do_half(halves_of(last)->give, &end);
    else if (gives)
        give(&end, input_in(&end, last->x), bytes_in(m, last));
    else if (to == s->nlayers && last->y.space == SP_STASH)
        copy_bytes(at->at[SP_Y], at->at[SP_STASH] + last->y.off, bytes_out(m, last), stream);
}

/* Clears the gap after a layer's parameters in a gradient, so that sums and copies of it are defined. begin: the end of
 * the parameters, in elements. */
static void clear_gap(const struct cuda_call *c, float *dw, int64_t begin) {
    int64_t size = (int64_t)element(c->m);
    int64_t end = (begin * size + PARAM_ALIGN - 1) / PARAM_ALIGN * PARAM_ALIGN / size;
    if (end > begin)
        CUDA(cudaMemsetAsync(dw + begin, 0, (size_t)(end - begin) * sizeof(float), c->stream));
}

static void weight_gradient(const struct cuda_call *c, struct rt_bind *at) {
    int64_t table = shared_table(c->m, c->l);
    kinds[c->l->kind]->weight(c);
    if (cuda_first(c))
        clear_gap(c, layer_gradient(at, c->l), c->l->param / (int64_t)element(c->m) + c->l->nparam);
    if (table > 0 && at->vfirst) {
        clear_gap(c, at->dv, table);
        at->vfirst = false; /* if both layers are in this stage, the other one adds */
    }
}

/* Reads the inputs of a backward: the output's gradient and, on slice s, the gradients from later slices for the keys
 * and values of earlier ones. */
static void take_gradient(const struct rt_model *m, const struct rt_bind *at, const struct rt_stage *s, bool input,
                          cudaStream_t stream) {
    const struct rt_layer *last = s->layer + s->nlayers - 1;
    if (input && at->dkv && at->dpast)
        copy_bytes(at->dpast, at->dkv, (size_t)past_bytes(at->slice, (int32_t)(s - at->slice), (int64_t)element(m)),
                   stream);
    if (input && last->dy.space == SP_EXT)
        copy_bytes(at->at[SP_EXT] + last->dy.off, at->at[SP_DY], bytes_out(m, last), stream);
    if (at->more)
        cuda_add_more(m, at, at->at[SP_EXT] + last->dy.off, (int64_t)rows_out(last) * last->out, stream);
}

void cuda_backward_part(const struct rt_model *m, const struct rt_stage *s, const struct rt_bind *at,
                        struct rt_sweep sweep, int *ahead, void *workspace, cudaStream_t stream) {
    const struct rt_layer *first = s->layer + sweep.from, *last = s->layer + sweep.to - 1;
    bool gets = at->at[SP_GOT], gives = at->at[SP_GIVE],
         begins = sweep.to == s->nlayers && !gets && sweep.kind != SWEEP_WEIGHTS;
    const struct cuda_call begin = {m, last, at, stream, workspace}, end = {m, first, at, stream, workspace};
    if (gets && halves_of(last))
        do_half(halves_of(last)->get_back, &begin);
    else if (gets)
        get_back(&begin);
    else if (begins)
        take_gradient(m, at, s, sweep.input, stream);
    struct rt_bind mine = *at;
    mine.vfirst = at->vfirst && !uses_table(m, s, sweep.to);
    int done = begins || gets ? 0 : *ahead; /* layers from l on whose input gradient is already computed */
    for (const struct rt_layer *l = last - gets; l >= first + gives; l--) {
        struct cuda_call c = {m, l, &mine, stream, workspace};
        bool wanted = sweep.input && sweep.kind != SWEEP_WEIGHTS && has_input_gradient(l);
        if (wanted && done == 0)
            done = fused(inputs, &c, -1, (int)(l - s->layer) + 1);
        if (wanted && done == 0 && kinds[l->kind]->input)
            kinds[l->kind]->input(&c);
        done -= done > 0;
        bool put_off = sweep.kind == SWEEP_PUT_OFF && l == first + 1;
        if (sweep.weight && !put_off && kinds[l->kind]->weight && has_weight_gradient(l))
            weight_gradient(&c, &mine);
    }
    *ahead = done;
    if (gives && halves_of(first))
        do_half(halves_of(first)->give_back, &end);
    else if (gives)
        give_back(&end);
}
