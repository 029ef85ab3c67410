/* Files of tokens, as llm.c's: 1024 bytes of head, of which three numbers of 32 bits count - a magic one, a version,
 * the number of tokens - and then the tokens, of 16 bits (20240520, 1) or of 32 (20240801, 7). Little-endian. */
#ifndef PIANOLA_TOKEN_FILE_H
#define PIANOLA_TOKEN_FILE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { TOKEN_HEAD = 1024 };

/* n tokens of so many bytes each: 2 or 4, or 1 where the bytes of a text are the tokens. */
struct tokens {
    const uint8_t *at;
    int64_t n;
    int width;
};

void token_head(uint8_t head[TOKEN_HEAD], int64_t n, int width); /* n is below 2^31 */
bool is_token_file(const void *bytes, size_t size);              /* by how it begins */
/* The tokens in the bytes of a whole file. False with `path: reason` when it is none, or was cut off. */
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
