/* Text as a model's tokens, and back: byte-level BPE, as in GPT-2, Llama 3, Qwen and SmolLM2.
 *
 * A text is cut into words by the tokenizer's own regular expressions (pretokenize.c). Each word's bytes are merged,
 * the pair of the lowest rank first, until no neighbours form a merge (merge.c: Sennrich 2016, Radford 2019). The
 * library `tokenizers` gives the same results for the same file; a file that needs anything else is refused by name.
 * Special tokens are never recognized in a text: <|endoftext|> there is thirteen characters. */
#ifndef PIANOLA_TOKENS_H
#define PIANOLA_TOKENS_H
#include "base/text.h"

struct tokenizer;

/* Reads a Hugging Face tokenizer.json, a folder with vocab.json and merges.txt, or a GGUF file. Dies if it is none of
 * these, or not byte-level BPE. */
struct tokenizer *read_tokenizer(const char *path);

/* Passes to `take` the tokens of each word in turn, and the number of text bytes that they cover. Returns false if the
 * text was not in NFC although the tokenizer requires it; the tokens then belong to the NFC text. Bytes that are not
 * UTF-8 are words of their own. */
typedef void take_tokens(void *with, const uint32_t *id, size_t n, size_t bytes);
bool encode(struct tokenizer *t, const char *text, size_t n, take_tokens *take, void *with);

/* Appends the bytes that the token stands for; returns false if there is no such token. */
bool decode(const struct tokenizer *t, uint32_t id, struct text *out);

uint32_t token_limit(const struct tokenizer *t); /* one more than the largest token */
int64_t end_of_text(const struct tokenizer *t);  /* the token between documents; -1: none */
int64_t end_of_turn(const struct tokenizer *t);  /* the token with which a model ends its turn; -1: none */
int64_t token_named(const struct tokenizer *t, const char *name); /* includes special tokens; -1: none */

/* The tokens that each of the model's texts has before or after it, as the file says: mostly none, or one before it. */
enum { MOST_AROUND = 8 };
struct around {
    int n;
    int64_t id[MOST_AROUND];
    const char *name[MOST_AROUND]; /* for file readers: name of the token that id will be, or NULL */
};
const struct around *in_front_of_text(const struct tokenizer *t);
const struct around *behind_text(const struct tokenizer *t);
bool is_around(const struct around *around, int64_t id);

/* write_tokenizer.c: writes the tokenizer of a GGUF file as tokenizer.json and tokenizer_config.json. The latter has
 * the tokens that begin and end texts, and the template for chats. context: the largest number of tokens that the model
 * reads. */
struct text tokenizer_json(const struct tokenizer *t, const char *gguf);
struct text tokenizer_config(const struct tokenizer *t, const char *gguf, int context);
/* Return the tokens with which the model's texts begin and end, by its metadata, or -1. */
int64_t begin_of_text(const struct tokenizer *t);
int64_t end_of_model(const struct tokenizer *t);
#endif
