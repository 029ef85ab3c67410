#include "gguf_meta.h"
#include "text.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

const uint8_t gguf_sizes[GGUF_TYPES] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

static const char *bytes_at(struct gguf_meta *g, uint64_t n) {
    const char *at = g->at;
    if (n > (uint64_t)(g->end - at))
        die("%s: ends within its metadata, at byte %td: it was cut off", g->file, g->end - g->from);
    g->at += n;
    return at;
}

static uint64_t meta_number(struct gguf_meta *g, size_t width) {
    uint64_t x = 0;
    memcpy(&x, bytes_at(g, width), width); /* both this machine and the file are little-endian */
    return x;
}

struct gguf_bytes gguf_string_at(struct gguf_meta *g) {
    uint64_t n = meta_number(g, 8);
    return (struct gguf_bytes){bytes_at(g, n), n};
}

static struct gguf_value value_at(struct gguf_meta *g) {
    struct gguf_value v = {.type = (uint32_t)meta_number(g, 4), .n = 1};
    if ((v.array = v.type == GGUF_ARRAY)) {
        v.type = (uint32_t)meta_number(g, 4);
        v.n = meta_number(g, 8);
    }
    if (v.type >= GGUF_TYPES || v.type == GGUF_ARRAY)
        die("%s: byte %td: unknown value type %u", g->file, g->at - g->from, v.type);
    v.at = g->at;
    if (v.type != GGUF_STRING && v.n > (uint64_t)(g->end - g->at))
        v.n = (uint64_t)(g->end - g->at) + 1; /* cannot overflow in products, and still exceeds the file */
    if (v.type != GGUF_STRING)
        bytes_at(g, v.n * gguf_sizes[v.type]);
    else
        for (uint64_t i = 0; i < v.n; i++)
            gguf_string_at(g);
    return v;
}

struct gguf_value gguf_find(const struct gguf_meta *g, const char *key) {
    struct gguf_meta look = {g->file, g->from, g->from, g->end};
    bytes_at(&look, 4);
    uint64_t version = meta_number(&look, 4);
    if (version != 2 && version != 3)
        die("%s: GGUF version %llu; only 2 and 3 can be read", g->file, (unsigned long long)version);
    meta_number(&look, 8); /* number of tensors */
    for (uint64_t n = meta_number(&look, 8); n > 0; n--) {
        struct gguf_bytes name = gguf_string_at(&look);
        struct gguf_value v = value_at(&look);
        if (name.n == strlen(key) && memcmp(name.s, key, name.n) == 0)
            return v;
    }
    return (struct gguf_value){0};
}

const char *gguf_string(const struct gguf_meta *g, const char *key) {
    struct gguf_value v = gguf_find(g, key);
    if (!v.at)
        return NULL;
    if (v.array || v.type != GGUF_STRING)
        die("%s: %s is no string", g->file, tame(key));
    struct gguf_meta look = *g;
    look.at = v.at;
    struct gguf_bytes s = gguf_string_at(&look);
    return format("%.*s", s.n < 100 ? (int)s.n : 100, s.s);
}

#define AS(type_, x)                                                                                                   \
    {                                                                                                                  \
        type_ x_;                                                                                                      \
        memcpy(&x_, x, sizeof x_);                                                                                     \
        return (double)x_;                                                                                             \
    }
double gguf_number(const struct gguf_meta *g, const char *key, double otherwise) {
    struct gguf_value v = gguf_find(g, key);
    if (!v.at)
        return otherwise;
    switch (v.array ? GGUF_ARRAY : v.type) {
    case GGUF_BOOL:
    case GGUF_UINT8: AS(uint8_t, v.at)
    case GGUF_INT8: AS(int8_t, v.at)
    case GGUF_UINT16: AS(uint16_t, v.at)
    case GGUF_INT16: AS(int16_t, v.at)
    case GGUF_UINT32: AS(uint32_t, v.at)
    case GGUF_INT32: AS(int32_t, v.at)
    case GGUF_FLOAT32: AS(float, v.at)
    case GGUF_UINT64: AS(uint64_t, v.at)
    case GGUF_INT64: AS(int64_t, v.at)
    case GGUF_FLOAT64: AS(double, v.at)
    default: die("%s: %s is no number", g->file, tame(key));
    }
}
#undef AS

bool gguf_map(const char *path, struct gguf_meta *g) {
    struct stat st;
    char magic[4];
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    bool is = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && pread(fd, magic, 4, 0) == 4 &&
              memcmp(magic, "GGUF", 4) == 0;
    if (is) {
        const char *s = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (s == MAP_FAILED)
            die("%s: %s", path, strerror(errno));
        *g = (struct gguf_meta){path, s, s, s + st.st_size};
    }
    if (fd >= 0)
        close(fd);
    return is;
}
