/* Writes a GGUF file's tokenizer as Hugging Face's files: tokenizer.json, which defines how text becomes tokens, and
 * tokenizer_config.json, which names the tokens that begin and end texts, and has the template for chats. */
#include "base/gguf_meta.h"
#include "base/put_json.h"
#include "tokenizer.h"
#include <string.h>

enum { CONTROL = 3, USER_DEFINED = 4 };

static const char *token_text(const struct tokenizer *t, int64_t id) {
    const struct bytes *name = &t->token[id].name;
    return format("%.*s", (int)name->n, name->s);
}

/* Prints items of a TemplateProcessing, each followed by a comma. */
static void put_around(struct text *out, const struct tokenizer *t, const struct around *around, int sequence) {
    for (int i = 0; i < around->n; i++)
        put(out, "{\"SpecialToken\": {\"id\": %s, \"type_id\": %d}}, ", quoted(token_text(t, around->id[i])), sequence);
}

static void put_sequence(struct text *out, const struct tokenizer *t, const char *name, int sequence) {
    put_around(out, t, &t->front, sequence);
    put(out, "{\"Sequence\": {\"id\": \"%s\", \"type_id\": %d}}, ", name, sequence);
    put_around(out, t, &t->behind, sequence);
    out->n -= 2; /* the last comma */
}

static void put_post_processor(struct text *out, const struct tokenizer *t) {
    const struct around *around[] = {&t->front, &t->behind};
    int n = 0;
    if (t->front.n + t->behind.n == 0) {
        put_word(out,
                 "{\"type\": \"ByteLevel\", \"add_prefix_space\": true, \"trim_offsets\": false, \"use_regex\": true}");
        return;
    }
    put_word(out, "{\"type\": \"TemplateProcessing\", \"single\": [");
    put_sequence(out, t, "A", 0);
    put_word(out, "], \"pair\": [");
    put_sequence(out, t, "A", 0);
    put_word(out, ", ");
    put_sequence(out, t, "B", 1);
    put_word(out, "], \"special_tokens\": {");
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < around[k]->n; i++) {
            const char *name = quoted(token_text(t, around[k]->id[i]));
            if (k == 0 || !is_around(&t->front, around[k]->id[i]))
                put(out, "%s%s: {\"id\": %s, \"ids\": [%lld], \"tokens\": [%s]}", n++ ? ", " : "", name, name,
                    (long long)around[k]->id[i], name);
        }
    put_word(out, "}}");
}

static void put_pre_tokenizer(struct text *out, const char *const *pattern) {
    put_word(out, "{\"type\": \"Sequence\", \"pretokenizers\": [");
    for (; *pattern; pattern++)
        put(out, "{\"type\": \"Split\", \"pattern\": {\"Regex\": %s}, \"behavior\": \"Isolated\", \"invert\": false}, ",
            quoted(*pattern));
    put_word(out,
             "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true, \"use_regex\": false}]}");
}

static void put_added(struct text *out, const struct tokenizer *t, struct gguf_value kinds) {
    int n = 0;
    for (size_t i = 0; i < t->ntokens && kinds.at; i++) {
        int32_t kind;
        memcpy(&kind, kinds.at + 4 * i, 4);
        if (kind == CONTROL || kind == USER_DEFINED)
            put(out,
                "%s\n    {\"id\": %zu, \"content\": %s, \"single_word\": false, \"lstrip\": false, \"rstrip\": false, "
                "\"normalized\": false, \"special\": %s}",
                n++ ? "," : "", i, quoted(token_text(t, (int64_t)i)), kind == CONTROL ? "true" : "false");
    }
}

static void put_model(struct text *out, const struct tokenizer *t, struct gguf_meta *g) {
    struct gguf_value merges = gguf_find(g, "tokenizer.ggml.merges");
    put(out,
        "  \"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": null, \"continuing_subword_prefix\": "
        "null,\n"
        "    \"end_of_word_suffix\": null, \"fuse_unk\": false, \"byte_fallback\": false, \"ignore_merges\": %s,\n"
        "    \"vocab\": {",
        t->whole_words ? "true" : "false");
    for (size_t i = 0; i < t->ntokens; i++)
        put(out, "%s\n      %s: %zu", i ? "," : "", quoted(token_text(t, (int64_t)i)), i);
    put_word(out, "\n    },\n    \"merges\": [");
    g->at = merges.at;
    for (uint64_t i = 0; i < merges.n; i++) {
        struct gguf_bytes line = gguf_string_at(g);
        put(out, "%s\n      %s", i ? "," : "", quoted(format("%.*s", (int)line.n, line.s)));
    }
    put_word(out, "\n    ]\n  }\n}\n");
}

struct text tokenizer_json(const struct tokenizer *t, const char *gguf) {
    struct gguf_meta g;
    struct text out = {0};
    if (!gguf_map(gguf, &g))
        die("%s: is not a GGUF file", gguf);
    put_word(&out, "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n  \"added_tokens\": [");
    put_added(&out, t, gguf_find(&g, "tokenizer.ggml.token_type"));
    put(&out, "\n  ],\n  \"normalizer\": %s,\n  \"pre_tokenizer\": ", t->composed ? "{\"type\": \"NFC\"}" : "null");
    put_pre_tokenizer(&out, gguf_patterns(gguf_string(&g, "tokenizer.ggml.pre")));
    put_word(&out, ",\n  \"post_processor\": ");
    put_post_processor(&out, t);
    put_word(&out, ",\n  \"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, \"trim_offsets\": true, "
                   "\"use_regex\": true},\n");
    put_model(&out, t, &g);
    return out;
}

struct text tokenizer_config(const struct tokenizer *t, const char *gguf, int context) {
    static const char *const named[][2] = {{"bos", "bos"}, {"eos", "eos"}, {"unk", "unknown"}, {"pad", "padding"}};
    struct gguf_meta g;
    struct text out = {0};
    if (!gguf_map(gguf, &g))
        die("%s: is not a GGUF file", gguf);
    put(&out, "{\n  \"tokenizer_class\": \"PreTrainedTokenizerFast\",\n  \"clean_up_tokenization_spaces\": false,\n");
    for (int i = 0; i < 4; i++) {
        double id = gguf_number(&g, format("tokenizer.ggml.%s_token_id", named[i][1]), -1);
        if (id >= 0 && id < (double)t->ntokens)
            put(&out, "  \"%s_token\": %s,\n", named[i][0], quoted(token_text(t, (int64_t)id)));
    }
    struct gguf_value chat = gguf_find(&g, "tokenizer.chat_template");
    if (chat.at && chat.type == GGUF_STRING && !chat.array) {
        g.at = chat.at;
        struct gguf_bytes template = gguf_string_at(&g); /* gguf_string truncates, since it is meant for names */
        put(&out, "  \"chat_template\": %s,\n", quoted_bytes(template.s, template.n));
    }
    put(&out, "  \"model_max_length\": %d\n}\n", context);
    return out;
}

int64_t begin_of_text(const struct tokenizer *t) { return t->first; }
int64_t end_of_model(const struct tokenizer *t) { return t->last >= 0 ? t->last : t->end; }
