/* aoti.c, on graphs that are written here by hand and import the same functions as PyTorch's: results against plain
 * loops, allocations at their planned places, and an error for each difference from the tape. */
#include "store/hash.h"
#include "units/aoti.h"
#include <criterion/criterion.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct aoti_tensor *handle;
enum { FLOAT = 6, BFLOAT = 15 };

/* Declared as in torch/csrc/inductor/aoti_torch/c/shim.h. */
int32_t aoti_torch_empty_strided(int64_t, const int64_t *, const int64_t *, int32_t, int32_t, int32_t, handle *);
int32_t aoti_torch__reinterpret_tensor(handle, int64_t, const int64_t *, const int64_t *, int64_t, handle *);
int32_t aoti_torch_new_tensor_handle(handle, handle *);
int32_t aoti_torch_delete_tensor_object(handle);
int32_t aoti_torch_clone(handle, handle *);
int32_t aoti_torch_copy_(handle, handle, int32_t);
int32_t aoti_torch_get_data_ptr(handle, void **);
int32_t aoti_torch_get_dim(handle, int64_t *);
int32_t aoti_torch_get_numel(handle, int64_t *);
int32_t aoti_torch_get_size(handle, int64_t, int64_t *);
int32_t aoti_torch_get_stride(handle, int64_t, int64_t *);
int32_t aoti_torch_get_sizes(handle, int64_t **);
int32_t aoti_torch_get_strides(handle, int64_t **);
int32_t aoti_torch_get_storage_offset(handle, int64_t *);
int32_t aoti_torch_get_storage_size(handle, int64_t *);
int32_t aoti_torch_get_dtype(handle, int32_t *);
int32_t aoti_torch_get_device_type(handle, int32_t *);
int32_t aoti_torch_get_device_index(handle, int32_t *);
int32_t aoti_torch_cpu_mm_out(handle, handle, handle);
int32_t aoti_torch_cpu_bmm_out(handle, handle, handle);
int32_t aoti_torch_cpu_addmm_out(handle, handle, handle, handle, double, double);
int32_t aoti_torch_cpu_baddbmm_out(handle, handle, handle, handle, double, double);
int32_t aoti_torch_cpu__scaled_dot_product_flash_attention_for_cpu(handle, handle, handle, double, int32_t, handle *,
                                                                   double *, handle *, handle *);
void aoti_torch_check(bool, const char *, const char *, uint32_t, const char *);
bool aoti_torch_grad_mode_is_enabled(void);
void aoti_torch_grad_mode_set_enabled(bool);
const char *aoti_torch_exception_get_what_without_backtrace(void);

static float *floats(handle t) {
    void *data = NULL;
    cr_assert_eq(aoti_torch_get_data_ptr(t, &data), 0);
    return data;
}
static handle empty(int64_t rows, int64_t columns) {
    handle t = NULL;
    const int64_t size[] = {rows, columns}, stride[] = {columns, 1};
    aoti_torch_empty_strided(2, size, stride, FLOAT, 0, 0, &t);
    return t;
}
static float drawn(uint64_t key, int64_t i) { return (float)(host_hash(key, (uint64_t)i) % 2001) / 1000 - 1; }

/* ---- a layer: y = x w' + b ---- */

enum { ROWS = 3, IN = 5, OUT = 4 };
static float x[ROWS * IN], w[OUT * IN + OUT], y[ROWS * OUT], dw[OUT * IN], dy[ROWS * OUT], dx[ROWS * IN];
static _Alignas(64) char work[1 << 16];

static const struct aoti_input x_in = {{AOTI_X, 0}, FLOAT, 2, {ROWS, IN}, {IN, 1}};
static const struct aoti_input w_in = {{AOTI_W, 0}, FLOAT, 2, {OUT, IN}, {IN, 1}};
static const struct aoti_input b_in = {{AOTI_W, 4 * OUT *IN}, FLOAT, 1, {OUT}, {1}};
static const struct aoti_input dy_in = {{AOTI_DY, 0}, FLOAT, 2, {ROWS, OUT}, {OUT, 1}};

static void fill(void) {
    for (int i = 0; i < ROWS * IN; i++)
        x[i] = drawn(1, i);
    for (int i = 0; i < OUT * IN + OUT; i++)
        w[i] = drawn(2, i);
    for (int i = 0; i < ROWS * OUT; i++)
        dy[i] = drawn(3, i);
    memset(work, 0xff, sizeof work);
}

static int forward(handle *in, handle *out) {
    const int64_t size[] = {IN, OUT}, stride[] = {1, IN};
    handle turned = NULL, scratch = empty(ROWS, OUT);
    aoti_torch__reinterpret_tensor(in[1], 2, size, stride, 0, &turned);
    aoti_torch_cpu_addmm_out(scratch, in[2], in[0], turned, 1, 1);
    out[0] = empty(ROWS, OUT);
    memcpy(floats(out[0]), floats(scratch), sizeof y);
    aoti_torch_delete_tensor_object(turned);
    aoti_torch_delete_tensor_object(scratch);
    return 0;
}
static const struct aoti_input forward_in[] = {x_in, w_in, b_in};
static const struct aoti_allocation forward_tape[] = {{{AOTI_WORK, 64}, sizeof y, 0}, {{AOTI_Y, 0}, sizeof y, 0}};
static const int32_t forward_out[] = {1};
static const struct aoti_graph layer = {.name = "layer_forward",
                                        .machine = "x86-64",
                                        .run = forward,
                                        .input = forward_in,
                                        .tape = forward_tape,
                                        .output = forward_out,
                                        .inputs = 3,
                                        .outputs = 1,
                                        .allocations = 2,
                                        .tensors = 6,
                                        .pool = 4096};

static const struct pianola_unit_call call = {.x = x, .y = y, .w = w, .work = work, .dy = dy, .dx = dx, .dw = dw};

Test(aoti, a_layer_gives_the_values_of_plain_loops) {
    fill();
    aoti_run(&layer, &call);
    for (int r = 0; r < ROWS; r++)
        for (int j = 0; j < OUT; j++) {
            float sum = w[OUT * IN + j];
            for (int k = 0; k < IN; k++)
                sum += x[r * IN + k] * w[j * IN + k];
            cr_assert_float_eq(y[r * OUT + j], sum, 1e-5, "%d %d: %g, not %g", r, j, (double)y[r * OUT + j],
                               (double)sum);
        }
}

static int weight(handle *in, handle *out) {
    const int64_t size[] = {OUT, ROWS}, stride[] = {1, OUT};
    handle turned = NULL;
    aoti_torch__reinterpret_tensor(in[1], 2, size, stride, 0, &turned);
    out[0] = empty(OUT, IN);
    aoti_torch_cpu_mm_out(out[0], turned, in[0]);
    aoti_torch_delete_tensor_object(turned);
    return 0;
}

/* spare: a place in work for gradients that are added afterwards, or -1 for products that are added in place. */
static void check_gradients(int64_t spare) {
    const struct aoti_input in[] = {x_in, dy_in};
    const struct aoti_allocation tape[] = {{{AOTI_DW, 0}, sizeof dw, spare}};
    const int32_t out[] = {0};
    const struct aoti_graph graph = {.name = "layer_weight",
                                     .machine = "x86-64",
                                     .run = weight,
                                     .input = in,
                                     .tape = tape,
                                     .output = out,
                                     .inputs = 2,
                                     .outputs = 1,
                                     .allocations = 1,
                                     .tensors = 4,
                                     .pool = 1024};
    struct pianola_unit_call more = call;
    float once[OUT * IN];
    fill();
    memset(dw, 0xff, sizeof dw);
    aoti_run(&graph, &more);
    memcpy(once, dw, sizeof dw);
    more.add = true;
    aoti_run(&graph, &more);
    for (int i = 0; i < 256; i++)
        cr_assert_eq(work[i], (char)0xff);
    for (int i = 0; i < OUT * IN; i++) {
        float sum = 0, is = 0;
        for (int r = 0; r < ROWS; r++)
            sum += dy[r * OUT + i / IN] * x[r * IN + i % IN];
        cr_assert_float_eq(once[i], sum, 1e-5);
        cr_assert_eq(dw[i], once[i] + once[i]);
        memcpy(&is, work + 256 + 4 * i, 4);
        cr_assert(spare < 0 ? is != is : is == once[i]); /* NaN: nothing was written there */
    }
}

Test(aoti, gradients_are_written_or_added) {
    check_gradients(256);
    check_gradients(-1);
}

static int pass_on(handle *in, handle *out) {
    aoti_torch_clone(in[0], &out[0]);
    return 0;
}

Test(aoti, a_call_without_dx_writes_it_in_work) {
    const struct aoti_allocation tape[] = {{{AOTI_DX, 0}, sizeof x, 128}};
    const int32_t out[] = {0};
    const struct aoti_graph graph = {.name = "layer_input",
                                     .machine = "x86-64",
                                     .run = pass_on,
                                     .input = &x_in,
                                     .tape = tape,
                                     .output = out,
                                     .inputs = 1,
                                     .outputs = 1,
                                     .allocations = 1,
                                     .tensors = 2,
                                     .pool = 1024};
    struct pianola_unit_call without = call;
    fill();
    aoti_run(&graph, &call);
    cr_assert_arr_eq(dx, x, sizeof x);
    without.dx = NULL;
    memset(work, 0, 1024);
    aoti_run(&graph, &without);
    cr_assert_arr_eq(work + 128, x, sizeof x);
}

/* ---- differences from the tape, and what is not supported ---- */

/* Runs a graph in another process, which must end with an error that contains `must`. */
static void refused(const struct aoti_graph *graph, const char *must) {
    char text[1024] = "";
    int ends[2], status = 0;
    cr_assert_eq(pipe(ends), 0);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(ends[1], 2);
        aoti_run(graph, &call);
        _exit(0);
    }
    close(ends[1]);
    for (ssize_t n = 0, at = 0; (n = read(ends[0], text + at, sizeof text - 1 - (size_t)at)) > 0; at += n)
        text[at + n] = 0;
    close(ends[0]);
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 2, "exit %d, after: %s", status, text);
    cr_assert_not_null(strstr(text, must), "no '%s' in: %s", must, text);
    cr_assert_not_null(strstr(text, graph->name), "no name in: %s", text);
}

Test(aoti, each_difference_from_the_tape_is_an_error) {
    struct aoti_graph other = layer;
    const struct aoti_allocation smaller[] = {{{AOTI_WORK, 64}, 44, 0}, {{AOTI_Y, 0}, sizeof y, 0}};
    const int32_t elsewhere[] = {0};
    fill();
    other.tape = smaller;
    refused(&other, "allocation 0 is 48 bytes, and was 44 when the model was exported; export it again");
    other = layer;
    other.allocations = 1;
    refused(&other, "allocation 1 is 48 bytes, and was 0");
    other.allocations = 3;
    refused(&other, "it made 2 allocations, and 3 when");
    other = layer;
    other.tensors = 5;
    refused(&other, "it makes more tensors than when it was exported");
    other = layer;
    other.output = elsewhere;
    refused(&other, "output 0 is not where it was");
    other = layer;
    other.random = 4096;
    other.randoms = 1;
    refused(&other, "it draws random numbers, but this call has no seed, because validation drops nothing");
    other = layer;
    other.machine = "x86-64-v9";
    refused(&other, "compiled for x86-64-v9 processors, and this one lacks their instructions");
}

static int fails(handle *in, handle *out) { return in != out; }
static int is_checked(handle *in, handle *out) {
    aoti_torch_check(true, "f", "a.cpp", 1, "good");
    aoti_torch_check(in == out, "f", "a.cpp", 7, "bad");
    return 0;
}
static int has_nine_dimensions(handle *in, handle *out) {
    const int64_t ones[] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
    return aoti_torch__reinterpret_tensor(in[0], 9, ones, ones, 0, out);
}
static int looks_beyond(handle *in, handle *out) {
    const int64_t size[] = {ROWS, IN}, stride[] = {IN, 1};
    return aoti_torch__reinterpret_tensor(in[0], 2, size, stride, 1, out);
}
static int looks_before(handle *in, handle *out) {
    const int64_t size[] = {1}, stride[] = {1};
    return aoti_torch__reinterpret_tensor(in[0], 1, size, stride, -1, out);
}
static int has_another_dtype(handle *in, handle *out) {
    const int64_t size[] = {1}, stride[] = {1};
    (void)in;
    return aoti_torch_empty_strided(1, size, stride, 40, 0, 0, out);
}
static int multiplies_halves(handle *in, handle *out) {
    const int64_t size[] = {1, 1}, stride[] = {1, 1};
    aoti_torch_empty_strided(2, size, stride, BFLOAT, 0, 0, out);
    return aoti_torch_cpu_mm_out(out[0], in[0], in[0]);
}
static int multiplies_unlike(handle *in, handle *out) {
    return aoti_torch_cpu_mm_out(in[0], in[0], in[1]) + (out == NULL);
}
static int adds_unlike(handle *in, handle *out) {
    const int64_t size[] = {IN, OUT, ROWS, OUT}, stride[] = {1, IN, IN, 1};
    handle turned = NULL, part = NULL;
    aoti_torch__reinterpret_tensor(in[1], 2, size, stride, 0, &turned);
    aoti_torch__reinterpret_tensor(in[0], 2, size + 2, stride + 2, 0, &part);
    return aoti_torch_cpu_addmm_out(part, in[0], in[0], turned, 1, 1) + (out == NULL);
}
static int has_no_end(handle *in, handle *out) {
    const int64_t size[] = {INT64_MAX / 2, 2, 3}, stride[] = {0, 0, 0};
    return aoti_torch__reinterpret_tensor(in[0], 3, size, stride, 0, out);
}
static int goes_back(handle *in, handle *out) {
    const int64_t size[] = {ROWS}, stride[] = {-1};
    return aoti_torch__reinterpret_tensor(in[0], 1, size, stride, ROWS, out);
}
static int asks_for_more(handle *in, handle *out) {
    int64_t size;
    return aoti_torch_get_size(in[0], 2, &size) + (out == NULL);
}
static int deletes_twice(handle *in, handle *out) {
    aoti_torch_new_tensor_handle(in[0], out);
    aoti_torch_delete_tensor_object(out[0]);
    return aoti_torch_delete_tensor_object(out[0]);
}
static int copies_unlike(handle *in, handle *out) {
    const int64_t size[] = {1}, stride[] = {1};
    aoti_torch_empty_strided(1, size, stride, BFLOAT, 0, 0, out);
    return aoti_torch_copy_(out[0], in[0], 0);
}
static int drops_attention(handle *in, handle *out) {
    const int64_t size[] = {1, 1, ROWS, IN}, stride[] = {ROWS * IN, ROWS * IN, IN, 1};
    handle x = NULL;
    aoti_torch__reinterpret_tensor(in[0], 4, size, stride, 0, &x);
    return aoti_torch_cpu__scaled_dot_product_flash_attention_for_cpu(x, x, x, 0.1, 0, NULL, NULL, out, out + 1);
}

Test(aoti, what_is_not_supported_is_an_error) {
    const struct {
        aoti_function *run;
        const char *must;
    } cases[] = {{fails, "it failed"},
                 {is_checked, "f, line 7 of its code: bad"},
                 {has_nine_dimensions, "a tensor of 9 dimensions; at most 8"},
                 {looks_beyond, "a view beyond the end of a tensor of 60 bytes"},
                 {looks_before, "a view beyond the end of a tensor of 60 bytes"},
                 {has_another_dtype, "dtype number 40, which is not supported"},
                 {multiplies_halves, "tensors that are not fp32 matrices"},
                 {multiplies_unlike, "matrices whose sizes do not fit"},
                 {adds_unlike, "cannot be broadcast"},
                 {has_no_end, "a negative size or stride, or a too large one"},
                 {goes_back, "a negative size or stride, or a too large one"},
                 {asks_for_more, "asks for dimension 2 of a tensor that has 2"},
                 {deletes_twice, "a tensor that it has not made, or has deleted"},
                 {copies_unlike, "copies between dtypes"},
                 {drops_attention, "attention with dropout"}};
    const struct aoti_allocation any[] = {{{AOTI_WORK, 0}, 2, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct aoti_graph graph = layer;
        graph.run = cases[i].run;
        graph.tape = any;
        fill();
        refused(&graph, cases[i].must);
    }
    cr_assert_not(aoti_torch_grad_mode_is_enabled());
    aoti_torch_grad_mode_set_enabled(true);
    cr_assert_not(aoti_torch_grad_mode_is_enabled());
    cr_assert_str_eq(aoti_torch_exception_get_what_without_backtrace(), "it failed");
}

/* ---- products in every layout ---- */

/* A matrix in an operand, drawn from a key. layout: by rows, by columns, or neither. */
static handle matrix(handle base, int64_t rows, int64_t columns, int layout, int64_t batches, uint64_t key) {
    const int64_t down = layout == 0   ? columns
                         : layout == 1 ? 1
                                       : 2 * columns + 1,
                  right = layout == 0   ? 1
                          : layout == 1 ? rows
                                        : 2;
    const int64_t size[] = {batches, rows, columns}, stride[] = {128, down, right};
    handle t = NULL;
    aoti_torch__reinterpret_tensor(base, batches > 1 ? 3 : 2, size + (batches == 1), stride + (batches == 1),
                                   (int64_t)key * 512, &t);
    for (int64_t i = 0; i < 128 * batches; i++)
        floats(t)[i] = drawn(key, i);
    return t;
}

static double at(handle t, int64_t batch, int64_t i, int64_t j) {
    int64_t dims = 0, *stride = NULL;
    aoti_torch_get_dim(t, &dims);
    aoti_torch_get_strides(t, &stride);
    return (double)floats(t)[(dims == 3 ? batch * stride[0] : 0) + i * stride[dims - 2] + j * stride[dims - 1]];
}

/* One product: its sizes, layouts and number of batches. adds: nothing, a matrix, or a row; then with factors. */
static void check_product(handle base, const int64_t n[3], const int layout[3], int64_t batches, int adds) {
    const double beta = adds == 3 ? 0.25 : adds == 4 ? 0 : 1, alpha = adds == 3 ? 2 : adds == 4 ? 0.5 : 1;
    handle c = matrix(base, n[0], n[1], layout[0], batches, 0), a = matrix(base, n[0], n[2], layout[1], batches, 1),
           b = matrix(base, n[2], n[1], layout[2], batches, 2),
           plus = matrix(base, adds == 2 ? 1 : n[0], n[1], 0, batches, 3);
    if (adds)
        (batches > 1 ? aoti_torch_cpu_baddbmm_out : aoti_torch_cpu_addmm_out)(c, plus, a, b, beta, alpha);
    else
        (batches > 1 ? aoti_torch_cpu_bmm_out : aoti_torch_cpu_mm_out)(c, a, b);
    for (int64_t q = 0; q < batches; q++)
        for (int64_t i = 0; i < n[0]; i++)
            for (int64_t j = 0; j < n[1]; j++) {
                double sum = adds ? beta * at(plus, q, adds == 2 ? 0 : i, j) : 0;
                for (int64_t k = 0; k < n[2]; k++)
                    sum += alpha * at(a, q, i, k) * at(b, q, k, j);
                cr_assert_float_eq(at(c, q, i, j), sum, 1e-5, "%lld x %lld x %lld, layouts %d %d %d, adds %d",
                                   (long long)n[0], (long long)n[1], (long long)n[2], layout[0], layout[1], layout[2],
                                   adds);
            }
    handle all[] = {c, a, b, plus};
    for (int i = 0; i < 4; i++)
        aoti_torch_delete_tensor_object(all[i]);
}

static int products(handle *in, handle *out) {
    static const int64_t sizes[] = {1, 2, 5};
    (void)out;
    for (int i = 0; i < 27 * 27 * 10; i++) {
        const int64_t n[] = {sizes[i % 3], sizes[i / 3 % 3], sizes[i / 9 % 3]};
        const int layout[] = {i / 27 % 3, i / 81 % 3, i / 243 % 3};
        const int adds = i / 729 % 5;
        if (adds != 2 || layout[0] == 0)
            check_product(in[0], n, layout, i >= 27 * 27 * 5 ? 3 : 1, adds);
    }
    return 0;
}

Test(aoti, products_in_every_layout) {
    static float memory[4 * 512];
    const struct aoti_input in = {{AOTI_X, 0}, FLOAT, 1, {4 * 512}, {1}};
    const struct aoti_graph graph = {
        .name = "products", .machine = "x86-64", .run = products, .input = &in, .inputs = 1, .tensors = 5};
    const struct pianola_unit_call c = {.x = memory, .work = work};
    aoti_run(&graph, &c);
}

static int adds_to_itself(handle *in, handle *out) {
    out[0] = empty(2, 2);
    memcpy(floats(out[0]), floats(in[0]), 16);
    return aoti_torch_cpu_addmm_out(out[0], out[0], in[0], in[0], 3, 2);
}

Test(aoti, a_product_is_added_to_what_it_replaces) {
    static float square[] = {1, 2, 3, 4}, got[4];
    const float must[] = {2 * 7 + 3 * 1, 2 * 10 + 3 * 2, 2 * 15 + 3 * 3, 2 * 22 + 3 * 4};
    const struct aoti_input in = {{AOTI_X, 0}, FLOAT, 2, {2, 2}, {2, 1}};
    const struct aoti_allocation tape[] = {{{AOTI_Y, 0}, 16, 0}, {{AOTI_WORK, 0}, 16, 0}};
    const int32_t out = 0;
    const struct aoti_graph graph = {.name = "adds",
                                     .machine = "x86-64",
                                     .run = adds_to_itself,
                                     .input = &in,
                                     .tape = tape,
                                     .output = &out,
                                     .inputs = 1,
                                     .outputs = 1,
                                     .allocations = 2,
                                     .tensors = 3,
                                     .pool = 64};
    const struct pianola_unit_call c = {.x = square, .y = got, .work = work};
    aoti_run(&graph, &c);
    cr_assert_arr_eq(got, must, sizeof must);
}

/* ---- random numbers, and frozen parameters ---- */

static int passes_both(handle *in, handle *out) {
    aoti_torch_clone(in[0], &out[0]);
    aoti_torch_clone(in[1], &out[1]);
    return 0;
}

Test(aoti, random_numbers_depend_on_the_seed_alone) {
    enum { NUMBERS = 1000 };
    static float drawn_numbers[3][NUMBERS], weights[] = {5, 6};
    const uint64_t seeds[] = {7, 7, 8};
    const struct aoti_input in[] = {{{AOTI_WORK, 4096}, FLOAT, 1, {NUMBERS}, {1}},
                                    {{AOTI_FROZEN, 4}, FLOAT, 1, {1}, {1}}};
    const struct aoti_allocation tape[] = {{{AOTI_Y, 0}, 4 * NUMBERS, 0}, {{AOTI_STASH, 0}, 4, 0}};
    const int32_t out[] = {0, 1};
    const struct aoti_graph graph = {.name = "draws",
                                     .machine = "x86-64",
                                     .run = passes_both,
                                     .input = in,
                                     .tape = tape,
                                     .output = out,
                                     .inputs = 2,
                                     .outputs = 2,
                                     .allocations = 2,
                                     .tensors = 4,
                                     .random = 4096,
                                     .randoms = NUMBERS};
    float kept = 0;
    double sum = 0;
    for (int k = 0; k < 3; k++) {
        const struct pianola_unit_call c = {
            .y = drawn_numbers[k], .stash = &kept, .work = work, .frozen = weights, .seed = &seeds[k]};
        memset(work, 0xff, sizeof work);
        aoti_run(&graph, &c);
        cr_assert_eq(kept, 6);
    }
    for (int i = 0; i < NUMBERS; i++) {
        cr_assert(drawn_numbers[0][i] >= 0 && drawn_numbers[0][i] < 1);
        sum += (double)drawn_numbers[0][i];
    }
    cr_assert(sum > 0.45 * NUMBERS && sum < 0.55 * NUMBERS, "mean %g", sum / NUMBERS);
    cr_assert_arr_eq(drawn_numbers[0], drawn_numbers[1], sizeof *drawn_numbers);
    cr_assert_neq(memcmp(drawn_numbers[0], drawn_numbers[2], sizeof *drawn_numbers), 0);
}

/* ---- tensors: random operations against a list of what should be there ---- */

enum { MOST = 24, STEPS = 20000 };
static struct known {
    handle t;
    int64_t offset, size[3], stride[3], storage; /* offset and sizes in floats; storage: floats */
    int dims;
} known[MOST];

static void check_known(const struct known *k, const float *base) {
    int64_t n = 0, value = 0, *list = NULL, all = 1;
    int32_t number = 0;
    cr_assert_eq(floats(k->t), base + k->offset);
    aoti_torch_get_dim(k->t, &n);
    cr_assert_eq(n, k->dims);
    for (int d = 0; d < k->dims; d++) {
        aoti_torch_get_size(k->t, d, &value);
        aoti_torch_get_sizes(k->t, &list);
        cr_assert(value == k->size[d] && list[d] == k->size[d]);
        aoti_torch_get_stride(k->t, d, &value);
        aoti_torch_get_strides(k->t, &list);
        cr_assert(value == k->stride[d] && list[d] == k->stride[d]);
        all *= k->size[d];
    }
    aoti_torch_get_numel(k->t, &value);
    cr_assert_eq(value, all);
    aoti_torch_get_storage_offset(k->t, &value);
    cr_assert_eq(value, k->offset);
    aoti_torch_get_storage_size(k->t, &value);
    cr_assert_eq(value, 4 * k->storage);
    aoti_torch_get_dtype(k->t, &number);
    cr_assert_eq(number, FLOAT);
    aoti_torch_get_device_type(k->t, &number);
    cr_assert_eq(number, 0);
    aoti_torch_get_device_index(k->t, &number);
    cr_assert_eq(number, 0);
}

static int random_views(handle *in, handle *out) {
    int n = 0;
    known[n++] = (struct known){in[0], 0, {1000}, {1}, 1000, 1};
    (void)out;
    for (uint64_t step = 0; step < STEPS; step++) {
        const uint64_t what = host_hash(step, 0);
        struct known *k = &known[host_hash(step, 1) % (uint64_t)n];
        if (n == MOST || (what % 3 == 0 && n > 1)) {
            aoti_torch_delete_tensor_object(k->t);
            *k = known[--n];
            continue;
        }
        struct known new = *k;
        if (what % 3 == 1)
            aoti_torch_new_tensor_handle(k->t, &new.t);
        else {
            const int64_t room = 1000 - k->offset;
            new.dims = 1 + (int)(what / 3 % 3);
            new.offset = k->offset + (int64_t)(what / 9 % (uint64_t)room);
            int64_t left = 1000 - new.offset;
            for (int d = 0; d < new.dims; d++) { /* strides so that the last element is at most the storage's */
                new.size[d] = 1 + (int64_t)(host_hash(step, 2 + (uint64_t)d) % 6);
                new.stride[d] = new.size[d] > 1 ? left / 4 / (new.size[d] - 1) : 1;
                left -= (new.size[d] - 1) * new.stride[d];
            }
            aoti_torch__reinterpret_tensor(k->t, new.dims, new.size, new.stride, new.offset - k->offset, &new.t);
        }
        known[n++] = new;
        for (int i = 0; i < n; i++)
            check_known(&known[i], (const float *)(const void *)(work + 32768));
    }
    while (n > 0)
        aoti_torch_delete_tensor_object(known[--n].t);
    return 0;
}

Test(aoti, views_of_views_in_any_order_of_deletion) {
    const struct aoti_input in = {{AOTI_WORK, 32768}, FLOAT, 1, {1000}, {1}};
    const struct aoti_graph graph = {
        .name = "views", .machine = "x86-64", .run = random_views, .input = &in, .inputs = 1, .tensors = MOST + 1};
    aoti_run(&graph, &call);
}
