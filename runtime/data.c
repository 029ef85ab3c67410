/* Microbatches, as a function of (seed, step, b) alone: every rank that asks gets the same one, in any order.
 *
 * Text: a microbatch is rows / context sequences of bytes from places in the file that a hash chooses; the target of a
 * byte is the byte after it.
 *
 * Integers are made so that schedules can be compared bit for bit. Float addition is not associative, so a gradient
 * summed over microbatches in another order, or in parts on several ranks, has other bits, unless each sum has at
 * most two terms that are not zero: a + b = b + a, and adding zero is exact. So a row of x has one nonzero column,
 * and its target is nonzero in that column alone. Weights start as a diagonal (optim_host.c) without bias. Then every
 * activation and gradient of that row, through linear and relu layers, has but this column; every product sum over
 * columns one term; and a weight's gradient is diagonal and gets one term from each row that hits its column. Over a
 * step the rows take the columns in turn, so no column is hit more than twice when 2 x features >= batches x rows.
 * Off the diagonal weights stay zero, so all this holds in every step, though the weights are soon no integers. */
#include "host.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct data {
    struct rt_model m;
    uint64_t seed;
    const uint8_t *text;
    size_t size; /* bytes of text, mapped */
};

static bool map_text(struct data *d, const char *path, char *why, size_t nwhy) {
    int fd = open(path, O_RDONLY);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0) {
        snprintf(why, nwhy, "%s: %s", path, strerror(errno));
        if (fd >= 0)
            close(fd);
        return false;
    }
    long long need = (long long)d->m.context + 1;
    bool plain = S_ISREG(st.st_mode), enough = st.st_size >= need;
    void *at = plain && enough ? mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
    if (!plain)
        snprintf(why, nwhy, "%s: is not a regular file", path);
    else if (!enough)
        snprintf(why, nwhy, "%s: has %lld bytes, but a sequence takes %lld (context = %d, and the byte after it)", path,
                 (long long)st.st_size, need, d->m.context);
    else if (at == MAP_FAILED)
        snprintf(why, nwhy, "%s: %s", path, strerror(errno));
    close(fd);
    if (at == MAP_FAILED)
        return false;
    d->text = at;
    d->size = (size_t)st.st_size;
    return true;
}

/* A byte at or above the vocabulary would index past the embedding. */
static bool check_vocab(const struct data *d, const char *path, char *why, size_t nwhy) {
    for (size_t i = 0; d->m.vocab < 256 && i < d->size; i++)
        if (d->text[i] >= d->m.vocab) {
            snprintf(why, nwhy, "%s: byte %zu is %d, but vocab = %d; use vocab = 256, or other text", path, i,
                     d->text[i], d->m.vocab);
            return false;
        }
    return true;
}

static bool check_features(const struct rt_model *m, char *why, size_t nwhy) {
    if (2 * (int64_t)m->features >= (int64_t)m->batches * m->rows)
        return true;
    snprintf(why, nwhy,
             "integers with features = %d, rows = %d and batches = %d: sums are exact in any order only while 2 x "
             "features >= rows x batches; use at least %lld features",
             m->features, m->rows, m->batches, ((long long)m->batches * m->rows + 1) / 2);
    return false;
}

struct data *data_open(const struct rt_model *m, const char *path, uint64_t seed, char *why, size_t nwhy) {
    struct data *d = calloc(1, sizeof *d);
    if (!d) {
        snprintf(why, nwhy, "out of memory");
        return NULL;
    }
    d->m = *m;
    d->seed = seed;
    bool good = true;
    if (m->input == INPUT_TOKENS && !path) {
        snprintf(why, nwhy, "the model reads text: name a file of it");
        good = false;
    } else if (m->input == INPUT_TOKENS)
        good = map_text(d, path, why, nwhy) && check_vocab(d, path, why, nwhy);
    else if (m->input == INPUT_INTEGERS)
        good = check_features(m, why, nwhy);
    if (good)
        return d;
    data_close(d);
    return NULL;
}

void data_close(struct data *d) {
    if (d->text)
        munmap((void *)(uintptr_t)d->text, d->size);
    free(d);
}

size_t data_bytes(const struct rt_model *m) {
    size_t columns = m->input == INPUT_INTEGERS ? (size_t)m->features : m->input == INPUT_TOKENS ? 1 : 0;
    return 2 * sizeof(float) * (size_t)m->rows * columns;
}

static uint64_t key_of(const struct data *d, int64_t step, int b) {
    return host_hash(host_hash(d->seed, (uint64_t)step), (uint64_t)b);
}

static void tokens(const struct data *d, uint64_t key, int32_t *token, int32_t *target) {
    int context = d->m.context;
    for (int s = 0; s < d->m.rows / context; s++) {
        const uint8_t *t = d->text + host_hash(key, (uint64_t)s) % (d->size - (size_t)context);
        for (int i = 0; i < context; i++) {
            *token++ = t[i];
            *target++ = t[i + 1];
        }
    }
}

static void integers(const struct data *d, uint64_t key, int b, float *x, float *y) {
    int64_t columns = d->m.features;
    memset(x, 0, data_bytes(&d->m) / 2);
    memset(y, 0, data_bytes(&d->m) / 2);
    for (int64_t r = 0; r < d->m.rows; r++) {
        int64_t at = r * columns + ((int64_t)b * d->m.rows + r) % columns;
        uint64_t h = host_hash(key, (uint64_t)r);
        x[at] = (float)(1 + h % 3);
        y[at] = (float)(1 + (h >> 32) % 3);
    }
}

void data_batch(const struct data *d, int64_t step, int b, void *memory, struct rt_batch *out) {
    uint64_t key = key_of(d, step, b);
    memset(out, 0, sizeof *out);
    if (d->m.input == INPUT_TOKENS) {
        int32_t *token = memory, *target = token + d->m.rows;
        tokens(d, key, token, target);
        out->token = token;
        out->target = target;
    } else if (d->m.input == INPUT_INTEGERS) {
        float *x = memory, *y = x + (int64_t)d->m.rows * d->m.features;
        integers(d, key, b, x, y);
        out->x = x;
        out->y = y;
    }
}
