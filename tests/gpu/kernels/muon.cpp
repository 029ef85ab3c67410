/* Muon on a device against the host, on a stage with wide, tall, square and odd-sized matrices followed by biases, and
 * an output layer with AdamW. Products differ in the order of their sums. Moments do not, nor do AdamW's parameters. */
#include "layers/cuda_math.cuh"
#include "check.h"
#include "device.h"

static float number(void) { return (float)(random_bits() % 65536) / 65536 - 0.5f; }

enum { LAYERS_HERE = 6, STEPS_HERE = 3, OF = 7 };
static const int shape[LAYERS_HERE][2] = {{7, 5}, {16, 48}, {48, 16}, {16, 16}, {3, 9}, {9, 4}}; /* in, out */

static float *work_of(const struct rt_model *m, const struct rt_layer *l) {
    int64_t most = 0;
    for (int i = 0; i < LAYERS_HERE; i++) {
        const struct rt_parameters all = parameters_of(m, &l[i], false);
        most = matrix_work(m, &l[i], &all.at[0]) > most ? matrix_work(m, &l[i], &all.at[0]) : most;
    }
    return (float *)fresh((size_t)most * sizeof(float));
}

template <typename T> static void update(float clip, const char *where) {
    struct rt_layer l[LAYERS_HERE] = {}, other[LAYERS_HERE];
    struct rt_model m = {}, dm;
    struct rt_stage s = {}, ds;
    struct rt_program p = {};
    int64_t n = 0, each = (int64_t)sizeof(T);
    for (int i = 0; i < LAYERS_HERE; i++) {
        l[i].kind = LAYER_linear;
        l[i].config.linear.bias = true;
        l[i].index = i;
        l[i].in = shape[i][0];
        l[i].out = shape[i][1];
        l[i].nparam = (int64_t)(l[i].in + 1) * l[i].out;
        l[i].param = 4 * n;
        n += (l[i].nparam + 31) / 32 * 32;
    }
    m.optimizer = OPT_MUON;
    m.output = LAYERS_HERE - 1;
    m.lr = 0.02f, m.adam_lr = 0.003f, m.decay = 0.1f, m.momentum = 0.95f, m.beta1 = 0.9f, m.beta2 = 0.95f,
    m.eps = 1e-8f;
    m.schedule = SCHEDULE_cosine, m.warmup = 1, m.final = 0.1f, m.clip = clip;
    s.layer = l, s.nlayers = LAYERS_HERE, s.weight = 4 * n, s.opt = 8 * n, s.update = 4;
    dm = m, ds = s;
    dm.precision = sizeof(T) == 2 ? BF16 : FP32;
    ds.weight = n * each;
    ds.layer = other;
    for (int i = 0; i < LAYERS_HERE; i++)
        other[i] = l[i], other[i].param = l[i].param / 4 * each;
    p.model = &dm, p.stage = &ds, p.stages = 1;
    float *w = (float *)fresh((size_t)n * 4), *dw = (float *)fresh((size_t)n * 4), *opt = (float *)fresh((size_t)n * 8);
    float *state = (float *)fresh((size_t)n * 12), *moments = state + (sizeof(T) == 2 ? n : 0);
    T *v = (T *)fresh((size_t)n * sizeof(T));
    uint64_t *norm = (uint64_t *)fresh(NORM_BYTES);
    int64_t *step = (int64_t *)fresh(16);
    float *work = work_of(&m, l), *dwork = work_of(&m, l);
    char *workspace = (char *)fresh(CUDA_WORKSPACE);
    memset(w, 0, (size_t)n * 4);
    memset(dw, 0, (size_t)n * 4);
    memset(norm, 0, NORM_BYTES);
    norm[9] = 1u << 27; /* 2^(9 * 32 + 27 - 298) = 2^17 */
    *step = 0;
    for (int i = 0; i < LAYERS_HERE; i++)
        for (int64_t k = 0; k < l[i].nparam; k++) {
            w[l[i].param / 4 + k] = number();
            dw[l[i].param / 4 + k] = number();
        }
    for (int64_t i = 0; i < n; i++)
        v[i] = narrow<T>(w[i]);
    memset(state, 0xff, (size_t)n * 12);
    if (sizeof(T) == 2)
        memcpy(state, w, (size_t)n * 4);
    float *before = (float *)malloc((size_t)n * 4);
    memcpy(before, w, (size_t)n * 4);
    cuda_update_plan(&p);
    for (int64_t i = 1; i <= STEPS_HERE; i++) {
        const rt_update on_host = {{&m, &s, 0, n}, w, dw, opt, work, clip > 0 ? norm : NULL, i, OF, false};
        host_update(&on_host);
        cuda_count(on_device(step), PASS_BEGINS, 1, NULL, 0, 0);
        const cuda_number number = {on_device(step), 1, 0, 0, OF, NULL, 0};
        const rt_update u = {{&dm, &ds, 0, n},
                             on_device(v),
                             on_device(dw),
                             on_device(state),
                             on_device(dwork),
                             clip > 0 ? on_device(norm) : NULL,
                             0,
                             OF,
                             false};
        cuda_update(&u, &number, on_device(workspace), 0);
    }
    back();
    cuda_update_forget();
    const float *master = sizeof(T) == 2 ? state : (const float *)(const void *)v;
    bool same = true, close = true, rounded = true, moved = true;
    for (int i = 0; i < LAYERS_HERE; i++) {
        int64_t at = l[i].param / 4, matrix = (int64_t)l[i].in * l[i].out;
        float far = 0, way = 0;
        for (int64_t k = at; k < at + l[i].nparam; k++) {
            if (i < LAYERS_HERE - 1 && k < at + matrix) {
                far = fmaxf(far, fabsf(master[k] - w[k]));
                way = fmaxf(way, fabsf(w[k] - before[k]));
            } else
                same &= master[k] == w[k];
            rounded &= widen(v[k]) == widen(narrow<T>(master[k]));
        }
        close &= far <= 1e-4f * way;
        moved &= i == LAYERS_HERE - 1 || way > 0.01f;
    }
    check(moved, "matrices move", where);
    check(close, "matrices", where);
    check(same, "what is AdamW's", where);
    check(rounded, "weights are the masters, rounded", where);
    check(!memcmp(moments, opt, (size_t)n * 8), "moments", where);
    free(before);
    check(release(), "nothing written behind a tensor", where);
}

int main(void) {
    update<float>(0, "muon, fp32");
    update<__nv_bfloat16>(0, "muon, bf16");
    update<float>(1, "muon, fp32, clipped");
    printf("%d passed, %d failed\n", passed, failed);
    return failed > 0;
}
