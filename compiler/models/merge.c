/* Turns a word into tokens. Starts with its bytes, and repeatedly merges the neighbours with the lowest rank, the
 * leftmost of equals first, until no neighbours merge. A heap of candidates keeps that n log n in the word's bytes,
 * since a word may be the whole text, such as a megabyte of one letter. */
#include "tokenizer.h"
#include <string.h>

static int64_t rank_of(const struct tokenizer *t, uint32_t left, uint32_t right) {
    uint32_t at = map_start(&t->by_pair, hash_add(left, right));
    int32_t k;
    while ((k = t->by_pair.slot[at] - 1) >= 0 && (t->merge[k].left != left || t->merge[k].right != right))
        at = map_next(&t->by_pair, at);
    return k;
}

static void consider_pair(struct tokenizer *t, int32_t at) {
    int32_t after = at < 0 ? -1 : t->work.symbol[at].after;
    if (after < 0)
        return;
    int64_t rank = rank_of(t, t->work.symbol[at].id, t->work.symbol[after].id);
    if (rank >= 0)
        candidates_push(&t->work.candidates, (struct candidate){(uint32_t)rank, at});
}

/* Returns whether a candidate still holds. It is stale if its left symbol was merged into the one before it, or if
 * either of its symbols was merged with something else since. */
enum { GONE = INT32_MAX }; /* no token has this id */
static bool still(const struct tokenizer *t, struct candidate c) {
    const struct symbol *left = &t->work.symbol[c.at];
    const struct merge *merge = &t->merge[c.rank];
    return left->id == merge->left && left->after >= 0 && t->work.symbol[left->after].id == merge->right;
}

static size_t merge_bytes(struct tokenizer *t, const char *s, size_t n) {
    if (n >= INT32_MAX)
        die("%s cuts this text into words, and one has %zu bytes; at most %d are merged", t->file, n, INT32_MAX);
    GROW(t->work.symbol, t->work.capsymbols, n);
    for (size_t i = 0; i < n; i++) {
        int64_t id = t->byte[(unsigned char)s[i]];
        if (id < 0)
            die("%s has no token for the byte 0x%02x, which this text has: take it out, as `tr -d '\\%03o' <TEXT` does",
                t->file, (unsigned char)s[i], (unsigned char)s[i]);
        t->work.symbol[i] = (struct symbol){(uint32_t)id, (int32_t)i - 1, i + 1 < n ? (int32_t)i + 1 : -1};
    }
    for (size_t i = 0; i < n; i++)
        consider_pair(t, (int32_t)i);
    while (t->work.candidates.n > 0) {
        struct candidate c = candidates_pop(&t->work.candidates);
        if (!still(t, c))
            continue;
        struct symbol *left = &t->work.symbol[c.at], *right = &t->work.symbol[left->after];
        left->id = t->merge[c.rank].into;
        left->after = right->after;
        right->id = GONE;
        if (left->after >= 0)
            t->work.symbol[left->after].before = c.at;
        consider_pair(t, left->before);
        consider_pair(t, c.at);
    }
    GROW(t->work.id, t->work.capids, n);
    size_t m = 0;
    for (int32_t at = 0; at >= 0; at = t->work.symbol[at].after)
        t->work.id[m++] = t->work.symbol[at].id;
    return m;
}

void merge_word(struct tokenizer *t, const char *s, size_t n) {
    struct word key = {0}, *word = NULL;
    if (n < WORD_BYTES) {
        memcpy(key.is, s, n);
        ((unsigned char *)key.is)[WORD_BYTES - 1] = (unsigned char)n;
        uint64_t hash = 0;
        for (int i = 0; i < WORD_BYTES / 8; i++)
            hash = hash_add(hash, (int64_t)key.is[i]);
        word = &t->work.words[hash % CACHED];
        if (word->n > 0 && memcmp(word->is, key.is, WORD_BYTES) == 0) {
            t->work.take(t->work.with, word->id, word->n, n);
            return;
        }
    }
    int64_t whole = t->whole_words ? token_of(t, s, n) : -1;
    uint32_t one = (uint32_t)whole, *id = &one;
    size_t m = 1;
    if (whole < 0) {
        m = merge_bytes(t, s, n);
        id = t->work.id;
    }
    if (word && m <= WORD_TOKENS) {
        *word = key;
        word->n = (uint32_t)m;
        memcpy(word->id, id, m * sizeof *id);
    }
    t->work.take(t->work.with, id, m, n);
}
