/* A compiled program as plain constants: the compiler makes it, a rank's own program (rank<k>.cu) contains it, and the
 * runtime replays it. Valid as C11 and as C++20. In initialisers, a member that is left out is 0 or NULL. */
#ifndef PIANOLA_RT_PROGRAM_H
#define PIANOLA_RT_PROGRAM_H
#include "model.h"
#include "ops.h"
#include <stddef.h>

/* A buffer of a rank, or a piece of one: its offset in an arena (on_host says which), and its bytes. */
struct rt_buffer {
    int64_t off, bytes;
};

/* The operands of an instruction by role, as in ops.h; NULL: none. A job has all of dw, though it may add to only a
 * part. */
struct rt_operands {
#define X(name) const struct rt_buffer *name;
    ROLES(X)
#undef X
};

enum { RT_AFTER = 4 }; /* maximum number of instructions that one can wait for without a separate list */

struct rt_instr {
    enum op op;
    int32_t stage, batch; /* batch -1: none. As written out: see rt_program. For an update of several: its number */
    int32_t lane;
    int32_t peer, group, root, msg; /* for messages, where the op has them: a group's number, a root's rank */
    int64_t bytes;         /* size of the tensor moved, added or reduced, or of a shard; 0 for a job or an update */
    int32_t from, to;      /* the layers [from, to) of a job in parts; to 0: all */
    enum sweep_kind sweep; /* which of their computations run */
    struct rt_operands at;
    bool first, vfirst, ufirst;          /* whether dw (for NORM, norm), dv, du is written, not added to */
    const struct rt_buffer *const *more; /* a forward's further x, a backward's further dy, added up; ended by NULL */
    const struct rt_buffer *const *kv;   /* keys and values of slices, from the microbatch's first slice on */
    int32_t after[RT_AFTER];             /* names of instructions on other lanes that must have ended; 0: no more */
    const int32_t *also;                 /* further names, ended by 0 */
    int32_t name;                        /* the name by which others wait for it, from 1; 0: none waits */
};

/* Returns the operand in a role, or NULL if there is none. */
static inline const struct rt_buffer *operand_in(const struct rt_instr *x, int role) {
    return ((const struct rt_buffer *const *)(const void *)&x->at)[role];
}
static inline void set_operand(struct rt_instr *x, int role, const struct rt_buffer *b) {
    ((const struct rt_buffer **)(void *)&x->at)[role] = b;
}
/* Returns an operand's offset, or -1 if there is none. */
static inline int64_t operand_at(const struct rt_instr *x, int role) {
    const struct rt_buffer *b = operand_in(x, role);
    return b ? b->off : -1;
}

/* A stage, or the token table, whose weights (all or a shard) live on a rank. A stage sharded over n ranks is padded to
 * n equal shards. Elements are counted as in weight_count, including padding. */
struct rt_home {
    int32_t stage, memory; /* memory: the arena with the optimizer state */
    int64_t weight, opt;   /* offsets in the device's arena, and in that memory's; opt -1: none */
    int64_t first, count;  /* elements whose weights are here */
    int64_t own, owned;    /* elements that this rank updates, whose optimizer state is here */
};

/* Returns how many of the home's `count` elements are not padding. */
static inline int64_t held_count(const struct rt_model *m, const struct rt_stage *s, const struct rt_home *home) {
    int64_t left = weight_count(m, s) - home->first;
    return left < 0 ? 0 : left < home->count ? left : home->count;
}

/* The frozen parameters of a stage that a rank computes: their offset in the device's arena. */
struct rt_frozen {
    int32_t stage;
    int64_t off;
};

/* The learned state of a home: of the elements that it updates, in fp32 at any precision. Checkpoints keep it, and runs
 * are compared by it. With bf16, the optimizer state begins with the master weights, and the weights are the masters
 * rounded to nearest even. */
struct rt_learned {
    int32_t weight_in, moments_in; /* enum memory */
    int64_t weight, moments; /* offsets in the arenas of these memories; moments: arrays of `owned` floats (moments_of),
                                one after the other; -1: none */
    int64_t first, count;    /* elements of the stage's weight_count, without the padding after them */
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
    int32_t nins;
    const char *const *lane; /* names of lanes */
    int32_t nlanes;
    const struct rt_home *home;
    int32_t nhomes;
    const struct rt_frozen *frozen; /* at the end of the workspace */
    int32_t nfrozen;
    int64_t arena, host;          /* bytes of its arenas, on the device and in host memory */
    const struct rt_buffer *work; /* the workspace; NULL: none */
    int32_t begin, end;           /* the period: ins[begin .. end) */
    /* The index (rank_index): lane l has instructions lane_ins[lane_at[l] .. lane_at[l+1]), and the instruction with a
     * given name is ins[place[name]]. */
    const int32_t *lane_ins, *lane_at, *place;
};

/* Returns the length of a rank's index, in numbers. */
static inline size_t rank_index_size(const struct rt_rank *k) { return 2 * (size_t)k->nins + (size_t)k->nlanes + 3; }

/* Sets the index of a rank, in the caller's memory, which is zeroed. */
static inline void rank_index(struct rt_rank *k, int32_t *memory) {
    int32_t *at = memory, *ins = at + k->nlanes + 2, *place = ins + k->nins;
    for (int32_t i = 0; i < k->nins; i++)
        at[k->ins[i].lane + 2]++;
    for (int32_t l = 0; l < k->nlanes; l++)
        at[l + 2] += at[l + 1];
    for (int32_t i = 0; i < k->nins; i++) {
        ins[at[k->ins[i].lane + 1]++] = i;
        place[k->ins[i].name] = i;
    }
    k->lane_at = at;
    k->lane_ins = ins;
    k->place = place;
}

/* Returns the n-th instruction, from 0, that x waits for; -1: there are no more. */
static inline int32_t wait_of(const struct rt_rank *k, const struct rt_instr *x, int32_t n) {
    int32_t name = n < RT_AFTER ? x->after[n] : x->also ? x->also[n - RT_AFTER] : 0;
    return name ? k->place[name] : -1;
}

/* Returns the arena offset of the norm that clips the rank's updates; -1: it has none. */
static inline int64_t norm_at(const struct rt_rank *k) {
    for (int32_t i = 0; i < k->nins; i++)
        if (k->ins[i].op == OP_NORM)
            return operand_at(&k->ins[i], ROLE_norm);
    return -1;
}

/* Returns the arena offset of the stage's frozen parameters; -1: it has none. */
static inline int64_t frozen_on(const struct rt_rank *k, int stage) {
    for (int32_t i = 0; i < k->nfrozen; i++)
        if (k->frozen[i].stage == stage)
            return k->frozen[i].off;
    return -1;
}

/* Returns the stage's home on this rank, which must have one. */
static inline const struct rt_home *home_on(const struct rt_rank *k, int stage) {
    const struct rt_home *home = k->home;
    while (home->stage != stage)
        home++;
    return home;
}

struct rt_meeting { /* a message, or a collective */
    int32_t n;      /* ranks: a message has 2, sender first; a collective has its members, in order */
    const int32_t *rank;
    /* Offsets, in each rank's arena, of the tensor that it sends or receives. For a collective, off is its first
     * operand, src if there is one, and `to` its second; -1: none. */
    const int64_t *off, *to;
    int64_t bytes; /* as in rt_instr */
};

/* A step runs the part before the period, the period `repeats` times, and the part after it. All lanes of a rank join
 * in between. Each repetition's microbatches are `period` later than the previous one's, and its updates likewise. The
 * part after the period is shifted like the last repetition. */
struct rt_program {
    const char *name;
    uint64_t hash;                           /* of the whole compile; must be equal on all ranks of a run */
    int32_t workers, stages, batches, nmsgs; /* batches: of a step */
    int32_t period;                          /* microbatches; 0: nothing repeats, and begin and end are 0 */
    int64_t repeats;
    int32_t sets;    /* sets of weights: the stages', then token tables that two layers share, then what teams share */
    int32_t updated; /* the last stage that has weights; its updates show the training's progress */
    const struct rt_model *model;
    const struct rt_stage *stage; /* [sets] */
    /* Slices count as microbatches here: a stage's layers on slice q are [stage * slices + q]. */
    const struct rt_stage *slice;
    const int32_t *groups; /* members of each group in their order, ended by -1, and one more -1 at the end */
    /* All ranks and meetings, or one rank's view: only that rank, the layers of its stages, and no meetings. */
    const struct rt_rank *rank;
    const struct rt_meeting *msg;
};

/* Returns the stage of a job; with slices, its layers on the slice. */
static inline const struct rt_stage *job_stage(const struct rt_program *p, const struct rt_instr *x) {
    int32_t slices = p->model->slices;
    return slices > 0 ? &p->slice[x->stage * slices + x->batch % slices] : &p->stage[x->stage];
}

/* Returns the end of the layers that the job, or its part, runs: one past the last. */
static inline int32_t job_end(const struct rt_program *p, const struct rt_instr *x) {
    return x->to > 0 ? x->to : p->stage[x->stage].nlayers;
}

/* Returns the number of microbatches in the tables, which count the period's only once. */
static inline int32_t written_batches(const struct rt_program *p) {
    return p->period > 0 ? (int32_t)(p->batches - (p->repeats - 1) * p->period) : p->batches;
}

#ifdef __cplusplus
extern "C"
#endif
    /* Runs the rank whose view `self` is, in a process of its own (rank_main.c). Returns the process's exit code. */
    int
    rank_main(int argc, char **argv, const struct rt_program *self);
#endif
