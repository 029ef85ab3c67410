/* Attention whose rows or heads a team divides (team_attention.h), and the layers around it, which exchange.
 *
 * By rows: gather_kv rotates queries and keys, and gathers all keys and values on all members, where attention reads
 * them. In the backward, again_kv gathers them again. Attention leaves the gradients of all keys and values for
 * gather_kv's exchange, which sums each member's own, and gather_kv rotates these back.
 *
 * By heads: to_heads and to_rows exchange, so that attention has all rows of some heads. */
#include "host.h"
#include "team_attention.h"
#include <string.h>

/* ---- pieces ---- */

/* Moves a tensor's elements into the space that is given, or out of the space that was received. */
static void move_pieces(const struct host_call *c, const struct pieces *p, float *tensor, int space) {
    float *piece = (float *)(void *)c->at->at[space];
    bool into_piece = space == SP_GIVE;
    for (int i = 0; i < p->members; i++, piece += p->apart)
        for (int r = 0; r < p->rows; r++)
            for (int j = 0, n; j < p->columns; j += n) {
                struct place place = piece_place(p, i, r, j);
                float *there = tensor + place.at, *here = piece + (int64_t)r * p->columns + j;
                n = place.n;
                memcpy(into_piece ? here : there, into_piece ? there : here, (size_t)n * sizeof *here);
            }
}

/* ---- by rows ---- */

void host_attend_to_team(const struct host_call *c, bool backward) {
    struct segment segment[2 * MOST_BY_ROWS];
    for (int second = 1; second >= 0; second--) {
        struct attend a = attend_to_team(c->l, c->at, sizeof(float), backward, second, segment);
        (backward ? host_attend_backward : host_attend)(&a);
    }
}

static void gather_kv_give(const struct host_call *c) {
    const struct rt_layer *l = c->l;
    struct pieces p = keys_of_member(l, l->in);
    host_rotate(l, host_at(c, l->x), false);
    move_pieces(c, &p, host_at(c, l->x) + l->in - p.columns, SP_GIVE);
}
static void gather_kv_get_back(const struct host_call *c) {
    const struct rt_layer *l = c->l;
    struct pieces p = keys_of_member(l, l->in);
    move_pieces(c, &p, host_at(c, l->dx) + l->in - p.columns, SP_GOT);
    host_rotate(l, host_at(c, l->dx), true);
}

/* Gives keys and values, which are still in the x of the attention, the layer before. */
static void again_kv_give_back(const struct host_call *c) {
    const struct rt_layer *attention = c->l - 1;
    struct pieces p = keys_of_member(c->l, attention->in);
    move_pieces(c, &p, host_at(c, attention->x) + attention->out, SP_GIVE);
}

/* ---- by heads ---- */

static void move_rows(const struct host_call *c, struct slot x, int space) {
    struct pieces p = pieces_of_rows(c->l, sizeof(float));
    move_pieces(c, &p, host_at(c, x), space);
}
static void move_heads(const struct host_call *c, struct slot x, int space) {
    struct pieces p = pieces_of_heads(c->l, sizeof(float));
    move_pieces(c, &p, host_at(c, x), space);
}

static void to_heads_give(const struct host_call *c) { move_rows(c, c->l->x, SP_GIVE); }
static void to_heads_get(const struct host_call *c) { move_heads(c, c->l->y, SP_GOT); }
static void to_heads_give_back(const struct host_call *c) { move_heads(c, c->l->dy, SP_GIVE); }
static void to_heads_get_back(const struct host_call *c) { move_rows(c, c->l->dx, SP_GOT); }
static void to_rows_give(const struct host_call *c) { move_heads(c, c->l->x, SP_GIVE); }
static void to_rows_get(const struct host_call *c) { move_rows(c, c->l->y, SP_GOT); }
static void to_rows_give_back(const struct host_call *c) { move_rows(c, c->l->dy, SP_GIVE); }
static void to_rows_get_back(const struct host_call *c) { move_heads(c, c->l->dx, SP_GOT); }

const struct host_halves host_gather_kv_halves = {gather_kv_give, NULL, NULL, gather_kv_get_back};
const struct host_halves host_again_kv_halves = {NULL, NULL, again_kv_give_back, NULL};
const struct host_halves host_to_heads_halves = {to_heads_give, to_heads_get, to_heads_give_back, to_heads_get_back};
const struct host_halves host_to_rows_halves = {to_rows_give, to_rows_get, to_rows_give_back, to_rows_get_back};
const struct host_layer host_gather_kv = {NULL, NULL, NULL};
const struct host_layer host_again_kv = {NULL, NULL, NULL};
const struct host_layer host_to_heads = {NULL, NULL, NULL};
const struct host_layer host_to_rows = {NULL, NULL, NULL};
