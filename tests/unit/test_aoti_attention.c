/* aoti_attention.c against plain loops: causal, masked, with heads that share keys, in both layouts of heads. */
#include "store/hash.h"
#include "units/aoti.h"
#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <string.h>

typedef struct aoti_tensor *handle;
enum { FLOAT = 6 };

/* Declared as in torch/csrc/inductor/aoti_torch/c/shim.h. */
int32_t aoti_torch__reinterpret_tensor(handle, int64_t, const int64_t *, const int64_t *, int64_t, handle *);
int32_t aoti_torch_get_data_ptr(handle, void **);
int32_t aoti_torch_get_strides(handle, int64_t **);

static float *floats(handle t) {
    void *data = NULL;
    cr_assert_eq(aoti_torch_get_data_ptr(t, &data), 0);
    return data;
}
static float drawn(uint64_t key, int64_t i) { return (float)(host_hash(key, (uint64_t)i) % 2001) / 1000 - 1; }

int32_t aoti_torch_cpu__scaled_dot_product_flash_attention_for_cpu(handle, handle, handle, double, int32_t, handle *,
                                                                   double *, handle *, handle *);
int32_t aoti_torch_cpu__scaled_dot_product_flash_attention_for_cpu_backward(handle, handle, handle, handle, handle,
                                                                            handle, double, int32_t, handle *, double *,
                                                                            handle *, handle *, handle *);

enum { BATCHES = 2, HEADS = 4, KEY_HEADS = 2, QUERIES = 70, COLUMNS = 5 };
/* How attention is called in a case, and with how many keys. A mask hides keys at random, or those after the row by
 * -infinity or by the least float. */
enum { NOTHING, RANDOM, AFTER, AFTER_LEAST };
static struct attention_case {
    int keys;
    bool causal;
    int masked;
    double scale;
} now;
static float memory[8 * BATCHES * HEADS * QUERIES * 2 * COLUMNS];
static double difference;

/* Returns heads of rows, in one part of the memory. by_rows: the heads of a row lie side by side. */
static handle heads_at(handle base, int part, int64_t heads, int64_t rows, bool by_rows) {
    const int64_t size[] = {BATCHES, heads, rows, COLUMNS}, all = heads * rows * COLUMNS;
    const int64_t side[] = {all, COLUMNS, heads * COLUMNS, 1}, apart[] = {all, rows * COLUMNS, COLUMNS, 1};
    handle t = NULL;
    const int64_t first = part * (int64_t)(sizeof memory / 4 / 8);
    aoti_torch__reinterpret_tensor(base, 4, size, by_rows ? side : apart, first, &t);
    for (int64_t i = 0; i < BATCHES * all; i++)
        floats(t)[i] = drawn((uint64_t)part, i);
    return t;
}

static float *element(handle t, int64_t b, int64_t h, int64_t i, int64_t j) {
    int64_t *stride = NULL;
    aoti_torch_get_strides(t, &stride);
    return floats(t) + b * stride[0] + h * stride[1] + i * stride[2] + j * stride[3];
}

static void compare(double got, double must) {
    const double d = got > must ? got - must : must - got;
    difference = d > difference ? d : difference;
    cr_assert(d < 1e-5, "%g, not %g", got, must);
}

/* Attention and its gradients by plain loops over one row of queries. */
static void check_row(const handle *t, int64_t b, int64_t h, int64_t i, double *dk, double *dv) {
    double p[2 * QUERIES], sum = 0, delta = 0;
    const int n = now.causal && i + 1 < now.keys ? (int)i + 1 : now.keys, k_head = (int)h / (HEADS / KEY_HEADS);
    for (int j = 0; j < n; j++) {
        double dot = 0;
        for (int c = 0; c < COLUMNS; c++)
            dot += (double)*element(t[0], b, h, i, c) * (double)*element(t[1], b, k_head, j, c);
        p[j] = exp(dot * now.scale + (now.masked ? (double)*element(t[4], b, 0, i, j) : 0));
        sum += p[j];
    }
    for (int j = 0; j < n; j++)
        p[j] = sum > 0 ? p[j] / sum : 0;
    for (int c = 0; c < COLUMNS; c++) {
        double o = 0;
        for (int j = 0; j < n; j++)
            o += p[j] * (double)*element(t[2], b, k_head, j, c);
        compare((double)*element(t[5], b, h, i, c), o);
        delta += o * (double)*element(t[3], b, h, i, c);
    }
    double dq[COLUMNS] = {0};
    for (int j = 0; j < n; j++) {
        double dp = 0;
        for (int c = 0; c < COLUMNS; c++)
            dp += (double)*element(t[3], b, h, i, c) * (double)*element(t[2], b, k_head, j, c);
        for (int c = 0; c < COLUMNS; c++) {
            const double ds = p[j] * (dp - delta) * now.scale;
            dv[j * COLUMNS + c] += p[j] * (double)*element(t[3], b, h, i, c);
            dk[j * COLUMNS + c] += ds * (double)*element(t[0], b, h, i, c);
            dq[c] += ds * (double)*element(t[1], b, k_head, j, c);
        }
    }
    for (int c = 0; c < COLUMNS; c++)
        compare((double)*element(t[7], b, h, i, c), dq[c]);
}

static int attends(handle *in, handle *out) {
    /* q, k, v, dout, mask, out, log-sum-exp, dq, dk, dv */
    handle t[10] = {heads_at(in[0], 0, HEADS, QUERIES, true), heads_at(in[0], 1, KEY_HEADS, now.keys, false),
                    heads_at(in[0], 2, KEY_HEADS, now.keys, true), heads_at(in[0], 3, HEADS, QUERIES, false)};
    const int64_t size[] = {BATCHES, 1, QUERIES, now.keys}, stride[] = {0, 0, now.keys, 1};
    (void)out;
    aoti_torch__reinterpret_tensor(in[0], 4, size, stride, 4 * (int64_t)(sizeof memory / 4 / 8), &t[4]);
    for (int i = 0; i < QUERIES * now.keys; i++) { /* at random, the first row reads nothing */
        const bool hides = now.masked == RANDOM ? i < now.keys || i % 3 == 1 : i % now.keys > i / now.keys;
        floats(t[4])[i] = !hides ? drawn(9, i) : now.masked == AFTER_LEAST ? -FLT_MAX : -INFINITY;
    }
    aoti_torch_cpu__scaled_dot_product_flash_attention_for_cpu(t[0], t[1], t[2], 0, now.causal,
                                                               now.masked ? &t[4] : NULL, &now.scale, &t[5], &t[6]);
    aoti_torch_cpu__scaled_dot_product_flash_attention_for_cpu_backward(
        t[3], t[0], t[1], t[2], t[5], t[6], 0, now.causal, now.masked ? &t[4] : NULL, &now.scale, &t[7], &t[8], &t[9]);
    for (int64_t b = 0; b < BATCHES; b++)
        for (int64_t g = 0; g < KEY_HEADS; g++) {
            double dk[2 * QUERIES * COLUMNS] = {0}, dv[2 * QUERIES * COLUMNS] = {0};
            for (int64_t h = 2 * g; h < 2 * g + 2; h++)
                for (int64_t i = 0; i < QUERIES; i++)
                    check_row(t, b, h, i, dk, dv);
            for (int j = 0; j < now.keys * COLUMNS; j++) {
                compare((double)*element(t[8], b, g, j / COLUMNS, j % COLUMNS), dk[j]);
                compare((double)*element(t[9], b, g, j / COLUMNS, j % COLUMNS), dv[j]);
            }
        }
    return 0;
}

Test(aoti_attention, values_and_gradients) {
    static const struct attention_case cases[] = {
        {QUERIES, false, NOTHING, 0.5}, {QUERIES, true, NOTHING, 0.5}, {QUERIES, false, RANDOM, 1},
        {QUERIES, true, RANDOM, 0.25},  {11, false, NOTHING, 0.5},     {90, true, NOTHING, 0.5},
        {QUERIES, false, AFTER, 0.5},   {90, false, AFTER_LEAST, 0.5}, {11, false, AFTER, 0.5}};
    static _Alignas(64) char room[1 << 20];
    const struct aoti_input in = {{AOTI_X, 0}, FLOAT, 1, {sizeof memory / 4}, {1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        now = cases[i];
        const int64_t q = 4 * BATCHES * HEADS * QUERIES * COLUMNS, k = 4 * BATCHES * KEY_HEADS * now.keys * COLUMNS,
                      lse = 4 * BATCHES * HEADS * QUERIES, scores = 4 * 64 * now.keys;
        const struct aoti_allocation tape[] = {{{AOTI_WORK, 0}, q, 0},
                                               {{AOTI_WORK, 1 << 15}, lse, 0},
                                               {{AOTI_WORK, 2 << 15}, scores, 0},
                                               {{AOTI_WORK, 3 << 15}, q, 0},
                                               {{AOTI_WORK, 4 << 15}, k, 0},
                                               {{AOTI_WORK, 5 << 15}, k, 0},
                                               {{AOTI_WORK, 6 << 15}, scores, 0},
                                               {{AOTI_WORK, 7 << 15}, scores, 0}};
        const struct aoti_graph graph = {.name = "attention",
                                         .machine = "x86-64",
                                         .run = attends,
                                         .input = &in,
                                         .tape = tape,
                                         .inputs = 1,
                                         .allocations = 8,
                                         .tensors = 14,
                                         .pool = 8 << 15};
        const struct pianola_unit_call c = {.x = memory, .work = room};
        memset(room, 0xff, sizeof room);
        aoti_run(&graph, &c);
    }
    cr_assert(difference > 0);
}
