/* A mixture of experts' kernels, on a GPU or run by the stand-in, against the host layers on the same random data. What
 * comes from the experts is random too, and so is the gradient that they give the route.
 *
 * Data is rounded to the model's precision before either sees it. The host then goes by the device's probabilities'
 * choices only if they are the same: they must be, for random logits are far enough apart. Outputs begin as NaN. The
 * kernels run again with their blocks and threads in reverse order, and must give the same bits. */
#include "device.h"
#include "layers/moe.h"

static int passed, failed;

struct shape {
    int context, sequences, width, experts, top, capacity;
};
struct side {
    struct rt_model m;
    struct rt_layer l[2]; /* the route, the combine */
    struct rt_stage s;
    struct rt_bind at;
    struct rt_routed *routed;
    char *sent; /* what the route made */
};

static int tokens_of(const struct shape *f) { return f->context * f->sequences; }
static int places_of(const struct shape *f) { return f->experts * f->sequences * f->capacity; }

static void check(bool fine, const char *what, const char *precision, const struct shape *f) {
    passed += fine;
    failed += !fine;
    if (!fine)
        printf("    %d x %d by %d, %d of %d experts, %d places, %s: %s FAILED\n", f->sequences, f->context, f->width,
               f->top, f->experts, f->capacity, precision, what);
}

template <typename T> static float *numbers(int64_t n) {
    float *p = (float *)fresh((size_t)n * sizeof *p);
    for (int64_t i = 0; i < n; i++)
        p[i] = widen(narrow<T>((float)random_bits() / (1 << 30) - 1));
    return p;
}

struct data {
    float *x, *w, *dy, *back, *dback; /* back: what comes from the experts */
};

/* A tensor in a space that something else begins. */
template <typename T> static char *behind(int64_t bytes, const float *from, int64_t n) {
    char *p = (char *)fresh((size_t)bytes + (size_t)n * sizeof(T));
    for (int64_t i = 0; i < n; i++)
        ((T *)(void *)(p + bytes))[i] = narrow<T>(from[i]);
    return p;
}

/* SP_WORK has what the route sends, SP_EXT the logits' gradient, and both random gradients or values of the experts. */
template <typename T> static void place(struct side *k, const struct shape *f, const struct data *d) {
    int64_t rows = tokens_of(f), places = places_of(f), n = rows * f->width, middle = places * f->width;
    int64_t logits = (4 * rows * f->experts + 63) / 64 * 64;
    memset(k, 0, sizeof *k);
    k->m.rows = (int)rows;
    k->m.batches = 3;
    k->m.precision = sizeof(T) == 2 ? BF16 : FP32;
    for (int i = 0; i < 2; i++) {
        struct rt_layer *l = &k->l[i];
        l->kind = i ? LAYER_combine : LAYER_route;
        l->rows = i ? (int)places : (int)rows;
        l->out_rows = i ? (int)rows : (int)places;
        l->in = l->out = f->width;
        l->context = f->context, l->experts = f->experts, l->top = f->top, l->capacity = f->capacity;
        l->balance = 0.5f;
        l->aux = {SP_STASH, 0};
        l->tmp = {SP_EXT, 0};
    }
    int64_t kept = routing_bytes(&k->l[0]);
    k->l[0].nparam = f->width * f->experts;
    k->l[0].x = {SP_X, 0}, k->l[0].y = {SP_WORK, 0}, k->l[1].x = {SP_STASH, kept}, k->l[1].y = {SP_Y, 0};
    k->l[1].dy = {SP_DY, 0}, k->l[1].dx = {SP_WORK, 0}, k->l[0].dy = {SP_EXT, logits}, k->l[0].dx = {SP_DX, 0};
    k->s.layer = k->l;
    k->s.nlayers = 2;
    k->at.at[SP_X] = copy_of<T>(d->x, n);
    k->at.at[SP_DY] = copy_of<T>(d->dy, n);
    k->at.at[SP_Y] = (char *)fresh((size_t)n * sizeof(T));
    k->at.at[SP_DX] = (char *)fresh((size_t)n * sizeof(T));
    k->at.at[SP_WORK] = (char *)fresh((size_t)middle * sizeof(T));
    k->at.at[SP_EXT] = behind<T>(logits, d->dback, middle);
    k->at.at[SP_STASH] = behind<T>(kept, d->back, middle);
    k->at.w = (float *)(void *)copy_of<T>(d->w, k->l[0].nparam);
    k->at.dw = (float *)fresh((size_t)k->l[0].nparam * 4 + 64); /* the host clears what follows */
    k->sent = (char *)fresh((size_t)middle * sizeof(T));
    k->at.routed = k->routed = (struct rt_routed *)fresh(sizeof *k->routed);
    *k->routed = {0, 0};
}

/* What was sent is kept before the gradient takes its place. */
template <typename T> static void keep_sent(struct side *k) {
    memcpy(k->sent, k->at.at[SP_WORK], (size_t)k->l[1].rows * k->l[1].in * sizeof(T));
}

template <typename T> static void run_kernels(struct side *k, void *workspace) {
    struct rt_bind at = bind_on_device(&k->at, NULL);
    at.routed = on_device(k->routed);
    struct cuda_call route = {&k->m, &k->l[0], &at, 0, workspace}, combine = {&k->m, &k->l[1], &at, 0, workspace};
    cuda_route.forward(&route);
    back();
    keep_sent<T>(k);
    at = bind_on_device(&k->at, NULL);
    at.routed = on_device(k->routed);
    cuda_combine.forward(&combine);
    cuda_combine.input(&combine);
    cuda_route.input(&route);
    at.first = true;
    cuda_route.weight(&route);
    at.first = false;
    cuda_route.weight(&route);
    back();
}

static void run_host(struct side *k) {
    k->at.first = true;
    host_forward(&k->m, &k->s, &k->at);
    keep_sent<float>(k);
    host_backward(&k->m, &k->s, &k->at, true, true);
    k->at.first = false;
    host_backward(&k->m, &k->s, &k->at, false, true);
}

/* tolerance: of the largest value */
template <typename T> static bool close(const void *got, const void *want, int64_t n, double tolerance) {
    const T *a = (const T *)got;
    const float *b = (const float *)want;
    double largest = 0;
    for (int64_t i = 0; i < n; i++)
        largest = fmax(largest, fabs((double)b[i]));
    for (int64_t i = 0; i < n; i++)
        if (!(fabs((double)widen(a[i]) - (double)b[i]) <= tolerance * largest)) {
            printf("    element %lld: %.9g instead of %.9g, the largest being %.9g\n", (long long)i,
                   (double)widen(a[i]), (double)b[i], largest);
            return false;
        }
    return true;
}

static bool same_routing(const struct side *a, const struct side *b, const struct shape *f) {
    struct routing r = routing_at(&a->l[0], a->at.at[SP_STASH]), q = routing_at(&b->l[0], b->at.at[SP_STASH]);
    size_t choices = (size_t)tokens_of(f) * f->top * 4;
    return !memcmp(r.expert, q.expert, choices) && !memcmp(r.row, q.row, choices) &&
           !memcmp(r.choice, q.choice, (size_t)places_of(f) * 4) &&
           !memcmp(r.load, q.load, (size_t)f->sequences * f->experts * 4) &&
           !memcmp(a->routed, b->routed, sizeof *a->routed);
}

template <typename T> static void compare(const struct shape *f, void *workspace) {
    const char *precision = sizeof(T) == 2 ? "bf16" : "fp32";
    int64_t n = (int64_t)tokens_of(f) * f->width, params = (int64_t)f->width * f->experts;
    int64_t middle = (int64_t)places_of(f) * f->width;
    struct data d = {numbers<T>(n), numbers<T>(params), numbers<T>(n), numbers<T>(middle), numbers<T>(middle)};
    double sums = 2e-5, rounded = sums + (sizeof(T) == 2 ? 1.01 / 256 : 0);
    struct side host, once, again;
    place<float>(&host, f, &d);
    place<T>(&once, f, &d);
    place<T>(&again, f, &d);
    run_host(&host);
    run_kernels<T>(&once, workspace);
    grid_reverse = true;
    run_kernels<T>(&again, workspace);
    grid_reverse = false;
    check(same_routing(&once, &host, f), "choices, places and counts", precision, f);
    check(close<T>(once.sent, host.sent, middle, 0), "what is sent", precision, f);
    check(close<T>(once.at.at[SP_Y], host.at.at[SP_Y], n, rounded), "what comes back", precision, f);
    check(close<T>(once.at.at[SP_WORK], host.at.at[SP_WORK], middle, rounded), "the experts' gradient", precision, f);
    check(close<T>(once.at.at[SP_DX], host.at.at[SP_DX], n, rounded), "input gradient", precision, f);
    check(close<float>(once.at.dw, host.at.dw, params, sums), "the router's gradient", precision, f);
    bool same = !memcmp(once.at.at[SP_Y], again.at.at[SP_Y], (size_t)n * sizeof(T)) &&
                !memcmp(once.at.at[SP_DX], again.at.at[SP_DX], (size_t)n * sizeof(T)) &&
                !memcmp(once.at.dw, again.at.dw, (size_t)params * 4) &&
                !memcmp(once.at.at[SP_STASH], again.at.at[SP_STASH], (size_t)routing_bytes(&once.l[0]));
    check(same, "the same bits in any order of threads", precision, f);
    check(release(), "nothing written behind a tensor", precision, f);
}

int main(int argc, char **argv) {
    /* all have room; some have none; more experts than a warp has lanes; rows that are no whole packs */
    static const struct shape shapes[] = {{6, 2, 8, 4, 1, 6},   {16, 2, 32, 4, 2, 10}, {33, 3, 24, 8, 2, 9},
                                          {40, 1, 7, 5, 3, 24}, {12, 2, 16, 40, 4, 2}, {300, 1, 64, 8, 2, 94}};
    enum { BYTES = 32 << 20 }; /* CUDA_WORKSPACE */
    void *workspace;
#ifdef KERNELS_ON_HOST
    workspace = aligned_alloc(64, BYTES);
#else
    CUDA_OK(cudaMalloc(&workspace, BYTES));
#endif
    if (argc == 3 && strcmp(argv[1], "gpt2") == 0) { /* so many rows of GPT-2 124M's width */
        int context = atoi(argv[2]);
        struct shape f = {context, 1, 768, 8, 2, (context * 5 + 15) / 16};
        compare<float>(&f, workspace);
        compare<__nv_bfloat16>(&f, workspace);
    } else
        for (struct shape f : shapes) {
            compare<float>(&f, workspace);
            compare<__nv_bfloat16>(&f, workspace);
        }
    printf("moe: %d passed, %d failed\n", passed, failed);
    return failed > 0;
}
