/* The layers on a CUDA device: the sweeps of layers_host.c, enqueued on a stream. */
#include "cuda_math.cuh"

#define X(name, ...) &cuda_##name,
static const struct cuda_layer *const kinds[NLAYERS] = {LAYERS(X)};
#undef X

/* ---- adjacent layers fused into one kernel ----
 *
 * Programs do not depend on it: each layer keeps its slots, and layers that a stage boundary separates run one by one.
 * Only calls of a sweep are fused, never weight gradients, which run layer by layer. In a backward in parts, a kernel
 * runs with the part of its first layer, whichever part the others are in: so the calls are those of the whole. What
 * such a kernel writes too early, at the first layer's turn, does no harm: what the first layers read is in the stash,
 * in ext or in operands, except a join's input (see there). */
struct fusion {
    int n, kind[3]; /* in the order of the sweep */
    bool (*run)(const struct cuda_call *c, const struct rt_layer *end);
};
static const struct fusion forwards[] = {
    {2, {LAYER_linear, LAYER_gelu}, cuda_linear_map},
    {2, {LAYER_linear, LAYER_relu}, cuda_linear_map},
    {3, {LAYER_join, LAYER_fork, LAYER_layernorm}, cuda_join_layernorm},
    {2, {LAYER_join, LAYER_layernorm}, cuda_join_layernorm},
    {0, {}, NULL},
};
static const struct fusion inputs[] = {
    {2, {LAYER_linear, LAYER_gelu}, cuda_linear_gelu_input},
    {2, {LAYER_layernorm, LAYER_fork}, cuda_layernorm_fork_input},
    {0, {}, NULL},
};

/* Enqueues the layers from c's on that a row of the table joins, and returns how many; 0: none. step is 1 or -1, left
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

static void copy(void *to, const void *from, size_t bytes, cudaStream_t stream) {
    CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream));
}

void cuda_forward(const struct rt_model *m, const struct rt_stage *s, const struct rt_bind *at, void *workspace,
                  cudaStream_t stream) {
    const struct rt_layer *first = s->layer, *last = first + s->nlayers - 1;
    if (first->x.space == SP_STASH)
        copy(at->at[SP_STASH] + first->x.off, at->at[SP_X], element(m) * first->rows * first->in, stream);
    if (at->nmore > 0)
        cuda_add_more(m, at, at->at[SP_STASH] + first->x.off, (int64_t)first->rows * first->in, stream);
    for (const struct rt_layer *l = first; l <= last;) {
        struct cuda_call c = {m, l, at, stream, workspace};
        int n = fused(forwards, &c, 1, (int)(last - l) + 1);
        if (n == 0 && kinds[l->kind]->forward)
            kinds[l->kind]->forward(&c);
        l += n > 0 ? n : 1;
    }
    if (last->y.space == SP_STASH)
        copy(at->at[SP_Y], at->at[SP_STASH] + last->y.off, element(m) * last->rows * last->out, stream);
}

/* Gaps between the layers' parameters are zero in a gradient, so that sums and copies of it are defined. begin: where
 * parameters end, in elements. */
static void clear_gap(const struct cuda_call *c, float *dw, int64_t begin) {
    int64_t size = (int64_t)element(c->m);
    int64_t end = (begin * size + PARAM_ALIGN - 1) / PARAM_ALIGN * PARAM_ALIGN / size;
    if (end > begin)
        CUDA(cudaMemsetAsync(dw + begin, 0, (size_t)(end - begin) * sizeof(float), c->stream));
}

static void weight_gradient(const struct cuda_call *c, struct rt_bind *at) {
    int64_t table = shared_table(c->m, c->l);
    kinds[c->l->kind]->weight(c);
    if (at->first)
        clear_gap(c, at->dw, c->l->param / (int64_t)element(c->m) + c->l->nparam);
    if (table > 0 && at->vfirst) {
        clear_gap(c, at->dv, table);
        at->vfirst = false; /* if both layers are in this stage, the other one adds */
    }
}

void cuda_backward_part(const struct rt_model *m, const struct rt_stage *s, const struct rt_bind *at, bool input,
                        bool weight, int from, int to, int *ahead, void *workspace, cudaStream_t stream) {
    const struct rt_layer *last = s->layer + s->nlayers - 1;
    bool begins = to == s->nlayers;
    if (begins && input && last->dy.space == SP_EXT)
        copy(at->at[SP_EXT] + last->dy.off, at->at[SP_DY], element(m) * last->rows * last->out, stream);
    if (begins && at->nmore > 0)
        cuda_add_more(m, at, at->at[SP_EXT] + last->dy.off, (int64_t)last->rows * last->out, stream);
    struct rt_bind mine = *at;
    mine.vfirst = at->vfirst && !uses_table(m, s, to);
    int done = begins ? 0 : *ahead; /* layers from l on whose input gradient is already computed */
    for (const struct rt_layer *l = s->layer + to - 1; l >= s->layer + from; l--) {
        struct cuda_call c = {m, l, &mine, stream, workspace};
        bool wanted = input && l->dx.space != SP_NONE;
        if (wanted && done == 0)
            done = fused(inputs, &c, -1, (int)(l - s->layer) + 1);
        if (wanted && done == 0 && kinds[l->kind]->input)
            kinds[l->kind]->input(&c);
        done -= done > 0;
        if (weight && kinds[l->kind]->weight)
            weight_gradient(&c, &mine);
    }
    *ahead = done;
}
