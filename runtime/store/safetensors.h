/* Files of named tensors in the safetensors format (README of https://github.com/huggingface/safetensors).
 *
 * A file is the header's length, a little-endian u64; the header, JSON padded with spaces to 8 bytes:
 * {"__metadata__":{"key":"value"},"name":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},…}; then the data, row by
 * row, little-endian, at the offsets, each byte in exactly one tensor. All tensors that are written here are F32. */
#ifndef PIANOLA_SAFETENSORS_H
#define PIANOLA_SAFETENSORS_H
#include "durable.h"
#include "values.h"

enum { SAFETENSORS_DIMS = 4, SAFETENSORS_HEADER = 100000000 };

struct tensor {
    const char *name; /* printable ASCII without quotes and backslashes; so is metadata */
    int32_t ndims;
    int64_t dim[SAFETENSORS_DIMS];
    enum values type;
    const char *unread; /* its type, if values of that type cannot be read; else NULL */
    int64_t at, end;    /* after reading: bytes of the file */
};
struct tensor_meta {
    const char *key, *value;
};

int64_t tensor_bytes(const struct tensor *tensor); /* returns the bytes of its data, from its shape */

/* ---- writing: safetensors_header first, then the caller writes the data, in the order of `tensor` ---- */

bool safetensors_header(struct durable *durable, const struct tensor *tensor, int n, const struct tensor_meta *meta,
                        int nmeta);
/* Returns the byte of the file at which the data begin, or -1 if there is no memory. */
int64_t safetensors_begin(const struct tensor *tensor, int n, const struct tensor_meta *meta, int nmeta);

/* ---- reading: nothing in a file is trusted ---- */

struct safetensors {
    const char *path;
    int n, nmeta;
    const struct tensor *tensor; /* in the order of their data */
    const struct tensor_meta *meta;
    /* private */
    int fd;
    char *header;
    const struct tensor **by_name;
};

/* Opens a file that follows all the rules above. Otherwise returns NULL and sets why to the file and the rule. */
struct safetensors *safetensors_open(const char *path, char *why, size_t nwhy);
/* Opens any safetensors file. Its metadata may be anything, and are skipped. Its tensors may have other types, such as
 * buffers that are not weights; safetensors_read cannot read those. */
struct safetensors *safetensors_open_any(const char *path, char *why, size_t nwhy);
const struct tensor *safetensors_find(const struct safetensors *file, const char *name); /* NULL: not there */
const char *safetensors_meta(const struct safetensors *file, const char *key);           /* NULL: not there */
/* Reads the whole tensor into out, which has (end - at) bytes. */
bool safetensors_read(const struct safetensors *file, const struct tensor *tensor, float *out, char *why, size_t nwhy);
void safetensors_close(struct safetensors *file);
#endif
