/* Reads tokenizers in Hugging Face's files: tokenizer.json, or vocab.json and merges.txt. Members of an object come in
 * any order, so an object is judged at its end. Anything unsupported that would change tokens is refused by name. */
#include "base/read_file.h"
#include "base/read_json.h"
#include "tokenizer.h"
#include <string.h>
#include <sys/stat.h>

static const char *shown_text(const char *s) { return s ? format("'%s'", tame(s)) : "nothing"; }
static bool is(const char *s, const char *word) { return s && strcmp(s, word) == 0; }

/* ---- normalizer ---- */

static void read_normalizer(struct json_in *j, struct tokenizer *t, int depth) {
    const char *type = NULL;
    bool list = false;
    if (json_peek(j) != '{') {
        if (json_true(j)) /* null: none */
            json_die(j, "expected a normalizer or null");
        return;
    }
    for (json_open(j, '{'); json_more(j, '}');) {
        const char *name = json_name(j);
        if (is(name, "type"))
            type = json_string_or_null(j);
        else if (is(name, "normalizers") && depth < 8) {
            list = true;
            for (json_open(j, '['); json_more(j, ']');)
                read_normalizer(j, t, depth + 1);
        } else
            json_skip(j);
    }
    if (is(type, "NFC"))
        t->composed = true;
    else if (!list || !is(type, "Sequence"))
        json_die(j, "a normalizer of type %s; only NFC is read, or none", shown_text(type));
}

/* ---- pre_tokenizer ---- */

struct pre {
    const char *type, *pattern, *behavior;
    bool list, invert, prefix_space, no_regex, digits;
};

/* Reads {"Regex": …} or {"String": …}; the string is escaped to match itself. */
static const char *read_pattern(struct json_in *j) {
    const char *pattern = NULL;
    for (json_open(j, '{'); json_more(j, '}');) {
        const char *name = json_name(j), *s = json_string_or_null(j);
        struct text quoted = {0};
        for (const char *c = s; c && *c; c++)
            put(&quoted, strchr("\\()[]{}|*+?^$.", *c) ? "\\%c" : "%c", *c);
        pattern = is(name, "Regex") ? s : is(name, "String") ? quoted.s : NULL;
    }
    if (!pattern)
        json_die(j, "a pattern that is neither Regex nor String");
    return pattern;
}

static void read_pre(struct json_in *j, struct tokenizer *t, bool *bytes, int depth);

static void read_pre_member(struct json_in *j, struct tokenizer *t, struct pre *pre, bool *bytes, int depth) {
    const char *name = json_name(j);
    if (is(name, "type"))
        pre->type = json_string_or_null(j);
    else if (is(name, "pretokenizers") && depth < 8) {
        pre->list = true;
        for (json_open(j, '['); json_more(j, ']');)
            read_pre(j, t, bytes, depth + 1);
    } else if (is(name, "pattern"))
        pre->pattern = read_pattern(j);
    else if (is(name, "behavior"))
        pre->behavior = json_string_or_null(j);
    else if (is(name, "invert"))
        pre->invert = json_true(j);
    else if (is(name, "add_prefix_space"))
        pre->prefix_space = json_true(j);
    else if (is(name, "use_regex"))
        pre->no_regex = !json_true(j);
    else if (is(name, "individual_digits"))
        pre->digits = json_true(j);
    else
        json_skip(j);
}

/* Adds a pre_tokenizer's expression. Behaviours differ in what becomes of the matches. With Isolated, matches are words
 * of their own, and so is the text between them. With Removed and inverted, the text between matches is removed; an
 * expression that matches all text leaves none. */
static void finish_pre(const struct json_in *j, struct tokenizer *t, const struct pre *pre, bool *bytes) {
    if (is(pre->type, "Sequence") && pre->list)
        return;
    if (*bytes)
        json_die(j, "a pre_tokenizer of type %s after ByteLevel, which must be the last", shown_text(pre->type));
    if (is(pre->type, "ByteLevel")) {
        *bytes = true;
        if (pre->prefix_space)
            json_die(j, "ByteLevel with add_prefix_space: the text would not decode to itself; set it to false");
        if (!pre->no_regex)
            add_split(t, gpt2_pattern);
    } else if (is(pre->type, "Digits"))
        add_split(t, pre->digits ? "\\p{N}" : "\\p{N}+");
    else if (is(pre->type, "Split") && pre->pattern) {
        if (!is(pre->behavior, "Isolated") && !(is(pre->behavior, "Removed") && pre->invert))
            json_die(j, "Split with behavior %s; only Isolated is read, or Removed and inverted",
                     shown_text(pre->behavior));
        add_split(t, pre->pattern);
    } else
        json_die(j, "a pre_tokenizer of type %s; only Split, Digits, ByteLevel and Sequence are read",
                 shown_text(pre->type));
}

static void read_pre(struct json_in *j, struct tokenizer *t, bool *bytes, int depth) {
    struct pre pre = {0};
    if (json_peek(j) != '{')
        json_die(j, "no pre_tokenizer: this is not byte-level BPE");
    for (json_open(j, '{'); json_more(j, '}');)
        read_pre_member(j, t, &pre, bytes, depth);
    finish_pre(j, t, &pre, bytes);
}

/* ---- model ---- */

static void read_vocab(struct json_in *j, struct tokenizer *t) {
    for (json_open(j, '{'); json_more(j, '}');) {
        size_t n;
        const char *name = json_any_name(j, &n);
        add_token(t, json_number(j), name, n, false);
    }
}

void add_merge_line(struct tokenizer *t, const char *line, size_t n, const char *where) {
    const char *blank = memchr(line, ' ', n);
    if (!blank || memchr(blank + 1, ' ', n - (size_t)(blank - line) - 1))
        die("%s: merge %zu: expected two tokens with a blank between them: '%s'", where, t->nsaid,
            tame(format("%.*s", (int)n, line)));
    size_t left = (size_t)(blank - line);
    add_merge(t, (struct bytes){line, left}, (struct bytes){blank + 1, n - left - 1});
}

static void read_merges(struct json_in *j, struct tokenizer *t) {
    struct bytes part[2];
    for (json_open(j, '['); json_more(j, ']');) {
        if (json_peek(j) == '"') {
            const char *line = json_text(j, &part[0].n);
            add_merge_line(t, line, part[0].n, j->file);
            continue;
        }
        int n = 0;
        for (json_open(j, '['); json_more(j, ']'); n++) {
            if (n == 2)
                json_die(j, "a merge of more than two tokens");
            part[n].s = json_text(j, &part[n].n);
        }
        if (n != 2)
            json_die(j, "a merge of fewer than two tokens");
        add_merge(t, part[0], part[1]);
    }
}

static void read_merges_model(struct json_in *j, struct tokenizer *t) {
    static const char *const absent[] = {"dropout", "continuing_subword_prefix", "end_of_word_suffix"};
    const char *type = "BPE"; /* older files have no type */
    bool vocab = false, merges = false;
    for (json_open(j, '{'); json_more(j, '}');) {
        const char *name = json_name(j);
        if (is(name, "type") && !is(type = json_string_or_null(j), "BPE"))
            json_die(j, "a model of type %s; only BPE can be read", shown_text(type));
        else if (is(name, "type"))
            continue;
        else if (is(name, "vocab") && json_peek(j) == '{') {
            vocab = true;
            read_vocab(j, t);
        } else if (is(name, "merges")) {
            merges = true;
            read_merges(j, t);
        } else if (is(name, "ignore_merges"))
            t->whole_words = json_true(j);
        else if (is(name, "byte_fallback")) {
            if (json_true(j))
                json_die(j, "byte_fallback, which byte-level BPE does not have");
        } else {
            char begin = json_peek(j);
            const char *from = j->at;
            json_skip(j);
            for (int i = 0; i < 3; i++)
                if (is(name, absent[i]) && begin != 'n' && j->at - from > 2) /* neither null nor "" */
                    json_die(j, "%s, which is not read", name);
        }
    }
    if (!vocab || !merges)
        json_die(j, "a model without %s", vocab ? "merges" : "a vocabulary");
}

/* ---- files ---- */

static void read_added(struct json_in *j, struct tokenizer *t) {
    for (json_open(j, '['); json_more(j, ']');) {
        int64_t id = -1;
        const char *name = NULL;
        size_t n = 0;
        for (json_open(j, '{'); json_more(j, '}');) {
            const char *member = json_name(j);
            if (is(member, "id"))
                id = json_number(j);
            else if (is(member, "content") && json_peek(j) == '"')
                name = json_text(j, &n);
            else
                json_skip(j);
        }
        if (id < 0 || !name)
            json_die(j, "an added token without id or content");
        add_token(t, id, name, n, true);
    }
}

/* ---- post_processor ---- */

struct template_id {
    const char *name;
    int64_t id; /* -1: not given */
};
struct template_ids {
    struct template_id *at;
    size_t n, cap;
};

/* Reads a template for one text: the tokens before and after it. */
static void read_template(struct json_in *j, struct tokenizer *t) {
    bool text = false;
    if (t->front.n + t->behind.n > 0)
        json_die(j, "a post_processor with two templates; one is read");
    for (json_open(j, '['); json_more(j, ']');) {
        for (json_open(j, '{'); json_more(j, '}');) {
            const char *what = json_name(j), *id = NULL;
            for (json_open(j, '{'); json_more(j, '}');)
                if (is(json_name(j), "id"))
                    id = json_string_or_null(j);
                else
                    json_skip(j);
            if (is(what, "SpecialToken") && !id)
                json_die(j, "a SpecialToken without id");
            if (is(what, "SpecialToken"))
                add_around(t, text ? &t->behind : &t->front, id, -1);
            else if (text)
                json_die(j, "a post_processor that has a text twice");
            else
                text = true;
        }
    }
    if (!text)
        json_die(j, "a post_processor whose template has no text");
}

/* Reads {"name": {"ids": [id], …}, …}: the tokens that a template's names stand for, if not the tokens with these
 * names. */
static void read_template_ids(struct json_in *j, struct template_ids *ids) {
    for (json_open(j, '{'); json_more(j, '}');) {
        GROW(ids->at, ids->cap, ids->n + 1);
        ids->at[ids->n] = (struct template_id){json_name(j), -1};
        for (json_open(j, '{'); json_more(j, '}');) {
            if (!is(json_name(j), "ids")) {
                json_skip(j);
                continue;
            }
            for (json_open(j, '['); json_more(j, ']');) {
                if (ids->at[ids->n].id >= 0)
                    json_die(j, "a post_processor in which '%s' stands for several tokens; name them in the template",
                             tame(ids->at[ids->n].name));
                ids->at[ids->n].id = json_number(j);
            }
        }
        ids->n++;
    }
}

static void name_template_ids(struct around *around, const struct template_ids *ids) {
    for (int i = 0; i < around->n; i++)
        for (size_t k = 0; k < ids->n; k++)
            if (is(ids->at[k].name, around->name[i]))
                around->id[i] = ids->at[k].id;
}

static void read_post(struct json_in *j, struct tokenizer *t, int depth) {
    static const char *const read[] = {"Sequence", "ByteLevel", "TemplateProcessing"};
    const char *type = NULL;
    struct template_ids ids = {0};
    bool known = false;
    if (json_peek(j) != '{') {
        if (json_true(j)) /* null: none */
            json_die(j, "expected a post_processor or null");
        return;
    }
    for (json_open(j, '{'); json_more(j, '}');) {
        const char *name = json_name(j);
        if (is(name, "type"))
            type = json_string_or_null(j);
        else if (is(name, "single") && json_peek(j) == '[')
            read_template(j, t);
        else if (is(name, "special_tokens") && json_peek(j) == '{')
            read_template_ids(j, &ids);
        else if (is(name, "processors") && depth < 8)
            for (json_open(j, '['); json_more(j, ']');)
                read_post(j, t, depth + 1);
        else
            json_skip(j);
    }
    for (int i = 0; i < 3; i++)
        known |= is(type, read[i]);
    if (!known)
        json_die(j, "a post_processor of type %s; ByteLevel, TemplateProcessing and their Sequence are read, or none",
                 shown_text(type));
    if (is(type, "TemplateProcessing")) {
        name_template_ids(&t->front, &ids);
        name_template_ids(&t->behind, &ids);
    }
}

struct tokenizer *tokenizer_of_json(const char *file, char *s, size_t n) {
    struct tokenizer *t = new_tokenizer(file);
    struct json_in json = {.file = file, .from = s, .at = s, .end = s + n}, *j = &json;
    bool bytes = false, model = false;
    for (json_open(j, '{'); json_more(j, '}');) {
        const char *name = json_name(j);
        if (is(name, "normalizer"))
            read_normalizer(j, t, 0);
        else if (is(name, "pre_tokenizer"))
            read_pre(j, t, &bytes, 0);
        else if (is(name, "added_tokens"))
            read_added(j, t);
        else if (is(name, "post_processor"))
            read_post(j, t, 0);
        else if (is(name, "model")) {
            model = true;
            read_merges_model(j, t);
        } else
            json_skip(j);
    }
    json_close(j);
    if (!model || !bytes)
        json_die(j, "no %s: this is not byte-level BPE", model ? "ByteLevel in pre_tokenizer" : "model");
    return t;
}

/* Reads vocab.json and merges.txt, which do not specify how text is cut: such files are from GPT-2 or its time. */
static struct tokenizer *tokenizer_of_folder(const char *folder) {
    struct tokenizer *t = new_tokenizer(folder);
    size_t n;
    const char *file = format("%s/vocab.json", folder), *merges = format("%s/merges.txt", folder);
    char *s = read_file(file, &n);
    struct json_in json = {.file = file, .from = s, .at = s, .end = s + n};
    read_vocab(&json, t);
    json_close(&json);
    for (const char *line = file_text(merges), *first = line; *line; line += n + (line[n] == '\n')) {
        n = strcspn(line, "\n");
        if (n > 0 && (line != first || strncmp(line, "#version", 8) != 0))
            add_merge_line(t, line, n, merges);
    }
    add_split(t, gpt2_pattern);
    read_tokenizer_config(t, folder, true);
    return t;
}

struct tokenizer *read_tokenizer(const char *path) {
    struct stat st;
    struct tokenizer *t;
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        t = tokenizer_of_folder(path);
    else if (!(t = read_gguf(path))) {
        size_t n;
        char *s = read_file(path, &n);
        t = tokenizer_of_json(path, s, n);
        const char *slash = strrchr(path, '/');
        read_tokenizer_config(t, slash ? format("%.*s", (int)(slash - path), path) : ".", false);
    }
    finish_tokenizer(t);
    return t;
}
