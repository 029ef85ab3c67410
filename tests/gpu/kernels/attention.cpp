/* The fused attention, on a GPU or on the stand-in, against its definition in double; and slices of a sequence against
 * the whole.
 *
 * Each kernel is judged by its inputs. For the forward these are q, k and v, as rounded by rope in x. The backward also
 * has the y and the log-sum-exp that the forward has stored. bound.h propagates all other errors. With bf16 a kernel
 * rounds p, as an operand of p v and of p^T dy, and ds, as an operand of ds k and ds^T q. cuDNN does the same. A
 * rounding is 2^-8 of the value, whether p is divided by its row's sum before or after, or ds multiplied by the scale.
 * The sum of p is over unrounded values. Outputs begin as NaN, and memory is exact to the byte, followed by a fence.
 * Each case runs again with blocks and threads in reverse order, and must give the same bits. */
#include "bound.h"
#include "device.h"
#include "layers/attend.h"

static int passed, failed;

struct shape {
    int context, sequences, heads, dim;
    float size; /* magnitude of the numbers: large ones concentrate a row's probabilities in a few places */
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
    k.l.rows = rows, k.l.in = s->columns(), k.l.out = width, k.l.config.attention.heads = s->heads,
    k.l.context = s->context;
    k.l.config.attention.kv_heads = s->kv_heads, k.l.config.attention.rope = s->rope;
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
    struct rt_bind at = bind_on_device(&k->at, NULL), forward = at; /* it has no gradients */
    struct cuda_call c = {};
    c.m = &k->m, c.l = &k->l, c.at = &forward;
    forward.at[SP_DY] = forward.at[SP_DX] = NULL;
    cuda_attention.forward(&c);
    c.at = &at;
    cuda_attention.input(&c);
    back();
}

/* ---- the definition ---- */

/* A layer's reference, and verdicts on a side's results. q, k and v lie in x, after rope. */
template <typename T> struct judge {
    const struct shape *s;
    const struct side *got;
    int slices; /* slices over which dk and dv are summed, each sum rounded to T */
    int width = s->heads * s->dim, in = s->columns(), keys = s->kv_heads * s->dim, rows = s->context;
    double scale = 1 / sqrt((double)s->dim);
    std::vector<float> x = floats(SP_X), y = floats(SP_Y), dy = floats(SP_DY);
    const float *lse = (const float *)(const void *)got->at.at[SP_STASH];
    const float *d = (const float *)(const void *)got->at.at[SP_WORK];
    std::vector<num> dx; /* before rope rotates it back */
    verdict turned, of_y, of_lse, of_d, of_dx[3];

    static constexpr bool TENSOR = sizeof(T) == 2;

    judge(const struct shape *shape, const struct side *side, int parts) : s(shape), got(side), slices(parts) {}
    std::vector<float> floats(int space) const {
        std::vector<float> all(got->bytes[space] / sizeof(T));
        for (size_t i = 0; i < all.size(); i++)
            all[i] = widen(((const T *)(const void *)got->at.at[space])[i]);
        return all;
    }
    template <typename N> N *row(std::vector<N> &all, int64_t r, int stride, int column) {
        return all.data() + r * stride + column;
    }

    /* Returns exp(s scale - top) for the rows of a query and a key. */
    num probability(const float *q, const float *k, const num &top, double ulps) const {
        num score =
            with_ulps(dot(q, k, s->dim, TENSOR) * scale, 1); /* the scale is rounded, also together with log2(e) */
        return exponential(score - top, ulps);
    }

    /* Judges a sequence's head; first: the sequence's first row. */
    void forward(int64_t first, int head);
    void backward(int64_t first, int key);
    void backward_query(int64_t first, int i, int head, std::vector<sum> &dk, std::vector<sum> &dv);
    void turn(const float *before);
    void see_gradients();
};

template <typename T> void judge<T>::forward(int64_t first, int head) {
    int key = head / (s->heads / s->kv_heads), dim = s->dim;
    for (int i = 0; i < rows; i++) {
        const float *q = row(x, first + i, in, head * dim);
        double top = -INFINITY;
        for (int j = 0; j <= i; j++)
            top = fmax(top, dot(q, row(x, first + j, in, width + key * dim), dim, TENSOR).v * scale);
        /* For each tile of at least 32 columns, the earlier sum is multiplied by exp2f of the maxima's distance. */
        double ulps = 2 + 2.5 * (i / 32 + slices);
        sum total;
        std::vector<sum> o((size_t)dim);
        for (int j = 0; j <= i; j++) {
            num p = probability(q, row(x, first + j, in, width + key * dim), top, ulps);
            const float *v = row(x, first + j, in, width + keys + key * dim);
            total.add(p);
            for (int c = 0; c < dim; c++)
                o[(size_t)c].add(as<T>(p), (double)v[c]);
        }
        num all = total.total(false);
        int64_t at = (first + i) * s->heads + head;
        for (int c = 0; c < dim; c++)
            of_y.see(((const T *)(const void *)got->at.at[SP_Y])[at * dim + c], o[(size_t)c].total(TENSOR) / all,
                     at * dim + c);
        of_lse.see(lse[at], with_ulps(num(top), 1) + logarithm(all), at);
    }
}

/* Computes a query's dq, and adds its terms of dk and dv. All keys share the error of D. */
template <typename T>
void judge<T>::backward_query(int64_t first, int i, int head, std::vector<sum> &dk, std::vector<sum> &dv) {
    int key = head / (s->heads / s->kv_heads), dim = s->dim;
    int64_t r = first + i;
    const float *q = row(x, r, in, head * dim), *of_row = row(dy, r, width, head * dim);
    num D = dot(of_row, row(y, r, width, head * dim), dim, false);
    std::vector<sum> dq((size_t)dim);
    of_d.see(d[r * s->heads + head], D, r * s->heads + head);
    for (int j = 0; j <= i; j++) {
        const float *k = row(x, first + j, in, width + key * dim), *v = k + keys;
        num p = probability(q, k, with_ulps(num((double)lse[r * s->heads + head]), 1), 2);
        num ds = as<T>(with_ulps(num(scale), 1) * p * (dot(of_row, v, dim, TENSOR) - D));
        num rounded = as<T>(p);
        for (int c = 0; c < dim; c++) {
            dq[(size_t)c].add(ds, (double)k[c]);
            dk[(size_t)(j * dim + c)].add(ds, (double)q[c]);
            dv[(size_t)(j * dim + c)].add(rounded, (double)of_row[c]);
        }
    }
    for (int c = 0; c < dim; c++)
        *row(dx, r, in, head * dim + c) = dq[(size_t)c].total(TENSOR);
}

template <typename T> void judge<T>::backward(int64_t first, int key) {
    int group = s->heads / s->kv_heads, dim = s->dim;
    std::vector<sum> dk((size_t)(rows * dim)), dv = dk;
    for (int head = key * group; head < (key + 1) * group; head++)
        for (int i = 0; i < rows; i++)
            backward_query(first, i, head, dk, dv);
    auto added = [&](const sum &of) { /* slice by slice; each rounds a part of it */
                                      double part = UNIT_BF16 * (fabs(of.v) + 2 * sqrt(of.terms)),
                                             times = TENSOR ? slices - 1 : 0;
                                      num all = of.total(TENSOR);
                                      return num(all.v, all.e, all.own + times * part,
                                                 hypot(all.rms, sqrt(times) * part));
    };
    for (int j = 0; j < rows; j++)
        for (int c = 0; c < dim; c++) {
            *row(dx, first + j, in, width + key * dim + c) = added(dk[(size_t)(j * dim + c)]);
            *row(dx, first + j, in, width + keys + key * dim + c) = added(dv[(size_t)(j * dim + c)]);
        }
}

/* Judges what rope has made of x, and rotates dx back, which was rounded to T before. */
template <typename T> void judge<T>::turn(const float *before) {
    struct positions positions = positions_of(&got->l);
    const T *now = (const T *)(const void *)got->at.at[SP_X];
    int half = s->dim / 2;
    for (int r = 0; r < got->l.rows; r++)
        for (int h = 0; h < s->heads + s->kv_heads; h++)
            for (int i = 0; i < half; i++) {
                double angle = 2 * M_PI * position_of(&positions, r) * rope_turns(&got->l, i, s->dim);
                num c = {cos(angle), 4 * UNIT, 0, 0}, z = {sin(angle), 4 * UNIT, 0, 0}; /* polynomials of degree 8 */
                int64_t left = (int64_t)r * in + h * s->dim + i, right = left + half;
                num a = (double)before[left], b = (double)before[right];
                turned.see(now[left], a * c - b * z, left);
                turned.see(now[right], b * c + a * z, right);
                a = as<T>(dx[(size_t)left]), b = as<T>(dx[(size_t)right]);
                dx[(size_t)left] = a * c + b * z;
                dx[(size_t)right] = b * c - a * z;
            }
}

template <typename T> void judge<T>::see_gradients() {
    const T *at = (const T *)(const void *)got->at.at[SP_DX];
    for (size_t i = 0; i < dx.size(); i++) {
        int column = (int)i % in;
        of_dx[column < width ? 0 : column < width + keys ? 1 : 2].see(at[i], dx[i], (int64_t)i);
    }
}

/* Judges all results. x: the layer's input, before rope. */
template <typename T> static void judge_all(const struct shape *s, const struct side *got, int slices, const float *x) {
    const bool bf16 = sizeof(T) == 2;
    const char *layer = slices > 1 ? "attention in slices" : "attention", *precision = bf16 ? "bf16" : "fp32";
    judge<T> j(s, got, slices);
    j.dx.resize(j.x.size());
    for (int64_t first = 0; first < (int64_t)s->sequences * s->context; first += s->context) {
        for (int head = 0; head < s->heads; head++)
            j.forward(first, head);
        for (int key = 0; key < s->kv_heads; key++)
            j.backward(first, key);
    }
    if (s->rope > 0)
        j.turn(x);
    j.see_gradients();
    check(within(j.of_y, layer, "y", bf16), "y", precision, s);
    check(within(j.of_lse, layer, "log-sum-exp", bf16), "log-sum-exp", precision, s);
    check(within(j.of_d, layer, "D", bf16), "D", precision, s);
    const char *gradients[] = {"dq", "dk", "dv"};
    for (int i = 0; i < 3; i++)
        check(within(j.of_dx[i], layer, gradients[i], bf16), gradients[i], precision, s);
    if (s->rope > 0)
        check(within(j.turned, layer, "turned q and k", bf16), "turned q and k", precision, s);
}

template <typename T> static void compare(const struct shape *s) {
    int rows = s->context * s->sequences, width = s->heads * s->dim, in = s->columns();
    float *x = numbers<T>(rows * in, s->size), *dy = numbers<T>(rows * width, 1);
    struct side cuda = side_of<T>(s, x, dy), again = side_of<T>(s, x, dy);
    run_kernels(&cuda);
    grid_reverse = true;
    run_kernels(&again);
    grid_reverse = false;
    judge_all<T>(s, &cuda, 1, x);
    bool same = true;
    for (int i = 0; i <= SP_DX; i++)
        same &= memcmp(cuda.at.at[i], again.at.at[i], cuda.bytes[i]) == 0;
    check(same, "the same bits again", sizeof(T) == 2 ? "bf16" : "fp32", s);
    check(release(), "nothing written behind the end", sizeof(T) == 2 ? "bf16" : "fp32", s);
}

/* ---- slices ---- */

/* Runs a whole sequence in slices that end where the list says. Each attends to all slices up to itself, whose keys and
 * values lie in their own memory. Results go where the layer has them. */
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

template <typename T> static void compare_slices(const struct shape *s, const int *ends) {
    int rows = s->context, width = s->heads * s->dim, slices = 1;
    float *x = numbers<T>(rows * s->columns(), s->size), *dy = numbers<T>(rows * width, 1);
    struct side cuda = side_of<T>(s, x, dy);
    while (ends[slices - 1] < rows)
        slices++;
    run_slices<T>(&cuda, s, ends);
    judge_all<T>(s, &cuda, slices, x);
    check(release(), "nothing written behind the end", sizeof(T) == 2 ? "bf16, in slices" : "fp32, in slices", s);
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
    print_shares();
    printf("attention: %d passed, %d failed; at most %.2f of a limit with fp32, %.2f with bf16\n", passed, failed,
           most_reached(false), most_reached(true));
    return failed > 0;
}

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "gpt2") == 0) { /* n rows of GPT-2 124M, with heads of 64 */
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
