/* The replay core, and the interface of a device: device_host.c or device_cuda.cu. */
#ifndef PIANOLA_REPLAY_H
#define PIANOLA_REPLAY_H
#include "nonfinite.h"
#include <stdio.h>

struct replay;

/* A GPU enqueues and returns true at once; the host does the work, and returns false if it would have to wait for
 * another rank. */
struct device {
    bool (*wait)(struct replay *re, const struct rt_instr *x, int32_t i); /* may x's lane go on after instruction i? */
    void (*launch)(struct replay *re, const struct rt_instr *x);          /* a layer, an update, an addition */
    bool (*meet)(struct replay *re, const struct rt_instr *x);            /* a message's side, or a collective */
    /* Instruction i has ended, or is enqueued. */
    void (*record)(struct replay *re, int32_t i, double start, double end);
    double (*clock)(struct replay *re);
    bool (*stamp)(struct replay *re, int32_t i, double *start, double *end); /* of this step; false: not known */
    void (*idle)(struct replay *re);                                         /* every lane waits for another rank */
};

/* A pass of a step: what comes before the period, the period, as often as it repeats, or what comes behind it. Where
 * nothing repeats, the only one is the last. */
enum { BEFORE_PERIOD, PERIOD, BEHIND_PERIOD, NSECTIONS };

/* What a validation runs: forwards, and all messages, so that ranks stay in step; what these move for backwards and
 * updates nobody reads. Weights come where they are needed, and stay as they are, since nothing updates them. */
static inline bool is_for_loss(int op) { return op == OP_F || op == OP_COPY || is_message(op); }
/* What settles an update (layers/post_validation.h): all messages again, and what updates need. */
static inline bool is_for_settling(int op) {
    return op == OP_U || op == OP_COPY || op == OP_RELOAD_O || op == OP_OFFLOAD_O || is_message(op);
}
/* What a run of the streams is for. Instructions that are not for it end as they begin. */
enum purpose { TRAINS, VALIDATES, SETTLES };
static inline bool is_for(enum purpose purpose, int op) {
    return purpose == TRAINS || (purpose == VALIDATES ? is_for_loss(op) : is_for_settling(op));
}

/* One rank's replay. The caller allocates all memory at the start. */
struct replay {
    const struct device *device;
    const struct rt_program *program;
    int32_t rank;
    int64_t step; /* from 0 */
    int64_t runs; /* of the streams so far, whatever for */
    enum purpose purpose;
    int64_t steps;        /* of the whole training, over which the learning rate goes its way */
    struct nonfinite bad; /* the first number that this rank has found not to be finite */
    /* Of the pass under way: its section, whose instructions end here; how often the period has been moved on; how
     * often the section has run before, in earlier steps and validations too. */
    int32_t section, end;
    int64_t repetition, turn;
    int64_t passes;  /* begun, since step 0: this step's and all of those before it. Stored with release */
    int32_t *cursor; /* per lane: its position in lane_ins. Stored with release: the watch reads it */
    int32_t running; /* the instruction being launched, or -1; stored with release too */
    int32_t left;    /* instructions of the pass still to run */
    bool *blocked;   /* per lane: could not continue since the last change */
    /* Per lane, for a device that lags behind the cursors: its first instructions that have ended, in the step or in
     * the pass under way; and behind them `passes` as it was when that began. NULL: see cursor. */
    const uint32_t *reached;
    void *self; /* the device's own */
};
/* Runs every instruction of the rank, or what a validation has of them, those of the period repeatedly. Calls idle
 * whenever every lane waits. */
void replay_step(struct replay *re);
/* The same in parts, for ranks that share a thread: a pass, 0 .. passes_of. replay_run goes as far as it can; true when
 * all of the pass have run. */
void replay_begin(struct replay *re, int64_t pass);
bool replay_run(struct replay *re);
/* stream.c: asserts what a replay of the rank assumes of its streams, its homes and its arenas. */
void replay_expects(const struct rt_program *p, const struct rt_rank *k);
static inline int64_t passes_of(const struct rt_program *p) { return p->period > 0 ? p->repeats + 2 : 1; }
static inline int section_at(const struct rt_program *p, int64_t pass) {
    return p->period == 0 || pass > p->repeats ? BEHIND_PERIOD : pass == 0 ? BEFORE_PERIOD : PERIOD;
}
/* How often the period has been moved on: what is behind it as in its last repetition. */
static inline int64_t repetition_at(const struct rt_program *p, int64_t pass) {
    return p->period == 0 || pass == 0 ? 0 : (pass < p->repeats ? pass : p->repeats) - 1;
}
/* The instructions of a section: [begin_of(section), begin_of(section + 1)). */
static inline int32_t begin_of(const struct rt_rank *k, int section) {
    const int32_t begin[] = {0, k->begin, k->end, k->nins};
    return begin[section];
}

/* The microbatch of a job in the pass under way; the place of an update among its stage's in the step; and its number
 * among all that this stage has had, from 1, as optimizers count. */
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
/* And how many it has in all steps. */
static inline int64_t update_total(const struct replay *re, const struct rt_instr *x) {
    return re->steps * updates_per_step(re->program->batches, &re->program->stage[x->stage]);
}

/* A stage as scripts count, and of a team the member: "2", "2.1". */
struct stage_name {
    char s[24];
};
static inline struct stage_name stage_name(const struct rt_program *p, int stage) {
    const struct rt_stage *s = &p->stage[stage];
    struct stage_name name;
    snprintf(name.s, sizeof name.s, s->members > 0 ? "%d.%d" : "%d", (int)s->number, (int)s->place);
    return name;
}

/* The members of a group, ended by -1. groups: as in rt_program. */
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
/* A group as its member `me` sees it: members below me come before it in the order of sums. */
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
/* Bytes of each number that a sum adds up; those of 2 are bf16, added up in fp32 and rounded once, of 8 integers. */
static inline int64_t summand_bytes(const struct rt_model *m, int op) {
    return op_row(op)->lane == LANE_TEAM ? precision_bytes(m->precision)
           : op == OP_ALL_REDUCE_N       ? (int64_t)sizeof(uint64_t)
                                         : (int64_t)sizeof(float);
}
/* Is the sum written, not added to what is there? */
static inline bool writes_sum(const struct rt_instr *x) { return x->first || x->at.t; }
/* Where a member's result goes: an offset, -1: it has none. */
static inline int64_t result_at(const struct rt_instr *x) {
    const struct rt_buffer *at = x->at.w ? x->at.w : x->at.t ? x->at.t : x->at.norm ? x->at.norm : x->at.dw;
    return at ? at->off : -1;
}
/* Which side of a message, or member of a collective, a rank is. */
static inline int side_of(const struct rt_meeting *meeting, int rank) {
    int side = 0;
    while (meeting->rank[side] != rank)
        side++;
    return side;
}
#endif
