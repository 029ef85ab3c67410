#include "sha256.h"
#include <stdio.h>
#include <string.h>

enum { BLOCK = 64 };

/* FIPS 180-4, 4.2.2 and 5.3.3: the first 32 bits of the fractional parts of the primes' cube and square roots. */
static const uint32_t K[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

struct sha256 sha256_begin(void) {
    return (struct sha256){
        .state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19}};
}

static uint32_t rotated(uint32_t x, int n) { return x >> n | x << (32 - n); }

static void add_block(uint32_t *state, const unsigned char *p) {
    uint32_t w[64], s[8];
    for (int i = 0; i < 16; i++, p += 4)
        w[i] = (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
    for (int i = 16; i < 64; i++)
        w[i] = w[i - 16] + (rotated(w[i - 15], 7) ^ rotated(w[i - 15], 18) ^ w[i - 15] >> 3) + w[i - 7] +
               (rotated(w[i - 2], 17) ^ rotated(w[i - 2], 19) ^ w[i - 2] >> 10);
    memcpy(s, state, sizeof s);
    for (int i = 0; i < 64; i++) {
        uint32_t choice = (s[4] & s[5]) ^ (~s[4] & s[6]), majority = (s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]);
        uint32_t one = s[7] + (rotated(s[4], 6) ^ rotated(s[4], 11) ^ rotated(s[4], 25)) + choice + K[i] + w[i];
        uint32_t two = (rotated(s[0], 2) ^ rotated(s[0], 13) ^ rotated(s[0], 22)) + majority;
        memmove(s + 1, s, 7 * sizeof *s);
        s[4] += one;
        s[0] = one + two;
    }
    for (int i = 0; i < 8; i++)
        state[i] += s[i];
}

void sha256_add(struct sha256 *sha, const void *bytes, size_t n) {
    for (const unsigned char *p = bytes; n > 0; p++, n--) {
        sha->part[sha->bytes++ % BLOCK] = *p;
        if (sha->bytes % BLOCK == 0)
            add_block(sha->state, sha->part);
    }
}

struct digest sha256_end(struct sha256 *sha) {
    uint64_t bits = 8 * sha->bytes;
    unsigned char size[8];
    struct digest out;
    for (int i = 0; i < 8; i++)
        size[i] = (unsigned char)(bits >> (56 - 8 * i));
    sha256_add(sha, "\x80", 1);
    while (sha->bytes % BLOCK != BLOCK - sizeof size)
        sha256_add(sha, "", 1);
    sha256_add(sha, size, sizeof size);
    for (int i = 0; i < 32; i++)
        out.byte[i] = (unsigned char)(sha->state[i / 4] >> (24 - 8 * (i % 4)));
    return out;
}

int64_t sha256_file(const char *path, char hex[SHA256_HEX]) {
    enum { PIECE = 1 << 16 };
    unsigned char piece[PIECE];
    struct sha256 sha = sha256_begin();
    FILE *file = fopen(path, "rb");
    bool ok = file;
    for (size_t n = 1; ok && n > 0;) {
        n = fread(piece, 1, sizeof piece, file);
        sha256_add(&sha, piece, n);
        ok = !ferror(file);
    }
    if (file)
        fclose(file);
    int64_t bytes = (int64_t)sha.bytes;
    struct digest digest = sha256_end(&sha);
    for (int i = 0; i < 32; i++)
        snprintf(hex + (size_t)i * 2, 3, "%02x", digest.byte[i]);
    return ok ? bytes : -1;
}

/* Hashes a block, the key with each byte XORed with `pad`, and then the bytes. */
static struct digest keyed(const unsigned char *key, unsigned char pad, const void *bytes, size_t n) {
    unsigned char block[BLOCK];
    struct sha256 sha = sha256_begin();
    for (int i = 0; i < BLOCK; i++)
        block[i] = key[i] ^ pad;
    sha256_add(&sha, block, sizeof block);
    sha256_add(&sha, bytes, n);
    return sha256_end(&sha);
}

struct digest hmac_sha256(const void *key, size_t nkey, const void *bytes, size_t n) {
    unsigned char block[BLOCK] = {0};
    if (nkey > BLOCK) {
        struct sha256 sha = sha256_begin();
        sha256_add(&sha, key, nkey);
        struct digest shorter = sha256_end(&sha);
        memcpy(block, shorter.byte, sizeof shorter.byte);
    } else
        memcpy(block, key, nkey);
    struct digest inner = keyed(block, 0x36, bytes, n);
    return keyed(block, 0x5c, inner.byte, sizeof inner.byte);
}

bool digest_same(const struct digest *a, const struct digest *b) {
    unsigned char differs = 0;
    for (size_t i = 0; i < sizeof a->byte; i++)
        differs |= a->byte[i] ^ b->byte[i];
    return differs == 0;
}
