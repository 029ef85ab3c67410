/* Microbatches cut along the sequence: the rows of each slice, and a stage's layers on them.
 *
 * Attention's cost grows along the sequence, since a row reads the keys of all rows before it. So slices with equally
 * many rows take different times, and a pipeline waits for the longest again and again (TeraPipe: Li 2021, section
 * 3.3). A balanced cut makes the cost of the largest slice as small as possible. Given a limit, the fewest slices come
 * from filling each in turn with as many rows as fit. For a slice costs no more if it begins later and ends in the same
 * place. */
#include "cost.h"
#include "layers.h"
#include <assert.h>
#include <math.h>
#include <string.h>

/* Returns the layer on `length` rows of each sequence, from row `first` on. */
static struct rt_layer on_rows(const struct model *m, const struct rt_layer *whole, int first, int length) {
    struct rt_layer l = *whole;
    l.rows = whole->rows / sequence_rows(m) * length;
    l.first = first;
    l.length = length;
    return l;
}

/* Returns the FLOP of a slice, forward and backward, over all layers. */
static double slice_flop(const struct model *m, const struct rt_layer *all, int first, int length) {
    double sum = 0;
    for (int i = 0; i < m->nlayers; i++) {
        struct rt_layer l = on_rows(m, &all[i], first, length);
        struct flop flop = flop_of(&l);
        sum += flop.f + flop.i + flop.w;
    }
    return sum;
}

/* Returns the largest number of rows that cost no more than limit, at least one. It leaves one row for each of the
 * `left` slices that follow. */
static int rows_within(const struct model *m, const struct rt_layer *all, int first, int left, double limit) {
    int least = 1, most = sequence_rows(m) - first - left;
    while (least < most) {
        int mid = least + (most - least + 1) / 2;
        if (slice_flop(m, all, first, mid) <= limit)
            least = mid;
        else
            most = mid - 1;
    }
    return least;
}

/* Sets the rows of n slices, and returns the cost of the largest, or INFINITY if it is above limit. */
static double cut_within(const struct model *m, const struct rt_layer *all, int n, double limit, int *rows) {
    double largest = 0;
    for (int q = 0, first = 0; q < n; first += rows[q++]) {
        rows[q] = q == n - 1 ? sequence_rows(m) - first : rows_within(m, all, first, n - 1 - q, limit);
        largest = fmax(largest, slice_flop(m, all, first, rows[q]));
    }
    return largest <= limit ? largest : INFINITY;
}

/* Cuts the sequence into balanced slices. Bisection approximates the limit; then limits just below the last cost are
 * tried until none works. */
static void cut_balanced(const struct model *m, const struct rt_layer *all, int n, int *rows) {
    double low = 0, high = cut_within(m, all, n, HUGE_VAL, rows), found;
    int *cut = NEW(int, n);
    for (int i = 0; i < 64 && low < high; i++) {
        double mid = low + (high - low) / 2;
        found = cut_within(m, all, n, mid, cut);
        if (isinf(found)) {
            low = mid;
            continue;
        }
        high = found;
        memcpy(rows, cut, sizeof *rows * (size_t)n);
    }
    while (!isinf(found = cut_within(m, all, n, nextafter(high, 0), cut))) {
        high = found;
        memcpy(rows, cut, sizeof *rows * (size_t)n);
    }
}

void cut_sequence(struct costs *costs, const struct rt_layer *all) {
    const struct spec *sp = costs->spec;
    const struct model *m = sp->model;
    for (int i = 0; i < m->nlayers; i++)
        if (row_of(all[i].kind)->routed)
            die("%s: slices = %d, but %s sends the tokens of whole sequences to its experts, which have room for a "
                "number of tokens per sequence: leave 'slices' out",
                sp->file, sp->names.slices, where_layer(m, i));
    for (int i = 0; i < m->nlayers; i++)
        if (rt_kind_of(&all[i])->whole)
            die("%s: slices = %d, but %s works on whole microbatches: leave 'slices' out", sp->file, sp->names.slices,
                where_layer(m, i));
    if (m->by_rows && sp->names.member)
        die("%s: slices = %d, but a team also divides the model by rows, which slices do not support yet: leave one of "
            "them out",
            sp->file, sp->names.slices);
    int n = sp->names.slices, rows = sequence_rows(m), sum = 0;
    const char *what = m->rt.input == INPUT_TOKENS ? "the model's context" : "the model's rows";
    for (int q = 0; sp->slicing.rows && q < n; q++)
        sum += sp->slicing.rows[q];
    if (sp->slicing.rows && sum != rows)
        die("%s: 'slice_cut' adds up to %d rows, but %s = %d", sp->file, sum, what, rows);
    if (rows < n)
        die("%s: slices = %d, but %s = %d: a slice has at least one row", sp->file, n, what, rows);
    costs->rows = sp->slicing.rows;
    if (costs->rows)
        return;
    if (!sp->slicing.balanced && rows % n)
        die("%s: %s = %d is not a multiple of slices = %d; give 'slice_cut' as a list of rows, or as \"balanced\"",
            sp->file, what, rows, n);
    int *own = NEW(int, n);
    for (int q = 0; q < n; q++)
        own[q] = rows / n;
    if (sp->slicing.balanced)
        cut_balanced(m, all, n, own);
    costs->rows = own;
}

static int64_t bytes_of_keys(const struct spec *sp, const struct rt_layer *l) {
    return l->kind == LAYER_attention ? kv_bytes(l, precision_bytes(sp->model->rt.precision)) : 0;
}

struct rt_layer *layers_of_slice(const struct costs *costs, const struct rt_stage *whole, int q) {
    struct rt_layer *layer = NEW(struct rt_layer, whole->nlayers);
    int64_t kv = 0;
    int first = 0;
    for (int i = 0; i < q; i++)
        first += costs->rows[i];
    for (int i = 0; i < whole->nlayers; i++) {
        layer[i] = on_rows(costs->spec->model, &whole->layer[i], first, costs->rows[q]);
        layer[i].kv = kv;
        kv += bytes_of_keys(costs->spec, &layer[i]);
    }
    return layer;
}

/* Sets the bytes of a slice's keys and values, of all layers of the stage one after the other. Their gradients, from
 * later slices, are stored one slice after the other. */
void size_keys(const struct costs *costs, struct stage *slice, int q) {
    int64_t before = 0, sequences = slice->rt.layer[0].rows / costs->rows[q];
    for (int p = 0; p <= q; p++) {
        slice->bytes[K_kv] = 0;
        for (int i = 0; i < slice->rt.nlayers; i++) {
            struct rt_layer l = slice->rt.layer[i];
            l.rows = (int32_t)sequences * costs->rows[p];
            slice->bytes[K_kv] += bytes_of_keys(costs->spec, &l);
        }
        slice->bytes[K_dkv] = before;
        before += slice->bytes[K_kv];
    }
}

void find_attention(struct costs *costs) {
    const struct stage *st = costs->stage;
    int stages = costs->spec->stages;
    bool all = true;
    costs->attends = NEW(bool, stages);
    for (int s = 0; s < stages; s++) {
        for (int i = 0; i < st[s].rt.nlayers; i++)
            costs->attends[s] |= st[s].rt.layer[i].kind == LAYER_attention;
        all &= costs->attends[s];
    }
    costs->attends = all ? NULL : costs->attends;
}
