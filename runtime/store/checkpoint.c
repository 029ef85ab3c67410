/* What a checkpoint holds of a stage: written, read under any cut, and merged into one file. */
#include "checkpoint_manifest.h"
#include "safetensors.h"
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PART = 1 << 20 }; /* bytes that an export holds at a time */

/* ---- the tensors of a stage ---- */

struct part {
    char name[48];
    struct rt_parameter is;
    int64_t at; /* in floats, weights and then moments taken as one array */
    bool found;
};

/* The parameters of a layer that lies at `at`. moment: a letter of moments_of, or 0: the parameters themselves. */
static int layer_parts(const struct rt_model *m, const struct rt_layer *l, int64_t at, char moment, struct part *p) {
    const struct rt_parameters all = parameters_of(m, l, shared_table(m, l) > 0);
    const char state[] = {moment ? '.' : '\0', moment, '\0'};
    int64_t end = at + l->nparam;
    for (int i = 0; i < all.n; i++) {
        p[i] = (struct part){.is = all.at[i], .at = at};
        snprintf(p[i].name, sizeof p[i].name, "layer.%d.%s%s", (int)l->index, all.at[i].name, state);
        at += all.at[i].count;
    }
    assert(at == end);
    (void)end;
    return all.n;
}

/* All tensors of a stage, in the order of its layers, the moments behind the parameters. NULL: no memory. */
static struct part *stage_parts(const struct rt_model *m, const struct rt_stage *s, int *n) {
    const char *moments = moments_of(m->optimizer);
    int copies = 1 + count_moments(m->optimizer);
    struct part *p = malloc(sizeof *p * ((size_t)copies * MOST_PARAMETERS * (size_t)s->nlayers + 1));
    *n = 0;
    for (int k = 0; p && k < copies; k++)
        for (int l = 0; l < s->nlayers; l++) {
            const struct rt_layer *y = &s->layer[l];
            int64_t at = k * weight_count(m, s) + y->param / precision_bytes(m->precision);
            *n += layer_parts(m, y, at, k > 0 ? moments[k - 1] : '\0', &p[*n]);
        }
    return p;
}

/* A tensor's name ends in a moment of some optimizer. */
static bool is_state(const char *name) {
    size_t n = strlen(name);
    bool moment = false;
    for (int o = 0; n > 2 && o < NOPTIMIZERS; o++)
        moment |= strchr(moments_of(o), name[n - 1]) != NULL;
    return moment && name[n - 2] == '.';
}

/* ---- writing a stage ---- */

bool checkpoint_write_stage(const char *dir, int64_t step, const struct rt_model *m, const struct rt_stage *s,
                            int stage, const float *weight, const float *moments, char *why, size_t nwhy) {
    struct path folder = step_path(dir, step), path = stage_path(dir, step, stage);
    if (!durable_folder(dir, why, nwhy) || !durable_folder(folder.s, why, nwhy))
        return false;
    int n;
    struct part *part = stage_parts(m, s, &n);
    struct tensor *t = calloc((size_t)n + 1, sizeof *t);
    for (int i = 0; part && t && i < n; i++) {
        int64_t at = part[i].at, all = weight_count(m, s);
        const struct rt_parameter *is = &part[i].is;
        t[i] = (struct tensor){.name = part[i].name, .ndims = is->ndims, .dim = {is->dim[0], is->dim[1]}};
        t[i].data = at < all ? weight + at : moments + (at - all);
    }
    char steps[24], stages[24];
    snprintf(steps, sizeof steps, "%" PRId64, step);
    snprintf(stages, sizeof stages, "%d", stage);
    const struct tensor_meta meta[] = {{"format", CHECKPOINT_FORMAT}, {"step", steps}, {"stage", stages}};
    bool ok = part && t ? safetensors_write(path.s, t, n, meta, 3, why, nwhy)
                        : checkpoint_tell(why, nwhy, "%s: no memory", path.s);
    free(part);
    free(t);
    return ok;
}

/* ---- reading a stage ---- */

/* Opens a stage's file and checks that it is of this format and step. */
static struct safetensors *open_stage(const char *dir, int64_t step, int stage, char *why, size_t nwhy) {
    char steps[24];
    snprintf(steps, sizeof steps, "%" PRId64, step);
    struct safetensors *f = safetensors_open(stage_path(dir, step, stage).s, why, nwhy);
    const char *format = f ? safetensors_meta(f, "format") : NULL, *said = f ? safetensors_meta(f, "step") : NULL;
    if (!f || (format && strcmp(format, CHECKPOINT_FORMAT) == 0 && said && strcmp(said, steps) == 0))
        return f;
    checkpoint_tell(why, nwhy, "%s: is not of format " CHECKPOINT_FORMAT " and step %s", f->path, steps);
    safetensors_close(f);
    return NULL;
}

static bool same_shape(const struct tensor *t, const struct rt_parameter *p) {
    bool same = t->ndims == p->ndims;
    for (int d = 0; same && d < p->ndims; d++)
        same = t->dim[d] == p->dim[d];
    return same;
}

/* In words, into 128 bytes: 3 x 4. */
static const char *shape(int ndims, const int64_t *dim, char *out) {
    int n = snprintf(out, 128, ndims == 0 ? "a single number" : "");
    for (int d = 0; d < ndims; d++)
        n += snprintf(out + n, 128 - (size_t)n, "%s%" PRId64, d ? " x " : "", dim[d]);
    return out;
}

/* Reads into memory those parts that this file has. */
static bool read_parts(const struct safetensors *f, struct part *p, int n, float *memory, char *why, size_t nwhy) {
    for (int i = 0; i < n; i++) {
        const struct tensor *t = safetensors_find(f, p[i].name);
        if (!t)
            continue;
        if (p[i].found)
            return checkpoint_tell(why, nwhy, "%s: has %s, and so has another file", f->path, p[i].name);
        if (!same_shape(t, &p[i].is)) {
            char is[128], wanted[128];
            return checkpoint_tell(why, nwhy, "%s: %s is %s, but this model's is %s", f->path, p[i].name,
                                   shape(t->ndims, t->dim, is), shape(p[i].is.ndims, p[i].is.dim, wanted));
        }
        if (!safetensors_read(f, t, memory + p[i].at, why, nwhy))
            return false;
        p[i].found = true;
    }
    return true;
}

bool checkpoint_read_stage(const char *dir, int64_t step, const struct rt_model *m, const struct rt_stage *s,
                           float *weight, float *moments, char *why, size_t nwhy) {
    struct manifest manifest = {.n = 0};
    int n;
    struct part *p = stage_parts(m, s, &n);
    size_t all = (size_t)weight_count(m, s) * sizeof(float), state = all * (size_t)count_moments(m->optimizer);
    float *memory = calloc(1, all + state + 1);
    bool ok = (p && memory) || checkpoint_tell(why, nwhy, "%s: no memory", dir);
    ok = ok && manifest_read(dir, step, &manifest, why, nwhy);
    for (int i = 0; ok && i < manifest.n; i++) {
        struct safetensors *f = open_stage(dir, step, i, why, nwhy);
        ok = f && read_parts(f, p, n, memory, why, nwhy);
        if (f)
            safetensors_close(f);
    }
    for (int i = 0; ok && i < n; i++)
        if (!p[i].found)
            ok = checkpoint_tell(why, nwhy, "%s: has no %s; it is of another model or optimizer",
                                 step_path(dir, step).s, p[i].name);
    if (ok) {
        memcpy(weight, memory, all);
        if (state > 0)
            memcpy(moments, (char *)memory + all, state);
    }
    free(manifest.file);
    free(memory);
    free(p);
    return ok;
}

/* ---- export ---- */

static bool copy_tensor(struct durable *d, const struct safetensors *f, const struct tensor *t, char *buffer) {
    for (int64_t at = t->at; at < t->end; at += PART) {
        size_t n = t->end - at < PART ? (size_t)(t->end - at) : PART;
        if (!durable_read(f->fd, f->path, buffer, n, at, d->why, d->nwhy)) {
            durable_drop(d);
            return false;
        }
        if (!durable_write(d, buffer, n))
            return false;
    }
    return true;
}

/* The parameters of all files, in order, as a list without data; names stay the files'. */
static struct tensor *list_parameters(struct safetensors *const *f, int nfiles, int *n) {
    size_t all = 1;
    for (int i = 0; i < nfiles; i++)
        all += (size_t)f[i]->n;
    struct tensor *t = malloc(all * sizeof *t);
    *n = 0;
    for (int i = 0; t && i < nfiles; i++)
        for (int k = 0; k < f[i]->n; k++)
            if (!is_state(f[i]->tensor[k].name))
                t[(*n)++] = f[i]->tensor[k];
    return t;
}

/* Two files with the same tensor are no cut of one model. */
static bool all_apart(struct safetensors *const *f, int nfiles, char *why, size_t nwhy) {
    for (int i = 0; i < nfiles; i++)
        for (int k = 0; k < f[i]->n; k++)
            for (int j = 0; j < i; j++)
                if (safetensors_find(f[j], f[i]->tensor[k].name))
                    return checkpoint_tell(why, nwhy, "%s: has %s, and so has %s", f[i]->path, f[i]->tensor[k].name,
                                           f[j]->path);
    return true;
}

static bool merge(struct safetensors *const *f, int nfiles, int64_t step, const char *path, char *why, size_t nwhy) {
    char steps[24];
    snprintf(steps, sizeof steps, "%" PRId64, step);
    const struct tensor_meta meta[] = {{"format", CHECKPOINT_FORMAT}, {"step", steps}};
    struct durable d;
    int n;
    struct tensor *t = list_parameters(f, nfiles, &n);
    char *buffer = malloc(PART);
    bool ok = (t && buffer) || checkpoint_tell(why, nwhy, "%s: no memory", path);
    if (ok && (ok = durable_begin(&d, path, why, nwhy))) {
        safetensors_header(&d, t, n, meta, 2);
        for (int i = 0; i < nfiles; i++)
            for (int k = 0; d.fd >= 0 && k < f[i]->n; k++)
                if (!is_state(f[i]->tensor[k].name))
                    copy_tensor(&d, f[i], &f[i]->tensor[k], buffer);
        ok = durable_end(&d);
    }
    free(buffer);
    free(t);
    return ok;
}

bool checkpoint_export(const char *dir, int64_t step, const char *path, char *why, size_t nwhy) {
    struct manifest m;
    if (step < 0 ? !checkpoint_latest(dir, &step, why, nwhy) : !checkpoint_whole(dir, step, why, nwhy))
        return false;
    bool ok = manifest_read(dir, step, &m, why, nwhy);
    struct safetensors **f = calloc((size_t)m.n + 1, sizeof *f);
    int opened = 0;
    ok = ok && (f || checkpoint_tell(why, nwhy, "%s: no memory", path));
    while (ok && opened < m.n && (ok = (f[opened] = open_stage(dir, step, opened, why, nwhy)) != NULL))
        opened++;
    ok = ok && all_apart(f, m.n, why, nwhy) && merge(f, m.n, step, path, why, nwhy);
    for (int i = 0; i < opened; i++)
        safetensors_close(f[i]);
    free(f);
    free(m.file);
    return ok;
}
