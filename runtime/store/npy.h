/* Arrays in NumPy's format, .npy, little-endian. */
#ifndef PIANOLA_NPY_H
#define PIANOLA_NPY_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* rows x columns numbers of `width` bytes each: integers ('i'), or floats of 4 bytes ('f'). */
struct npy {
    const uint8_t *at;
    int64_t rows, columns;
    char kind;
    int width;
};
/* Finds the array in the bytes of a whole file: a vector, or a matrix whose rows lie one after the other. Returns false
 * with `path: reason` if it is another, or is truncated. */
bool npy_read(const void *bytes, size_t size, struct npy *out, const char *path, char *why, size_t nwhy);
int64_t npy_integer(const struct npy *array, int64_t i);
#endif
