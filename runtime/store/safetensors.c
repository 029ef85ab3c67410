#include "safetensors.h"
#include "json.h"
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "floats are written as they lie in memory");

/* ---- writing ---- */

int64_t tensor_bytes(const struct tensor *tensor) {
    int64_t bytes = sizeof(float);
    for (int d = 0; d < tensor->ndims; d++)
        bytes *= tensor->dim[d];
    return bytes;
}

static void write_string(FILE *f, const char *s) {
    for (const char *c = s; *c; c++)
        assert(*c >= ' ' && *c <= '~' && *c != '"' && *c != '\\');
    fprintf(f, "\"%s\"", s);
}

static void write_header(FILE *f, const struct tensor *tensor, int n, const struct tensor_meta *meta, int nmeta) {
    fputs("{\"__metadata__\":{", f);
    for (int i = 0; i < nmeta; i++) {
        fputs(i ? "," : "", f);
        write_string(f, meta[i].key);
        fputc(':', f);
        write_string(f, meta[i].value);
    }
    fputc('}', f);
    int64_t at = 0;
    for (int i = 0; i < n; i++) {
        fputc(',', f);
        write_string(f, tensor[i].name);
        fputs(":{\"dtype\":\"F32\",\"shape\":[", f);
        for (int d = 0; d < tensor[i].ndims; d++)
            fprintf(f, "%s%lld", d ? "," : "", (long long)tensor[i].dim[d]);
        int64_t end = at + tensor_bytes(&tensor[i]);
        fprintf(f, "],\"data_offsets\":[%lld,%lld]}", (long long)at, (long long)end);
        at = end;
    }
    fputc('}', f);
    while (ftell(f) % 8 != 0)
        fputc(' ', f);
}

/* Returns the header, of *size bytes, or NULL if there is no memory. */
static char *make_header(const struct tensor *tensor, int n, const struct tensor_meta *meta, int nmeta, size_t *size) {
    char *text = NULL;
    FILE *f = open_memstream(&text, size);
    if (f)
        write_header(f, tensor, n, meta, nmeta);
    bool made = f && !ferror(f);
    made = f && fclose(f) == 0 && made;
    if (!made)
        free(text);
    return made ? text : NULL;
}

bool safetensors_header(struct durable *durable, const struct tensor *tensor, int n, const struct tensor_meta *meta,
                        int nmeta) {
    size_t size = 0;
    if (durable->fd < 0)
        return false;
    char *text = make_header(tensor, n, meta, nmeta, &size);
    uint64_t length = size;
    if (!text || size > SAFETENSORS_HEADER) {
        snprintf(durable->why, durable->nwhy, "%s: %s", durable->path,
                 text ? "too many tensors for one file" : "no memory");
        durable_drop(durable);
    }
    durable_write(durable, &length, sizeof length);
    durable_write(durable, text, size);
    free(text);
    return durable->fd >= 0;
}

int64_t safetensors_begin(const struct tensor *tensor, int n, const struct tensor_meta *meta, int nmeta) {
    size_t size = 0;
    char *text = make_header(tensor, n, meta, nmeta, &size);
    free(text);
    return text ? (int64_t)(sizeof(uint64_t) + size) : -1;
}

/* ---- reading: the header ---- */

struct reader {
    struct json j;
    struct tensor *tensor;
    struct tensor_meta *meta;
    size_t n, cap, nmeta, capmeta;
    int64_t data;       /* beginning of the data in the file */
    int64_t bytes;      /* bytes of data */
    bool has_meta, any; /* any: accepts all types that can be read */
};

/* Returns an array with room for one more element, or NULL if there is no memory. */
static void *make_room(struct json *json, void *p, size_t n, size_t *cap, size_t size) {
    if (n < *cap)
        return p;
    void *q = realloc(p, (*cap * 2 + 16) * size);
    if (!q)
        json_fail(json, "no memory");
    else
        *cap = *cap * 2 + 16;
    return q;
}

static void read_meta(struct reader *reader) {
    struct json *json = &reader->j;
    if (reader->has_meta)
        json_fail(json, "__metadata__ appears twice");
    reader->has_meta = true;
    if (reader->any) {
        json_pass(json);
        return;
    }
    json_take(json, '{');
    if (json_next(json, '}'))
        return;
    do {
        struct tensor_meta meta = {.key = json_string(json)};
        json_take(json, ':');
        meta.value = json_string(json);
        void *room = json->bad ? NULL : make_room(json, reader->meta, reader->nmeta, &reader->capmeta, sizeof meta);
        if (!room)
            return;
        reader->meta = room;
        reader->meta[reader->nmeta++] = meta;
    } while (json_next(json, ','));
    json_take(json, '}');
}

static void read_shape(struct json *json, struct tensor *tensor) {
    json_take(json, '[');
    if (json_next(json, ']'))
        return;
    do {
        if (tensor->ndims == SAFETENSORS_DIMS)
            json_fail(json, "tensor %s: more than %d dimensions", tensor->name, SAFETENSORS_DIMS);
        else
            json_whole(json, &tensor->dim[tensor->ndims++]);
    } while (json_next(json, ','));
    json_take(json, ']');
}

/* Returns the bytes of a value of a type that the format defines but that cannot be read here; 0: no such type. */
static int64_t unread_bytes(const char *word) {
    static const char *const words[] = {"BOOL U8 I8 F8_E4M3 F8_E5M2 F8_E8M0", "U16 I16", "U32 I32", "U64 I64 F64 C64"};
    size_t n = strlen(word);
    for (int i = 0; n > 0 && i < 4; i++)
        for (const char *at = words[i]; (at = strstr(at, word)); at += n)
            if ((at == words[i] || at[-1] == ' ') && (at[n] == ' ' || at[n] == 0))
                return INT64_C(1) << i;
    return 0;
}

static void check_tensor(const struct reader *reader, struct json *json, const struct tensor *tensor) {
    int64_t need = tensor->unread ? unread_bytes(tensor->unread) : values_bytes(tensor->type, 1);
    for (int d = 0; d < tensor->ndims; d++)
        if (__builtin_mul_overflow(need, tensor->dim[d], &need)) {
            json_fail(json, "tensor %s: its shape is beyond any file", tensor->name);
            return;
        }
    if (tensor->at > tensor->end || tensor->end > reader->bytes)
        json_fail(json, "tensor %s: data_offsets [%lld,%lld] are not within the %lld bytes of data", tensor->name,
                  (long long)tensor->at, (long long)tensor->end, (long long)reader->bytes);
    else if (tensor->end - tensor->at != need)
        json_fail(json, "tensor %s: its shape takes %lld bytes, its data_offsets %lld", tensor->name, (long long)need,
                  (long long)(tensor->end - tensor->at));
}

static bool read_type(const struct reader *reader, const char *word, enum values *type) {
    for (enum values t = VALUES_F32; t <= (reader->any ? VALUES_BF16 : VALUES_F32); t++)
        if (strcmp(word, values_name(t)) == 0) {
            *type = t;
            return true;
        }
    return false;
}

static void read_tensor_entry(struct reader *reader, const char *name) {
    struct json *json = &reader->j;
    struct tensor tensor = {.name = name};
    bool dtype = false, shape = false, offsets = false;
    json_take(json, '{');
    do {
        const char *key = json_string(json), *value;
        json_take(json, ':');
        if (json->bad)
            return;
        if (strcmp(key, "dtype") == 0 && !dtype) {
            dtype = true;
            value = json_string(json);
            if (value && reader->any && unread_bytes(value) > 0)
                tensor.unread = value;
            else if (value && !read_type(reader, value, &tensor.type))
                json_fail(json, "tensor %s: dtype %s; only F32%s is read here", name, value,
                          reader->any ? ", F16 or BF16" : "");
        } else if (strcmp(key, "shape") == 0 && !shape) {
            shape = true;
            read_shape(json, &tensor);
        } else if (strcmp(key, "data_offsets") == 0 && !offsets) {
            offsets = json_take(json, '[') && json_whole(json, &tensor.at) && json_take(json, ',') &&
                      json_whole(json, &tensor.end) && json_take(json, ']');
        } else
            json_fail(json, "tensor %s: %s is unknown, or given twice", name, key);
    } while (json_next(json, ','));
    json_take(json, '}');
    if (!dtype || !shape || !offsets)
        json_fail(json, "tensor %s: needs dtype, shape and data_offsets", name);
    if (!json->bad)
        check_tensor(reader, json, &tensor);
    void *room = json->bad ? NULL : make_room(json, reader->tensor, reader->n, &reader->cap, sizeof tensor);
    if (!room)
        return;
    reader->tensor = room;
    reader->tensor[reader->n++] = tensor;
}

static void read_header(struct reader *reader) {
    struct json *json = &reader->j;
    if (json->at == json->end || *json->at != '{')
        json_fail(json, "expected {");
    json_take(json, '{');
    if (!json_next(json, '}')) {
        do {
            const char *name = json_string(json);
            json_take(json, ':');
            if (json->bad)
                return;
            if (strcmp(name, "__metadata__") == 0)
                read_meta(reader);
            else
                read_tensor_entry(reader, name);
        } while (json_next(json, ','));
        json_take(json, '}');
    }
    json_end(json);
}

/* ---- reading: checks of all tensors together ---- */

static int by_offset(const void *a, const void *b) {
    const struct tensor *x = a, *y = b;
    if (x->at != y->at)
        return x->at < y->at ? -1 : 1;
    if (x->end != y->end)
        return x->end < y->end ? -1 : 1;
    return strcmp(x->name, y->name);
}

static int by_tensor_name(const void *a, const void *b) {
    return strcmp((*(const struct tensor *const *)a)->name, (*(const struct tensor *const *)b)->name);
}

static int by_meta_key(const void *a, const void *b) {
    return strcmp(((const struct tensor_meta *)a)->key, ((const struct tensor_meta *)b)->key);
}

static bool check_places(const struct reader *reader, const struct safetensors *file, char *why, size_t nwhy) {
    int64_t at = 0;
    for (int i = 0; i < file->n; i++) {
        const struct tensor *tensor = &file->tensor[i];
        if (tensor->at < at)
            snprintf(why, nwhy, "%s: tensor %s overlaps %s", file->path, tensor->name, file->tensor[i - 1].name);
        else if (tensor->at > at)
            snprintf(why, nwhy, "%s: %lld bytes before tensor %s belong to no tensor", file->path,
                     (long long)(tensor->at - at), tensor->name);
        if (tensor->at != at)
            return false;
        at = tensor->end;
    }
    if (at != reader->bytes)
        snprintf(why, nwhy, "%s: %lld bytes after the last tensor belong to no tensor", file->path,
                 (long long)(reader->bytes - at));
    return at == reader->bytes;
}

static bool check_names(const struct safetensors *file, char *why, size_t nwhy) {
    for (int i = 1; i < file->n; i++)
        if (strcmp(file->by_name[i - 1]->name, file->by_name[i]->name) == 0) {
            snprintf(why, nwhy, "%s: tensor %s appears twice", file->path, file->by_name[i]->name);
            return false;
        }
    for (int i = 1; i < file->nmeta; i++)
        if (strcmp(file->meta[i - 1].key, file->meta[i].key) == 0) {
            snprintf(why, nwhy, "%s: metadata %s appears twice", file->path, file->meta[i].key);
            return false;
        }
    return true;
}

/* Sorts the tensors, checks them together, and converts their offsets to offsets in the file. */
static bool settle_header(struct reader *reader, struct safetensors *file, char *why, size_t nwhy) {
    file->by_name = malloc((reader->n + 1) * sizeof *file->by_name);
    if (!file->by_name) {
        snprintf(why, nwhy, "%s: no memory", file->path);
        return false;
    }
    qsort(reader->n ? reader->tensor : (void *)file->by_name, reader->n, sizeof *reader->tensor, by_offset);
    qsort(reader->nmeta ? reader->meta : (void *)file->by_name, reader->nmeta, sizeof *reader->meta, by_meta_key);
    for (size_t i = 0; i < reader->n; i++)
        file->by_name[i] = &reader->tensor[i];
    qsort(file->by_name, reader->n, sizeof *file->by_name, by_tensor_name);
    if (!check_names(file, why, nwhy) || !check_places(reader, file, why, nwhy))
        return false;
    for (size_t i = 0; i < reader->n; i++) {
        reader->tensor[i].at += reader->data;
        reader->tensor[i].end += reader->data;
    }
    return true;
}

/* ---- reading: the file ---- */

/* Reads the header's bytes, after checking its length. */
static bool load_header(struct reader *reader, struct safetensors *file, int64_t size, char *why, size_t nwhy) {
    uint64_t length = 0;
    if (size < 8) {
        snprintf(why, nwhy, "%s: has %lld bytes, too few for a safetensors file", file->path, (long long)size);
        return false;
    }
    if (!durable_read(file->fd, file->path, &length, sizeof length, 0, why, nwhy))
        return false;
    if (length > SAFETENSORS_HEADER || length > (uint64_t)size - 8) {
        snprintf(why, nwhy, "%s: says its header has %llu bytes, but %s", file->path, (unsigned long long)length,
                 length > SAFETENSORS_HEADER ? "at most 100000000 are allowed" : "the file is shorter");
        return false;
    }
    file->header = malloc((size_t)length + 1);
    if (!file->header) {
        snprintf(why, nwhy, "%s: no memory", file->path);
        return false;
    }
    reader->data = 8 + (int64_t)length;
    reader->bytes = size - reader->data;
    reader->j =
        (struct json){.from = file->header, .at = file->header, .end = file->header + length, .in = "the header"};
    reader->j.file = file->path;
    reader->j.why = why;
    reader->j.nwhy = nwhy;
    return durable_read(file->fd, file->path, file->header, (size_t)length, 8, why, nwhy);
}

static struct safetensors *open_file(const char *path, bool any, char *why, size_t nwhy) {
    struct reader reader = {.any = any};
    int64_t size;
    struct safetensors *file = calloc(1, sizeof *file);
    if (!file || !(file->path = strdup(path))) {
        snprintf(why, nwhy, "%s: no memory", path);
        free(file);
        return NULL;
    }
    file->fd = durable_open(path, &size, why, nwhy);
    bool ok = file->fd >= 0 && load_header(&reader, file, size, why, nwhy);
    if (ok) {
        read_header(&reader);
        ok = !reader.j.bad;
    }
    file->tensor = reader.tensor;
    file->meta = reader.meta;
    file->n = (int)reader.n;
    file->nmeta = (int)reader.nmeta;
    if (ok && settle_header(&reader, file, why, nwhy))
        return file;
    safetensors_close(file);
    return NULL;
}

struct safetensors *safetensors_open(const char *path, char *why, size_t nwhy) {
    return open_file(path, false, why, nwhy);
}
struct safetensors *safetensors_open_any(const char *path, char *why, size_t nwhy) {
    return open_file(path, true, why, nwhy);
}

const struct tensor *safetensors_find(const struct safetensors *file, const char *name) {
    const struct tensor key = {.name = name}, *want = &key;
    const struct tensor **at = bsearch(&want, file->by_name, (size_t)file->n, sizeof *file->by_name, by_tensor_name);
    return at ? *at : NULL;
}

const char *safetensors_meta(const struct safetensors *file, const char *key) {
    for (int i = 0; i < file->nmeta; i++)
        if (strcmp(file->meta[i].key, key) == 0)
            return file->meta[i].value;
    return NULL;
}

bool safetensors_read(const struct safetensors *file, const struct tensor *tensor, float *out, char *why, size_t nwhy) {
    return durable_read(file->fd, file->path, out, (size_t)(tensor->end - tensor->at), tensor->at, why, nwhy);
}

void safetensors_close(struct safetensors *file) {
    if (file->fd >= 0)
        close(file->fd);
    free((void *)file->path);
    free((void *)file->tensor);
    free((void *)file->meta);
    free(file->by_name);
    free(file->header);
    free(file);
}
