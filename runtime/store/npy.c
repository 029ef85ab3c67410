#include "npy.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST_HEADER = 4096 };

/* Returns what follows a key in the header, a Python dictionary, or "". */
static const char *header_value(const char *header, const char *key) {
    const char *at = strstr(header, key);
    at = at ? strchr(at, ':') : NULL;
    return at ? at + 1 + strspn(at + 1, " ") : "";
}

/* Reads (n,) or (n, m). Returns whether it is one of these. */
static bool npy_shape(const char *text, struct npy *out) {
    char *end = NULL;
    out->rows = *text == '(' ? strtoll(text + 1, &end, 10) : -1;
    out->columns = 1;
    if (out->rows < 0 || end == text + 1 || *end != ',')
        return false;
    end += 1 + strspn(end + 1, " ");
    if (*end != ')')
        out->columns = strtoll(end, &end, 10);
    end += *end == ',';
    return *end == ')' && out->columns >= 1 && out->columns <= INT32_MAX;
}

static bool npy_type(const char *text, struct npy *out) {
    static const char *const types[] = {"'|i1'", "'<i2'", "'<i4'", "'<i8'", "'<f4'"};
    for (int i = 0; i < 5; i++)
        if (strncmp(text, types[i], 5) == 0) {
            out->kind = types[i][2];
            out->width = types[i][3] - '0';
            return true;
        }
    return false;
}

bool npy_read(const void *bytes, size_t size, struct npy *out, const char *path, char *why, size_t nwhy) {
    const uint8_t *at = bytes;
    char header[LONGEST_HEADER + 1];
    bool npy = size >= 12 && memcmp(at, "\x93NUMPY", 6) == 0 && at[6] >= 1 && at[6] <= 3;
    size_t begin = npy && at[6] > 1 ? 12 : 10;
    size_t n = !npy ? 0 : at[8] + (size_t)at[9] * 256 + (begin == 12 ? (at[10] + (size_t)at[11] * 256) << 16 : 0);
    if (!npy || n > LONGEST_HEADER || n > size - begin) {
        snprintf(why, nwhy, "%s: is no array of NumPy; write it with numpy.save", path);
        return false;
    }
    memcpy(header, at + begin, n);
    header[n] = 0;
    if (!npy_type(header_value(header, "'descr'"), out)) {
        snprintf(why, nwhy, "%s: its type is %.5s; save it as int8 to int64, or as float32, little-endian", path,
                 header_value(header, "'descr'"));
        return false;
    }
    if (!npy_shape(header_value(header, "'shape'"), out) ||
        strncmp(header_value(header, "'fortran_order'"), "False", 5) != 0) {
        snprintf(why, nwhy, "%s: must have one or two dimensions, with its rows one after the other", path);
        return false;
    }
    out->at = at + begin + n;
    if (out->rows > 0 && (size - begin - n) / (size_t)out->width / (size_t)out->columns != (size_t)out->rows) {
        snprintf(why, nwhy, "%s: has %zu bytes of numbers, but its header says %lld x %lld of %d", path,
                 size - begin - n, (long long)out->rows, (long long)out->columns, out->width);
        return false;
    }
    return true;
}

int64_t npy_integer(const struct npy *array, int64_t i) {
    const uint8_t *at = array->at + i * array->width;
    int16_t two;
    int32_t four;
    int64_t eight;
    switch (array->width) {
    case 1: return *(const int8_t *)at;
    case 2: memcpy(&two, at, sizeof two); return two;
    case 4: memcpy(&four, at, sizeof four); return four;
    default: memcpy(&eight, at, sizeof eight); return eight;
    }
}
