/* Runs one layer at a time, forward and backward, on given numbers, for layers.py to compare with PyTorch.
 *
 * Reads from stdin, for each case, a line of words and then the tensors it describes, in memory order. Writes to stdout
 * y, dx, dw, the table's gradient and the loss, as far as the layer has them, all in fp32. The layer runs as it does in
 * a stage of its own: on the host, or by the CUDA kernels in either precision. Outputs begin as NaN. */
#include "layers/cuda_math.cuh"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vector>

#define X(name, ...) #name,
static const char *const layer_names[NLAYERS] = {LAYERS(X)};
#undef X

static bool bf16, host;

static int kind_of(const char *name) {
    for (int k = 0; k < NLAYERS; k++)
        if (!strcmp(layer_names[k], name))
            return k;
    fprintf(stderr, "layers: there is no layer '%s'\n", name);
    exit(2);
}

template <typename N> static std::vector<N> take(int64_t n) {
    std::vector<N> v((size_t)n);
    if (fread(v.data(), sizeof(N), (size_t)n, stdin) != (size_t)n) {
        fprintf(stderr, "layers: the input ends within a case\n");
        exit(2);
    }
    return v;
}

/* Allocates that many bytes on the layer's side (host or device), filled with NaN. placed() also copies v there. */
static char *room(int64_t bytes) {
    std::vector<char> nan((size_t)(bytes + 127) / 64 * 64, (char)0xff);
    char *p = NULL;
    if (host)
        return (char *)memcpy(aligned_alloc(64, nan.size()), nan.data(), nan.size());
    CUDA(cudaMalloc((void **)&p, nan.size()));
    CUDA(cudaMemcpy(p, nan.data(), nan.size(), cudaMemcpyHostToDevice));
    return p;
}
template <typename N> static N *placed(const std::vector<N> &v) {
    char *p = room((int64_t)(v.size() * sizeof(N)));
    if (host)
        memcpy(p, v.data(), v.size() * sizeof(N));
    else
        CUDA(cudaMemcpy(p, v.data(), v.size() * sizeof(N), cudaMemcpyHostToDevice));
    return (N *)(void *)p;
}
template <typename N> static std::vector<N> back(const void *from, int64_t n) {
    std::vector<N> v((size_t)n);
    if (host)
        memcpy(v.data(), from, v.size() * sizeof(N));
    else
        CUDA(cudaMemcpy(v.data(), from, v.size() * sizeof(N), cudaMemcpyDeviceToHost));
    return v;
}
static void give_back(void *p) {
    if (host)
        free(p);
    else
        cudaFree(p);
}

/* Read n values of the layer's precision from stdin, and write n of the layer's results to stdout. */
static void *given(int64_t n) {
    std::vector<float> v = take<float>(n);
    std::vector<__nv_bfloat16> narrowed;
    for (float x : v)
        narrowed.push_back(narrow<__nv_bfloat16>(x));
    return bf16 ? (void *)placed(narrowed) : (void *)placed(v);
}
static void tell(const void *from, int64_t n, bool narrowed) {
    std::vector<float> v;
    if (narrowed)
        for (__nv_bfloat16 x : back<__nv_bfloat16>(from, n))
            v.push_back(widen(x));
    else
        v = back<float>(from, n);
    fwrite(v.data(), sizeof(float), v.size(), stdout);
}

/* Lays out a mixture of experts as five layers: the route l and the four after it, with `inner` columns in the middle.
 * The tensors between them are in STASH, after the route's own, and their gradients are in EXT, after the logits'. */
enum { MOE = 5 };
static int64_t lay_out_experts(struct rt_layer *chain, const struct rt_layer *l, int inner, int element) {
    static const int kinds[MOE] = {LAYER_route, LAYER_experts, LAYER_gelu, LAYER_experts, LAYER_combine};
    struct rt_layer route = *l;
    route.out_rows = l->rows / l->context * l->config.moe.experts * l->config.moe.places;
    int64_t kept = routing_bytes(&route), logits = (4 * (int64_t)l->rows * l->config.moe.experts + 63) / 64 * 64,
            param = 0;
    int64_t each = ((int64_t)route.out_rows * (inner > l->in ? inner : l->in) * 4 + 63) / 64 * 64;
    for (int i = 0; i < MOE; i++) {
        struct rt_layer *k = &chain[i];
        *k = route;
        k->kind = kinds[i];
        k->rows = i == 0 ? l->rows : route.out_rows;
        k->out_rows = i == 0 ? route.out_rows : i == MOE - 1 ? l->rows : 0;
        k->in = i == 2 || i == 3 ? inner : l->in;
        k->out = i == 1 || i == 2 ? inner : l->in;
        k->nparam = i == 0  ? (int64_t)l->in * l->config.moe.experts
                    : i % 2 ? (int64_t)l->config.moe.experts * l->in * inner
                            : 0;
        k->param = param;
        param += k->nparam * element; /* layers.py chooses widths that fill whole cache lines */
        if (i > 0)
            k->x = {SP_STASH, kept + (i - 1) * each}, k->dx = {SP_EXT, logits + (i - 1) * each};
        if (i < MOE - 1)
            k->y = {SP_STASH, kept + i * each}, k->dy = {SP_EXT, logits + i * each};
        k->aux = {kinds[i] == LAYER_experts ? SP_NONE : SP_STASH, 0}; /* a product's aux would be a second input */
        k->tmp = {SP_EXT, 0};
    }
    return kept + logits + MOE * each;
}

static void run(const struct rt_model *m, struct rt_stage *s, struct rt_bind *at, void *workspace) {
    if (host) {
        host_forward(m, s, at);
        host_backward(m, s, at, true, true);
        return;
    }
    struct rt_program program = {};
    program.stages = 1;
    program.stage = s;
    program.model = m;
    cuda_linear_plan(&program);
    cuda_forward(m, s, at, workspace, 0);
    cuda_backward(m, s, at, true, true, workspace, 0);
    cuda_linear_forget();
}

int main(void) {
    char side[8], name[24];
    struct rt_model m = {};
    struct rt_layer l = {}, chain[MOE];
    struct attention_config *a = &l.config.attention;
    struct moe_config *moe = &l.config.moe;
    float number; /* eps, scale or p, or 0 */
    int64_t table;
    int inner;
    void *workspace;
    cuda_must(cudaMalloc(&workspace, CUDA_WORKSPACE), "cudaMalloc");
    m.batches = 1;
    while (scanf("%7s %23s %d %d %d %d %d %d %d %f %d %ld %ld %f %f %f %d %d %d %d %f %d", side, name, &l.rows, &l.in,
                 &l.out, &l.context, &a->heads, &a->kv_heads, &a->rope, &number, &m.vocab, &l.nparam, &table,
                 &a->rope_factor, &a->rope_low, &a->rope_high, &a->rope_context, &moe->experts, &moe->top, &moe->places,
                 &moe->balance, &inner) == 22 &&
           getchar() == '\n') {
        host = !strcmp(side, "host");
        bf16 = !strcmp(side, "bf16");
        l.kind = kind_of(name);
        l.config.norm.eps = number > 0 ? number : 1e-5f;
        l.config.embedding.scale = number > 0 ? number : 1;
        l.config.dropout.p = number;
        m.rows = l.rows;
        m.precision = bf16 ? BF16 : FP32;
        bool loss = l.kind == LAYER_cross_entropy || l.kind == LAYER_mse, embeds = l.kind == LAYER_embedding;
        bool no_dx = embeds || l.kind == LAYER_bias; /* a bias's dx is its dy */
        int64_t in = (int64_t)l.rows * l.in, out = (int64_t)l.rows * l.out;
        l.x.space = embeds ? SP_NONE : SP_X;
        l.dx.space = embeds ? SP_NONE : SP_DX;
        l.y.space = loss ? SP_NONE : SP_Y;
        l.dy.space = loss ? SP_NONE : SP_DY;
        l.aux.space = l.kind == LAYER_linear || l.kind == LAYER_unembedding ? SP_NONE : SP_STASH;
        l.tmp.space = SP_WORK;
        /* Room for a layer's stash and workspace, enough for any layer. */
        int64_t any = 16 * in + 64 * l.rows;
        struct rt_stage s = {};
        s.layer = &l;
        s.nlayers = 1;
        if (l.kind == LAYER_route) {
            any = lay_out_experts(chain, &l, inner, precision_bytes(m.precision));
            s.layer = chain;
            s.nlayers = MOE;
        }
        s.weight = l.nparam * precision_bytes(m.precision);
        struct rt_bind at = {};
        at.at[SP_X] = (char *)given(in);
        at.w = (float *)given(l.nparam);
        at.v = (float *)given(table);
        at.at[SP_DY] = (char *)given(out);
        at.at[SP_Y] = room(4 * out);
        at.at[SP_DX] = room(4 * in);
        at.at[SP_STASH] = room(any);
        at.at[SP_EXT] = room(any);
        at.at[SP_WORK] = room(any);
        at.dw = (float *)(void *)room(4 * l.nparam);
        at.dv = (float *)(void *)room(4 * table);
        int32_t *token = placed(take<int32_t>(l.rows)), *target = placed(take<int32_t>(l.rows));
        float *wanted = placed(take<float>(l.kind == LAYER_mse ? in : 0));
        int64_t *counted = placed(std::vector<int64_t>{1, 0}); /* the first step */
        struct rt_batch batch = {token, target, NULL, wanted};
        struct rt_draw draw = {1, 0, 0, 0, counted};
        at.batch = &batch;
        at.loss = (float *)(void *)room(4);
        at.draw = &draw;
        at.first = at.vfirst = at.ufirst = true;
        run(&m, &s, &at, workspace);
        tell(at.at[SP_Y], loss ? 0 : out, bf16);
        tell(at.at[SP_DX], no_dx ? 0 : in, bf16);
        tell(at.dw, l.nparam, false);
        tell(at.dv, table, false);
        tell(at.loss, loss, false);
        fflush(stdout);
        for (int i = SP_X; i <= SP_DX; i++)
            if (at.at[i])
                give_back(at.at[i]);
        for (void *p : {(void *)at.w, (void *)at.v, (void *)at.dw, (void *)at.dv, (void *)at.loss, (void *)token,
                        (void *)target, (void *)wanted, (void *)counted})
            give_back(p);
    }
    return 0;
}
