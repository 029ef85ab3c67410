/* Weights from files of other programs: see import.h. */
#include "import.h"
#include "published.h"
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A tensor that holds some columns of a parameter. */
struct source {
    const char *name;
    struct named *tensor;
    int64_t columns;
    int heads; /* heads whose rows are to be restored to their original order; 0: none */
};
struct wanted {
    const struct rt_layer *l;
    struct rt_parameter whole;
    struct published published;
    struct source source[MOST_PUBLISHED];
};

struct import {
    struct named_file *file;
    const struct rt_model *m;
    char *why;
    size_t nwhy;
    struct named_file **own; /* the file of a layer's own that was opened last; NULL: none yet */
};

static bool say(const struct import *im, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static bool say(const struct import *im, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(im->why, im->nwhy, fmt, ap);
    va_end(ap);
    return false;
}

/* ---- shapes ---- */

static const char *dims_text(int ndims, const int64_t *dim, char *out) {
    int n = 0;
    for (int d = 0; d < ndims; d++)
        n += snprintf(out + n, 128 - (size_t)n, "%s%" PRId64, d ? " x " : "", dim[d]);
    return out;
}

/* Returns the columns of a whole parameter; for a vector, its elements. */
static int64_t whole_columns(const struct rt_parameter *p) { return p->dim[p->ndims - 1]; }
static int64_t parameter_rows(const struct rt_parameter *p) { return p->ndims == 2 ? p->dim[0] : 1; }

static bool has_shape(const struct wanted *wanted, const struct named *tensor, int64_t *columns) {
    const struct rt_parameter *whole = &wanted->whole;
    if (tensor->ndims != whole->ndims)
        return false;
    if (whole->ndims == 1) {
        *columns = tensor->dim[0];
        return true;
    }
    *columns = tensor->dim[wanted->published.turned ? 0 : 1];
    return tensor->dim[wanted->published.turned ? 1 : 0] == whole->dim[0];
}

/* Returns the tensor of that name, or without the name's first part, as in a model without its head. NULL: not there.
 */
static struct named *find_headless(struct named_file *file, const char *name) {
    struct named *tensor = named_find(file, name);
    return tensor || !strchr(name, '.') ? tensor : named_find(file, strchr(name, '.') + 1);
}

static bool find_tensors(const struct import *im, struct wanted *wanted) {
    int64_t sum = 0;
    char is[128], must[128];
    for (int i = 0; i < wanted->published.n; i++) {
        struct source *source = &wanted->source[i];
        source->name = wanted->published.part[i].name;
        source->heads = wanted->published.part[i].heads;
        source->tensor = find_headless(im->file, source->name);
        if (!source->tensor)
            return say(im, "%s: has no tensor %s, which layer %d needs", named_path(im->file), source->name,
                       wanted->l->index);
        if (source->tensor->unread)
            return say(im, "%s: tensor %s: dtype %s; only F32, F16 or BF16 is read here", named_path(im->file),
                       source->name, source->tensor->unread);
        bool good = has_shape(wanted, source->tensor, &source->columns);
        sum += source->columns;
        if (!good || (i == wanted->published.n - 1 && sum != whole_columns(&wanted->whole)) ||
            (source->heads > 0 && source->columns % (2 * source->heads) != 0))
            return say(im, "%s: tensor %s is %s, but %s of layer %d is %s%s%s", named_path(im->file), source->name,
                       dims_text(source->tensor->ndims, source->tensor->dim, is), wanted->whole.name, wanted->l->index,
                       dims_text(wanted->whole.ndims, wanted->whole.dim, must),
                       wanted->published.n > 1 ? ", with all its parts" : "",
                       wanted->published.turned ? ", turned" : "");
    }
    return true;
}

static bool find_wanted(const struct import *im, const struct rt_layer *l, const struct rt_parameter *p, int i,
                        struct wanted *wanted) {
    *wanted = (struct wanted){.l = l, .whole = whole_parameter(l, p)};
    const struct layer_parameter of = {l, i, wanted->whole};
    return published_names(im->m, &of, named_is_gguf(im->file), &wanted->published, im->why, im->nwhy) &&
           find_tensors(im, wanted);
}

/* ---- values ---- */

/* Returns the row that llama.cpp has moved to this place. Within a head, it pairs row i of the first half with row i of
 * the second. */
static int64_t turned_back(const struct source *source, int64_t row) {
    if (source->heads == 0)
        return row;
    int64_t size = source->columns / source->heads, head = row / size, at = row % size;
    return head * size + at % 2 * (size / 2) + at / 2;
}

/* Reads a tensor into columns [first, first + source->columns) of the whole parameter. */
static void read_source(const struct wanted *wanted, const struct source *source, int64_t first, float *whole,
                        float *line) {
    int64_t columns = whole_columns(&wanted->whole), rows = parameter_rows(&wanted->whole);
    const struct named *tensor = source->tensor;
    if (wanted->whole.ndims == 1 || !wanted->published.turned) {
        int64_t there = wanted->whole.ndims == 1 ? 1 : tensor->dim[0];
        for (int64_t r = 0; r < there; r++) {
            values_read(tensor->type, tensor->data, r * source->columns, source->columns, line);
            for (int64_t c = 0; c < source->columns; c++)
                whole[r * columns + first + (wanted->whole.ndims == 1 ? turned_back(source, c) : c)] = line[c];
        }
        return;
    }
    for (int64_t c = 0; c < source->columns; c++) {
        float *to = whole + first + turned_back(source, c);
        values_read(tensor->type, tensor->data, c * rows, rows, line);
        for (int64_t r = 0; r < rows; r++)
            to[r * columns] = line[r];
    }
}

/* Copies a member's part of the whole parameter. */
static void take_part(const struct rt_layer *l, const struct rt_parameter *p, const float *whole, float *w) {
    for (int64_t at = 0; at < p->count;) {
        struct rt_stretch run = stretch_of(l, p, at);
        memcpy(w + at, whole + run.at, (size_t)run.n * sizeof *w);
        at += run.n;
    }
}

static bool read_parameter(const struct import *im, const struct rt_layer *l, const struct rt_parameter *p, int i,
                           float *w) {
    struct wanted wanted;
    if (!find_wanted(im, l, p, i, &wanted))
        return false;
    int64_t longest = parameter_rows(&wanted.whole) > whole_columns(&wanted.whole) ? parameter_rows(&wanted.whole)
                                                                                   : whole_columns(&wanted.whole),
            first = 0;
    bool apart = p->count != wanted.whole.count;
    float *line = malloc((size_t)longest * sizeof *line),
          *whole = apart ? calloc((size_t)wanted.whole.count, sizeof *whole) : w;
    bool ok = line && whole;
    for (int k = 0; ok && k < wanted.published.n; k++) {
        read_source(&wanted, &wanted.source[k], first, whole, line);
        first += wanted.source[k].columns;
    }
    if (ok && apart)
        take_part(l, p, whole, w);
    if (!ok)
        say(im, "%s: no memory", named_path(im->file));
    if (apart)
        free(whole);
    free(line);
    return ok;
}

/* ---- stages ---- */

typedef bool parameter_function(const struct import *im, const struct rt_layer *l, const struct rt_parameter *p, int i,
                                float *w);

static bool of_layer(const struct import *im, const struct rt_layer *l, float *w, parameter_function *f) {
    const struct rt_parameters all = parameters_of(im->m, l, shared_table(im->m, l) > 0);
    bool table = all.n > 0 && strcmp(all.at[0].name, "position") == 0; /* the tokens are a set of their own */
    for (int i = 0; i < all.n; w += w ? all.at[i].count : 0, i++)
        if (!f(im, l, &all.at[i], i + table, w))
            return false;
    return true;
}

static bool check_parameter(const struct import *im, const struct rt_layer *l, const struct rt_parameter *p, int i,
                            float *w) {
    struct wanted wanted;
    (void)w;
    if (!find_wanted(im, l, p, i, &wanted))
        return false;
    for (int k = 0; k < wanted.published.n; k++)
        wanted.source[k].tensor->used = true;
    return true;
}

/* Checks the frequency divisors of rope, which llama.cpp's files of Llama 3 have. They are not weights, but the layer
 * must use the same divisors. */
static bool check_rope_factors(const struct import *im, const struct rt_layer *l) {
    struct named *divisors = named_find(im->file, "rope_freqs.weight");
    struct rt_layer plain = *l;
    int dim = l->kind == LAYER_attention ? head_columns(l) : 0;
    if (!divisors || l->kind != LAYER_attention || l->config.attention.rope == 0)
        return true;
    if (divisors->ndims != 1 || divisors->dim[0] != dim / 2)
        return say(im, "%s: rope_freqs.weight must have %d numbers, one per frequency of layer %d's rope",
                   named_path(im->file), dim / 2, l->index);
    plain.config.attention.rope_factor = 0;
    divisors->used = true;
    for (int i = 0; i < dim / 2; i++) {
        double divisor = host_rope(&plain, i) / host_rope(l, i);
        float there;
        values_read(divisors->type, divisors->data, i, 1, &there);
        if (!(fabs(divisor / (double)there - 1) < 1e-5))
            return say(im,
                       "%s: rope_freqs.weight divides frequency %d of rope by %g, but layer %d by %g; give the file's "
                       "scaling of rope, or no --model",
                       named_path(im->file), i, (double)there, l->index, divisor);
    }
    return true;
}

static bool name_ends_in(const struct named *tensor, const char *end) {
    size_t n = strlen(end);
    return tensor->nname >= n && memcmp(tensor->name + tensor->nname - n, end, n) == 0;
}

/* Returns whether a tensor is a buffer that older versions of transformers saved beside the weights: masks, and rope's
 * angles. */
static bool is_buffer(const struct named *tensor) {
    return (name_ends_in(tensor, ".attn.bias") && tensor->ndims != 1 && tensor->ndims != 2) ||
           name_ends_in(tensor, ".attn.masked_bias") || name_ends_in(tensor, ".rotary_emb.inv_freq");
}

/* Returns whether an output layer is a copy of the token table. */
static bool is_table(const struct named_list *all, const struct named *tensor) {
    for (size_t i = 0; i < all->n; i++)
        if (all->at[i].used && named_equal(&all->at[i], tensor))
            return true;
    return false;
}

/* ---- a layer's own file ---- */

/* Returns whether the first values of a layer's trained parameters are in its unit's own file, and not in the model's.
 */
static bool has_own_file(const struct rt_model *m, const struct rt_layer *l, const struct named_file *file) {
    const struct rt_names *names = m->names ? &m->names[l->index] : NULL;
    bool named = file && names && (named_is_gguf(file) ? names->gguf : names->hf);
    return first_values(l) && l->nparam > 0 && !named;
}

/* Opens a layer's own file. Layers that follow each other often have the same. */
static bool open_own_file(const struct import *im, const char *path) {
    if (*im->own && strcmp(named_path(*im->own), path) == 0)
        return true;
    if (*im->own)
        named_close(*im->own);
    *im->own = named_open(path, im->why, im->nwhy);
    return *im->own;
}

static void close_own_file(const struct import *im) {
    if (*im->own)
        named_close(*im->own);
}

/* Returns a parameter's name in files of safetensors, or NULL if its layer has none there. */
static const char *full_name(const struct import *im, const struct rt_layer *l, const struct rt_parameter *p,
                             struct published *names) {
    const struct layer_parameter of = {l, 0, *p};
    char unused[256];
    return published_names(im->m, &of, false, names, unused, sizeof unused) ? names->part[0].name : NULL;
}

/* Finds a parameter in its unit's own file, under its full or its short name. Returns NULL and sets why if it is not
 * there, or cannot be this parameter. */
static struct named *find_own_tensor(const struct import *im, const struct rt_layer *l, const struct rt_parameter *p) {
    struct published names;
    char is[128], must[128];
    if (!open_own_file(im, first_values(l)))
        return NULL;
    const char *full = full_name(im, l, p, &names), *path = named_path(*im->own);
    struct named *tensor = full ? named_find(*im->own, full) : NULL;
    const char *name = tensor ? full : p->name;
    tensor = tensor ? tensor : named_find(*im->own, name);
    if (!tensor)
        say(im, "%s: has no tensor %s%s%s, which unit '%s' needs", path, full ? full : "", full ? " or " : "", name,
            name_of_layer(l));
    else if (tensor->unread)
        say(im, "%s: tensor %s: dtype %s; only F32, F16 or BF16 is read here", path, name, tensor->unread);
    else if (tensor->ndims != p->ndims || tensor->dim[0] != p->dim[0] || (p->ndims == 2 && tensor->dim[1] != p->dim[1]))
        say(im, "%s: tensor %s is %s, but unit '%s' says %s", path, name, dims_text(tensor->ndims, tensor->dim, is),
            name_of_layer(l), dims_text(p->ndims, p->dim, must));
    else
        return tensor;
    return NULL;
}

/* Returns the same import from a layer's own file, or from none if it cannot be opened. */
static struct import from_own_file(const struct import *im, const char *path) {
    struct import own = *im;
    own.file = open_own_file(im, path) ? *im->own : NULL;
    return own;
}

/* Sets the parameters of a frozen layer that is no unit. */
static bool set_frozen_layer(const struct import *im, const struct rt_layer *l, float *w) {
    const struct import own = from_own_file(im, frozen_file(im->m, l));
    const struct rt_parameters all = frozen_parameters_of(im->m, l);
    for (int i = 0; i < all.n; w += all.at[i++].count)
        if (!own.file || !read_parameter(&own, l, &all.at[i], i, w))
            return false;
    return true;
}

/* Sets the trained parameters that units' own files hold, or else the frozen ones, which these files always hold. */
static bool read_own_files(const struct import *im, const struct rt_stage *s, bool frozen, float *w) {
    for (const struct rt_layer *l = s->layer; l < s->layer + s->nlayers; l++) {
        float *to = w + (frozen ? l->frozen : l->param) / precision_bytes(im->m->precision);
        struct rt_parameters all = {.n = 0};
        if (frozen && l->set == SET_FROZEN) {
            if (!set_frozen_layer(im, l, to))
                return false;
        } else if (frozen)
            all = frozen_parameters_of(im->m, l);
        else if (l->set == SET_OWN && has_own_file(im->m, l, im->file))
            all = parameters_of(im->m, l, false);
        for (int i = 0; i < all.n; to += all.at[i++].count) {
            const struct named *tensor = find_own_tensor(im, l, &all.at[i]);
            if (!tensor)
                return false;
            values_read(tensor->type, tensor->data, 0, all.at[i].count, to);
        }
    }
    return true;
}

/* Returns whether the model's file has the same values for a frozen parameter as the layer's own file, or none. Marks
 * its tensors as used. */
static bool same_frozen(const struct import *im, const struct import *own, const struct rt_layer *l,
                        const struct rt_parameter *p, int i) {
    struct published names;
    char unused[256];
    const struct layer_parameter of = {l, i, *p};
    if (!published_names(im->m, &of, named_is_gguf(im->file), &names, unused, sizeof unused))
        return true;
    for (int k = 0; k < names.n; k++)
        if (!find_headless(im->file, names.part[k].name))
            return true;
    float *here = malloc(2 * (size_t)p->count * sizeof *here), *there = here + p->count;
    bool ok = here ? check_parameter(im, l, p, i, NULL) && read_parameter(im, l, p, i, here) &&
                         read_parameter(own, l, p, i, there)
                   : say(im, "%s: no memory", named_path(im->file));
    if (ok && memcmp(here, there, (size_t)p->count * sizeof *here) != 0)
        ok = say(im,
                 "%s: tensor %s differs from the one in %s, where layer %d has its frozen parameters; name this file "
                 "there as 'data', or take it off 'frozen'",
                 named_path(im->file), names.part[0].name, named_path(own->file), l->index);
    free(here);
    return ok;
}

static bool check_frozen_layer(const struct import *im, const struct rt_layer *l) {
    const struct import own = from_own_file(im, frozen_file(im->m, l));
    const struct rt_parameters all = frozen_parameters_of(im->m, l);
    bool ok = own.file;
    for (int i = 0; i < all.n && ok; i++)
        ok = same_frozen(im, &own, l, &all.at[i], i);
    return ok;
}

/* Checks that the model's file has no other values for a layer's frozen parameters than the layer's own file. */
static bool check_frozen(const struct import *im, const struct rt_layer *l) {
    if (l->set == SET_FROZEN)
        return check_frozen_layer(im, l);
    const struct rt_parameters all = frozen_parameters_of(im->m, l);
    struct published names;
    for (int i = 0; i < all.n; i++) {
        const char *name = named_is_gguf(im->file) ? NULL : full_name(im, l, &all.at[i], &names);
        struct named *tensor = name ? find_headless(im->file, name) : NULL;
        const struct named *own = tensor ? find_own_tensor(im, l, &all.at[i]) : NULL;
        if (tensor && !own)
            return false;
        if (tensor && !named_equal(tensor, own))
            return say(im,
                       "%s: tensor %s differs from the one in %s, where unit '%s' of layer %d has its frozen "
                       "parameters; name this file there as 'data', or take it off 'frozen'",
                       named_path(im->file), name, first_values(l), name_of_layer(l), l->index);
        if (tensor)
            tensor->used = true;
    }
    return true;
}

bool import_check(struct named_file *file, const struct rt_model *m, const struct rt_stage *s, char *why, size_t nwhy) {
    struct named_file *own = NULL;
    const struct import im = {file, m, why, nwhy, &own};
    bool ok = true;
    for (const struct rt_layer *l = s->layer; l < s->layer + s->nlayers && ok; l++) {
        bool reads = l->set == SET_OWN && l->nparam > 0 && !has_own_file(m, l, file);
        ok = check_rope_factors(&im, l) && (!reads || of_layer(&im, l, NULL, check_parameter)) && check_frozen(&im, l);
    }
    close_own_file(&im);
    return ok;
}

bool import_check_rest(struct named_file *file, char *why, size_t nwhy) {
    const struct import im = {file, NULL, why, nwhy, NULL};
    const struct named_list *all = named_all(file);
    const struct named *buffer = NULL;
    int buffers = 0;
    for (size_t i = 0; i < all->n; i++) {
        const struct named *tensor = &all->at[i];
        if (tensor->used)
            continue;
        bool head = name_ends_in(tensor, "lm_head.weight");
        if (is_buffer(tensor)) {
            buffer = buffer ? buffer : tensor;
            buffers++;
        } else if (head && !is_table(all, tensor))
            return say(&im,
                       "%s: tensor %.*s is not the token table, but this model's output layer is: give a model whose "
                       "output layer has its own weights, e.g. with -D tied=false",
                       named_path(file), (int)tensor->nname, tensor->name);
        else if (!head)
            return say(&im, "%s: tensor %.*s belongs to no layer of the model", named_path(file), (int)tensor->nname,
                       tensor->name);
    }
    *why = 0;
    if (buffers > 0)
        say(&im, "%s: skipped, since layers compute these values themselves: %.*s%s", named_path(file),
            (int)buffer->nname, buffer->name, buffers > 1 ? ", and others of its kind" : "");
    return true;
}

/* Sets the weights that the model's file holds. */
static bool read_file_weights(const struct import *im, const struct rt_stage *s, float *w) {
    memset(w, 0, (size_t)weight_count(im->m, s) * sizeof *w);
    for (const struct rt_layer *l = s->layer; l < s->layer + s->nlayers; l++)
        if (l->set == SET_OWN && l->nparam > 0 && !has_own_file(im->m, l, im->file) &&
            !of_layer(im, l, w + l->param / precision_bytes(im->m->precision), read_parameter))
            return false;
    return true;
}

bool first_weights(struct named_file *file, uint64_t seed, const struct rt_model *m, const struct rt_stage *s, float *w,
                   char *why, size_t nwhy) {
    struct named_file *own = NULL;
    const struct import im = {file, m, why, nwhy, &own};
    if (!file)
        host_init(m, s, w, seed);
    bool ok = (!file || read_file_weights(&im, s, w)) && read_own_files(&im, s, false, w);
    close_own_file(&im);
    return ok;
}

const char *frozen_file(const struct rt_model *m, const struct rt_layer *l) {
    if (l->set == SET_FROZEN)
        return m->names[l->index].data;
    return frozen_elements(l) > 0 ? first_values(l) : NULL;
}

bool frozen_weights(const struct rt_model *m, const struct rt_stage *s, float *w, char *why, size_t nwhy) {
    struct named_file *own = NULL;
    const struct import im = {NULL, m, why, nwhy, &own};
    bool ok = read_own_files(&im, s, true, w);
    close_own_file(&im);
    return ok;
}
