/* The vocabulary: the bytes that each token stands for, and the pairs of tokens that merge.
 *
 * Files name tokens in GPT-2's alphabet, in which every byte is a printable character. Bytes that are visible in
 * Latin-1 stand for themselves; the others are, in order, the characters from U+0100 on. */
#include "tokenizer.h"
#include <string.h>

struct tokenizer *new_tokenizer(const char *file) {
    struct tokenizer *t = NEW(struct tokenizer, 1);
    t->file = file;
    t->end = t->first = t->last = -1;
    return t;
}

static bool is_itself(int byte) {
    return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

/* Returns the byte that a character of the alphabet stands for, or -1. */
static int byte_of(uint32_t character) {
    static int16_t bytes[0x144];
    static bool made;
    if (!made) {
        memset(bytes, -1, sizeof bytes);
        for (int byte = 0, next = 0x100; byte < 256; byte++)
            bytes[is_itself(byte) ? byte : next++] = (int16_t)byte;
        made = true;
    }
    return character < 0x144 ? bytes[character] : -1;
}

/* Returns the bytes that a name stands for; s is NULL if the name is not entirely in the alphabet. */
static struct bytes bytes_named(const char *name, size_t n) {
    char *s = NEW(char, n + 1), *to = s;
    for (size_t i = 0, width; i < n; i += width) {
        const unsigned char *c = (const unsigned char *)name + i;
        width = utf8_at(name + i, n - i);
        int byte = width == 1   ? byte_of(c[0])
                   : width == 2 ? byte_of((uint32_t)((c[0] & 0x1f) << 6 | (c[1] & 0x3f)))
                                : -1;
        if (byte < 0)
            return (struct bytes){0};
        *to++ = (char)byte;
    }
    return (struct bytes){s, (size_t)(to - s)};
}

static bool same_bytes(struct bytes a, struct bytes b) { return a.n == b.n && memcmp(a.s, b.s, a.n) == 0; }
static const char *shown(struct bytes b) { return tame(format("%.*s", (int)b.n, b.s)); }

void add_token(struct tokenizer *t, int64_t id, const char *name, size_t n, bool special) {
    if (id < 0 || id >= MOST_TOKENS)
        die("%s: token %lld: at most %d are read", t->file, (long long)id, MOST_TOKENS);
    if (n > UINT16_MAX)
        die("%s: token %lld is %zu bytes long; at most %d are read", t->file, (long long)id, n, UINT16_MAX);
    GROW(t->token, t->captokens, (size_t)id + 1);
    for (; t->ntokens <= (size_t)id; t->ntokens++)
        t->token[t->ntokens] = (struct token){0};
    struct token *token = &t->token[id];
    struct bytes said = {name, n};
    if (token->there && !same_bytes(token->name, said))
        die("%s: token %lld is both '%s' and '%s'", t->file, (long long)id, shown(token->name), shown(said));
    struct bytes is = bytes_named(name, n);
    special |= token->special || !is.s;
    *token = (struct token){said, special ? said : is, true, special};
}

void add_merge(struct tokenizer *t, struct bytes left, struct bytes right) {
    if (t->nsaid == MOST_TOKENS)
        die("%s: more than %d merges", t->file, MOST_TOKENS);
    GROW(t->said, t->capsaid, t->nsaid + 1);
    t->said[t->nsaid].left = bytes_named(left.s, left.n);
    t->said[t->nsaid].right = bytes_named(right.s, right.n);
    if (!t->said[t->nsaid].left.n || !t->said[t->nsaid].right.n)
        die("%s: merge %zu, '%s' and '%s': no bytes in GPT-2's alphabet", t->file, t->nsaid, shown(left), shown(right));
    t->nsaid++;
}

static uint64_t hash_bytes(const char *s, size_t n) {
    uint64_t hash = n;
    for (; n > 0; s += 8) {
        int64_t piece = 0;
        memcpy(&piece, s, n < 8 ? n : 8);
        hash = hash_add(hash, piece);
        n -= n < 8 ? n : 8;
    }
    return hash;
}

static uint32_t slot_of_piece(const struct tokenizer *t, const char *s, size_t n) {
    uint32_t at = map_start(&t->by_bytes, hash_bytes(s, n));
    for (int32_t k; (k = t->by_bytes.slot[at] - 1) >= 0; at = map_next(&t->by_bytes, at))
        if (same_bytes(t->token[k].is, (struct bytes){s, n}))
            break;
    return at;
}

int64_t token_of(const struct tokenizer *t, const char *s, size_t n) {
    return (int64_t)t->by_bytes.slot[slot_of_piece(t, s, n)] - 1;
}

int64_t token_named(const struct tokenizer *t, const char *name) {
    for (size_t i = 0; i < t->ntokens; i++)
        if (t->token[i].there && same_bytes(t->token[i].name, (struct bytes){name, strlen(name)}))
            return (int64_t)i;
    return -1;
}

static void finish_merge(struct tokenizer *t, size_t i) {
    struct bytes left = t->said[i].left, right = t->said[i].right;
    char *both = NEW(char, left.n + right.n + 1);
    memcpy(both, left.s, left.n);
    memcpy(both + left.n, right.s, right.n);
    int64_t l = token_of(t, left.s, left.n), r = token_of(t, right.s, right.n),
            into = token_of(t, both, left.n + right.n);
    if (l < 0 || r < 0 || into < 0)
        die("%s: merge %zu, '%s' and '%s': '%s' is not in the vocabulary", t->file, i, shown(left), shown(right),
            l < 0   ? shown(left)
            : r < 0 ? shown(right)
                    : shown((struct bytes){both, left.n + right.n}));
    t->merge[i] = (struct merge){(uint32_t)l, (uint32_t)r, (uint32_t)into};
    uint32_t at = map_start(&t->by_pair, hash_add((uint64_t)l, r));
    for (int32_t k; (k = t->by_pair.slot[at] - 1) >= 0; at = map_next(&t->by_pair, at))
        if (t->merge[k].left == l && t->merge[k].right == r)
            die("%s: merges %d and %zu are the same", t->file, k, i);
    t->by_pair.slot[at] = (int32_t)i + 1;
}

void add_around(struct tokenizer *t, struct around *around, const char *name, int64_t id) {
    if (around->n == MOST_AROUND)
        die("%s: more than %d tokens %s each text", t->file, MOST_AROUND,
            around == &t->front ? "in front of" : "behind");
    around->name[around->n] = name;
    around->id[around->n++] = id;
}

/* Returns whether a text itself may have this token. */
static bool is_of_text(const struct tokenizer *t, int64_t id) {
    const struct token *token = &t->token[id];
    bool made = !token->special && (token->is.n == 1 || t->whole_words);
    for (size_t i = 0; i < t->nsaid; i++)
        made |= t->merge[i].into == id;
    return made;
}

static void finish_around(struct tokenizer *t, struct around *around, const char *how) {
    for (int i = 0; i < around->n; i++) {
        const char *name = around->name[i];
        int64_t *id = &around->id[i];
        if (name && *id < 0 && (*id = token_named(t, name)) < 0)
            die("%s: each text must %s '%s', which is not a token", t->file, how, tame(name));
        if (*id < 0 || (size_t)*id >= t->ntokens || !t->token[*id].there)
            die("%s: each text must %s token %lld, which does not exist", t->file, how, (long long)*id);
        if (is_of_text(t, *id))
            die("%s: each text must %s token %lld, '%s', which texts may contain: the two could not be told apart",
                t->file, how, (long long)*id, shown(t->token[*id].name));
    }
}

void finish_tokenizer(struct tokenizer *t) {
    t->by_bytes = map_new(t->ntokens);
    for (size_t i = 0; i < t->ntokens; i++) {
        const struct token *token = &t->token[i];
        if (!token->there || token->special)
            continue;
        uint32_t at = slot_of_piece(t, token->is.s, token->is.n);
        if (t->by_bytes.slot[at])
            die("%s: tokens %d and %zu are the same, '%s'", t->file, t->by_bytes.slot[at] - 1, i, shown(token->is));
        t->by_bytes.slot[at] = (int32_t)i + 1;
    }
    for (int byte = 0; byte < 256; byte++)
        t->byte[byte] = token_of(t, (char[]){(char)byte}, 1);
    t->merge = NEW(struct merge, t->nsaid);
    t->by_pair = map_new(t->nsaid);
    for (size_t i = 0; i < t->nsaid; i++)
        finish_merge(t, i);
    static const char *const ends[] = {"<|endoftext|>", "<|end_of_text|>"};
    for (int i = 0; i < 2 && t->end < 0; i++)
        t->end = token_named(t, ends[i]);
    if (t->first_name)
        t->first = token_named(t, t->first_name);
    if (t->last_name)
        t->last = token_named(t, t->last_name);
    if (t->end < 0 && t->last >= 0 && (size_t)t->last < t->ntokens && t->token[t->last].there)
        t->end = t->last;
    finish_around(t, &t->front, "begin with");
    finish_around(t, &t->behind, "end with");
    t->work.words = NEW(struct word, CACHED);
}

bool decode(const struct tokenizer *t, uint32_t id, struct text *out) {
    if (id >= t->ntokens || !t->token[id].there)
        return false;
    put_bytes(out, t->token[id].is.s, t->token[id].is.n);
    return true;
}

uint32_t token_limit(const struct tokenizer *t) { return (uint32_t)t->ntokens; }
int64_t end_of_text(const struct tokenizer *t) { return t->end; }
const struct around *in_front_of_text(const struct tokenizer *t) { return &t->front; }
const struct around *behind_text(const struct tokenizer *t) { return &t->behind; }

bool is_around(const struct around *around, int64_t id) {
    for (int i = 0; i < around->n; i++)
        if (around->id[i] == id)
            return true;
    return false;
}

int64_t end_of_turn(const struct tokenizer *t) {
    static const char *const ends[] = {"<|im_end|>", "<|eot_id|>"};
    int64_t end = t->last;
    for (int i = 0; i < 2 && end < 0; i++)
        end = token_named(t, ends[i]);
    return end;
}
