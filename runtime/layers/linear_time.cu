/* Products of linear layers, tried and timed in device memory of their own before training takes its memory: whether
 * they run at all, which algorithm is fastest, and whether an epilogue is faster than a kernel in its place. An
 * epilogue can be slower: llm.c leaves gelu to a kernel on Hopper, and users saw slow bias gradients for large shapes
 * (NVIDIA/CUDALibrarySamples#90). */
#include "linear_plan.cuh"
extern "C" {
#include "store/algorithms.h"
}

/* ---- device memory with a product's operands ---- */

struct trial {
    char *memory; /* NULL: there was none */
    char *a, *b, *d, *aux, *bias, *workspace;
    cudaEvent_t begin, end;
};

static int64_t padded(int64_t bytes) { return (bytes + 255) / 256 * 256; }

/* Places the product's operands. Returns the bytes that they need. */
static int64_t trial_place(struct trial *t, const struct plan *plan, enum way w) {
    const struct lt_product *p = &plan->product[w];
    int64_t size = (plan->bf16 ? 2 : 4) * plan->experts;
    int64_t a = padded(size * p->m * p->k), b = padded(size * p->k * p->n), d = padded(4 * plan->experts * p->m * p->n),
            aux = padded(size * p->m * p->n), bias = padded(4 * plan->out + ALIGNED);
    t->a = t->memory, t->b = t->a + a, t->d = t->b + b, t->aux = t->d + d, t->bias = t->aux + aux;
    t->workspace = t->bias + bias;
    return a + b + d + aux + bias + CUDA_WORKSPACE;
}

/* Allocates memory for the largest of all products, or of the optional ones. */
static bool trial_open(struct trial *t, bool optional) {
    int64_t most = 0;
    *t = {};
    for (int i = 0; i < linear.n; i++)
        for (int w = 0; w < NWAYS; w++) {
            bool counts = linear.plan[i].runs[w] && (!optional || is_optional((enum way)w));
            int64_t bytes = counts ? trial_place(t, &linear.plan[i], (enum way)w) : 0;
            most = bytes > most ? bytes : most;
        }
    if (most == 0)
        return false;
    if (cudaMalloc((void **)&t->memory, (size_t)most) != cudaSuccess) {
        cudaGetLastError(); /* the next call must not see this error */
        t->memory = NULL;
        return false;
    }
    CUDA(cudaEventCreate(&t->begin));
    CUDA(cudaEventCreate(&t->end));
    return true;
}

static void trial_close(struct trial *t) {
    if (!t->memory)
        return;
    CUDA(cudaEventDestroy(t->begin));
    CUDA(cudaEventDestroy(t->end));
    CUDA(cudaFree(t->memory));
    t->memory = NULL;
}

/* Fills all operands with random signs, and magnitudes from 1/8 to 2, in bf16 and in fp32. On zeros a GPU would run
 * faster than in training. */
static void randomize(const struct trial *t) {
    static uint16_t some[1 << 14];
    int64_t bytes = t->workspace - t->a;
    uint32_t state = 1;
    for (uint16_t &x : some) {
        state = state * 1664525 + 1013904223;
        x = (uint16_t)(state >> 31 << 15 | (0x3e00 + (state >> 20) % 0x200));
    }
    int64_t done = bytes < (int64_t)sizeof some ? bytes : (int64_t)sizeof some;
    CUDA(cudaMemcpy(t->a, some, (size_t)done, cudaMemcpyHostToDevice));
    for (; done < bytes; done *= 2)
        CUDA(cudaMemcpy(t->a + done, t->a, (size_t)(done < bytes - done ? done : bytes - done),
                        cudaMemcpyDeviceToDevice));
}

/* ---- one product, with its epilogue or with a kernel in its place ---- */

/* Returns the product's operands. Weight gradients add to the existing values, as they do for all microbatches but the
 * first.
 */
static struct operands operands_of(const struct plan *plan, enum way w, const struct trial *t) {
    return {t->a, t->b, t->d, t->bias + bias_shift(plan), t->aux, is_weight(w) ? 1.0f : 0.0f, t->workspace, 0};
}

template <typename T>
static cublasStatus_t run_fused(const struct plan *plan, enum way w, const cublasLtMatmulAlgo_t *algo,
                                const struct trial *t) {
    const struct operands o = operands_of(plan, w, t);
    if (w == WEIGHT_BIAS)
        return linear_multiply_weight<T>(plan, w, algo, &o, (float *)t->bias);
    return linear_multiply(plan, w, algo, &o);
}

/* Runs the gelu or relu layer that the epilogue computes: from aux to d, or backward in place. */
static void run_layer(const struct plan *plan, enum way w, const struct trial *t) {
    struct rt_model m = {};
    struct rt_layer l = {};
    struct rt_bind at = {};
    m.precision = plan->bf16 ? BF16 : FP32;
    l.kind = w == FORWARD_RELU ? LAYER_relu : LAYER_gelu;
    l.rows = plan->rows;
    l.in = l.out = w == INPUT_GELU ? plan->in : plan->out;
    l.x.space = SP_X, l.y.space = SP_Y, l.dy.space = SP_DY, l.dx.space = SP_DX;
    at.at[SP_X] = t->aux, at.at[SP_Y] = at.at[SP_DY] = at.at[SP_DX] = t->d;
    const struct cuda_call c = {&m, &l, &at, 0, t->workspace};
    const struct cuda_layer *layer = w == FORWARD_RELU ? &cuda_relu : &cuda_gelu;
    (w == INPUT_GELU ? layer->input : layer->forward)(&c);
}

/* Runs the same as a step without the optional way: the plain way and a kernel. A gelu after a bias uses the bias's
 * way, if that one is in use. */
template <typename T> static cublasStatus_t run_apart(const struct plan *plan, enum way w, const struct trial *t) {
    struct operands o = operands_of(plan, w, t);
    if (w == WEIGHT_BIAS)
        return linear_multiply_weight<T>(plan, WEIGHT, &plan->algo[WEIGHT], &o, (float *)t->bias);
    bool biased = plan->bias && w < INPUT, fused = biased && w != FORWARD_BIAS && plan->used[FORWARD_BIAS];
    enum way first = fused ? FORWARD_BIAS : plain_way(w);
    if (w == FORWARD_GELU || w == FORWARD_RELU)
        o.d = t->aux;
    cublasStatus_t status = linear_multiply(plan, first, &plan->algo[first], &o);
    if (status == CUBLAS_STATUS_SUCCESS && biased && !fused)
        cuda_add_bias((T *)o.d, (const T *)o.d, (const T *)o.bias, plan->rows, plan->out, 0);
    if (status == CUBLAS_STATUS_SUCCESS && w != FORWARD_BIAS)
        run_layer(plan, w, t);
    return status;
}

struct candidate {
    bool apart; /* the plain way and a kernel, instead of an epilogue */
    cublasLtMatmulAlgo_t algo;
    bool runs;
    float ms[7]; /* times of one run; sorted at the end */
};
enum { ROUNDS = sizeof((struct candidate *)0)->ms / sizeof(float), MEDIAN = ROUNDS / 2 };

static cublasStatus_t run_candidate(const struct plan *plan, enum way w, const struct candidate *one,
                                    const struct trial *t) {
    if (one->apart)
        return (plan->bf16 ? run_apart<__nv_bfloat16> : run_apart<float>)(plan, w, t);
    return (plan->bf16 ? run_fused<__nv_bfloat16> : run_fused<float>)(plan, w, &one->algo, t);
}

/* ---- tried once ---- */

/* Dies if the device has stopped: no later call could succeed, so there is no fallback. */
static void must_end(const struct plan *plan, enum way w) {
    const struct lt_product *p = &plan->product[w];
    cudaError_t code = cudaStreamSynchronize(0);
    if (code == cudaSuccess)
        return;
    fprintf(stderr,
            "pianola: error: CUDA: a product of %lld x %lld by %lld x %lld, %s, with %s stops the device: %s%s\n",
            (long long)p->m, (long long)p->k, (long long)p->k, (long long)p->n, p->types,
            is_optional(w) ? linear_name(w) : "no epilogue", cudaGetErrorString(code),
            is_optional(w) ? "; PIANOLA_EPILOGUES=0 turns epilogues off" : "");
    lt_end("cudaStreamSynchronize");
}

static cublasStatus_t try_once(const struct plan *plan, enum way w, const cublasLtMatmulAlgo_t *algo, struct trial *t) {
    const struct candidate one = {false, *algo, true, {}};
    trial_place(t, plan, w);
    cublasStatus_t status = run_candidate(plan, w, &one, t);
    must_end(plan, w);
    return status;
}

/* Without memory, the ways go untried: linear.cu notices a failure too. */
void linear_try_all(void) {
    struct trial t;
    if (!trial_open(&t, true))
        return;
    for (int i = 0; i < linear.n; i++)
        for (int j = 0; j < NWAYS; j++) {
            struct plan *plan = &linear.plan[i];
            enum way w = (enum way)j;
            cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
            if (is_optional(w) && plan->runs[w])
                status = try_once(plan, w, &plan->algo[w], &t);
            if (status != CUBLAS_STATUS_SUCCESS)
                linear_refuse(plan, w, status, "cublasLtMatmul");
        }
    trial_close(&t);
}

/* ---- timed ---- */

static int by_speed(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Times all candidates, and returns the one with the smallest median, or n if none runs. They take turns, so that
 * clocks and caches affect all equally. */
static int fastest(const struct plan *plan, enum way w, struct candidate *all, int n, const struct trial *t) {
    int best = n;
    randomize(t);
    for (int round = -1; round < ROUNDS; round++) /* the first is not timed */
        for (struct candidate *one = all; one < all + n; one++) {
            if (round >= 0 && !one->runs)
                continue;
            CUDA(cudaEventRecord(t->begin, 0));
            one->runs = run_candidate(plan, w, one, t) == CUBLAS_STATUS_SUCCESS;
            CUDA(cudaEventRecord(t->end, 0));
            CUDA(cudaEventSynchronize(t->end));
            if (!one->runs)
                cudaGetLastError(); /* the next launch must not see what cuBLASLt may have left */
            if (round >= 0)
                CUDA(cudaEventElapsedTime(&one->ms[round], t->begin, t->end));
        }
    for (int i = 0; i < n; i++) {
        qsort(all[i].ms, ROUNDS, sizeof *all[i].ms, by_speed);
        if (all[i].runs && (best == n || all[i].ms[MEDIAN] < all[best].ms[MEDIAN]))
            best = i;
    }
    return best;
}

/* Times a way. A plain way comes before its optional ones, and keeps its algorithm. */
static const char *time_way(struct plan *plan, enum way w, struct trial *t, struct algorithm *chosen) {
    struct candidate all[LT_MOST + 1] = {};
    cublasLtMatmulAlgo_t algo[LT_MOST];
    int n = 0;
    if (!t->memory && !trial_open(t, false))
        return "there is no device memory to time products";
    trial_place(t, plan, w);
    cublasStatus_t status = linear_ask(plan, w, algo, LT_MOST, &n);
    if (!is_optional(w))
        lt_must_multiply(status, &plan->product[w], "the heuristic");
    for (int i = 0; i < n; i++)
        all[i] = {false, algo[i], true, {}};
    if (is_optional(w))
        all[n++] = {true, {}, true, {}};
    int best = fastest(plan, w, all, n, t);
    if (best == n)
        return "none of cuBLASLt's algorithms runs";
    chosen->apart = all[best].apart;
    plan->used[w] = !chosen->apart;
    if (plan->used[w])
        plan->algo[w] = all[best].algo;
    memcpy(chosen->bytes, &plan->algo[w], sizeof plan->algo[w]);
    return NULL;
}

static void time_both(struct plan *plan, enum way w, struct cuda_epilogue *x) {
    const struct lt_product *p = &plan->product[w];
    const double size = plan->bf16 ? 2 : 4, m = (double)p->m, n = (double)p->n, k = (double)p->k;
    struct candidate both[2] = {{false, plan->algo[w], true, {}}, {true, {}, true, {}}};
    struct trial t;
    *x = {linear_name(w), plan->rows, plan->in, plan->out, plan->used[w], NAN, NAN, 2 * m * n * k, 0};
    x->bytes = size * (m * k + k * n) + (is_weight(w) ? 4 : has_aux(w) ? 2 * size : size) * m * n;
    if (!trial_open(&t, true))
        return;
    trial_place(&t, plan, w);
    fastest(plan, w, both, 2, &t);
    trial_close(&t);
    x->fused_us = both[0].runs ? 1e3 * (double)both[0].ms[MEDIAN] : NAN;
    x->apart_us = both[1].runs ? 1e3 * (double)both[1].ms[MEDIAN] : NAN;
}

bool cuda_linear_epilogue(int i, struct cuda_epilogue *x) {
    for (struct plan *plan = linear.plan; plan < linear.plan + linear.n; plan++)
        for (int w = 0; w < NWAYS; w++)
            if (is_optional((enum way)w) && plan->runs[w] && i-- == 0) {
                time_both(plan, (enum way)w, x);
                return true;
            }
    return false;
}

/* ---- algorithms chosen by time, and kept ---- */

static const char *type_name(bool bf16) { return bf16 ? "bf16" : "fp32"; }

static void product_key(const struct plan *plan, enum way w, char *key, size_t n) {
    const struct lt_product *p = &plan->product[w];
    bool weight = is_weight(w);
    int at =
        snprintf(key, n, "%s\t%zu\t%c%c %lld x %lld x %lld, %s to %s, epilogue %d", linear.device, cublasLtGetVersion(),
                 turns_a(plan, w) ? 'T' : 'N', weight ? 'T' : 'N', (long long)p->m, (long long)p->n, (long long)p->k,
                 type_name(plan->bf16), type_name(plan->bf16 && !weight), linear_epilogue(plan, w));
    if (plan->experts > 1)
        snprintf(key + at, n - (size_t)at, ", %d at once", plan->experts);
}

/* The algorithm's bytes may be stored: it "can be trivially serialized and later restored for use with the same version
 * of cuBLAS library" (cublasLt.h, cublasLtMatmulAlgo_t). */
static_assert(sizeof(cublasLtMatmulAlgo_t) == ALGORITHM_BYTES, "a file has all of it");

/* Uses the algorithm in a line of the file. If cuBLASLt refuses it, changes nothing and returns why. */
static cublasStatus_t use_kept(struct plan *plan, enum way w, struct trial *t, const struct algorithm *kept) {
    const struct lt_product *p = &plan->product[w];
    cublasLtMatmulHeuristicResult_t result = {};
    cublasLtMatmulAlgo_t algo;
    if (kept->apart) {
        plan->used[w] = !is_optional(w);
        return is_optional(w) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
    }
    memcpy(&algo, kept->bytes, sizeof algo);
    cublasStatus_t status = cublasLtMatmulAlgoCheck(linear.handle, p->desc, p->a, p->b, p->d, p->d, &algo, &result);
    if (status == CUBLAS_STATUS_SUCCESS && result.workspaceSize > workspace_of(plan, w))
        status = CUBLAS_STATUS_NOT_SUPPORTED;
    if (status == CUBLAS_STATUS_SUCCESS && (t->memory || trial_open(t, false)))
        status = try_once(plan, w, &algo, t);
    if (status != CUBLAS_STATUS_SUCCESS) {
        cudaGetLastError(); /* the next launch must not see what cuBLASLt may have left */
        return status;
    }
    plan->algo[w] = algo;
    plan->used[w] = true;
    return status;
}

/* Lines of the file whose algorithms cuBLASLt refuses. */
struct refusals {
    int n, line; /* line: of the first */
    cublasStatus_t status;
};

static void report_refusals(const struct refusals *refused, const char *path) {
    static bool reported; /* once in a process, which may plan several times */
    char more[64] = "";
    if (refused->n == 0 || reported)
        return;
    reported = true;
    if (refused->n > 1)
        snprintf(more, sizeof more, ", and those of %d other lines", refused->n - 1);
    fprintf(stderr,
            "pianola: %s:%d: cuBLASLt refuses this algorithm%s: %s; the heuristic's first is used instead. Remove such "
            "lines to time their products anew, or run without --algorithms\n",
            path, refused->line, more, cublasLtGetStatusName(refused->status));
}

static bool pin(struct plan *plan, enum way w, struct algorithms *all, struct trial *t, struct refusals *refused,
                char *why, size_t nwhy) {
    char key[512];
    struct algorithm kept = {};
    product_key(plan, w, key, sizeof key);
    if (algorithms_find(all, key, &kept)) {
        cublasStatus_t status = use_kept(plan, w, t, &kept);
        if (status != CUBLAS_STATUS_SUCCESS && refused->n++ == 0)
            refused->line = kept.line, refused->status = status;
        return true;
    }
    const char *trouble = time_way(plan, w, t, &kept);
    if (!trouble && !algorithms_add(all, key, &kept))
        trouble = "there is no memory on the host";
    if (trouble)
        snprintf(why, nwhy, "%s: %s", strrchr(key, '\t') + 1, trouble);
    return !trouble;
}

bool cuda_linear_pin(struct algorithms *all, char *why, size_t nwhy) {
    struct trial t = {};
    struct refusals refused = {};
    bool ok = true;
    for (int i = 0; i < linear.n; i++)
        for (int w = 0; ok && w < NWAYS; w++)
            ok = !linear.plan[i].runs[w] || pin(&linear.plan[i], (enum way)w, all, &t, &refused, why, nwhy);
    trial_close(&t);
    report_refusals(&refused, all->path);
    return ok;
}

bool cuda_linear_algorithms(const char *path, char *why, size_t nwhy) {
    struct algorithms all;
    if (!algorithms_read(&all, path, why, nwhy))
        return false;
    size_t had = all.n;
    bool ok = cuda_linear_pin(&all, why, nwhy) && (all.n == had || algorithms_write(&all, why, nwhy));
    algorithms_free(&all);
    return ok;
}
