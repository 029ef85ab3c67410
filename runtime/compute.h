/* What a job computes: a stage's layers forward and backward, its update and its initial weights. layers_host.c is the
 * reference implementation, fp32, with one BLAS thread per rank. */
#ifndef PIANOLA_COMPUTE_H
#define PIANOLA_COMPUTE_H
#include "parameters.h"
#include "rt_program.h"

/* Alignment of a layer's parameters within its stage's weights, in bytes: a vector register, a cache line. */
enum { PARAM_ALIGN = 64 };

/* The most slices of a microbatch. */
enum { MOST_SLICES = 1024 };

/* The most columns of an attention head that the CUDA layers support. */
enum { CUDA_HEAD = 128 };

/* The most slices of a microbatch that attend to each other there. */
enum { CUDA_SLICES = 64 };

/* Elements of the shared token table, or of a member's part of it, that the layer uses: an unembedding, or an embedding
 * whose only own parameters are the positions. 0: it uses none. */
static inline int64_t shared_table(const struct rt_model *m, const struct rt_layer *l) {
    if (l->kind == LAYER_unembedding)
        return (int64_t)l->out * l->in;
    bool positions = l->kind == LAYER_embedding && l->nparam == (int64_t)l->context * l->out;
    return positions ? share_of(l, SPLIT_ROWS, m->vocab) * l->out : 0;
}
static inline bool ends_in_loss(const struct rt_stage *s) {
    int kind = s->nlayers > 0 ? s->layer[s->nlayers - 1].kind : NLAYERS;
    return kind == LAYER_cross_entropy || kind == LAYER_mse;
}
/* A team's members all compute the loss, and the first one's counts; or each computes that of its rows, and their sum
 * does. */
static inline bool sums_loss(const struct rt_stage *s) {
    return ends_in_loss(s) && s->layer[s->nlayers - 1].part.members > 0;
}
static inline bool tells_loss(const struct rt_stage *s) { return ends_in_loss(s) && (s->place == 0 || sums_loss(s)); }
/* What its routes send is this member's to count: each has rows of its own, or it is the first of those that all have
 * them all. */
static inline bool tells_routed(const struct rt_stage *s) {
    bool by_rows = false;
    for (int l = 0; l < s->nlayers; l++)
        by_rows |= s->layer[l].kind == LAYER_route && s->layer[l].part.members > 0;
    return by_rows || s->place == 0;
}
/* Does a layer of the stage, from number `from` on, use it? Then a backward has had the table's gradient before it
 * comes to those in front of that one. */
static inline bool uses_table(const struct rt_model *m, const struct rt_stage *s, int from) {
    for (int l = from; l < s->nlayers; l++)
        if (shared_table(m, &s->layer[l]) > 0)
            return true;
    return false;
}

/* One microbatch as the first and the last stage read it. */
struct rt_batch {
    const int32_t *token, *target; /* INPUT_TOKENS: rows each */
    const float *x, *y;            /* INPUT_INTEGERS: rows x features each */
};

/* The operands of a stage's job: the base address of each space, and the stage's weights and gradient. */
/* What routes have sent to experts: pairs of a token and an expert, and how many of these had no room there. */
struct rt_routed {
    int64_t pairs, dropped;
};

struct rt_bind {
    char *at[SP_GOT + 1]; /* indexed by enum space; NULL where the job has no such operand */
    float *w, *dw;
    float *v, *dv; /* the token table that embedding and unembedding share: vocab x width, and its gradient */
    float *u, *du; /* what the members of the stage's team share, and its gradient */
    bool first, vfirst, ufirst; /* dw, dv, du is written rather than added to */
    char *arena;
    const struct rt_buffer *const *more; /* further tensors to be added to x or to dy, ended by NULL; NULL: none */
    /* Of a slice: the stage's layers on each of the slices; the keys and values of those before it, and in a backward
     * its own, in the arena; its own, which a forward writes (NULL: it does not); and the gradients with respect
     * to those of all slices up to it, from those behind it (NULL: it is the last), and of those before it. */
    const struct rt_stage *slice;
    const struct rt_buffer *const *kv;
    char *own, *dkv, *dpast;
    const struct rt_batch *batch;
    float *loss;                /* the last layer's forward writes the microbatch's mean loss here */
    struct rt_routed *routed;   /* a route's forward adds to it; NULL: nobody counts */
    const struct rt_draw *draw; /* NULL: nothing is drawn, as in validations */
};
/* What a job draws random numbers by: the training's seed; the step, from 0; and the microbatch. On a device, where a
 * graph runs again, the step is counted there instead (struct cuda_number), and in a repeated period the microbatch of
 * its first repetition is given, and how many later it is in each next one. */
struct rt_draw {
    uint64_t seed;
    int64_t step;
    int32_t batch, period;
    const int64_t *counted;
};
/* The set that has the layer's parameters; its gradient, and whether that is written rather than added to. */
static inline float *layer_weights(const struct rt_bind *at, const struct rt_layer *l) {
    return l->set == SET_SHARED ? at->u : at->w;
}
static inline float *layer_gradient(const struct rt_bind *at, const struct rt_layer *l) {
    return l->set == SET_SHARED ? at->du : at->dw;
}
static inline bool writes_gradient(const struct rt_bind *at, const struct rt_layer *l) {
    return l->set == SET_SHARED ? at->ufirst : at->first;
}

/* A part of a job is of the layers [from, to). Parts that follow each other, a forward's from the first layer to the
 * last and a backward's from the last to the first, with the same operands and nothing between that touches them, make
 * what the whole makes, to the bit.
 *
 * A team exchanges what it has between two parts, in the middle of a layer, which both of them have: a part with
 * SP_GIVE ends there, and puts the layer's x (in a backward, its dy) into it, if that does not lie there; the next
 * part, with SP_GOT, begins there, and the layer's y (dx) is what lies in it. While something is exchanged, a backward
 * may run a part that has only the weight gradient of the layer in front of it: see enum sweep_kind. */
void host_forward_part(const struct rt_model *m, const struct rt_stage *s, const struct rt_bind *at, int from, int to);
static inline void host_forward(const struct rt_model *m, const struct rt_stage *s, const struct rt_bind *at) {
    host_forward_part(m, s, at, 0, s->nlayers);
}
/* input: dx from dy (and what the weight gradient needs, into SP_EXT); weight: dw from the stash and SP_EXT.
 * Both: a full backward. Where one update ends the step, gradients are of the mean over its microbatches, scaled by
 * 1 / batches at the loss; where stages have several, each microbatch's is whole, and the update scales their sum. */
struct rt_sweep {
    bool input, weight;
    enum sweep_kind kind;
    int from, to; /* the part's layers */
};
void host_backward_part(const struct rt_model *m, const struct rt_stage *s, const struct rt_bind *at,
                        struct rt_sweep sweep);
static inline void host_backward(const struct rt_model *m, const struct rt_stage *s, const struct rt_bind *at,
                                 bool input, bool weight) {
    struct rt_sweep all = {input, weight, SWEEP_ALL, 0, s->nlayers};
    host_backward_part(m, s, at, all);
}
void host_add(float *dst, const float *src, int64_t n, bool first);
/* dst, n floats, += each of at->more */
void host_add_more(const struct rt_bind *at, char *dst, int64_t n);
/* What an update multiplies the sum of its microbatches' gradients by. */
static inline float update_scale(const struct rt_model *m, const struct rt_stage *s) {
    return s->update > 0 ? 1.0f / (float)(s->update / pieces_of_batch(m)) : 1.0f;
}
/* A piece of a stage's own parameters, such as those that a home updates: n elements from `first` on. */
struct rt_piece {
    const struct rt_model *m;
    const struct rt_stage *s;
    int64_t first, n;
};
/* An update of a piece, where w, dw and opt begin. dw is scaled by update_scale as it is read, and clipped to the norm,
 * if there is one. An update ahead of its norm has the norm of the step before. */
struct rt_update {
    struct rt_piece piece;
    void *w; /* of the model's precision */
    const float *dw;
    float *opt, *work; /* work: the most that matrix_work says of any parameter */
    const uint64_t *norm;
    int64_t number, of; /* from 1, among all that the stage has in the run; devices count it themselves */
    bool settles;       /* there is no other update: layers/post_validation.h */
};
/* Returns false if the update has left a number that is not finite. */
bool host_update(const struct rt_update *u);
/* Likewise, but makes the last update again where that has to be clipped: layers/post_validation.h. */
bool host_update_ahead(const struct rt_update *u);
/* norm, NORM_WORDS words, = or += the squares of such a gradient, of each parameter that counts here (layers/clip.h).
 */
void host_norm(struct rt_piece piece, const float *dw, uint64_t *norm, bool writes);
void host_add_norm(uint64_t *dst, const uint64_t *src);
/* Initial weights, fp32 whatever the model's precision, weight_count of them: a function of seed, layer and parameter
 * only, so every cut and every rank agrees. */
void host_init(const struct rt_model *m, const struct rt_stage *s, float *w, uint64_t seed);
/* An attention's rope: how many turns it makes from one position to the next with pair i of a head's columns. */
double host_rope(const struct rt_layer *l, int i);
/* Picks the kernels of matrix products for this processor, and one thread; returns what they are, such as "libxsmm for
 * skx". Call before any thread starts. */
const char *host_blas(void);
#endif
