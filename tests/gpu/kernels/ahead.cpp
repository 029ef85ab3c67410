/* Compares updates that go ahead of their norm on a device with the host, bit for bit: some are undone, some settle. */
#include "layers/cuda.cuh"
#include "layers/post_validation.h"
#include "check.h"
#include "device.h"

static float *numbers(int n) {
    float *x = (float *)fresh(4 * (size_t)n);
    for (int i = 0; i < n; i++)
        x[i] = (float)(random_bits() % 65536) / 65536 - 0.5f;
    return x;
}

int main(void) {
    enum { N = 2048, MOMENTS = 2, FLOATS = N * (2 * MOMENTS + 2) + KEPT_HEADER };
    struct rt_layer l = {};
    struct rt_model m = {};
    struct rt_stage s = {};
    l.kind = LAYER_linear;
    l.config.linear.bias = true;
    l.in = 31;
    l.out = 64;
    l.nparam = N;
    m.optimizer = OPT_ADAMW;
    m.beta1 = 0.9f, m.beta2 = 0.95f, m.eps = 1e-8f, m.lr = 0.01f, m.decay = 0.1f, m.clip = 1;
    m.post_validation = 1;
    s.layer = &l;
    s.nlayers = 1;
    s.weight = 4 * N;
    float *w = numbers(N), *v = (float *)fresh(4 * N);
    float *opt = (float *)fresh(4 * (size_t)FLOATS), *state = (float *)fresh(4 * (size_t)FLOATS);
    int64_t *step = (int64_t *)fresh(16), number = 0;
    *step = 0;
    memcpy(v, w, 4 * N);
    memset(opt, 0, 4 * (size_t)FLOATS);
    memset(state, 0, 4 * (size_t)FLOATS);
    int verdicts[3] = {0, 0, 0};
    for (int i = 0; i < 12; i++) { /* each with the norm of a large or a small gradient */
        float *dw = numbers(N), *last = numbers(N);
        for (int k = 0; k < N; k++)
            last[k] *= i % 5 < 2 ? 1 : 1e-3f;
        uint64_t *norm = (uint64_t *)fresh(NORM_BYTES);
        host_norm({&m, &s, 0, N}, last, norm, true);
        bool settles = i % 4 == 3;
        number += !settles;
        if (!settles)
            cuda_count(on_device(step), PASS_BEGINS, 1, NULL, 0, 0);
        const rt_update on_host = {{&m, &s, 0, N}, w, dw, opt, NULL, norm, number, 20, settles};
        host_update_ahead(&on_host);
        const cuda_number at = {on_device(step), 1, 0, 0, 20, NULL, 0};
        const rt_update u = {
            {&m, &s, 0, N}, on_device(v), on_device(dw), on_device(state), NULL, on_device(norm), 0, 20, settles};
        cuda_update_ahead(&u, &at, NULL, 0);
        verdicts[((struct kept *)(void *)(opt + MOMENTS * N))->verdict]++;
    }
    back();
    check(!memcmp(w, v, 4 * N), "weights", "updates ahead");
    check(!memcmp(opt, state, 4 * (size_t)FLOATS), "state, and what is kept", "updates ahead");
    check(verdicts[GOES_ON] > 2 && verdicts[TAKES_BACK] > 2 && verdicts[STANDS] > 0, "all verdicts", "updates ahead");
    check(release(), "nothing written behind a tensor", "updates ahead");
    printf("%d passed, %d failed\n", passed, failed);
    return failed > 0;
}
