/* The CUDA kernels, on a GPU or on the stand-in, on random data.
 *
 * Data is rounded to the model's precision first. Gates, norms and the cross entropy are judged by their definition in
 * double, within the bounds of reference.h and bound.h. Backwards are judged by the statistics of the device's own
 * forward. The other layers must match the host's bit for bit, or with bf16 match those rounded: mse, bias and
 * embedding get integers, whose fp32 sums are exact. Outputs begin as NaN. Each kernel runs again with its blocks and
 * threads in reverse order, and must give the same bits. */
#include "device.h"
#include "layers/clip.h"
#include "reference.h"

static int passed, failed;

static void check(bool fine, const char *what, const char *precision, const char *shape) {
    passed += fine;
    failed += !fine;
    if (!fine)
        printf("    %s, %s, %s: FAILED\n", shape, precision, what);
}

/* Returns n numbers that T can hold: small integers, or reals from -2 to 2. */
template <typename T> static float *numbers(int64_t n, bool integers) {
    float *p = (float *)fresh((size_t)n * sizeof *p);
    for (int64_t i = 0; i < n; i++) {
        float x = integers ? (float)(random_bits() % 17) - 8 : (float)random_bits() / (1u << 29) - 2;
        p[i] = widen(narrow<T>(x));
    }
    return p;
}

/* ---- a layer on one side ---- */

struct shape {
    int kind, rows, in, out, context, vocab;
    int64_t nparam;
    bool exact, integers; /* exact: fp32 must match bit for bit; integers: the data */
    char name[80];
    struct rt_share share;
    int heads = 0, kv_heads = 0; /* for a norm of heads */
    const char *layer = "";
};
struct data {
    float *x, *w, *dy, *other, *y, *v; /* other: what a fork or a join adds; v: a shared table */
    int32_t *token, *target;
};
struct side {
    struct rt_model m;
    struct rt_layer l;
    struct rt_stage s;
    struct rt_batch batch;
    struct rt_bind at;
    struct rt_draw draw;
    int64_t *counted;
};

enum { BEFORE = 32 }; /* parameters of layers before this one, so that offsets matter */

static bool is_loss(int kind) { return kind == LAYER_cross_entropy || kind == LAYER_mse || kind == LAYER_mean_loss; }

/* Returns the numbers that a norm keeps per row. */
static int statistics(const struct shape *f) {
    if (f->kind == LAYER_headnorm)
        return f->heads + f->kv_heads;
    return f->kind == LAYER_layernorm ? 2 : f->kind == LAYER_rmsnorm ? 1 : 0;
}

template <typename T> static int64_t aux_bytes(const struct shape *f) {
    return is_loss(f->kind) ? (int64_t)sizeof(T) * f->rows * f->in : 4 * statistics(f) * f->rows;
}

template <typename T> static void place(struct side *k, const struct shape *f, const struct data *d) {
    int64_t in = (int64_t)f->rows * f->in, out = (int64_t)f->rows * f->out;
    bool sums = f->kind == LAYER_fork || f->kind == LAYER_join;
    memset(k, 0, sizeof *k);
    k->m.rows = f->rows;
    k->m.vocab = f->vocab;
    k->m.batches = 3;
    k->m.precision = sizeof(T) == 2 ? BF16 : FP32;
    k->l.kind = f->kind;
    k->l.rows = f->rows;
    k->l.in = f->in;
    k->l.out = f->out;
    k->l.context = f->context;
    k->l.config.attention.heads = f->heads;
    k->l.config.attention.kv_heads = f->kv_heads;
    k->l.param = BEFORE * (int64_t)sizeof(T);
    k->l.nparam = f->nparam;
    k->l.share = f->share;
    k->l.x.space = f->kind == LAYER_embedding ? SP_NONE : SP_X;
    k->l.y.space = is_loss(f->kind) ? SP_NONE : SP_Y;
    k->l.dy.space = is_loss(f->kind) ? SP_NONE : SP_DY;
    k->l.dx.space = f->kind == LAYER_embedding ? SP_NONE : SP_DX;
    bool product = f->kind == LAYER_linear || f->kind == LAYER_unembedding; /* its aux would be another input */
    k->l.aux.space = product ? SP_NONE : SP_STASH;
    k->l.tmp.space = SP_WORK;
    k->s.layer = &k->l;
    k->s.nlayers = 1;
    k->at.at[SP_X] = f->kind == LAYER_embedding ? NULL : copy_of<T>(d->x, in);
    k->at.at[SP_Y] = (char *)fresh((size_t)out * sizeof(T));
    k->at.at[SP_STASH] = sums ? copy_of<T>(d->other, in) : (char *)fresh((size_t)aux_bytes<T>(f));
    k->at.at[SP_DY] = copy_of<T>(d->dy, out);
    k->at.at[SP_DX] = (char *)fresh((size_t)in * sizeof(T));
    k->at.at[SP_WORK] = (char *)fresh(8 * (size_t)f->rows);
    k->at.w = (float *)(void *)copy_of<T>(d->w, BEFORE + f->nparam);
    size_t gap = sizeof(T) == 4 ? 64 : 0; /* the host clears what follows a layer's gradient */
    k->at.dw = (float *)fresh((size_t)(BEFORE + f->nparam) * 4 + gap);
    int64_t table = shared_table(&k->m, &k->l);
    k->at.v = table ? (float *)(void *)copy_of<T>(d->v, table) : NULL;
    k->at.dv = table ? (float *)fresh((size_t)table * 4 + gap) : NULL;
    k->at.loss = (float *)fresh(4);
    k->counted = (int64_t *)fresh(16);
    k->counted[0] = 42;
    k->draw = {77, 41, 3, 0, NULL}; /* the 42nd step */
    k->at.draw = f->kind == LAYER_dropout ? &k->draw : NULL;
    k->l.config.dropout.p = 0.3f;
    k->l.config.norm.eps = 1e-5f;
    k->l.config.embedding.scale = 1;
    k->batch.token = d->token;
    k->batch.target = d->target;
    k->batch.y = d->y;
    k->at.batch = &k->batch;
}

static const struct cuda_layer none = {NULL, NULL, NULL};
static const struct cuda_layer *kind_of(int kind) {
    switch (kind) {
    case LAYER_embedding: return &cuda_embedding;
    case LAYER_bias: return &cuda_bias;
    case LAYER_relu: return &cuda_relu;
    case LAYER_gelu: return &cuda_gelu;
    case LAYER_silu: return &cuda_silu;
    case LAYER_swiglu: return &cuda_swiglu;
    case LAYER_geglu: return &cuda_geglu;
    case LAYER_dropout: return &cuda_dropout;
    case LAYER_layernorm: return &cuda_layernorm;
    case LAYER_rmsnorm: return &cuda_rmsnorm;
    case LAYER_headnorm: return &cuda_headnorm;
    case LAYER_fork: return &cuda_fork;
    case LAYER_join: return &cuda_join;
    case LAYER_cross_entropy: return &cuda_cross_entropy;
    case LAYER_mse: return &cuda_mse;
    default: return &none;
    }
}

static char *workspace; /* on the device */

static void take_workspace(void) {
    enum { BYTES = 32 << 20 }; /* CUDA_WORKSPACE */
#ifdef KERNELS_ON_HOST
    workspace = (char *)aligned_alloc(64, BYTES);
#else
    CUDA_OK(cudaMalloc((void **)&workspace, BYTES));
#endif
}

/* Runs forward, backward, and the weight gradient once more, which adds to the first. */
static void run_kernels(struct side *k) {
    struct rt_batch batch;
    struct rt_bind at = bind_on_device(&k->at, &batch);
    struct rt_draw draw = k->draw;
    draw.counted = on_device(k->counted);
    at.draw = at.draw ? &draw : NULL;
    struct cuda_call c = {};
    c.m = &k->m;
    c.l = &k->l;
    c.at = &at;
    c.workspace = workspace;
    const struct cuda_layer *f = kind_of(k->l.kind);
    if (f->forward)
        f->forward(&c);
    if (f->input)
        f->input(&c);
    for (int again = 0; f->weight && again < 2; again++) {
        at.first = at.vfirst = !again;
        f->weight(&c);
    }
    back();
}

static void run_host(struct side *k) {
    k->at.first = k->at.vfirst = true;
    host_forward(&k->m, &k->s, &k->at);
    host_backward(&k->m, &k->s, &k->at, true, true);
    k->at.first = k->at.vfirst = false;
    host_backward(&k->m, &k->s, &k->at, false, true);
}

/* ---- comparing ---- */

/* Returns whether a device has the host's numbers, rounded to T. */
template <typename T> static bool same_numbers(const void *got, const void *want, int64_t n) {
    const T *a = (const T *)got;
    const float *b = (const float *)want;
    for (int64_t i = 0; i < n; i++)
        if (!(widen(a[i]) == widen(narrow<T>(b[i])))) {
            printf("    element %lld: %.9g instead of %.9g\n", (long long)i, (double)widen(a[i]), (double)b[i]);
            return false;
        }
    return true;
}

/* An output of each side, and its number of elements, of T or fp32. */
struct output {
    const char *what;
    int space;
    int64_t n;
    bool fp32;
};

template <typename T> static int outputs(const struct shape *f, struct output *o) {
    int64_t in = (int64_t)f->rows * f->in, out = (int64_t)f->rows * f->out;
    int n = 0;
    if (!is_loss(f->kind) && f->kind != LAYER_fork)
        o[n++] = {"forward", SP_Y, out, false};
    if (statistics(f) > 0)
        o[n++] = {"statistics", SP_STASH, statistics(f) * f->rows, true};
    if (is_loss(f->kind))
        o[n++] = {"kept for the backward", SP_STASH, in, false};
    if (f->kind != LAYER_embedding && f->kind != LAYER_join && f->kind != LAYER_bias)
        o[n++] = {"input gradient", SP_DX, in, false};
    return n;
}

template <typename T> static void compare(const struct shape *f, const struct side *got, const struct side *want) {
    const char *precision = sizeof(T) == 2 ? "bf16" : "fp32";
    struct output o[4];
    for (int i = 0, n = outputs<T>(f, o); i < n; i++) {
        const void *a = got->at.at[o[i].space], *b = want->at.at[o[i].space];
        check(o[i].fp32 ? same_numbers<float>(a, b, o[i].n) : same_numbers<T>(a, b, o[i].n), o[i].what, precision,
              f->name);
    }
    if (f->nparam > 0)
        check(same_numbers<float>(got->at.dw + BEFORE, want->at.dw + BEFORE, f->nparam), "weight gradient", precision,
              f->name);
    if (want->at.dv)
        check(same_numbers<float>(got->at.dv, want->at.dv, shared_table(&want->m, &want->l)), "the table's gradient",
              precision, f->name);
    if (is_loss(f->kind))
        check(same_numbers<float>(got->at.loss, want->at.loss, 1), "loss", precision, f->name);
}

/* ---- judging by the definitions ---- */

template <typename T> static void verdict_of(const struct shape *f, const verdict &d, const char *what) {
    check(within(d, f->layer, what, sizeof(T) == 2), what, sizeof(T) == 2 ? "bf16" : "fp32", f->name);
}

template <typename T> static void judge_gate(const struct shape *f, const struct data *d, const struct side *got) {
    const T *y = (const T *)(const void *)got->at.at[SP_Y], *dx = (const T *)(const void *)got->at.at[SP_DX];
    bool silu = f->kind == LAYER_silu || f->kind == LAYER_swiglu;
    verdict forward, input;
    for (int r = 0; r < f->rows; r++)
        for (int j = 0; j < f->out; j++) {
            int64_t at = (int64_t)r * f->in + j, out = (int64_t)r * f->out + j, up = at + f->out;
            num x = (double)d->x[at], dy = (double)d->dy[out];
            gated g = silu ? silu_of(x) : gelu_of(x);
            if (f->in > f->out) { /* times the right half */
                forward.see(y[out], g.value * (double)d->x[up], out);
                input.see(dx[at], dy * (double)d->x[up] * g.slope, at);
                input.see(dx[up], dy * g.value, up);
            } else {
                forward.see(y[out], g.value, out);
                input.see(dx[at], dy * g.slope, at);
            }
        }
    verdict_of<T>(f, forward, "forward");
    verdict_of<T>(f, input, "input gradient");
}

/* A row is one part; or it has heads of queries and keys, with a gamma for either, and values, which are copied. */
struct parts {
    norm_shape of;
    int n, all, queries; /* n: normalized parts; all: parts of a row; queries: parts with the first gamma */
};
static parts parts_of(const struct shape *f) {
    bool heads = f->kind == LAYER_headnorm;
    int all = heads ? f->heads + 2 * f->kv_heads : 1;
    return {{f->in / all, f->kind == LAYER_layernorm, (double)1e-5f}, all - f->kv_heads, all, heads ? f->heads : 1};
}

/* Judges part h of row r. */
template <typename T> struct norm_judge {
    const struct shape *f;
    const struct data *d;
    const struct side *got;
    parts p = parts_of(f);
    std::vector<sum> dw = std::vector<sum>((size_t)f->nparam);
    verdict forward, stats, input, weight;

    norm_judge(const struct shape *shape, const struct data *data, const struct side *side)
        : f(shape), d(data), got(side) {}
    void copied(int64_t at) {
        for (int64_t i = at; i < at + p.of.n; i++) {
            forward.see(((const T *)(const void *)got->at.at[SP_Y])[i], (double)d->x[i], i);
            input.see(((const T *)(const void *)got->at.at[SP_DX])[i], (double)d->dy[i], i);
        }
    }
    void part(int r, int h) {
        int n = p.of.n, second = h < p.queries ? 0 : n;
        int64_t at = ((int64_t)r * p.all + h) * n, stat = (int64_t)r * p.n + h;
        const float *x = d->x + at, *gamma = d->w + BEFORE + second;
        const float *made = (const float *)(const void *)got->at.at[SP_STASH] + (p.of.centred ? 2 : 1) * stat;
        norm_statistics s = statistics_of(p.of, x), left = {p.of.centred ? (double)made[0] : 0.0, 0};
        left.scale = (double)made[p.of.centred];
        stats.see(made[p.of.centred], s.scale, stat);
        if (p.of.centred)
            stats.see(made[0], s.mean, stat);
        std::vector<num> dy(d->dy + at, d->dy + at + n), dx = norm_gradient(p.of, left, x, gamma, dy.data());
        for (int j = 0; j < n; j++) {
            float beta = p.of.centred ? gamma[n + j] : 0;
            forward.see(((const T *)(const void *)got->at.at[SP_Y])[at + j], normalized(s, x[j], gamma[j], beta),
                        at + j);
            input.see(((const T *)(const void *)got->at.at[SP_DX])[at + j], dx[(size_t)j], at + j);
            dw[(size_t)(second + j)].add(((double)x[j] - left.mean) * left.scale, (double)d->dy[at + j]);
            if (p.of.centred)
                dw[(size_t)(n + j)].add((double)d->dy[at + j]);
        }
    }
};

template <typename T> static void judge_norm(const struct shape *f, const struct data *d, const struct side *got) {
    norm_judge<T> j(f, d, got);
    for (int r = 0; r < f->rows; r++)
        for (int h = 0; h < j.p.all; h++)
            if (h < j.p.n)
                j.part(r, h);
            else
                j.copied(((int64_t)r * j.p.all + h) * j.p.of.n);
    for (int64_t i = 0; i < f->nparam; i++)
        j.weight.see(got->at.dw[BEFORE + i], j.dw[(size_t)i].total(false, 2), i);
    verdict_of<T>(f, j.forward, "forward");
    verdict_of<T>(f, j.stats, "statistics");
    verdict_of<T>(f, j.input, "input gradient");
    verdict_of<T>(f, j.weight, "weight gradient");
}

/* Judges each row's log(sum of e^(x - top)) - (x[target] - top), and (softmax - onehot) / count. */
template <typename T> static void judge_loss(const struct shape *f, const struct data *d, const struct side *got) {
    enum { RESCALED = 16 }; /* times that a thread's sum is multiplied by an exponential: its loads of a row, plus 1 */
    verdict gradient, kept, of_loss;
    num losses = 0, count = (double)f->rows * got->m.batches;
    for (int64_t r = 0; r < f->rows; r++) {
        const float *x = d->x + r * f->in;
        double top = -INFINITY;
        sum exponentials;
        for (int j = 0; j < f->in; j++)
            top = fmax(top, (double)x[j]);
        for (int j = 0; j < f->in; j++)
            exponentials.add(fast_exp((double)x[j] - num(top)));
        num total = with_ulps(exponentials.total(false), 2.5 * RESCALED), inverse = 1 / total;
        for (int j = 0; j < f->in; j++) {
            int64_t at = r * f->in + j;
            num dx = (fast_exp((double)x[j] - num(top)) * inverse - (j == d->target[r] ? 1 : 0)) * (1 / count);
            kept.see(((const T *)(const void *)got->at.at[SP_STASH])[at], dx, at);
            gradient.see(((const T *)(const void *)got->at.at[SP_DX])[at], dx, at);
        }
        losses = losses + (logarithm(total) - ((double)x[d->target[r]] - num(top)));
    }
    of_loss.see(*got->at.loss, losses / num(f->rows), 0);
    verdict_of<T>(f, kept, "kept for the backward");
    verdict_of<T>(f, gradient, "input gradient");
    verdict_of<T>(f, of_loss, "loss");
}

template <typename T> static void judge(const struct shape *f, const struct data *d, const struct side *got) {
    if (statistics(f) > 0)
        judge_norm<T>(f, d, got);
    else if (is_loss(f->kind))
        judge_loss<T>(f, d, got);
    else
        judge_gate<T>(f, d, got);
}

template <typename T> static bool same_bits(const struct shape *f, const struct side *a, const struct side *b) {
    struct output o[4];
    bool same = true;
    for (int i = 0, n = outputs<T>(f, o); i < n; i++)
        same &= !memcmp(a->at.at[o[i].space], b->at.at[o[i].space],
                        (size_t)o[i].n * (o[i].fp32 ? sizeof(float) : sizeof(T)));
    same &= !memcmp(a->at.dw + BEFORE, b->at.dw + BEFORE, (size_t)f->nparam * 4);
    same &= !a->at.dv || !memcmp(a->at.dv, b->at.dv, (size_t)shared_table(&a->m, &a->l) * 4);
    return same && !memcmp(a->at.loss, b->at.loss, 4);
}

template <typename T> static void layer(const struct shape *f) {
    const char *precision = sizeof(T) == 2 ? "bf16" : "fp32";
    int64_t in = (int64_t)f->rows * f->in, out = (int64_t)f->rows * f->out;
    struct data d = {numbers<T>(in, f->integers),           numbers<T>(BEFORE + f->nparam, f->integers),
                     numbers<T>(out, f->integers),          numbers<T>(in, f->integers),
                     numbers<float>(in, f->integers),       numbers<T>((int64_t)f->vocab * f->out, f->integers),
                     (int32_t *)fresh((size_t)f->rows * 4), (int32_t *)fresh((size_t)f->rows * 4)};
    for (int r = 0; r < f->rows; r++) { /* every third token is the same; some never occur */
        d.token[r] = (int32_t)(f->vocab == 0 ? 0 : r % 3 == 0 ? f->vocab / 2 : random_bits() % (uint32_t)f->vocab);
        d.target[r] = (int32_t)(random_bits() % (uint32_t)f->in);
    }
    struct side host, once, reversed;
    place<T>(&once, f, &d);
    place<T>(&reversed, f, &d);
    run_kernels(&once);
    grid_reverse = true;
    run_kernels(&reversed);
    grid_reverse = false;
    if (f->exact) {
        place<float>(&host, f, &d);
        run_host(&host);
        compare<T>(f, &once, &host);
    } else
        judge<T>(f, &d, &once);
    check(same_bits<T>(f, &once, &reversed), "the same bits in any order of threads", precision, f->name);
    check(release(), "nothing written behind a tensor", precision, f->name);
}

static void report(const char *name, bool exact, int before) {
    printf("%-14s fp32 and bf16: %s\n", name,
           failed > before ? "FAILED"
           : exact         ? "as on the host, bit for bit"
                           : "within their bounds");
}

/* ---- the layers: sizes that do and do not end within 16 bytes, a warp, a block ---- */

static void shapes(int kind, const char *name, bool exact, const int (*size)[2], int n) {
    int before = failed;
    for (int i = 0; i < n; i++) {
        int rows = size[i][0], width = size[i][1];
        struct shape f = {kind, rows, width, width, 0, 0, 0, exact, kind == LAYER_mse || kind == LAYER_bias, "", {}};
        f.in *= kind == LAYER_swiglu || kind == LAYER_geglu ? 2 : 1;
        f.layer = name;
        f.nparam = kind == LAYER_bias ? width : statistics(&f) * width; /* gamma, and with a mean also beta */
        snprintf(f.name, sizeof f.name, "%s %d x %d", name, rows, width);
        layer<float>(&f);
        layer<__nv_bfloat16>(&f);
    }
    report(name, exact, before);
}

static void head_norms(void) {
    /* rows, heads of queries, of keys, columns of a head: several heads in a warp's pack, whole packs, longer than a
     * warp's */
    static const int size[][4] = {{1, 1, 1, 1}, {3, 2, 1, 8},    {9, 4, 4, 64},  {300, 4, 2, 16},
                                  {7, 3, 1, 5}, {33, 2, 2, 130}, {5, 1, 1, 300}, {40, 16, 8, 128}};
    int before = failed;
    for (const int *s : size) {
        int width = (s[1] + 2 * s[2]) * s[3];
        struct shape f = {LAYER_headnorm, s[0], width, width, 0, 0, 2 * s[3], false, false, "", {}};
        f.heads = s[1];
        f.kv_heads = s[2];
        f.layer = "headnorm";
        snprintf(f.name, sizeof f.name, "headnorm %d x %d of %d, %d of keys", s[0], s[1], s[3], s[2]);
        layer<float>(&f);
        layer<__nv_bfloat16>(&f);
    }
    report("headnorm", false, before);
}

static void embeddings(void) {
    /* rows, out, context, vocabulary: more tokens than blocks; more rows than a block lists at once; no whole packs */
    static const int size[][4] = {
        {300, 24, 10, 7}, {30, 5, 10, 7}, {64, 8, 16, 1100}, {8448, 8, 64, 20}, {512, 200, 32, 300}};
    int before = failed;
    for (const int *s : size) {
        struct shape f = {
            LAYER_embedding, s[0], 1, s[1], s[2], s[3], (int64_t)(s[2] + s[3]) * s[1], true, true, "", {}};
        for (int way = 0; way < 4; way++) {
            bool shared = way & 1, positions = way < 2;
            f.context = positions ? s[2] : 0;
            snprintf(f.name, sizeof f.name, "embedding %d x %d, context %d, vocabulary %d%s", s[0], s[1], f.context,
                     s[3], shared ? ", shared" : "");
            f.nparam = (int64_t)(f.context + (shared ? 0 : s[3])) * s[1];
            layer<float>(&f);
            layer<__nv_bfloat16>(&f);
        }
    }
    for (int member = 0; member < 3; member++) /* each has 7 of 21 tokens */
        for (const int *s : size) {
            struct shape f = {LAYER_embedding, s[0], 1, s[1], s[2], 21, (int64_t)(s[2] + 7) * s[1], true, true, "", {}};
            f.share = {SPLIT_ROWS, member, 3, {}};
            snprintf(f.name, sizeof f.name, "embedding %d x %d, member %d of 3", s[0], s[1], member);
            layer<float>(&f);
            layer<__nv_bfloat16>(&f);
        }
    report("embedding", true, before);
}

/* ---- kernels that are not layers ---- */

static void additions(void) {
    int before = failed;
    for (int n : {1, 5, 1024, 4099})
        for (bool first : {true, false}) {
            float *src = numbers<float>(n, false), *a = numbers<float>(n, false);
            float *b = (float *)(void *)copy_of<float>(a, n);
            host_add(a, src, n, first);
            cuda_add(on_device(b), on_device(src), n, first, 0);
            back();
            check(!memcmp(a, b, (size_t)n * 4), first ? "first" : "added", "fp32", "add");
            check(release(), "nothing written behind a tensor", "fp32", "add");
        }
    printf("%-14s fp32: %s\n", "add", failed == before ? "as on the host, bit for bit" : "FAILED");
}

/* Updates a stage of three layers, with gaps of zeros between their parameters, in five steps. With bf16, the weights
 * are poison: only the masters count, and these are no bf16 numbers. */
template <typename T> static void update(int optimizer, int64_t last, const char *name) {
    int64_t count[3] = {5, 100, last}, n = 0;
    struct rt_layer l[3] = {}, other[3];
    struct side host = {}, device = {};
    for (int i = 0; i < 3; i++) {
        l[i].param = 4 * n;
        l[i].nparam = count[i];
        l[i].config.linear.bias = true;
        l[i].kind = LAYER_linear; /* a bias of 1 or 10 after a matrix; only the matrix decays */
        l[i].out = i == 1 ? 10 : 1;
        l[i].in = (int32_t)(count[i] / l[i].out) - 1;
        n += (count[i] + 31) / 32 * 32; /* 64 bytes of bf16 */
    }
    host.m.optimizer = optimizer;
    host.m.beta1 = 0.9f;
    host.m.beta2 = 0.95f;
    host.m.eps = 1e-8f;
    host.m.decay = 0.1f;
    host.m.momentum = 0.75f;
    host.m.nesterov = last % 2 == 0;
    host.m.lr = 0.01f;
    host.m.schedule = SCHEDULE_cosine;
    host.m.warmup = 2;
    host.m.final = 0.1f;
    host.s.layer = l;
    host.s.nlayers = 3;
    host.s.weight = 4 * n;
    host.s.opt = 4 * n * count_moments(optimizer);
    host.s.update = 4;
    device = host;
    device.m.precision = sizeof(T) == 2 ? BF16 : FP32;
    device.s.weight = n * (int64_t)sizeof(T);
    device.s.layer = other;
    for (int i = 0; i < 3; i++) {
        other[i] = l[i];
        other[i].param = l[i].param / 4 * (int64_t)sizeof(T);
    }
    float *w = numbers<float>(n, false), *dw = numbers<float>(n, false), *opt = (float *)fresh((size_t)n * 8);
    for (int i = 0; i < 3; i++)
        for (int64_t k = l[i].param / 4 + count[i]; k < (i < 2 ? l[i + 1].param / 4 : n); k++)
            w[k] = dw[k] = 0;
    T *v = sizeof(T) == 4 ? (T *)(void *)copy_of<T>(w, n) : (T *)fresh((size_t)n * sizeof(T));
    float *state = (float *)fresh((size_t)n * 12), *moments = state + (sizeof(T) == 2 ? n : 0);
    if (sizeof(T) == 2)
        memcpy(state, w, (size_t)n * sizeof *w);
    int64_t *step = (int64_t *)fresh(16);
    uint64_t *norm = (uint64_t *)fresh(NORM_BYTES);
    *step = 0;
    host_norm({&host.m, &host.s, 0, n}, dw, norm, true);
    host.m.clip = device.m.clip = 0.25f * (float)norm_value(norm);
    for (int64_t i = 1; i <= 5; i++) {
        const rt_update on_host = {{&host.m, &host.s, 0, n}, w, dw, opt, NULL, i > 3 ? norm : NULL, i, 7, false};
        host_update(&on_host);
        cuda_count(on_device(step), PASS_BEGINS, 1, NULL, 0, 0);
        grid_reverse = i % 2 == 0;
        const cuda_number number = {on_device(step), 1, 0, 0, 7, NULL, 0};
        const rt_update u = {{&device.m, &device.s, 0, n},
                             on_device(v),
                             on_device(dw),
                             on_device(state),
                             NULL,
                             i > 3 ? on_device(norm) : NULL,
                             0,
                             7,
                             false};
        cuda_update_part(&u, 0, n, &number, 0);
        grid_reverse = false;
    }
    back();
    bool same = true;
    for (int64_t i = 0; i < n; i++)
        same &= widen(v[i]) == widen(narrow<T>(w[i])) && (sizeof(T) == 4 || state[i] == w[i]);
    const char *precision = sizeof(T) == 2 ? "bf16" : "fp32";
    check(same, "weights", precision, name);
    check(!memcmp(moments, opt, (size_t)host.s.opt), "moments", precision, name);
    check(release(), "nothing written behind a tensor", precision, name);
}

static void updates(int optimizer, const char *name) {
    int before = failed;
    update<float>(optimizer, 5000, name);
    update<__nv_bfloat16>(optimizer, 5000, name);
    update<__nv_bfloat16>(optimizer, 132 * 8 * 256 * 4 + 7, name); /* more than the blocks take at once */
    printf("%-14s fp32 and bf16: %s\n", name, failed == before ? "as on the host, bit for bit" : "FAILED");
}

/* Returns gradient i of one of four kinds: uniform, any exponent, few exponents, or ones with an infinity and a NaN. */
static float gradient(int what, int64_t i) {
    uint32_t bits = random_bits() << 1 ^ random_bits();
    float x;
    if (what == 0)
        return (float)random_bits() / (1u << 29) - 2;
    if (what == 1)
        bits = (bits & 0x7f800000) == 0x7f800000 ? 0 : bits;
    if (what == 2)
        bits &= 0x80ffffff;
    memcpy(&x, &bits, sizeof x);
    return what == 3 ? (i == 7 ? INFINITY : i == 4000 ? NAN : 1) : x;
}

/* Takes the norm of elements [first, first + n) of linear layers, some of which the members of a team have whole. */
static void norm(int layers, int width, int64_t first, int64_t part, int place, int what, int precision) {
    std::vector<rt_layer> l((size_t)layers);
    struct rt_model m = {};
    struct rt_stage s = {};
    int64_t element = precision_bytes(precision), n = 0, count = (int64_t)width * width + width;
    for (int i = 0; i < layers; i++) {
        l[(size_t)i] = {};
        l[(size_t)i].kind = LAYER_linear;
        l[(size_t)i].config.linear.bias = true;
        l[(size_t)i].in = l[(size_t)i].out = width;
        l[(size_t)i].share.split = i % 2 ? SPLIT_ROWS : SPLIT_NONE;
        l[(size_t)i].param = n * element;
        l[(size_t)i].nparam = count;
        n += (count + 63) / 64 * 64;
    }
    part = part ? part : n;
    m.precision = precision;
    s.layer = l.data();
    s.nlayers = layers;
    s.place = place;
    s.weight = n * element;
    float *dw = (float *)fresh((size_t)part * 4);
    for (int64_t i = 0; i < part; i++)
        dw[i] = gradient((first + i) % ((count + 63) / 64 * 64) < count ? what : 4, i);
    uint64_t *want = (uint64_t *)fresh(NORM_BYTES), *have = (uint64_t *)fresh(NORM_BYTES);
    std::vector<rt_layer> fp32 = l; /* the host has no other precision */
    struct rt_model of_host = m;
    struct rt_stage stage = s;
    of_host.precision = FP32;
    for (auto &x : fp32)
        x.param = x.param / element * 4;
    stage.layer = fp32.data();
    stage.weight = n * 4;
    for (int again = 0; again < 3; again++) {
        host_norm({&of_host, &stage, first, part}, dw, want, again == 0);
        grid_reverse = again == 1;
        cuda_norm({&m, &s, first, part}, on_device(dw), on_device(have), again == 0, workspace, 0);
        grid_reverse = false;
        if (again == 1) {
            host_add_norm(want, want);
            cuda_add_norm(on_device(have), on_device(have), 0);
        }
    }
    back();
    check(!memcmp(want, have, NORM_BYTES), "words", precision == BF16 ? "bf16" : "fp32", "norm");
    check(release(), "nothing written behind a tensor", "fp32", "norm");
}

static void norms(void) {
    int before = failed;
    for (int what = 0; what < 4; what++)
        for (int precision = FP32; precision <= BF16; precision++) {
            norm(3, 40, 0, 0, 0, what, precision);
            norm(3, 40, 0, 0, 1, what, precision);
            norm(3, 40, 1700, 1664, 0, what, precision);
            norm(1, 5, 30, 320, 0, what, precision); /* only padding */
        }
    norm(130, 3, 0, 0, 0, 0, FP32); /* more parameters than fit into a launch */
    norm(1, 800, 0, 0, 0, 0, FP32); /* more elements than the blocks take at once */
    printf("%-14s %s\n", "norm", failed == before ? "as on the host, bit for bit" : "FAILED");
}

/* Runs GPT-2's shapes: 768 wide, 50,257 tokens padded to 50,304, sequences of 1,024. */
static void gpt2(int rows) {
    const int width[][2] = {{rows, 768}}, four[][2] = {{rows, 3072}}, classes[][2] = {{rows / 4 + 1, 50304}};
    int context = rows < 1024 ? rows : 1024, before = failed;
    shapes(LAYER_gelu, "gelu", false, four, 1);
    shapes(LAYER_swiglu, "swiglu", false, four, 1);
    shapes(LAYER_fork, "fork", true, width, 1);
    shapes(LAYER_join, "join", true, width, 1);
    shapes(LAYER_layernorm, "layernorm", false, width, 1);
    shapes(LAYER_rmsnorm, "rmsnorm", false, width, 1);
    shapes(LAYER_cross_entropy, "cross_entropy", false, classes, 1);
    struct shape f = {LAYER_embedding,
                      rows / context * context,
                      1,
                      768,
                      context,
                      50304,
                      (50304 + context) * 768,
                      true,
                      true,
                      "embedding",
                      {}};
    layer<float>(&f);
    layer<__nv_bfloat16>(&f);
    report("embedding", true, before);
}

static int verdict_of_all(void) {
    print_shares();
    printf("%d passed, %d failed; at most %.2f of a limit with fp32, %.2f with bf16\n", passed, failed,
           most_reached(false), most_reached(true));
    return failed > 0;
}

int main(int argc, char **argv) {
    take_workspace();
    if (argc == 3 && strcmp(argv[1], "gpt2") == 0) {
        gpt2(atoi(argv[2]));
        return verdict_of_all();
    }
    static const int element[][2] = {{1, 1}, {3, 5}, {7, 64}, {33, 257}, {5, 1024}};
    static const int norm[][2] = {{1, 2},   {3, 5},    {9, 64},   {17, 130}, {1100, 24}, {600, 7},
                                  {5, 264}, {3, 1024}, {9, 1028}, {3, 2048}, {9, 2056},  {2, 2049}};
    static const int classes[][2] = {{1, 1}, {3, 7}, {5, 256}, {3, 1000}, {2, 50304}, {1500, 3}};
    static const int squares[][2] = {{1, 1}, {3, 7}, {9, 64}, {1500, 5}};
    shapes(LAYER_relu, "relu", true, element, 5);
    shapes(LAYER_gelu, "gelu", false, element, 5);
    shapes(LAYER_silu, "silu", false, element, 5);
    shapes(LAYER_swiglu, "swiglu", false, element, 5);
    shapes(LAYER_geglu, "geglu", false, element, 5);
    shapes(LAYER_dropout, "dropout", true, element, 5);
    shapes(LAYER_bias, "bias", true, element, 5);
    shapes(LAYER_fork, "fork", true, element, 5);
    shapes(LAYER_join, "join", true, element, 5);
    shapes(LAYER_layernorm, "layernorm", false, norm, 12);
    shapes(LAYER_rmsnorm, "rmsnorm", false, norm, 12);
    shapes(LAYER_cross_entropy, "cross_entropy", false, classes, 6);
    shapes(LAYER_mse, "mse", true, squares, 4);
    head_norms();
    embeddings();
    additions();
    norms();
#define X(NAME, name, ...)                                                                                             \
    if (OPT_##NAME != OPT_MUON)                                                                                        \
        updates(OPT_##NAME, #name);
    OPTIMIZERS(X)
#undef X
    return verdict_of_all();
}
