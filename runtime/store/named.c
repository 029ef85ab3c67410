/* Files of named tensors: see named.h. */
#include "named.h"
#include "fnv1a.h"
#include "gguf.h"
#include "json.h"
#include "lfs.h"
#include "safetensors.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_PARTS = 1000, MOST_INDEX = 100000000 };

struct part {
    uint8_t *data;
    size_t size;
    struct safetensors *names; /* file whose header holds the tensors' names; NULL: the part is GGUF */
};
struct named_file {
    const char *path;
    struct named_list list;
    struct part *part;
    int nparts;
    bool gguf;
    struct named_said said;
};

const struct named_said nothing_said = {NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, ""};

bool named_add(struct named_list *list, const struct named *tensor) {
    if (list->n == list->cap) {
        size_t cap = list->cap ? 2 * list->cap : 64;
        struct named *at = realloc(list->at, cap * sizeof *at);
        if (!at)
            return false;
        list->at = at;
        list->cap = cap;
    }
    list->at[list->n++] = *tensor;
    return true;
}

static int by_part_name(const void *x, const void *y) {
    const struct named *a = x, *b = y;
    size_t n = a->nname < b->nname ? a->nname : b->nname;
    int order = memcmp(a->name, b->name, n);
    return order ? order : (a->nname > b->nname) - (a->nname < b->nname);
}

/* ---- files ---- */

static bool map_file(const char *path, struct part *part, char *why, size_t nwhy) {
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    bool ok = fd >= 0 && fstat(fd, &st) == 0;
    if (!ok)
        snprintf(why, nwhy, "%s: %s", path, strerror(errno));
    else if (!S_ISREG(st.st_mode) || st.st_size < 8) {
        snprintf(why, nwhy, "%s: %s", path,
                 S_ISREG(st.st_mode)   ? "is too short for a file of weights"
                 : S_ISDIR(st.st_mode) ? "is a folder; name the file in it, such as model.safetensors or "
                                         "model.safetensors.index.json"
                                       : "is no file");
        ok = false;
    }
    if (ok) {
        part->size = (size_t)st.st_size;
        part->data = mmap(NULL, part->size, PROT_READ, MAP_PRIVATE, fd, 0);
        if ((ok = part->data != MAP_FAILED) == false) {
            part->data = NULL;
            snprintf(why, nwhy, "%s: %s", path, strerror(errno));
        } else if (is_lfs_pointer((const char *)part->data, part->size)) {
            munmap(part->data, part->size);
            part->data = NULL;
            snprintf(why, nwhy, "%s: %s", path, LFS_POINTER);
            ok = false;
        }
    }
    if (fd >= 0)
        close(fd);
    return ok;
}

static bool add_safetensors(struct named_file *file, struct part *part, const char *path, char *why, size_t nwhy) {
    part->names = safetensors_open_any(path, why, nwhy);
    for (int i = 0; part->names && i < part->names->n; i++) {
        const struct tensor *tensor = &part->names->tensor[i];
        struct named named = {.name = tensor->name,
                              .nname = strlen(tensor->name),
                              .ndims = tensor->ndims,
                              .unread = tensor->unread,
                              .type = tensor->type,
                              .data = part->data + tensor->at,
                              .bytes = tensor->end - tensor->at};
        memcpy(named.dim, tensor->dim, sizeof named.dim);
        if ((size_t)tensor->end > part->size || !named_add(&file->list, &named)) {
            snprintf(why, nwhy, "%s: %s", path,
                     (size_t)tensor->end > part->size ? "changes while it is read" : "no memory");
            return false;
        }
    }
    return part->names;
}

static bool add_shard(struct named_file *file, const char *path, char *why, size_t nwhy) {
    struct part *part = &file->part[file->nparts];
    if (!map_file(path, part, why, nwhy))
        return false;
    file->nparts++;
    bool gguf = memcmp(part->data, "GGUF", 4) == 0;
    if (gguf && file->nparts == 1) {
        file->gguf = true;
        return gguf_tensors(path, part->data, part->size, &file->list, &file->said, why, nwhy);
    }
    return add_safetensors(file, part, path, why, nwhy);
}

/* ---- an index: {"metadata": {…}, "weight_map": {"name": "file", …}} ---- */

/* Adds each file once, in order of first appearance. */
static bool add_mapped(struct named_file *file, struct json *json, char *why, size_t nwhy) {
    const char *seen[MOST_PARTS];
    int n = 0;
    json_take(json, '{');
    if (json_next(json, '}'))
        return true;
    do {
        char path[PATH_MAX];
        json_string(json);
        json_take(json, ':');
        const char *name = json_string(json), *slash = strrchr(file->path, '/');
        int i = 0;
        while (!json->bad && i < n && strcmp(seen[i], name) != 0)
            i++;
        if (json->bad || i < n)
            continue;
        if (n == MOST_PARTS || strchr(name, '/'))
            return json_fail(json, n == MOST_PARTS ? "more than 1000 files" : "a file that is not beside it");
        seen[n++] = name;
        snprintf(path, sizeof path, "%.*s%s", slash ? (int)(slash - file->path) + 1 : 0, file->path, name);
        if (!add_shard(file, path, why, nwhy))
            return false;
    } while (json_next(json, ','));
    return json_take(json, '}');
}

static bool read_index(struct named_file *file, char *why, size_t nwhy) {
    struct part index = {0};
    if (!map_file(file->path, &index, why, nwhy))
        return false;
    char *text = index.size <= MOST_INDEX ? malloc(index.size + 1) : NULL;
    bool ok = text;
    if (!text)
        snprintf(why, nwhy, "%s: is too long to be an index", file->path);
    else {
        memcpy(text, index.data, index.size);
        struct json json = {text, text, text + index.size, file->path, "the index", why, nwhy, false};
        if (index.size >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) /* a byte order mark */
            json.at += 3;
        json_take(&json, '{');
        do {
            const char *key = json_string(&json);
            json_take(&json, ':');
            if (json.bad)
                break;
            if (strcmp(key, "weight_map") == 0)
                ok &= add_mapped(file, &json, why, nwhy);
            else
                json_pass(&json);
        } while (ok && json_next(&json, ','));
        ok = ok && json_take(&json, '}') && json_end(&json) && !json.bad;
    }
    free(text);
    munmap(index.data, index.size);
    return ok;
}

/* ---- the whole file ---- */

static bool ends_in(const char *s, const char *end) {
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

static bool check_twice(const struct named_file *file, char *why, size_t nwhy) {
    for (size_t i = 1; i < file->list.n; i++)
        if (by_part_name(&file->list.at[i - 1], &file->list.at[i]) == 0) {
            snprintf(why, nwhy, "%s: tensor %.*s occurs twice", file->path, (int)file->list.at[i].nname,
                     file->list.at[i].name);
            return false;
        }
    return true;
}

struct named_file *named_open(const char *path, char *why, size_t nwhy) {
    struct named_file *file = calloc(1, sizeof *file);
    if (!file || !(file->path = strdup(path)) || !(file->part = calloc(MOST_PARTS, sizeof *file->part))) {
        snprintf(why, nwhy, "%s: no memory", path);
        named_close(file);
        return NULL;
    }
    file->said = nothing_said;
    bool ok = ends_in(path, ".json") ? read_index(file, why, nwhy) : add_shard(file, path, why, nwhy);
    if (ok && file->list.n > 0)
        qsort(file->list.at, file->list.n, sizeof *file->list.at, by_part_name);
    if (ok && check_twice(file, why, nwhy))
        return file;
    named_close(file);
    return NULL;
}

const char *named_path(const struct named_file *file) { return file->path; }
bool named_is_gguf(const struct named_file *file) { return file->gguf; }
const struct named_said *named_said(const struct named_file *file) { return &file->said; }
struct named_list *named_all(struct named_file *file) {
    return &file->list;
}

bool named_equal(const struct named *a, const struct named *b) {
    enum { PIECE = 256 };
    float x[PIECE], y[PIECE];
    int64_t n = 1;
    if (a->ndims != b->ndims || a->unread || b->unread)
        return false;
    for (int d = 0; d < a->ndims; d++) {
        n *= a->dim[d];
        if (a->dim[d] != b->dim[d])
            return false;
    }
    if (a->type == b->type)
        return a->bytes == b->bytes && memcmp(a->data, b->data, (size_t)a->bytes) == 0;
    for (int64_t at = 0; at < n; at += PIECE) {
        int64_t size = at + PIECE < n ? PIECE : n - at;
        values_read(a->type, a->data, at, size, x);
        values_read(b->type, b->data, at, size, y);
        if (memcmp(x, y, (size_t)size * sizeof *x) != 0)
            return false;
    }
    return true;
}

struct named *named_find(struct named_file *file, const char *name) {
    struct named key = {.name = name, .nname = strlen(name)};
    struct named *found = file->list.n ? bsearch(&key, file->list.at, file->list.n, sizeof key, by_part_name) : NULL;
    return found;
}

uint64_t named_hash(const struct named_file *file) {
    enum { SAMPLE = 64 };
    uint64_t hash = FNV_START;
    for (const struct named *t = file->list.at; t < file->list.at + file->list.n; t++) {
        size_t bytes = (size_t)t->bytes, n = bytes < SAMPLE ? bytes : SAMPLE;
        hash = fnv1a(hash, t->name, t->nname);
        hash = fnv1a(hash, &t->type, sizeof t->type);
        hash = fnv1a(hash, t->dim, (size_t)t->ndims * sizeof *t->dim);
        for (int i = 0; i < 3; i++) /* beginning, middle and end */
            hash = fnv1a(hash, t->data + (bytes - n) / 2 * (size_t)i, n);
    }
    return hash;
}

void named_close(struct named_file *file) {
    for (int i = 0; file && i < file->nparts; i++) {
        if (file->part[i].data)
            munmap(file->part[i].data, file->part[i].size);
        if (file->part[i].names)
            safetensors_close(file->part[i].names);
    }
    if (file) {
        free(file->part);
        free(file->list.at);
        free((char *)file->path);
    }
    free(file);
}
