/* The linear layer, the unembedding and experts through cuBLASLt, on a GPU or the stand-in, against products in double.
 *
 * bound.h bounds the error of a sum and of what cuBLASLt may round on the way. A bias is one more fp32 addition, fused
 * or not; a separate kernel adds it to the rounded product. With bf16, y and dx are rounded; the weight gradient is
 * fp32. Integers must match the host's bit for bit. Outputs begin as NaN; each case runs twice, and must give the same
 * bits. */
#include "bound.h"
#include "device.h"
#include "layers/linear_plan.cuh"

static int passed, failed;

struct shape {
    int rows, in, out;
    bool bias, integers, table; /* table: an unembedding */
    int experts;                /* each has `rows` rows; 0: no experts */
};
struct side {
    struct rt_model m;
    struct rt_layer l;
    struct rt_stage s;
    struct rt_bind at;
    bool bias_apart; /* a separate kernel added the bias */
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

/* A side points into itself, so it is filled in where it stays. */
template <typename T>
static void place(struct side *k, const struct shape *f, const float *x, const float *w, const float *dy) {
    int experts = f->experts ? f->experts : 1, rows = f->rows * experts;
    int64_t in = (int64_t)rows * f->in, out = (int64_t)rows * f->out, n = (int64_t)f->in * f->out * experts;
    memset(k, 0, sizeof *k);
    k->m.precision = sizeof(T) == 2 ? BF16 : FP32;
    k->m.vocab = f->out;
    k->l.kind = f->table ? LAYER_unembedding : f->experts ? LAYER_experts : LAYER_linear;
    k->l.config.moe.experts = f->experts;
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

/* Runs forward, backward, and the weight gradient once more, which adds to the first. */
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

/* ---- comparing ---- */

/* A side's operands as floats, one expert's tensor after another. */
struct tensors {
    const struct shape *f;
    const float *x, *w, *dy;
    bool bias_apart; /* a separate kernel added the bias */
};
enum { Y, DX, DW };

static matrix_product product_of(const struct tensors *o, int which, int expert) {
    const struct shape *f = o->f;
    int64_t rows = f->rows, in = f->in, out = f->out;
    const factor x = {o->x + expert * rows * in, which == DW && !f->table}, w = {o->w + expert * in * out, false};
    const factor dy = {o->dy + expert * rows * out, which == DW && f->table};
    if (which == Y)
        return multiply(x, {w.at, f->table}, f->rows, f->out, f->in);
    if (which == DX)
        return multiply(dy, {w.at, !f->table}, f->rows, f->in, f->out);
    return f->table ? multiply(dy, x, f->out, f->in, f->rows) : multiply(x, dy, f->in, f->out, f->rows);
}

template <typename T> static num with_bias(const struct tensors *o, const num &product, int64_t i) {
    num bias((double)o->w[(int64_t)o->f->in * o->f->out + i % o->f->out]);
    return (o->bias_apart ? as<T>(product) : product) + bias;
}

template <typename T> static verdict judge(const struct tensors *o, int which, const void *got) {
    const struct shape *f = o->f;
    const bool bf16 = sizeof(T) == 2;
    verdict all;
    for (int expert = 0; expert < (f->experts ? f->experts : 1); expert++) {
        matrix_product p = product_of(o, which, expert);
        int64_t n = (int64_t)p.value.size();
        for (int64_t i = 0, at = expert * n; i < n; i++, at++)
            if (which == DW) /* added twice */
                all.see(((const float *)got)[at], p.at(i, bf16, 2), at);
            else if (which == Y && f->bias)
                all.see(((const T *)got)[at], with_bias<T>(o, p.at(i, bf16), i), at);
            else
                all.see(((const T *)got)[at], p.at(i, bf16), at);
    }
    return all;
}

static verdict judge_bias(const struct tensors *o, const float *got) {
    const struct shape *f = o->f;
    verdict all;
    for (int j = 0; j < f->out; j++) {
        sum s;
        for (int64_t r = 0; r < f->rows; r++)
            s.add((double)o->dy[r * f->out + j]);
        all.see(got[(int64_t)f->in * f->out + j], s.total(true, 2), j); /* BGRADA may use tensor cores */
    }
    return all;
}

/* Returns whether integers, whose sums are exact in fp32, equal the host's, rounded once. */
template <typename T> static bool same_numbers(const void *got, const void *want, int64_t n) {
    bool same = true;
    for (int64_t i = 0; i < n; i++)
        same &= widen(((const T *)got)[i]) == widen(narrow<T>(((const float *)want)[i]));
    return same;
}

template <typename T> static void judge_all(const struct tensors *o, const struct side *got) {
    const struct shape *f = o->f;
    const bool bf16 = sizeof(T) == 2;
    const char *layer = f->table ? "unembedding" : f->experts ? "experts" : "linear", *p = bf16 ? "bf16" : "fp32";
    check(within(judge<T>(o, Y, got->at.at[SP_Y]), layer, "forward", bf16), "forward", p, f);
    check(within(judge<T>(o, DX, got->at.at[SP_DX]), layer, "input gradient", bf16), "input gradient", p, f);
    check(within(judge<T>(o, DW, got->at.dw), layer, "weight gradient", bf16), "weight gradient", p, f);
    if (f->bias)
        check(within(judge_bias(o, got->at.dw), layer, "bias gradient", bf16), "bias gradient", p, f);
}

template <typename T> static void compare_host(const struct tensors *o, const struct side *got) {
    const struct shape *f = o->f;
    const char *p = sizeof(T) == 2 ? "bf16" : "fp32";
    struct side host;
    int64_t rows = (int64_t)f->rows * (f->experts ? f->experts : 1);
    int64_t params = (int64_t)f->in * f->out * (f->experts ? f->experts : 1) + (f->bias ? f->out : 0);
    place<float>(&host, f, o->x, o->w, o->dy);
    run_host(&host);
    check(same_numbers<float>(got->at.dw, host.at.dw, params), "weight gradient", p, f);
    check(same_numbers<T>(got->at.at[SP_Y], host.at.at[SP_Y], rows * f->out), "forward", p, f);
    check(same_numbers<T>(got->at.at[SP_DX], host.at.at[SP_DX], rows * f->in), "input gradient", p, f);
}

template <typename T> static void compare(const struct shape *f, void *workspace) {
    const char *precision = sizeof(T) == 2 ? "bf16" : "fp32";
    int experts = f->experts ? f->experts : 1;
    int64_t in = (int64_t)f->rows * experts * f->in, out = (int64_t)f->rows * experts * f->out;
    int64_t n = (int64_t)f->in * f->out * experts + f->out;
    float *x = numbers<T>(in, f->integers), *w = numbers<T>(n, f->integers), *dy = numbers<T>(out, f->integers);
    struct tensors o = {f, x, w, dy, false};
    struct side once, again;
    place<T>(&once, f, x, w, dy);
    place<T>(&again, f, x, w, dy);
    run_kernels(&once, workspace);
    run_kernels(&again, workspace);
    o.bias_apart = once.bias_apart;
    judge_all<T>(&o, &once);
    if (f->integers)
        compare_host<T>(&o, &once);
    bool same = !memcmp(once.at.at[SP_Y], again.at.at[SP_Y], (size_t)out * sizeof(T)) &&
                !memcmp(once.at.at[SP_DX], again.at.at[SP_DX], (size_t)in * sizeof(T)) &&
                !memcmp(once.at.dw, again.at.dw, (size_t)(n - (f->bias ? 0 : f->out)) * 4);
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
    if (argc == 3 && strcmp(argv[1], "gpt2") == 0) { /* the products of GPT-2 124M with n rows */
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
            if (f.in % 8 == 0 && f.out % 8 == 0) /* cuBLASLt needs 16 bytes of bf16 */
                compare<__nv_bfloat16>(&f, workspace);
        }
    }
    CUDA_OK(cudaFree(workspace));
    print_shares();
    printf("linear: %d passed, %d failed; at most %.2f of a limit with fp32, %.2f with bf16\n", passed, failed,
           most_reached(false), most_reached(true));
    return failed > 0;
}
