/* SHA-256 (FIPS 180-4) and, with a key, HMAC-SHA-256 (RFC 2104): cryptographic, unlike hash.h. */
#ifndef PIANOLA_SHA256_H
#define PIANOLA_SHA256_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sha256 {
    uint32_t state[8];
    uint64_t bytes;         /* bytes added so far */
    unsigned char part[64]; /* current block */
};
struct digest {
    unsigned char byte[32];
};
struct sha256 sha256_begin(void);
void sha256_add(struct sha256 *sha, const void *bytes, size_t n);
struct digest sha256_end(struct sha256 *sha);

enum { SHA256_HEX = 65 };
/* Writes a file's hash as hexadecimal digits. Returns its size; -1: it cannot be read, and errno says why. */
int64_t sha256_file(const char *path, char hex[SHA256_HEX]);

struct digest hmac_sha256(const void *key, size_t nkey, const void *bytes, size_t n);
/* Compares in constant time. */
bool digest_same(const struct digest *a, const struct digest *b);
#endif
