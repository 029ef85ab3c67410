/* A stage's part of a checkpoint: written, read under any partition of the model, and merged into one file. */
#include "checkpoint_manifest.h"
#include "safetensors.h"
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PART = 1 << 20 }; /* bytes that an export buffers at a time */

/* ---- the tensors of a stage ---- */

struct part {
    char name[96];
    const struct rt_layer *layer;
    struct rt_parameter is, whole; /* is: the part of the whole parameter that a team's member has */
    int64_t at;                    /* position in floats, in one array of the weights and then the moments */
    bool found;
};

/* Lists the parameters of a layer that begins at `at`. moment: a letter of moments_of, or 0 for the parameters
 * themselves. */
static int layer_parts(const struct rt_model *m, const struct rt_layer *l, int64_t at, char moment, struct part *part) {
    const struct rt_parameters all = parameters_of(m, l, shared_table(m, l) > 0);
    const char state[] = {moment ? '.' : '\0', moment, '\0'};
    int64_t end = at + l->nparam;
    for (int i = 0; i < all.n; i++) {
        part[i] = (struct part){.layer = l, .is = all.at[i], .whole = whole_parameter(l, &all.at[i]), .at = at};
        snprintf(part[i].name, sizeof part[i].name, "layer.%d.%s%s", (int)l->index, all.at[i].name, state);
        at += all.at[i].count;
    }
    assert(at == end);
    (void)end;
    return all.n;
}

/* Lists all tensors of a stage in the order of its layers, parameters before moments. Returns NULL if there is no
 * memory. */
static struct part *stage_parts(const struct rt_model *m, const struct rt_stage *s, int *n) {
    const char *moments = moments_of(m->optimizer);
    int copies = 1 + count_moments(m->optimizer);
    struct part *part = malloc(sizeof *part * ((size_t)copies * MOST_PARAMETERS * (size_t)s->nlayers + 1));
    *n = 0;
    for (int k = 0; part && k < copies; k++)
        for (int l = 0; l < s->nlayers; l++) {
            const struct rt_layer *layer = &s->layer[l];
            if (layer->set != SET_OWN)
                continue;
            int64_t at = k * weight_count(m, s) + layer->param / precision_bytes(m->precision);
            *n += layer_parts(m, layer, at, k > 0 ? moments[k - 1] : '\0', &part[*n]);
        }
    return part;
}

/* Returns whether a tensor's name ends in the letter of some optimizer's moment. */
static bool is_state(const char *name) {
    size_t n = strlen(name);
    bool moment = false;
    for (int o = 0; n > 2 && o < NOPTIMIZERS; o++)
        moment |= strchr(moments_of(o), name[n - 1]) != NULL;
    return moment && name[n - 2] == '.';
}

/* ---- writing a stage ---- */

/* Contents of a stage's file: its tensors in order, and its metadata. */
struct layout {
    int n;
    struct part *part;     /* [n] */
    struct tensor *tensor; /* [n] */
    struct tensor_meta meta[3];
    char step[24], stage[24];
    struct path path;
};

/* Describes a stage's file. Returns false if there is no memory. The caller frees the layout in any case. */
static bool lay_out(struct layout *file, const struct stage_file *of, const struct rt_model *m,
                    const struct rt_stage *s, char *why, size_t nwhy) {
    file->path = stage_path(of->dir, of->step, of->stage);
    file->part = stage_parts(m, s, &file->n);
    file->tensor = calloc((size_t)file->n + 1, sizeof *file->tensor);
    for (int i = 0; file->part && file->tensor && i < file->n; i++) {
        const struct rt_parameter *whole = &file->part[i].whole;
        file->tensor[i] =
            (struct tensor){.name = file->part[i].name, .ndims = whole->ndims, .dim = {whole->dim[0], whole->dim[1]}};
    }
    snprintf(file->step, sizeof file->step, "%" PRId64, of->step);
    snprintf(file->stage, sizeof file->stage, "%d", of->stage);
    file->meta[0] = (struct tensor_meta){"format", CHECKPOINT_FORMAT};
    file->meta[1] = (struct tensor_meta){"step", file->step};
    file->meta[2] = (struct tensor_meta){"stage", file->stage};
    return (file->part && file->tensor) || checkpoint_tell(why, nwhy, "%s: no memory", file->path.s);
}

static void free_layout(struct layout *file) {
    free(file->part);
    free(file->tensor);
}

bool checkpoint_begin_stage(const struct stage_file *of, const struct rt_model *m, const struct rt_stage *s, char *why,
                            size_t nwhy) {
    struct layout file;
    struct durable durable;
    bool ok = durable_folder(of->dir, why, nwhy) && durable_folder(step_path(of->dir, of->step).s, why, nwhy);
    if (!ok)
        return false;
    ok = lay_out(&file, of, m, s, why, nwhy) && durable_begin(&durable, file.path.s, why, nwhy) &&
         safetensors_header(&durable, file.tensor, file.n, file.meta, 3) && durable_leave(&durable);
    free_layout(&file);
    return ok;
}

/* Writes the shard's part of a tensor that begins at byte `at` of the file. */
static void write_piece(struct durable *durable, const struct rt_model *m, const struct rt_stage *s,
                        const struct part *part, const struct checkpoint_shard *shard, int64_t at) {
    int64_t all = weight_count(m, s), copy = part->at / all, first = part->at % all, count = part->is.count;
    int64_t from = first > shard->first ? first : shard->first, end = first + count;
    end = end < shard->first + shard->count ? end : shard->first + shard->count;
    const float *x = copy == 0 ? shard->weight : shard->moments + (copy - 1) * shard->stride;
    assert(copy <= count_moments(m->optimizer) && (copy == 0 || shard->moments || shard->count == 0));
    assert(first + count <= all && shard->first >= 0);
    for (int64_t n; from < end && counts_here(s, &part->is); from += n) {
        struct rt_stretch run = stretch_of(part->layer, &part->is, from - first);
        n = run.n < end - from ? run.n : end - from;
        assert(n > 0 && run.at >= 0 && run.at + n <= part->whole.count);
        durable_write_at(durable, x + (from - shard->first), (size_t)n * sizeof *x, at + 4 * run.at);
    }
}

bool checkpoint_write_shard(const struct stage_file *of, const struct rt_model *m, const struct rt_stage *s,
                            const struct checkpoint_shard *shard, char *why, size_t nwhy) {
    struct layout file;
    struct durable durable;
    assert(shard->first >= 0 && shard->count >= 0 && shard->count <= shard->stride);
    bool ok = lay_out(&file, of, m, s, why, nwhy);
    int64_t at = ok ? safetensors_begin(file.tensor, file.n, file.meta, 3) : 0;
    ok = ok && (at > 0 || checkpoint_tell(why, nwhy, "%s: no memory", file.path.s)) &&
         durable_join(&durable, file.path.s, why, nwhy);
    for (int i = 0; ok && i < file.n; at += tensor_bytes(&file.tensor[i++]))
        write_piece(&durable, m, s, &file.part[i], shard, at);
    ok = ok && durable_leave(&durable);
    free_layout(&file);
    return ok;
}

bool checkpoint_end_stage(const struct stage_file *of, char *why, size_t nwhy) {
    struct durable durable;
    return durable_join(&durable, stage_path(of->dir, of->step, of->stage).s, why, nwhy) && durable_end(&durable);
}

/* ---- reading a stage ---- */

/* Opens a stage's file and checks its format and step. */
static struct safetensors *open_stage(const char *dir, int64_t step, int stage, char *why, size_t nwhy) {
    char steps[24];
    snprintf(steps, sizeof steps, "%" PRId64, step);
    struct safetensors *file = safetensors_open(stage_path(dir, step, stage).s, why, nwhy);
    const char *format = file ? safetensors_meta(file, "format") : NULL,
               *said = file ? safetensors_meta(file, "step") : NULL;
    if (!file || (format && strcmp(format, CHECKPOINT_FORMAT) == 0 && said && strcmp(said, steps) == 0))
        return file;
    checkpoint_tell(why, nwhy, "%s: is not of format " CHECKPOINT_FORMAT " and step %s", file->path, steps);
    safetensors_close(file);
    return NULL;
}

static bool same_shape(const struct tensor *tensor, const struct rt_parameter *parameter) {
    bool same = tensor->ndims == parameter->ndims;
    for (int d = 0; same && d < parameter->ndims; d++)
        same = tensor->dim[d] == parameter->dim[d];
    return same;
}

/* Formats a shape into 128 bytes: 3 x 4. */
static const char *shape_text(int ndims, const int64_t *dim, char *out) {
    int n = snprintf(out, 128, ndims == 0 ? "a single number" : "");
    for (int d = 0; d < ndims; d++)
        n += snprintf(out + n, 128 - (size_t)n, "%s%" PRId64, d ? " x " : "", dim[d]);
    return out;
}

/* Reads a member's part of a tensor, through a buffer of the whole tensor. */
static bool read_share(const struct safetensors *file, const struct tensor *tensor, const struct part *part, float *to,
                       char *why, size_t nwhy) {
    if (part->is.count == part->whole.count)
        return safetensors_read(file, tensor, to, why, nwhy);
    float *whole = malloc((size_t)part->whole.count * sizeof *whole);
    bool ok = whole || checkpoint_tell(why, nwhy, "%s: no memory", file->path);
    ok = ok && safetensors_read(file, tensor, whole, why, nwhy);
    for (int64_t at = 0; ok && at < part->is.count;) {
        struct rt_stretch run = stretch_of(part->layer, &part->is, at);
        assert(run.n > 0 && run.at >= 0 && run.at + run.n <= part->whole.count && at + run.n <= part->is.count);
        memcpy(to + at, whole + run.at, (size_t)run.n * sizeof *to);
        at += run.n;
    }
    free(whole);
    return ok;
}

/* Reads into memory the parts that this file has. */
static bool read_parts(const struct safetensors *file, struct part *part, int n, float *memory, char *why,
                       size_t nwhy) {
    for (int i = 0; i < n; i++) {
        const struct tensor *tensor = safetensors_find(file, part[i].name);
        if (!tensor)
            continue;
        if (part[i].found)
            return checkpoint_tell(why, nwhy, "%s: has %s, which another file also has", file->path, part[i].name);
        if (!same_shape(tensor, &part[i].whole)) {
            char is[128], wanted[128];
            return checkpoint_tell(why, nwhy, "%s: %s is %s, but this model's is %s", file->path, part[i].name,
                                   shape_text(tensor->ndims, tensor->dim, is),
                                   shape_text(part[i].whole.ndims, part[i].whole.dim, wanted));
        }
        if (!read_share(file, tensor, &part[i], memory + part[i].at, why, nwhy))
            return false;
        part[i].found = true;
    }
    return true;
}

float *checkpoint_read_stage(const char *dir, int64_t step, const struct rt_model *m, const struct rt_stage *s,
                             char *why, size_t nwhy) {
    struct manifest manifest = {.n = 0};
    int n;
    struct part *part = stage_parts(m, s, &n);
    size_t copies = 1 + (size_t)count_moments(m->optimizer);
    float *memory = calloc(1, (size_t)weight_count(m, s) * copies * sizeof *memory + 1);
    bool ok = (part && memory) || checkpoint_tell(why, nwhy, "%s: no memory", dir);
    ok = ok && manifest_read(dir, step, &manifest, why, nwhy);
    for (int i = 0; ok && i < manifest.n; i++) {
        struct safetensors *file = open_stage(dir, step, i, why, nwhy);
        ok = file && read_parts(file, part, n, memory, why, nwhy);
        if (file)
            safetensors_close(file);
    }
    for (int i = 0; ok && i < n; i++)
        if (!part[i].found)
            ok = checkpoint_tell(why, nwhy, "%s: has no %s; it belongs to another model or optimizer",
                                 step_path(dir, step).s, part[i].name);
    free(manifest.file);
    free(part);
    if (ok)
        return memory;
    free(memory);
    return NULL;
}

/* ---- export ---- */

static bool copy_tensor(struct durable *durable, const struct safetensors *file, const struct tensor *tensor,
                        char *buffer) {
    for (int64_t at = tensor->at; at < tensor->end; at += PART) {
        size_t n = tensor->end - at < PART ? (size_t)(tensor->end - at) : PART;
        if (!durable_read(file->fd, file->path, buffer, n, at, durable->why, durable->nwhy)) {
            durable_drop(durable);
            return false;
        }
        if (!durable_write(durable, buffer, n))
            return false;
    }
    return true;
}

/* Lists the parameters of all files, in order, without data. The files own the names. */
static struct tensor *list_parameters(struct safetensors *const *file, int nfiles, int *n) {
    size_t all = 1;
    for (int i = 0; i < nfiles; i++)
        all += (size_t)file[i]->n;
    struct tensor *tensor = malloc(all * sizeof *tensor);
    *n = 0;
    for (int i = 0; tensor && i < nfiles; i++)
        for (int k = 0; k < file[i]->n; k++)
            if (!is_state(file[i]->tensor[k].name))
                tensor[(*n)++] = file[i]->tensor[k];
    return tensor;
}

/* Checks that no two files have the same tensor: then they would not be a partition of one model. */
static bool all_apart(struct safetensors *const *file, int nfiles, char *why, size_t nwhy) {
    for (int i = 0; i < nfiles; i++)
        for (int k = 0; k < file[i]->n; k++)
            for (int j = 0; j < i; j++)
                if (safetensors_find(file[j], file[i]->tensor[k].name))
                    return checkpoint_tell(why, nwhy, "%s: has %s, which %s also has", file[i]->path,
                                           file[i]->tensor[k].name, file[j]->path);
    return true;
}

static bool merge_shards(struct safetensors *const *file, int nfiles, int64_t step, const char *path, char *why,
                         size_t nwhy) {
    char steps[24];
    snprintf(steps, sizeof steps, "%" PRId64, step);
    const struct tensor_meta meta[] = {{"format", CHECKPOINT_FORMAT}, {"step", steps}};
    struct durable durable;
    int n;
    struct tensor *tensor = list_parameters(file, nfiles, &n);
    char *buffer = malloc(PART);
    bool ok = (tensor && buffer) || checkpoint_tell(why, nwhy, "%s: no memory", path);
    if (ok && (ok = durable_begin(&durable, path, why, nwhy))) {
        safetensors_header(&durable, tensor, n, meta, 2);
        for (int i = 0; i < nfiles; i++)
            for (int k = 0; durable.fd >= 0 && k < file[i]->n; k++)
                if (!is_state(file[i]->tensor[k].name))
                    copy_tensor(&durable, file[i], &file[i]->tensor[k], buffer);
        ok = durable_end(&durable);
    }
    free(buffer);
    free(tensor);
    return ok;
}

bool checkpoint_export(const char *dir, int64_t step, const char *path, char *why, size_t nwhy) {
    struct manifest manifest;
    if (step < 0 ? !checkpoint_latest(dir, &step, why, nwhy) : !checkpoint_whole(dir, step, why, nwhy))
        return false;
    bool ok = manifest_read(dir, step, &manifest, why, nwhy);
    struct safetensors **file = calloc((size_t)manifest.n + 1, sizeof *file);
    int opened = 0;
    ok = ok && (file || checkpoint_tell(why, nwhy, "%s: no memory", path));
    while (ok && opened < manifest.n && (ok = (file[opened] = open_stage(dir, step, opened, why, nwhy)) != NULL))
        opened++;
    ok = ok && all_apart(file, manifest.n, why, nwhy) && merge_shards(file, manifest.n, step, path, why, nwhy);
    for (int i = 0; i < opened; i++)
        safetensors_close(file[i]);
    free(file);
    free(manifest.file);
    return ok;
}
