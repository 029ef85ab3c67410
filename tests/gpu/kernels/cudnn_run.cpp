/* Checks attention_cudnn.cu against fake_cudnn.cpp's cuDNN. Its calls have the right parts of all tensors, and several
 * calls make one microbatch's backward. A cuDNN that is wrong or not deterministic is detected at the start. One that
 * fails, at any place and with any status, leaves the work to attention.cu: the same bits, and one line on stderr. */
#include "layers/cuda_math.cuh"
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int passed, failed;
static void check(bool fine, const char *how, const char *what) {
    passed += fine;
    failed += !fine;
    if (!fine)
        printf("    FAKE_CUDNN=%s: %s FAILED\n", how, what);
}

enum { SEQUENCES = 6, CONTEXT = 50, HEADS = 3, DIM = 16, ROWS = SEQUENCES * CONTEXT, WIDTH = HEADS * DIM };
enum { Y = ROWS * WIDTH * 2, X = 3 * Y, NUMBERS = (ROWS * HEADS * 4 + 63) / 64 * 64 };
static struct rt_layer layer;
static struct rt_model model;

struct result {
    char y[Y], dx[X], statistics[NUMBERS];
};

/* Runs the layer with x, dy, y, dx, statistics, sums and workspace in device memory. */
static void run(struct result *r) {
    char *device, *host = (char *)malloc(X + Y);
    int64_t bytes = 2 * (X + Y + NUMBERS) + cuda_workspace();
    struct rt_bind at = {}, early;
    cuda_must(cudaMalloc(&device, (size_t)bytes), "cudaMalloc");
    CUDA(cudaMemset(device, 0xff, (size_t)bytes));
    for (int i = 0; i < (X + Y) / 2; i++) {
        __nv_bfloat16 e = narrow<__nv_bfloat16>((float)((unsigned)i * 2654435761u >> 8) / (1 << 23) - 1);
        memcpy(host + 2 * i, &e, 2);
    }
    CUDA(cudaMemcpy(device, host, X + Y, cudaMemcpyHostToDevice));
    at.at[SP_X] = device, at.at[SP_DY] = device + X, at.at[SP_Y] = device + X + Y, at.at[SP_DX] = device + X + 2 * Y;
    at.at[SP_STASH] = device + 2 * (X + Y), at.at[SP_WORK] = at.at[SP_STASH] + NUMBERS;
    early = at;
    early.at[SP_DY] = early.at[SP_DX] = early.at[SP_WORK] = NULL;
    struct cuda_call c = {&model, &layer, &early, 0, at.at[SP_WORK] + NUMBERS};
    cuda_attention.forward(&c);
    c.at = &at;
    cuda_attention.input(&c);
    CUDA(cudaDeviceSynchronize());
    CUDA(cudaMemcpy(r->y, at.at[SP_Y], Y, cudaMemcpyDeviceToHost));
    CUDA(cudaMemcpy(r->dx, at.at[SP_DX], X, cudaMemcpyDeviceToHost));
    CUDA(cudaMemcpy(r->statistics, at.at[SP_STASH], ROWS * HEADS * 4, cudaMemcpyDeviceToHost));
    cudaFree(device);
    free(host);
}

static double apart(const char *a, const char *b, int n) {
    double differences = 0, squares = 0;
    for (int i = 0; i < n; i++) {
        __nv_bfloat16 e[2];
        memcpy(&e[0], a + 2 * i, 2);
        memcpy(&e[1], b + 2 * i, 2);
        double x = (double)widen(e[0]), y = (double)widen(e[1]);
        differences += (x - y) * (x - y);
        squares += y * y;
    }
    return sqrt(differences / squares);
}

/* ---- output on stderr ---- */

static FILE *said;
static void listen(void) {
    fflush(stderr);
    if (ftruncate(fileno(said), 0) == 0)
        rewind(said);
}
static bool one_line(const char *with) {
    char text[2048];
    fflush(stderr);
    rewind(said);
    size_t n = fread(text, 1, sizeof text - 1, said);
    text[n] = 0;
    bool fine = n > 0 && strchr(text, '\n') == text + n - 1 && strstr(text, with) &&
                strstr(text, "attention.cu computes it instead (PIANOLA_CUDNN=0 turns cuDNN off)");
    if (!fine)
        printf("    said: %s\n", text);
    return fine;
}

static struct rt_program program;
static struct result own, first, other;

/* Plans with a cuDNN that goes wrong in one way, and runs with one that goes wrong in another. */
static void run_with(const char *planned, const char *running) {
    listen();
    setenv("FAKE_CUDNN", planned, 1);
    cuda_attention_plan(&program);
    setenv("FAKE_CUDNN", running, 1);
    run(&first); /* a failed call is not tried again */
    run(&other);
    cuda_attention_forget();
}

static void check_failures(void) {
    static const int statuses[] = {1001, 1008, 2000, 3000, 4000, 5000};
    for (const char *place : {"create", "heuristic", "plan", "forward", "backward"})
        for (int status : statuses) {
            char how[40], with[40];
            snprintf(how, sizeof how, "%s:%d", place, status);
            snprintf(with, sizeof with, ": CUDNN_STATUS_%d;", status);
            run_with(how, how);
            check(memcmp(&own, &other, sizeof own) == 0, how, "attention.cu has done it");
            check(one_line(with), how, "one line with the status");
        }
}

/* Checks a later call that fails after the comparison has passed. */
static void check_late_failures(void) {
    for (const char *how : {"forward:5000", "backward:5000", "backward:3000"}) {
        run_with("fine", how);
        check(memcmp(&own, &other, sizeof own) == 0, how, "late, and attention.cu has done it");
        check(apart(first.y, own.y, Y / 2) < 0.01 && apart(first.dx, own.dx, X / 2) < 0.02, how,
              "late, and a backward by attention.cu can follow");
        check(one_line(how[0] == 'f' ? "its forward fails: CUDNN_STATUS_5000;" : "its backward fails: CUDNN_STATUS_"),
              how, "late, and one line with the status");
    }
}

int main(void) {
    struct rt_stage stage = {};
    layer.kind = LAYER_attention, layer.rows = ROWS, layer.in = 3 * WIDTH, layer.out = WIDTH;
    layer.config.attention.heads = layer.config.attention.kv_heads = HEADS, layer.context = CONTEXT;
    layer.x.space = SP_X, layer.y.space = SP_Y, layer.aux.space = SP_STASH;
    layer.dy.space = SP_DY, layer.dx.space = SP_DX, layer.tmp.space = SP_WORK;
    model.precision = BF16;
    stage.layer = &layer, stage.nlayers = 1;
    program.stages = 1, program.stage = &stage, program.model = &model;
    if (!(said = tmpfile()) || dup2(fileno(said), 2) < 0)
        return 2;
    run(&own);
    setenv("FAKE_CUDNN", "fine", 1);
    cuda_attention_plan(&program);
    int *calls = (int *)dlsym(dlopen("libcudnn.so.9", RTLD_NOW | RTLD_NOLOAD), "fake_cudnn_calls");
    calls[0] = calls[1] = 0;
    run(&other);
    cuda_attention_forget();
    check(calls[1] == 1 && calls[0] == SEQUENCES / 2, "fine", "one call forward, a few backward");
    check(memcmp(&own, &other, sizeof own) != 0, "fine", "cuDNN has done it");
    check(apart(other.y, own.y, Y / 2) < 0.01 && apart(other.dx, own.dx, X / 2) < 0.02, "fine", "the same results");
    for (const char *how : {"wrong", "random"}) {
        run_with(how, how);
        check(memcmp(&own, &other, sizeof own) == 0, how, "attention.cu has done it");
        check(one_line(how[0] == 'w' ? "its results are others;" : "its bits vary from run to run;"), how, "one line");
    }
    check_failures();
    check_late_failures();
    setenv("PIANOLA_CUDNN", "0", 1);
    setenv("FAKE_CUDNN", "fine", 1);
    calls[0] = calls[1] = 0;
    cuda_attention_plan(&program);
    run(&other);
    check(memcmp(&own, &other, sizeof own) == 0 && calls[0] + calls[1] == 0, "fine, PIANOLA_CUDNN=0",
          "attention.cu has done it");
    printf("attention with a cuDNN: %d passed, %d failed\n", passed, failed);
    return failed > 0;
}
