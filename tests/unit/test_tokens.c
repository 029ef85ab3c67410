/* Tokens: merging against its definition, texts that come back, and tokenizers that are refused. */
#include "compiler.h"
#include "base/read_json.h"
#include "random.h"
#include "models/tokenizer.h"
#include <criterion/criterion.h>
#include <string.h>

/* ---- a tokenizer of letters with random merges ---- */

struct made {
    struct text json;
    int ids; /* number of tokens */
    char name[400][64];
    int left[400], right[400], merges;
};

static struct made *random_vocabulary(uint64_t *r, int letters, int merges) {
    struct made *m = NEW(struct made, 1);
    for (; m->ids < letters; m->ids++)
        m->name[m->ids][0] = (char)('a' + m->ids);
    for (int tries = 0; m->merges < merges && tries < 1000; tries++) {
        int left = random_below(r, m->ids), right = random_below(r, m->ids);
        char both[128];
        bool known = false;
        snprintf(both, sizeof both, "%s%s", m->name[left], m->name[right]);
        for (int i = 0; i < m->ids; i++)
            known |= strcmp(m->name[i], both) == 0;
        if (known || strlen(both) > 60)
            continue;
        strcpy(m->name[m->ids++], both);
        m->left[m->merges] = left;
        m->right[m->merges++] = right;
    }
    put(&m->json, "{\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": false}, "
                  "\"model\": {\"type\": \"BPE\", \"vocab\": {");
    for (int i = 0; i < m->ids; i++)
        put(&m->json, "%s\"%s\": %d", i ? ", " : "", m->name[i], i);
    put(&m->json, "}, \"merges\": [");
    for (int i = 0; i < m->merges; i++)
        put(&m->json, i % 2 ? "%s\"%s %s\"" : "%s[\"%s\", \"%s\"]", i ? ", " : "", m->name[m->left[i]],
            m->name[m->right[i]]);
    put(&m->json, "]}}");
    return m;
}

/* Merges as in Sennrich 2016: always the first of the best pairs. Returns the number of tokens in id. */
static int by_definition(const struct made *m, const char *word, int *id) {
    int n = 0;
    for (; word[n]; n++)
        id[n] = word[n] - 'a';
    for (;;) {
        int best = m->merges, at = 0;
        for (int i = 0; i + 1 < n; i++)
            for (int k = 0; k < best; k++)
                if (m->left[k] == id[i] && m->right[k] == id[i + 1]) {
                    best = k;
                    at = i;
                }
        if (best == m->merges)
            return n;
        for (id[at] = m->ids - m->merges + best, at++, n--; at < n; at++)
            id[at] = id[at + 1];
    }
}

struct got {
    uint32_t id[1000];
    size_t n, bytes, words;
};
static void take(void *with, const uint32_t *id, size_t n, size_t bytes) {
    struct got *got = with;
    memcpy(got->id + got->n, id, n * sizeof *id);
    got->n += n;
    got->bytes += bytes;
    got->words++;
}

static struct tokenizer *tokenizer_of(const char *json) {
    struct tokenizer *t = tokenizer_of_json("made.json", copy_string(json), strlen(json));
    finish_tokenizer(t);
    return t;
}

Test(tokens, merges_are_by_definition) {
    uint64_t r = 5;
    for (int trial = 0; trial < 300; trial++) {
        int letters = 1 + random_below(&r, 4);
        struct made *m = random_vocabulary(&r, letters, random_below(&r, 60));
        struct tokenizer *t = tokenizer_of(m->json.s);
        for (int i = 0; i < 30; i++) {
            char word[300] = "";
            int n = 1 + random_below(&r, i % 2 ? 10 : 290), id[300], same = random_below(&r, 3);
            for (int k = 0; k < n; k++)
                word[k] = (char)('a' + (same && k > 0 && random_below(&r, 4) ? word[k - 1] - 'a'
                                                                             : random_below(&r, letters)));
            int wanted = by_definition(m, word, id);
            for (int again = 0; again < 2; again++) { /* the second time from the cache */
                struct got got = {0};
                struct text back = {0};
                cr_assert(encode(t, word, (size_t)n, take, &got));
                cr_assert_eq(got.n, (size_t)wanted, "%s: %zu tokens, not %d", word, got.n, wanted);
                for (int k = 0; k < wanted; k++)
                    cr_assert(got.id[k] == (uint32_t)id[k] && decode(t, got.id[k], &back), "%s: token %d", word, k);
                cr_assert_str_eq(back.s, word);
            }
        }
        free_all();
    }
}

/* ---- cutting text ---- */

/* Returns a tokenizer without merges, which shows its words. */
static struct tokenizer *cutting(const char *pre, const char *more) {
    struct text json = {0};
    put(&json, "{%s \"pre_tokenizer\": %s, \"model\": {\"vocab\": {", more, pre);
    for (int byte = 0, next = 0x100; byte < 256; byte++) {
        bool seen = (byte > 32 && byte < 127) || (byte > 160 && byte != 173);
        put(&json, "%s\"\\u%04x\": %d", byte ? ", " : "", seen ? byte : next++, byte);
    }
    put(&json, "}, \"merges\": []}}");
    return tokenizer_of(json.s);
}

static void mark(void *with, const uint32_t *id, size_t n, size_t bytes) {
    for (size_t i = 0; i < n; i++)
        put_bytes(with, (char[]){(char)id[i]}, 1); /* a token is its byte */
    put_bytes(with, "|", 1);
    (void)bytes;
}

static const char *cut_n(struct tokenizer *t, const char *text, size_t n) {
    struct text out = {0};
    encode(t, text, n, mark, &out);
    return out.n ? out.s : "";
}
static const char *cut(struct tokenizer *t, const char *text) { return cut_n(t, text, strlen(text)); }

#define BYTES       "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": false}"
#define GPT2        "{\"type\": \"ByteLevel\", \"add_prefix_space\": false}"
#define SEQUENCE(x) "{\"pretokenizers\": [" x "], \"type\": \"Sequence\"}"
#define SPLIT(x)                                                                                                       \
    "{\"pattern\": {\"Regex\": \"" x "\"}, \"type\": \"Split\", \"behavior\": \"Isolated\", \"invert\": false}"

Test(tokens, words) {
    struct tokenizer *t = cutting(GPT2, "");
    cr_expect_str_eq(cut(t, "It's 12 o'clock,  isn't it?\n"), "It|'s| 12| o|'|clock|,| | isn|'t| it|?|\n|");
    cr_expect_str_eq(cut(t, "  a \n\n b\t"), " | a| \n\n| b|\t|");
    cr_expect_str_eq(cut(t, "\xc3\xa9t\xc3\xa9 \xe2\x82\xac\xe2\x82\xac"),
                     "\xc3\xa9t\xc3\xa9| \xe2\x82\xac\xe2\x82\xac|");
    cr_expect_str_eq(cut(t, "a\xff\xfe"
                            "b\xe2\x82 c\xc3"),
                     "a|\xff\xfe|b|\xe2\x82| c|\xc3|", "what is no UTF-8");
    cr_expect_str_eq(cut(t, "\xed\xa0\x80"), "\xed\xa0\x80|", "a surrogate is no character");
    cr_expect_str_eq(cut(t, "\xe1\xa0\x8e."), "\xe1\xa0\x8e.|", "U+180E is no blank");
    cr_expect_str_eq(cut(t, ""), "");
    cr_expect_str_eq(cut(cutting(BYTES, ""), "a b\nc"), "a b\nc|");
    cr_expect_str_eq(cut(cutting(BYTES, ""), "\xff"), "\xff|");
    t = cutting(SEQUENCE("{\"type\": \"Digits\", \"individual_digits\": true}, " GPT2), "");
    cr_expect_str_eq(cut(t, "a 12 b"), "a| |1|2| b|", "the second sees only what the first cut");
    t = cutting(SEQUENCE("{\"type\": \"Digits\"}, " BYTES), "");
    cr_expect_str_eq(cut(t, "a12b"), "a|12|b|");
    t = cutting(SEQUENCE(SPLIT("[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}{1,3}|\\\\s+(?!\\\\S)") ", " BYTES),
                "");
    cr_expect_str_eq(cut(t, "(ab 12345  c"), "(ab| |123|45| | c|");
    t = cutting(SEQUENCE("{\"type\": \"Split\", \"pattern\": {\"String\": \".\"}, \"behavior\": \"Isolated\"}, " BYTES),
                "");
    cr_expect_str_eq(cut(t, "a.b"), "a|.|b|", "a string is no expression");
    t = cutting(GPT2, "\"normalizer\": {\"type\": \"NFC\"},");
    cr_expect_str_eq(cut(t, "e\xcc\x81 \xff"
                            "e\xcc\x81"),
                     "\xc3\xa9| |\xff|\xc3\xa9|");
    free_all();
}

/* ---- errors ---- */

static const char *refused(const char *json) {
    jmp_buf trap;
    diag_trap = &trap;
    if (setjmp(trap) == 0) {
        tokenizer_of(json);
        diag_trap = NULL;
        return "accepted";
    }
    diag_trap = NULL;
    return strchr(diag_text, ':') + 2 + strlen("error: made.json: ");
}

#define MODEL(x) "\"model\": {\"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2}, \"merges\": [\"a b\"]" x "}"
#define PRE      "\"pre_tokenizer\": " BYTES ", "
static void refuses(const char *json, const char *wanted) {
    const char *why = refused(json);
    cr_expect(strstr(why, wanted), "%s: expected '%s', got '%s'", json, wanted, why);
}

Test(tokens, refusals) {
    refuses("{" PRE MODEL("") "}", "accepted");
    refuses("", "expected {");
    refuses("{" PRE MODEL("") "} x", "more after the end");
    refuses("{" PRE MODEL(""), "expected ,");
    refuses("{" MODEL("") "}", "no ByteLevel in pre_tokenizer");
    refuses("{" PRE "\"x\": 1}", "no model");
    refuses("{" PRE MODEL(", \"type\": \"Unigram\"") "}", "a model of type 'Unigram'; only BPE can be read");
    refuses("{" PRE MODEL(", \"byte_fallback\": true") "}", "byte_fallback");
    refuses("{" PRE MODEL(", \"dropout\": 0.1") "}", "dropout");
    refuses("{" PRE MODEL(", \"dropout\": null, \"end_of_word_suffix\": \"\"") "}", "accepted");
    refuses("{" PRE MODEL(", \"end_of_word_suffix\": \"</w>\"") "}", "end_of_word_suffix");
    refuses("{\"normalizer\": {\"type\": \"Lowercase\"}, " PRE MODEL("") "}",
            "a normalizer of type 'Lowercase'; only NFC");
    refuses("{\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFKC\"}]}, " PRE MODEL("") "}",
            "'NFKC'");
    refuses("{\"pre_tokenizer\": {\"type\": \"Metaspace\"}, " MODEL("") "}", "a pre_tokenizer of type 'Metaspace'");
    refuses("{\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true}, " MODEL("") "}",
            "add_prefix_space");
    refuses("{\"pre_tokenizer\": " SEQUENCE(BYTES ", " SPLIT("a")) ", " MODEL("") "}", "after ByteLevel");
    refuses("{\"pre_tokenizer\": " SEQUENCE("{\"type\": \"Split\", \"pattern\": {\"String\": \"a\"}, \"behavior\": "
                                            "\"MergedWithNext\"}, " BYTES) ", " MODEL("") "}",
            "MergedWithNext");
    static const char *const expressions[][2] = {{"a*", "words without a character"},
                                                 {"(?<n>a)", "a group other than"},
                                                 {"a{1,2}+", "two quantifiers"},
                                                 {"\\\\w+", "an escape other than"},
                                                 {"[[a]]", "a class within a class"},
                                                 {"[a&&b]", "a class within a class"},
                                                 {"\\\\p{Han}", "no general category"},
                                                 {"(a", "missing closing parenthesis"},
                                                 {"^a", "one of ^ $ ."},
                                                 {"[a", "a class that does not end"},
                                                 {"(*UCP)a", "a verb"},
                                                 {"a\\\\", "an escape other than"}};
    for (size_t i = 0; i < sizeof expressions / sizeof *expressions; i++)
        refuses(
            format(
                "{\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", \"pattern\": "
                "{\"Regex\": \"%s\"}, \"behavior\": \"Isolated\"}, " BYTES "]}, " MODEL("") "}",
                expressions[i][0]),
            expressions[i][1]);
    refuses("{" PRE "\"model\": {\"vocab\": {\"a\": 0, \"b\": 1}, \"merges\": [\"a b\"]}}",
            "merge 0, 'a' and 'b': 'ab' is not");
    refuses("{" PRE "\"model\": {\"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2}, \"merges\": [\"ab\"]}}",
            "merge 0: expected two tokens");
    refuses("{" PRE "\"model\": {\"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2}, \"merges\": [[\"a\"]]}}",
            "fewer than two");
    refuses("{" PRE "\"model\": {\"vocab\": {\"a\": 0, \"b\": 0}, \"merges\": []}}", "token 0 is both 'a' and 'b'");
    refuses("{" PRE "\"model\": {\"vocab\": {\"a\": 0, \"a\": 1}, \"merges\": []}}", "tokens 0 and 1 are the same");
    refuses("{" PRE "\"model\": {\"vocab\": {\"a\": 4294967295}, \"merges\": []}}", "token 4294967295: at most");
    refuses("{" PRE "\"model\": {\"vocab\": {\"a\": -1}, \"merges\": []}}", "expected a whole number");
    refuses("{" PRE "\"model\": {\"vocab\": {\"\\ud800\": 1}, \"merges\": []}}", "half of a surrogate pair");
    refuses("{" PRE "\"model\": {\"vocab\": {\"\\x\": 1}, \"merges\": []}}", "a letter that is not allowed");
    free_all();
}

Test(tokens, no_token_for_a_byte) {
    struct tokenizer *t = tokenizer_of("{" PRE MODEL("") "}");
    struct got got = {0};
    jmp_buf trap;
    diag_trap = &trap;
    if (setjmp(trap) == 0) {
        encode(t, "abc", 3, take, &got);
        cr_assert(false, "encoded");
    }
    diag_trap = NULL;
    cr_assert(strstr(diag_text, "made.json has no token for the byte 0x63"), "%s", diag_text);
    free_all();
}

/* ---- special tokens ---- */

Test(tokens, special_ones_are_not_read_from_text) {
    struct tokenizer *t = cutting(BYTES, "\"added_tokens\": [{\"id\": 256, \"content\": \"<|endoftext|>\"}],");
    cr_assert_eq(end_of_text(t), 256);
    cr_assert_eq(token_limit(t), 257);
    cr_assert_str_eq(cut(t, "<|endoftext|>"), "<|endoftext|>|");
    struct text text = {0};
    cr_assert(decode(t, 256, &text) && strcmp(text.s, "<|endoftext|>") == 0 && !decode(t, 257, &text));
    free_all();
}

/* ---- JSON ---- */

Test(tokens, json) {
    char text[] = " [\"a\\u00e9\\u20ac\\ud83d\\ude00\\u0000\\n\\/\\\"\", {\"x\": [1, -2.5e3, true, null, {}], \"y\": "
                  "[]}, \"\", 7] ";
    struct json_in json = {.file = "x", .from = text, .at = text, .end = text + sizeof text - 1}, *j = &json;
    size_t n;
    json_open(j, '[');
    cr_assert(json_more(j, ']'));
    const char *s = json_text(j, &n), wanted[] = "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\0\n/\"";
    cr_assert(n == sizeof wanted - 1 && memcmp(s, wanted, n) == 0);
    cr_assert(json_more(j, ']'));
    json_skip(j);
    cr_assert(json_more(j, ']') && !*json_text(j, &n) && n == 0);
    cr_assert(json_more(j, ']') && json_number(j) == 7 && !json_more(j, ']'));
    json_close(j);
}
