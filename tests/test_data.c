#include "handmade.h"
#include <criterion/criterion.h>
#include <math.h>
#include <unistd.h>

/* A file of n bytes: i * 7 % 251 at i, so that a byte says where it came from, and its follower is known. */
static char *file_of(int n) {
    static char path[] = "/tmp/pianola-test-data-XXXXXX";
    int fd = mkstemp(path);
    cr_assert(fd >= 0);
    for (int i = 0; i < n; i++)
        cr_assert_eq(write(fd, &(unsigned char){(unsigned char)(i * 7 % 251)}, 1), 1);
    close(fd);
    return path;
}

static struct rt_model text_model(int rows, int context) {
    return (struct rt_model){.input = INPUT_TOKENS, .rows = rows, .context = context, .vocab = 256, .batches = 2};
}

static struct data *opened(const struct rt_model *m, const char *path, uint64_t seed) {
    char why[300] = "";
    struct data *d = data_open(m, path, seed, why, sizeof why);
    cr_assert(d, "%s", why);
    return d;
}

Test(data, targets_are_the_next_bytes) {
    struct rt_model m = text_model(24, 8);
    char *path = file_of(200);
    struct data *d = opened(&m, path, 3);
    unlink(path);
    struct rt_batch b;
    data_batch(d, 5, 1, fresh((int64_t)data_bytes(&m)), &b);
    for (int r = 0; r < 24; r++) {
        cr_assert_eq(b.target[r], (b.token[r] + 7) % 251);
        cr_assert(r % 8 == 7 || b.token[r + 1] == b.target[r], "a sequence is contiguous");
    }
    cr_assert(b.token[8] != b.token[0] || b.token[16] != b.token[0], "sequences from different places");
    cr_assert(!b.x && !b.y);
    data_close(d);
}

Test(data, shortest_file_has_one_place_to_start) {
    struct rt_model m = text_model(16, 8);
    char *path = file_of(9);
    struct data *d = opened(&m, path, 3);
    struct rt_batch b;
    data_batch(d, 1, 0, fresh((int64_t)data_bytes(&m)), &b);
    cr_assert(b.token[0] == 0 && b.token[8] == 0 && b.target[15] == 8 * 7 % 251);
    data_close(d);
    unlink(path);
}

Test(data, every_place_is_chosen_some_time) { /* 12 bytes and a context of 8: places 0 to 3 */
    struct rt_model m = text_model(8, 8);
    char *path = file_of(12);
    struct data *d = opened(&m, path, 3);
    int seen[4] = {0};
    struct rt_batch b;
    void *memory = fresh((int64_t)data_bytes(&m));
    for (int step = 0; step < 100; step++) {
        data_batch(d, step, 0, memory, &b);
        cr_assert(b.token[0] % 7 == 0 && b.token[0] / 7 < 4);
        seen[b.token[0] / 7]++;
    }
    for (int i = 0; i < 4; i++)
        cr_assert_gt(seen[i], 10);
    data_close(d);
    unlink(path);
}

/* Bytes of a microbatch as data of its own opening gives it. */
static void *bytes_of(const struct rt_model *m, const char *path, uint64_t seed, int64_t step, int b) {
    struct data *d = opened(m, path, seed);
    void *memory = fresh((int64_t)data_bytes(m));
    struct rt_batch batch;
    data_batch(d, step, b, memory, &batch);
    data_close(d);
    return memory;
}

static void depends_on_seed_step_and_batch(const struct rt_model *m, const char *path) {
    size_t n = data_bytes(m);
    void *a = bytes_of(m, path, 1, 1, 0);
    cr_assert(memcmp(a, bytes_of(m, path, 1, 1, 0), n) == 0);
    cr_assert(memcmp(a, bytes_of(m, path, 2, 1, 0), n) != 0);
    cr_assert(memcmp(a, bytes_of(m, path, 1, 2, 0), n) != 0);
    cr_assert(memcmp(a, bytes_of(m, path, 1, 1, 1), n) != 0);
}

Test(data, same_seed_step_and_batch_same_bytes) {
    struct rt_model text = text_model(64, 8);
    char *path = file_of(240);
    depends_on_seed_step_and_batch(&text, path);
    unlink(path);
    struct rt_model integers = {.input = INPUT_INTEGERS, .rows = 6, .features = 12, .batches = 4};
    depends_on_seed_step_and_batch(&integers, NULL);
}

Test(data, integers_hit_no_column_more_than_twice) {
    struct rt_model m = {.input = INPUT_INTEGERS, .rows = 6, .features = 12, .batches = 4};
    struct data *d = opened(&m, NULL, 1);
    void *memory = fresh((int64_t)data_bytes(&m));
    int hits[12] = {0};
    for (int b = 0; b < 4; b++) {
        struct rt_batch batch;
        data_batch(d, 9, b, memory, &batch);
        for (int r = 0; r < 6; r++) {
            int in_row = 0;
            for (int c = 0; c < 12; c++) {
                float x = batch.x[r * 12 + c], y = batch.y[r * 12 + c];
                cr_assert((x == 0) == (y == 0) && x >= 0 && x <= 3 && x == floorf(x) && y >= 0 && y <= 3);
                in_row += x != 0;
                hits[c] += x != 0;
            }
            cr_assert_eq(in_row, 1);
        }
    }
    for (int c = 0; c < 12; c++)
        cr_assert_eq(hits[c], 2);
    data_close(d);
}

/* ---- what integers are for: sums in any order, in any parts, have the same bits ---- */

enum { STEPS = 3, BATCHES = 8, LINEARS = 8 };

static struct model *paths(int features, int rows) {
    struct model *m = model_integers(rows, features, BATCHES);
    m->rt.lr = 0.015625f;
    for (int i = 0; i < LINEARS; i++) {
        add(m, LAYER_linear, features);
        if (i < LINEARS - 1)
            add(m, LAYER_relu, 0);
    }
    add(m, LAYER_mse, 0);
    return m;
}

/* Trains and returns the weights. The first `part` microbatches of the order are summed on their own. */
static float *train(struct model *m, const int *order, int part, float *losses) {
    struct stage *st = cost_stages(spec_of(m, 1));
    struct data *d = opened(&m->rt, NULL, 11);
    struct rt_batch batch;
    struct bench r = bench_of(st, 1, &batch);
    void *memory = fresh((int64_t)data_bytes(&m->rt));
    float *sum[2] = {r.at->dw, fresh(st->rt.weight)};
    r.at->loss = &r.loss;
    host_init(&m->rt, &st->rt, r.at->w, 11);
    for (int step = 1; step <= STEPS; step++) {
        losses[step - 1] = 0;
        for (int i = 0; i < BATCHES; i++) {
            data_batch(d, step, order[i], memory, &batch);
            host_forward(&m->rt, &st->rt, r.at);
            losses[step - 1] += r.loss / BATCHES;
            r.at->first = i == 0 || i == part;
            r.at->dw = sum[i >= part];
            host_backward(&m->rt, &st->rt, r.at, true, true);
        }
        if (part < BATCHES)
            host_add(sum[0], sum[1], st->rt.weight / 4, false);
        host_update(&m->rt, &st->rt, r.at->w, sum[0], NULL, step);
    }
    data_close(d);
    return r.at->w;
}

Test(data, integers_train_to_the_same_bits_in_any_order) {
    static const int orders[][BATCHES] = {{0, 1, 2, 3, 4, 5, 6, 7}, {7, 6, 5, 4, 3, 2, 1, 0}, {3, 5, 0, 7, 1, 6, 2, 4}};
    struct model *m = paths(16, 4); /* every column twice a step */
    size_t n = 4 * 16 * 16 * LINEARS;
    float loss[STEPS], *start = fresh((int64_t)n), *want = train(m, orders[0], BATCHES, loss);
    struct stage *st = cost_stages(spec_of(m, 1));
    cr_assert_eq((size_t)st->rt.weight, n, "no bias");
    host_init(&m->rt, &st->rt, start, 11);
    cr_assert(memcmp(start, want, n) != 0);
    for (size_t i = 0; i < n / 4; i++)
        cr_assert(isfinite(want[i]) && (want[i] == 0 || i % (16 * 16) % 17 == 0), "off the diagonal all stays zero");
    for (int o = 0; o < 3; o++)
        for (int part = 1; part <= BATCHES; part++)
            cr_assert(memcmp(want, train(m, orders[o], part, loss), n) == 0, "order %d, part of %d", o, part);
    cr_assert(isfinite(loss[2]) && loss[2] < loss[0], "losses %g %g %g", (double)loss[0], (double)loss[1],
              (double)loss[2]);
}

/* ---- errors ---- */

static const char *error_of(const struct rt_model *m, const char *path) {
    static char why[300];
    why[0] = 0;
    cr_assert_null(data_open(m, path, 1, why, sizeof why));
    return why;
}

Test(data, errors) {
    struct rt_model m = text_model(16, 16);
    cr_assert_str_eq(error_of(&m, NULL), "the model reads text: name a file of it");
    cr_assert_str_eq(error_of(&m, "/nowhere/text"), "/nowhere/text: No such file or directory");
    cr_assert_str_eq(error_of(&m, "/"), "/: is not a regular file");
    char *path = file_of(16);
    cr_assert(strstr(error_of(&m, path), ": has 16 bytes, but a sequence takes 17 (context = 16, and the byte after"));
    m.context = 8;
    m.vocab = 50;
    cr_assert(strstr(error_of(&m, path), ": byte 8 is 56, but vocab = 50; use vocab = 256, or other text"));
    unlink(path);
    struct rt_model integers = {.input = INPUT_INTEGERS, .rows = 5, .features = 7, .batches = 3};
    cr_assert_str_eq(error_of(&integers, NULL),
                     "integers with features = 7, rows = 5 and batches = 3: sums are exact in any order only while 2 x "
                     "features >= rows x batches; use at least 8 features");
    integers.features = 8;
    data_close(opened(&integers, NULL, 1));
}
