/* Internals of a tokenizer, for the files of this folder. A reader adds tokens, merges and splits in any order and then
 * finishes. */
#ifndef PIANOLA_TOKENIZER_H
#define PIANOLA_TOKENIZER_H
#include "base/heap.h"
#include "base/map.h"
#include "tokens.h"

/* Larger than any tokenizer needs, and small enough that a hostile file costs little */
enum { MOST_TOKENS = 1 << 21, MOST_SPLITS = 8 };

struct bytes {
    const char *s;
    size_t n;
};
struct token {
    struct bytes name, is; /* name in the file; bytes it stands for */
    bool there, special;   /* special: never read from a text */
};
/* A merge of left and right; its rank is its index in the list */
struct merge {
    uint32_t left, right, into;
};
struct symbol { /* An element of a word that is being merged: a linked list */
    uint32_t id;
    int32_t before, after; /* -1: none */
};
struct candidate {
    uint32_t rank;
    int32_t at; /* index of the left symbol */
};
static inline bool sooner(struct candidate a, struct candidate b) {
    return a.rank != b.rank ? a.rank < b.rank : a.at < b.at;
}
HEAP(candidates, struct candidate, sooner)

/* A cache of words seen before, the last one for each hash. Most words of a text have occurred in it before. */
enum { CACHED = 1 << 16, WORD_BYTES = 24, WORD_TOKENS = 5 };
struct word {
    uint64_t is[WORD_BYTES / 8]; /* its bytes, then zeros; the last byte is their number */
    uint32_t n, id[WORD_TOKENS]; /* n is 0: no word yet */
};

/* The memory in which a text is encoded, and the function that receives its tokens */
struct encoding {
    take_tokens *take;
    void *with;
    struct word *words;
    struct symbol *symbol;
    size_t capsymbols, capids;
    uint32_t *id;
    struct candidates candidates;
    struct text normal; /* a text in NFC */
};

struct tokenizer {
    const char *file;
    struct token *token;
    size_t ntokens, captokens;
    struct {
        struct bytes left, right;
    } * said; /* merges, as in the file */
    size_t nsaid, capsaid;
    struct merge *merge;
    struct map by_bytes, by_pair;
    int64_t byte[256];                  /* the token of each byte, or -1 */
    int64_t first;                      /* begins a text, by its metadata; or -1 */
    int64_t end, last;                  /* end: ends a text; last: ends a model's turn; both by its metadata, or -1 */
    const char *first_name, *last_name; /* their names, or NULL */
    struct around front, behind;        /* tokens before and after each text */
    bool composed;                      /* convert text to NFC first */
    bool whole_words;                   /* a word that is a token becomes that token, whatever its merges */
    struct expression *split[MOST_SPLITS];
    int nsplits;
    struct encoding work;
};

/* tokenizer.c. Names of tokens and merges are in the alphabet in which each byte is a printable character; their memory
 * must stay. special: the name is plain text. */
struct tokenizer *new_tokenizer(const char *file);
void add_token(struct tokenizer *t, int64_t id, const char *name, size_t n, bool special);
void add_merge(struct tokenizer *t, struct bytes left, struct bytes right);
void add_around(struct tokenizer *t, struct around *around, const char *name, int64_t id); /* name may be NULL */
void finish_tokenizer(struct tokenizer *t);
int64_t token_of(const struct tokenizer *t, const char *s, size_t n); /* returns the token of these bytes, or -1 */

/* pretokenize.c */
void add_split(struct tokenizer *t, const char *pattern);
size_t utf8_at(const char *s, size_t n); /* returns the bytes of the valid character there, or 0 */
extern const char gpt2_pattern[];

/* merge.c */
void merge_word(struct tokenizer *t, const char *s, size_t n);

/* read_tokenizer.c: adds a merge from a line, two tokens separated by a blank. */
void add_merge_line(struct tokenizer *t, const char *line, size_t n, const char *where);
struct tokenizer *tokenizer_of_json(const char *file, char *s, size_t n); /* does not finish it; overwrites s */

/* read_tokenizer_config.c: reads tokenizer_config.json in this folder, which gives the tokens around a text and the
 * token that ends a model's turn. decides: it is authoritative, as beside vocab.json and merges.txt; else differences
 * are only reported. */
void read_tokenizer_config(struct tokenizer *t, const char *folder, bool decides);

/* read_gguf.c. Neither finishes the tokenizer. */
struct tokenizer *tokenizer_of_gguf(const char *file, const char *s, size_t n);
const char *const *gguf_patterns(const char *pre); /* expressions that cut its text, terminated by NULL */
struct tokenizer *read_gguf(const char *path);     /* NULL: not a GGUF file */
#endif
