/* Microbatches, as a function of (seed, step, b) alone: every rank that asks gets the same one, in any order.
 *
 * Text: the file's tokens, or its bytes where the vocabulary is that of bytes, are cut into sequences of context
 * tokens, and each has the token after it too: the target of a token is the next one. A microbatch is rows / context of
 * them. An epoch is a shuffle of all sequences, another one for each epoch and seed; what is left at the end of an
 * epoch and the first of the next may share a step. Without a file, tokens are random.
 *
 * Integers are made so that schedules can be compared bit for bit. Float addition is not associative, so a gradient
 * summed over microbatches in another order, or in parts on several ranks, has other bits, unless each sum has at most
 * two terms that are not zero: a + b = b + a, and adding zero is exact. So a row of x has one nonzero column, and its
 * target is nonzero in that column alone. Weights start as a diagonal (parameters.c) without bias. Then every
 * activation and gradient of that row, through linear and relu layers, has only this column; every product sum over
 * columns one term; and a weight's gradient is diagonal and gets one term from each row that hits its column. Over a
 * step the rows take the columns in turn, so no column is hit more than twice when 2 x features >= batches x rows. Off
 * the diagonal weights stay zero, so all this holds in every step, though the weights are soon not integers. */
#include "data_file.h"
#include "hash.h"
#include "token_file.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct data {
    struct rt_model m;
    uint64_t seed;
    struct data_file *file; /* NULL: nothing is read */
    struct tokens tokens;   /* its */
};

/* A file of tokens says so itself; else its bytes are the tokens. */
static bool find_tokens(struct data *data, const char *path, char *why, size_t nwhy) {
    const struct data_file *file = data->file;
    if (is_token_file(file->text, file->size))
        return read_tokens(file->text, file->size, &data->tokens, path, why, nwhy);
    data->tokens = (struct tokens){file->text, (int64_t)file->size, 1};
    if (data->m.vocab <= 256)
        return true;
    snprintf(
        why, nwhy,
        "%s: is no file of tokens, but vocab = %d, more than bytes have; make one of this text with `pianola tokenize "
        "%s --tokenizer T -o FILE.bin`, where T is the model's tokenizer",
        path, data->m.vocab, path);
    return false;
}

static bool check_size(const struct data *data, const char *path, char *why, size_t nwhy) {
    long long need = (long long)data->m.context + 1;
    const char *what = data->tokens.width == 1 ? "byte" : "token";
    if (data->tokens.n >= need)
        return true;
    snprintf(why, nwhy,
             "%s: has %lld %ss, but a sequence takes %lld (context = %d, and the %s after it); give more text, or a "
             "smaller context",
             path, (long long)data->tokens.n, what, need, data->m.context, what);
    return false;
}

/* A token at or above the vocabulary would index past the embedding. */
static bool check_vocab(const struct data *data, const char *path, char *why, size_t nwhy) {
    const struct tokens *tokens = &data->tokens;
    uint32_t vocab = (uint32_t)data->m.vocab, id;
    for (int64_t i = 0; (uint64_t)vocab >> 8 * tokens->width == 0 && i < tokens->n; i++)
        if ((id = token_at(tokens, i)) >= vocab) {
            snprintf(why, nwhy, "%s: %s %lld is %u, but vocab = %u; use %s", path,
                     tokens->width == 1 ? "byte" : "token", (long long)i, id, vocab,
                     tokens->width == 1 ? "vocab = 256, or other text"
                     : vocab <= 256     ? "the text itself: this model takes bytes"
                                        : "the model that the tokenizer is for");
            return false;
        }
    return true;
}

static bool check_features(const struct rt_model *m, char *why, size_t nwhy) {
    int summed = m->update > 0 ? m->update : m->batches;
    if (2 * (int64_t)m->features >= (int64_t)summed * m->rows)
        return true;
    snprintf(why, nwhy,
             "integers with features = %d, rows = %d and batches = %d: sums are exact in any order only while 2 x "
             "features >= rows x batches; use at least %lld features",
             m->features, m->rows, summed, ((long long)summed * m->rows + 1) / 2);
    return false;
}

struct data *data_open(const struct rt_model *m, const char *path, uint64_t seed, char *why, size_t nwhy) {
    struct data *data = calloc(1, sizeof *data);
    if (!data) {
        snprintf(why, nwhy, "out of memory");
        return NULL;
    }
    data->m = *m;
    data->seed = seed;
    bool good = true;
    if (m->input == INPUT_TOKENS && path)
        good = (data->file = data_file_open(path, why, nwhy)) && find_tokens(data, path, why, nwhy) &&
               check_size(data, path, why, nwhy) && check_vocab(data, path, why, nwhy);
    else if (m->input == INPUT_INTEGERS)
        good = check_features(m, why, nwhy);
    if (good)
        return data;
    data_close(data);
    return NULL;
}

void data_close(struct data *data) {
    data_file_close(data->file);
    free(data);
}

bool data_same(const struct data *data, char *why, size_t nwhy) {
    return !data->file || data_file_same(data->file, why, nwhy);
}

void data_identity(const struct data *data, int64_t *bytes, uint64_t *hash) {
    *bytes = data->file ? (int64_t)data->file->size : 0;
    *hash = data->file ? data->file->hash : 0;
}

int64_t data_steps(const struct data *data) {
    if (!data->file)
        return 1;
    int64_t n = (data->tokens.n - 1) / data->m.context, each = data->m.rows / data->m.context * data->m.batches;
    return n < each ? 1 : n / each;
}

size_t data_bytes(const struct rt_model *m) {
    size_t columns = m->input == INPUT_INTEGERS ? (size_t)m->features : m->input == INPUT_TOKENS ? 1 : 0;
    return 2 * sizeof(float) * (size_t)m->rows * columns;
}

static uint64_t key_of(const struct data *data, int64_t step, int b) {
    return host_hash(host_hash(data->seed, (uint64_t)step), (uint64_t)b);
}

/* The item at a place of a shuffle: a permutation of 0 .. n-1 that the key chooses, computed for any place at once and
 * without memory. A Feistel network is a permutation of the numbers of 2 x half bits whatever its round function (Luby
 * & Rackoff 1988); taking it again until the number is below n makes it one of n numbers (cycle walking: Black &
 * Rogaway 2002), in less than four turns on average. Eight rounds, for small n: with six, some orders of five items are
 * 1.5 times as frequent as they should be. */
static uint64_t shuffled(uint64_t place, uint64_t n, uint64_t key) {
    int half = 1;
    while (half < 32 && n > (uint64_t)1 << 2 * half)
        half++;
    uint64_t mask = ((uint64_t)1 << half) - 1;
    do {
        uint64_t left = place >> half, right = place & mask;
        for (uint64_t round = 0; round < 8; round++) {
            uint64_t next = left ^ (host_hash(host_hash(key, round), right) & mask);
            left = right;
            right = next;
        }
        place = left << half | right;
    } while (place >= n);
    return place;
}

/* A token at or above the vocabulary was written after check_vocab ran: data_same will report it. */
static int32_t token_below(const struct data *data, int64_t i) {
    uint32_t id = token_at(&data->tokens, i);
    return id < (uint32_t)data->m.vocab ? (int32_t)id : 0;
}

static void read_text(const struct data *data, int64_t step, int b, int32_t *token, int32_t *target) {
    uint64_t context = (uint64_t)data->m.context, each = (uint64_t)data->m.rows / context;
    uint64_t n = (uint64_t)(data->tokens.n - 1) / context,
             k = ((uint64_t)step * (uint64_t)data->m.batches + (uint64_t)b) * each;
    for (uint64_t end = k + each; k < end; k++) {
        int64_t at = (int64_t)(context * shuffled(k % n, n, host_hash(data->seed, k / n)));
        for (int64_t i = at; i < at + (int64_t)context; i++) {
            *token++ = token_below(data, i);
            *target++ = token_below(data, i + 1);
        }
    }
}

static int32_t random_token(const struct data *data, uint64_t key, int row) {
    return (int32_t)(host_hash(key, (uint64_t)row) % (uint64_t)data->m.vocab);
}

static void random_tokens(const struct data *data, uint64_t key, int32_t *token, int32_t *target) {
    for (int r = 0; r < data->m.rows; r++) {
        token[r] = random_token(data, key, r);
        target[r] = random_token(data, key, r + 1);
    }
}

static void integers(const struct data *data, uint64_t key, int b, float *x, float *y) {
    int64_t columns = data->m.features;
    memset(x, 0, data_bytes(&data->m) / 2);
    memset(y, 0, data_bytes(&data->m) / 2);
    for (int64_t r = 0; r < data->m.rows; r++) {
        int64_t at = r * columns + ((int64_t)b * data->m.rows + r) % columns;
        uint64_t h = host_hash(key, (uint64_t)r);
        x[at] = (float)(1 + h % 3);
        y[at] = (float)(1 + (h >> 32) % 3);
    }
}

/* Closes up rows first .. first + length of each sequence, of `each` bytes a row. */
static void keep_rows(char *at, int64_t rows, int64_t sequence, int first, int length, size_t each) {
    for (int64_t s = 0; s * sequence < rows; s++)
        memmove(at + (size_t)(s * length) * each, at + (size_t)(s * sequence + first) * each, (size_t)length * each);
}

void data_slice(const struct data *data, int64_t step, int b, int first, int length, void *memory,
                struct rt_batch *out) {
    bool tokens = data->m.input == INPUT_TOKENS;
    size_t each = sizeof(float) * (size_t)(tokens ? 1 : data->m.features);
    char *x = memory, *y = x + data_bytes(&data->m) / 2;
    data_batch(data, step, b, memory, out);
    keep_rows(x, data->m.rows, tokens ? data->m.context : data->m.rows, first, length, each);
    keep_rows(y, data->m.rows, tokens ? data->m.context : data->m.rows, first, length, each);
}

/* A member's rows are in the order of the batch's, so that each moves to the front. */
static void keep_part(char *at, const struct rt_layer *l, int32_t all, size_t each) {
    for (int32_t r = 0; l && l->part.members > 0 && r < all / l->part.members; r++)
        memmove(at + (size_t)r * each, at + (size_t)row_of_batch(l, all, r) * each, each);
}

void data_keep(const struct rt_model *m, const struct rt_layer *input, const struct rt_layer *target, void *memory) {
    size_t half = data_bytes(m) / 2, each = half / (size_t)m->rows;
    keep_part(memory, input, m->rows, each);
    keep_part((char *)memory + half, target, m->rows, each);
}

void data_batch(const struct data *data, int64_t step, int b, void *memory, struct rt_batch *out) {
    memset(out, 0, sizeof *out);
    if (data->m.input == INPUT_TOKENS) {
        int32_t *token = memory, *target = token + data->m.rows;
        if (data->file)
            read_text(data, step, b, token, target);
        else
            random_tokens(data, key_of(data, step, b), token, target);
        out->token = token;
        out->target = target;
    } else if (data->m.input == INPUT_INTEGERS) {
        float *x = memory, *y = x + (int64_t)data->m.rows * data->m.features;
        integers(data, key_of(data, step, b), b, x, y);
        out->x = x;
        out->y = y;
    }
}
