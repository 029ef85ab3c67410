/* The operands of an instruction as addresses in its rank's arenas, for a job's layers on any device. */
#ifndef PIANOLA_JOB_H
#define PIANOLA_JOB_H
#include "replay.h"
#include "rt.h"
#include <string.h>

static inline char *job_operand(char *arena, const struct rt_instr *x, int role) {
    const struct rt_buffer *operand = operand_in(x, role);
    return operand ? arena + operand->off : NULL;
}

/* The destination and source of a copy to host memory or back. */
struct job_copy {
    char *to;
    const char *from;
};
static inline struct job_copy job_copy(char *arena, char *host, const struct rt_instr *x) {
    struct job_copy copy;
    copy.to = job_operand(on_host(x->op, ROLE_t) ? host : arena, x, ROLE_t);
    copy.from = job_operand(on_host(x->op, ROLE_src) ? host : arena, x, ROLE_src);
    return copy;
}

/* Returns whether a stage reads the batch: as its first layer's input, or because a layer reads its tokens, targets or
 * inputs of units. */
static inline bool stage_reads_batch(const struct rt_program *p, int stage) {
    const struct rt_stage *s = &p->stage[stage];
    bool reads = s->layer[0].x.space == SP_NONE;
    for (int l = 0; !reads && l < s->nlayers; l++)
        reads = reads_batch(&s->layer[l]);
    return reads;
}
/* Returns whether a part is a job's first, which reads the job's input or the gradient of its output. */
static inline bool begins_job(const struct rt_program *p, const struct rt_instr *x) {
    bool forward = x->op == OP_F || x->op == OP_R;
    return !x->at.got && x->sweep != SWEEP_WEIGHTS &&
           (forward ? x->from == 0 : job_end(p, x) == p->stage[x->stage].nlayers);
}

/* Binds a job's operands, except the batch and the loss's place. The stage's own workspace is followed by space that
 * cost.c adds: for B, the data that I would leave for W; for R, its output, which is dropped; for an F that R will
 * repeat, its stash. If the job has an operand `work`, that is its workspace instead of the rank's. */
static inline struct rt_bind job_bind(const struct rt_program *p, int rank, char *arena, const struct rt_instr *x) {
    const struct rt_stage *s = job_stage(p, x);
    const struct rt_buffer *work = x->at.work ? x->at.work : p->rank[rank].work;
    char *scratch = work ? arena + work->off : NULL, *behind = scratch ? scratch + s->work : NULL;
    char *wstash = job_operand(arena, x, ROLE_wstash);
    bool repeated = x->op == OP_F && x->at.input;
    struct rt_bind at;
    memset(&at, 0, sizeof at);
    at.w = (float *)(void *)job_operand(arena, x, ROLE_w);
    at.dw = (float *)(void *)job_operand(arena, x, ROLE_dw);
    at.v = (float *)(void *)job_operand(arena, x, ROLE_v);
    at.dv = (float *)(void *)job_operand(arena, x, ROLE_dv);
    const int64_t frozen = frozen_on(&p->rank[rank], x->stage);
    at.frozen = frozen >= 0 ? (float *)(void *)(arena + frozen) : NULL;
    at.u = (float *)(void *)job_operand(arena, x, ROLE_u);
    at.du = (float *)(void *)job_operand(arena, x, ROLE_du);
    at.first = x->first;
    at.vfirst = x->vfirst;
    at.ufirst = x->ufirst;
    at.at[SP_X] = job_operand(arena, x, x->op == OP_R ? ROLE_input : ROLE_x);
    at.at[SP_Y] = x->op == OP_R ? behind : job_operand(arena, x, ROLE_y);
    at.at[SP_STASH] = repeated ? behind : x->op == OP_W ? wstash : job_operand(arena, x, ROLE_stash);
    at.at[SP_EXT] = x->op == OP_B ? behind : wstash ? wstash + s->stash : NULL;
    at.at[SP_WORK] = scratch;
    at.at[SP_DY] = job_operand(arena, x, ROLE_dy);
    at.at[SP_DX] = job_operand(arena, x, ROLE_dx);
    at.at[SP_GIVE] = job_operand(arena, x, ROLE_give);
    at.at[SP_GOT] = job_operand(arena, x, ROLE_got);
    at.arena = arena;
    at.more = x->more;
    at.slice = p->slice ? &p->slice[x->stage * p->model->slices] : NULL;
    at.kv = x->kv;
    at.own = job_operand(arena, x, ROLE_own);
    at.dkv = job_operand(arena, x, ROLE_dkv);
    at.dpast = job_operand(arena, x, ROLE_dpast);
    return at;
}

/* Returns which computations a part of a backward runs. */
static inline struct rt_sweep job_sweep(const struct rt_program *p, const struct rt_instr *x) {
    struct rt_sweep sweep = {x->op != OP_W, x->op != OP_I, x->sweep, x->from, job_end(p, x)};
    return sweep;
}

/* Returns the piece that an instruction's home updates. */
static inline struct rt_piece job_piece(const struct replay *re, const struct rt_instr *x) {
    const struct rt_program *p = re->program;
    const struct rt_home *home = home_on(&p->rank[re->rank], x->stage);
    struct rt_piece piece = {p->model, &p->stage[x->stage], home->own, home->owned};
    return piece;
}
static inline struct rt_update job_update(const struct replay *re, char *arena, const struct rt_instr *x) {
    const struct rt_buffer *work = re->program->rank[re->rank].work;
    struct rt_update u;
    u.piece = job_piece(re, x);
    u.w = job_operand(arena, x, ROLE_w);
    u.dw = (const float *)(void *)job_operand(arena, x, ROLE_dw);
    u.opt = (float *)(void *)job_operand(arena, x, ROLE_opt);
    u.work = work ? (float *)(void *)(arena + work->off) : NULL;
    u.norm = (const uint64_t *)(void *)job_operand(arena, x, ROLE_norm);
    u.number = update_number(re, x);
    u.of = update_total(re, x);
    u.settles = re->purpose == SETTLES;
    return u;
}
#endif
