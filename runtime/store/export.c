#include "export.h"
#include "checkpoint.h"
#include "import.h"
#include "published.h"
#include "safetensors.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TURNED = 64 }; /* columns transposed at a time */

/* A part of a parameter, its columns [first, first + n), exported as a tensor of its own. */
struct piece {
    char name[MOST_NAME];
    bool turned;
    int ndims;
    int64_t rows, columns, first, n; /* rows, columns: the parameter's */
    int64_t at;                      /* the parameter's first element in the stage's weights, or frozen parameters */
    bool frozen;
    int stage;
};
struct pieces {
    struct piece *at;
    int n, cap;
};

static bool append_piece(struct pieces *all, const struct piece *piece) {
    if (all->n == all->cap) {
        int cap = all->cap ? 2 * all->cap : 64;
        struct piece *at = realloc(all->at, (size_t)cap * sizeof *at);
        if (!at)
            return false;
        all->at = at;
        all->cap = cap;
    }
    all->at[all->n++] = *piece;
    return true;
}

static bool add_parameter_of(struct pieces *all, const struct rt_model *m, const struct layer_parameter *of,
                             const struct columns *columns, struct piece piece, char *why, size_t nwhy) {
    const struct rt_parameter *p = &of->whole;
    struct published published;
    if (!published_names(m, of, false, &published, why, nwhy))
        return false;
    piece.turned = published.turned;
    piece.ndims = p->ndims;
    piece.rows = p->ndims == 2 ? p->dim[0] : 1;
    piece.columns = p->dim[p->ndims - 1];
    bool alike = columns->n[0] == 0 || published.n == 1;
    for (int k = 0; k < published.n; k++, piece.first += piece.n) {
        piece.n = alike ? piece.columns / published.n : k < 3 ? columns->n[k] : 0;
        snprintf(piece.name, sizeof piece.name, "%s", published.part[k].name);
        if (!append_piece(all, &piece)) {
            snprintf(why, nwhy, "no memory");
            return false;
        }
    }
    if (piece.first == piece.columns)
        return true;
    snprintf(why, nwhy, "layer %d: its name lists %d tensors, but its %lld columns do not divide into them",
             of->l->index, published.n, (long long)piece.columns);
    return false;
}

/* Lists a stage's parameters, the trained ones or else the frozen ones. */
static bool list_stage(struct pieces *all, const struct rt_model *m, const struct export_stage *stage,
                       struct piece piece, char *why, size_t nwhy) {
    for (int i = 0; i < stage->s->nlayers; i++) {
        const struct rt_layer *l = &stage->s->layer[i];
        const struct rt_parameters of =
            piece.frozen ? frozen_parameters_of(m, l) : parameters_of(m, l, shared_table(m, l) > 0);
        piece.at = (piece.frozen ? l->frozen : l->param) / precision_bytes(m->precision);
        if (copies_table(l) || (l->set != SET_OWN && !(piece.frozen && l->set == SET_FROZEN)))
            continue;
        bool table = of.n > 0 && strcmp(of.at[0].name, "position") == 0; /* the tokens are a set of their own */
        for (int k = 0; k < of.n; piece.at += of.at[k].count, k++) {
            const struct layer_parameter p = {l, k + table, of.at[k]};
            if (!add_parameter_of(all, m, &p, &stage->columns[i], piece, why, nwhy))
                return false;
        }
    }
    return true;
}

static struct tensor tensor_of(const struct piece *piece) {
    struct tensor t = {.name = piece->name, .ndims = piece->ndims, .dim = {piece->n}};
    t.dim[0] = piece->ndims == 1 || piece->turned ? piece->n : piece->rows;
    t.dim[1] = piece->turned ? piece->rows : piece->n;
    return t;
}

static void write_turned(struct durable *out, const struct piece *piece, const float *w, float *buffer) {
    for (int64_t c = 0, n; c < piece->n; c += n) {
        n = piece->n - c < TURNED ? piece->n - c : TURNED;
        for (int64_t r = 0; r < piece->rows; r++)
            for (int64_t k = 0; k < n; k++)
                buffer[k * piece->rows + r] = w[r * piece->columns + piece->first + c + k];
        durable_write(out, buffer, (size_t)(n * piece->rows) * sizeof *buffer);
    }
}

static void write_named_piece(struct durable *out, const struct piece *piece, const float *w, float *buffer) {
    bool whole = piece->n == piece->columns;
    if (piece->turned)
        write_turned(out, piece, w, buffer);
    else
        for (int64_t r = 0; r < (whole ? 1 : piece->rows); r++)
            durable_write(out, w + r * piece->columns + piece->first,
                          (size_t)(whole ? piece->rows * piece->n : piece->n) * sizeof *w);
}

/* Returns a piece's weights: the stage's trained ones from the checkpoint, or its frozen ones from its layers' files.
 */
static float *weights_with(const struct export *what, const struct piece *piece, const struct durable *out) {
    const struct rt_stage *s = what->stage[piece->stage].s;
    if (!piece->frozen)
        return checkpoint_read_stage(what->dir, what->step, what->m, s, out->why, out->nwhy);
    float *w = calloc(1, (size_t)s->frozen);
    if (!w)
        snprintf(out->why, out->nwhy, "no memory");
    if (w && frozen_weights(what->m, s, w, out->why, out->nwhy))
        return w;
    free(w);
    return NULL;
}

/* Writes all pieces, one stage at a time, because a model may be larger than this machine's memory. */
static bool write_pieces(struct durable *out, const struct export *what, const struct pieces *all, float *buffer) {
    float *w = NULL;
    bool ok = true;
    for (int i = 0; ok && i < all->n; i++) {
        const struct piece *piece = &all->at[i];
        if (i == 0 || piece->stage != piece[-1].stage || piece->frozen != piece[-1].frozen) {
            free(w);
            ok = (w = weights_with(what, piece, out));
        }
        if (ok)
            write_named_piece(out, piece, w + piece->at, buffer);
    }
    free(w);
    return ok;
}

bool export_named(const struct export *what, const char *path, int64_t *bytes, int *tensors, char *why, size_t nwhy) {
    struct pieces all = {0};
    struct durable out;
    int64_t longest = 1;
    bool ok = true;
    for (int s = 0; ok && s < what->n; s++)
        ok = list_stage(&all, what->m, &what->stage[s], (struct piece){.stage = s}, why, nwhy) &&
             list_stage(&all, what->m, &what->stage[s], (struct piece){.stage = s, .frozen = true}, why, nwhy);
    for (int i = 0; i < all.n; i++)
        longest = all.at[i].rows > longest ? all.at[i].rows : longest;
    struct tensor *tensor = calloc((size_t)all.n + 1, sizeof *tensor);
    float *buffer = malloc((size_t)(TURNED * longest) * sizeof *buffer);
    if (ok && (!tensor || !buffer)) {
        snprintf(why, nwhy, "%s: no memory", path);
        ok = false;
    }
    *bytes = 0;
    *tensors = all.n;
    for (int i = 0; ok && i < all.n; i++) {
        tensor[i] = tensor_of(&all.at[i]);
        *bytes += tensor_bytes(&tensor[i]);
    }
    if (ok && (ok = durable_begin(&out, path, why, nwhy))) {
        const struct tensor_meta meta = {"format", "pt"}; /* required by transformers */
        safetensors_header(&out, tensor, all.n, &meta, 1);
        if (!write_pieces(&out, what, &all, buffer))
            durable_drop(&out);
        ok = durable_end(&out);
    }
    free(buffer);
    free(tensor);
    free(all.at);
    return ok;
}
