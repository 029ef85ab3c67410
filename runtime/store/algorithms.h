/* A file of cuBLASLt's algorithms. For each product, it holds the fastest of several timed algorithms. Runs that read
 * the file time nothing, and compute the same bits.
 *
 * The file is text: a header, then a line for each product, with four fields separated by tabs.
 *
 *   device     the GPU's name
 *   cublaslt   cublasLtGetVersion(): algorithms are of one version
 *   product    transposed, shape, types and epilogue: NT 2304 x 768 x 32768, bf16 to fp32, epilogue 256
 *   algorithm  the bytes of its cublasLtMatmulAlgo_t in hexadecimal; or apart: the product without its epilogue, and a
 *              kernel, were faster
 *
 * Lines of other devices, versions and products stay as they are. */
#ifndef PIANOLA_ALGORITHMS_H
#define PIANOLA_ALGORITHMS_H
#include <stdbool.h>
#include <stddef.h>

enum { ALGORITHM_BYTES = 64 };
struct algorithms { /* zero except for the path: empty */
    const char *path;
    char *text; /* complete lines, including the header; NULL: none */
    size_t n;   /* bytes */
};
struct algorithm {
    int line; /* line number in the file */
    bool apart;
    unsigned char bytes[ALGORITHM_BYTES];
};

/* Reads the whole file. A missing file has no lines. Returns false with `path: reason` or `path:line: reason`. */
bool algorithms_read(struct algorithms *all, const char *path, char *why, size_t nwhy);
/* Finds the line whose first three fields, with their tabs, are key. Returns false if there is none. */
bool algorithms_find(const struct algorithms *all, const char *key, struct algorithm *found);
/* Adds a line. Returns false if there is no memory. */
bool algorithms_add(struct algorithms *all, const char *key, const struct algorithm *algorithm);
/* Adds n bytes of another file's text. Returns false if there is no memory. */
bool algorithms_join(struct algorithms *all, const char *text, size_t n);
/* Replaces the file, entirely or not at all. */
bool algorithms_write(const struct algorithms *all, char *why, size_t nwhy);
void algorithms_free(struct algorithms *all);
#endif
