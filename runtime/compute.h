/* Computations of a job: a stage's layers forward and backward, its update and its initial weights. layers_host.c is
 * the reference implementation, fp32, with one BLAS thread per rank. */
#ifndef PIANOLA_COMPUTE_H
#define PIANOLA_COMPUTE_H
#include "kinds.h"
#include "rt_program.h"

/* Alignment of a layer's parameters within its stage's weights, in bytes: a vector register, a cache line. */
enum { PARAM_ALIGN = 64 };

/* The most slices of a microbatch. */
enum { MOST_SLICES = 1024 };

/* The most columns of an attention head that the CUDA layers support. */
enum { CUDA_HEAD = 128 };

/* The most slices of a microbatch that the CUDA layers let attend to each other. */
enum { CUDA_SLICES = 64 };

/* Returns the elements of the shared token table, or of a member's part of it, that the layer uses; 0 if it uses none.
 * An unembedding uses the table, and so does an embedding whose only parameters of its own are the positions. A frozen
 * table is not shared: each of the two layers has a copy. */
static inline int64_t shared_table(const struct rt_model *m, const struct rt_layer *l) {
    if (l->set == SET_FROZEN)
        return 0;
    if (l->kind == LAYER_unembedding)
        return (int64_t)l->out * l->in;
    bool positions = l->kind == LAYER_embedding && l->nparam == (int64_t)l->context * l->out;
    return positions ? share_of(l, SPLIT_ROWS, m->vocab) * l->out : 0;
}
static inline bool ends_in_loss(const struct rt_stage *s) {
    int kind = s->nlayers > 0 ? s->layer[s->nlayers - 1].kind : NLAYERS;
    return kind == LAYER_cross_entropy || kind == LAYER_mse || kind == LAYER_mean_loss;
}
/* Returns whether a stage's loss is the sum over the members of its team, each of which computes the loss of its rows.
 * Otherwise every member computes the whole loss, and only the first member's counts. */
static inline bool sums_loss(const struct rt_stage *s) {
    return ends_in_loss(s) && s->layer[s->nlayers - 1].part.members > 0;
}
static inline bool tells_loss(const struct rt_stage *s) { return ends_in_loss(s) && (s->place == 0 || sums_loss(s)); }
/* Returns whether this member counts the tokens that its routes send: true if each member has its own rows, or if all
 * have the same rows and this is the first member. */
static inline bool tells_routed(const struct rt_stage *s) {
    bool by_rows = false;
    for (int l = 0; l < s->nlayers; l++)
        by_rows |= s->layer[l].kind == LAYER_route && s->layer[l].part.members > 0;
    return by_rows || s->place == 0;
}
/* Returns whether a layer of the stage, from number `from` on, uses the table. If so, the table's gradient has been
 * written before a backward reaches the layers before `from`. */
static inline bool uses_table(const struct rt_model *m, const struct rt_stage *s, int from) {
    for (int l = from; l < s->nlayers; l++)
        if (shared_table(m, &s->layer[l]) > 0)
            return true;
    return false;
}

/* The part of a microbatch that the first and the last stages read. */
struct rt_batch {
    const int32_t *token, *target; /* INPUT_TOKENS: rows each */
    const float *x, *y;            /* INPUT_INTEGERS: rows x features each */
    const char *inputs;            /* the model's inputs of units, one after the other; NULL: none */
    /* With labels: the targets over which the loss is a mean, of the whole step or, if updates are within it, of the
     * microbatch. NULL: all count. */
    const int64_t *counted;
};

/* Tokens that routes have sent to experts: pairs of a token and an expert, and how many of these found no room. */
struct rt_routed {
    int64_t pairs, dropped;
};

/* The operands of a stage's job: the base address of each space, and the stage's weights and gradient. */
struct rt_bind {
    char *at[SP_GOT + 1]; /* indexed by enum space; NULL where the job has no such operand */
    float *w, *dw;
    float *v, *dv; /* the token table that embedding and unembedding share: vocab x width, and its gradient */
    float *frozen; /* the stage's frozen parameters */
    float *u, *du; /* weights that the members of the stage's team share, and their gradient */
    bool first, vfirst, ufirst; /* whether dw, dv, du is written rather than added to */
    char *arena;
    const struct rt_buffer *const *more; /* further tensors, added to x or to dy; ended by NULL; NULL: none */
    /* For slices. slice: the stage's layers on each slice. kv, in the arena: keys and values of earlier slices and, in
     * a backward, also of this one. own: where a forward writes this slice's keys and values, or NULL. dkv: gradients
     * from later slices for all slices up to this one; NULL in the last slice. dpast: gradients for earlier slices. */
    const struct rt_stage *slice;
    const struct rt_buffer *const *kv;
    char *own, *dkv, *dpast;
    const struct rt_batch *batch;
    float *loss;                /* the last layer's forward writes the microbatch's mean loss here */
    struct rt_routed *routed;   /* a route's forward adds to it; NULL: not counted */
    const struct rt_draw *draw; /* NULL: nothing is drawn, as in validations */
};
/* A job's keys for drawing random numbers: the training's seed, the step from 0, and the microbatch. On a device, where
 * the same graph runs every step, the step is counted there instead (struct cuda_number). In a repeated period, `batch`
 * is the first repetition's, and each next one is `period` later. */
struct rt_draw {
    uint64_t seed;
    int64_t step;
    int32_t batch, period;
    const int64_t *counted;
};
/* Return the weights and the gradient of the layer's set, and whether the gradient is written rather than added to. */
static inline float *layer_weights(const struct rt_bind *at, const struct rt_layer *l) {
    if (l->set == SET_FROZEN)
        return at->frozen + l->frozen / (int64_t)sizeof *at->frozen;
    return l->set == SET_SHARED ? at->u : at->w;
}
/* Returns the token table of an unembedding. */
static inline const float *layer_table(const struct rt_bind *at, const struct rt_layer *l) {
    return l->set == SET_FROZEN ? layer_weights(at, l) : at->v;
}
static inline float *layer_gradient(const struct rt_bind *at, const struct rt_layer *l) {
    return l->set == SET_SHARED ? at->du : at->dw;
}
static inline bool writes_gradient(const struct rt_bind *at, const struct rt_layer *l) {
    return l->set == SET_SHARED ? at->ufirst : at->first;
}

/* A part of a job runs the layers [from, to). A forward's parts go from the first layer to the last, a backward's from
 * the last to the first. Consecutive parts with the same operands, which nothing else touches in between, produce what
 * the whole produces, to the bit.
 *
 * A team exchanges data between two parts, in the middle of a layer that belongs to both. A part with SP_GIVE ends
 * there and puts the layer's x (in a backward, its dy) into that operand, unless it is there already. The next part,
 * with SP_GOT, begins there and finds the layer's y (dx) in that operand. During an exchange, a backward may run a part
 * that has only the weight gradient of the layer before it: see enum sweep_kind. */
void host_forward_part(const struct rt_model *m, const struct rt_stage *s, const struct rt_bind *at, int from, int to);
static inline void host_forward(const struct rt_model *m, const struct rt_stage *s, const struct rt_bind *at) {
    host_forward_part(m, s, at, 0, s->nlayers);
}
/* input: computes dx from dy, and leaves what the weight gradient needs in SP_EXT. weight: computes dw from the stash
 * and SP_EXT. Both: a full backward. If one update ends the step, they are gradients of the mean loss: the loss scales
 * them by 1 / batches. If a stage has several updates per step, each microbatch's gradient is unscaled, and the update
 * scales their sum. */
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
/* Adds each of at->more to dst, n floats. */
void host_add_more(const struct rt_bind *at, char *dst, int64_t n);
/* Returns the factor by which an update multiplies the sum of its microbatches' gradients. */
static inline float update_scale(const struct rt_model *m, const struct rt_stage *s) {
    return s->update > 0 ? 1.0f / (float)(s->update / pieces_of_batch(m)) : 1.0f;
}
/* A piece of a stage's own parameters, such as the one that a home updates: n elements from `first` on. */
struct rt_piece {
    const struct rt_model *m;
    const struct rt_stage *s;
    int64_t first, n;
};
/* An update of a piece; w, dw and opt point at its first element. dw is scaled by update_scale as it is read, and
 * clipped if there is a norm. An update ahead of its norm has the norm of the step before. */
struct rt_update {
    struct rt_piece piece;
    void *w; /* in the model's precision */
    const float *dw;
    float *opt, *work; /* work: as large as the largest matrix_work of any parameter */
    const uint64_t *norm;
    int64_t number, of; /* counts the stage's updates in the run, from 1; devices count by themselves */
    bool settles;       /* no further update follows: layers/post_validation.h */
};
/* Updates a piece. Returns false if the result has a non-finite number. */
bool host_update(const struct rt_update *u);
/* Does the same, but redoes the last update if it should have been clipped: layers/post_validation.h. */
bool host_update_ahead(const struct rt_update *u);
/* Writes the sum of a gradient's squares to norm, NORM_WORDS words, or adds it, over each parameter that counts here
 * (layers/clip.h). */
void host_norm(struct rt_piece piece, const float *dw, uint64_t *norm, bool writes);
void host_add_norm(uint64_t *dst, const uint64_t *src);
/* Sets initial weights, weight_count of them, in fp32 for any model precision. They depend only on seed, layer and
 * parameter, so they are the same for every partition and on every rank. */
void host_init(const struct rt_model *m, const struct rt_stage *s, float *w, uint64_t seed);
/* Returns the turns that an attention's rope makes from one position to the next, for pair i of a head's columns. */
double host_rope(const struct rt_layer *l, int i);
/* Chooses the kernels of matrix products for this processor, and one thread. Returns their description, such as
 * "libxsmm for skx". Call before any thread starts. */
const char *host_blas(void);
#endif
