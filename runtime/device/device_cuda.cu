/* A CUDA device for the replay core: lanes are streams, waits are events, and the host never waits.
 *
 * All of a rank's device memory is one allocation: the plan's arena, then what every rank needs besides the plan
 * (microbatches, losses, the optimizer's step, the workspace of the products). The plan's arena in host memory is
 * another, of pinned memory: with pageable memory, a copy "might be synchronous with respect to host" (CUDA Runtime
 * API, "API synchronization behavior"), and none of a graph. All of it is allocated at the start. */
#include "device_cuda.cuh"
extern "C" {
#include "store/import.h"
}
extern "C" {
#include "job.h"
}
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>

static struct cuda_rank *self(const struct replay *re) { return (struct cuda_rank *)re->self; }
static const struct rt_rank *stream_of(const struct replay *re) { return &re->program->rank[re->rank]; }
/* Such a lane begins with one. */
static bool has_messages(const struct rt_rank *k, int lane) {
    return k->lane_at[lane] < k->lane_at[lane + 1] && is_message(k->ins[k->lane_ins[k->lane_at[lane]]].op);
}

void cuda_must(cudaError_t code, const char *call) {
    char why[1024];
    if (code == cudaSuccess)
        return;
    fprintf(stderr, "pianola: error: %s\n", cuda_trouble(code, call, why, sizeof why));
    fflush(NULL);
    _Exit(1);
}

/* Code runs on devices of its architecture's major version, PTX on all that are newer (CUDA C++ Programming Guide,
 * "Binary Compatibility" and "PTX Compatibility"). */
bool cuda_fits(const struct cudaDeviceProp *device, char *why, size_t nwhy) {
    if (device->major >= 8)
        return true;
    snprintf(why, nwhy,
             "%s has compute capability %d.%d: Pianola is compiled for sm_80, sm_90, sm_100 and, by compute_80, "
             "newer ones",
             device->name, device->major, device->minor);
    return false;
}

void cuda_store(void *device, const void *host, size_t bytes) {
    if (bytes == 0)
        return;
    CUDA(cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice));
    CUDA(cudaStreamSynchronize(cudaStreamLegacy));
}

/* A driver function, found through the runtime, so that the library loads without a driver. */
static void *driver(const char *name) {
    void *call = NULL;
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSuccess;
    CUDA(cudaGetDriverEntryPointByVersion(name, &call, 12000, cudaEnableDefault, &found));
    if (!call || found != cudaDriverEntryPointSuccess)
        cuda_must(cudaErrorNotSupported, name);
    return call;
}

/* The codes are those of the runtime. */
static CUresult write_word(cudaStream_t stream, uint32_t *word, uint32_t value) {
    static decltype(&cuStreamWriteValue32) write;
    write = write ? write : (decltype(write))driver("cuStreamWriteValue32");
    return write(stream, (CUdeviceptr)(uintptr_t)word, value, CU_STREAM_WRITE_VALUE_DEFAULT);
}

void cuda_write_word(cudaStream_t stream, uint32_t *word, uint32_t value) {
    cuda_must((cudaError_t)write_word(stream, word, value), "cuStreamWriteValue32");
}

/* cuda.h does not say with which code a device refuses. An error that leaves the process inconsistent comes again at
 * the next call. */
bool cuda_writes_word(cudaStream_t stream, uint32_t *word) { return write_word(stream, word, 0) == CUDA_SUCCESS; }

void cuda_take_word(cudaStream_t stream, uint32_t *word, uint32_t value, bool flush) {
    static decltype(&cuStreamBatchMemOp) batch;
    CUstreamBatchMemOpParams both[2] = {};
    batch = batch ? batch : (decltype(batch))driver("cuStreamBatchMemOp");
    both[0].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
    both[0].waitValue.address = (CUdeviceptr)(uintptr_t)word;
    both[0].waitValue.value = value;
    both[0].waitValue.flags = CU_STREAM_WAIT_VALUE_EQ | (flush ? (unsigned)CU_STREAM_WAIT_VALUE_FLUSH : 0);
    both[1].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    both[1].writeValue.address = (CUdeviceptr)(uintptr_t)word;
    both[1].writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
    cuda_must((cudaError_t)batch(stream, 2, both, 0), "cuStreamBatchMemOp");
}

/* ---- the replay core's questions ---- */

static bool device_wait(struct replay *re, const struct rt_instr *x, int32_t i) {
    if (self(re)->issued[i] <= re->turn)
        return false;
    CUDA(cudaStreamWaitEvent(self(re)->lane[x->lane], self(re)->event[i], 0));
    return true;
}

/* A stream that awaits a word may hold up any other that shares its hardware queue, and CUDA does not see what the word
 * orders: cuda.h, on cuStreamWaitValue32 and cuGraphAddBatchMemOpNode, asks for the order "with CUDA-visible
 * dependencies such as events" too. Enqueued steps reach the queues in issue order, which is safe one instruction after
 * another. CUDA does not say which branches of a graph share a queue; that graphs share queues at all has been seen
 * (pytorch#176582: with work of other streams). So there all lanes with messages, and those to host memory and back,
 * are one branch, in issue order, beside that of the compute lane. */
static bool takes_turns(const struct replay *re, const struct rt_instr *x) {
    return self(re)->captured && self(re)->transport->chained &&
           (is_copy(x->op) || has_messages(stream_of(re), x->lane));
}
static void await_turn(struct replay *re, const struct rt_instr *x) {
    struct cuda_rank *own = self(re);
    if (takes_turns(re, x) && own->turned)
        CUDA(cudaStreamWaitEvent(own->lane[x->lane], own->turn, 0));
}
static void end_turn(struct replay *re, const struct rt_instr *x) {
    struct cuda_rank *own = self(re);
    if (!takes_turns(re, x))
        return;
    CUDA(cudaEventRecord(own->turn, own->lane[x->lane]));
    own->turned = true;
}

/* The word is written after the event, so that no lane waits for the write. */
static void device_record(struct replay *re, int32_t i, double start, double end) {
    struct cuda_rank *own = self(re);
    int lane = stream_of(re)->ins[i].lane;
    (void)start, (void)end;
    if (own->event[i])
        CUDA(cudaEventRecord(own->event[i], own->lane[lane]));
    if (own->reached)
        cuda_write_word(own->lane[lane], &own->reached[lane],
                        (uint32_t)(re->cursor[lane] + 1 - stream_of(re)->lane_at[lane]));
    own->issued[i] = re->turn + 1;
    end_turn(re, &stream_of(re)->ins[i]);
}

static void run_job(struct replay *re, const struct rt_instr *x) {
    struct cuda_rank *own = self(re);
    const struct rt_program *p = re->program;
    const struct rt_stage *s = job_stage(p, x);
    cudaStream_t stream = own->lane[x->lane];
    struct rt_batch batch = cuda_input(re, x);
    struct rt_bind at = job_bind(p, re->rank, own->arena, x);
    at.batch = &batch;
    at.loss = own->loss + (x->op == OP_F && tells_loss(s) ? x->batch : written_batches(p));
    bool repeats = re->section == PERIOD;
    int32_t slices = pieces_of_batch(p->model);
    const struct rt_draw draw = {own->seed, 0, (repeats ? x->batch : batch_of(re, x)) / slices,
                                 repeats ? p->period / slices : 0, own->counted};
    at.draw = re->purpose == TRAINS ? &draw : NULL;
    at.routed = x->op == OP_F && tells_routed(s) && re->purpose == TRAINS ? own->routed : NULL;
    if (x->op == OP_F && x->at.input && (at.at[SP_X] || !begins_job(p, x))) { /* recompute: keep the input only */
        char *input = job_operand(own->arena, x, ROLE_input);
        if (begins_job(p, x)) {
            CUDA(cudaMemcpyAsync(input, at.at[SP_X], (size_t)s->input, cudaMemcpyDeviceToDevice, stream));
            cuda_add_more(p->model, &at, input, s->input / precision_bytes(p->model->precision), stream);
        }
        at.at[SP_X] = input;
        at.more = NULL;
    }
    if (x->op == OP_F || x->op == OP_R)
        cuda_forward_part(p->model, s, &at, x->from, job_end(p, x), own->workspace, stream);
    else
        cuda_backward_part(p->model, s, &at, x->op != OP_W, x->op != OP_I, x->sweep, x->from, job_end(p, x),
                           &own->ahead, own->workspace, stream);
}

/* A graph of the period is launched for each repetition: the device counts those. */
static void run_update(struct replay *re, const struct rt_instr *x, cudaStream_t stream) {
    struct cuda_rank *own = self(re);
    const struct rt_program *p = re->program;
    const struct rt_stage *s = &p->stage[x->stage];
    struct cuda_number number = {
        own->counted, updates_per_step(p->batches, s), update_of(re, x), 0, update_total(re, x), NULL, 0};
    if (re->section == PERIOD && s->update > 0) {
        number.place = x->batch;
        number.more = p->period / s->update;
    }
    const struct rt_home *home = home_on(stream_of(re), x->stage);
    const struct rt_buffer *work = stream_of(re)->work;
    void *w = job_operand(own->arena, x, ROLE_w);
    const float *dw = (const float *)job_operand(own->arena, x, ROLE_dw);
    const uint64_t *norm = (const uint64_t *)job_operand(own->arena, x, ROLE_norm);
    float *opt = (float *)job_operand(own->arena, x, ROLE_opt), scale = update_scale(p->model, s);
    float *space = work ? (float *)(own->arena + work->off) : NULL;
    if (p->model->post_validation)
        cuda_update_ahead(p->model, s, home->own, home->owned, w, dw, scale, norm, opt, &number, re->purpose == SETTLES,
                          space, own->workspace, stream);
    else
        cuda_update(p->model, s, home->own, home->owned, w, dw, scale, norm, opt, &number, space, own->workspace,
                    stream);
}

/* A rank may begin its norm with nothing to add. The workspace is the compute lane's. */
static void run_norm(struct replay *re, const struct rt_instr *x, const float *dw, cudaStream_t stream) {
    struct cuda_rank *own = self(re);
    const struct rt_program *p = re->program;
    static const struct rt_home none = {};
    const struct rt_home *home = dw ? home_on(stream_of(re), x->stage) : &none;
    uint64_t *norm = (uint64_t *)job_operand(own->arena, x, ROLE_norm);
    if (x->first)
        CUDA(cudaMemcpyAsync(own->found, norm, NORM_BYTES, cudaMemcpyDeviceToHost, stream));
    cuda_norm(p->model, &p->stage[x->stage], home->own, home->owned, dw, norm, x->first, own->workspace, stream);
}

/* The two directions have lanes of their own, and so streams and copy engines. */
static void copy_host(const struct cuda_rank *own, const struct rt_instr *x, cudaStream_t stream) {
    const struct job_copy copy = job_copy(own->arena, own->host, x);
    CUDA(cudaMemcpyAsync(copy.to, copy.from, (size_t)x->bytes,
                         op_row(x->op)->lane == LANE_OFFLOAD ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice,
                         stream));
}

static void run_instr(struct replay *re, const struct rt_instr *x, cudaStream_t stream) {
    struct cuda_rank *own = self(re);
    float *dw = (float *)job_operand(own->arena, x, ROLE_dw);
    if (x->op == OP_U)
        run_update(re, x, stream);
    else if (x->op == OP_NORM)
        run_norm(re, x, dw, stream);
    else if (x->op == OP_ADD || x->op == OP_TAKE)
        cuda_add(dw, (const float *)job_operand(own->arena, x, ROLE_src), x->bytes / 4, x->first, stream);
    else if (is_job(x->op))
        run_job(re, x);
    else if (x->bytes > 0 && is_copy(x->op))
        copy_host(own, x, stream);
    else if (x->bytes > 0 && x->op == OP_COPY)
        CUDA(cudaMemcpyAsync(job_operand(own->arena, x, ROLE_w), job_operand(own->arena, x, ROLE_src), (size_t)x->bytes,
                             cudaMemcpyDeviceToDevice, stream));
    else if (x->bytes > 0 && x->op == OP_ZERO)
        CUDA(cudaMemsetAsync(dw, 0, (size_t)x->bytes, stream));
}

static void device_launch(struct replay *re, const struct rt_instr *x) {
    struct cuda_rank *own = self(re);
    int32_t i = (int32_t)(x - stream_of(re)->ins);
    cuda_enter(re, x);
    await_turn(re, x);
    cuda_mark(own, i, false, own->lane[x->lane]);
    run_instr(re, x, own->lane[x->lane]);
    cuda_mark(own, i, true, own->lane[x->lane]);
    cuda_leave();
}

static bool device_meet(struct replay *re, const struct rt_instr *x) {
    struct cuda_rank *own = self(re);
    cuda_enter(re, x);
    await_turn(re, x);
    bool met = (is_group(x->op) ? own->transport->collective : own->transport->message)(own->link, re, x);
    cuda_leave();
    if (!met)
        return false;
    device_record(re, (int32_t)(x - stream_of(re)->ins), 0, 0);
    return true;
}

/* ---- times, measured by the device ---- */

static double no_clock(struct replay *re) {
    (void)re;
    return 0;
}
static bool no_stamp(struct replay *re, int32_t i, double *start, double *end) {
    (void)re, (void)i, (void)start, (void)end;
    return false;
}
static void no_idle(struct replay *re) { (void)re; }

extern const struct device cuda_device = {device_wait, device_launch, device_meet, device_record,
                                          no_clock,    no_stamp,      no_idle};

/* An event recorded in a capture has a time only if it is recorded as external: a node of the graph, which each launch
 * records anew. */
void cuda_mark(const struct cuda_rank *own, int32_t i, bool end, cudaStream_t stream) {
    if (own->timed == UNTIMED)
        return;
    CUDA(cudaEventRecordWithFlags(end ? own->span[i].end : own->span[i].begin, stream,
                                  own->timed == TIMED_CAPTURE ? cudaEventRecordExternal : cudaEventRecordDefault));
}

const char *cuda_time(struct cuda_rank *own, const struct rt_rank *k) {
    own->span = (struct cuda_span *)calloc((size_t)k->nins + 1, sizeof *own->span);
    if (!own->span)
        return "no memory on the host";
    for (int32_t i = 0; i < k->nins; i++) {
        CUDA(cudaEventCreateWithFlags(&own->span[i].begin, cudaEventDefault));
        CUDA(cudaEventCreateWithFlags(&own->span[i].end, cudaEventDefault));
    }
    return NULL;
}

void cuda_stamps(const struct cuda_rank *own, const struct rt_rank *k, cudaEvent_t since, double began,
                 struct rt_stamp *stamp) {
    for (int32_t i = 0; i < k->nins; i++) {
        float begin, end;
        CUDA(cudaEventElapsedTime(&begin, since, own->span[i].begin));
        CUDA(cudaEventElapsedTime(&end, since, own->span[i].end));
        stamp[i].start = began + 1e-3 * begin;
        stamp[i].end = began + 1e-3 * end;
    }
}

/* ---- memory ---- */

enum { REGION = 4096 };
static int64_t whole_blocks(int64_t bytes) { return (bytes + REGION - 1) / REGION * REGION; }

static int64_t lay_out_arena(const struct rt_program *p, int rank, const struct cuda_transport *transport,
                             struct cuda_rank *own) {
    int64_t at = whole_blocks(p->rank[rank].arena), batches = written_batches(p);
    int64_t input = whole_blocks(cuda_written(p) * (int64_t)data_bytes(p->model));
    char *base = own ? own->arena : NULL;
    if (own) {
        own->input = base + at;
        own->loss = (float *)(base + at + input);
    }
    at += input + whole_blocks((batches + 1) * (int64_t)sizeof *own->loss);
    if (own) {
        own->counted = (int64_t *)(base + at);
        own->routed = (struct rt_routed *)(own->counted + 2);
        own->workspace = base + at + REGION;
        own->extra = base + at + REGION + whole_blocks(cuda_workspace());
    }
    return at + REGION + whole_blocks(cuda_workspace()) + (transport->extra ? transport->extra(p, rank) : 0);
}

int64_t cuda_rank_bytes(const struct rt_program *p, int rank, const struct cuda_transport *transport) {
    return lay_out_arena(p, rank, transport, NULL);
}

/* Only one of the errors means a lack of memory. */
static void put_lack(cudaError_t code, const char *call, const char *lack, char *why, size_t n) {
    cudaGetLastError(); /* no error of the next launch's */
    if (code == cudaErrorMemoryAllocation)
        snprintf(why, n, "%s", lack);
    else
        cuda_trouble(code, call, why, n);
}

char *cuda_allocate(size_t bytes, char *why, size_t n) {
    char *p = NULL;
    cudaError_t code = cudaMalloc((void **)&p, bytes);
    if (code == cudaSuccess)
        return p;
    put_lack(code, "cudaMalloc", "no memory on the device", why, n);
    return NULL;
}

/* Writing it all at once also settles where it lies: near the processors that this process runs on. */
static bool take_host(struct cuda_rank *own, int64_t bytes, char *why, size_t n) {
    cudaError_t code = cudaHostAlloc((void **)&own->host, (size_t)bytes, cudaHostAllocDefault);
    if (code != cudaSuccess) {
        own->host = NULL;
        put_lack(code, "cudaHostAlloc", "no pinned memory on the host", why, n);
        return false;
    }
    own->host_bytes = bytes;
    memset(own->host, 0, (size_t)bytes);
    return true;
}

const char *cuda_take(struct replay *re, struct cuda_rank *own, const struct rt_program *p, int rank,
                      const struct cuda_transport *transport, bool watched) {
    const struct rt_rank *k = &p->rank[rank];
    size_t bytes = (size_t)cuda_rank_bytes(p, rank, transport);
    memset(re, 0, sizeof *re);
    memset(own, 0, sizeof *own);
    re->device = &cuda_device;
    re->program = p;
    re->rank = rank;
    re->running = -1;
    re->self = own;
    re->cursor = (int32_t *)calloc((size_t)k->nlanes + 1, sizeof *re->cursor);
    re->blocked = (bool *)calloc((size_t)k->nlanes + 1, sizeof *re->blocked);
    own->lane = (cudaStream_t *)calloc((size_t)k->nlanes + 1, sizeof *own->lane);
    own->event = (cudaEvent_t *)calloc((size_t)k->nins + 1, sizeof *own->event);
    own->issued = (int64_t *)calloc((size_t)k->nins + 1, sizeof *own->issued);
    if (!re->cursor || !re->blocked || !own->lane || !own->event || !own->issued || !cuda_plan_feeds(own, p, k))
        return "no memory on the host";
    own->norm_at = norm_at(k);
    own->transport = transport;
    own->arena = transport->take(rank, bytes, own->why, sizeof own->why);
    if (!own->arena)
        return own->why;
    CUDA(cudaMemset(own->arena, 0, bytes));
    if (k->host > 0 && !take_host(own, k->host, own->why, sizeof own->why))
        return own->why;
    lay_out_arena(p, rank, transport, own);
    if (watched) {
        CUDA(cudaMallocHost((void **)&own->reached, sizeof *own->reached * (size_t)(k->nlanes + 1)));
        memset(own->reached, 0, sizeof *own->reached * (size_t)(k->nlanes + 1));
        re->reached = own->reached;
    }
    int least, greatest;
    CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    for (int l = 0; l < k->nlanes; l++) /* others wait for messages: their kernels come before those of layers */
        CUDA(cudaStreamCreateWithPriority(&own->lane[l], cudaStreamNonBlocking, has_messages(k, l) ? greatest : least));
    for (int32_t i = 0; i < k->nins; i++)
        if (k->ins[i].name)
            CUDA(cudaEventCreateWithFlags(&own->event[i], cudaEventDisableTiming));
    if (transport->chained)
        CUDA(cudaEventCreateWithFlags(&own->turn, cudaEventDisableTiming));
    CUDA(cudaMallocHost((void **)&own->found, NORM_BYTES));
    for (int t = 0; t < 2; t++) {
        CUDA(cudaMallocHost((void **)&own->staged[t], (size_t)cuda_written(p) * data_bytes(p->model)));
        CUDA(cudaMallocHost((void **)&own->norm[t], NORM_BYTES));
        CUDA(cudaMallocHost((void **)&own->told[t], (size_t)p->batches * sizeof *own->told[t]));
        memset(own->told[t], 0, (size_t)p->batches * sizeof *own->told[t]);
        CUDA(cudaEventCreateWithFlags(&own->sent[t], cudaEventDisableTiming));
        CUDA(cudaEventCreateWithFlags(&own->came[t], cudaEventDisableTiming));
    }
    return NULL;
}

void cuda_release(struct replay *re, struct cuda_rank *own) {
    const struct rt_rank *k = stream_of(re);
    for (int l = 0; l < k->nlanes; l++)
        cudaStreamDestroy(own->lane[l]);
    for (int32_t i = 0; i < k->nins; i++)
        if (own->event[i])
            cudaEventDestroy(own->event[i]);
    for (int32_t i = 0; own->span && i < k->nins; i++) {
        cudaEventDestroy(own->span[i].begin);
        cudaEventDestroy(own->span[i].end);
    }
    cudaFreeHost(own->found);
    for (int t = 0; t < 2; t++) {
        cudaFreeHost(own->staged[t]);
        cudaFreeHost(own->norm[t]);
        cudaFreeHost(own->told[t]);
        cudaEventDestroy(own->sent[t]);
        cudaEventDestroy(own->came[t]);
    }
    if (own->turn)
        cudaEventDestroy(own->turn);
    if (own->reached)
        cudaFreeHost(own->reached);
    if (own->host)
        cudaFreeHost(own->host);
    own->transport->give(own->arena);
    free(own->lane);
    free(own->event);
    free(own->issued);
    free(own->lost);
    free(own->whole);
    free(own->span);
    free(re->cursor);
    free(re->blocked);
}

/* Stores the bytes of a set's state, which are the host's, at an offset of the arena in that memory. */
static void store_state(struct replay *re, int memory, int64_t off, const void *from, size_t bytes) {
    if (memory == MEMORY_HOST)
        memcpy(self(re)->host + off, from, bytes);
    else
        cuda_store(self(re)->arena + off, from, bytes);
}

/* Sets a home's weights from the whole set's, fp32: with bf16 they are rounded, and those that it updates have w as
 * their masters. */
static void store_weights(struct replay *re, const struct rt_home *home, const float *w) {
    char *arena = self(re)->arena;
    const struct rt_model *m = re->program->model;
    const struct rt_stage *s = &re->program->stage[home->stage];
    const int64_t n = held_count(m, s, home);
    const struct rt_learned to = learned_at(m, s, home);
    if (m->precision != BF16) {
        cuda_store(arena + home->weight, w + home->first, (size_t)n * sizeof *w);
        return;
    }
    store_state(re, to.weight_in, to.weight, w + to.first, (size_t)to.count * sizeof *w);
    __nv_bfloat16 *rounded = (__nv_bfloat16 *)malloc((size_t)n * sizeof *rounded + 1);
    if (!rounded)
        cuda_must(cudaErrorMemoryAllocation, "weights on the host");
    for (int64_t i = 0; i < n; i++)
        rounded[i] = __float2bfloat16_rn(w[home->first + i]);
    cuda_store(arena + home->weight, rounded, (size_t)n * sizeof *rounded);
    free(rounded);
}

bool cuda_begin(struct replay *re, const struct start *start, char *why, size_t nwhy) {
    struct cuda_rank *own = self(re);
    const struct rt_program *p = re->program;
    const struct rt_rank *k = stream_of(re);
    const int64_t none = 0;
    cuda_store(own->counted, &none, sizeof none);
    own->seed = start->seed;
    bool ok = true;
    for (int i = 0; ok && i < k->nhomes; i++) {
        const struct rt_stage *s = &p->stage[k->home[i].stage];
        float *w = (float *)malloc((size_t)weight_count(p->model, s) * sizeof *w + 1);
        if (!w)
            cuda_must(cudaErrorMemoryAllocation, "initial weights on the host");
        ok = first_weights(start->weights, start->seed, p->model, s, w, why, nwhy);
        if (ok)
            store_weights(re, &k->home[i], w);
        free(w);
    }
    return ok;
}

/* n floats at an offset of a memory's arena: what is in host memory is read there, all else copied to the mirror. */
static const float *pull_floats(const struct cuda_rank *own, int memory, int64_t off, int64_t n, float *mirror) {
    if (memory == MEMORY_HOST)
        return (const float *)(own->host + off);
    if (n > 0)
        CUDA(cudaMemcpy(mirror, own->arena + off, (size_t)n * sizeof *mirror, cudaMemcpyDeviceToHost));
    return mirror;
}

struct checkpoint_shard cuda_pull(const struct replay *re, const struct rt_home *home, float *mirror) {
    const struct rt_model *m = re->program->model;
    const struct rt_learned learned = learned_at(m, &re->program->stage[home->stage], home);
    struct checkpoint_shard shard = {learned.first, learned.count, NULL, NULL, home->owned};
    shard.weight = pull_floats(self(re), learned.weight_in, learned.weight, learned.count, mirror);
    if (learned.moments >= 0)
        shard.moments = pull_floats(self(re), learned.moments_in, learned.moments,
                                    count_moments(m->optimizer) * home->owned, mirror + home->owned);
    return shard;
}

void cuda_push(struct replay *re, const struct rt_home *home, const float *weight, const float *moments) {
    const struct rt_model *m = re->program->model;
    const struct rt_stage *s = &re->program->stage[home->stage];
    const struct rt_learned learned = learned_at(m, s, home);
    store_weights(re, home, weight);
    for (int k = 0; learned.count > 0 && k < count_moments(m->optimizer); k++)
        store_state(re, learned.moments_in, learned.moments + 4 * k * home->owned,
                    moments + k * weight_count(m, s) + learned.first, (size_t)learned.count * sizeof *moments);
}
