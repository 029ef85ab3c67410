/* A compiled program, as plain constants, and what runs one rank of it. */
#ifndef PIANOLA_RT_PROGRAM_H
#define PIANOLA_RT_PROGRAM_H
#include "compute.h"
#include "ops.h"

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
#endif
