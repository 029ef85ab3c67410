/* Trains a chain of linear and relu layers by the papers' formulas, one microbatch after the other, for
 * tests/training/asynchronous/test.sh. It knows no streams, ranks, messages or buffers; of the runtime it has only the
 * initial weights and the data.
 *
 *   formulas stages=4 layers=1 features=2 rows=1 lr=13 seed=1 batches=24 updates=1,1,1,1 steps=2 rule=stashing
 *            [late=1] [adam=1] [streams=FILE] [weights=FILE]
 *
 * streams: a program's text form, which gives batches and updates. The versions that it declares must follow the rule;
 * with rule=any they are used as declared. weights: a safetensors file that must have the same bits. Prints the
 * fingerprint of the weights (as `pianola run` does: the sum of each element's hash, which is SplitMix64's, of FNV-1a
 * of the parameter's name, the layer, the element's place and its bits), and the mean loss of the last step.
 *
 * Bits can be compared because data and initial weights are chosen (store/data.c) so that each element of a product has
 * one nonzero term, and each element of a gradient at most two, whose order does not matter. This is checked for every
 * sum. The learning rate is a power of two, so its place in a product does not matter either, and the mean of m
 * gradients is their sum times the float nearest to 1 / m. So a program that trains by the formula can round in one way
 * only. */
#include "formulas.h"
#include "rt.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Noreturn void fail(const char *form, ...) {
    va_list list;
    va_start(list, form);
    fprintf(stderr, "formulas: ");
    vfprintf(stderr, form, list);
    fprintf(stderr, "\n");
    exit(1);
}

static void *take(size_t n, size_t size) {
    void *p = calloc(n ? n : 1, size);
    if (!p)
        fail("out of memory");
    return p;
}

/* A microbatch in flight: per layer of the model, rows x features. */
struct pass {
    float **x, **y; /* inputs of the backward: each linear layer's input, and its output after the relu */
    float *act;     /* output to the next stage */
    float *dy, *dx;
    const float *target;
    double loss;
};

struct weights {
    float **version;       /* [number]: [layer of the stage][features][features] */
    float *gradient;       /* the current update's sum */
    uint8_t *terms;        /* number of nonzero terms of each of its elements */
    double *mean, *square; /* Adam's moments */
    int updates;           /* number of updates so far */
};

/* Computes y = x W, or with `back` y = x W^T; rows x features. */
static void product(const struct training *t, const float *x, const float *w, bool back, float *y) {
    int n = t->features;
    for (int r = 0; r < t->rows; r++)
        for (int j = 0; j < n; j++) {
            int terms = 0;
            float sum = 0;
            for (int i = 0; i < n; i++) {
                float term = x[r * n + i] * (back ? w[j * n + i] : w[i * n + j]);
                terms += term != 0;
                sum += term;
            }
            if (terms > 1 || !isfinite(sum))
                fail("a product has %d terms, sum %g: its bits depend on their order", terms, (double)sum);
            y[r * n + j] = sum;
        }
}

/* Runs the layers of stage s on its input in pass->act, with these weights. keep: for the backward. */
static void forward(const struct training *t, int s, const float *w, struct pass *pass, bool keep) {
    int n = t->features, size = t->rows * n, last = t->stages * t->layers - 1;
    float *x = take((size_t)size, sizeof *x);
    for (int l = s * t->layers; l < (s + 1) * t->layers; l++, w += n * n) {
        memcpy(x, pass->act, (size_t)size * sizeof *x);
        product(t, x, w, false, pass->act);
        for (int i = 0; i < size && l < last; i++)
            pass->act[i] = pass->act[i] > 0 ? pass->act[i] : 0;
        if (keep) {
            memcpy(pass->x[l], x, (size_t)size * sizeof *x);
            memcpy(pass->y[l], pass->act, (size_t)size * sizeof *x);
        }
    }
    free(x);
}

/* Returns the loss: the sum over columns of (y - target)^2 / 2, averaged over rows. */
static double loss_of(const struct training *t, const struct pass *pass) {
    double sum = 0;
    for (int i = 0; i < t->rows * t->features; i++) {
        double d = (double)(pass->act[i] - pass->target[i]);
        sum += 0.5 * d * d;
    }
    return sum / t->rows;
}

static void loss_gradient(const struct training *t, struct pass *pass) {
    const float *y = pass->y[t->stages * t->layers - 1];
    for (int i = 0; i < t->rows * t->features; i++)
        pass->dy[i] = (y[i] - pass->target[i]) / (float)t->rows;
}

/* Computes gradient += x^T dy. Rows of a microbatch have different columns, so each gives an element one term. */
static void add_gradient(const struct training *t, const float *x, const float *dy, float *gradient, uint8_t *terms) {
    int n = t->features;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            int here = 0;
            for (int r = 0; r < t->rows; r++) {
                float term = x[r * n + i] * dy[r * n + j];
                here += term != 0;
                gradient[i * n + j] += term;
            }
            terms[i * n + j] = (uint8_t)(terms[i * n + j] + here);
            if (here > 1 || terms[i * n + j] > 2)
                fail("a gradient has %d terms, %d of one microbatch: its bits depend on their order; more features",
                     terms[i * n + j], here);
        }
}

/* Turns the gradient of its output in pass->dy into its input's, with these weights and what the forward kept. */
static void backward(const struct training *t, int s, const float *w, struct pass *pass, struct weights *of) {
    int n = t->features, size = t->rows * n, last = t->stages * t->layers - 1;
    for (int l = (s + 1) * t->layers - 1; l >= s * t->layers; l--) {
        int64_t at = (int64_t)(l - s * t->layers) * n * n;
        for (int i = 0; i < size && l < last; i++)
            pass->dy[i] = pass->y[l][i] > 0 ? pass->dy[i] : 0;
        add_gradient(t, pass->x[l], pass->dy, of->gradient + at, of->terms + at);
        product(t, pass->dy, w + at, true, pass->dx);
        memcpy(pass->dy, pass->dx, (size_t)size * sizeof *pass->dx);
    }
}

/* Computes w(k+1) = w(k) - nu g, where g is the sum of the gradients / m */
static void descend(const struct training *t, int s, struct weights *of, int k, int n) {
    float lr = ldexpf(1, -t->lr), mean = 1 / (float)t->update[s];
    for (int i = 0; i < n; i++)
        of->version[k + 1][i] = of->version[k][i] - lr * (mean * of->gradient[i]);
}

/* Applies Kingma & Ba 2015, "Adam: A Method for Stochastic Optimization", algorithm 1, with the default moment weights
 * of Pianola's adamw. In double, so only close to a run's float. */
static void adam(const struct training *t, int s, struct weights *of, int k, int n) {
    const double beta1 = 0.9, beta2 = 0.95, eps = 1e-8;
    for (int i = 0; i < n; i++) {
        double g = (double)of->gradient[i] / t->update[s];
        of->mean[i] = beta1 * of->mean[i] + (1 - beta1) * g;
        of->square[i] = beta2 * of->square[i] + (1 - beta2) * g * g;
        double mean = of->mean[i] / (1 - pow(beta1, of->updates)),
               square = of->square[i] / (1 - pow(beta2, of->updates));
        of->version[k + 1][i] = (float)(of->version[k][i] - ldexp(1, -t->lr) * mean / (sqrt(square) + eps));
    }
}

static void update(const struct training *t, int s, struct weights *of, int k) {
    int n = t->layers * t->features * t->features;
    of->updates++;
    (t->adam ? adam : descend)(t, s, of, k, n);
    memset(of->gradient, 0, (size_t)n * sizeof *of->gradient);
    memset(of->terms, 0, (size_t)n);
}

static const float *version(const struct training *t, const struct weights *w, int s, int b, enum job job) {
    int v = t->version ? t->version[(s * t->batches + b) * NJOBS + job] : formula(t, s, b, job);
    if (v < 0 || v > b / t->update[s])
        fail("%c %d %d reads version %d, which does not exist yet", "FRB"[job], s, b, v);
    return w[s].version[v];
}

static void train_batch(const struct training *t, struct weights *w, struct pass *pass, const float *x, int b) {
    size_t size = (size_t)(t->rows * t->features) * sizeof *x;
    memcpy(pass->act, x, size);
    for (int s = 0; s < t->stages; s++) {
        bool again = t->version && t->version[(s * t->batches + b) * NJOBS + RECOMPUTE] >= 0;
        if (again) {
            memcpy(pass->dx, pass->act, size);
            forward(t, s, version(t, w, s, b, RECOMPUTE), pass, true);
            memcpy(pass->act, pass->dx, size);
        }
        forward(t, s, version(t, w, s, b, FORWARD), pass, !again);
    }
    pass->loss += loss_of(t, pass);
    loss_gradient(t, pass);
    for (int s = t->stages - 1; s >= 0; s--) {
        backward(t, s, version(t, w, s, b, BACKWARD), pass, &w[s]);
        if ((b + 1) % t->update[s] == 0)
            update(t, s, &w[s], b / t->update[s]);
    }
}

/* ---- the data and the initial weights, as in the runtime ---- */

static struct data *open_data(const struct training *t, struct rt_model *m) {
    char why[512];
    *m = (struct rt_model){.input = INPUT_INTEGERS, .rows = t->rows, .features = t->features, .batches = 1};
    struct data *data = data_open(m, NULL, (uint64_t)t->seed, why, sizeof why);
    if (!data)
        fail("%s", why);
    return data;
}

static void first_weights(const struct training *t, const struct rt_model *m, struct weights *w) {
    int n = t->features * t->features;
    for (int l = 0; l < t->stages * t->layers; l++) { /* each followed by a relu */
        struct rt_layer layer = {
            .kind = LAYER_linear, .in = t->features, .out = t->features, .index = 2 * l, .nparam = n};
        struct rt_stage stage = {.layer = &layer, .nlayers = 1, .weight = n * (int64_t)sizeof(float)};
        host_init(m, &stage, w[l / t->layers].version[0] + l % t->layers * n, (uint64_t)t->seed);
    }
}

/* ---- all of it ---- */

/* Trains; leaves the weights in w, [layer of the model][features][features], and returns the last step's mean loss. */
static double train(const struct training *t, float *w) {
    struct rt_model m;
    struct data *data = open_data(t, &m);
    struct weights of[MOST_STAGES];
    int all = t->stages * t->layers, size = t->rows * t->features, n = t->layers * t->features * t->features;
    for (int s = 0; s < t->stages; s++) {
        int versions = t->batches / t->update[s] + 1;
        of[s].version = take((size_t)versions, sizeof *of[s].version);
        for (int k = 0; k < versions; k++)
            of[s].version[k] = take((size_t)n, sizeof(float));
        of[s].gradient = take((size_t)n, sizeof(float));
        of[s].terms = take((size_t)n, 1);
        of[s].mean = take((size_t)n, sizeof(double));
        of[s].square = take((size_t)n, sizeof(double));
        of[s].updates = 0;
    }
    struct pass pass = {.act = take((size_t)size, sizeof(float)), .dy = take((size_t)size, sizeof(float))};
    pass.dx = take((size_t)size, sizeof(float));
    pass.x = take((size_t)all, sizeof *pass.x);
    pass.y = take((size_t)all, sizeof *pass.y);
    for (int l = 0; l < all; l++) {
        pass.x[l] = take((size_t)size, sizeof(float));
        pass.y[l] = take((size_t)size, sizeof(float));
    }
    first_weights(t, &m, of);
    void *memory = take(data_bytes(&m), 1);
    for (int step = 0; step < t->steps; step++) {
        pass.loss = 0;
        for (int b = 0; b < t->batches; b++) {
            struct rt_batch batch;
            data_batch(data, step, b, memory, &batch);
            pass.target = batch.y;
            train_batch(t, of, &pass, batch.x, b);
        }
        for (int s = 0; s < t->stages; s++) /* version 0 of the next step */
            memcpy(of[s].version[0], of[s].version[t->batches / t->update[s]], (size_t)n * sizeof(float));
    }
    for (int s = 0; s < t->stages; s++)
        memcpy(w + s * n, of[s].version[0], (size_t)n * sizeof(float));
    data_close(data);
    return pass.loss / t->batches;
}

/* Returns SplitMix64 (Steele, Lea & Flood 2014) of a and b. */
static uint64_t mixed(uint64_t a, uint64_t b) {
    uint64_t z = a + (b + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* Hashes the weights; layer 2l of the model has the l-th n of them. */
static uint64_t fingerprint(const float *w, int64_t layers, int64_t n) {
    uint64_t name = 0xcbf29ce484222325u, sum = 0;
    for (const char *c = "weight"; *c; c++)
        name = (name ^ (unsigned char)*c) * 0x100000001b3u;
    for (int64_t i = 0; i < layers * n; i++) {
        uint32_t bits;
        memcpy(&bits, &w[i], sizeof bits);
        sum += mixed(mixed(mixed(name, (uint64_t)(i / n * 2)), (uint64_t)(i % n)), bits);
    }
    return sum;
}

static void read_updates(struct training *t, const char *list) {
    for (int s = 0; s < MOST_STAGES; s++) {
        char *end;
        t->update[s] = (int)strtol(list, &end, 10);
        list = *end == ',' ? end + 1 : list; /* the last one applies to all the rest */
    }
}

static void read_argument(struct training *t, const char *arg, const char **streams, const char **weights) {
    static const char *const rules[NRULES] = {
#define X(NAME, name) #name,
        RULES(X)
#undef X
    };
    const struct {
        const char *key;
        int *value;
    } numbers[] = {{"stages=", &t->stages}, {"layers=", &t->layers}, {"features=", &t->features}, {"rows=", &t->rows},
                   {"seed=", &t->seed},     {"lr=", &t->lr},         {"batches=", &t->batches},   {"steps=", &t->steps},
                   {"late=", &t->late},     {"adam=", &t->adam}};
    const char *value = strchr(arg, '=');
    if (!value++)
        fail("%s: expected key=value", arg);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (strncmp(arg, numbers[i].key, (size_t)(value - arg)) == 0) {
            *numbers[i].value = atoi(value);
            return;
        }
    for (int r = 0; r < NRULES; r++)
        if (strncmp(arg, "rule=", 5) == 0 && strcmp(value, rules[r]) == 0) {
            t->rule = (enum rule)r;
            return;
        }
    if (strncmp(arg, "updates=", 8) == 0)
        read_updates(t, value);
    else if (strncmp(arg, "streams=", 8) == 0)
        *streams = value;
    else if (strncmp(arg, "weights=", 8) == 0)
        *weights = value;
    else
        fail("%s: no such argument", arg);
}

int main(int argc, char **argv) {
    struct training t = {
        .stages = 1, .layers = 1, .features = 1, .rows = 1, .seed = 1, .lr = 8, .steps = 1, .rule = ANY};
    const char *streams = NULL, *weights = NULL;
    read_updates(&t, "1");
    for (int i = 1; i < argc; i++)
        read_argument(&t, argv[i], &streams, &weights);
    if (t.stages > MOST_STAGES)
        fail("%d stages: at most %d", t.stages, MOST_STAGES);
    if (streams)
        read_streams(&t, streams);
    for (int s = 0; s < t.stages; s++)
        if (t.batches < 1 || t.update[s] < 1 || t.batches % t.update[s])
            fail("stage %d: %d microbatches are no whole number of updates of %d", s, t.batches, t.update[s]);
    if (streams)
        check_versions(&t);
    if (has_formula(&t)) { /* if given, only this matters */
        free(t.version);
        t.version = NULL;
    } else if (!streams)
        fail("a rule without a formula needs streams");
    int64_t n = (int64_t)t.stages * t.layers * t.features * t.features;
    float *w = take((size_t)n, sizeof *w);
    double loss = train(&t, w);
    if (weights)
        check_weights(&t, weights, w);
    printf("weights %016llx\nloss %.9g\n",
           (unsigned long long)fingerprint(w, n / (t.features * t.features), t.features * t.features), loss);
    return 0;
}
