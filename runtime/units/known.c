/* Runs a whole model on the host, an item of its list after the other: see known.h. */
#include "known.h"
#include "data.h"
#include "store/import.h"
#include "store/parameter_walk.h"
#include "store/published.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A stage's output and stash, which its backward reads, and its weights. */
struct kept {
    char *act, *stash;
    float *w, *dw, *frozen;
};
struct whole {
    const struct known_model *k;
    struct named_file *values, *weights;
    struct kept *kept; /* [sets] */
    char *work, *extra, *dx[2], *memory;
    struct rt_batch batch; /* in memory */
    float loss;
    char *why;
    size_t nwhy;
};

__attribute__((format(printf, 2, 3))) static bool says(const struct whole *whole, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(whole->why, whole->nwhy, fmt, ap);
    va_end(ap);
    return false;
}

/* ---- memory ---- */

/* Sets *at to new memory, or to NULL if bytes is 0. */
static bool take_known(const struct whole *whole, void *at, int64_t bytes) {
    void *new = bytes > 0 ? aligned_alloc(64, ((size_t)bytes + 63) / 64 * 64) : NULL;
    memcpy(at, &new, sizeof new);
    return new || bytes == 0 || says(whole, "no memory to run the whole model");
}

static bool take_set(const struct whole *whole, int i) {
    const struct rt_stage *s = whole->k->stage[i];
    struct kept *kept = &whole->kept[i];
    const bool runs = i < whole->k->stages;
    return take_known(whole, &kept->act, runs && !ends_in_loss(s) ? s->act : 0) &&
           take_known(whole, &kept->stash, runs ? s->stash : 0) && take_known(whole, &kept->w, s->weight) &&
           take_known(whole, &kept->dw, s->weight) && take_known(whole, &kept->frozen, s->frozen);
}

static bool take_rooms(struct whole *whole) {
    int64_t work = 0, extra = 0, dx = 0;
    whole->kept = calloc((size_t)whole->k->sets, sizeof *whole->kept);
    bool ok = whole->kept || says(whole, "no memory to run the whole model");
    for (int i = 0; ok && i < whole->k->sets; i++) {
        const struct rt_stage *s = whole->k->stage[i];
        work = s->work > work ? s->work : work;
        extra = s->ext > extra ? s->ext : extra;
        dx = s->grad > dx ? s->grad : dx;
        ok = take_set(whole, i);
    }
    return ok && take_known(whole, &whole->work, work) && take_known(whole, &whole->extra, extra) &&
           take_known(whole, &whole->dx[0], dx) && take_known(whole, &whole->dx[1], dx) &&
           take_known(whole, &whole->memory, (int64_t)data_bytes(whole->k->m));
}

static void close_whole(struct whole *whole) {
    for (int i = 0; whole->kept && i < whole->k->sets; i++) {
        const struct kept *kept = &whole->kept[i];
        free(kept->act), free(kept->stash), free(kept->w), free(kept->dw), free(kept->frozen);
    }
    free(whole->kept);
    free(whole->work), free(whole->extra), free(whole->dx[0]), free(whole->dx[1]), free(whole->memory);
    if (whole->values)
        named_close(whole->values);
    if (whole->weights)
        named_close(whole->weights);
}

/* ---- files ---- */

/* Returns the bytes of a tensor of the file of values, or NULL if it has none of this name, type and size. */
static const uint8_t *find_value(const struct whole *whole, const char *name, bool floats, int64_t n) {
    const struct named *tensor = named_find(whole->values, name);
    if (!tensor)
        says(whole, "%s: has no tensor %s", whole->k->values, name);
    else if (tensor->bytes != 4 * n || (floats ? tensor->unread != NULL || tensor->type != VALUES_F32
                                               : !tensor->unread || strcmp(tensor->unread, "I32") != 0))
        says(whole, "%s: tensor %s must have %lld numbers of type %s", whole->k->values, name, (long long)n,
             floats ? "F32" : "I32");
    else
        return tensor->data;
    return NULL;
}

static bool read_known_numbers(const struct whole *whole, const char *name, bool floats, int64_t n, void *to) {
    const uint8_t *from = find_value(whole, name, floats, n);
    if (from)
        memcpy(to, from, (size_t)n * 4);
    return from;
}

/* Checks integers of the file: a training checks its data's in the same way. */
static bool check_below(const struct whole *whole, const char *name, const void *at, int64_t n, int64_t below) {
    const int32_t *integer = at;
    for (int64_t i = 0; i < n; i++)
        if (integer[i] < 0 || integer[i] >= below)
            return says(whole, "%s: tensor %s has %d, but the model takes integers from 0 to %lld", whole->k->values,
                        name, (int)integer[i], (long long)below - 1);
    return true;
}

static bool read_microbatch(struct whole *whole) {
    const struct rt_model *m = whole->k->m;
    char *target = whole->memory + data_half(m), name[MOST_NAME];
    const int64_t rows = m->rows;
    bool ok = read_known_numbers(whole, "tokens", false, rows, whole->memory) &&
              read_known_numbers(whole, "targets", false, rows, target) &&
              check_below(whole, "tokens", whole->memory, rows, m->vocab) &&
              check_below(whole, "targets", target, rows, m->vocab);
    for (int k = 0; ok && k < m->ninputs; k++) {
        const struct rt_input *input = &m->input_of_units[k];
        char *to = whole->memory + data_input_at(m, k);
        snprintf(name, sizeof name, "input.%s", input->name);
        ok = read_known_numbers(whole, name, input->floats, rows * input->columns, to) &&
             (input->floats || check_below(whole, name, to, rows * input->columns, input->below));
    }
    if (m->labels)
        memcpy(whole->memory + data_counted_at(m), &rows, sizeof rows);
    data_point(m, whole->memory, 0, &whole->batch);
    return ok;
}

static bool read_known_weights(const struct whole *whole) {
    const struct rt_model *m = whole->k->m;
    bool ok = true;
    for (int i = 0; ok && i < whole->k->sets; i++) {
        const struct rt_stage *s = whole->k->stage[i];
        ok = import_check(whole->weights, m, s, whole->why, whole->nwhy) &&
             (s->weight == 0 || first_weights(whole->weights, 0, m, s, whole->kept[i].w, whole->why, whole->nwhy)) &&
             (s->frozen == 0 || frozen_weights(m, s, whole->kept[i].frozen, whole->why, whole->nwhy));
    }
    return ok;
}

/* ---- the model ---- */

/* Returns the operands of stage i's jobs. *table_used: whether the table's gradient has been written; NULL: in a
 * forward. */
static struct rt_bind bind_stage(struct whole *whole, int i, bool *table_used) {
    const struct known_model *k = whole->k;
    const struct kept *kept = &whole->kept[i], *table = k->sets > k->stages ? &whole->kept[k->stages] : NULL;
    struct rt_bind bind;
    memset(&bind, 0, sizeof bind);
    bind.batch = &whole->batch;
    bind.w = kept->w, bind.dw = kept->dw, bind.frozen = kept->frozen;
    bind.first = true;
    if (table && uses_table(k->m, k->stage[i], 0)) {
        bind.v = table->w, bind.dv = table->dw;
        bind.vfirst = table_used && !*table_used;
        if (table_used)
            *table_used = true;
    }
    bind.at[SP_X] = i > 0 ? whole->kept[i - 1].act : NULL;
    bind.at[SP_Y] = kept->act;
    bind.at[SP_STASH] = kept->stash;
    bind.at[SP_EXT] = whole->extra, bind.at[SP_WORK] = whole->work;
    bind.loss = ends_in_loss(k->stage[i]) ? &whole->loss : NULL;
    return bind;
}

static void run_whole(struct whole *whole, bool backward) {
    const struct known_model *k = whole->k;
    bool table_used = false;
    for (int i = 0; i < k->stages; i++) {
        const struct rt_bind bind = bind_stage(whole, i, NULL);
        host_forward(k->m, k->stage[i], &bind);
    }
    for (int i = k->stages - 1; backward && i >= 0; i--) {
        struct rt_bind bind = bind_stage(whole, i, &table_used);
        bind.at[SP_DY] = i + 1 < k->stages ? whole->dx[(i + 1) % 2] : NULL;
        bind.at[SP_DX] = k->stage[i]->grad > 0 ? whole->dx[i % 2] : NULL;
        host_backward(k->m, k->stage[i], &bind, true, bind.w || bind.v);
    }
}

/* ---- gradients ---- */

/* Compares a parameter's gradient, whose first element is dw. Its error becomes an absolute one. */
static bool compare_gradient(const struct whole *whole, const struct layer_parameter *of, const float *dw,
                             struct known_gradient *out) {
    const struct rt_parameter *p = &of->whole;
    struct published published;
    char name[MOST_NAME + 16];
    float wanted[2];
    if (!published_names(whole->k->m, of, false, &published, whole->why, whole->nwhy))
        return false;
    snprintf(name, sizeof name, "gradient.%s", published.part[0].name);
    if (published.n > 1 || published.part[0].heads > 0)
        return says(whole, "%s: parameter %s has its columns or heads in another order", whole->k->values, name + 9);
    if (!read_known_numbers(whole, name, true, 2, wanted))
        return false;
    const int64_t rows = published.turned ? p->dim[0] : 1, columns = p->count / rows;
    double squares = 0;
    for (int64_t i = 0; i < p->count; i++) {
        squares += (double)dw[i] * (double)dw[i];
        out->sum += known_sign(i % columns * rows + i / columns) * (double)dw[i];
    }
    out->name = strdup(name + 9);
    out->norm = sqrt(squares);
    out->wanted_norm = (double)wanted[0], out->wanted_sum = (double)wanted[1];
    out->error = fmax(fabs(out->norm - out->wanted_norm), fabs(out->sum - out->wanted_sum));
    return out->name || says(whole, "no memory to run the whole model");
}

/* Returns the number of trained parameters. */
static int parameters_in(const struct known_model *k) {
    int n = 0;
    for (int i = 0; i < k->sets; i++)
        for (const struct rt_layer *l = k->stage[i]->layer; l < k->stage[i]->layer + k->stage[i]->nlayers; l++)
            n += l->set == SET_OWN ? parameters_of(k->m, l, shared_table(k->m, l) > 0).n : 0;
    return n;
}

static bool compare_gradients(const struct whole *whole, struct known_result *out) {
    const struct known_model *k = whole->k;
    double most = 0;
    bool ok = true;
    out->gradient = calloc((size_t)parameters_in(k) + 1, sizeof *out->gradient);
    if (!out->gradient)
        return says(whole, "no memory to run the whole model");
    for (int i = 0; ok && i < k->sets; i++) {
        struct parameter_walk w = walk_parameters((struct rt_piece){k->m, k->stage[i], 0, k->stage[i]->weight / 4});
        while (ok && next_parameter(&w)) {
            const bool alone = strcmp(w.all.at[0].name, "position") == 0; /* the tokens are a set of their own */
            const struct layer_parameter of = {w.l, w.i - 1 + alone, *w.p};
            ok = compare_gradient(whole, &of, whole->kept[i].dw + w.begin, &out->gradient[out->n++]);
        }
    }
    for (int i = 0; ok && i < out->n; i++)
        most = fmax(most, out->gradient[i].wanted_norm);
    for (int i = 0; ok && i < out->n; i++)
        out->gradient[i].error /= fmax(fmax(out->gradient[i].wanted_norm, 1e-3 * most), 1e-30);
    return ok;
}

static bool has_gradients(const struct whole *whole) {
    const struct named_list *all = named_all(whole->values);
    for (size_t i = 0; i < all->n; i++)
        if (all->at[i].nname > 9 && strncmp(all->at[i].name, "gradient.", 9) == 0)
            return true;
    return false;
}

bool known_compare(const struct known_model *k, struct known_result *out, char *why, size_t nwhy) {
    struct whole whole = {.k = k, .why = why, .nwhy = nwhy};
    float wanted = 0;
    memset(out, 0, sizeof *out);
    whole.values = named_open(k->values, why, nwhy);
    whole.weights = whole.values ? named_open(k->weights, why, nwhy) : NULL;
    bool ok = whole.weights && take_rooms(&whole) && read_microbatch(&whole) && read_known_weights(&whole) &&
              read_known_numbers(&whole, "loss", true, 1, &wanted);
    if (ok) {
        const bool backward = has_gradients(&whole);
        run_whole(&whole, backward);
        out->loss = (double)whole.loss, out->wanted_loss = (double)wanted;
        ok = !backward || compare_gradients(&whole, out);
    }
    close_whole(&whole);
    return ok;
}

void known_free(struct known_result *out) {
    for (int i = 0; i < out->n; i++)
        free((char *)(uintptr_t)out->gradient[i].name);
    free(out->gradient);
}
