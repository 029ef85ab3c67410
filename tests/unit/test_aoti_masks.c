/* aoti_attention.c's forward under masks, against plain loops in double precision. A mask may hide keys by -infinity or
 * by the least float, from the end of a block of queries or anywhere, and even all keys of a row. */
#include "store/hash.h"
#include "units/aoti.h"
#include <criterion/criterion.h>
#include <float.h>
#include <math.h>

typedef struct aoti_tensor *handle;
int32_t aoti_torch__reinterpret_tensor(handle, int64_t, const int64_t *, const int64_t *, int64_t, handle *);
int32_t aoti_torch_cpu__scaled_dot_product_flash_attention_for_cpu(handle, handle, handle, double, int32_t, handle *,
                                                                   double *, handle *, handle *);

enum { FLOAT = 6, HEADS = 2, ROWS = 150, KEYS = 150, COLUMNS = 4, VALUES = HEADS * ROWS * COLUMNS };
static float operand[3 * VALUES], mask[ROWS * 2 * KEYS], y[VALUES];
static _Alignas(64) char work[1 << 20];
static int64_t step; /* floats from a key's place in the mask to the next */

static int attends(handle *in, handle *out) {
    const int64_t size[] = {1, HEADS, ROWS, COLUMNS}, stride[] = {VALUES, ROWS * COLUMNS, COLUMNS, 1};
    const int64_t shown[] = {1, 1, ROWS, KEYS}, down[] = {ROWS * 2 * KEYS, 0, 2 * KEYS, step};
    handle part[3], seen;
    for (int i = 0; i < 3; i++)
        aoti_torch__reinterpret_tensor(in[0], 4, size, stride, i * VALUES, &part[i]);
    aoti_torch__reinterpret_tensor(in[1], 4, shown, down, 0, &seen);
    return aoti_torch_cpu__scaled_dot_product_flash_attention_for_cpu(part[0], part[1], part[2], 0, 0, &seen, NULL, out,
                                                                      out + 1);
}

static void check_row(int h, int r) {
    const float *q = operand + (h * ROWS + r) * COLUMNS, *k = operand + VALUES + h * KEYS * COLUMNS, *v = k + VALUES;
    double p[KEYS], sum = 0, top = -INFINITY;
    for (int j = 0; j < KEYS; j++) {
        p[j] = 0;
        for (int c = 0; c < COLUMNS; c++)
            p[j] += (double)q[c] * (double)k[j * COLUMNS + c] / sqrt(COLUMNS);
        p[j] = (double)((float)p[j] + mask[r * 2 * KEYS + j * step]); /* the least float swallows the rest */
        top = fmax(top, p[j]);
    }
    for (int j = 0; j < KEYS; j++)
        sum += p[j] = top > -INFINITY ? exp(p[j] - top) : 0;
    for (int c = 0; c < COLUMNS; c++) {
        double wanted = 0;
        for (int j = 0; j < KEYS; j++)
            wanted += sum > 0 ? p[j] / sum * (double)v[j * COLUMNS + c] : 0;
        cr_assert_float_eq((double)y[(h * ROWS + r) * COLUMNS + c], wanted, 1e-5,
                           "head %d, row %d, column %d: %g, not %g", h, r, c, (double)y[(h * ROWS + r) * COLUMNS + c],
                           wanted);
    }
}

/* Returns whether mask `how` hides key j from row r. Mask 0 hides later keys, 1 also keys far before the row, 2 every
 * third key, 3 later keys and all keys of some rows. */
static bool hides(int how, int r, int j) {
    switch (how) {
    case 0: return j > r;
    case 1: return j > r || j < r - 20;
    case 2: return j % 3 == 0;
    default: return j > r || r % 50 == 7;
    }
}

static void check_mask(int how, float hidden) {
    const struct aoti_input in[] = {{{AOTI_X, 0}, FLOAT, 1, {3 * VALUES}, {1}},
                                    {{AOTI_FROZEN, 0}, FLOAT, 1, {ROWS * 2 * KEYS}, {1}}};
    const struct aoti_allocation tape[] = {
        {{AOTI_Y, 0}, sizeof y, 0}, {{AOTI_WORK, 0}, 4 * HEADS * ROWS, 0}, {{AOTI_WORK, 1 << 16}, 4 * 64 * KEYS, 0}};
    const int32_t out[] = {0, 1};
    const struct aoti_graph graph = {.name = "attends",
                                     .machine = "x86-64",
                                     .run = attends,
                                     .input = in,
                                     .tape = tape,
                                     .output = out,
                                     .inputs = 2,
                                     .outputs = 2,
                                     .allocations = 3,
                                     .tensors = 9,
                                     .pool = 1 << 18};
    const struct pianola_unit_call call = {.x = operand, .frozen = mask, .y = y, .work = work};
    for (int r = 0; r < ROWS; r++)
        for (int j = 0; j < KEYS; j++)
            mask[r * 2 * KEYS + j * step] = hides(how, r, j) ? hidden : (float)(j % 5) / 4;
    aoti_run(&graph, &call);
    for (int h = 0; h < HEADS; h++)
        for (int r = 0; r < ROWS; r++)
            check_row(h, r);
}

Test(aoti_masks, hide_keys_of_rows) {
    for (int i = 0; i < 3 * VALUES; i++)
        operand[i] = (float)(host_hash(1, (uint64_t)i) % 2001) / 1000 - 1;
    for (step = 1; step <= 2; step++)
        for (int how = 0; how < 4; how++) {
            check_mask(how, -INFINITY);
            check_mask(how, -FLT_MAX);
        }
}
