/* The fused attention, on a GPU or run by the stand-in, against the host layer on the same random data; and in slices
 * of a sequence against the whole.
 *
 * Data is rounded to the model's precision before either sees it. Errors are measured against the largest value of a
 * tensor. With fp32 they come of the order of sums and of the exponential. With bf16 the kernels round p and ds, 2^-9
 * each, before they multiply them, and what they write; D is made of a rounded y. Outputs begin as NaN, and memory is
 * to the byte, with a fence behind it. Each case runs again with blocks and threads in reverse order, and must give the
 * same bits. */
#include "device.h"
#include "layers/attend.h"

static int passed, failed;

struct shape {
    int context, sequences, heads, dim;
    float size; /* of the numbers: large ones make a row's probabilities gather in a few places */
    int kv_heads, rope;
    int columns() const { return (heads + 2 * kv_heads) * dim; }
};

static void check(bool fine, const char *what, const char *precision, const struct shape *s) {
    passed += fine;
    failed += !fine;
    if (!fine)
        printf("    context %d, %d sequences, %d heads of %d, %d of keys, rope %d, numbers to %g, %s: %s FAILED\n",
               s->context, s->sequences, s->heads, s->dim, s->kv_heads, s->rope, (double)s->size, precision, what);
}

template <typename T> static float *numbers(int64_t n, float size) {
    float *p = (float *)fresh((size_t)n * sizeof *p);
    for (int64_t i = 0; i < n; i++)
        p[i] = widen(narrow<T>(size * ((float)random_bits() / (1 << 30) - 1)));
    return p;
}

/* ---- the layer on one side ---- */

struct side {
    struct rt_model m;
    struct rt_layer l;
    struct rt_bind at;
    size_t bytes[SP_DX + 1];
};

template <typename T> static struct side side_of(const struct shape *s, const float *x, const float *dy) {
    struct side k = {};
    int rows = s->context * s->sequences, width = s->heads * s->dim;
    int64_t values = (int64_t)rows * width, inputs = (int64_t)rows * s->columns();
    k.m.precision = sizeof(T) == 2 ? BF16 : FP32;
    k.l.kind = LAYER_attention;
    k.l.rows = rows, k.l.in = s->columns(), k.l.out = width, k.l.heads = s->heads, k.l.context = s->context;
    k.l.kv_heads = s->kv_heads, k.l.rope = s->rope;
    k.l.x.space = SP_X, k.l.y.space = SP_Y, k.l.aux.space = SP_STASH;
    k.l.dy.space = SP_DY, k.l.dx.space = SP_DX, k.l.tmp.space = SP_WORK;
    k.bytes[SP_X] = k.bytes[SP_DX] = (size_t)inputs * sizeof(T);
    k.bytes[SP_Y] = k.bytes[SP_DY] = (size_t)values * sizeof(T);
    k.bytes[SP_STASH] = k.bytes[SP_WORK] = (size_t)(rows * s->heads) * sizeof(float);
    for (int i = 0; i <= SP_DX; i++)
        k.at.at[i] = i == SP_X    ? copy_of<T>(x, inputs)
                     : i == SP_DY ? copy_of<T>(dy, values)
                                  : (char *)fresh(k.bytes[i]);
    return k;
}

static void run_kernels(struct side *k) {
    struct rt_bind at = bind_on_device(&k->at, NULL), forward = at; /* which has no gradients */
    struct cuda_call c = {};
    c.m = &k->m, c.l = &k->l, c.at = &forward;
    forward.at[SP_DY] = forward.at[SP_DX] = NULL;
    cuda_attention.forward(&c);
    c.at = &at;
    cuda_attention.input(&c);
    back();
}

static void run_host(struct side *k) {
    struct rt_stage stage = {};
    stage.layer = &k->l;
    stage.nlayers = 1;
    host_forward(&k->m, &stage, &k->at);
    host_backward(&k->m, &stage, &k->at, true, false);
}

/* ---- comparing ---- */

static double worst[2]; /* seen, of what is tolerated, with fp32 and bf16 */

/* Columns from .. from + n - 1 of rows of stride. */
template <typename T>
static bool close(const char *got, const char *want, int64_t rows, int stride, int from, int n, double tolerance) {
    const T *a = (const T *)got;
    const float *b = (const float *)want;
    double largest = 1, far = 0; /* numbers are about 1; of one row, dq and dk are 0 but for D's error */
    for (int64_t r = 0; r < rows; r++)
        for (int j = from; j < from + n; j++)
            largest = fmax(largest, fabs((double)b[r * stride + j]));
    for (int64_t r = 0; r < rows; r++)
        for (int j = from; j < from + n; j++) {
            double off = fabs((double)widen(a[r * stride + j]) - (double)b[r * stride + j]) / largest;
            if (!(off <= tolerance)) {
                printf("    row %lld, column %d: %.9g instead of %.9g, the largest being %.9g\n", (long long)r, j,
                       (double)widen(a[r * stride + j]), (double)b[r * stride + j], largest);
                return false;
            }
            far = fmax(far, off);
        }
    worst[sizeof(T) == 2] = fmax(worst[sizeof(T) == 2], far / tolerance);
    return true;
}

template <typename T> static void compare(const struct shape *s) {
    const char *precision = sizeof(T) == 2 ? "bf16" : "fp32";
    /* y is a mean of v's rows. Scores, and what comes of their error by exp, grow as the square of the numbers. */
    double forward = sizeof(T) == 2 ? 0.01 : 2e-6 * fmax(1, s->size * s->size / 4), backward = 2 * forward;
    double scores = sizeof(T) == 2 && s->rope > 0 ? 0.005 : 2e-6; /* bf16 rounds q and k once they are turned */
    int rows = s->context * s->sequences, width = s->heads * s->dim, in = s->columns(), keys = s->kv_heads * s->dim;
    float *x = numbers<T>(rows * in, s->size), *dy = numbers<T>(rows * width, 1);
    struct side host = side_of<float>(s, x, dy), cuda = side_of<T>(s, x, dy), again = side_of<T>(s, x, dy);
    run_host(&host);
    run_kernels(&cuda);
    grid_reverse = true;
    run_kernels(&again);
    grid_reverse = false;
    char **got = cuda.at.at, **want = host.at.at;
    check(close<T>(got[SP_Y], want[SP_Y], rows, width, 0, width, forward), "y", precision, s);
    check(close<float>(got[SP_STASH], want[SP_STASH], rows, s->heads, 0, s->heads, scores), "log-sum-exp", precision,
          s);
    check(close<T>(got[SP_DX], want[SP_DX], rows, in, 0, width, backward), "dq", precision, s);
    check(close<T>(got[SP_DX], want[SP_DX], rows, in, width, keys, backward), "dk", precision, s);
    check(close<T>(got[SP_DX], want[SP_DX], rows, in, width + keys, keys, forward), "dv", precision, s);
    bool same = true;
    for (int i = 0; i <= SP_DX; i++)
        same &= memcmp(got[i], again.at.at[i], cuda.bytes[i]) == 0;
    check(same, "the same bits again", precision, s);
    check(release(), "nothing written behind the end", precision, s);
}

/* ---- slices ---- */

/* All of a sequence in slices that end where the list says: each attends to the slices up to it, whose keys and values
 * lie in memory of their own. Results go where the layer has them. */
template <typename T> static void run_slices(const struct side *k, const struct shape *s, const int *ends) {
    enum { PAD = 8 };
    int width = s->heads * s->dim, in = s->columns(), keys = s->kv_heads * s->dim, n = 0, from = 0;
    struct segment segment[MOST] = {};
    struct attend a[MOST] = {};
    T *kv[MOST], *gradients[MOST];
    char *const *at = k->at.at;
    for (; from < s->context; from = ends[n++]) {
        int rows = ends[n] - from, stride = 2 * keys + PAD * n;
        kv[n] = (T *)fresh((size_t)rows * stride * sizeof(T));
        gradients[n] = (T *)fresh((size_t)rows * (2 * keys + PAD) * sizeof(T));
        for (int r = 0; r < rows; r++)
            memcpy(kv[n] + r * stride, (const T *)at[SP_X] + (from + r) * in + width, 2 * (size_t)keys * sizeof(T));
        segment[n].k = on_device(kv[n]), segment[n].v = on_device(kv[n]) + keys;
        segment[n].dk = on_device(gradients[n]), segment[n].dv = on_device(gradients[n]) + keys;
        segment[n].stride = stride, segment[n].dstride = 2 * keys + PAD;
        segment[n].first = from, segment[n].rows = rows;
        a[n].q = on_device((const T *)at[SP_X] + from * in), a[n].y = on_device((T *)at[SP_Y] + from * width);
        a[n].lse = on_device((float *)(void *)at[SP_STASH] + from * s->heads);
        a[n].q_stride = a[n].dq_stride = in, a[n].y_stride = width;
        a[n].sequences = 1, a[n].first = from, a[n].rows = rows;
        a[n].heads = s->heads, a[n].kv_heads = s->kv_heads, a[n].dim = s->dim;
        a[n].nsegments = n + 1, a[n].segment = segment;
        cuda_attend(&a[n], k->m.precision, 0);
        a[n].dq = on_device((T *)at[SP_DX] + from * in), a[n].dy = on_device((const T *)at[SP_DY] + from * width);
        a[n].d = on_device((float *)(void *)at[SP_WORK] + from * s->heads);
    }
    for (int i = n - 1; i >= 0; i--) {
        for (int j = 0; j <= i; j++)
            segment[j].add = i < n - 1;
        cuda_attend_backward(&a[i], k->m.precision, 0);
    }
    back();
    for (int i = 0; i < n; i++)
        for (int r = 0; r < segment[i].rows; r++)
            memcpy((T *)at[SP_DX] + (segment[i].first + r) * in + width, gradients[i] + r * (2 * keys + PAD),
                   2 * (size_t)keys * sizeof(T));
}

/* fp32 may differ by the order of sums. bf16 rounds p and ds from other maxima, and dk and dv after each slice. */
template <typename T> static void compare_slices(const struct shape *s, const int *ends) {
    const char *precision = sizeof(T) == 2 ? "bf16, in slices" : "fp32, in slices";
    int rows = s->context, width = s->heads * s->dim, in = s->columns(), keys = s->kv_heads * s->dim;
    float *x = numbers<T>(rows * in, s->size), *dy = numbers<T>(rows * width, 1);
    struct side host = side_of<float>(s, x, dy), cuda = side_of<T>(s, x, dy);
    double forward = sizeof(T) == 2 ? 0.01 : 1e-6, backward = sizeof(T) == 2 ? 0.02 : 1e-6;
    run_host(&host);
    run_slices<T>(&cuda, s, ends);
    char **got = cuda.at.at, **want = host.at.at;
    check(close<T>(got[SP_Y], want[SP_Y], rows, width, 0, width, forward), "y", precision, s);
    check(close<float>(got[SP_STASH], want[SP_STASH], rows, s->heads, 0, s->heads, 1e-6), "log-sum-exp", precision, s);
    check(close<T>(got[SP_DX], want[SP_DX], rows, in, 0, width, backward), "dq", precision, s);
    check(close<T>(got[SP_DX], want[SP_DX], rows, in, width, keys, backward), "dk", precision, s);
    check(close<T>(got[SP_DX], want[SP_DX], rows, in, width + keys, keys, backward), "dv", precision, s);
    check(release(), "nothing written behind the end", precision, s);
}

static void slices(void) {
    static const int ends[][16] = {{150},
                                   {1, 150},
                                   {149, 150},
                                   {64, 128, 150},
                                   {50, 100, 150},
                                   {3, 70, 71, 100, 140, 150},
                                   {10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 110, 120, 130, 150}};
    for (const int(&e)[16] : ends)
        for (int dim : {16, 5}) {
            struct shape s = {150, 1, 4, dim, 2, dim == 16 ? 2 : 4, 0};
            compare_slices<float>(&s, e);
            compare_slices<__nv_bfloat16>(&s, e);
        }
}

static int verdict(void) {
    printf("attention: %d passed, %d failed; errors to %.0f %% of what fp32 may have, %.0f %% of bf16's\n", passed,
           failed, 100 * worst[0], 100 * worst[1]);
    return failed > 0;
}

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "gpt2") == 0) { /* so many rows of GPT-2 124M, whose heads are of 64 */
        struct shape s = {atoi(argv[2]), 1, 12, 64, 2, 12, 0};
        compare<float>(&s);
        compare<__nv_bfloat16>(&s);
        return verdict();
    }
    static const int two[] = {2, 0}, one[] = {1, 0}, turned[] = {4, 10000}, both[] = {2, 10000};
    static const int context[] = {1, 7, 33, 64, 100}, dim[] = {16, 32, 64, 80, 96, 128, 5, 20};
    for (int c : context)
        for (int d : dim) {
            struct shape s = {c, c < 64 ? 2 : 1, 2, d, 2, 2, 0};
            compare<float>(&s);
            compare<__nv_bfloat16>(&s);
        }
    for (int d : {16, 80}) { /* three tiles of rows, and scores that are far apart */
        struct shape s = {130, 1, 1, d, 6, 1, 0};
        compare<float>(&s);
        compare<__nv_bfloat16>(&s);
    }
    for (int c : {7, 100})
        for (int d : {16, 128, 6}) /* heads that share keys, rope, and both */
            for (const int *way : {two, one, turned, both}) {
                struct shape s = {c, 2, 4, d, 2, way[0], way[1]};
                compare<float>(&s);
                compare<__nv_bfloat16>(&s);
            }
    slices();
    return verdict();
}
