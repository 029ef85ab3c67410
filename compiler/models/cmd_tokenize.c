/* `pianola tokenize`: turns text into a file of tokens, and back. */
#include "../../runtime/store/data_file.h"
#include "../../runtime/store/seconds.h"
#include "../../runtime/store/token_file.h"
#include "base/put_json.h"
#include "base/read_json.h"
#include "cli/command.h"
#include "cli/files.h"
#include "tokens.h"
#include <string.h>
#include <strings.h>
#include <unistd.h>

struct work {
    struct tokenizer *tokenizer;
    FILE *f;
    int width;
    int64_t ntokens, ndocuments, ncomposed, bytes; /* over the texts; ncomposed: documents that were not in NFC */
    int64_t done, all;                             /* bytes of the files read, and of all files */
    double begin, told;
};

/* ---- tokens out ---- */

static void print_token(struct work *work, uint32_t id) {
    uint16_t narrow = (uint16_t)id;
    if (work->ntokens++ == INT32_MAX)
        die("more than 2147483647 tokens, the most that one file can count: make several files");
    fwrite(work->width == 2 ? (void *)&narrow : &id, (size_t)work->width, 1, work->f);
}

static void tell_counts(struct work *work) {
    double now = seconds();
    if (now < work->told + 0.2 || !isatty(STDERR_FILENO))
        return;
    work->told = now;
    fprintf(stderr, "\033[Kpianola: %.0f of %.0f MB, %.1f MB/s\r", 1e-6 * (double)work->done, 1e-6 * (double)work->all,
            1e-6 * (double)work->done / (now - work->begin));
}

static void take_ids(void *with, const uint32_t *id, size_t n, size_t bytes) {
    struct work *work = with;
    int64_t before = work->done;
    for (size_t i = 0; i < n; i++)
        print_token(work, id[i]);
    work->done += (int64_t)bytes;
    if (work->done >> 18 != before >> 18) /* not for each word: reading the clock would take longer than the word */
        tell_counts(work);
}

static void put_items_around(struct work *work, const struct around *around) {
    for (int i = 0; i < around->n; i++)
        print_token(work, (uint32_t)around->id[i]);
}

/* Returns whether the tokens around texts put this token between any two texts. */
static bool separates(const struct around *front, const struct around *behind, int64_t end) {
    return (front->n > 0 && front->id[0] == end) || (behind->n > 0 && behind->id[behind->n - 1] == end);
}

static void add_document(struct work *work, const char *text, size_t n, const char *of) {
    int64_t end = end_of_text(work->tokenizer);
    const struct around *front = in_front_of_text(work->tokenizer), *behind = behind_text(work->tokenizer);
    if (work->ndocuments++ > 0) {
        if (end < 0 && behind->n == 0)
            die("%s: a second document, but the tokenizer has no token that ends a text, such as <|endoftext|>: give "
                "one "
                "file at a time",
                of);
        if (end >= 0 && !separates(front, behind, end))
            print_token(work, (uint32_t)end);
    }
    put_items_around(work, front);
    work->bytes += (int64_t)n;
    work->ncomposed += !encode(work->tokenizer, text, n, take_ids, work);
    put_items_around(work, behind);
}

/* ---- texts in ---- */

/* Adds the line's "text" as a document. Overwrites the line. */
static void add_line(struct work *work, char *line, size_t n, const char *where) {
    struct json_in json = {.file = where, .from = line, .at = line, .end = line + n}, *j = &json;
    const char *text = NULL;
    size_t size = 0;
    if (json_peek(j) == 0)
        return;
    for (json_open(j, '{'); json_more(j, '}');)
        if (strcmp(json_name(j), "text") == 0)
            text = json_text(j, &size);
        else
            json_skip(j);
    json_close(j);
    if (!text)
        json_die(j, "the object has no \"text\"");
    add_document(work, text, size, where);
}

static void add_lines(struct work *work, const char *s, size_t n, const char *path) {
    char *copy = NULL, where[PATH_MAX + 32];
    size_t cap = 0;
    for (size_t at = 0, number = 1, size; at < n; at += size + 1, number++) {
        const char *end = memchr(s + at, '\n', n - at);
        size = end ? (size_t)(end - s) - at : n - at;
        GROW(copy, cap, size + 1);
        memcpy(copy, s + at, size);
        copy[size] = 0;
        snprintf(where, sizeof where, "%s: line %zu", path, number);
        add_line(work, copy, size, where);
    }
}

static bool has_extension(const char *s, const char *end) {
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcasecmp(s + n - m, end) == 0;
}

/* Returns whether a file has a document per line, by its name or by its first line: data sets also call such files
 * .json or .txt. */
static bool has_lines(const struct data_file *file) {
    const char *path = file->path;
    bool named = has_extension(path, ".jsonl") || has_extension(path, ".ndjson"), has = data_file_has_lines(file);
    size_t at = data_file_begin(file);
    if (!named && !has && has_extension(path, ".json") && at < file->size && strchr("[{", file->text[at]))
        die("%s: is JSON, but not lines of JSON, each an object with a \"text\"; `jq -c '.[]' %s > %s` makes such "
            "lines of "
            "a list",
            path, path, format("%sl", path));
    if (!named && has)
        fprintf(stderr, "pianola: %s: each line is an object of JSON with a \"text\": a document\n", path);
    return named || has;
}

static void tokenize_file(struct work *work, const struct data_file *file, const char *path) {
    const char *text = file->text ? (const char *)file->text : "";
    if (has_lines(file))
        add_lines(work, text + data_file_begin(file), file->size - data_file_begin(file), path);
    else
        add_document(work, text, file->size, path);
}

static struct data_file *opened(const char *path) {
    char why[2 * PATH_MAX];
    if (strcmp(path, "-") == 0)
        die("-: the file is memory-mapped, which stdin cannot be; name a file");
    struct data_file *file = data_file_open(path, why, sizeof why);
    if (!file || !data_file_plain(file, why, sizeof why))
        die("%s", why);
    return file;
}

static void closed(struct data_file *file) {
    char why[2 * PATH_MAX];
    if (!data_file_same(file, why, sizeof why))
        die("%s", why);
    data_file_close(file);
}

static void print_counts(const struct work *work, const char *path, bool json) {
    double took = seconds() - work->begin, each = work->ntokens ? (double)work->bytes / (double)work->ntokens : 0;
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\033[K");
    if (json)
        printf("{\"schema\": 1, \"file\": %s, \"documents\": %lld, \"bytes\": %lld, \"tokens\": %lld, \"bits\": %d, "
               "\"vocabulary\": %u, \"bytes_per_token\": %.4g, \"composed\": %lld, \"seconds\": %.3f}\n",
               quoted(path), (long long)work->ndocuments, (long long)work->bytes, (long long)work->ntokens,
               8 * work->width, token_limit(work->tokenizer), each, (long long)work->ncomposed, took);
    else
        printf("%s: %lld document%s, %lld bytes, %lld tokens of %d bits, %.3g bytes a token, %.2f s, %.1f MB/s\n", path,
               (long long)work->ndocuments, work->ndocuments == 1 ? "" : "s", (long long)work->bytes,
               (long long)work->ntokens, 8 * work->width, each, took, 1e-6 * (double)work->bytes / took);
    if (work->ncomposed > 0)
        fprintf(stderr,
                "pianola: %lld of %lld documents were not in Unicode's NFC, which this tokenizer requires: they were "
                "converted, and decode to NFC\n",
                (long long)work->ncomposed, (long long)work->ndocuments);
}

static void tokenize(const struct settings *settings) {
    const char *path = settings->output;
    struct work work = {.tokenizer = read_tokenizer(settings->published.tokenizer)};
    struct data_file **files = NEW(struct data_file *, settings->nfiles);
    uint8_t head[TOKEN_HEAD] = {0};
    for (int i = 0; i < settings->nfiles; i++) {
        files[i] = opened(settings->file[i]);
        work.all += (int64_t)files[i]->size;
    }
    work.width = token_limit(work.tokenizer) <= 65536 ? 2 : 4;
    work.begin = seconds();
    work.f = begin_file(path);
    fwrite(head, 1, sizeof head, work.f);
    for (int i = 0; i < settings->nfiles; i++) {
        int64_t before = work.done;
        tokenize_file(&work, files[i], settings->file[i]);
        work.done = before + (int64_t)files[i]->size;
        closed(files[i]);
    }
    token_head(head, work.ntokens, work.width);
    rewind(work.f);
    fwrite(head, 1, sizeof head, work.f);
    end_file(work.f, path);
    print_counts(&work, path, settings->json);
}

/* ---- tokens to text ---- */

/* Reports the tokens left out: tokenize adds them around texts, so they are not part of a text. */
static void tell_left(const struct tokenizer *t, const int64_t *left) {
    int64_t end = end_of_text(t);
    for (int64_t id = 0; id < token_limit(t); id++) {
        const bool is[] = {is_around(in_front_of_text(t), id), is_around(behind_text(t), id), id == end};
        static const char *const where[] = {"in front of", "behind", "between"};
        struct text said = {0};
        for (int i = 0; i < 3; i++)
            if (is[i])
                put(&said, "%s%s", said.n ? " and " : "", where[i]);
        if (left[id] > 0)
            fprintf(stderr, "pianola: left out %lld times token %lld, which stands %s texts\n", (long long)left[id],
                    (long long)id, said.s);
    }
}

static void print_tokens(const struct tokenizer *t, const struct tokens *tokens, FILE *f) {
    const struct around *front = in_front_of_text(t), *behind = behind_text(t);
    int64_t *left = NEW(int64_t, token_limit(t)), end = end_of_text(t);
    struct text text = {0};
    for (int64_t i = 0; i < tokens->n; i++) {
        uint32_t id = token_at(tokens, i);
        if (id == end || is_around(front, id) || is_around(behind, id))
            left[id]++;
        else
            decode(t, id, &text);
        if (text.n >= 65536 || i + 1 == tokens->n) {
            fwrite(text.s, 1, text.n, f);
            text.n = 0;
        }
    }
    tell_left(t, left);
}

static void detokenize(const struct settings *settings) {
    const struct tokenizer *t = read_tokenizer(settings->published.tokenizer);
    const char *in = settings->file[0], *path = settings->output ? settings->output : "-";
    struct data_file *file = opened(in);
    struct tokens tokens;
    struct text text = {0};
    char why[2 * PATH_MAX];
    if (!read_tokens(file->text, file->size, &tokens, in, why, sizeof why))
        die("%s", why);
    for (int64_t i = 0; i < tokens.n; i++, text.n = 0) /* check before anything is written */
        if (!decode(t, token_at(&tokens, i), &text))
            die("%s: token %lld is %u, which %s does not have: another tokenizer made this file", in, (long long)i,
                token_at(&tokens, i), settings->published.tokenizer);
    FILE *f = strcmp(path, "-") == 0 ? stdout : begin_file(path);
    print_tokens(t, &tokens, f);
    closed(file);
    if (f != stdout)
        end_file(f, path);
}

int cmd_tokenize(const struct settings *settings) {
    if (!settings->published.tokenizer)
        die("`tokenize` needs --tokenizer FILE: the tokenizer.json of the model, or its GGUF file");
    if (settings->published.decode && settings->nfiles > 1)
        die("`tokenize --decode` takes one file of tokens, but got '%s' too", settings->file[1]);
    if (settings->published.decode && settings->json)
        die("--json prints figures, but --decode has none");
    if (!settings->published.decode && !settings->output)
        die("`tokenize` needs -o FILE");
    check_destination(settings->output, settings);
    (settings->published.decode ? detokenize : tokenize)(settings);
    return 0;
}
