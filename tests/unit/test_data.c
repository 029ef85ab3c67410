#include "handmade.h"
#include "text_file.h"
#include "random_spec.h"
#include "base/read_file.h"
#include "passes/runtime_program.h"
#include "process/train.h"
#include <fcntl.h>
#include <math.h>
#include <sys/stat.h>

/* Writes a file of n bytes with i * 7 % 251 at i, so that a byte shows its place and determines the next. */
static char *file_of(int n) {
    unsigned char *text = NEW(unsigned char, n);
    for (int i = 0; i < n; i++)
        text[i] = (unsigned char)(i * 7 % 251);
    return text_file(text, (size_t)n);
}

static struct rt_model text_model(int rows, int context) {
    return (struct rt_model){.input = INPUT_TOKENS, .rows = rows, .context = context, .vocab = 256, .batches = 2};
}

static struct data *opened(const struct rt_model *m, const char *path, uint64_t seed) {
    char why[300] = "";
    struct data *d = data_open(m, path ? (const char *const[]){path, NULL} : NULL, seed, why, sizeof why);
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
    cr_assert(b.token[8] != b.token[0] && b.token[16] != b.token[0] && b.token[16] != b.token[8], "of one epoch");
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

/* ---- the shuffle ---- */

/* Writes a file of n sequences of 4 bytes, each its number, and 1 to 4 `more` bytes, too few for another. */
static char *numbered(int n, int more) {
    unsigned char *text = NEW(unsigned char, 4 * n + 4);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < 3; k++)
            text[4 * i + k] = (unsigned char)(i >> 8 * k);
    return text_file(text, (size_t)(4 * n + more));
}

/* Returns samples first .. first + n - 1, as the data gives them to a model with several sequences a microbatch. */
static int *samples(const struct rt_model *m, const struct data *d, int first, int n) {
    int each = m->rows / 4, *order = NEW(int, n);
    void *memory = fresh((int64_t)data_bytes(m));
    for (int i = 0; i < n; i++) {
        int batch = (first + i) / each;
        struct rt_batch b;
        if (i == 0 || (first + i) % each == 0)
            data_batch(d, batch / m->batches, batch % m->batches, memory, &b);
        const int32_t *t = b.token + (first + i) % each * 4;
        order[i] = t[0] | t[1] << 8 | t[2] << 16;
    }
    return order;
}

static const char *error_of(const struct rt_model *m, const char *path);
static bool same_order(const int *a, const int *b, int n) { return memcmp(a, b, sizeof *a * (size_t)n) == 0; }

Test(data, every_sequence_once_an_epoch) {
    static const int sizes[] = {1, 2, 3, 4, 5, 7, 15, 16, 17, 63, 64, 65, 255, 256, 257, 1000, 4096, 4097, 20000};
    struct rt_model m = text_model(4, 4);
    for (int i = 0; i < (int)(sizeof sizes / sizeof *sizes); i++) {
        int n = sizes[i];
        char *path = numbered(n, 1 + i % 4);
        for (uint64_t seed = 0; seed < 3; seed++) {
            struct data *d = opened(&m, path, seed);
            for (int epoch = 0; epoch < 4; epoch++) {
                int *order = samples(&m, d, epoch * n, n);
                bool *seen = NEW(bool, n);
                for (int k = 0; k < n; k++) {
                    cr_assert(order[k] < n && !seen[order[k]], "n %d, epoch %d: %d twice", n, epoch, order[k]);
                    seen[order[k]] = true;
                }
            }
            data_close(d);
        }
        unlink(path);
    }
}

Test(data, another_seed_or_epoch_another_order) {
    enum { N = 64, EPOCHS = 8, SEEDS = 8 };
    struct rt_model m = text_model(4, 4);
    char *path = numbered(N, 4);
    int *order[SEEDS * EPOCHS];
    for (int i = 0; i < SEEDS * EPOCHS; i++) {
        struct data *d = opened(&m, path, (uint64_t)(i / EPOCHS));
        order[i] = samples(&m, d, i % EPOCHS * N, N);
        data_close(d);
        int followers = 0;
        for (int k = 1; k < N; k++)
            followers += order[i][k] == order[i][k - 1] + 1;
        cr_assert_lt(followers, 8, "the order of the file");
        for (int j = 0; j < i; j++)
            cr_assert(!same_order(order[i], order[j], N), "%d and %d", i, j);
    }
    unlink(path);
}

/* Every order of n things occurs equally often within 30 %, which is six standard deviations. */
Test(data, orders_are_evenly_likely) {
    struct rt_model m = text_model(4, 4);
    for (int n = 2, orders = 2; n <= 5; n++, orders *= n) {
        enum { EACH = 400 };
        char *path = numbered(n, 1);
        struct data *d = opened(&m, path, 9);
        int *count = NEW(int, 5 * 5 * 5 * 5 * 5), seen = 0;
        for (int epoch = 0; epoch < EACH * orders; epoch++) {
            int *order = samples(&m, d, epoch * n, n), code = 0;
            for (int k = 0; k < n; k++)
                code = code * n + order[k];
            count[code]++;
        }
        for (int code = 0; code < 5 * 5 * 5 * 5 * 5; code++)
            if (count[code]) {
                seen++;
                cr_expect(count[code] > EACH - 120 && count[code] < EACH + 120, "n %d: %d of about %d", n, count[code],
                          EACH);
            }
        cr_expect_eq(seen, orders, "n %d: %d of %d orders", n, seen, orders);
        data_close(d);
        unlink(path);
    }
}

/* The order is the same for any microbatches and steps, and for any rank that requests samples at any time. */
Test(data, order_is_the_same_for_whoever_asks) {
    enum { N = 100, ALL = 240 };
    static const int cut[][2] = {{4, 2}, {12, 2}, {8, 5}, {40, 1}};
    char *path = numbered(N, 2);
    struct rt_model one = text_model(4, 4);
    struct data *d = opened(&one, path, 5);
    int *want = samples(&one, d, 0, ALL);
    data_close(d);
    for (int i = 0; i < 4; i++) {
        struct rt_model m = text_model(cut[i][0], 4);
        m.batches = cut[i][1];
        d = opened(&m, path, 5);
        cr_assert(same_order(samples(&m, d, 0, ALL), want, ALL), "rows %d, batches %d", m.rows, m.batches);
        for (int k = ALL - 1; k >= 0; k -= 3) /* backwards, and with gaps */
            cr_assert_eq(*samples(&m, d, k, 1), want[k]);
        data_close(d);
    }
    unlink(path);
}

/* ---- microbatches ---- */

/* Returns the bytes of a microbatch from newly opened data. */
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

Test(data, without_a_file_tokens_are_random) {
    struct rt_model m = text_model(300, 30);
    m.vocab = 1000;
    depends_on_seed_step_and_batch(&m, NULL);
    struct data *d = opened(&m, NULL, 3);
    struct rt_batch b;
    data_batch(d, 2, 1, fresh((int64_t)data_bytes(&m)), &b);
    int large = 0;
    for (int r = 0; r < m.rows; r++) {
        cr_assert(b.token[r] >= 0 && b.token[r] < 1000 && b.target[r] >= 0 && b.target[r] < 1000);
        cr_assert(r + 1 == m.rows || b.target[r] == b.token[r + 1], "the target is the next token");
        large += b.token[r] >= 500;
    }
    cr_assert(large > 100 && large < 200);
    char why[100] = "";
    int64_t bytes;
    uint64_t hash;
    data_identity(d, &bytes, &hash);
    cr_assert(data_same(d, why, sizeof why) && bytes == 0);
    data_close(d);
}

Test(data, identity_is_of_the_content) {
    struct rt_model m = text_model(16, 8);
    char *path[] = {file_of(100), file_of(100), file_of(101)};
    int64_t bytes[3];
    uint64_t hash[3];
    for (int i = 0; i < 3; i++) {
        struct data *d = opened(&m, path[i], (uint64_t)i);
        data_identity(d, &bytes[i], &hash[i]);
        data_close(d);
        unlink(path[i]);
    }
    cr_assert(bytes[0] == 100 && bytes[1] == 100 && bytes[2] == 101);
    cr_assert(hash[0] == hash[1] && hash[0] != hash[2]);
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

/* ---- the purpose of integers: sums in any order, in any parts, have the same bits ---- */

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

/* Trains and returns the weights. The first `part` microbatches of the order are summed separately. */
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
        host_update(&(struct rt_update){
            .piece = {&m->rt, &st->rt, 0, weight_count(&m->rt, &st->rt)}, .w = r.at->w, .dw = sum[0], .number = step});
    }
    data_close(d);
    return r.at->w;
}

Test(data, integers_train_to_the_same_bits_in_any_order) {
    static const int orders[][BATCHES] = {{0, 1, 2, 3, 4, 5, 6, 7}, {7, 6, 5, 4, 3, 2, 1, 0}, {3, 5, 0, 7, 1, 6, 2, 4}};
    struct model *m = paths(16, 4); /* every column occurs twice a step */
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

/* ---- held-out text ---- */

/* The loss is the number of a sequence's first token. The mean is over all sequences, each once, for any step size. */
Test(data, every_held_out_sequence_counts_once) {
    for (int n = 1; n <= 40; n++) {
        char *path = numbered(n, 1 + n % 4);
        for (int each = 1; each <= 12; each++)
            for (int batches = 1; batches <= 5; batches++) {
                struct rt_model m = text_model(4 * each, 4);
                m.batches = batches;
                struct data *d = opened(&m, path, 1);
                data_hold_out(d, data_sequences(d));
                struct held_sum sum = {0, 0};
                for (int64_t step = 0; step < data_steps(d); step++) {
                    float loss[2 * 5]; /* two slices a microbatch */
                    for (int b = 0; b < batches; b++) {
                        const int *order = samples(&m, d, ((int)step * batches + b) * each, each);
                        loss[2 * b] = 0;
                        for (int i = 0; i < each; i++)
                            loss[2 * b] += (float)order[i] / (float)each;
                        loss[2 * b + 1] = loss[2 * b];
                    }
                    data_sum(d, step, loss, 2 * batches, &sum);
                }
                cr_assert(sum.weight == n && fabs(sum.loss / n - (n - 1) / 2.0) < 1e-4, "%d of %d x %d: %g of %d", n,
                          each, batches, sum.loss, (int)sum.weight);
                data_close(d);
            }
        unlink(path);
    }
}

/* ---- resuming, and several files ---- */

Test(data, goes_on_at_a_sequence) {
    struct rt_model m = text_model(8, 4), other = text_model(12, 4);
    char *path = numbered(50, 1);
    struct data *d = opened(&m, path, 5), *on = opened(&other, path, 5);
    other.batches = 3;
    data_close(on);
    on = opened(&other, path, 5);
    data_begin(on, 7, 20); /* after five steps of 4; now steps have 9 */
    const int *want = samples(&m, d, 20, 40), *got = samples(&other, on, 7 * 9, 40);
    cr_assert(same_order(want, got, 40));
    data_close(d);
    data_close(on);
    unlink(path);
}

Test(data, several_files_are_one_text) {
    struct rt_model m = text_model(8, 4);
    char *whole = numbered(50, 3), *dir = format("%s.d", whole), why[300];
    size_t n, at = 0;
    char *text = read_file(whole, &n);
    cr_assert_eq(mkdir(dir, 0700), 0);
    for (int i = 0; at < n; i++) { /* of 0, 1, 2, ... bytes, so that sequences span several */
        size_t size = (size_t)i < n - at ? (size_t)i : n - at;
        FILE *f = fopen(format("%s/part-%03d", dir, i), "w");
        fwrite(text + at, 1, size, f);
        fclose(f);
        at += size;
    }
    struct data *d = opened(&m, whole, 5), *parts = opened(&m, format("%s/part-*", dir), 5);
    cr_assert_eq(data_sequences(d), data_sequences(parts));
    cr_assert(same_order(samples(&m, d, 0, 100), samples(&m, parts, 0, 100), 100));
    const char *const two[] = {whole, format("%s/part-002", dir), NULL}, *const lacks[] = {whole, "/nowhere/text",
                                                                                           NULL};
    struct data *more = data_open(&m, two, 5, why, sizeof why);
    int64_t bytes, all;
    uint64_t hash, other;
    data_identity(d, &bytes, &hash);
    data_identity(more, &all, &other);
    cr_assert(all == bytes + 2 && other != hash);
    cr_assert_null(data_open(&m, lacks, 5, why, sizeof why));
    cr_assert_str_eq(why, "/nowhere/text: No such file or directory");
    data_close(d);
    data_close(parts);
    data_close(more);
    cr_assert(strstr(error_of(&m, format("%s/none-*", dir)), "none-*: no file matches this pattern"));
    cr_assert_eq(system(format("rm -r %s %s", dir, whole)), 0);
}

/* ---- errors ---- */

static const char *error_of(const struct rt_model *m, const char *path) {
    static char why[300];
    why[0] = 0;
    cr_assert_null(data_open(m, (const char *const[]){path, NULL}, 1, why, sizeof why));
    return why;
}

Test(data, errors, .timeout = 20) { /* opening a pipe would wait forever */
    struct rt_model m = text_model(16, 16);
    cr_assert_str_eq(error_of(&m, "/nowhere/text"), "/nowhere/text: No such file or directory");
    cr_assert_str_eq(error_of(&m, "/"), "/: is a directory; give a file of text");
    char *path = file_of(0);
    cr_assert_str_eq(error_of(&m, path), format("%s: has 0 bytes, but a sequence takes 17 (context = 16, and the byte "
                                                "after it); give more text, or a smaller context",
                                                path));
    unlink(path);
    cr_assert_eq(mkfifo(path, 0600), 0);
    cr_assert_str_eq(
        error_of(&m, path),
        format("%s: is not a regular file; text is read in random order, so save it to a file first", path));
    unlink(path);
    path = file_of(16);
    cr_assert(strstr(error_of(&m, path), ": has 16 bytes, but a sequence takes 17 (context = 16, and the byte after"));
    m.context = 8;
    m.vocab = 50;
    cr_assert(strstr(error_of(&m, path), ": byte 8 is 56, but vocab = 50; use vocab = 256, or other text"));
    unlink(path);
    m = text_model(16, 16);
    path = file_of(17);
    data_close(opened(&m, path, 1));
    unlink(path);
    struct rt_model integers = {.input = INPUT_INTEGERS, .rows = 5, .features = 7, .batches = 3};
    cr_assert_str_eq(error_of(&integers, NULL),
                     "integers with features = 7, rows = 5 and batches = 3: sums are exact in any order only while 2 x "
                     "features >= rows x batches; use at least 8 features");
    integers.features = 8;
    data_close(opened(&integers, NULL, 1));
}

Test(data, unreadable_file) {
    struct rt_model m = text_model(16, 8);
    char *path = file_of(100);
    cr_assert_eq(chmod(path, 0), 0);
    uid_t me = geteuid();
    if (me == 0 && seteuid(65534) != 0) /* root may read anything */
        cr_skip_test("nobody else to be");
    cr_expect_str_eq(error_of(&m, path), format("%s: Permission denied", path));
    cr_assert_eq(seteuid(me), 0);
    unlink(path);
}

Test(data, compressed_files_are_refused) {
    struct rt_model m = text_model(16, 8);
    static const char *const magic[] = {"\x1f\x8b\x08", "\x28\xb5\x2f\xfd",
                                        "\xfd"
                                        "7zXZ"},
                             *const name[] = {"gzip", "zstd", "xz"};
    for (int i = 0; i < 3; i++) {
        char text[100] = "";
        strcpy(text, magic[i]);
        char *path = text_file((unsigned char *)text, sizeof text);
        cr_assert(strstr(error_of(&m, path), format(": is compressed; unpack it first: `%s -dc %s > ", name[i], path)),
                  "%s", error_of(&m, path));
        unlink(path);
    }
}

/* ---- training on a file that changes ---- */

Test(data, bytes_written_later_stay_within_the_vocabulary) {
    struct rt_model m = text_model(16, 8);
    m.vocab = 100;
    unsigned char text[40] = {1, 2, 3};
    char *path = text_file(text, sizeof text), why[300];
    cr_assert_eq(utimensat(AT_FDCWD, path, (struct timespec[2]){{1, 0}, {1, 0}}, 0), 0);
    struct data *d = opened(&m, path, 1);
    struct rt_batch b;
    int fd = open(path, O_WRONLY);
    cr_assert_eq(write(fd, memset(text, 100, sizeof text), sizeof text), (ssize_t)sizeof text);
    close(fd);
    data_batch(d, 0, 0, fresh((int64_t)data_bytes(&m)), &b);
    for (int r = 0; r < m.rows; r++)
        cr_assert(b.token[r] >= 0 && b.token[r] < 100 && b.target[r] >= 0 && b.target[r] < 100);
    cr_assert(!data_same(d, why, sizeof why) && strstr(why, "changed while it was used"));
    data_close(d);
    unlink(path);
}

struct meddler {
    const char *path;
    int64_t from; /* step after which the file is removed */
    bool removed;
};

static void meddle(void *context, const struct rt_ended *of) {
    struct meddler *t = context;
    int64_t step = of->step + 1;
    if (step < t->from)
        return;
    cr_assert(!t->removed || step < t->from + 100000, "goes on training on a file that is gone");
    if (!t->removed)
        cr_assert_eq(unlink(t->path), 0);
    t->removed = true;
}

/* Trains a small model; the file disappears after a step. */
static void train_without(int64_t steps, int64_t from) {
    struct spec *sp = empty_spec(1, 1, 1);
    add_job(sp, 0, 0, OP_F, 0, 0);
    add_job(sp, 0, 0, OP_B, 0, 0);
    sp->model = model_tokens(4, 4, 256, 1);
    add(sp->model, LAYER_embedding, 4);
    add(sp->model, LAYER_linear, 256);
    add(sp->model, LAYER_cross_entropy, 0);
    struct costs *costs = costs_make(sp);
    struct graph *g = graph_build(costs);
    struct program *p = lower_of(sp, costs, g, sched_of(sp, costs, g));
    mem_of(sp, p);
    lanes_sync(p);
    host_blas();
    struct meddler meddler = {file_of(1000), from, false};
    struct data *d = opened(&sp->model->rt, meddler.path, 1);
    struct rt_program *program = runtime_program(costs, p);
    struct rt_run run = {.program = program, .data = d, .flags = {.seed = 1, .steps = steps}, .ended = meddle};
    run.context = &meddler;
    run.loss = NEW(float, steps);
    run.makespan = NEW(double, steps);
    char **arena = host_train(&run);
    unlink(meddler.path);
    host_free(program, arena);
    data_close(d);
}

Test(data, training_ends_when_its_file_goes, .exit_code = 2, .timeout = 60) { train_without(1000000, 1); }
Test(data, training_ends_when_its_file_went_last, .exit_code = 2) { train_without(3, 3); }
Test(data, training_on_a_file_that_stays) { train_without(3, 4); }
