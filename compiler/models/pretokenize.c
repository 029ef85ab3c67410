/* Cuts texts into words by the tokenizer's own regular expressions, each applied within the words of the one before.
 *
 * PCRE2 runs them. The library that they were written for uses Oniguruma. In the part of the syntax that tokenizers use
 * and checked() accepts, the two differ only in \s: PCRE2's includes one more character, U+180E, so \s is replaced by
 * the property that Oniguruma uses. An expression sees only one word of the previous expression, even when it looks
 * ahead. No expression sees text that is not UTF-8. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "tokenizer.h"
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

struct expression {
    pcre2_code *code;
    pcre2_match_data *match;
    const char *pattern;
};

const char gpt2_pattern[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

size_t utf8_at(const char *s, size_t n) {
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *c = (const unsigned char *)s;
    size_t width = *c < 0x80 ? 1 : *c < 0xc2 ? 0 : *c < 0xe0 ? 2 : *c < 0xf0 ? 3 : *c < 0xf5 ? 4 : 0, i = 1;
    if (width == 1 || width == 0 || width > n)
        return width > n ? 0 : width;
    uint32_t x = *c & 0x7fu >> width;
    for (; i < width && (c[i] & 0xc0) == 0x80; i++)
        x = x << 6 | (c[i] & 0x3f);
    return i < width || x < least[width] || x > 0x10ffff || (x >= 0xd800 && x < 0xe000) ? 0 : width;
}

/* ---- the expressions ---- */

static _Noreturn void refuse_pattern(const struct tokenizer *t, const char *pattern, const char *at, const char *what) {
    die("%s: the expression '%s' has, at %td, %s; it is not run, since it may mean other things to the library that it "
        "was written for",
        t->file, pattern, at - pattern, what);
}

/* Checks \p{L}, \P{Lu}: general categories, of one letter or two. */
static const char *check_property(const struct tokenizer *t, const char *pattern, const char *at) {
    size_t n = strncmp(at + 1, "{", 1) == 0 ? strcspn(at + 2, "}") : 0;
    if (n < 1 || n > 2 || !at[2 + n] || !strchr("LMNPSZC", at[2]) || (n == 2 && !strchr("ultmondcepsfik", at[3])))
        refuse_pattern(t, pattern, at - 1, "a property that is no general category");
    return at + 2 + n;
}

/* Copies the character after a backslash; returns the last one that belongs to it. */
static const char *check_escape(const struct tokenizer *t, const char *pattern, const char *at, struct text *out) {
    if (*at == 's' || *at == 'S') {
        put(out, "\\%c{White_Space}", *at == 's' ? 'p' : 'P');
        return at;
    }
    const char *end = at;
    if (*at == 'p' || *at == 'P')
        end = check_property(t, pattern, at);
    else if (!*at || !strchr("rntdD\\/.,;:!?'\"()[]{}|*+^$-_&#%@=<>~` ", *at))
        refuse_pattern(t, pattern, at - 1, "an escape other than \\s, \\d, \\r, \\n, \\t, \\p{…} and signs");
    put_bytes(out, at - 1, (size_t)(end - at) + 2);
    return end;
}

/* Copies a class; returns the ] that ends it. */
static const char *check_class(const struct tokenizer *t, const char *pattern, const char *at, struct text *out) {
    const char *begin = at++;
    put_bytes(out, "[", 1);
    if (*at == '^')
        put_bytes(out, at++, 1);
    if (*at == ']')
        refuse_pattern(t, pattern, begin, "a class that begins with ]");
    for (; *at && *at != ']'; at++) {
        if (*at == '[' || strncmp(at, "&&", 2) == 0)
            refuse_pattern(t, pattern, at, "a class within a class");
        if (*at == '\\')
            at = check_escape(t, pattern, at + 1, out);
        else
            put_bytes(out, at, 1);
    }
    if (!*at)
        refuse_pattern(t, pattern, begin, "a class that does not end");
    put_bytes(out, "]", 1);
    return at;
}

/* Returns the expression in the form that PCRE2 gets. */
static const char *checked(const struct tokenizer *t, const char *pattern) {
    struct text out = {0};
    for (const char *at = pattern; *at; at++) {
        if (*at == '\\')
            at = check_escape(t, pattern, at + 1, &out);
        else if (*at == '[')
            at = check_class(t, pattern, at, &out);
        else {
            if (strncmp(at, "(?", 2) == 0 && strncmp(at, "(?:", 3) && strncmp(at, "(?i:", 4) && strncmp(at, "(?!", 3) &&
                strncmp(at, "(?=", 3))
                refuse_pattern(t, pattern, at, "a group other than (?:…), (?i:…), (?!…) and (?=…)");
            if (at[0] == '(' && at[1] == '*')
                refuse_pattern(t, pattern, at, "a verb");
            if (*at == '^' || *at == '$' || *at == '.')
                refuse_pattern(t, pattern, at, "one of ^ $ .");
            if (at[0] == '}' && (at[1] == '+' || at[1] == '?'))
                refuse_pattern(t, pattern, at, "two quantifiers");
            put_bytes(&out, at, 1);
        }
    }
    return out.n ? out.s : "";
}

/* Allocates PCRE2's memory from the arena, which never frees. */
static void *allocate_for_pcre(size_t bytes, void *with) {
    (void)with;
    return alloc(bytes);
}
static void leave_memory(void *memory, void *with) {
    (void)memory;
    (void)with;
}

void add_split(struct tokenizer *t, const char *pattern) {
    if (t->nsplits == MOST_SPLITS)
        die("%s: more than %d nested expressions", t->file, MOST_SPLITS);
    int code;
    PCRE2_SIZE at;
    struct expression *split = NEW(struct expression, 1);
    const char *given = checked(t, pattern);
    pcre2_general_context *memory = pcre2_general_context_create(allocate_for_pcre, leave_memory, NULL);
    split->pattern = pattern;
    split->code =
        pcre2_compile((PCRE2_SPTR)given, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &code,
                      &at, pcre2_compile_context_create(memory));
    if (!split->code) {
        PCRE2_UCHAR why[256];
        pcre2_get_error_message(code, why, sizeof why);
        die("%s: the expression '%s': %s", t->file, pattern, (char *)why);
    }
    uint32_t empty;
    pcre2_pattern_info(split->code, PCRE2_INFO_MATCHEMPTY, &empty);
    if (empty)
        refuse_pattern(t, pattern, pattern, "words without a character");
#ifndef FUZZING /* compiled code is not in the arena, so fuzzing would fill the memory */
    pcre2_jit_compile(split->code, PCRE2_JIT_COMPLETE); /* if it fails, matching is slower */
#endif
    split->match = pcre2_match_data_create(1, memory);
    t->split[t->nsplits++] = split;
}

static void split_by(struct tokenizer *t, int i, const char *s, size_t n) {
    if (i == t->nsplits) {
        merge_word(t, s, n);
        return;
    }
    const struct expression *split = t->split[i];
    const PCRE2_SIZE *found = pcre2_get_ovector_pointer(split->match);
    for (size_t at = 0, from, to; at < n; at = to) {
        int code = pcre2_match(split->code, (PCRE2_SPTR)s, n, at, PCRE2_NO_UTF_CHECK, split->match, NULL);
        if (code < 0 && code != PCRE2_ERROR_NOMATCH) {
            PCRE2_UCHAR why[256];
            pcre2_get_error_message(code, why, sizeof why);
            die("%s: the expression '%s' fails on this text: %s", t->file, split->pattern, (char *)why);
        }
        from = code < 0 ? n : found[0];
        to = code < 0 ? n : found[1];
        if (from > at)
            split_by(t, i + 1, s + at, from - at);
        if (to > from)
            split_by(t, i + 1, s + from, to - from);
    }
}

/* ---- the text ---- */

/* Returns where the text stops being UTF-8. */
static size_t valid_until(const char *s, size_t n) {
    size_t at = 0;
    for (size_t width; at < n && (width = utf8_at(s + at, n - at)) > 0;)
        at += width;
    return at;
}

static size_t invalid_until(const char *s, size_t n) {
    size_t at = 0;
    while (at < n && utf8_at(s + at, n - at) == 0)
        at++;
    return at;
}

/* Returns the end of a piece that can be composed by itself: an ASCII character follows, which composes with nothing
 * before it. */
static size_t piece_end(const char *s, size_t n, size_t from) {
    size_t end = n - from > 65536 ? from + 65536 : n;
    while (end < n && (s[end] & 0x80))
        end++;
    return end;
}

/* Limit on combining marks in a row, which utf8proc sorts in quadratic time. No language has more than a few. */
enum { MOST_MARKS = 4096 };
static void check_marks(const struct tokenizer *t, const char *s, size_t n) {
    int marks = 0;
    for (size_t at = 0, width; at < n; at += width) {
        utf8proc_int32_t character = s[at];
        width = s[at] & 0x80
                    ? (size_t)utf8proc_iterate((const utf8proc_uint8_t *)s + at, (utf8proc_ssize_t)(n - at), &character)
                    : 1;
        marks = width > 1 && utf8proc_get_property(character)->combining_class ? marks + 1 : 0;
        if (marks > MOST_MARKS)
            die("%s requires NFC, but this text has more than %d combining marks in a row", t->file, MOST_MARKS);
    }
}

/* Returns the text in NFC: the text itself if it is in NFC, else t->work.normal. */
static struct bytes composed(struct tokenizer *t, const char *s, size_t n) {
    bool other = false;
    t->work.normal.n = 0;
    for (size_t from = 0, end; from < n; from = end) {
        utf8proc_uint8_t *piece;
        end = piece_end(s, n, from);
        check_marks(t, s + from, end - from);
        utf8proc_ssize_t got = utf8proc_map((const utf8proc_uint8_t *)s + from, (utf8proc_ssize_t)(end - from), &piece,
                                            UTF8PROC_STABLE | UTF8PROC_COMPOSE);
        if (got < 0)
            die("%s requires NFC, which fails on this text: %s", t->file, utf8proc_errmsg(got));
        if (!other && ((size_t)got != end - from || memcmp(piece, s + from, (size_t)got) != 0)) {
            other = true;
            put_bytes(&t->work.normal, s, from);
        }
        if (other)
            put_bytes(&t->work.normal, (char *)piece, (size_t)got);
        free(piece);
    }
    return other ? (struct bytes){t->work.normal.s, t->work.normal.n} : (struct bytes){s, n};
}

bool encode(struct tokenizer *t, const char *text, size_t n, take_tokens *take, void *with) {
    bool same = true;
    t->work.take = take;
    t->work.with = with;
    for (size_t at = 0; at < n;) {
        size_t size = valid_until(text + at, n - at);
        struct bytes valid = t->composed ? composed(t, text + at, size) : (struct bytes){text + at, size};
        same = same && valid.s == text + at;
        if (valid.n > 0)
            split_by(t, 0, valid.s, valid.n);
        at += size;
        size = invalid_until(text + at, n - at);
        if (size > 0)
            merge_word(t, text + at, size);
        at += size;
    }
    return same;
}
