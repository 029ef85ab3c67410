/* The kernels of a mixture of experts, on a GPU or on the stand-in, on random data. The experts' outputs are random
 * too, and so is the gradient that they give the route.
 *
 * Data is rounded to the model's precision first. Each kernel is judged in double by its inputs, within bound.h's
 * bounds: the probabilities by x and the router, the choices by the device's probabilities, the places by its choices,
 * which must be exact, and the rest by the places and weights. Outputs begin as NaN. The kernels run again with their
 * blocks and threads in reverse order, and must give the same bits. */
#include "bound.h"
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
    char *sent; /* the tokens that the route sent */
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
    float *x, *w, *dy, *back, *dback; /* back: the experts' outputs */
};

/* Places a tensor in a space after its other contents. */
template <typename T> static char *behind(int64_t bytes, const float *from, int64_t n) {
    char *p = (char *)fresh((size_t)bytes + (size_t)n * sizeof(T));
    for (int64_t i = 0; i < n; i++)
        ((T *)(void *)(p + bytes))[i] = narrow<T>(from[i]);
    return p;
}

/* Fills SP_WORK with what the route sends, SP_EXT with the logits' gradient, and both with the experts' data. */
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
        l->context = f->context;
        l->config.moe.experts = f->experts, l->config.moe.top = f->top, l->config.moe.places = f->capacity;
        l->config.moe.balance = 0.5f;
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

/* Saves what was sent before the gradient takes its place. */
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

/* ---- judging ---- */

/* A side's results and its data. */
template <typename T> struct judge {
    const struct shape *f;
    const struct data *d;
    const struct side *got;
    int experts = f->experts, top = f->top, width = f->width;
    struct routing r = routing_at(&got->l[0], got->at.at[SP_STASH]);
    const float *logits = (const float *)(const void *)got->at.at[SP_EXT]; /* their gradient */

    judge(const struct shape *shape, const struct data *data, const struct side *side) : f(shape), d(data), got(side) {}
    const T *of(int space) const { return (const T *)(const void *)got->at.at[space]; }
    void fits(const verdict &v, const char *layer, const char *what) const {
        check(within(v, layer, what, sizeof(T) == 2), what, sizeof(T) == 2 ? "bf16" : "fp32", f);
    }
    void probabilities() const;
    bool choices() const;
    bool places() const;
    bool sent() const;
    void weights() const;
    void combined() const;
    void logits_gradient() const;
    void route_gradients() const;
};

template <typename T> void judge<T>::probabilities() const {
    verdict all;
    for (int t = 0; t < r.tokens; t++) {
        std::vector<num> p((size_t)experts);
        double most = -INFINITY;
        for (int e = 0; e < experts; e++) {
            sum logit;
            for (int i = 0; i < width; i++)
                logit.add((double)d->x[t * width + i], (double)d->w[i * experts + e]);
            p[(size_t)e] = logit.total(false);
            most = fmax(most, p[(size_t)e].v);
        }
        sum total;
        for (num &e : p)
            total.add(e = fast_exp(e - num(most)));
        for (int e = 0; e < experts; e++)
            all.see(r.probability[t * experts + e], p[(size_t)e] / total.total(false), t * experts + e);
    }
    fits(all, "route", "probabilities");
}

/* Judges choices: the largest of the device's probabilities, the first among equal ones. */
template <typename T> bool judge<T>::choices() const {
    bool right = true;
    for (int t = 0; t < r.tokens; t++) {
        const float *p = r.probability + t * experts;
        std::vector<bool> taken((size_t)experts);
        for (int k = 0; k < top; k++) {
            int best = -1;
            for (int e = 0; e < experts; e++)
                if (!taken[(size_t)e] && (best < 0 || p[e] > p[best]))
                    best = e;
            taken[(size_t)best] = true;
            right = right && r.expert[t * top + k] == best;
        }
    }
    return right;
}

/* Judges places: a sequence's first choices take places first, in row order, then its second choices. */
template <typename T> bool judge<T>::places() const {
    std::vector<int32_t> load((size_t)(f->sequences * experts)), choice((size_t)r.places, -1);
    int64_t pairs = 0, dropped = 0;
    bool right = true;
    for (int s = 0; s < f->sequences; s++)
        for (int k = 0; k < top; k++)
            for (int t = s * f->context; t < (s + 1) * f->context; t++) {
                int e = r.expert[t * top + k], place = load[(size_t)(s * experts + e)]++;
                bool fits = place < f->capacity;
                int32_t row = fits ? (e * f->sequences + s) * f->capacity + place : -1;
                right = right && r.row[t * top + k] == row;
                pairs++, dropped += !fits;
                if (fits)
                    choice[(size_t)row] = t * top + k;
            }
    return right && !memcmp(r.choice, choice.data(), choice.size() * 4) &&
           !memcmp(r.load, load.data(), load.size() * 4) && got->routed->pairs == pairs &&
           got->routed->dropped == dropped;
}

template <typename T> bool judge<T>::sent() const {
    bool right = true;
    for (int64_t i = 0; i < r.places; i++)
        for (int j = 0; j < width; j++) {
            float x = r.choice[i] < 0 ? 0 : d->x[(int64_t)(r.choice[i] / top) * width + j];
            right = right && widen(((const T *)(const void *)got->sent)[i * width + j]) == x;
        }
    return right;
}

/* Judges weights: a single choice's probability, or its share among those chosen. */
template <typename T> void judge<T>::weights() const {
    verdict all;
    for (int t = 0; t < r.tokens; t++) {
        sum chosen;
        for (int k = 0; k < top; k++)
            chosen.add((double)r.probability[t * experts + r.expert[t * top + k]]);
        for (int k = 0; k < top; k++) {
            num p = (double)r.probability[t * experts + r.expert[t * top + k]];
            all.see(r.weight[t * top + k], top > 1 ? p / chosen.total(false) : p, t * top + k);
        }
    }
    fits(all, "route", "weights");
}

template <typename T> void judge<T>::combined() const {
    verdict forward, input;
    for (int64_t t = 0; t < r.tokens; t++)
        for (int j = 0; j < width; j++) {
            sum y;
            for (int k = 0; k < top; k++)
                if (int64_t row = r.row[t * top + k]; row >= 0)
                    y.add((double)r.weight[t * top + k], (double)d->back[row * width + j]);
            forward.see(of(SP_Y)[t * width + j], y.total(false), t * width + j);
        }
    for (int64_t i = 0; i < r.places; i++)
        for (int j = 0; j < width; j++) {
            int64_t choice = r.choice[i];
            float dx = choice < 0
                           ? 0
                           : r.weight[choice] * d->dy[choice / top * width + j]; /* exact, because it is rounded once */
            input.see(of(SP_WORK)[i * width + j], (double)dx, i * width + j);
        }
    fits(forward, "combine", "forward");
    fits(input, "combine", "the experts' gradient");
}

/* Judges the logits' gradient: from dL/dw of a token's choices to their probabilities, then to the logits. */
template <typename T> void judge<T>::logits_gradient() const {
    double each = (double)got->l[0].config.moe.balance * experts / ((double)f->context * top) /
                  ((double)r.tokens * got->m.batches);
    verdict all;
    for (int64_t t = 0; t < r.tokens; t++) {
        const float *p = r.probability + t * experts;
        std::vector<num> g((size_t)experts);
        sum chosen, along, dots;
        for (int k = 0; k < top; k++) {
            int e = r.expert[t * top + k];
            sum products;
            for (int j = 0; j < width && r.row[t * top + k] >= 0; j++)
                products.add((double)d->back[(int64_t)r.row[t * top + k] * width + j], (double)d->dy[t * width + j]);
            g[(size_t)e] = products.total(false);
            chosen.add((double)p[e]);
            along.add(g[(size_t)e], (double)p[e]);
        }
        num all_chosen = chosen.total(false), mean = along.total(false) / all_chosen;
        for (int k = 0; k < top && top > 1; k++) {
            num &one = g[(size_t)r.expert[t * top + k]];
            one = (one - mean) / all_chosen;
        }
        for (int e = 0; e < experts; e++) {
            g[(size_t)e] = g[(size_t)e] + with_ulps(num(each), 2) * (double)r.load[t / f->context * experts + e];
            dots.add(g[(size_t)e], (double)p[e]);
        }
        num dot = dots.total(false);
        for (int e = 0; e < experts; e++)
            all.see(logits[t * experts + e], (double)p[e] * (g[(size_t)e] - dot), t * experts + e);
    }
    fits(all, "route", "gradient of the logits");
}

template <typename T> void judge<T>::route_gradients() const {
    std::vector<sum> dw((size_t)(width * experts));
    verdict input, weight;
    for (int64_t t = 0; t < r.tokens; t++)
        for (int j = 0; j < width; j++) {
            sum dx;
            for (int e = 0; e < experts; e++) {
                double g = (double)logits[t * experts + e];
                dx.add(g, (double)d->w[j * experts + e]);
                dw[(size_t)(j * experts + e)].add(g, (double)d->x[t * width + j]);
            }
            for (int k = 0; k < top; k++)
                if (int64_t row = r.row[t * top + k]; row >= 0)
                    dx.add((double)d->dback[row * width + j]);
            input.see(of(SP_DX)[t * width + j], dx.total(false), t * width + j);
        }
    for (size_t i = 0; i < dw.size(); i++)
        weight.see(got->at.dw[i], dw[i].total(false, 2), (int64_t)i);
    fits(input, "route", "input gradient");
    fits(weight, "route", "the router's gradient");
}

template <typename T> static void judge_all(const struct shape *f, const struct data *d, const struct side *got) {
    const char *precision = sizeof(T) == 2 ? "bf16" : "fp32";
    judge<T> j(f, d, got);
    j.probabilities();
    bool chosen = j.choices(), seated = chosen && j.places();
    check(chosen, "choices", precision, f);
    check(seated, "places and counts", precision, f);
    if (!seated) /* everything else depends on it */
        return;
    check(j.sent(), "what is sent", precision, f);
    j.weights();
    j.combined();
    j.logits_gradient();
    j.route_gradients();
}

template <typename T> static void compare(const struct shape *f, void *workspace) {
    const char *precision = sizeof(T) == 2 ? "bf16" : "fp32";
    int64_t n = (int64_t)tokens_of(f) * f->width, params = (int64_t)f->width * f->experts;
    int64_t middle = (int64_t)places_of(f) * f->width;
    struct data d = {numbers<T>(n), numbers<T>(params), numbers<T>(n), numbers<T>(middle), numbers<T>(middle)};
    struct side once, again;
    place<T>(&once, f, &d);
    place<T>(&again, f, &d);
    run_kernels<T>(&once, workspace);
    grid_reverse = true;
    run_kernels<T>(&again, workspace);
    grid_reverse = false;
    judge_all<T>(f, &d, &once);
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
    if (argc == 3 && strcmp(argv[1], "gpt2") == 0) { /* n rows of GPT-2 124M's width */
        int context = atoi(argv[2]);
        struct shape f = {context, 1, 768, 8, 2, (context * 5 + 15) / 16};
        compare<float>(&f, workspace);
        compare<__nv_bfloat16>(&f, workspace);
    } else
        for (struct shape f : shapes) {
            compare<float>(&f, workspace);
            compare<__nv_bfloat16>(&f, workspace);
        }
    print_shares();
    printf("moe: %d passed, %d failed; at most %.2f of a limit with fp32, %.2f with bf16\n", passed, failed,
           most_reached(false), most_reached(true));
    return failed > 0;
}
