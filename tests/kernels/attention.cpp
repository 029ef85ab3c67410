/* The fused attention, on a GPU or run by the stand-in, against the host layer on the same random data.
 *
 * Data is rounded to the model's precision before either sees it. Errors are measured against the largest value of a
 * tensor. With fp32 they come of the order of sums and of the exponential. With bf16 the kernels round p and ds, 2^-9
 * each, before they multiply them, and what they write; D is made of a rounded y. Outputs begin as NaN, and memory is
 * to the byte, with a fence behind it. Each case runs again with blocks and threads in reverse order, and must give the
 * same bits. */
#include "device.h"

static int passed, failed;

struct shape {
    int context, sequences, heads, dim;
    float size; /* of the numbers: large ones make a row's probabilities gather in a few places */
};

static void check(bool fine, const char *what, const char *precision, const struct shape *s) {
    passed += fine;
    failed += !fine;
    if (!fine)
        printf("    context %d, %d sequences, %d heads of %d, numbers to %g, %s: %s FAILED\n", s->context, s->sequences,
               s->heads, s->dim, (double)s->size, precision, what);
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
    int64_t values = (int64_t)rows * width;
    k.m.precision = sizeof(T) == 2 ? BF16 : FP32;
    k.l.kind = LAYER_attention;
    k.l.rows = rows, k.l.in = 3 * width, k.l.out = width, k.l.heads = s->heads, k.l.context = s->context;
    k.l.x.space = SP_X, k.l.y.space = SP_Y, k.l.aux.space = SP_STASH;
    k.l.dy.space = SP_DY, k.l.dx.space = SP_DX, k.l.tmp.space = SP_WORK;
    k.bytes[SP_X] = k.bytes[SP_DX] = 3 * (size_t)values * sizeof(T);
    k.bytes[SP_Y] = k.bytes[SP_DY] = (size_t)values * sizeof(T);
    k.bytes[SP_STASH] = k.bytes[SP_WORK] = (size_t)(rows * s->heads) * sizeof(float);
    for (int i = 0; i <= SP_DX; i++)
        k.at.at[i] = i == SP_X    ? copy_of<T>(x, 3 * values)
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
    int rows = s->context * s->sequences, width = s->heads * s->dim;
    float *x = numbers<T>(3 * rows * width, s->size), *dy = numbers<T>(rows * width, 1);
    struct side host = side_of<float>(s, x, dy), cuda = side_of<T>(s, x, dy), again = side_of<T>(s, x, dy);
    run_host(&host);
    run_kernels(&cuda);
    grid_reverse = true;
    run_kernels(&again);
    grid_reverse = false;
    char **got = cuda.at.at, **want = host.at.at;
    check(close<T>(got[SP_Y], want[SP_Y], rows, width, 0, width, forward), "y", precision, s);
    check(close<float>(got[SP_STASH], want[SP_STASH], rows, s->heads, 0, s->heads, 2e-6), "log-sum-exp", precision, s);
    check(close<T>(got[SP_DX], want[SP_DX], rows, 3 * width, 0, width, backward), "dq", precision, s);
    check(close<T>(got[SP_DX], want[SP_DX], rows, 3 * width, width, width, backward), "dk", precision, s);
    check(close<T>(got[SP_DX], want[SP_DX], rows, 3 * width, 2 * width, width, forward), "dv", precision, s);
    bool same = true;
    for (int i = 0; i <= SP_DX; i++)
        same &= memcmp(got[i], again.at.at[i], cuda.bytes[i]) == 0;
    check(same, "the same bits again", precision, s);
    check(release(), "nothing written behind the end", precision, s);
}

static int verdict(void) {
    printf("attention: %d passed, %d failed; errors to %.0f %% of what fp32 may have, %.0f %% of bf16's\n", passed,
           failed, 100 * worst[0], 100 * worst[1]);
    return failed > 0;
}

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "gpt2") == 0) { /* so many rows of GPT-2 124M, whose heads are of 64 */
        struct shape s = {atoi(argv[2]), 1, 12, 64, 2};
        compare<float>(&s);
        compare<__nv_bfloat16>(&s);
        return verdict();
    }
    static const int context[] = {1, 7, 33, 64, 100}, dim[] = {16, 32, 64, 80, 96, 128, 5, 20};
    for (int c : context)
        for (int d : dim) {
            struct shape s = {c, c < 64 ? 2 : 1, 2, d, 2};
            compare<float>(&s);
            compare<__nv_bfloat16>(&s);
        }
    for (int d : {16, 80}) { /* three tiles of rows, and scores that are far apart */
        struct shape s = {130, 1, 1, d, 6};
        compare<float>(&s);
        compare<__nv_bfloat16>(&s);
    }
    return verdict();
}
