/* The runtime: layers, data, and the replay of a compiled program. Includes nothing from compiler/. */
#ifndef PIANOLA_RT_H
#define PIANOLA_RT_H
#include "parameters.h"
#include <stddef.h>

/* Alignment of a layer's parameters within its stage's weights, in bytes: a vector register, a cache line. */
enum { PARAM_ALIGN = 64 };

/* The most slices of a microbatch. */
enum { MOST_SLICES = 1024 };

/* The most columns of an attention head that the CUDA layers support. */
enum { CUDA_HEAD = 128 };

/* The most slices of a microbatch that attend to each other there. */
enum { CUDA_SLICES = 64 };

/* Elements of a stage's weights, gaps included: also the floats of its gradient, and of each array of its optimizer
 * state. */
static inline int64_t weight_count(const struct rt_model *m, const struct rt_stage *s) {
    return s->weight / precision_bytes(m->precision);
}

/* ---- layers_host.c: the reference implementation, fp32, one BLAS thread per rank ---- */

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
    const int64_t *more; /* arena offsets of nmore further tensors, to be added to x or to dy */
    int nmore;
    /* Of a slice: the stage's layers on each of the slices; arena offsets of the keys and values of those before it,
     * and in a backward of its own; its own, which a forward writes (NULL: it does not); and the gradients with respect
     * to those of all slices up to it, from those behind it (NULL: it is the last), and of those before it. */
    const struct rt_stage *slice;
    const int64_t *kv;
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
void host_backward_part(const struct rt_model *m, const struct rt_stage *s, const struct rt_bind *at, bool input,
                        bool weight, enum sweep_kind sweep, int from, int to);
static inline void host_backward(const struct rt_model *m, const struct rt_stage *s, const struct rt_bind *at,
                                 bool input, bool weight) {
    host_backward_part(m, s, at, input, weight, SWEEP_ALL, 0, s->nlayers);
}
void host_add(float *dst, const float *src, int64_t n, bool first);
/* dst, n floats, += each of at->more */
void host_add_more(const struct rt_bind *at, char *dst, int64_t n);
/* What an update multiplies the sum of its microbatches' gradients by. */
static inline float update_scale(const struct rt_model *m, const struct rt_stage *s) {
    return s->update > 0 ? 1.0f / (float)(s->update / pieces_of_batch(m)) : 1.0f;
}
/* One update of n of the stage's elements, from `first` on, where w, dw and opt begin: its number, from 1, of all that
 * the stage has in the run. False: it has left a number that is not finite. dw is scaled by update_scale as it is read,
 * and where there is a norm clipped to it. work: muon_work floats. */
bool host_update(const struct rt_model *m, const struct rt_stage *s, int64_t first, int64_t n, float *w,
                 const float *dw, float *opt, float *work, const uint64_t *norm, int64_t number, int64_t of);
/* The same, or the last one again: layers/post_validation.h. norm: of the step before; settles: there is no other. */
bool host_update_ahead(const struct rt_model *m, const struct rt_stage *s, int64_t first, int64_t n, float *w,
                       const float *dw, float *opt, float *work, const uint64_t *norm, int64_t number, int64_t of,
                       bool settles);
/* norm, NORM_WORDS words, = or += the squares of such a gradient, of each parameter that counts here (layers/clip.h).
 */
void host_norm(const struct rt_model *m, const struct rt_stage *s, int64_t first, int64_t n, const float *dw,
               uint64_t *norm, bool writes);
void host_add_norm(uint64_t *dst, const uint64_t *src);
/* Initial weights, fp32 whatever the model's precision, weight_count of them: a function of seed, layer and parameter
 * only, so every cut and every rank agrees. */
void host_init(const struct rt_model *m, const struct rt_stage *s, float *w, uint64_t seed);
/* An attention's rope: how many turns it makes from one position to the next with pair i of a head's columns. */
double host_rope(const struct rt_layer *l, int i);
/* Picks the kernels of matrix products for this processor, and one thread; returns what they are, such as "libxsmm for
 * skx". Call before any thread starts. */
const char *host_blas(void);

/* ---- data.c: microbatches by (step, b), the same on every rank ---- */
struct data;
/* INPUT_TOKENS maps the files at paths, ended by NULL, each a path or a pattern as shells have them, and reads them one
 * after the other as one text: their tokens, or the bytes of a text if the vocabulary is at most 256; or makes random
 * tokens if paths is NULL. INPUT_INTEGERS makes its own rows. Sequences are drawn without repetition until all have
 * been used, in an order that seed sets. NULL on error, with why. */
struct data *data_open(const struct rt_model *m, const char *const *paths, uint64_t seed, char *why, size_t nwhy);
/* Step `step` begins with sequence `sequence` of all that a training reads: where it goes on. */
void data_begin(struct data *d, int64_t step, int64_t sequence);
/* Sequences that a step reads. */
static inline int64_t sequences_per_step(const struct rt_model *m) {
    return m->context > 0 ? (int64_t)m->rows / m->context * m->batches : m->batches;
}
int64_t data_sequences(const struct data *d); /* in its files; 0: it has none */
/* Makes it held-out text of so many sequences, its own or, where this rank reads none, another rank's: each is read
 * once, in their order. What they leave of the last step repeats some, and counts less or nothing. */
void data_hold_out(struct data *d, int64_t sequences);
/* Steps of a validation; at least 1. */
int64_t data_steps(const struct data *d);
/* A validation's sum of losses, and how many sequences it is of. loss[n]: of a step's microbatches, or their slices. */
struct held_sum {
    double loss;
    int64_t sequences;
};
void data_sum(const struct data *d, int64_t step, const float *loss, int32_t n, struct held_sum *sum);
/* Fills *out with microbatch b of the step, into the caller's memory of data_bytes(m). No allocation. */
void data_batch(const struct data *d, int64_t step, int b, void *memory, struct rt_batch *out);
/* The same of a slice: rows first .. first + length of each sequence. */
void data_slice(const struct data *d, int64_t step, int b, int first, int length, void *memory, struct rt_batch *out);
size_t data_bytes(const struct rt_model *m);
/* Moves the rows to the front, in the same memory, that the members of teams have which read the batch: its input as
 * layer `input` does, its targets as the loss `target` does. NULL: all are read. */
void data_keep(const struct rt_model *m, const struct rt_layer *input, const struct rt_layer *target, void *memory);
/* True if the file is unchanged since it was opened. False, with `path: reason` in why: it changed, shrank or is gone.
 * Call this before keeping anything computed from it. If the file shrinks while being read, the process names it and
 * ends. */
bool data_same(const struct data *d, char *why, size_t nwhy);
/* What identifies this data: the file's size in bytes (0: no file), and a hash of its content. */
void data_identity(const struct data *d, int64_t *bytes, uint64_t *hash);
void data_close(struct data *d);

/* What a training starts from. */
struct start {
    uint64_t seed;
    struct named_file *weights; /* store/import.h; NULL: random ones, by the seed */
};

/* ---- the compiled program, as plain constants ---- */

struct rt_instr {
    uint8_t op;
    bool first, vfirst, ufirst; /* dw, dv, du is written, not added to */
    bool recorded;              /* some instruction of another lane waits for this one */
    uint16_t lane;
    int32_t stage, batch; /* batch -1: none. As written out: see rt_program. Of an update of several: its number */
    int32_t peer, msg;    /* -1: none */
    int32_t root;         /* of a collective: a rank, or -1 */
    int64_t at[NROLES];   /* offset of each operand in its arena: see on_host; -1: absent */
    int64_t bytes;        /* of the smallest operand: of the tensor moved, added or reduced; of a shard */
    int32_t wait, nwait;  /* instructions of other lanes that must have ended: rt_rank.wait[wait ..] */
    int32_t more, nmore;  /* a forward's further x, a backward's further dy, to be added up: rt_rank.more[more ..] */
    int32_t nkv;          /* behind these: kv of slices, from the microbatch's first on */
    int32_t from, to;     /* of a job, which may run in parts: its layers of the stage, [from, to) */
    uint8_t sweep;        /* enum sweep_kind: what it runs of them */
};

/* A stage, or the table, whose weights live on a rank: all of them or a shard. A stage sharded over n ranks is padded
 * to n equal shards. Its elements are counted as in weight_count, padding included. */
struct rt_home {
    int32_t stage, memory; /* memory: whose arena has the optimizer's state */
    int64_t weight, opt;   /* offsets in the device's arena, and in that one; opt -1: none */
    int64_t first, count;  /* the elements whose weights are here */
    int64_t own, owned;    /* those that this rank updates, and whose optimizer state is here */
};

/* Those of its `count` elements that are not padding. */
static inline int64_t held_count(const struct rt_model *m, const struct rt_stage *s, const struct rt_home *home) {
    int64_t left = weight_count(m, s) - home->first;
    return left < 0 ? 0 : left < home->count ? left : home->count;
}

/* What a home has learned, in fp32 at any precision: of the elements that it updates. Checkpoints keep it, and runs are
 * compared by it. With bf16, the optimizer state begins with the master weights, and the weights are the masters
 * rounded to nearest even. */
struct rt_learned {
    int32_t weight_in, moments_in; /* enum memory */
    int64_t weight, moments; /* offsets in the arenas of these memories; moments: arrays of `owned` floats (moments_of),
                                one after the other; -1: none */
    int64_t first, count;    /* elements of the stage's weight_count; the padding behind them is left out */
};
static inline struct rt_learned learned_at(const struct rt_model *m, const struct rt_stage *s,
                                           const struct rt_home *home) {
    bool masters = m->precision == BF16;
    int64_t left = weight_count(m, s) - home->own;
    struct rt_learned learned;
    learned.weight_in = masters ? home->memory : MEMORY_DEVICE;
    learned.moments_in = home->memory;
    learned.weight = masters ? home->opt : home->weight + 4 * (home->own - home->first);
    learned.moments = *moments_of(m->optimizer) ? home->opt + (masters ? 4 * home->owned : 0) : -1;
    learned.first = home->own;
    learned.count = left < 0 ? 0 : left < home->owned ? left : home->owned;
    return learned;
}

struct rt_rank {
    int32_t number;
    const struct rt_instr *ins; /* in issue order */
    int32_t nins, nlanes;
    const int32_t *lane_ins, *lane_at; /* instructions of lane l: lane_ins[lane_at[l] .. lane_at[l+1]) */
    const int32_t *wait;
    const int64_t *more; /* arena offsets */
    const struct rt_home *home;
    int32_t nhomes;
    int64_t arena, host, work; /* bytes, in host memory too; offset of the workspace, -1: none */
    int32_t begin, end;        /* the period: ins[begin .. end) */
    const char *const *lane;   /* names of lanes */
};

/* Where the rank has the norm by which its updates are clipped, in its arena; -1: nowhere. */
static inline int64_t norm_at(const struct rt_rank *k) {
    for (int32_t i = 0; i < k->nins; i++)
        if (k->ins[i].op == OP_NORM)
            return k->ins[i].at[ROLE_norm];
    return -1;
}

/* The stage's home on this rank; it has one. */
static inline const struct rt_home *home_on(const struct rt_rank *k, int stage) {
    const struct rt_home *home = k->home;
    while (home->stage != stage)
        home++;
    return home;
}

struct rt_meeting { /* a message, or a collective */
    int32_t n;      /* ranks: a message has 2, sender first; a collective its members, in their order */
    const int32_t *rank;
    /* In each rank's arena, the tensor that it sends or receives; of a collective, its first operand, src where there
     * is one, and its second; -1: it has none. */
    const int64_t *off, *to;
    int64_t bytes; /* as in rt_instr */
};

/* A step runs what is before the period, the period `repeats` times, and what is behind it. Between these, all lanes of
 * a rank join. Each time the period is moved on by its microbatches, and so are the updates in it; what is behind it is
 * moved on as by all but one of them. */
struct rt_program {
    const char *name;
    uint64_t hash; /* of the whole compile: every rank of a run must have the same */
    int32_t workers, stages, batches, nmsgs; /* batches: of a step */
    int32_t period;                          /* microbatches; 0: nothing repeats, and begin and end are 0 */
    int64_t repeats;
    int32_t sets;    /* of weights: the stages', then the token tables that two layers share, then what teams share */
    int32_t updated; /* the last stage that has weights: its updates tell how far the training is */
    const struct rt_model *model;
    const struct rt_stage *stage; /* [sets] */
    /* With slices, which count as microbatches here: [stage * slices + q], the layers of a stage on slice q. */
    const struct rt_stage *slice;
    const int32_t *groups; /* members of each group in their order, ended by -1, and one more -1 at the end */
    /* Of all ranks; or one rank's view, which has that rank alone, the layers of its stages, and no meetings. */
    const struct rt_rank *rank;
    const struct rt_meeting *msg;
};

/* The stage of a job: its layers on the slice, where there are slices. */
static inline const struct rt_stage *job_stage(const struct rt_program *p, const struct rt_instr *x) {
    int32_t slices = p->model->slices;
    return slices > 0 ? &p->slice[x->stage * slices + x->batch % slices] : &p->stage[x->stage];
}

/* Microbatches as they are written out, with one period. */
static inline int32_t written_batches(const struct rt_program *p) {
    return p->period > 0 ? (int32_t)(p->batches - (p->repeats - 1) * p->period) : p->batches;
}

/* ---- rank_main.c: one rank of a program, as a process of its own ---- */

/* Runs the rank that `self` has: one rank's view of a program. */
int rank_main(int argc, char **argv, const struct rt_program *self);

/* ---- train_host.c: all ranks of a program in this process, a thread each ---- */

struct rt_stamp { /* seconds since the run began */
    double start, end;
};
/* How often an instruction ran, and the seconds of its thread's CPU time that this took: those it would take alone. */
struct rt_took {
    double seconds;
    int64_t times;
};
/* A step that has ended, from 0. loss[batches]: of each microbatch; when[updates_per_step]: when the last stage's
 * updates had ended, in seconds since the training began. seconds: it took; waited: store/metrics.h; NAN: not measured.
 * validation: the loss after it, on held-out text; NAN: there was none. norm: of the gradient; NAN: it is not clipped.
 * Step -1: nothing has been trained yet, and only validation is told.
 */
struct rt_ended {
    int64_t step;
    const float *loss;
    const double *when;
    double seconds, waited, validation, norm;
};
struct rt_run {
    const struct rt_program *program;
    const struct data *data;
    uint64_t seed;
    struct named_file *weights;  /* as in struct start */
    int64_t steps;               /* to come to, those before `from` included */
    int64_t from;                /* done in earlier runs */
    int64_t of;                  /* over which the learning rate goes its way; 0: steps */
    const struct saving *saving; /* process/saving.h: checkpoints; NULL: none */
    /* results, in the caller's memory, at places from `from` on */
    float *loss;             /* [steps]: mean over the step's microbatches */
    struct rt_stamp **stamp; /* [rank]: [kept][instructions], of the last `kept` steps; or NULL */
    int64_t kept;
    struct rt_took **took; /* [rank]: [instructions], on the host, of the last `timed` steps; or NULL */
    int64_t timed;
    double *makespan;         /* [steps]: seconds from the first start to the last end */
    double *norm;             /* [steps]: of the gradient, NAN: it is not clipped; or NULL */
    struct rt_routed *routed; /* of all steps; NULL: nobody asks */
    int64_t *twice;           /* how many steps ran twice: layers/post_validation.h. NULL: nobody asks */
    void (*progress)(void *context, int64_t step, float loss, double seconds); /* about ten times a second, or NULL */
    void (*ended)(void *context, const struct rt_ended *of);                   /* after each step, or NULL */
    void *context;
    struct nonfinite *bad; /* the first number that is not finite (device/nonfinite.h); NULL: nobody asks */
    bool stops;            /* after the step that follows it, or at the latest before a checkpoint */
    bool evaluates;        /* it tells losses alone, as validations do, and trains nothing */
    /* For validations, before the first step and after every `every`; NULL: there are none. */
    const struct data *held_out;
    int64_t every;
};
/* The mean of a step's losses, of all its microbatches in their order. */
static inline double mean_loss(const float *loss, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)loss[i];
    return sum / (double)n;
}
/* How often a step of so many microbatches updates a stage. */
static inline int32_t updates_per_step(int32_t batches, const struct rt_stage *s) {
    return s->update > 0 ? batches / s->update : 1;
}
/* Trains, and returns the arenas, [memory * workers + rank], NULL where one has no bytes in host memory; free them with
 * host_free. NULL: out of memory. */
char **host_train(const struct rt_run *run);
void host_free(const struct rt_program *p, char **arena);
#endif
