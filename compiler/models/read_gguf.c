/* Reads the tokenizer from the metadata of a model's GGUF file. The file is mapped, since it may be large. */
#include "base/gguf_meta.h"
#include "tokenizer.h"
#include <string.h>

enum { NORMAL = 1, UNUSED = 5 }; /* kinds of tokens that are not special */

/* Ways to cut text: the name that converters use, and the expressions in such models' tokenizer.json */
static const struct way {
    const char *name, *first, *second;
    bool whole_words, composed, begins; /* begins: each text begins with a token, unless the file says otherwise */
} ways[] = {
    {"gpt-2", gpt2_pattern, NULL, false, false, false},
    {"smollm", "\\p{N}", gpt2_pattern, false, false, false},
    {"llama-bpe",
     "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
     "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|"
     "\\s+(?!\\S)|\\s+",
     NULL, true, false, true},
    {"qwen2",
     "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|"
     "\\s+(?!\\S)|\\s+",
     NULL, false, true, false},
};
enum { NWAYS = sizeof ways / sizeof *ways };

/* Starts reading an array of strings; dies if the file has no such key. Returns its length. */
static uint64_t begin_strings(struct gguf_meta *g, const char *key) {
    struct gguf_value v = gguf_find(g, key);
    if (!v.array || v.type != GGUF_STRING)
        die("%s: has no %s, a list of strings", g->file, key);
    g->at = v.at;
    return v.n;
}

static const char *string_of(const struct gguf_meta *g, const char *key) {
    const char *s = gguf_string(g, key);
    if (!s)
        die("%s: has no %s: it has no tokenizer that we know", g->file, key);
    return s;
}

static bool add_way(struct tokenizer *t, const char *name) {
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
        return way->begins;
    }
    die("%s: its text is cut as '%s' says, in tokenizer.ggml.pre; known are %s. The model's tokenizer.json says more: "
        "give that",
        t->file, tame(name), known.s);
}

const char *const *gguf_patterns(const char *pre) {
    const char **pattern = NEW(const char *, 3);
    for (const struct way *way = ways; way < ways + NWAYS; way++)
        if (strcmp(way->name, pre) == 0) {
            pattern[0] = way->first;
            pattern[1] = way->second;
        }
    return pattern;
}

/* Returns a token's number; -1: none. */
static int64_t token_number(struct gguf_value v) {
    uint32_t id;
    if (!v.at || v.array || gguf_sizes[v.type] != 4)
        return -1;
    memcpy(&id, v.at, sizeof id);
    return id;
}

/* Adds the token of this kind, bos or eos, if the file says that each text has it. Also adds it if the file is silent
 * and such models usually have it. */
static void add_said(struct tokenizer *t, const struct gguf_meta *g, struct around *around, bool mostly,
                     const char *kind) {
    const char *key = format("tokenizer.ggml.%s_token_id", kind), *adds = format("tokenizer.ggml.add_%s_token", kind);
    int64_t id = token_number(gguf_find(g, key));
    bool said = gguf_number(g, adds, 0) != 0;
    if (said && id < 0)
        die("%s: %s is true, but there is no %s", t->file, adds, key);
    if (id >= 0 && (said || (mostly && !gguf_find(g, adds).at)))
        add_around(t, around, NULL, id);
}

struct tokenizer *tokenizer_of_gguf(const char *file, const char *s, size_t n) {
    struct gguf_meta gguf = {file, s, s, s + n}, *g = &gguf;
    struct tokenizer *t = new_tokenizer(file);
    const char *model = string_of(g, "tokenizer.ggml.model");
    if (strcmp(model, "gpt2") != 0)
        die("%s: a tokenizer of model '%s'; only gpt2, byte-level BPE, is read", file, tame(model));
    bool begins = add_way(t, string_of(g, "tokenizer.ggml.pre"));
    struct gguf_value kinds = gguf_find(g, "tokenizer.ggml.token_type"),
                      end = gguf_find(g, "tokenizer.ggml.eos_token_id");
    uint64_t ntokens = begin_strings(g, "tokenizer.ggml.tokens");
    if (kinds.at && (!kinds.array || kinds.n != ntokens || gguf_sizes[kinds.type] != 4))
        die("%s: tokenizer.ggml.token_type is not a list of %llu numbers, one per token", file,
            (unsigned long long)ntokens);
    for (uint64_t i = 0; i < ntokens; i++) {
        int32_t kind = NORMAL;
        if (kinds.at)
            memcpy(&kind, kinds.at + 4 * i, 4);
        struct gguf_bytes token = gguf_string_at(g);
        add_token(t, (int64_t)i, token.s, token.n, kind != NORMAL && kind != UNUSED);
    }
    for (uint64_t left = begin_strings(g, "tokenizer.ggml.merges"); left > 0; left--) {
        struct gguf_bytes line = gguf_string_at(g);
        add_merge_line(t, line.s, line.n, file);
    }
    t->last = token_number(end);
    t->first = token_number(gguf_find(g, "tokenizer.ggml.bos_token_id"));
    add_said(t, g, &t->front, begins, "bos");
    add_said(t, g, &t->behind, false, "eos");
    return t;
}

struct tokenizer *read_gguf(const char *path) {
    struct gguf_meta g;
    return gguf_map(path, &g) ? tokenizer_of_gguf(path, g.from, (size_t)(g.end - g.from)) : NULL;
}
