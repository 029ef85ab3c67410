/* The layers of team_attention_host.c on a device. */
#include "cuda_math.cuh"
#include "team_attention.h"

enum { THREADS = 256 };

/* Copies a tensor's elements into pieces, or back. A thread copies V columns of a row of piece number blockIdx.y. */
template <typename T, int V>
static __global__ void move(T *tensor, T *pieces, const __grid_constant__ struct pieces p, bool into_pieces) {
    int across = p.columns / V, i = (int)(blockIdx.x * THREADS + threadIdx.x), row = i / across, j = i % across * V;
    if (row >= p.rows)
        return;
    T *there = tensor + piece_place(&p, (int)blockIdx.y, row, j).at;
    T *here = pieces + blockIdx.y * p.apart + (int64_t)row * p.columns + j;
    store(into_pieces ? here : there, load<V>(into_pieces ? there : here));
}

/* Returns whether V columns, from any that V divides on, are contiguous in the tensor and at a multiple of V elements.
 */
static bool in_packs(const struct pieces *p, int V, int64_t off) {
    bool fine = p->columns % V == 0 && p->stride % V == 0 && off % V == 0;
    for (int g = 0; g < 3; g++)
        fine = fine && p->group[g] / p->members % V == 0;
    return fine;
}

/* The tensor begins `off` elements after x. */
template <typename T>
static void move_pieces(const struct cuda_call *c, const struct pieces *p, struct slot x, int64_t off, int space) {
    T *tensor = cuda_at<T>(c, x) + off, *pieces = (T *)c->at->at[space];
    bool wide = in_packs(p, WIDE<T>, off);
    dim3 grid(blocks_for((int64_t)p->rows * p->columns / (wide ? WIDE<T> : 1), THREADS), (unsigned)p->members);
    if (wide)
        LAUNCH((move<T, WIDE<T>>), grid, THREADS, 0, c->stream, tensor, pieces, *p, space == SP_GIVE);
    else
        LAUNCH((move<T, 1>), grid, THREADS, 0, c->stream, tensor, pieces, *p, space == SP_GIVE);
}
static void move_either(const struct cuda_call *c, const struct pieces *p, struct slot x, int64_t off, int space) {
    (c->m->precision == BF16 ? move_pieces<__nv_bfloat16> : move_pieces<float>)(c, p, x, off, space);
}

/* ---- by rows ---- */

void cuda_attend_to_team(const struct cuda_call *c, bool backward) {
    struct segment segment[2 * MOST_BY_ROWS];
    for (int second = 1; second >= 0; second--) {
        struct attend a = attend_to_team(c->l, c->at, precision_bytes(c->m->precision), backward, second == 1, segment);
        (backward ? cuda_attend_backward : cuda_attend)(&a, c->m->precision, c->stream);
    }
}

static void gather_kv_give(const struct cuda_call *c) {
    const struct rt_layer *l = c->l;
    struct pieces p = keys_of_member(l, l->in);
    cuda_rotate(c, l->x, false);
    move_either(c, &p, l->x, l->in - p.columns, SP_GIVE);
}
static void gather_kv_get_back(const struct cuda_call *c) {
    const struct rt_layer *l = c->l;
    struct pieces p = keys_of_member(l, l->in);
    move_either(c, &p, l->dx, l->in - p.columns, SP_GOT);
    cuda_rotate(c, l->dx, true);
}

/* Gives keys and values, which are still in the x of the attention, the layer before. */
static void again_kv_give_back(const struct cuda_call *c) {
    const struct rt_layer *attention = c->l - 1;
    struct pieces p = keys_of_member(c->l, attention->in);
    move_either(c, &p, attention->x, attention->out, SP_GIVE);
}

/* ---- by heads ---- */

static void move_rows(const struct cuda_call *c, struct slot x, int space) {
    struct pieces p = pieces_of_rows(c->l, precision_bytes(c->m->precision));
    move_either(c, &p, x, 0, space);
}
static void move_heads(const struct cuda_call *c, struct slot x, int space) {
    struct pieces p = pieces_of_heads(c->l, precision_bytes(c->m->precision));
    move_either(c, &p, x, 0, space);
}

static void to_heads_give(const struct cuda_call *c) { move_rows(c, c->l->x, SP_GIVE); }
static void to_heads_get(const struct cuda_call *c) { move_heads(c, c->l->y, SP_GOT); }
static void to_heads_give_back(const struct cuda_call *c) { move_heads(c, c->l->dy, SP_GIVE); }
static void to_heads_get_back(const struct cuda_call *c) { move_rows(c, c->l->dx, SP_GOT); }
static void to_rows_give(const struct cuda_call *c) { move_heads(c, c->l->x, SP_GIVE); }
static void to_rows_get(const struct cuda_call *c) { move_rows(c, c->l->y, SP_GOT); }
static void to_rows_give_back(const struct cuda_call *c) { move_rows(c, c->l->dy, SP_GIVE); }
static void to_rows_get_back(const struct cuda_call *c) { move_heads(c, c->l->dx, SP_GOT); }

const struct cuda_halves cuda_gather_kv_halves = {gather_kv_give, NULL, NULL, gather_kv_get_back};
const struct cuda_halves cuda_again_kv_halves = {NULL, NULL, again_kv_give_back, NULL};
const struct cuda_halves cuda_to_heads_halves = {to_heads_give, to_heads_get, to_heads_give_back, to_heads_get_back};
const struct cuda_halves cuda_to_rows_halves = {to_rows_give, to_rows_get, to_rows_give_back, to_rows_get_back};
const struct cuda_layer cuda_gather_kv = {NULL, NULL, NULL};
const struct cuda_layer cuda_again_kv = {NULL, NULL, NULL};
const struct cuda_layer cuda_to_heads = {NULL, NULL, NULL};
const struct cuda_layer cuda_to_rows = {NULL, NULL, NULL};
