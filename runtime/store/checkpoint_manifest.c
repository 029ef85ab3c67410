/* The manifest makes files a checkpoint. This file writes and reads it, finds complete checkpoints, and removes old
 * ones. */
#include "checkpoint_manifest.h"
#include "fnv1a.h"
#include "json.h"
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- names ---- */

struct path step_path(const char *dir, int64_t step) {
    struct path path;
    snprintf(path.s, sizeof path.s, "%s/step-%08" PRId64, dir, step);
    return path;
}

static struct path manifest_path(const char *dir, int64_t step) {
    struct path path;
    snprintf(path.s, sizeof path.s, "%s/step-%08" PRId64 "/manifest.json", dir, step);
    return path;
}

struct path stage_path(const char *dir, int64_t step, int stage) {
    struct path path;
    snprintf(path.s, sizeof path.s, "%s/step-%08" PRId64 "/stage-%04d.safetensors", dir, step, stage);
    return path;
}

bool checkpoint_tell(char *why, size_t nwhy, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    vsnprintf(why, nwhy, fmt, args);
    va_end(args);
    return false;
}

/* ---- the manifest: its last line is a checksum of the lines before ---- */

#define CHECK_LINE "  \"check\": \"%016" PRIx64 "\"\n}\n"
enum { CHECK_BYTES = 32, HASH_DIGITS = 16, MANIFEST_BYTES = 1 << 26 };

static void put_manifest(FILE *f, int64_t step, const struct checkpoint_run *run, const struct entry *entry, int n) {
    fprintf(f, "{\n  \"format\": \"" CHECKPOINT_FORMAT "\",\n  \"step\": %" PRId64 ",\n", step);
    fprintf(f, "  \"seed\": \"%016" PRIx64 "\",\n  \"data_bytes\": %" PRId64 ",\n", run->seed, run->data_bytes);
    fprintf(f, "  \"data_hash\": \"%016" PRIx64 "\",\n", run->data_hash);
    if (run->steps > 0)
        fprintf(f, "  \"steps\": %" PRId64 ",\n", run->steps);
    if (run->most > 1)
        fprintf(f, "  \"updates\": %" PRId64 ",\n  \"least_updates\": %" PRId64 ",\n", run->most, run->least);
    if (run->sequences > 0)
        fprintf(f, "  \"sequences\": %" PRId64 ",\n  \"context\": %" PRId64 ",\n", run->sequences, run->context);
    if (run->nonfinite)
        fputs("  \"nonfinite\": 1,\n", f);
    fputs("  \"files\": [", f);
    for (int i = 0; i < n; i++)
        fprintf(f,
                "%s\n    {\"name\": \"stage-%04d.safetensors\", \"bytes\": %" PRId64 ", \"hash\": \"%016" PRIx64 "\"}",
                i ? "," : "", i, entry[i].bytes, entry[i].hash);
    fputs("\n  ],\n", f);
}

static bool save_manifest(const char *path, int64_t step, const struct checkpoint_run *run, const struct entry *entry,
                          int n, char *why, size_t nwhy) {
    char *text = NULL, check[CHECK_BYTES + 1];
    size_t size = 0;
    struct durable durable;
    FILE *f = open_memstream(&text, &size);
    if (f)
        put_manifest(f, step, run, entry, n);
    bool made = f && !ferror(f);
    made = f && fclose(f) == 0 && made;
    int tail = snprintf(check, sizeof check, CHECK_LINE, fnv1a(FNV_START, text, made ? size : 0));
    assert(tail == CHECK_BYTES);
    bool ok = made ? durable_begin(&durable, path, why, nwhy) : checkpoint_tell(why, nwhy, "%s: no memory", path);
    if (ok) {
        durable_write(&durable, text, size);
        durable_write(&durable, check, CHECK_BYTES);
        ok = durable_end(&durable);
    }
    free(text);
    return ok;
}

bool checkpoint_write_manifest(const char *dir, int64_t step, int stages, const struct checkpoint_run *run, char *why,
                               size_t nwhy) {
    struct path path = manifest_path(dir, step);
    struct entry *entry = calloc((size_t)stages + 1, sizeof *entry);
    bool ok = entry || checkpoint_tell(why, nwhy, "%s: no memory", path.s);
    for (int i = 0; ok && i < stages; i++)
        ok = durable_sum(stage_path(dir, step, i).s, &entry[i].bytes, &entry[i].hash, why, nwhy);
    ok = ok && save_manifest(path.s, step, run, entry, stages, why, nwhy);
    free(entry);
    return ok;
}

static bool read_hash(struct json *json, uint64_t *out) {
    const char *s = json_string(json);
    if (s && (strlen(s) != HASH_DIGITS || strspn(s, "0123456789abcdef") != HASH_DIGITS))
        return json_fail(json, "expected 16 hexadecimal digits");
    *out = s ? strtoull(s, NULL, 16) : 0;
    return s;
}

static bool read_file_entry(struct json *json, struct manifest *out) {
    char want[64];
    snprintf(want, sizeof want, "stage-%04d.safetensors", out->n);
    json_take(json, '{');
    const char *name = json_key(json, "name") ? json_string(json) : NULL;
    if (name && strcmp(name, want) != 0)
        json_fail(json, "expected the name %s", want);
    struct entry entry = {0, 0};
    bool ok = json_take(json, ',') && json_key(json, "bytes") && json_whole(json, &entry.bytes) &&
              json_take(json, ',') && json_key(json, "hash") && read_hash(json, &entry.hash) && json_take(json, '}');
    struct entry *more = ok ? realloc(out->file, sizeof entry * ((size_t)out->n + 1)) : NULL;
    if (!more)
        return ok && json_fail(json, "no memory");
    out->file = more;
    out->file[out->n++] = entry;
    return true;
}

/* Reads the optional keys before the files, each at most once, in this order. A missing key keeps its default, since
 * older versions wrote fewer keys. */
static bool read_optional(struct json *json, struct checkpoint_run *run) {
    int64_t nonfinite = 0;
    const struct {
        const char *key;
        int64_t *to;
    } optional[] = {{"steps", &run->steps},         {"updates", &run->most},    {"least_updates", &run->least},
                    {"sequences", &run->sequences}, {"context", &run->context}, {"nonfinite", &nonfinite}};
    enum { N = sizeof optional / sizeof *optional };
    run->most = run->least = 1;
    run->sequences = run->context = -1;
    const char *key = json_string(json);
    for (int i = 0; key && i < N; i++)
        if (strcmp(key, optional[i].key) == 0)
            key = json_take(json, ':') && json_whole(json, optional[i].to) && json_take(json, ',') ? json_string(json)
                                                                                                   : NULL;
    run->nonfinite = nonfinite != 0;
    if (key && strcmp(key, "files") != 0)
        return json_fail(json, "expected \"files\"");
    return key && json_take(json, ':');
}

static bool parse_manifest(struct json *json, int64_t step, struct manifest *out) {
    int64_t said = -1;
    const char *format = json_take(json, '{') && json_key(json, "format") ? json_string(json) : NULL;
    if (format && strcmp(format, CHECKPOINT_FORMAT) != 0)
        json_fail(json, "format \"%s\"; only \"" CHECKPOINT_FORMAT "\" is read", format);
    if (json_take(json, ',') && json_key(json, "step") && json_whole(json, &said) && said != step)
        json_fail(json, "it is of step %" PRId64, said);
    struct checkpoint_run *run = &out->run;
    if (json_take(json, ',') && json_key(json, "seed") && read_hash(json, &run->seed) && json_take(json, ',') &&
        json_key(json, "data_bytes") && json_whole(json, &run->data_bytes) && json_take(json, ',') &&
        json_key(json, "data_hash") && read_hash(json, &run->data_hash) && json_take(json, ',') &&
        read_optional(json, run))
        json_take(json, '[');
    if (!json_next(json, ']')) {
        while (read_file_entry(json, out) && json_next(json, ','))
            ;
        json_take(json, ']');
    }
    uint64_t check;
    return json_take(json, ',') && json_key(json, "check") && read_hash(json, &check) && json_take(json, '}') &&
           json_end(json);
}

/* Returns the text of a manifest that matches its checksum, or NULL with why. */
static char *load_manifest(const char *path, size_t *n, char *why, size_t nwhy) {
    int64_t size;
    char check[CHECK_BYTES + 1], *text = NULL;
    int fd = durable_open(path, &size, why, nwhy);
    if (fd < 0)
        return NULL;
    bool ok = size >= CHECK_BYTES && size <= MANIFEST_BYTES;
    if (!ok)
        checkpoint_tell(why, nwhy, "%s: has %" PRId64 " bytes, which no manifest has", path, size);
    else if (!(text = malloc((size_t)size)))
        ok = checkpoint_tell(why, nwhy, "%s: no memory", path);
    ok = ok && durable_read(fd, path, text, (size_t)size, 0, why, nwhy);
    close(fd);
    if (ok) {
        *n = (size_t)size;
        snprintf(check, sizeof check, CHECK_LINE, fnv1a(FNV_START, text, *n - CHECK_BYTES));
        if (memcmp(text + *n - CHECK_BYTES, check, CHECK_BYTES) == 0)
            return text;
        checkpoint_tell(why, nwhy, "%s: does not match its own checksum", path);
    }
    free(text);
    return NULL;
}

bool manifest_read(const char *dir, int64_t step, struct manifest *out, char *why, size_t nwhy) {
    struct path path = manifest_path(dir, step);
    size_t n = 0;
    *out = (struct manifest){.n = 0};
    char *text = load_manifest(path.s, &n, why, nwhy);
    if (!text)
        return false;
    struct json json = {
        .from = text, .at = text, .end = text + n, .file = path.s, .in = "it", .why = why, .nwhy = nwhy};
    bool ok = parse_manifest(&json, step, out);
    free(text);
    return ok;
}

bool checkpoint_read_run(const char *dir, int64_t step, struct checkpoint_run *run, char *why, size_t nwhy) {
    struct manifest manifest;
    bool ok = manifest_read(dir, step, &manifest, why, nwhy);
    *run = manifest.run;
    free(manifest.file);
    return ok;
}

/* ---- complete checkpoints ---- */

/* Returns whether the manifest matches its own checksum, and all files exist with the sizes in it. */
static bool looks_whole(const char *dir, int64_t step, bool *finite) {
    char why[DURABLE_PATH + 512];
    struct manifest manifest;
    struct stat st;
    bool ok = manifest_read(dir, step, &manifest, why, sizeof why);
    *finite = ok && !manifest.run.nonfinite;
    for (int i = 0; ok && i < manifest.n; i++)
        ok = stat(stage_path(dir, step, i).s, &st) == 0 && st.st_size == manifest.file[i].bytes;
    free(manifest.file);
    return ok;
}

bool checkpoint_whole(const char *dir, int64_t step, char *why, size_t nwhy) {
    struct manifest manifest;
    bool ok = manifest_read(dir, step, &manifest, why, nwhy);
    for (int i = 0; ok && i < manifest.n; i++) {
        struct path path = stage_path(dir, step, i);
        struct entry entry;
        ok = durable_sum(path.s, &entry.bytes, &entry.hash, why, nwhy);
        if (ok && (entry.bytes != manifest.file[i].bytes || entry.hash != manifest.file[i].hash))
            ok = checkpoint_tell(why, nwhy, "%s: does not match the checksum in the manifest", path.s);
    }
    free(manifest.file);
    return ok;
}

static int newest_first(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

static bool parse_step(const char *name, int64_t *step) {
    char again[64];
    if (strncmp(name, "step-", 5) != 0)
        return false;
    *step = strtoll(name + 5, NULL, 10);
    snprintf(again, sizeof again, "step-%08" PRId64, *step);
    return *step >= 0 && strcmp(again, name) == 0;
}

/* Lists the steps for which dir has folders, newest first; the caller frees the list. Returns NULL with why on
 * failure. */
static int64_t *list_steps(const char *dir, size_t *n, char *why, size_t nwhy) {
    DIR *d = opendir(dir);
    int64_t *step = malloc(sizeof *step), *more = step, one;
    *n = 0;
    if (!d || !step) {
        checkpoint_tell(why, nwhy, "%s: %s", dir, d ? "no memory" : strerror(errno));
        if (d)
            closedir(d);
        free(step);
        return NULL;
    }
    for (struct dirent *e; more && (e = readdir(d));)
        if (parse_step(e->d_name, &one)) {
            step[(*n)++] = one;
            more = realloc(step, sizeof *step * (*n + 1));
            step = more ? more : step;
        }
    closedir(d);
    if (more)
        qsort(step, *n, sizeof *step, newest_first);
    else {
        checkpoint_tell(why, nwhy, "%s: no memory", dir);
        free(step);
    }
    return more;
}

bool checkpoint_latest(const char *dir, int64_t *step, char *why, size_t nwhy) {
    char reason[DURABLE_PATH + 512] = "";
    size_t n;
    int64_t *all = list_steps(dir, &n, why, nwhy);
    if (!all)
        return false;
    size_t i = 0;
    while (i < n && !checkpoint_whole(dir, all[i], *reason ? why : reason, *reason ? nwhy : sizeof reason))
        i++;
    bool found = i < n;
    if (found)
        *step = all[i];
    free(all);
    if (found || *reason)
        checkpoint_tell(why, nwhy, "%s", reason);
    else
        checkpoint_tell(why, nwhy, "%s: holds no checkpoint", dir);
    return found;
}

bool checkpoint_none(const char *dir) {
    char why[DURABLE_PATH + 512];
    size_t n, i = 0;
    int64_t *all = list_steps(dir, &n, why, sizeof why);
    while (all && i < n && access(manifest_path(dir, all[i]).s, F_OK) < 0)
        i++;
    bool none = all && i == n;
    free(all);
    return none;
}

/* ---- removing ---- */

/* Removes a checkpoint: its manifest first, durably, so that a half-removed checkpoint does not count as one. Removes
 * only our own files; a folder with others stays. */
static bool remove_step(const char *dir, int64_t step, char *why, size_t nwhy) {
    struct path folder = step_path(dir, step), path = manifest_path(dir, step);
    if (unlink(path.s) < 0 && errno != ENOENT)
        return checkpoint_tell(why, nwhy, "%s: %s", path.s, strerror(errno));
    if (!durable_names(folder.s, why, nwhy))
        return false;
    DIR *d = opendir(folder.s);
    if (!d)
        return checkpoint_tell(why, nwhy, "%s: %s", folder.s, strerror(errno));
    bool ok = true;
    for (struct dirent *e; ok && (e = readdir(d));) {
        if (strncmp(e->d_name, "stage-", 6) != 0 && strcmp(e->d_name, "manifest.json.tmp") != 0)
            continue;
        if (unlinkat(dirfd(d), e->d_name, 0) < 0)
            ok = checkpoint_tell(why, nwhy, "%s/%s: %s", folder.s, e->d_name, strerror(errno));
    }
    closedir(d);
    if (ok && rmdir(folder.s) < 0 && errno != ENOTEMPTY && errno != EEXIST)
        ok = checkpoint_tell(why, nwhy, "%s: %s", folder.s, strerror(errno));
    return ok;
}

bool checkpoint_keep(const char *dir, int last, char *why, size_t nwhy) {
    assert(last >= 1);
    size_t n;
    int kept = 0;
    int64_t *all = list_steps(dir, &n, why, nwhy);
    bool ok = all, finite, safe = false; /* safe: a checkpoint that is kept is finite */
    for (size_t i = 0; ok && i < n; i++) {
        if ((kept < last || !safe) && looks_whole(dir, all[i], &finite) && (kept < last || finite)) {
            kept += kept < last;
            safe |= finite;
        } else if (kept == last || (kept > 0 && access(manifest_path(dir, all[i]).s, F_OK) < 0 && errno == ENOENT))
            ok = remove_step(dir, all[i], why, nwhy);
    }
    free(all);
    return ok && durable_names(dir, why, nwhy);
}
