/* A CUDA rank's memory and its state in it.
 *
 * All of a rank's device memory is one allocation: the plan's arena, then what every rank needs besides the plan
 * (microbatches, losses, the optimizer's step, the workspace of the products). The plan's arena in host memory is
 * another allocation, of pinned memory. With pageable memory, a copy "might be synchronous with respect to host" (CUDA
 * Runtime API, "API synchronization behavior") and could not be part of a graph. Everything is allocated at the start.
 */
#include "device_cuda.cuh"
extern "C" {
#include "store/import.h"
}
#include <stdio.h>
#include <stdlib.h>

enum { REGION = 4096 };
static int64_t whole_blocks(int64_t bytes) { return (bytes + REGION - 1) / REGION * REGION; }

static int64_t lay_out_arena(const struct rt_program *p, int rank, const struct cuda_transport *transport,
                             struct cuda_rank *own) {
    int64_t at = whole_blocks(p->rank[rank].arena), batches = written_batches(p);
    int64_t input = whole_blocks(cuda_written(p) * (int64_t)data_bytes(p->model));
    char *base = own ? own->arena : NULL;
    if (own) {
        own->feed.input = base + at;
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

/* Writes why an allocation failed. Only one of the errors means a lack of memory. */
static void put_lack(cudaError_t code, const char *call, const char *lack, char *why, size_t n) {
    cudaGetLastError(); /* keeps the next launch from reporting it */
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

/* Allocates pinned memory. Writing all of it at once also places its pages near this process's processors.
 */
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
    own->result.norm_at = norm_at(k);
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
    for (int l = 0; l < k->nlanes; l++) /* messages' kernels come before layers': other lanes wait for them */
        CUDA(cudaStreamCreateWithPriority(&own->lane[l], cudaStreamNonBlocking,
                                          cuda_has_messages(k, l) ? greatest : least));
    for (int32_t i = 0; i < k->nins; i++)
        if (k->ins[i].name)
            CUDA(cudaEventCreateWithFlags(&own->event[i], cudaEventDisableTiming));
    if (transport->chained)
        CUDA(cudaEventCreateWithFlags(&own->turn, cudaEventDisableTiming));
    CUDA(cudaMallocHost((void **)&own->result.found, NORM_BYTES));
    for (int t = 0; t < 2; t++) {
        CUDA(cudaMallocHost((void **)&own->feed.staged[t], (size_t)cuda_written(p) * data_bytes(p->model)));
        CUDA(cudaMallocHost((void **)&own->result.norm[t], NORM_BYTES));
        CUDA(cudaMallocHost((void **)&own->result.told[t], (size_t)p->batches * sizeof *own->result.told[t]));
        memset(own->result.told[t], 0, (size_t)p->batches * sizeof *own->result.told[t]);
        CUDA(cudaEventCreateWithFlags(&own->feed.sent[t], cudaEventDisableTiming));
        CUDA(cudaEventCreateWithFlags(&own->result.came[t], cudaEventDisableTiming));
    }
    return NULL;
}

void cuda_release(struct replay *re, struct cuda_rank *own) {
    const struct rt_rank *k = &re->program->rank[re->rank];
    for (int l = 0; l < k->nlanes; l++)
        cudaStreamDestroy(own->lane[l]);
    for (int32_t i = 0; i < k->nins; i++)
        if (own->event[i])
            cudaEventDestroy(own->event[i]);
    for (int32_t i = 0; own->span && i < k->nins; i++) {
        cudaEventDestroy(own->span[i].begin);
        cudaEventDestroy(own->span[i].end);
    }
    cudaFreeHost(own->result.found);
    for (int t = 0; t < 2; t++) {
        cudaFreeHost(own->feed.staged[t]);
        cudaFreeHost(own->result.norm[t]);
        cudaFreeHost(own->result.told[t]);
        cudaEventDestroy(own->feed.sent[t]);
        cudaEventDestroy(own->result.came[t]);
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
    free(own->result.lost);
    free(own->feed.whole);
    free(own->span);
    free(re->cursor);
    free(re->blocked);
}

/* Copies a part of a set's state from the host to an offset of an arena, in the device's or host memory. */
static void store_state(struct replay *re, int memory, int64_t off, const void *from, size_t bytes) {
    if (memory == MEMORY_HOST)
        memcpy(cuda_rank_of(re)->host + off, from, bytes);
    else
        cuda_store(cuda_rank_of(re)->arena + off, from, bytes);
}

/* Sets a home's weights from the whole set's, in fp32. With bf16, rounds them and stores w as the masters of those that
 * the home updates. */
static void store_weights(struct replay *re, const struct rt_home *home, const float *w) {
    char *arena = cuda_rank_of(re)->arena;
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

/* Sets the frozen parameters of the stages that the rank computes. */
static bool begin_frozen(struct replay *re, char *why, size_t nwhy) {
    const struct rt_rank *k = &re->program->rank[re->rank];
    bool ok = true;
    for (int i = 0; ok && i < k->nfrozen; i++) {
        const struct rt_stage *s = &re->program->stage[k->frozen[i].stage];
        float *w = (float *)calloc(1, (size_t)s->frozen);
        if (!w)
            cuda_must(cudaErrorMemoryAllocation, "frozen weights on the host");
        ok = frozen_weights(re->program->model, s, w, why, nwhy);
        if (ok)
            cuda_store(cuda_rank_of(re)->arena + k->frozen[i].off, w, (size_t)s->frozen);
        free(w);
    }
    return ok;
}

bool cuda_begin(struct replay *re, const struct start *start, char *why, size_t nwhy) {
    struct cuda_rank *own = cuda_rank_of(re);
    const struct rt_program *p = re->program;
    const struct rt_rank *k = &re->program->rank[re->rank];
    const int64_t none = 0;
    cuda_store(own->counted, &none, sizeof none);
    own->seed = start->seed;
    bool ok = begin_frozen(re, why, nwhy);
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

/* Returns n floats at an offset of an arena. Host memory is read in place; device memory is copied to the mirror. */
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
    shard.weight = pull_floats(cuda_rank_of(re), learned.weight_in, learned.weight, learned.count, mirror);
    if (learned.moments >= 0)
        shard.moments = pull_floats(cuda_rank_of(re), learned.moments_in, learned.moments,
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
