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

static int64_t tensor_bytes(const struct tensor *t) {
    int64_t bytes = sizeof(float);
    for (int d = 0; d < t->ndims; d++)
        bytes *= t->dim[d];
    return bytes;
}

static void put_string(FILE *f, const char *s) {
    for (const char *c = s; *c; c++)
        assert(*c >= ' ' && *c <= '~' && *c != '"' && *c != '\\');
    fprintf(f, "\"%s\"", s);
}

static void put_header(FILE *f, const struct tensor *t, int n, const struct tensor_meta *meta, int nmeta) {
    fputs("{\"__metadata__\":{", f);
    for (int i = 0; i < nmeta; i++) {
        fputs(i ? "," : "", f);
        put_string(f, meta[i].key);
        fputc(':', f);
        put_string(f, meta[i].value);
    }
    fputc('}', f);
    int64_t at = 0;
    for (int i = 0; i < n; i++) {
        fputc(',', f);
        put_string(f, t[i].name);
        fputs(":{\"dtype\":\"F32\",\"shape\":[", f);
        for (int d = 0; d < t[i].ndims; d++)
            fprintf(f, "%s%lld", d ? "," : "", (long long)t[i].dim[d]);
        int64_t end = at + tensor_bytes(&t[i]);
        fprintf(f, "],\"data_offsets\":[%lld,%lld]}", (long long)at, (long long)end);
        at = end;
    }
    fputc('}', f);
    while (ftell(f) % 8 != 0)
        fputc(' ', f);
}

bool safetensors_header(struct durable *d, const struct tensor *t, int n, const struct tensor_meta *meta, int nmeta) {
    char *text = NULL;
    size_t size = 0;
    if (d->fd < 0)
        return false;
    FILE *f = open_memstream(&text, &size);
    if (f)
        put_header(f, t, n, meta, nmeta);
    bool made = f && !ferror(f);
    made = f && fclose(f) == 0 && made;
    uint64_t length = size;
    if (!made || size > SAFETENSORS_HEADER) {
        snprintf(d->why, d->nwhy, "%s: %s", d->path, made ? "too many tensors for one file" : "no memory");
        durable_drop(d);
    }
    durable_write(d, &length, sizeof length);
    durable_write(d, text, size);
    free(text);
    return d->fd >= 0;
}

bool safetensors_write(const char *path, const struct tensor *t, int n, const struct tensor_meta *meta, int nmeta,
                       char *why, size_t nwhy) {
    struct durable d;
    if (!durable_begin(&d, path, why, nwhy))
        return false;
    safetensors_header(&d, t, n, meta, nmeta);
    for (int i = 0; i < n; i++)
        durable_write(&d, t[i].data, (size_t)tensor_bytes(&t[i]));
    return durable_end(&d);
}

/* ---- reading: the header ---- */

struct reader {
    struct json j;
    struct tensor *tensor;
    struct tensor_meta *meta;
    size_t n, cap, nmeta, capmeta;
    int64_t data;  /* where the data begins in the file */
    int64_t bytes; /* of data */
    bool has_meta;
};

/* Room for one more; NULL when there is none. */
static void *grow(struct json *j, void *p, size_t n, size_t *cap, size_t size) {
    if (n < *cap)
        return p;
    void *q = realloc(p, (*cap * 2 + 16) * size);
    if (!q)
        json_fail(j, "no memory");
    else
        *cap = *cap * 2 + 16;
    return q;
}

static void read_metadata(struct reader *r) {
    struct json *j = &r->j;
    if (r->has_meta)
        json_fail(j, "__metadata__ appears twice");
    r->has_meta = true;
    json_take(j, '{');
    if (json_next(j, '}'))
        return;
    do {
        struct tensor_meta m = {.key = json_string(j)};
        json_take(j, ':');
        m.value = json_string(j);
        void *room = j->bad ? NULL : grow(j, r->meta, r->nmeta, &r->capmeta, sizeof m);
        if (!room)
            return;
        r->meta = room;
        r->meta[r->nmeta++] = m;
    } while (json_next(j, ','));
    json_take(j, '}');
}

static void read_shape(struct json *j, struct tensor *t) {
    json_take(j, '[');
    if (json_next(j, ']'))
        return;
    do {
        if (t->ndims == SAFETENSORS_DIMS)
            json_fail(j, "tensor %s: more than %d dimensions", t->name, SAFETENSORS_DIMS);
        else
            json_whole(j, &t->dim[t->ndims++]);
    } while (json_next(j, ','));
    json_take(j, ']');
}

static void check_tensor(const struct reader *r, struct json *j, const struct tensor *t) {
    int64_t need = sizeof(float);
    for (int d = 0; d < t->ndims; d++)
        if (__builtin_mul_overflow(need, t->dim[d], &need)) {
            json_fail(j, "tensor %s: its shape is beyond any file", t->name);
            return;
        }
    if (t->at > t->end || t->end > r->bytes)
        json_fail(j, "tensor %s: data_offsets [%lld,%lld] are not within the %lld bytes of data", t->name,
                  (long long)t->at, (long long)t->end, (long long)r->bytes);
    else if (t->end - t->at != need)
        json_fail(j, "tensor %s: its shape takes %lld bytes, its data_offsets %lld", t->name, (long long)need,
                  (long long)(t->end - t->at));
}

static void read_tensor(struct reader *r, const char *name) {
    struct json *j = &r->j;
    struct tensor t = {.name = name};
    bool dtype = false, shape = false, offsets = false;
    json_take(j, '{');
    do {
        const char *key = json_string(j), *value;
        json_take(j, ':');
        if (j->bad)
            return;
        if (strcmp(key, "dtype") == 0 && !dtype) {
            dtype = true;
            value = json_string(j);
            if (value && strcmp(value, "F32") != 0)
                json_fail(j, "tensor %s: dtype %s; only F32 is read here", name, value);
        } else if (strcmp(key, "shape") == 0 && !shape) {
            shape = true;
            read_shape(j, &t);
        } else if (strcmp(key, "data_offsets") == 0 && !offsets) {
            offsets = json_take(j, '[') && json_whole(j, &t.at) && json_take(j, ',') && json_whole(j, &t.end) &&
                      json_take(j, ']');
        } else
            json_fail(j, "tensor %s: %s is unknown, or there twice", name, key);
    } while (json_next(j, ','));
    json_take(j, '}');
    if (!dtype || !shape || !offsets)
        json_fail(j, "tensor %s: needs dtype, shape and data_offsets", name);
    if (!j->bad)
        check_tensor(r, j, &t);
    void *room = j->bad ? NULL : grow(j, r->tensor, r->n, &r->cap, sizeof t);
    if (!room)
        return;
    r->tensor = room;
    r->tensor[r->n++] = t;
}

static void read_header(struct reader *r) {
    struct json *j = &r->j;
    if (j->at == j->end || *j->at != '{')
        json_fail(j, "expected {");
    json_take(j, '{');
    if (!json_next(j, '}')) {
        do {
            const char *name = json_string(j);
            json_take(j, ':');
            if (j->bad)
                return;
            if (strcmp(name, "__metadata__") == 0)
                read_metadata(r);
            else
                read_tensor(r, name);
        } while (json_next(j, ','));
        json_take(j, '}');
    }
    json_end(j);
}

/* ---- reading: what only all tensors together show ---- */

static int by_place(const void *a, const void *b) {
    const struct tensor *x = a, *y = b;
    if (x->at != y->at)
        return x->at < y->at ? -1 : 1;
    if (x->end != y->end)
        return x->end < y->end ? -1 : 1;
    return strcmp(x->name, y->name);
}

static int by_name(const void *a, const void *b) {
    return strcmp((*(const struct tensor *const *)a)->name, (*(const struct tensor *const *)b)->name);
}

static int by_key(const void *a, const void *b) {
    return strcmp(((const struct tensor_meta *)a)->key, ((const struct tensor_meta *)b)->key);
}

static bool check_places(const struct reader *r, const struct safetensors *f, char *why, size_t nwhy) {
    int64_t at = 0;
    for (int i = 0; i < f->n; i++) {
        const struct tensor *t = &f->tensor[i];
        if (t->at < at)
            snprintf(why, nwhy, "%s: tensor %s overlaps %s", f->path, t->name, f->tensor[i - 1].name);
        else if (t->at > at)
            snprintf(why, nwhy, "%s: %lld bytes before tensor %s belong to none", f->path, (long long)(t->at - at),
                     t->name);
        if (t->at != at)
            return false;
        at = t->end;
    }
    if (at != r->bytes)
        snprintf(why, nwhy, "%s: %lld bytes after the last tensor belong to none", f->path, (long long)(r->bytes - at));
    return at == r->bytes;
}

static bool check_names(const struct safetensors *f, char *why, size_t nwhy) {
    for (int i = 1; i < f->n; i++)
        if (strcmp(f->by_name[i - 1]->name, f->by_name[i]->name) == 0) {
            snprintf(why, nwhy, "%s: tensor %s appears twice", f->path, f->by_name[i]->name);
            return false;
        }
    for (int i = 1; i < f->nmeta; i++)
        if (strcmp(f->meta[i - 1].key, f->meta[i].key) == 0) {
            snprintf(why, nwhy, "%s: metadata %s appears twice", f->path, f->meta[i].key);
            return false;
        }
    return true;
}

/* Sorts what was read, checks it as a whole, and makes its offsets those of the file. */
static bool settle(struct reader *r, struct safetensors *f, char *why, size_t nwhy) {
    f->by_name = malloc((r->n + 1) * sizeof *f->by_name);
    if (!f->by_name) {
        snprintf(why, nwhy, "%s: no memory", f->path);
        return false;
    }
    qsort(r->n ? r->tensor : (void *)f->by_name, r->n, sizeof *r->tensor, by_place);
    qsort(r->nmeta ? r->meta : (void *)f->by_name, r->nmeta, sizeof *r->meta, by_key);
    for (size_t i = 0; i < r->n; i++)
        f->by_name[i] = &r->tensor[i];
    qsort(f->by_name, r->n, sizeof *f->by_name, by_name);
    if (!check_names(f, why, nwhy) || !check_places(r, f, why, nwhy))
        return false;
    for (size_t i = 0; i < r->n; i++) {
        r->tensor[i].at += r->data;
        r->tensor[i].end += r->data;
    }
    return true;
}

/* ---- reading: the file ---- */

/* Reads the header's bytes, once its length is believed. */
static bool load(struct reader *r, struct safetensors *f, int64_t size, char *why, size_t nwhy) {
    uint64_t length = 0;
    if (size < 8) {
        snprintf(why, nwhy, "%s: has %lld bytes, too few for a safetensors file", f->path, (long long)size);
        return false;
    }
    if (!durable_read(f->fd, f->path, &length, sizeof length, 0, why, nwhy))
        return false;
    if (length > SAFETENSORS_HEADER || length > (uint64_t)size - 8) {
        snprintf(why, nwhy, "%s: says its header has %llu bytes, but %s", f->path, (unsigned long long)length,
                 length > SAFETENSORS_HEADER ? "at most 100000000 are allowed" : "the file is shorter");
        return false;
    }
    f->header = malloc((size_t)length + 1);
    if (!f->header) {
        snprintf(why, nwhy, "%s: no memory", f->path);
        return false;
    }
    r->data = 8 + (int64_t)length;
    r->bytes = size - r->data;
    r->j = (struct json){.from = f->header, .at = f->header, .end = f->header + length, .in = "the header"};
    r->j.file = f->path;
    r->j.why = why;
    r->j.nwhy = nwhy;
    return durable_read(f->fd, f->path, f->header, (size_t)length, 8, why, nwhy);
}

struct safetensors *safetensors_open(const char *path, char *why, size_t nwhy) {
    struct reader r = {.n = 0};
    int64_t size;
    struct safetensors *f = calloc(1, sizeof *f);
    if (!f || !(f->path = strdup(path))) {
        snprintf(why, nwhy, "%s: no memory", path);
        free(f);
        return NULL;
    }
    f->fd = durable_open(path, &size, why, nwhy);
    bool ok = f->fd >= 0 && load(&r, f, size, why, nwhy);
    if (ok) {
        read_header(&r);
        ok = !r.j.bad;
    }
    f->tensor = r.tensor;
    f->meta = r.meta;
    f->n = (int)r.n;
    f->nmeta = (int)r.nmeta;
    if (ok && settle(&r, f, why, nwhy))
        return f;
    safetensors_close(f);
    return NULL;
}

const struct tensor *safetensors_find(const struct safetensors *f, const char *name) {
    const struct tensor key = {.name = name}, *want = &key;
    const struct tensor **at = bsearch(&want, f->by_name, (size_t)f->n, sizeof *f->by_name, by_name);
    return at ? *at : NULL;
}

const char *safetensors_meta(const struct safetensors *f, const char *key) {
    for (int i = 0; i < f->nmeta; i++)
        if (strcmp(f->meta[i].key, key) == 0)
            return f->meta[i].value;
    return NULL;
}

bool safetensors_read(const struct safetensors *f, const struct tensor *t, float *out, char *why, size_t nwhy) {
    return durable_read(f->fd, f->path, out, (size_t)(t->end - t->at), t->at, why, nwhy);
}

void safetensors_close(struct safetensors *f) {
    if (f->fd >= 0)
        close(f->fd);
    free((void *)f->path);
    free((void *)f->tensor);
    free((void *)f->meta);
    free(f->by_name);
    free(f->header);
    free(f);
}
