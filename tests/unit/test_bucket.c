/* Cuts of backwards for gradients that travel in pieces, judged byte by byte on random stages. */
#include "random_spec.h"
#include <criterion/criterion.h>

enum { LAYERS = 12, BYTE = 256 }; /* parameters are aligned; gradients are fp32 */

/* Returns a stage of layers with random numbers of parameters, some with none, and more bytes after the last one. */
static struct stage *draw_layers(struct spec *sp, int pieces) {
    struct stage *st = NEW(struct stage, 1);
    struct rt_layer *layer = NEW(struct rt_layer, LAYERS);
    int n = 1 + below(LAYERS);
    int64_t at = 0;
    for (int i = 0; i < n; i++) {
        layer[i] = (struct rt_layer){
            .kind = LAYER_linear, .config.linear.bias = true, .rows = 1, .in = 1, .out = 1, .param = at};
        layer[i].nparam = below(3) ? BYTE / 4 * below(9) : 0;
        at += 4 * layer[i].nparam;
    }
    int64_t unit = (int64_t)BYTE * pieces;
    st->rt = (struct rt_stage){.layer = layer, .nlayers = n, .weight = at};
    st->bytes[K_wgrad] = st->bytes[K_weight] = (at / unit + 1) * unit;
    st->pieces = pieces;
    st->parts = 1;
    sp->model = NEW(struct model, 1);
    return st;
}

Test(bucket, parts_touch_what_they_list) {
    int cut_in_parts = 0, shared = 0;
    for (int seed = 0; seed < 2000; seed++) {
        random_state = (uint64_t)seed;
        struct spec *sp = empty_spec(1, 1, 1);
        int pieces = 1 + below(8);
        struct stage *st = draw_layers(sp, pieces);
        const struct rt_layer *layer = st->rt.layer;
        cut_backwards(sp, st);
        cr_assert(st->parts >= 1 && (st->parts == 1 || (st->cut[0] == st->rt.nlayers && st->cut[st->parts] == 0)));
        cut_in_parts += st->parts > 1;
        int64_t piece = st->bytes[K_wgrad] / pieces;
        for (int k = 0; pieces > 1 && k < pieces; k++) {
            int listed = 0, last = -1; /* listed: number of parts that list it; last: last part with bytes of it */
            for (int p = 0; p < st->parts; p++) {
                cr_assert_lt(st->cut[p + 1], st->cut[p], "seed %d: a part without layers", seed);
                bool lists = k <= st->touched[OP_B][p].high && k >= st->touched[OP_B][p].low, has = false;
                for (int i = st->cut[p + 1]; i < st->cut[p]; i++)
                    has |= layer[i].nparam > 0 && layer[i].param < (k + 1) * piece &&
                           layer[i].param + 4 * layer[i].nparam > k * piece;
                cr_assert(lists || !has, "seed %d: part %d has bytes of piece %d and does not list it", seed, p, k);
                listed += lists;
                last = has ? p : last;
                if (p > 0 && lists && k <= st->touched[OP_B][p - 1].high && k >= st->touched[OP_B][p - 1].low)
                    shared++;
            }
            cr_assert(listed > 0, "seed %d: nobody lists piece %d", seed, k);
            /* The last part that lists a piece completes it, neither earlier nor later. */
            for (int p = 0; last >= 0 && p < st->parts; p++)
                cr_assert(p <= last || k > st->touched[OP_B][p].high || k < st->touched[OP_B][p].low ||
                              p + 1 == st->parts,
                          "seed %d: piece %d waits for part %d, and is complete with %d", seed, k, p, last);
        }
        free_all();
    }
    cr_assert(cut_in_parts > 500 && shared > 500, "%d stages in parts, %d pieces shared: too few", cut_in_parts,
              shared);
}

/* A bucket is the most bytes of a piece; a piece belongs to one owner. */
Test(bucket, pieces_are_no_larger_than_the_bucket) {
    for (int seed = 0; seed < 500; seed++) {
        random_state = (uint64_t)seed;
        int W = 1 + below(4), size = 1 + below(W);
        struct spec *sp = empty_spec(W, 1, W);
        int32_t *rank = NEW(int32_t, W);
        for (int b = 0; b < W; b++) {
            rank[b] = b;
            add_job(sp, 0, b, OP_F, 0, b);
            add_job(sp, 0, b, OP_B, 0, b);
        }
        struct stage *st = draw_layers(sp, 1);
        struct homes homes = {.lists = W / size, .size = size, .zero = below(3), .rank = rank};
        int owners = homes.size * shares_of(&homes);
        costs_of(sp)->homes = &homes;
        costs_of(sp)->stage = st;
        st->bytes[K_wgrad] = (int64_t)owners * 4096 * (1 + below(100));
        sp->limits.bucket = (int64_t[]){4096 + below(300000)};
        choose_buckets(costs_of(sp));
        bool fits = st->bytes[K_wgrad] <= *sp->limits.bucket, alone = W == 1;
        cr_assert(st->pieces == 1 || st->pieces % owners == 0, "seed %d: %d pieces of %d owners", seed, st->pieces,
                  owners);
        cr_assert(fits || alone || st->bytes[K_wgrad] / st->pieces <= *sp->limits.bucket || owners == st->pieces,
                  "seed %d: pieces of %lld bytes, bucket %lld", seed, (long long)(st->bytes[K_wgrad] / st->pieces),
                  (long long)*sp->limits.bucket);
        cr_assert(!fits || st->pieces == 1, "seed %d: it fits into one", seed);
        free_all();
    }
}
