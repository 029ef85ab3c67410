/* Microbatches, as a function of (seed, step, b) alone: every rank that asks gets the same one, in any order.
 *
 * Text: the tokens of all files in a row, or their bytes if the vocabulary is that small, are cut into sequences of
 * context tokens. Each sequence also has the token after it, because the target of a token is the next one. A
 * microbatch is rows / context sequences. An epoch is a shuffle of all sequences, different for each epoch and seed;
 * the last sequences of an epoch and the first of the next may share a step. The position at which a training resumes
 * is a number of sequences, since a step may read more or fewer sequences than before. Without a file, tokens are
 * random.
 *
 * Held-out text is read once, in its order. Its last sequences may not fill a microbatch. Then a microbatch repeats
 * each of its sequences equally often, so its mean is their mean, and its weight is the number of different sequences.
 * Further microbatches of the step have weight 0. So the overall mean counts each sequence once, whatever the size of a
 * step.
 *
 * Integers serve to compare schedules bit for bit. Float addition is not associative, so a gradient summed over
 * microbatches in another order, or in parts on several ranks, has other bits, unless each sum has at most two terms
 * that are not zero: a + b = b + a, and adding zero is exact. So a row of x has one nonzero column, and its target is
 * nonzero in that column alone. Weights start as a diagonal (parameters.c) without bias. Then every activation and
 * gradient of that row, through linear and relu layers, has only this column; every product sum over columns one term;
 * and a weight's gradient is diagonal and gets one term from each row that hits its column. Over a step the rows take
 * the columns in turn, so no column is hit more than twice when 2 x features >= batches x rows. Off the diagonal
 * weights stay zero, so all this holds in every step, though the weights are soon not integers. */
#include "data_file.h"
#include "fault.h"
#include "hash.h"
#include "shuffle.h"
#include "side_file.h"
#include "token_file.h"
#include <glob.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct part { /* a file, whose tokens begin with number `first` of all tokens */
    struct data_file *file;
    struct tokens tokens;
    int64_t first;
    struct sides sides;
};
/* The targets that count in the latest steps. Ranks that are threads count them, and may be a step or two apart. */
enum { STEPS = 4 };
struct counts {
    pthread_mutex_t lock;
    struct step_labels {
        int64_t step, n;
    } of[STEPS];
};
struct data {
    struct rt_model m;
    uint64_t seed;
    struct part *part;
    int32_t n;      /* parts; 0: nothing is read */
    int64_t tokens; /* tokens of all parts */
    int64_t from_step, from_sequence;
    int64_t held_out; /* sequences of a validation; 0: the data is for training */
    int32_t *counted; /* [sequences]: targets that count; NULL: all do */
    struct counts *counts;
};

/* ---- opening ---- */

/* Finds a part's tokens. A file of tokens identifies itself; else the file's bytes are the tokens. */
static bool find_tokens(const struct data *data, struct part *part, char *why, size_t nwhy) {
    const struct data_file *file = part->file;
    if (is_token_file(file->text, file->size))
        return read_tokens(file->text, file->size, &part->tokens, file->path, why, nwhy);
    if (!data_file_plain(file, why, nwhy))
        return false;
    if (data_file_has_lines(file)) {
        snprintf(why, nwhy,
                 "%s: has lines of JSON, whose braces the model would learn too; extract the texts, e.g. with `jq -r "
                 ".text`, or make a file of tokens with `pianola tokenize`",
                 file->path);
        return false;
    }
    part->tokens = (struct tokens){file->text, (int64_t)file->size, 1};
    if (data->m.vocab <= 256)
        return true;
    snprintf(why, nwhy,
             "%s: is no file of tokens, but vocab = %d is more than the values of a byte; make one from this text with "
             "`pianola tokenize %s --tokenizer T -o FILE.bin`, where T is the model's tokenizer",
             file->path, data->m.vocab, file->path);
    return false;
}

static bool check_data_size(const struct data *data, char *why, size_t nwhy) {
    long long need = (long long)data->m.context + 1;
    const char *what = data->part[0].tokens.width == 1 ? "byte" : "token";
    if (data->tokens >= need)
        return true;
    snprintf(why, nwhy,
             "%s%s: has %lld %ss, but a sequence takes %lld (context = %d, and the %s after it); give more text, or a "
             "smaller context",
             data->part[0].file->path, data->n > 1 ? ", and the others" : "", (long long)data->tokens, what, need,
             data->m.context, what);
    return false;
}

static void say_token(const struct data *data, const struct part *part, int64_t i, char *why, size_t nwhy) {
    int width = part->tokens.width, vocab = data->m.vocab;
    snprintf(why, nwhy, "%s: %s %lld is %u, but vocab = %d; use %s", part->file->path, width == 1 ? "byte" : "token",
             (long long)i, token_at(&part->tokens, i), vocab,
             width == 1     ? "vocab = 256, or other text"
             : vocab <= 256 ? "the text itself: this model takes bytes"
                            : "the model that the tokenizer is for");
}

/* Checks that tokens are below the vocabulary, since others would index past the embedding. Checks only the first
 * tokens of a file, because reading all of it would be slow; token_below checks all that are used. */
static bool check_vocab(const struct data *data, const struct part *part, char *why, size_t nwhy) {
    enum { MOST = 1 << 24 };
    const struct tokens *tokens = &part->tokens;
    uint32_t vocab = (uint32_t)data->m.vocab;
    int64_t n = tokens->n < MOST ? tokens->n : MOST;
    for (int64_t i = 0; (uint64_t)vocab >> 8 * tokens->width == 0 && i < n; i++)
        if (token_at(tokens, i) >= vocab) {
            say_token(data, part, i, why, nwhy);
            return false;
        }
    return true;
}

static bool open_data_part(struct data *data, const char *path, char *why, size_t nwhy) {
    struct part *more = realloc(data->part, sizeof *more * ((size_t)data->n + 1));
    if (!more) {
        snprintf(why, nwhy, "out of memory");
        return false;
    }
    data->part = more;
    struct part *part = &more[data->n];
    *part = (struct part){.file = data_file_open(path, why, nwhy), .first = data->tokens};
    if (!part->file)
        return false;
    data->n++;
    if (!find_tokens(data, part, why, nwhy) || !check_vocab(data, part, why, nwhy) ||
        !sides_open(&part->sides, &data->m, path, part->tokens.n, why, nwhy))
        return false;
    data->tokens += part->tokens.n;
    return true;
}

/* Returns whether a file is one of those beside a text (side_file.h), which a pattern may match too. */
static bool is_beside(const char *path) {
    size_t n = strlen(path);
    return n >= 4 && strcmp(path + n - 4, ".npy") == 0;
}

/* Opens a path, or, if no file has that name, a pattern. */
static bool open_parts(struct data *data, const char *path, char *why, size_t nwhy) {
    glob_t found;
    if (access(path, F_OK) == 0 || !strpbrk(path, "*?["))
        return open_data_part(data, path, why, nwhy);
    int code = glob(path, 0, NULL, &found);
    bool ok = code == 0 || code == GLOB_NOMATCH;
    int32_t before = data->n;
    for (size_t i = 0; code == 0 && ok && i < found.gl_pathc; i++)
        ok = is_beside(found.gl_pathv[i]) || open_data_part(data, found.gl_pathv[i], why, nwhy);
    if (code == 0)
        globfree(&found);
    if (ok && data->n > before)
        return true;
    if (ok || code != 0)
        snprintf(why, nwhy, "%s: %s", path, ok ? "no file matches this pattern" : "cannot be read");
    return false;
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

/* Forgets the steps' counts, since a step will be other sequences. */
static void forget_steps(struct data *data) {
    struct counts *counts = data->counts;
    if (!counts)
        return;
    pthread_mutex_lock(&counts->lock);
    for (int i = 0; i < STEPS; i++)
        counts->of[i].step = -1;
    pthread_mutex_unlock(&counts->lock);
}

/* Counts each sequence's targets that count, once, since a step's must be known before it starts. */
static bool count_labels(struct data *data, char *why, size_t nwhy) {
    int64_t context = data->m.context, n = data_sequences(data);
    if (!data->m.labels)
        return true;
    data->counted = calloc((size_t)n + 1, sizeof *data->counted);
    data->counts = malloc(sizeof *data->counts);
    if (!data->counted || !data->counts) {
        snprintf(why, nwhy, "out of memory");
        return false;
    }
    pthread_mutex_init(&data->counts->lock, NULL);
    forget_steps(data);
    for (const struct part *part = data->part; part < data->part + data->n; part++)
        for (int64_t i = 0; i < part->tokens.n; i++) {
            int64_t target = part->first + i - 1; /* whose target token i is */
            if (target >= 0 && target < n * context && npy_integer(&part->sides.labels.array, i) >= 0)
                data->counted[target / context]++;
        }
    return true;
}

struct data *data_open(const struct rt_model *m, const char *const *paths, uint64_t seed, char *why, size_t nwhy) {
    struct data *data = calloc(1, sizeof *data);
    if (!data) {
        snprintf(why, nwhy, "out of memory");
        return NULL;
    }
    data->m = *m;
    data->seed = seed;
    bool good = m->input != INPUT_INTEGERS || check_features(m, why, nwhy), text = m->input == INPUT_TOKENS && paths;
    for (; good && text && *paths; paths++)
        good = open_parts(data, *paths, why, nwhy);
    if (good && (data->n == 0 || (check_data_size(data, why, nwhy) && count_labels(data, why, nwhy))))
        return data;
    data_close(data);
    return NULL;
}

void data_close(struct data *data) {
    for (struct part *part = data->part; part < data->part + data->n; part++) {
        data_file_close(part->file);
        sides_close(&part->sides);
    }
    free(data->counted);
    free(data->counts);
    free(data->part);
    free(data);
}

/* Returns the files of all parts one after the other, of which some are NULL; i < data->n * FILES. */
enum { FILES = 1 + MOST_SIDES };
static const struct data_file *file_number(const struct data *data, int32_t i) {
    const struct part *part = &data->part[i / FILES];
    return i % FILES == 0 ? part->file : sides_file(&part->sides, i % FILES - 1);
}

bool data_same(const struct data *data, char *why, size_t nwhy) {
    for (int32_t i = 0; i < data->n * FILES; i++)
        if (file_number(data, i) && !data_file_same(file_number(data, i), why, nwhy))
            return false;
    return true;
}

void data_identity(const struct data *data, int64_t *bytes, uint64_t *hash) {
    *bytes = 0;
    *hash = data->n > 0 ? data->part[0].file->hash : 0;
    for (int32_t i = 0; i < data->n * FILES; i++) {
        const struct data_file *file = file_number(data, i);
        *bytes += file ? (int64_t)file->size : 0;
        *hash = file && i > 0 ? host_hash(*hash, file->hash) : *hash;
    }
}

/* ---- which sequences ---- */

int64_t data_sequences(const struct data *data) { return data->n > 0 ? (data->tokens - 1) / data->m.context : 0; }

void data_begin(struct data *data, int64_t step, int64_t sequence) {
    data->from_step = step;
    data->from_sequence = sequence;
    forget_steps(data);
}

void data_hold_out(struct data *data, int64_t sequences) {
    data->held_out = sequences;
    forget_steps(data);
}

/* Returns the number of sequences of a microbatch. */
static int64_t in_batch(const struct data *data) { return data->m.rows / data->m.context; }

/* Finds the first sequence of a validation's microbatch, and its weight, a divisor of the number of sequences in it.
 * Returns the number of microbatches. */
static int64_t find_held(const struct data *data, int64_t batch, int64_t *first, int64_t *count) {
    int64_t each = in_batch(data), full = data->held_out / each, left = data->held_out % each, n = full;
    *first = batch < full ? batch * each : 0;
    *count = batch < full ? each : 0;
    for (int64_t divisor = each; left > 0; divisor--)
        for (; each % divisor == 0 && divisor <= left; left -= divisor, n++)
            if (n == batch) {
                *first = data->held_out - left;
                *count = divisor;
            }
    return n;
}

int64_t data_steps(const struct data *data) {
    int64_t first, count, n = data->held_out > 0 ? find_held(data, -1, &first, &count) : 0;
    return n > 0 ? (n + data->m.batches - 1) / data->m.batches : 1;
}

static int64_t sequence_at(const struct data *data, int64_t step, int b, int64_t i);

/* Returns the targets that count in a microbatch. */
static int64_t labels_of_batch(const struct data *data, int64_t step, int b) {
    int64_t n = 0;
    if (!data->counted)
        return data->m.rows;
    for (int64_t i = 0; i < in_batch(data); i++)
        n += data->counted[sequence_at(data, step, b, i)];
    return n;
}

/* Returns the targets that count in a step. Counts them once. */
static int64_t labels_of_step(const struct data *data, int64_t step) {
    struct step_labels *of = &data->counts->of[step % STEPS];
    pthread_mutex_lock(&data->counts->lock);
    if (of->step != step) {
        *of = (struct step_labels){step, 0};
        for (int b = 0; b < data->m.batches; b++)
            of->n += labels_of_batch(data, step, b);
    }
    int64_t n = of->n;
    pthread_mutex_unlock(&data->counts->lock);
    return n;
}

/* Returns the targets over which a microbatch's loss is a mean: the step's, or its own. */
static int64_t labels_of_mean(const struct data *data, int64_t step, int b) {
    return data->m.update > 0 ? labels_of_batch(data, step, b) : labels_of_step(data, step);
}

bool data_unlabelled(const struct data *data, int64_t step) {
    return data->counted && data->held_out == 0 && labels_of_step(data, step) == 0;
}

void data_sum(const struct data *data, int64_t step, const float *loss, int32_t n, struct held_sum *sum) {
    int32_t pieces = n / data->m.batches;
    double mean = data->counted ? (double)labels_of_mean(data, step, 0) / data->m.batches : 0;
    for (int32_t b = 0; b < data->m.batches; b++) {
        int64_t first, count;
        double all = 0;
        find_held(data, step * data->m.batches + b, &first, &count);
        for (int32_t q = 0; q < pieces; q++)
            all += (double)loss[b * pieces + q];
        if (!data->counted) {
            sum->loss += count > 0 ? (double)count * all / pieces : 0;
            sum->weight += (double)count;
            continue;
        }
        double here = (double)labels_of_batch(data, step, b), part = (double)count / (double)in_batch(data);
        sum->loss += here > 0 && count > 0 ? part * (data->m.update > 0 ? here : mean) * all / pieces : 0;
        sum->weight += part * here;
    }
}

/* ---- microbatches ---- */

static uint64_t batch_key(const struct data *data, int64_t step, int b) {
    return host_hash(host_hash(data->seed, (uint64_t)step), (uint64_t)b);
}

/* Returns token i. A token that is not in the vocabulary ends the process, like a read past the end of a file
 * (data_file.c). If the file was overwritten while it was open, returns 0 instead, because data_same will report the
 * change. */
static int32_t token_below(const struct data *data, const struct part *part, int64_t i) {
    uint32_t id = token_at(&part->tokens, i);
    char why[PATH_MAX + 256];
    if (id < (uint32_t)data->m.vocab)
        return (int32_t)id;
    if (!data_file_same(part->file, why, sizeof why))
        return 0;
    say_token(data, part, i, why, sizeof why);
    fprintf(stderr, "pianola: error: %s\n", why);
    fault_tell(why);
    _exit(2);
}

static const struct part *part_with(const struct data *data, int64_t token) {
    int32_t from = 0, to = data->n;
    while (to - from > 1) {
        int32_t middle = from + (to - from) / 2;
        *(data->part[middle].first <= token ? &from : &to) = middle;
    }
    return &data->part[from];
}

/* Copies n rows of a part's files, from its token i on, to row `row` of a microbatch. */
static void read_sides(const struct data *data, const struct part *part, int64_t i, int64_t n, int64_t row, char *to) {
    for (int k = 0; k < data->m.ninputs; k++)
        side_rows(&part->sides.input[k], i, n,
                  to + data_input_at(&data->m, k) + row * data->m.input_of_units[k].columns * 4);
}

/* Reads a sequence's tokens, the target of each, which is the token after it or its label, and the inputs of units,
 * across files. The sequence becomes the microbatch's rows from `row` on. */
static void read_sequence(const struct data *data, int64_t sequence, int64_t row, char *to) {
    int64_t context = data->m.context, at = sequence * context;
    int32_t *token = (int32_t *)(void *)to + row, *target = token + data->m.rows;
    const struct part *part = part_with(data, at);
    for (int64_t i = 0; i <= context; i++) {
        while (at + i - part->first >= part->tokens.n)
            part++;
        int64_t from = at + i - part->first;
        int32_t id = token_below(data, part, from);
        if (i < context) {
            token[i] = id;
            read_sides(data, part, from, 1, row + i, to);
        }
        if (i > 0 && data->m.labels)
            side_rows(&part->sides.labels, from, 1, &target[i - 1]);
        else if (i > 0)
            target[i - 1] = id;
    }
}

/* Returns the number of a microbatch's i-th sequence. */
static int64_t sequence_at(const struct data *data, int64_t step, int b, int64_t i) {
    int64_t each = in_batch(data), first = 0, count = 0;
    uint64_t n = (uint64_t)data_sequences(data);
    uint64_t k = (uint64_t)(data->from_sequence + ((step - data->from_step) * data->m.batches + b) * each + i);
    if (data->held_out == 0)
        return (int64_t)shuffled(k % n, n, host_hash(data->seed, k / n));
    find_held(data, step * data->m.batches + b, &first, &count);
    return count > 0 ? first + i * count / each : 0;
}

static void read_window(const struct data *data, int64_t step, int b, char *to) {
    for (int64_t i = 0; i < in_batch(data); i++)
        read_sequence(data, sequence_at(data, step, b, i), i * data->m.context, to);
}

static int32_t random_token(const struct data *data, uint64_t key, int row) {
    return (int32_t)(host_hash(key, (uint64_t)row) % (uint64_t)data->m.vocab);
}

/* Draws tokens, and targets, of which with labels every fourth does not count. */
static void random_tokens(const struct data *data, uint64_t key, int32_t *token, int32_t *target) {
    for (int r = 0; r < data->m.rows; r++) {
        token[r] = random_token(data, key, r);
        target[r] = data->m.labels && r % 4 == 3 ? -1 : random_token(data, key, r + 1);
    }
}
static int64_t labels_of_random(const struct data *data) {
    return (int64_t)(data->m.rows - data->m.rows / 4) * (data->m.update > 0 ? 1 : data->m.batches);
}

static void integers(const struct data *data, uint64_t key, int b, float *x, float *y) {
    int64_t columns = data->m.features;
    memset(x, 0, data_half(&data->m));
    memset(y, 0, data_half(&data->m));
    for (int64_t r = 0; r < data->m.rows; r++) {
        int64_t at = r * columns + ((int64_t)b * data->m.rows + r) % columns;
        uint64_t h = host_hash(key, (uint64_t)r);
        x[at] = (float)(1 + h % 3);
        y[at] = (float)(1 + (h >> 32) % 3);
    }
}

/* Draws the inputs of units, if no file has them. */
static void random_inputs(const struct data *data, uint64_t key, char *to) {
    for (int k = 0; k < data->m.ninputs; k++) {
        const struct rt_input *input = &data->m.input_of_units[k];
        int32_t *integer = (int32_t *)(void *)(to + data_input_at(&data->m, k));
        float *real = (float *)(void *)integer;
        for (int64_t i = 0; i < (int64_t)data->m.rows * input->columns; i++) {
            uint64_t drawn = host_hash(host_hash(key, (uint64_t)k + 1), (uint64_t)i);
            if (input->floats)
                real[i] = (float)((double)(drawn >> 11) * 0x1p-52 - 1);
            else
                integer[i] = (int32_t)(drawn % (uint64_t)input->below);
        }
    }
}

void data_batch(const struct data *data, int64_t step, int b, void *memory, struct rt_batch *out) {
    char *to = memory;
    if (data->m.input == INPUT_TOKENS) {
        int64_t counted = data->m.labels ? data->n > 0 ? labels_of_mean(data, step, b) : labels_of_random(data) : 0;
        if (data->n > 0)
            read_window(data, step, b, to);
        else {
            random_tokens(data, batch_key(data, step, b), memory, (int32_t *)memory + data->m.rows);
            random_inputs(data, batch_key(data, step, b), to);
        }
        if (data->m.labels)
            memcpy(to + data_counted_at(&data->m), &counted, sizeof counted);
    } else if (data->m.input == INPUT_INTEGERS)
        integers(data, batch_key(data, step, b), b, memory, (float *)memory + (int64_t)data->m.rows * data->m.features);
    data_point(&data->m, memory, 0, out);
}
