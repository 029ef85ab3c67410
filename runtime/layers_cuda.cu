/* The layers on a CUDA device: the sweeps of layers_host.c, enqueued on a stream. */
#include "cuda_math.cuh"

#define X(name, ...) &cuda_##name,
static const struct cuda_layer *const kinds[NLAYERS] = {LAYERS(X)};
#undef X

static size_t element(const struct rt_model *m) { return (size_t)precision_bytes(m->precision); }

static void copy(void *to, const void *from, size_t bytes, cudaStream_t stream) {
    CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream));
}

void cuda_forward(const struct rt_model *m, const struct rt_stage *s, const struct rt_bind *at, void *workspace,
                  cudaStream_t stream) {
    const struct rt_layer *first = s->layer, *last = first + s->nlayers - 1;
    if (first->x.space == SP_STASH)
        copy(at->at[SP_STASH] + first->x.off, at->at[SP_X], element(m) * first->rows * first->in, stream);
    for (const struct rt_layer *l = first; l <= last; l++) {
        struct cuda_call c = {m, l, at, stream, workspace};
        if (kinds[l->kind]->forward)
            kinds[l->kind]->forward(&c);
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
        at->vfirst = false; /* where both layers are in this stage, the other one adds */
    }
}

void cuda_backward(const struct rt_model *m, const struct rt_stage *s, const struct rt_bind *at, bool input,
                   bool weight, void *workspace, cudaStream_t stream) {
    const struct rt_layer *last = s->layer + s->nlayers - 1;
    if (input && last->dy.space == SP_EXT)
        copy(at->at[SP_EXT] + last->dy.off, at->at[SP_DY], element(m) * last->rows * last->out, stream);
    struct rt_bind mine = *at;
    for (const struct rt_layer *l = last; l >= s->layer; l--) {
        struct cuda_call c = {m, l, &mine, stream, workspace};
        if (input && kinds[l->kind]->input && l->dx.space != SP_NONE)
            kinds[l->kind]->input(&c);
        if (weight && kinds[l->kind]->weight)
            weight_gradient(&c, &mine);
    }
}
