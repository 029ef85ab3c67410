/* A CUDA device for the replay core: lanes are streams, waits are events, and the host never waits. */
#include "device_cuda.cuh"
extern "C" {
#include "job.h"
}
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>

static const struct rt_rank *stream_of(const struct replay *re) { return &re->program->rank[re->rank]; }

void cuda_must(cudaError_t code, const char *call) {
    char why[1024];
    if (code == cudaSuccess)
        return;
    fprintf(stderr, "pianola: error: %s\n", cuda_trouble(code, call, why, sizeof why));
    fflush(NULL);
    _Exit(1);
}

/* Returns whether code fits the device. Binaries run on devices of their architecture's major version, PTX on all newer
 * ones (CUDA C++ Programming Guide, "Binary Compatibility" and "PTX Compatibility"). */
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

void *cuda_driver(const char *name) {
    void *call = NULL;
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSuccess;
    CUDA(cudaGetDriverEntryPointByVersion(name, &call, 12000, cudaEnableDefault, &found));
    if (!call || found != cudaDriverEntryPointSuccess)
        cuda_must(cudaErrorNotSupported, name);
    return call;
}

/* Writes a word. The driver's error codes are the runtime's. */
static CUresult write_word(cudaStream_t stream, uint32_t *word, uint32_t value) {
    static decltype(&cuStreamWriteValue32) write;
    write = write ? write : (decltype(write))cuda_driver("cuStreamWriteValue32");
    return write(stream, (CUdeviceptr)(uintptr_t)word, value, CU_STREAM_WRITE_VALUE_DEFAULT);
}

void cuda_write_word(cudaStream_t stream, uint32_t *word, uint32_t value) {
    cuda_must((cudaError_t)write_word(stream, word, value), "cuStreamWriteValue32");
}

/* Returns whether the device can write the word. cuda.h does not say with which code a device refuses. An error that
 * leaves the process inconsistent is reported again by the next call. */
bool cuda_writes_word(cudaStream_t stream, uint32_t *word) { return write_word(stream, word, 0) == CUDA_SUCCESS; }

void cuda_take_word(cudaStream_t stream, uint32_t *word, uint32_t value, bool flush) {
    static decltype(&cuStreamBatchMemOp) batch;
    CUstreamBatchMemOpParams both[2] = {};
    batch = batch ? batch : (decltype(batch))cuda_driver("cuStreamBatchMemOp");
    both[0].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
    both[0].waitValue.address = (CUdeviceptr)(uintptr_t)word;
    both[0].waitValue.value = value;
    both[0].waitValue.flags = CU_STREAM_WAIT_VALUE_EQ | (flush ? (unsigned)CU_STREAM_WAIT_VALUE_FLUSH : 0);
    both[1].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    both[1].writeValue.address = (CUdeviceptr)(uintptr_t)word;
    both[1].writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
    cuda_must((cudaError_t)batch(stream, 2, both, 0), "cuStreamBatchMemOp");
}

/* ---- the replay core's callbacks ---- */

static bool device_wait(struct replay *re, const struct rt_instr *x, int32_t i) {
    if (cuda_rank_of(re)->issued[i] <= re->turn)
        return false;
    CUDA(cudaStreamWaitEvent(cuda_rank_of(re)->lane[x->lane], cuda_rank_of(re)->event[i], 0));
    return true;
}

/* Returns whether an instruction's lane is part of the one branch of a graph that has messages and copies, in issue
 * order. A stream that awaits a word may hold up any other that shares its hardware queue, and CUDA does not see the
 * order that the word imposes: cuda.h, on cuStreamWaitValue32 and cuGraphAddBatchMemOpNode, asks for the order "with
 * CUDA-visible dependencies such as events" too. Enqueued steps reach the queues in issue order, which is safe even if
 * instructions run one after another. CUDA does not say which branches of a graph share a queue, but graphs have been
 * seen to share queues (pytorch#176582: with other streams' work). So in a graph, all lanes with messages, and those to
 * host memory and back, form one branch, in issue order, beside the compute lane's. */
static bool takes_turns(const struct replay *re, const struct rt_instr *x) {
    return cuda_rank_of(re)->captured && cuda_rank_of(re)->transport->chained &&
           (is_copy(x->op) || cuda_has_messages(stream_of(re), x->lane));
}
static void await_turn(struct replay *re, const struct rt_instr *x) {
    struct cuda_rank *own = cuda_rank_of(re);
    if (takes_turns(re, x) && own->turned)
        CUDA(cudaStreamWaitEvent(own->lane[x->lane], own->turn, 0));
}
static void end_turn(struct replay *re, const struct rt_instr *x) {
    struct cuda_rank *own = cuda_rank_of(re);
    if (!takes_turns(re, x))
        return;
    CUDA(cudaEventRecord(own->turn, own->lane[x->lane]));
    own->turned = true;
}

/* Records the event before the word is written, so that no lane waits for the write. */
static void device_record(struct replay *re, int32_t i, double start, double end) {
    struct cuda_rank *own = cuda_rank_of(re);
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
    struct cuda_rank *own = cuda_rank_of(re);
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
        cuda_backward_part(p->model, s, &at, job_sweep(p, x), &own->ahead, own->workspace, stream);
}

/* Runs an update. The device counts repetitions of the period itself, since each repetition launches the same graph. */
static void run_update(struct replay *re, const struct rt_instr *x, cudaStream_t stream) {
    struct cuda_rank *own = cuda_rank_of(re);
    const struct rt_program *p = re->program;
    const struct rt_update u = job_update(re, own->arena, x);
    const struct rt_stage *s = u.piece.s;
    struct cuda_number number = {own->counted, updates_per_step(p->batches, s), update_of(re, x), 0, u.of, NULL, 0};
    if (re->section == PERIOD && s->update > 0) {
        number.place = x->batch;
        number.more = p->period / s->update;
    }
    (p->model->post_validation ? cuda_update_ahead : cuda_update)(&u, &number, own->workspace, stream);
}

/* Runs a norm. A rank may begin its norm with nothing to add. The workspace is the compute lane's. */
static void run_norm(struct replay *re, const struct rt_instr *x, const float *dw, cudaStream_t stream) {
    struct cuda_rank *own = cuda_rank_of(re);
    const struct rt_piece none = {re->program->model, &re->program->stage[x->stage], 0, 0};
    uint64_t *norm = (uint64_t *)job_operand(own->arena, x, ROLE_norm);
    if (x->first)
        CUDA(cudaMemcpyAsync(own->result.found, norm, NORM_BYTES, cudaMemcpyDeviceToHost, stream));
    cuda_norm(dw ? job_piece(re, x) : none, dw, norm, x->first, own->workspace, stream);
}

/* Copies to or from host memory. Each direction has its own lane, and so its own stream and copy engine. */
static void copy_host(const struct cuda_rank *own, const struct rt_instr *x, cudaStream_t stream) {
    const struct job_copy copy = job_copy(own->arena, own->host, x);
    CUDA(cudaMemcpyAsync(copy.to, copy.from, (size_t)x->bytes,
                         op_row(x->op)->lane == LANE_OFFLOAD ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice,
                         stream));
}

static void run_instr(struct replay *re, const struct rt_instr *x, cudaStream_t stream) {
    struct cuda_rank *own = cuda_rank_of(re);
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
    struct cuda_rank *own = cuda_rank_of(re);
    int32_t i = (int32_t)(x - stream_of(re)->ins);
    cuda_enter(re, x);
    await_turn(re, x);
    cuda_mark(own, i, false, own->lane[x->lane]);
    run_instr(re, x, own->lane[x->lane]);
    cuda_mark(own, i, true, own->lane[x->lane]);
    cuda_leave();
}

static bool device_meet(struct replay *re, const struct rt_instr *x) {
    struct cuda_rank *own = cuda_rank_of(re);
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

/* Marks an instruction's begin or end. An event recorded in a capture has a time only if it is recorded as external:
 * then it is a node of the graph, and each launch records it anew. */
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
