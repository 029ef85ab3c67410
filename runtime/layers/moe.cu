/* A mixture of experts, as moe.h defines it. Its products are linear.cu's; this file sends tokens to experts and brings
 * them back. Places are counted by ballots in the order of the rows, so they are the same in every run. */
#include "cuda_math.cuh"
#include "moe.h"
#include <limits.h>

enum { THREADS = 256, WARPS = THREADS / 32, CHUNK = 8 /* experts whose logits a warp adds up at once */ };

template <typename T> static struct routing routing_of(const struct cuda_call *c) {
    return routing_at(c->l, cuda_at<char>(c, c->l->aux));
}

/* ---- logits, probabilities and choices: a warp per token. Lane e % 32 has expert e's values ---- */

template <typename T>
static __device__ void logits(float *p, const T *x, const T *router, int in, int experts, int lane) {
    for (int from = 0; from < experts; from += CHUNK) {
        float sum[CHUNK] = {};
        for (int i = lane; i < in; i += 32) {
            float a = widen(x[i]);
            for (int e = 0; e < CHUNK && from + e < experts; e++)
                sum[e] += a * widen(router[(int64_t)i * experts + from + e]);
        }
        for (int e = 0; e < CHUNK && from + e < experts; e++) {
            float total = warp_sum(sum[e]);
            if (lane == (from + e) % 32)
                p[from + e] = total;
        }
    }
}

static __device__ void softmax(float *p, int experts, int lane) {
    float top = -INFINITY, sum = 0;
    for (int e = lane; e < experts; e += 32)
        top = fmaxf(top, p[e]);
    top = warp_max(top);
    for (int e = lane; e < experts; e += 32)
        sum += p[e] = __expf(p[e] - top);
    sum = warp_sum(sum);
    for (int e = lane; e < experts; e += 32)
        p[e] /= sum;
}

/* A choice. A token's choices are ordered by descending probability, and equal ones by ascending number. NaNs come
 * last, so that there are always enough choices. */
struct choice {
    float p;
    int expert;
};
static __device__ bool comes_before(choice a, choice b) { return a.p > b.p || (a.p == b.p && a.expert < b.expert); }

/* Returns the first choice after `last`. */
static __device__ choice next_expert(const float *p, int experts, choice last, int lane) {
    choice best = {-INFINITY, INT_MAX};
    for (int e = lane; e < experts; e += 32) {
        choice one = {isnan(p[e]) ? -INFINITY : p[e], e};
        if (comes_before(last, one) && comes_before(one, best))
            best = one;
    }
    for (int i = 16; i > 0; i /= 2) {
        choice other = {__shfl_xor_sync(ALL_LANES, best.p, i), __shfl_xor_sync(ALL_LANES, best.expert, i)};
        best = comes_before(other, best) ? other : best;
    }
    return best;
}

template <typename T>
static __global__ void choose(struct routing r, const T *x, const T *router, int in, int experts, int top) {
    int token = blockIdx.x * WARPS + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (token >= r.tokens)
        return;
    float *p = r.probability + (int64_t)token * experts, *weight = r.weight + (int64_t)token * top, sum = 0;
    logits(p, x + (int64_t)token * in, router, in, experts, lane);
    softmax(p, experts, lane);
    choice last = {INFINITY, -1};
    for (int k = 0; k < top; k++) {
        last = next_expert(p, experts, last, lane);
        sum += last.p;
        if (lane == 0) {
            r.expert[(int64_t)token * top + k] = last.expert;
            weight[k] = last.p;
        }
    }
    for (int k = 0; k < top && lane == 0 && top > 1; k++)
        weight[k] /= sum;
}

/* ---- places: a warp per expert and sequence ---- */

/* Returns which of 32 choices fall on the expert; choice k * context + t is the k-th choice of the sequence's token t.
 */
static __device__ unsigned match_choices(const int32_t *expert, int first, int context, int top, int e, int lane) {
    int i = first + lane;
    return __ballot_sync(ALL_LANES, i < context * top && expert[i % context * top + i / context] == e);
}

static __global__ void seat(struct routing r, int context, int experts, int top, int capacity) {
    int s = blockIdx.y, e = blockIdx.x * WARPS + threadIdx.x / 32, lane = threadIdx.x % 32, load = 0;
    int64_t begin = (int64_t)s * context * top, place = ((int64_t)e * r.sequences + s) * capacity;
    if (e >= experts)
        return;
    for (int first = 0; first < context * top; first += 32) {
        unsigned here = match_choices(r.expert + begin, first, context, top, e, lane);
        int at = load + __popc(here & ((1u << lane) - 1)), i = first + lane;
        if (here >> lane & 1) {
            int64_t choice = begin + i % context * top + i / context;
            r.row[choice] = at < capacity ? (int32_t)(place + at) : -1;
            if (at < capacity)
                r.choice[place + at] = (int32_t)choice;
        }
        load += __popc(here);
    }
    for (int i = load + lane; i < capacity; i += 32)
        r.choice[place + i] = -1;
    if (lane == 0)
        r.load[(int64_t)s * experts + e] = load;
}

static __global__ void count_pairs(struct rt_routed *routed, struct routing r, int experts, int capacity) {
    int dropped = 0, pairs = 0;
    for (int i = threadIdx.x; i < r.sequences * experts; i += THREADS) {
        pairs += r.load[i];
        dropped += max(r.load[i] - capacity, 0);
    }
    dropped = block_sum(dropped);
    __syncthreads();
    pairs = block_sum(pairs);
    if (threadIdx.x == 0) {
        routed->pairs += pairs;
        routed->dropped += dropped;
    }
}

/* ---- rows: a thread has V of n columns ---- */

template <typename T, int V> static __global__ void send(T *y, const T *x, struct routing r, int top, int n) {
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x, row = i / (n / V), column = i % (n / V) * V;
    if (row >= r.places)
        return;
    pack<T, V> a = {};
    if (r.choice[row] >= 0)
        a = load<V>(x + (int64_t)(r.choice[row] / top) * n + column);
    store(y + row * n + column, a);
}

/* Adds up the rows of a token's choices, times their weights; weights NULL: 1. */
template <typename T, int V>
static __device__ void add_choices(float *sum, const T *from, const int32_t *row, const float *weight, int top, int n) {
    for (int k = 0; k < top; k++) {
        if (row[k] < 0)
            continue;
        pack<T, V> a = load<V>(from + (int64_t)row[k] * n);
        for (int v = 0; v < V; v++)
            sum[v] += (weight ? weight[k] : 1) * widen(a.v[v]);
    }
}

template <typename T, int V> static __global__ void bring_back(T *y, const T *x, struct routing r, int top, int n) {
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x, token = i / (n / V), column = i % (n / V) * V;
    float sum[V] = {};
    pack<T, V> a;
    if (token >= r.tokens)
        return;
    add_choices<T, V>(sum, x + column, r.row + token * top, r.weight + token * top, top, n);
    for (int v = 0; v < V; v++)
        a.v[v] = narrow<T>(sum[v]);
    store(y + token * n + column, a);
}

/* Computes the gradient of the rows that were brought back. */
template <typename T, int V>
static __global__ void send_weighted(T *dx, const T *dy, struct routing r, int top, int n) {
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x, row = i / (n / V), column = i % (n / V) * V;
    if (row >= r.places)
        return;
    pack<T, V> a = {};
    int choice = r.choice[row];
    if (choice >= 0) {
        a = load<V>(dy + (int64_t)(choice / top) * n + column);
        for (int v = 0; v < V; v++)
            a.v[v] = narrow<T>(r.weight[choice] * widen(a.v[v]));
    }
    store(dx + row * n + column, a);
}

/* ---- gradients of the weights, and then of the logits: a warp per token, lanes as above ---- */

template <typename T>
static __global__ void gate_gradient(float *d, const T *x, const T *dy, struct routing r, int experts, int top, int n) {
    int token = blockIdx.x * WARPS + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (token >= r.tokens)
        return;
    d += (int64_t)token * experts;
    dy += (int64_t)token * n;
    for (int e = lane; e < experts; e += 32)
        d[e] = 0;
    for (int k = 0; k < top; k++) {
        int64_t choice = (int64_t)token * top + k, row = r.row[choice];
        float sum = 0;
        for (int j = lane; j < n && row >= 0; j += 32)
            sum += widen(x[row * n + j]) * widen(dy[j]);
        sum = warp_sum(sum);
        if (lane == r.expert[choice] % 32)
            d[r.expert[choice]] = sum;
    }
}

static __global__ void logits_gradient(float *d, struct routing r, int context, int experts, int top, float each) {
    int token = blockIdx.x * WARPS + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (token >= r.tokens)
        return;
    const float *p = r.probability + (int64_t)token * experts;
    const int32_t *expert = r.expert + (int64_t)token * top, *load = r.load + (int64_t)(token / context) * experts;
    float sum = 0, dot = 0;
    d += (int64_t)token * experts;
    for (int k = 0; k < top; k++)
        sum += p[expert[k]];
    for (int e = lane; e < experts; e += 32) /* others are 0 */
        dot += d[e] * p[e];
    float mean = warp_sum(dot) / sum;
    for (int k = 0; k < top && top > 1; k++)
        if (lane == expert[k] % 32)
            d[expert[k]] = (d[expert[k]] - mean) / sum;
    dot = 0;
    for (int e = lane; e < experts; e += 32) {
        d[e] += each * (float)load[e];
        dot += d[e] * p[e];
    }
    dot = warp_sum(dot);
    for (int e = lane; e < experts; e += 32)
        d[e] = p[e] * (d[e] - dot);
}

/* Computes dx = d routerT + the gradients from the experts. */
template <typename T, int V>
static __global__ void route_gradient(T *dx, const T *dy, const float *d, const T *router, struct routing r,
                                      int experts, int top, int n) {
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x, token = i / (n / V), column = i % (n / V) * V;
    float sum[V] = {};
    pack<T, V> a;
    if (token >= r.tokens)
        return;
    d += token * experts;
    for (int v = 0; v < V; v++)
        for (int e = 0; e < experts; e++)
            sum[v] += d[e] * widen(router[(column + v) * experts + e]);
    add_choices<T, V>(sum, dy + column, r.row + token * top, NULL, top, n);
    for (int v = 0; v < V; v++)
        a.v[v] = narrow<T>(sum[v]);
    store(dx + token * n + column, a);
}

/* parts: xT d for each of gridDim.y runs of rows; if there is only one run, the gradient itself, = or +=. A thread has
 * one column and every WARPS-th expert. */
template <typename T>
static __global__ void router_gradient(float *parts, const T *x, const float *d, int rows, int n, int experts,
                                       bool first) {
    int column = blockIdx.x * 32 + threadIdx.x, each = (rows + gridDim.y - 1) / gridDim.y;
    int from = blockIdx.y * each, to = min(from + each, rows);
    if (column >= n)
        return;
    parts += ((int64_t)blockIdx.y * n + column) * experts;
    for (int e = threadIdx.y; e < experts; e += WARPS) {
        float sum = 0;
        for (int row = from; row < to; row++)
            sum += widen(x[(int64_t)row * n + column]) * d[(int64_t)row * experts + e];
        parts[e] = first ? sum : parts[e] + sum;
    }
}

/* ---- the layers ---- */

/* Returns the blocks needed if each thread has a pack of columns. */
template <typename T> static unsigned pack_blocks(int64_t rows, int n) {
    return blocks_for(rows * n, THREADS * (n % WIDE<T> == 0 ? WIDE<T> : 1));
}

template <typename T> static void route_forward(const struct cuda_call *c) {
    const struct rt_layer *l = c->l;
    const struct moe_config *moe = &l->config.moe;
    struct routing r = routing_of<T>(c);
    LAUNCH((choose<T>), blocks_for(r.tokens, WARPS), THREADS, 0, c->stream, r, cuda_x<T>(c), cuda_w<T>(c), l->in,
           moe->experts, moe->top);
    LAUNCH(seat, dim3(blocks_for(moe->experts, WARPS), (unsigned)r.sequences), THREADS, 0, c->stream, r, l->context,
           moe->experts, moe->top, moe->places);
    if (c->at->routed)
        LAUNCH(count_pairs, 1, THREADS, 0, c->stream, c->at->routed, r, moe->experts, moe->places);
    LAUNCH_ROWS(send, T, l->in, pack_blocks<T>(r.places, l->in), THREADS, c->stream, cuda_at<T>(c, l->y), cuda_x<T>(c),
                r, moe->top, l->in);
}

/* Returns the balancing loss's gradient per choice, as in moe_host.c. */
static float balance_each(const struct cuda_call *c) {
    const struct rt_layer *l = c->l;
    const struct moe_config *moe = &l->config.moe;
    float mean = (float)c->m->rows * (float)(c->m->update > 0 ? 1 : c->m->batches);
    return moe->balance * (float)moe->experts / ((float)l->context * (float)moe->top) / mean;
}

template <typename T> static void route_input(const struct cuda_call *c) {
    const struct rt_layer *l = c->l;
    const struct moe_config *moe = &l->config.moe;
    struct routing r = routing_of<T>(c);
    float *d = cuda_at<float>(c, l->tmp);
    LAUNCH(logits_gradient, blocks_for(r.tokens, WARPS), THREADS, 0, c->stream, d, r, l->context, moe->experts,
           moe->top, balance_each(c));
    LAUNCH_ROWS(route_gradient, T, l->in, pack_blocks<T>(r.tokens, l->in), THREADS, c->stream, cuda_at<T>(c, l->dx),
                cuda_at<T>(c, l->dy), d, cuda_w<T>(c), r, moe->experts, moe->top, l->in);
}

/* Computes the router's gradient. The number of parts depends on the shape alone, so all devices give the same bits. */
template <typename T> static void route_weight(const struct cuda_call *c) {
    const struct rt_layer *l = c->l;
    const struct moe_config *moe = &l->config.moe;
    int n = l->in * moe->experts, parts = min(l->rows / 64, ROW_BLOCKS / (int)blocks_for(l->in, 32));
    parts = max(1, (int)min((int64_t)parts, CUDA_WORKSPACE / 4 / (int64_t)n));
    float *dw = cuda_dw<T>(c), *sums = parts > 1 ? (float *)c->workspace : dw;
    LAUNCH((router_gradient<T>), dim3(blocks_for(l->in, 32), (unsigned)parts), dim3(32, WARPS), 0, c->stream, sums,
           cuda_x<T>(c), cuda_at<float>(c, l->tmp), l->rows, l->in, moe->experts, parts > 1 || cuda_first(c));
    if (parts > 1)
        cuda_sum_parts(dw, sums, n, parts, cuda_first(c), c->stream);
}

template <typename T> static void combine_forward(const struct cuda_call *c) {
    const struct rt_layer *l = c->l;
    struct routing r = routing_of<T>(c);
    LAUNCH_ROWS(bring_back, T, l->out, pack_blocks<T>(r.tokens, l->out), THREADS, c->stream, cuda_at<T>(c, l->y),
                cuda_x<T>(c), r, l->config.moe.top, l->out);
}

template <typename T> static void combine_input(const struct cuda_call *c) {
    const struct rt_layer *l = c->l;
    const struct moe_config *moe = &l->config.moe;
    struct routing r = routing_of<T>(c);
    LAUNCH((gate_gradient<T>), blocks_for(r.tokens, WARPS), THREADS, 0, c->stream, cuda_at<float>(c, l->tmp),
           cuda_x<T>(c), cuda_at<T>(c, l->dy), r, moe->experts, moe->top, l->in);
    LAUNCH_ROWS(send_weighted, T, l->in, pack_blocks<T>(r.places, l->in), THREADS, c->stream, cuda_at<T>(c, l->dx),
                cuda_at<T>(c, l->dy), r, moe->top, l->in);
}

/* ---- for a team that divides the experts, as in moe_host.c ---- */

/* Turns [a][b][n] into [b][a][n]; n packs of V values. */
template <typename T, int V> static __global__ void swap_blocks(T *to, const T *from, int a, int b, int64_t n) {
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x, block = i / n, at = i % n;
    if (block < (int64_t)a * b)
        store(to + ((block % b * a + block / b) * n + at) * V, load<V>(from + i * V));
}

template <typename T> static void swap(const struct cuda_call *c, void *to, const void *from, int64_t a, int64_t b) {
    int64_t n = blocks_at(c->l).n, all = a * b * n;
    if (n % WIDE<T> == 0)
        LAUNCH((swap_blocks<T, WIDE<T>>), blocks_for(all, THREADS * WIDE<T>), THREADS, 0, c->stream, (T *)to,
               (const T *)from, (int)a, (int)b, n / WIDE<T>);
    else
        LAUNCH((swap_blocks<T, 1>), blocks_for(all, THREADS), THREADS, 0, c->stream, (T *)to, (const T *)from, (int)a,
               (int)b, n);
}

template <typename T> static void to_experts_give(const struct cuda_call *c) {
    swap<T>(c, c->at->at[SP_GIVE], cuda_x<T>(c), 1, c->l->config.moe.experts);
}
template <typename T> static void to_experts_get(const struct cuda_call *c) {
    const struct blocks b = blocks_at(c->l);
    swap<T>(c, cuda_at<T>(c, c->l->y), c->at->at[SP_GOT], b.members, b.experts);
}
template <typename T> static void to_experts_give_back(const struct cuda_call *c) {
    const struct blocks b = blocks_at(c->l);
    swap<T>(c, c->at->at[SP_GIVE], cuda_at<T>(c, c->l->dy), b.experts, b.members);
}
template <typename T> static void to_experts_get_back(const struct cuda_call *c) {
    swap<T>(c, cuda_at<T>(c, c->l->dx), c->at->at[SP_GOT], 1, c->l->config.moe.experts);
}

template <typename T> static void to_tokens_give(const struct cuda_call *c) {
    const struct blocks b = blocks_at(c->l);
    swap<T>(c, c->at->at[SP_GIVE], cuda_x<T>(c), b.experts, b.members);
}
template <typename T> static void to_tokens_get(const struct cuda_call *c) {
    swap<T>(c, cuda_at<T>(c, c->l->y), c->at->at[SP_GOT], 1, c->l->config.moe.experts);
}
template <typename T> static void to_tokens_give_back(const struct cuda_call *c) {
    swap<T>(c, c->at->at[SP_GIVE], cuda_at<T>(c, c->l->dy), 1, c->l->config.moe.experts);
}
template <typename T> static void to_tokens_get_back(const struct cuda_call *c) {
    const struct blocks b = blocks_at(c->l);
    swap<T>(c, cuda_at<T>(c, c->l->dx), c->at->at[SP_GOT], b.members, b.experts);
}

const struct cuda_layer cuda_to_experts = {NULL, NULL, NULL};
const struct cuda_layer cuda_to_tokens = {NULL, NULL, NULL};
const struct cuda_halves cuda_to_experts_halves = {EITHER(to_experts_give), EITHER(to_experts_get),
                                                   EITHER(to_experts_give_back), EITHER(to_experts_get_back)};
const struct cuda_halves cuda_to_tokens_halves = {EITHER(to_tokens_give), EITHER(to_tokens_get),
                                                  EITHER(to_tokens_give_back), EITHER(to_tokens_get_back)};
const struct cuda_layer cuda_route = {EITHER(route_forward), EITHER(route_input), EITHER(route_weight)};
const struct cuda_layer cuda_combine = {EITHER(combine_forward), EITHER(combine_input), NULL};
