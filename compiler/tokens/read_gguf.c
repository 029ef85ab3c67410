/* The tokenizer that a GGUF file of a model carries in its metadata (github.com/ggml-org/ggml, docs/gguf.md). The file
 * is mapped, as it may be large, and only its metadata are looked at. All lengths are checked against the file's. */
#include "tokenizer.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { UINT8, INT8, UINT16, INT16, UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY, UINT64, INT64, FLOAT64, NTYPES };
static const uint8_t sizes[NTYPES] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8}; /* 0: of any */
enum { NORMAL = 1, UNUSED = 5 }; /* kinds of tokens that are no special ones */

struct gguf {
    const char *file, *from, *at, *end;
};
struct value {
    uint32_t type; /* of an array: its items' */
    bool array;
    uint64_t n;
    const char *at;
};

/* How a model says that its text is cut: the name that converters give it, and what tokenizer.json of such models has.
 */
static const struct way {
    const char *name, *first, *second;
    bool whole_words, composed;
} ways[] = {
    {"gpt-2", gpt2_pattern, NULL, false, false},
    {"smollm", "\\p{N}", gpt2_pattern, false, false},
    {"llama-bpe",
     "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
     "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|"
     "\\s+(?!\\S)|\\s+",
     NULL, true, false},
    {"qwen2",
     "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|"
     "\\s+(?!\\S)|\\s+",
     NULL, false, true},
};
enum { NWAYS = sizeof ways / sizeof *ways };

static const char *bytes_at(struct gguf *g, uint64_t n) {
    const char *at = g->at;
    if (n > (uint64_t)(g->end - at))
        die("%s: ends within its metadata, at byte %td: it was cut off", g->file, g->end - g->from);
    g->at += n;
    return at;
}

static uint64_t number_at(struct gguf *g, size_t width) {
    uint64_t x = 0;
    memcpy(&x, bytes_at(g, width), width); /* this machine is little-endian, as the file is */
    return x;
}

static struct bytes string_at(struct gguf *g) {
    uint64_t n = number_at(g, 8);
    return (struct bytes){bytes_at(g, n), n};
}

static struct value value_at(struct gguf *g) {
    struct value v = {.type = (uint32_t)number_at(g, 4), .n = 1};
    if ((v.array = v.type == ARRAY)) {
        v.type = (uint32_t)number_at(g, 4);
        v.n = number_at(g, 8);
    }
    if (v.type >= NTYPES || v.type == ARRAY)
        die("%s: byte %td: type %u of a value is none that is known", g->file, g->at - g->from, v.type);
    v.at = g->at;
    if (v.type != STRING && v.n > (uint64_t)(g->end - g->at))
        v.n = (uint64_t)(g->end - g->at) + 1; /* no product overflows, and it is too many still */
    if (v.type != STRING)
        bytes_at(g, v.n * sizes[v.type]);
    else
        for (uint64_t i = 0; i < v.n; i++)
            string_at(g);
    return v;
}

static struct value find(const struct gguf *g, const char *key) {
    struct gguf look = {g->file, g->from, g->from, g->end};
    bytes_at(&look, 4);
    uint64_t version = number_at(&look, 4);
    if (version != 2 && version != 3)
        die("%s: GGUF of version %llu; 2 and 3 are read", g->file, (unsigned long long)version);
    number_at(&look, 8); /* tensors */
    for (uint64_t n = number_at(&look, 8); n > 0; n--) {
        struct bytes name = string_at(&look);
        struct value v = value_at(&look);
        if (name.n == strlen(key) && memcmp(name.s, key, name.n) == 0)
            return v;
    }
    return (struct value){0};
}

/* Reads an array of strings from its begin; dies when the file has no such key. */
static uint64_t begin_strings(struct gguf *g, const char *key) {
    struct value v = find(g, key);
    if (!v.array || v.type != STRING)
        die("%s: has no %s, a list of strings", g->file, key);
    g->at = v.at;
    return v.n;
}

static const char *string_of(struct gguf *g, const char *key) {
    struct value v = find(g, key);
    if (v.array || v.type != STRING || !v.at)
        die("%s: has no %s: it carries no tokenizer that is known", g->file, key);
    g->at = v.at;
    struct bytes s = string_at(g);
    return format("%.*s", s.n < 100 ? (int)s.n : 100, s.s);
}

static void add_way(struct tokenizer *t, const char *name) {
    struct text known = {0};
    for (const struct way *way = ways; way < ways + NWAYS; way++) {
        put(&known, "%s%s", way == ways ? "" : ", ", way->name);
        if (strcmp(way->name, name) != 0)
            continue;
        t->whole_words = way->whole_words;
        t->composed = way->composed;
        add_split(t, way->first);
        if (way->second)
            add_split(t, way->second);
        return;
    }
    die("%s: its text is cut as '%s' says, in tokenizer.ggml.pre; known are %s. The model's tokenizer.json says more: "
        "give that",
        t->file, tame(name), known.s);
}

struct tokenizer *tokenizer_of_gguf(const char *file, const char *s, size_t n) {
    struct gguf gguf = {file, s, s, s + n}, *g = &gguf;
    struct tokenizer *t = new_tokenizer(file);
    const char *model = string_of(g, "tokenizer.ggml.model");
    if (strcmp(model, "gpt2") != 0)
        die("%s: a tokenizer of model '%s'; only gpt2, byte-level BPE, is read", file, tame(model));
    add_way(t, string_of(g, "tokenizer.ggml.pre"));
    struct value kinds = find(g, "tokenizer.ggml.token_type"), end = find(g, "tokenizer.ggml.eos_token_id");
    uint64_t ntokens = begin_strings(g, "tokenizer.ggml.tokens");
    if (kinds.at && (!kinds.array || kinds.n != ntokens || sizes[kinds.type] != 4))
        die("%s: tokenizer.ggml.token_type is no list of %llu numbers, one of each token", file,
            (unsigned long long)ntokens);
    for (uint64_t i = 0; i < ntokens; i++) {
        int32_t kind = NORMAL;
        if (kinds.at)
            memcpy(&kind, kinds.at + 4 * i, 4);
        struct bytes token = string_at(g);
        add_token(t, (int64_t)i, token.s, token.n, kind != NORMAL && kind != UNUSED);
    }
    for (uint64_t left = begin_strings(g, "tokenizer.ggml.merges"); left > 0; left--) {
        struct bytes line = string_at(g);
        add_merge_line(t, line.s, line.n, file);
    }
    if (end.at && !end.array && sizes[end.type] == 4) {
        uint32_t id;
        memcpy(&id, end.at, 4);
        t->last = id;
    }
    return t;
}

struct tokenizer *read_gguf(const char *path) {
    struct stat st;
    char magic[4];
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    struct tokenizer *t = NULL;
    if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && pread(fd, magic, 4, 0) == 4 &&
        memcmp(magic, "GGUF", 4) == 0) {
        void *s = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (s == MAP_FAILED)
            die("%s: %s", path, strerror(errno));
        t = tokenizer_of_gguf(path, s, (size_t)st.st_size); /* its names point there */
    }
    if (fd >= 0)
        close(fd);
    return t;
}
