/* The replay core, and the interface of a device: device_host.c or device_cuda.cu. */
#ifndef PIANOLA_REPLAY_H
#define PIANOLA_REPLAY_H
#include "nonfinite.h"
#include <stdio.h>

struct replay;

/* A device's functions. A GPU enqueues and returns true at once. The host does the work, and returns false if it would
 * have to wait for another rank. */
struct device {
    /* Returns whether instruction i no longer holds up x's lane. */
    bool (*wait)(struct replay *re, const struct rt_instr *x, int32_t i);
    void (*launch)(struct replay *re, const struct rt_instr *x); /* Runs a layer, an update or an addition. */
    bool (*meet)(struct replay *re, const struct rt_instr *x);   /* Takes part in a message or a collective. */
    /* Records that instruction i has ended, or is enqueued. */
    void (*record)(struct replay *re, int32_t i, double start, double end);
    double (*clock)(struct replay *re);
    /* Reads when instruction i ran in this step. Returns false if that is not known. */
    bool (*stamp)(struct replay *re, int32_t i, double *start, double *end);
    void (*idle)(struct replay *re); /* Waits; called when every lane waits for another rank. */
    /* Begins and ends a run of the streams, for ranks that take turns on cores. NULL: nothing to do. */
    void (*begin)(struct replay *re);
    void (*end)(struct replay *re);
};

/* The section that a pass of a step runs: what precedes the period, the period itself (once per repetition), or what
 * follows it. If nothing repeats, a step has one pass, which runs the last section. */
enum { BEFORE_PERIOD, PERIOD, BEHIND_PERIOD, NSECTIONS };

/* Returns whether a validation runs an instruction: it runs forwards, and all messages, so that ranks stay in step.
 * Nothing reads the data that messages move for backwards and updates. Weights arrive where they are needed and do not
 * change, since nothing updates them. */
static inline bool is_for_loss(int op) { return op == OP_F || op == OP_COPY || is_message(op); }
/* Returns whether settling an update (layers/post_validation.h) runs an instruction: again all messages, and whatever
 * updates need. */
static inline bool is_for_settling(int op) {
    return op == OP_U || op == OP_COPY || op == OP_RELOAD_O || op == OP_OFFLOAD_O || is_message(op);
}
/* The purpose of a run of the streams. Instructions that the purpose does not need end as they begin. */
enum purpose { TRAINS, VALIDATES, SETTLES };
static inline bool is_for(enum purpose purpose, int op) {
    return purpose == TRAINS || (purpose == VALIDATES ? is_for_loss(op) : is_for_settling(op));
}

/* One rank's replay. The caller allocates all memory at the start. */
struct replay {
    const struct device *device;
    const struct rt_program *program;
    int32_t rank;
    int64_t step; /* counts from 0 */
    int64_t runs; /* runs of the streams so far, for any purpose */
    enum purpose purpose;
    int64_t steps;        /* steps of the whole training; the learning rate's schedule spans them */
    struct nonfinite bad; /* the first number that this rank has found not to be finite */
    /* The pass under way: its section, whose instructions end at `end`; the repetition of the period, from 0; and how
     * often the section ran before, including in earlier steps and validations. */
    int32_t section, end;
    int64_t repetition, turn;
    int64_t passes;  /* passes begun since step 0, this step's included; stored with release */
    int32_t *cursor; /* per lane: its position in lane_ins; stored with release, because the watch reads it */
    int32_t running; /* the instruction being launched, or -1; stored with release too */
    int32_t left;    /* instructions of the pass still to run */
    bool *blocked;   /* per lane: could not continue since the last change */
    /* For a device that lags behind the cursors: per lane, how many instructions have ended in the step or pass under
     * way; after the lanes, the value of `passes` when it began. NULL: see cursor. */
    const uint32_t *reached;
    void *self; /* the device's own */
};
/* Runs every instruction of the rank that the purpose needs, the period's repeatedly. Calls idle whenever every lane
 * waits. */
void replay_step(struct replay *re);
/* Do the same in parts, for ranks that share a thread: begin a pass, from 0 .. passes_of, then run as far as possible.
 * replay_run returns true when the whole pass has run. */
void replay_begin(struct replay *re, int64_t pass);
bool replay_run(struct replay *re);
/* stream.c: asserts the assumptions of a replay about the rank's streams, homes and arenas. */
void replay_expects(const struct rt_program *p, const struct rt_rank *k);
static inline int64_t passes_of(const struct rt_program *p) { return p->period > 0 ? p->repeats + 2 : 1; }
static inline int section_at(const struct rt_program *p, int64_t pass) {
    return p->period == 0 || pass > p->repeats ? BEHIND_PERIOD : pass == 0 ? BEFORE_PERIOD : PERIOD;
}
/* Returns the repetition of the period, from 0; what follows the period counts as in the last repetition. */
static inline int64_t repetition_at(const struct rt_program *p, int64_t pass) {
    return p->period == 0 || pass == 0 ? 0 : (pass < p->repeats ? pass : p->repeats) - 1;
}
/* Returns where a section begins: its instructions are [begin_of(section), begin_of(section + 1)). */
static inline int32_t begin_of(const struct rt_rank *k, int section) {
    const int32_t begin[] = {0, k->begin, k->end, k->nins};
    return begin[section];
}

/* Return a job's microbatch in the pass under way; an update's place among its stage's updates in the step; and its
 * number among all of the stage's updates, from 1, as optimizers count. */
static inline int32_t batch_of(const struct replay *re, const struct rt_instr *x) {
    return (int32_t)(x->batch + re->repetition * re->program->period);
}
static inline int64_t update_of(const struct replay *re, const struct rt_instr *x) {
    int32_t each = re->program->stage[x->stage].update;
    return each > 0 ? x->batch + re->repetition * (re->program->period / each) : 0;
}
static inline int64_t update_number(const struct replay *re, const struct rt_instr *x) {
    const struct rt_program *p = re->program;
    return re->step * updates_per_step(p->batches, &p->stage[x->stage]) + update_of(re, x) + 1;
}
/* Returns how many updates the stage has in all steps. */
static inline int64_t update_total(const struct replay *re, const struct rt_instr *x) {
    return re->steps * updates_per_step(re->program->batches, &re->program->stage[x->stage]);
}

/* A stage's name in scripts' numbers, with the member if it has a team: "2", "2.1". */
struct stage_name {
    char s[24];
};
static inline struct stage_name stage_name(const struct rt_program *p, int stage) {
    const struct rt_stage *s = &p->stage[stage];
    struct stage_name name;
    snprintf(name.s, sizeof name.s, s->members > 0 ? "%d.%d" : "%d", (int)s->number, (int)s->place);
    return name;
}

/* Returns the members of a group, ended by -1. groups: as in rt_program. */
static inline const int32_t *group_at(const int32_t *groups, int number) {
    for (; number > 0; groups++)
        number -= *groups < 0;
    return groups;
}
static inline int group_count(const int32_t *groups) {
    int n = 0;
    for (; *groups >= 0; n++)
        groups = group_at(groups, 1);
    return n;
}
/* A group seen from its member `me`: members before `me` come before it in the order of sums. */
struct rt_group {
    const int32_t *member;
    int n, me;
};
static inline struct rt_group group_of(const int32_t *groups, int number, int rank) {
    struct rt_group group = {group_at(groups, number), 0, 0};
    for (; group.member[group.n] >= 0; group.n++)
        group.me = group.member[group.n] == rank ? group.n : group.me;
    return group;
}
static inline bool sums(int op) {
    int motion = motion_of(op);
    return motion == OP_ALL_REDUCE || motion == OP_REDUCE_SCATTER || motion == OP_REDUCE;
}
/* Returns the bytes of each number that a sum adds up: 2 for bf16, added up in fp32 and rounded once; 8 for integers.
 */
static inline int64_t summand_bytes(const struct rt_model *m, int op) {
    return op_row(op)->lane == LANE_TEAM ? precision_bytes(m->precision)
           : op == OP_ALL_REDUCE_N       ? (int64_t)sizeof(uint64_t)
                                         : (int64_t)sizeof(float);
}
/* Returns whether the sum is written, rather than added to the old contents. */
static inline bool writes_sum(const struct rt_instr *x) { return x->first || x->at.t; }
/* Returns the offset of a member's result, or -1 if it has none. */
static inline int64_t result_at(const struct rt_instr *x) {
    const struct rt_buffer *at = x->at.w ? x->at.w : x->at.t ? x->at.t : x->at.norm ? x->at.norm : x->at.dw;
    return at ? at->off : -1;
}
/* Returns a rank's side of a message, or its place in a collective. */
static inline int side_of(const struct rt_meeting *meeting, int rank) {
    int side = 0;
    while (meeting->rank[side] != rank)
        side++;
    return side;
}
#endif
