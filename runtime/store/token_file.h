/* Files of tokens in llm.c's format, little-endian. A header of 1024 bytes begins with three 32-bit numbers: a magic
 * number, a version, and the number of tokens. The tokens follow, of 16 bits (20240520, 1) or of 32 bits (20240801,
 * 7). */
#ifndef PIANOLA_TOKEN_FILE_H
#define PIANOLA_TOKEN_FILE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { TOKEN_HEAD = 1024 };

/* n tokens of `width` bytes each: 2 or 4, or 1 if the bytes of a text are the tokens. */
struct tokens {
    const uint8_t *at;
    int64_t n;
    int width;
};

void token_head(uint8_t head[TOKEN_HEAD], int64_t n, int width); /* n is below 2^31 */
bool is_token_file(const void *bytes, size_t size);              /* checks the first bytes */
/* Finds the tokens in the bytes of a whole file. Returns false with `path: reason` if it is not a file of tokens, or is
 * truncated. */
bool read_tokens(const void *bytes, size_t size, struct tokens *out, const char *path, char *why, size_t nwhy);

static inline uint32_t token_at(const struct tokens *tokens, int64_t i) {
    uint32_t wide;
    uint16_t narrow;
    if (tokens->width == 1)
        return tokens->at[i];
    if (tokens->width == 2) {
        memcpy(&narrow, tokens->at + 2 * i, 2);
        return narrow;
    }
    memcpy(&wide, tokens->at + 4 * i, 4);
    return wide;
}
#endif
