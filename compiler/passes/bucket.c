/* Chooses the number of messages in which a stage's gradient travels, and the parts in which its last backward runs.
 *
 * Layers' gradients become available from the last layer to the first. If the gradient is cut into n equal pieces, its
 * top pieces can travel while the layers below are still computed. More pieces hide more, but each costs a latency.
 * `bucket` sets the largest piece in bytes. By default, the number of pieces is chosen so that the last piece arrives
 * earliest, assuming that the stage's last backward and its messages run alone.
 *
 * Pieces are equal, so that each belongs to one of the ranks that share updates. A layer's boundary may fall inside a
 * piece, which then belongs to both parts. */
#include "layers.h"
#include "passes.h"
#include <math.h>

enum { LEAST_PIECE = 4096 };

/* Returns a rank other than the stage's only home that computes its backward; -1: there is none. */
static int elsewhere(const struct costs *costs, int s) {
    const struct spec *sp = costs->spec;
    int home = costs->homes[s].rank[0];
    for (int b = 0; b < sp->batches; b++)
        for (int d = OP_B; d <= OP_W; d++) {
            int32_t j = job_at(sp, s, b, d);
            if (j >= 0 && sp->job[j].rank != home)
                return sp->job[j].rank;
        }
    return -1;
}

/* Returns the time of a message that carries one of n pieces; with n = 1, the whole gradient. */
static double message_time(const struct costs *costs, int s, int64_t bytes, int n) {
    const struct spec *sp = costs->spec;
    const struct homes *homes = &costs->homes[s];
    int64_t piece = bytes / n;
    if (homes->size == 1 && homes->lists == 1)
        return link_time(sp, elsewhere(costs, s), homes->rank[0], (double)piece);
    bool inside = homes->size > 1;
    int32_t *rank = NEW(int32_t, homes->lists);
    for (int l = 0; l < homes->lists; l++)
        rank[l] = homes->rank[l * homes->size];
    struct group g = {inside ? homes->size : homes->lists, inside ? homes->rank : rank};
    int op = n > 1 && (inside || homes->zero) ? OP_REDUCE : inside || homes->zero ? OP_REDUCE_SCATTER : OP_ALL_REDUCE;
    return collective_time(sp, op, cheaper_algorithm(sp, op, &g, piece), &g, piece);
}

static double backward_time(const struct spec *sp, const struct rt_layer *l) {
    struct flop flop = flop_of(l);
    return ((has_input_gradient(l) ? flop.i : 0) + flop.w) / (sp->machine.flops > 0 ? sp->machine.flops : 1);
}

/* Returns the byte of the gradient at which a layer's parameters begin. */
static int64_t gradient_at(const struct spec *sp, const struct rt_layer *l) {
    return l->param / precision_bytes(sp->model->rt.precision) * 4;
}

/* Returns the time at which the last of n pieces arrives. */
static double arrival(const struct costs *costs, const struct stage *st, int s, int64_t bytes, int n) {
    const struct rt_layer *layer = st->rt.layer;
    double computed = 0, sent = 0, took = message_time(costs, s, bytes, n);
    int64_t left = n, piece = bytes / n;
    for (int i = st->rt.nlayers - 1; i >= 0; i--) {
        computed += backward_time(costs->spec, &layer[i]);
        int64_t begin = i == 0 ? 0 : own_parameters(&layer[i]) > 0 ? gradient_at(costs->spec, &layer[i]) : left * piece;
        for (; left > 0 && (left - 1) * piece >= begin; left--)
            sent = fmax(sent, computed) + took;
    }
    return sent;
}

/* Returns the largest number of pieces of `bytes` that all have at least `least` bytes. */
static int64_t pieces_of_size(int64_t bytes, int64_t least, int owners) {
    int64_t each = bytes / owners, n = least > 0 ? (each + least - 1) / least : 1, most = each / LEAST_PIECE;
    most = most < MOST_PIECE / owners ? most : MOST_PIECE / owners;
    return n < most ? n : most;
}

static int64_t choose_pieces(const struct costs *costs, const struct stage *st, int s) {
    const struct spec *sp = costs->spec;
    const struct homes *homes = &costs->homes[s];
    int owners = homes->size * shares_of(homes);
    int64_t bytes = st->bytes[K_wgrad], bucket = sp->limits.bucket ? sp->limits.bucket[s] : 0, best = 1;
    if (homes->size * homes->lists == 1 && elsewhere(costs, s) < 0)
        return 1; /* nothing travels */
    if (bucket > 0)
        return bytes > bucket ? fmax(owners * pieces_of_size(bytes, bucket, owners), 1) : 1;
    if (!sp->machine.link || sp->machine.flops <= 0 || sp->machine.serial) /* serial: nothing moves beside a job */
        return 1;
    double first = arrival(costs, st, s, bytes, 1);
    for (int64_t n = 1; n <= 64 && pieces_of_size(bytes, bytes / owners / n, owners) >= n; n++) {
        double t = n * owners > 1 ? arrival(costs, st, s, bytes, (int)(n * owners)) : first;
        if (t < first * (1 - 1e-9)) {
            first = t;
            best = n * owners;
        }
    }
    return best;
}

void choose_buckets(const struct costs *costs) {
    struct stage *st = costs->stage;
    const struct spec *sp = costs->spec;
    for (int s = 0; s < sp->stages; s++) {
        st[s].pieces = st[s].parts = 1;
        if (sp->model && !sp->updates.every && !is_costs(sp) && !is_bare(costs, s))
            st[s].pieces = (int)choose_pieces(costs, &st[s], s);
    }
    for (int set = sp->stages; set < sp->stages + sp->names.sets; set++)
        st[set].pieces = st[set].parts = 1;
}

/* Sets the gradient ranges of the parts of a backward that stops for a team's exchanges; it then stops for nothing
 * else. A part lists the pieces that its layers contribute to, if any. */
static void cut_at_stops(const struct spec *sp, struct stage *st, int d) {
    int n = st->nstops[d];
    struct touched *touched = NEW(struct touched, n + 1);
    struct byte_range *range = NEW(struct byte_range, n + 1);
    int64_t piece = st->bytes[K_wgrad] / st->pieces, end = st->bytes[K_wgrad];
    st->touched[d] = touched;
    st->range[d] = range;
    int32_t high = st->pieces - 1, from, to = st->rt.nlayers;
    for (int p = 0; p <= n; p++, to = from) {
        from = p < n ? st->stop[d][p].weights : 0;
        int first = -1; /* the first layer with parameters */
        for (int i = to - 1; i >= from; i--)
            first = own_parameters(&st->rt.layer[i]) > 0 ? i : first;
        touched[p] = (struct touched){high + 1, high};
        if (p < n && first < 0)
            continue;
        int64_t begin = p < n ? gradient_at(sp, &st->rt.layer[first]) : 0;
        touched[p].low = piece > 0 ? (int32_t)(begin / piece) : 0;
        high = piece > 0 && begin % piece == 0 && p < n ? touched[p].low - 1 : touched[p].low;
        range[p] = (struct byte_range){begin, end};
        end = begin;
    }
}

void cut_backwards(const struct spec *sp, struct stage *st) {
    for (int s = 0; s < sp->stages; s++) {
        if (st[s].nstops[OP_B] > 0) {
            cut_at_stops(sp, &st[s], OP_B);
            cut_at_stops(sp, &st[s], OP_W);
            continue;
        }
        const struct rt_layer *layer = st[s].rt.layer;
        int64_t piece = st[s].bytes[K_wgrad] / st[s].pieces, end = st[s].bytes[K_wgrad];
        if (st[s].pieces < 2)
            continue;
        int *cut = NEW(int, st[s].rt.nlayers + 1), n = 0;
        struct touched *touched = NEW(struct touched, st[s].rt.nlayers);
        struct byte_range *range = NEW(struct byte_range, st[s].rt.nlayers);
        int32_t high = st[s].pieces - 1, complete = st[s].pieces;
        cut[0] = st[s].rt.nlayers;
        for (int i = st[s].rt.nlayers - 1; i >= 0; i--) {
            if (i > 0 && own_parameters(&layer[i]) == 0)
                continue;
            int64_t begin = i > 0 ? gradient_at(sp, &layer[i]) : 0;
            int32_t low = (int32_t)(begin / piece), left = (int32_t)((begin + piece - 1) / piece);
            if (i > 0 && (left == complete || n + 1 == MOST_PARTS))
                continue; /* completes no further piece */
            range[n] = (struct byte_range){begin, end};
            touched[n++] = (struct touched){low, high};
            cut[n] = i;
            end = begin;
            complete = left;
            high = left == low ? low - 1 : low;
        }
        st[s].parts = n;
        st[s].cut = cut;
        st[s].touched[OP_B] = st[s].touched[OP_W] = touched;
        st[s].range[OP_B] = st[s].range[OP_W] = range;
    }
}
