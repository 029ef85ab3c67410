/* A file of cuBLASLt's algorithms: for each product the one that was fastest when several were timed. Runs that read it
 * time nothing, and compute the same bits.
 *
 * Text: a header, then a line for each product, of four fields with a tab between them.
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
struct algorithms { /* zero with a path: empty */
    const char *path;
    char *text; /* whole lines, the header too; NULL: none */
    size_t n;   /* bytes */
};
struct algorithm {
    int line; /* of the file */
    bool apart;
    unsigned char bytes[ALGORITHM_BYTES];
};

/* Reads all of the file. A file that is not there has no lines. False with `path: reason` or `path:line: reason`. */
bool algorithms_read(struct algorithms *all, const char *path, char *why, size_t nwhy);
/* The line whose first three fields are key, tabs between them. False: there is none. */
bool algorithms_find(const struct algorithms *all, const char *key, struct algorithm *found);
/* Adds a line. False: no memory. */
bool algorithms_add(struct algorithms *all, const char *key, const struct algorithm *algorithm);
/* Adds n bytes of another's text. False: no memory. */
bool algorithms_join(struct algorithms *all, const char *text, size_t n);
/* Replaces the file, as a whole or not at all. */
bool algorithms_write(const struct algorithms *all, char *why, size_t nwhy);
void algorithms_free(struct algorithms *all);
#endif
