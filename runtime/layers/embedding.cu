/* Token and position embedding. w is tokens x out (absent if the tokens are a shared table v), followed by context x
 * out for positions (absent if there are none; context is then 0). The tokens are the vocabulary or a member's part of
 * it, as in layers_host.c.
 *
 * The gradient of a token is the sum of dy over the rows with this token, which depend on the data. A block owns every
 * gridDim-th token, so that frequent tokens, which have neighbouring numbers, are spread over the blocks. It goes
 * through the microbatch, CHUNK rows at a time, and lists the rows of its tokens in order. Then each warp takes a token
 * and some columns, finds the token's rows in the list, and adds them up, 32 in flight. No atomics, no scratch, one
 * order.
 *
 * Reads: tokens once per block, at most 1,056 x 4 bytes x rows, from L2; dy once. Writes: when first, each gradient
 * once (most are zeros); otherwise only the gradients of tokens that occur, once per chunk. */
#include "cuda.cuh"

enum { THREADS = 256, WARPS = THREADS / 32, BLOCKS = 132 * 8, CHUNK = 8192, EACH = CHUNK / THREADS };

/* A range of tokens, or of positions, that a layer has. */
struct range {
    int first, n;
};
static range tokens_of(const struct cuda_call *c) {
    int n = (int)share_of(c->l, SPLIT_ROWS, c->m->vocab);
    return {c->l->share.split == SPLIT_ROWS ? c->l->share.member * n : 0, n};
}

/* position: NULL if there are no positions. */
template <typename T, int V>
static __global__ void look_up(T *y, const T *token, const T *position, const int32_t *tokens, range mine, int rows,
                               positions places, float scale, int n) {
    unsigned across = n / V, i = blockIdx.x * THREADS + threadIdx.x, row = i / across, j = i % across * V;
    if (row >= (unsigned)rows)
        return;
    unsigned which = (unsigned)(tokens[row] - mine.first);
    pack<T, V> t = which < (unsigned)mine.n ? load<V>(token + (int64_t)which * n + j) : pack<T, V>(), p = pack<T, V>();
    if (position)
        p = load<V>(position + (int64_t)position_of(&places, (int)row) * n + j);
    for (int k = 0; k < V; k++)
        t.v[k] = narrow<T>(__fmul_rn(scale, widen(t.v[k])) + widen(p.v[k]));
    store(y + (int64_t)row * n + j, t);
}

/* Writes V sums, or adds them. */
template <int V> static __device__ __forceinline__ void store_sums(float *to, const float *sum, bool first) {
    constexpr int S = V < 4 ? V : 4;
    for (int v = 0; v < V; v += S) {
        pack<float, S> s = first ? pack<float, S>() : load<S>(to + v);
        for (int k = 0; k < S; k++)
            s.v[k] += sum[v + k];
        store(to + v, s);
    }
}

/* Lists the chunk's rows whose token this block owns, as its token's number << 16 | row in the chunk. A warp looks at
 * up to EACH x 32 rows side by side. Returns the length of the list. */
static __device__ int list_rows(uint32_t *list, const int32_t *tokens, range owned, int rows) {
    __shared__ int found[WARPS];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, steps = (rows + THREADS - 1) / THREADS, count = 0;
    unsigned mine[EACH]; /* lanes whose row has one of this block's tokens, per step */
    for (int i = 0; i < EACH && i < steps; i++) {
        int r = (warp * steps + i) * 32 + lane;
        unsigned which = r < rows ? (unsigned)(tokens[r] - owned.first) : ~0u;
        mine[i] = __ballot_sync(ALL_LANES, which < (unsigned)owned.n && which % gridDim.x == blockIdx.x);
        count += __popc(mine[i]);
    }
    if (lane == 0)
        found[warp] = count;
    __syncthreads(); /* also: all threads have finished with the previous list */
    int at = 0, total = 0;
    for (int w = 0; w < WARPS; w++) {
        at += w < warp ? found[w] : 0;
        total += found[w];
    }
    for (int i = 0; i < EACH && i < steps; i++) {
        int r = (warp * steps + i) * 32 + lane;
        if (mine[i] >> lane & 1)
            list[at + __popc(mine[i] & ((1u << lane) - 1))] = (unsigned)(tokens[r] - owned.first) / gridDim.x << 16 | r;
        at += __popc(mine[i]);
    }
    __syncthreads();
    return total;
}

/* Adds up the listed rows of one token, n columns each, for the V columns at dy. Lanes 8g .. 8g + 7 have eight of each
 * 32 entries, and lane % 8 selects the columns. dy is NULL past the last column. Returns whether the token has any row;
 * all lanes get the sums. */
template <typename T, int V>
static __device__ bool sum_rows(float *sum, const uint32_t *list, int count, uint32_t which, const T *dy, float scale,
                                int n) {
    int lane = threadIdx.x % 32, eighth = lane & 24;
    bool any = false;
    for (int base = 0; base < count; base += 32) {
        uint32_t entry = base + lane < count ? list[base + lane] : ~0u;
        unsigned hits = __ballot_sync(ALL_LANES, entry >> 16 == which);
        if (hits == 0)
            continue;
        any = true;
        pack<T, V> d[8];
        for (int k = 0; k < 8; k++) {
            int r = (int)(__shfl_sync(ALL_LANES, entry, eighth + k) & 0xffff);
            d[k] = pack<T, V>();
            if (hits >> (eighth + k) & 1 && dy)
                d[k] = load<V>(dy + r * n); /* a chunk has fewer than 2^31 elements */
        }
        for (int k = 0; k < 8; k++)
            for (int v = 0; v < V; v++)
                sum[v] += __fmul_rn(scale, widen(d[k].v[v]));
    }
    for (int v = 0; v < V && any; v++) {
        sum[v] += __shfl_xor_sync(ALL_LANES, sum[v], 8);
        sum[v] += __shfl_xor_sync(ALL_LANES, sum[v], 16);
    }
    return any;
}

template <typename T, int V>
static __global__ void __launch_bounds__(THREADS, 2)
    token_gradient(float *dw, const T *dy, const int32_t *tokens, range mine, float scale, int rows, int n,
                   bool first) {
    __shared__ uint32_t list[CHUNK];
    int lane = threadIdx.x % 32, owned = (mine.n - 1 - (int)blockIdx.x) / (int)gridDim.x + 1;
    int across = (n + 8 * V - 1) / (8 * V), tasks = owned * across;
    for (int r = 0; r < rows; r += CHUNK) {
        int count = list_rows(list, tokens + r, mine, min(rows - r, (int)CHUNK));
        bool fresh = first && r == 0;
        for (int task = threadIdx.x / 32; task < tasks; task += WARPS) {
            int which = task / across, column = (task % across * 8 + lane % 8) * V;
            float sum[V] = {};
            bool any =
                sum_rows<T, V>(sum, list, count, which, column < n ? dy + (int64_t)r * n + column : NULL, scale, n);
            if (lane >= 8 || column >= n || !(any || fresh))
                continue;
            store_sums<V>(dw + ((int64_t)which * gridDim.x + blockIdx.x) * n + column, sum, fresh);
        }
    }
}

/* A thread adds up V columns of one position over the sequences. When first, positions without rows become 0. */
template <typename T, int V>
static __global__ void position_gradient(float *dw, const T *dy, int rows, int context, positions places, int n,
                                         bool first) {
    unsigned across = n / V, i = blockIdx.x * THREADS + threadIdx.x, position = i / across, j = i % across * V;
    int from = row_at(&places, (int)position);
    if (position >= (unsigned)context || (from < 0 && !first))
        return;
    float sum[V] = {};
    for (int r = from < 0 ? rows : from; r < rows; r += places.length) {
        pack<T, V> d = load<V>(dy + (int64_t)r * n + j);
        for (int v = 0; v < V; v++)
            sum[v] += widen(d.v[v]);
    }
    store_sums<V>(dw + (int64_t)position * n + j, sum, first);
}

template <typename T> static void embedding_forward(const struct cuda_call *c) {
    const struct rt_layer *l = c->l;
    bool own = shared_table(c->m, l) == 0;
    const T *w = cuda_w<T>(c), *token = own ? w : (const T *)c->at->v;
    const range mine = tokens_of(c);
    const T *position = l->context == 0 || mine.first > 0 ? NULL : own ? w + (int64_t)mine.n * l->out : w;
    LAUNCH_ROWS(look_up, T, l->out, row_blocks<T>(l->rows, l->out, THREADS), THREADS, c->stream, cuda_at<T>(c, l->y),
                token, position, c->at->batch->token, mine, l->rows, positions_of(l), l->config.embedding.scale,
                l->out);
}

template <typename T> static void embedding_weight(const struct cuda_call *c) {
    const struct rt_layer *l = c->l;
    const T *dy = cuda_at<T>(c, l->dy);
    bool own = shared_table(c->m, l) == 0;
    float *dw = cuda_dw<T>(c), *token = own ? dw : c->at->dv;
    const range mine = tokens_of(c);
    float *position = own ? dw + (int64_t)mine.n * l->out : dw;
    LAUNCH_ROWS(token_gradient, T, l->out, min(mine.n, (int)BLOCKS), THREADS, c->stream, token, dy, c->at->batch->token,
                mine, l->config.embedding.scale, l->rows, l->out, own ? cuda_first(c) : c->at->vfirst);
    if (l->context == 0)
        return;
    LAUNCH_ROWS(position_gradient, T, l->out, row_blocks<T>(l->context, l->out, THREADS), THREADS, c->stream, position,
                dy, l->rows, l->context, positions_of(l), l->out, cuda_first(c));
}

const struct cuda_layer cuda_embedding = {EITHER(embedding_forward), NULL, EITHER(embedding_weight)};
