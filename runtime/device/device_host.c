/* The host as a device: layers run at once in the rank's own thread; its transport moves messages. */
#include "device_host.h"
#include "job.h"
#include "store/import.h"
#include "store/seconds.h"
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static struct host_rank *self(const struct replay *re) { return re->self; }

static double host_clock(struct replay *re) { return seconds() - self(re)->origin; }

static void host_record(struct replay *re, int32_t i, double start, double end) {
    struct host_rank *own = self(re);
    const struct rt_instr *x = &re->program->rank[re->rank].ins[i];
    assert(i >= 0 && i < re->program->rank[re->rank].nins);
    assert(own->ended[i] == re->turn && end >= start); /* once per turn of its section */
    own->ended[i] = re->turn + 1;
    own->stamp[i] = (struct rt_stamp){start, end, own->cpu};
    own->first = start < own->first ? start : own->first;
    own->last = end > own->last ? end : own->last;
    if (own->when && x->op == OP_U && x->stage == re->program->updated)
        own->when[update_of(re, x)] = end;
}

static bool ended(const struct replay *re, int32_t i) { return self(re)->ended[i] > re->turn; }

static bool host_wait(struct replay *re, const struct rt_instr *x, int32_t i) {
    (void)x;
    return ended(re, i);
}

static bool host_stamp(struct replay *re, int32_t i, double *start, double *end) {
    *start = self(re)->stamp[i].start;
    *end = self(re)->stamp[i].end;
    return ended(re, i);
}

static void read_batch_rows(struct replay *re, const struct rt_instr *x, const struct rt_stage *s,
                            struct rt_batch *batch) {
    struct host_rank *own = self(re);
    const struct rt_model *m = re->program->model;
    data_batch(own->data, re->step, batch_of(re, x) / pieces_of_batch(m), own->batch, batch);
    if (m->slices > 0)
        data_keep_slice(m, s->layer[0].first, s->layer[0].length, own->batch);
    else
        data_keep(m, s->layer, s->layer + s->nlayers - 1, own->batch);
}

/* Returns the place of a member's loss. Members of a team that write to the same memory have separate places. */
static float *member_loss(struct replay *re, const struct rt_instr *x, const struct rt_stage *s) {
    struct host_rank *own = self(re);
    assert(own->loss && batch_of(re, x) < re->program->batches);
    assert(!sums_loss(s) || own->apart == 0 || own->apart >= re->program->batches);
    return &own->loss[(sums_loss(s) ? s->place : 0) * own->apart + batch_of(re, x)];
}

static void run_job(struct replay *re, const struct rt_instr *x) {
    struct host_rank *own = self(re);
    const struct rt_program *p = re->program;
    const struct rt_stage *s = job_stage(p, x);
    struct rt_batch batch = {0};
    float lost; /* takes the loss of a recomputed forward, or another member's, which is dropped */
    struct rt_bind at = job_bind(p, re->rank, own->arena, x);
    at.batch = &batch;
    at.loss = x->op == OP_F && tells_loss(s) ? member_loss(re, x, s) : &lost;
    at.routed = x->op == OP_F && tells_routed(s) && re->purpose == TRAINS ? &own->routed : NULL;
    const struct rt_draw draw = {own->seed, re->step, batch_of(re, x) / pieces_of_batch(p->model), 0, NULL};
    at.draw = re->purpose == TRAINS ? &draw : NULL;
    if (stage_reads_batch(p, x->stage))
        read_batch_rows(re, x, s, &batch);
    if (x->op == OP_F && x->at.input && (at.at[SP_X] || !begins_job(p, x))) { /* recompute: keep the input only */
        char *input = job_operand(own->arena, x, ROLE_input);
        if (begins_job(p, x)) {
            memcpy(input, at.at[SP_X], (size_t)s->input);
            host_add_more(&at, input, s->input / 4);
        }
        at.at[SP_X] = input;
        at.more = NULL;
    }
    if (x->op == OP_F || x->op == OP_R)
        host_forward_part(p->model, s, &at, x->from, job_end(p, x));
    else
        host_backward_part(p->model, s, &at, job_sweep(p, x));
    if (at.loss != &lost && re->purpose == TRAINS && re->bad.step == 0 && !isfinite(*at.loss)) {
        nonfinite_look(&re->bad, re->step + 1, re->rank, at.loss, 1);
        re->bad.batch = batch_of(re, x);
    }
}

/* Records the weight that an update has made non-finite, or the gradient if it was non-finite already. */
static void name_nonfinite(struct replay *re, const struct rt_update *u) {
    struct nonfinite_at at = {re->step + 1, re->rank, NONFINITE_STATE, 0};
    nonfinite_scan(&re->bad, &at, u->piece, u->w);
    at.kind = NONFINITE_GRADIENT;
    nonfinite_scan(&re->bad, &at, u->piece, u->dw);
}

static void run_update(struct replay *re, const struct rt_instr *x) {
    const struct rt_update u = job_update(re, self(re)->arena, x);
    const int moments = count_moments(u.piece.m->optimizer);
    /* Checks that the plan's sizes match the layers': fp32 weights, gradient and moments of the elements that this rank
     * updates. */
    assert(x->at.w->bytes >= 4 * u.piece.n && x->at.dw->bytes >= 4 * u.piece.n);
    assert(!x->at.opt || x->at.opt->bytes >= 4 * moments * u.piece.n);
    assert(x->at.opt || moments == 0 || u.piece.n == 0);
    assert(u.number >= 1);
    bool finite = (u.piece.m->post_validation ? host_update_ahead : host_update)(&u);
    if (!finite && re->bad.step == 0)
        name_nonfinite(re, &u);
}

/* Runs a norm. A rank may begin its norm with nothing to add. */
static void run_norm(struct replay *re, const struct rt_instr *x, const float *dw, uint64_t *norm) {
    const struct rt_piece none = {re->program->model, &re->program->stage[x->stage], 0, 0};
    if (x->first)
        memcpy(self(re)->found, norm, NORM_BYTES);
    host_norm(dw ? job_piece(re, x) : none, dw, norm, x->first);
}

static void run_instruction(struct replay *re, const struct rt_instr *x) {
    char *arena = self(re)->arena;
    float *dw = (float *)(void *)job_operand(arena, x, ROLE_dw);
    if (x->op == OP_U)
        run_update(re, x);
    else if (x->op == OP_NORM)
        run_norm(re, x, dw, (uint64_t *)(void *)job_operand(arena, x, ROLE_norm));
    else if (x->op == OP_ADD || x->op == OP_TAKE) /* bytes: whole floats */
        host_add(dw, (const float *)(const void *)job_operand(arena, x, ROLE_src), x->bytes / 4, x->first);
    else if (is_copy(x->op)) {
        struct job_copy copy = job_copy(arena, self(re)->host, x);
        memcpy(copy.to, copy.from, (size_t)x->bytes);
    } else if (x->op == OP_COPY)
        memcpy(job_operand(arena, x, ROLE_w), job_operand(arena, x, ROLE_src), (size_t)x->bytes);
    else if (x->op == OP_ZERO)
        memset(dw, 0, (size_t)x->bytes);
    else
        run_job(re, x);
}

static double cpu_clock(const struct replay *re) { return self(re)->times ? thread_seconds() : NAN; }

static void host_launch(struct replay *re, const struct rt_instr *x) {
    double begin = cpu_clock(re);
    run_instruction(re, x);
    self(re)->cpu = cpu_clock(re) - begin;
}

double host_waited(const struct rt_rank *k, const struct rt_stamp *stamp) {
    double wait = 0, before = 0;
    for (int32_t c = k->lane_at[0]; k->nlanes > 0 && c < k->lane_at[1]; c++) {
        const struct rt_stamp *at = &stamp[k->lane_ins[c]];
        wait += c > k->lane_at[0] ? at->start - before : 0;
        before = at->end;
    }
    return wait;
}

static bool host_meet(struct replay *re, const struct rt_instr *x) {
    double start, end, begin = cpu_clock(re);
    struct host_rank *own = self(re);
    assert(is_message(x->op) && !ended(re, (int32_t)(x - re->program->rank[re->rank].ins)));
    if (!(is_group(x->op) ? own->transport->collective : own->transport->message)(own->link, re, x, &start, &end))
        return false;
    own->cpu = cpu_clock(re) - begin;
    host_record(re, (int32_t)(x - re->program->rank[re->rank].ins), start, end);
    return true;
}

static void host_idle(struct replay *re) { self(re)->transport->idle(self(re)->link, re); }

static void host_begin_turn(struct replay *re) {
    if (self(re)->transport->begin)
        self(re)->transport->begin(self(re)->link, re);
}

static void host_end_turn(struct replay *re) {
    if (self(re)->transport->end)
        self(re)->transport->end(self(re)->link, re);
}

const struct device host_device = {
    .wait = host_wait,
    .launch = host_launch,
    .meet = host_meet,
    .record = host_record,
    .clock = host_clock,
    .stamp = host_stamp,
    .idle = host_idle,
    .begin = host_begin_turn,
    .end = host_end_turn,
};

/* Returns n zeroed, page-aligned objects, or NULL if there is no memory. Large allocations use pages of 2 MiB where the
 * system has them, for fewer page faults and TLB misses. */
static void *host_pages(size_t n, size_t size) {
    enum { PAGE = 4096, HUGE_PAGE = 2 << 20 };
    size_t page = n * size < 4 * (size_t)HUGE_PAGE ? PAGE : HUGE_PAGE, bytes = (n * size + page - 1) / page * page;
    void *p = aligned_alloc(page, bytes ? bytes : page);
#ifdef MADV_HUGEPAGE
    if (p && page == HUGE_PAGE)
        madvise(p, bytes, MADV_HUGEPAGE);
#endif
    return p ? memset(p, 0, bytes) : NULL;
}

bool host_take(struct replay *re, struct host_rank *own, const struct rt_program *p, int rank) {
    const struct rt_rank *k = &p->rank[rank];
    *re = (struct replay){.device = &host_device, .program = p, .rank = rank, .running = -1, .self = own};
    re->cursor = host_pages((size_t)k->nlanes, sizeof *re->cursor);
    re->blocked = host_pages((size_t)k->nlanes, sizeof *re->blocked);
    own->arena = host_pages((size_t)k->arena, 1);
    own->host = k->host > 0 ? host_pages((size_t)k->host, 1) : NULL;
    own->ended = host_pages((size_t)k->nins, sizeof *own->ended);
    own->stamp = host_pages((size_t)k->nins, sizeof *own->stamp);
    own->batch = host_pages(data_bytes(p->model), 1);
    return re->cursor && re->blocked && own->arena && (own->host || k->host == 0) && own->ended && own->stamp &&
           own->batch;
}

void host_release(struct replay *re, struct host_rank *own) {
    free(re->cursor);
    free(re->blocked);
    free(own->ended);
    free(own->stamp);
    free(own->batch);
}

/* Makes a shard's initial weights. Makes a whole stage's, since nothing less is possible, and drops the rest. */
static bool first_shard(struct replay *re, const struct rt_home *home, float *w, const struct start *start, char *why,
                        size_t nwhy) {
    const struct rt_model *m = re->program->model;
    const struct rt_stage *s = &re->program->stage[home->stage];
    int64_t held = held_count(m, s, home);
    float *whole = malloc((size_t)weight_count(m, s) * sizeof *whole + 1);
    bool ok = whole && first_weights(start->weights, start->seed, m, s, whole, why, nwhy);
    if (!whole)
        snprintf(why, nwhy, "no memory for initial weights");
    if (ok && held > 0)
        memcpy(w, whole + home->first, (size_t)held * sizeof *w);
    free(whole);
    return ok;
}

/* Sets initial weights. Everything else stays as it is: verify has proved that nothing reads it before it is written.
 */
bool host_begin(struct replay *re, const struct start *start, char *why, size_t nwhy) {
    const struct rt_program *p = re->program;
    const struct rt_rank *k = &p->rank[re->rank];
    bool ok = true;
    self(re)->seed = start->seed;
    for (int i = 0; ok && i < k->nfrozen; i++)
        ok = frozen_weights(p->model, &p->stage[k->frozen[i].stage],
                            (float *)(void *)(self(re)->arena + k->frozen[i].off), why, nwhy);
    for (int i = 0; ok && i < k->nhomes; i++) {
        const struct rt_home *home = &k->home[i];
        const struct rt_stage *s = &p->stage[home->stage];
        float *w = (float *)(void *)(self(re)->arena + home->weight);
        ok = home->count < weight_count(p->model, s)
                 ? first_shard(re, home, w, start, why, nwhy)
                 : first_weights(start->weights, start->seed, p->model, s, w, why, nwhy);
    }
    return ok;
}

static char *arena_in(const struct replay *re, int memory) {
    const struct host_rank *host = self(re);
    return memory == MEMORY_HOST ? host->host : host->arena;
}

struct checkpoint_shard host_pull(const struct replay *re, const struct rt_home *home) {
    struct rt_learned learned = learned_at(re->program->model, &re->program->stage[home->stage], home);
    assert(learned.count >= 0 && learned.count <= home->owned && learned.first == home->own);
    struct checkpoint_shard shard = {.first = learned.first, .count = learned.count, .stride = home->owned};
    shard.weight = (const float *)(void *)(arena_in(re, learned.weight_in) + learned.weight);
    if (learned.moments >= 0)
        shard.moments = (const float *)(void *)(arena_in(re, learned.moments_in) + learned.moments);
    return shard;
}

void host_push(struct replay *re, const struct rt_home *home, const float *weight, const float *moments) {
    const struct rt_model *m = re->program->model;
    const struct rt_stage *s = &re->program->stage[home->stage];
    struct rt_learned learned = learned_at(m, s, home);
    int64_t held = held_count(m, s, home);
    assert(home->first + held <= weight_count(m, s) && learned.first + learned.count <= weight_count(m, s));
    if (held > 0)
        memcpy(arena_in(re, MEMORY_DEVICE) + home->weight, weight + home->first, (size_t)held * sizeof *weight);
    for (int k = 0; learned.count > 0 && k < count_moments(m->optimizer); k++)
        memcpy(arena_in(re, learned.moments_in) + learned.moments + 4 * k * home->owned,
               moments + k * weight_count(m, s) + learned.first, (size_t)learned.count * sizeof *moments);
}
