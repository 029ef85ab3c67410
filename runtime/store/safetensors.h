/* Files of named tensors in the safetensors format (README of https://github.com/huggingface/safetensors).
 *
 * u64 header length, little-endian; the header, JSON padded with spaces to 8 bytes:
 * {"__metadata__":{"key":"value"},"name":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},…}; then the data, row by
 * row, little-endian, at the offsets, each byte in exactly one tensor. Here all tensors that are written are F32. */
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
    const char *unread; /* its type, if that is none whose values are read; or NULL */
    int64_t at, end;    /* when read: bytes of the file */
};
struct tensor_meta {
    const char *key, *value;
};

int64_t tensor_bytes(const struct tensor *tensor); /* of its data, by its shape */

/* ---- writing: the header here, then the caller the data, in the order of `tensor` ---- */

bool safetensors_header(struct durable *durable, const struct tensor *tensor, int n, const struct tensor_meta *meta,
                        int nmeta);
/* The byte of the file with which the data begin; -1: no memory. */
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

/* Opens a file that obeys all the rules above. Otherwise NULL, and why names the file and the rule. */
struct safetensors *safetensors_open(const char *path, char *why, size_t nwhy);
/* One of anyone's: its metadata may be anything, and are passed over. Its tensors may be of other types, such as those
 * of buffers that are no weights; they cannot be read by safetensors_read. */
struct safetensors *safetensors_open_any(const char *path, char *why, size_t nwhy);
const struct tensor *safetensors_find(const struct safetensors *file, const char *name); /* NULL: not there */
const char *safetensors_meta(const struct safetensors *file, const char *key);           /* NULL: not there */
/* The whole tensor into out, of (end - at) bytes. */
bool safetensors_read(const struct safetensors *file, const struct tensor *tensor, float *out, char *why, size_t nwhy);
void safetensors_close(struct safetensors *file);
#endif
