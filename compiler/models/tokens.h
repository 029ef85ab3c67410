/* Text as a model's tokens, and back: byte-level BPE, as GPT-2, Llama 3, Qwen and SmolLM2 have it.
 *
 * A text is cut into words by the tokenizer's own regular expressions (pretokenize.c); each word's bytes are merged,
 * the pair of the lowest rank first, until none of the neighbours is a merge (merge.c: Sennrich 2016, Radford 2019).
 * What is read and cut is what the library `tokenizers` makes of the same file; a file that asks for anything else is
 * refused, by name. Special tokens are never read from a text, whoever wrote it: <|endoftext|> in it is thirteen
 * characters. */
#ifndef PIANOLA_TOKENS_H
#define PIANOLA_TOKENS_H
#include "base/text.h"

struct tokenizer;

/* A Hugging Face tokenizer.json, a folder with vocab.json and merges.txt, or a GGUF file. Dies if it is none, or one
 * that is not byte-level BPE. */
struct tokenizer *read_tokenizer(const char *path);

/* Gives take the tokens of each word in turn, and how many bytes of text they are; false when the text was not in the
 * normal form that the tokenizer asks for, NFC, so that its tokens are those of that form. Bytes that are no UTF-8 are
 * words of their own. */
typedef void take_tokens(void *with, const uint32_t *id, size_t n, size_t bytes);
bool encode(struct tokenizer *t, const char *text, size_t n, take_tokens *take, void *with);

/* Adds the bytes that the token stands for; false when there is no such token. */
bool decode(const struct tokenizer *t, uint32_t id, struct text *out);

uint32_t token_limit(const struct tokenizer *t); /* one more than the largest token */
int64_t end_of_text(const struct tokenizer *t);  /* the token between documents, or -1: it has none */
int64_t end_of_turn(const struct tokenizer *t);  /* the token with which a model ends what it says, or -1 */
int64_t token_named(const struct tokenizer *t, const char *name); /* special ones too; -1: there is none */

/* The tokens that each of its model's texts has in front or behind, as the file says: mostly none, or one in front. */
enum { MOST_AROUND = 8 };
struct around {
    int n;
    int64_t id[MOST_AROUND];
    const char *name[MOST_AROUND]; /* for those who read files: the token that id is to be, or NULL */
};
const struct around *in_front_of_text(const struct tokenizer *t);
const struct around *behind_text(const struct tokenizer *t);
bool is_around(const struct around *around, int64_t id);

/* write_tokenizer.c: the tokenizer of a GGUF file as tokenizer.json and tokenizer_config.json, which have the tokens
 * that begin and end texts, and the template of chats. context: the most tokens that the model reads. */
struct text tokenizer_json(const struct tokenizer *t, const char *gguf);
struct text tokenizer_config(const struct tokenizer *t, const char *gguf, int context);
/* The tokens with which the model's texts begin and end, by its metadata, or -1. */
int64_t begin_of_text(const struct tokenizer *t);
int64_t end_of_model(const struct tokenizer *t);
#endif
