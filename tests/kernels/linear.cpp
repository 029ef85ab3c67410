/* The linear layer, the unembedding and experts through cuBLASLt, on a GPU or the stand-in, against the host layers on
 * the same random data.
 *
 * Data is rounded to the model's precision before either sees it, and sums are fp32 on both sides. So a tensor's
 * errors, against its largest value, come of the order of sums, and with bf16 of rounding what is written in it: once,
 * or twice where a kernel adds the bias to a product that was written.
 * Integers must agree bit for bit with fp32. Outputs begin as NaN; each case runs twice, and must give the same bits.
 */
#include "device.h"
#include "layers/linear_plan.cuh"

static int passed, failed;
static double worst[2]; /* seen, of what is tolerated, with fp32 and bf16 */

struct shape {
    int rows, in, out;
    bool bias, integers, table; /* table: an unembedding */
    int experts;                /* each of which has so many rows; 0: no experts */
};
struct side {
    struct rt_model m;
    struct rt_layer l;
    struct rt_stage s;
    struct rt_bind at;
    bool bias_apart; /* a kernel added the bias */
};

static void check(bool fine, const char *what, const char *precision, const struct shape *f) {
    passed += fine;
    failed += !fine;
    if (!fine)
        printf("    %d x %d by %d%s, %s%s: %s FAILED\n", f->rows, f->in, f->out,
               f->table     ? " transposed"
               : f->experts ? " of each expert"
               : f->bias    ? " with bias"
                            : "",
               precision, f->integers ? ", integers" : "", what);
}

template <typename T> static float *numbers(int64_t n, bool integers) {
    float *p = (float *)fresh((size_t)n * sizeof *p);
    for (int64_t i = 0; i < n; i++)
        p[i] = widen(narrow<T>(integers ? (float)(random_bits() % 5) - 2 : (float)random_bits() / (1 << 30) - 1));
    return p;
}

/* A side points into itself: it is filled in where it stays. */
template <typename T>
static void place(struct side *k, const struct shape *f, const float *x, const float *w, const float *dy) {
    int experts = f->experts ? f->experts : 1, rows = f->rows * experts;
    int64_t in = (int64_t)rows * f->in, out = (int64_t)rows * f->out, n = (int64_t)f->in * f->out * experts;
    memset(k, 0, sizeof *k);
    k->m.precision = sizeof(T) == 2 ? BF16 : FP32;
    k->m.vocab = f->out;
    k->l.kind = f->table ? LAYER_unembedding : f->experts ? LAYER_experts : LAYER_linear;
    k->l.experts = f->experts;
    k->l.rows = rows, k->l.in = f->in, k->l.out = f->out;
    k->l.nparam = f->table ? 0 : n + (f->bias ? f->out : 0);
    k->l.x.space = SP_X, k->l.y.space = SP_Y, k->l.dy.space = SP_DY, k->l.dx.space = SP_DX;
    k->s.layer = &k->l;
    k->s.nlayers = 1;
    k->at.at[SP_X] = copy_of<T>(x, in);
    k->at.at[SP_DY] = copy_of<T>(dy, out);
    k->at.at[SP_Y] = (char *)fresh((size_t)out * sizeof(T));
    k->at.at[SP_DX] = (char *)fresh((size_t)in * sizeof(T));
    k->at.w = k->at.v = (float *)(void *)copy_of<T>(w, n + (f->bias ? f->out : 0));
    k->at.dw = k->at.dv = (float *)fresh((size_t)(n + f->out + PARAM_ALIGN) * 4); /* the host clears what follows */
}

/* Forward, backward, and a weight gradient once more that adds to the first. */
static void run_kernels(struct side *k, void *workspace) {
    struct rt_program p = {};
    struct rt_bind at = bind_on_device(&k->at, NULL);
    struct cuda_call c = {&k->m, &k->l, &at, 0, workspace};
    p.model = &k->m;
    p.stages = 1;
    p.stage = &k->s;
    cuda_linear_plan(&p);
    const struct cuda_layer *f = k->l.kind == LAYER_linear    ? &cuda_linear
                                 : k->l.kind == LAYER_experts ? &cuda_experts
                                                              : &cuda_unembedding;
    f->forward(&c);
    f->input(&c);
    at.first = at.vfirst = true;
    f->weight(&c);
    at.first = at.vfirst = false;
    f->weight(&c);
    back();
    const struct plan *plan = linear_find(&k->l);
    k->bias_apart = plan->bias && !plan->used[FORWARD_BIAS];
    cuda_linear_forget();
}

static void run_host(struct side *k) {
    k->at.first = k->at.vfirst = true;
    host_forward(&k->m, &k->s, &k->at);
    host_backward(&k->m, &k->s, &k->at, true, true);
    k->at.first = k->at.vfirst = false;
    host_backward(&k->m, &k->s, &k->at, false, true);
}

template <typename T> static bool close(const void *got, const void *want, int64_t n, double tolerance, int bf16) {
    const T *a = (const T *)got;
    const float *b = (const float *)want;
    double largest = 0, far = 0;
    for (int64_t i = 0; i < n; i++)
        largest = fmax(largest, fabs((double)b[i]));
    for (int64_t i = 0; i < n; i++) {
        double off = fabs((double)widen(a[i]) - (double)b[i]);
        if (!(off <= tolerance * largest)) {
            printf("    element %lld: %.9g instead of %.9g, the largest being %.9g\n", (long long)i,
                   (double)widen(a[i]), (double)b[i], largest);
            return false;
        }
        far = fmax(far, largest > 0 ? off / largest : 0);
    }
    worst[bf16] = tolerance > 0 ? fmax(worst[bf16], far / tolerance) : worst[bf16];
    return true;
}

template <typename T> static void compare(const struct shape *f, void *workspace) {
    const bool bf16 = sizeof(T) == 2;
    const char *precision = bf16 ? "bf16" : "fp32";
    int experts = f->experts ? f->experts : 1;
    int64_t in = (int64_t)f->rows * experts * f->in, out = (int64_t)f->rows * experts * f->out;
    int64_t n = (int64_t)f->in * f->out * experts + f->out;
    float *x = numbers<T>(in, f->integers), *w = numbers<T>(n, f->integers), *dy = numbers<T>(out, f->integers);
    int64_t params = n - (f->bias ? 0 : f->out);
    double sums = f->integers ? 0 : 2e-5, rounded = sums + (bf16 ? 1.01 / 256 : 0);
    struct side host, once, again;
    place<float>(&host, f, x, w, dy);
    place<T>(&once, f, x, w, dy);
    place<T>(&again, f, x, w, dy);
    run_host(&host);
    run_kernels(&once, workspace);
    run_kernels(&again, workspace);
    double forward = rounded + (bf16 && once.bias_apart ? 1.01 / 256 : 0);
    check(close<T>(once.at.at[SP_Y], host.at.at[SP_Y], out, forward, bf16), "forward", precision, f);
    check(close<T>(once.at.at[SP_DX], host.at.at[SP_DX], in, rounded, bf16), "input gradient", precision, f);
    check(close<float>(once.at.dw, host.at.dw, params, sums, bf16), "weight gradient", precision, f);
    bool same = !memcmp(once.at.at[SP_Y], again.at.at[SP_Y], (size_t)out * sizeof(T)) &&
                !memcmp(once.at.at[SP_DX], again.at.at[SP_DX], (size_t)in * sizeof(T)) &&
                !memcmp(once.at.dw, again.at.dw, (size_t)params * 4);
    check(same, "the same bits again", precision, f);
    check(release(), "nothing written behind a tensor", precision, f);
}

int main(int argc, char **argv) {
    static const struct shape small[] = {
        {1, 1, 1, true, false, false, 0},     {3, 5, 7, true, true, false, 0},     {16, 32, 96, true, true, false, 0},
        {16, 32, 96, true, false, false, 0},  {33, 64, 8, false, false, false, 0}, {64, 24, 40, true, true, false, 0},
        {16, 32, 96, false, false, true, 0},  {5, 8, 1024, false, true, true, 0},  {3, 5, 7, false, true, false, 3},
        {16, 32, 96, false, false, false, 4}, {3, 8, 24, false, false, false, 5}};
    void *workspace;
    CUDA_OK(cudaMalloc(&workspace, CUDA_WORKSPACE));
    if (argc == 3 && strcmp(argv[1], "gpt2") == 0) { /* the products of GPT-2 124M, so many rows */
        int rows = atoi(argv[2]);
        for (struct shape f :
             {shape{rows, 768, 2304, true, false, false, 0}, shape{rows, 768, 768, true, false, false, 0},
              shape{rows, 768, 3072, true, false, false, 0}, shape{rows, 3072, 768, true, true, false, 0},
              shape{rows / 4 + 1, 768, 50304, false, false, true, 0}}) {
            compare<float>(&f, workspace);
            compare<__nv_bfloat16>(&f, workspace);
        }
    } else {
        for (struct shape f : small) {
            compare<float>(&f, workspace);
            if (f.in % 8 == 0 && f.out % 8 == 0) /* cuBLASLt wants 16 bytes of bf16 */
                compare<__nv_bfloat16>(&f, workspace);
        }
    }
    CUDA_OK(cudaFree(workspace));
    printf("linear: %d passed, %d failed; errors to %.0f %% of what fp32 may have, %.0f %% of bf16's\n", passed, failed,
           100 * worst[0], 100 * worst[1]);
    return failed > 0;
}
