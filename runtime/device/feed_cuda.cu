/* Transfers of microbatches to a CUDA device, and of their losses back. */
#include "device_cuda.cuh"
extern "C" {
#include "job.h"
}
#include <stdlib.h>

static struct cuda_rank *fed_rank(const struct replay *re) { return (struct cuda_rank *)re->self; }

int32_t cuda_written(const struct rt_program *p) { return written_batches(p) / pieces_of_batch(p->model); }

/* ---- layout of a microbatch: data.h's, with the rows of a slice side by side ---- */

/* Returns the bytes of either half for the rows before this one, over all sequences. */
static size_t bytes_before(const struct rt_model *m, int32_t row) {
    int32_t sequence = m->input == INPUT_TOKENS ? m->context : m->rows;
    return data_half(m) / (size_t)sequence * (size_t)row;
}

struct rt_batch cuda_input(const struct replay *re, const struct rt_instr *x) {
    const struct rt_program *p = re->program;
    const struct rt_model *m = p->model;
    const char *at = fed_rank(re)->feed.input + x->batch / pieces_of_batch(p->model) * (int64_t)data_bytes(m);
    struct rt_batch batch;
    data_point(m, at, bytes_before(m, job_stage(p, x)->layer[0].first), &batch);
    return batch;
}

/* Returns a slice's first layer, of any stage that is here; it has the slice's rows. */
static const struct rt_layer *slice_at(const struct rt_program *p, int32_t q) {
    const struct rt_stage *s = p->slice + q;
    while (s->nlayers == 0)
        s += pieces_of_batch(p->model);
    return s->layer;
}

/* Converts n numbers of x to bf16, in place. */
static void round_input(const struct rt_model *m, char *at, size_t n) {
    if (m->precision != BF16 || m->input == INPUT_TOKENS)
        return;
    for (size_t i = 0; i < n; i++) {
        float x;
        memcpy(&x, at + i * sizeof x, sizeof x);
        __nv_bfloat16 rounded = __float2bfloat16_rn(x);
        memcpy(at + i * sizeof rounded, &rounded, sizeof rounded);
    }
}

static void take_slice(const struct rt_model *m, const struct rt_layer *l, const char *whole, char *to) {
    size_t half = data_half(m), begin = bytes_before(m, l->first), all = bytes_before(m, l->length);
    size_t sequences = (size_t)(l->rows / l->length), each = all / sequences;
    for (int i = 0; i < 2; i++)
        for (size_t s = 0; s < sequences; s++)
            memcpy(to + i * half + begin + s * each, whole + i * half + s * (half / sequences) + begin / sequences,
                   each);
    round_input(m, to + begin, all / sizeof(float));
}

static void make_batch(const struct cuda_rank *own, const struct rt_program *p, const struct data *data, int64_t step,
                       int32_t b, char *to) {
    const struct rt_model *m = p->model;
    struct rt_batch batch;
    data_batch(data, step, b, own->feed.whole ? own->feed.whole : to, &batch);
    if (!own->feed.whole)
        data_keep(m, own->feed.reader, own->feed.loser, to);
    if (!own->feed.whole)
        round_input(m, to, data_half(m) / sizeof(float));
    for (int32_t q = 0; own->feed.whole && q < pieces_of_batch(p->model); q++)
        take_slice(m, slice_at(p, q), own->feed.whole, to);
    if (own->feed.whole)
        memcpy(to + 2 * data_half(m), own->feed.whole + 2 * data_half(m), data_bytes(m) - 2 * data_half(m));
}

/* ---- microbatches that a pass reads, and losses that it makes ---- */

/* Finds the microbatches that a section reads: those that each pass of it uses if a period repeats, otherwise all
 * microbatches. */
static void find_fed(const struct rt_program *p, const struct rt_rank *k, struct cuda_range *fed, int section) {
    int32_t slices = pieces_of_batch(p->model);
    *fed = p->period > 0 ? cuda_range{INT32_MAX, 0} : cuda_range{0, cuda_written(p)};
    for (int32_t i = begin_of(k, section); p->period > 0 && i < begin_of(k, section + 1); i++) {
        const struct rt_instr *x = &k->ins[i];
        if (!is_job(x->op) || !stage_reads_batch(p, x->stage))
            continue;
        fed->from = min(fed->from, x->batch / slices);
        fed->to = max(fed->to, x->batch / slices + 1);
    }
}

/* Finds the microbatches whose losses a section computes; the other losses there are an earlier pass's. made: per
 * microbatch in the tables. */
static struct cuda_range *find_lost(const struct rt_program *p, const struct rt_rank *k, struct cuda_range *at,
                                    int section, bool *made) {
    int32_t n = written_batches(p);
    if (p->period == 0) { /* losses that no rank here computes are 0 */
        *at = {0, n};
        return at + 1;
    }
    memset(made, 0, (size_t)n);
    for (int32_t i = begin_of(k, section); i < begin_of(k, section + 1); i++)
        if (k->ins[i].op == OP_F && tells_loss(&p->stage[k->ins[i].stage]))
            made[k->ins[i].batch] = true;
    for (int32_t b = 0; b < n; b++) {
        if (!made[b])
            continue;
        at->from = b;
        while (b < n && made[b])
            b++;
        at++->to = b;
    }
    return at;
}

/* Finds the layers that select rows. A member of a team reads the same rows in all of its stages. */
static void find_token_readers(struct cuda_rank *own, const struct rt_program *p, const struct rt_rank *k) {
    for (int32_t i = 0; i < k->nins; i++) {
        if (!is_job(k->ins[i].op))
            continue;
        const struct rt_stage *s = &p->stage[k->ins[i].stage];
        if (s->layer[0].x.space == SP_NONE)
            own->feed.reader = s->layer;
        if (ends_in_loss(s))
            own->feed.loser = s->layer + s->nlayers - 1;
    }
}

bool cuda_plan_feeds(struct cuda_rank *own, const struct rt_program *p, const struct rt_rank *k) {
    bool *made = (bool *)calloc((size_t)written_batches(p) + 1, sizeof *made);
    find_token_readers(own, p, k);
    own->feed.whole = p->slice ? (char *)malloc(data_bytes(p->model)) : NULL;
    own->result.lost = (struct cuda_range *)calloc((size_t)written_batches(p) + NSECTIONS, sizeof *own->result.lost);
    for (int s = 0; made && own->result.lost && s < NSECTIONS; s++) {
        own->result.lost_at[s] = s > 0 ? own->result.lost_at[s] : own->result.lost;
        own->result.lost_at[s + 1] = find_lost(p, k, own->result.lost_at[s], s, made);
        find_fed(p, k, &own->feed.fed[s], s);
    }
    free(made);
    return made && own->result.lost && (own->feed.whole || !p->slice);
}

/* ---- passes ---- */

void cuda_feed(struct replay *re, int64_t step, int64_t pass, const struct data *data, cudaStream_t stream) {
    struct cuda_rank *own = fed_rank(re);
    const struct rt_program *p = re->program;
    const struct cuda_range *fed = &own->feed.fed[section_at(p, pass)];
    size_t bytes = data_bytes(p->model), from = (size_t)fed->from * bytes;
    int64_t moved = repetition_at(p, pass) * p->period / pieces_of_batch(p->model);
    if (fed->from >= fed->to)
        return;
    int turn = (int)(own->feed.count++ % 2);
    CUDA(cudaEventSynchronize(own->feed.sent[turn]));
    for (int32_t b = fed->from; b < fed->to; b++)
        make_batch(own, p, data, step, (int32_t)(b + moved), own->feed.staged[turn] + (size_t)b * bytes);
    CUDA(cudaMemcpyAsync(own->feed.input + from, own->feed.staged[turn] + from, (size_t)fed->to * bytes - from,
                         cudaMemcpyHostToDevice, stream));
    CUDA(cudaEventRecord(own->feed.sent[turn], stream));
}

void cuda_tell(struct replay *re, int64_t pass, cudaStream_t stream) {
    struct cuda_rank *own = fed_rank(re);
    const struct rt_program *p = re->program;
    int turn = (int)(re->step % 2), section = section_at(p, pass);
    int64_t moved = repetition_at(p, pass) * p->period;
    for (const struct cuda_range *range = own->result.lost_at[section]; range < own->result.lost_at[section + 1];
         range++)
        CUDA(cudaMemcpyAsync(own->result.told[turn] + moved + range->from, own->loss + range->from,
                             (size_t)(range->to - range->from) * sizeof *own->loss, cudaMemcpyDeviceToHost, stream));
    if (own->result.norm_at >= 0)
        CUDA(cudaMemcpyAsync(own->result.norm[turn], own->arena + own->result.norm_at, NORM_BYTES,
                             cudaMemcpyDeviceToHost, stream));
    if (pass == passes_of(p) - 1)
        CUDA(cudaEventRecord(own->result.came[turn], stream));
}
