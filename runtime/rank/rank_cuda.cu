/* A rank's process on a GPU: the step as one graph, messages by NCCL or, inside a host, by copies.
 *
 * The process's one thread enqueues and then asks, again and again, whether the step has ended: it waits in no call, so
 * that an error, a rank that is gone or the watch's deadline can always end it. The watch itself calls nothing of CUDA,
 * which would break a capture: it reads how far the device has come in words that the device writes to host memory. */
#include "device/device_cuda.cuh"
extern "C" {
#include "rank_run.h"
#include "comm/transports.h"
#include "comm/watch.h"
#include "store/seconds.h"
}
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

struct rank_backend {
    struct cuda_rank rank;
    struct cuda_steps steps;
    bool begun;      /* a step has been run */
    double since;    /* when the first began, by the host */
    float *mirror;   /* host memory: what the largest home has learned */
    int64_t free[4]; /* device memory, as the device counts: before anything, with the arena, connected, after a step */
};
extern "C" const char backend_kind[] = "GPU";

/* The process's, for backend_abort, which any thread may call. */
static struct {
    struct rank_backend *backend; /* NULL: there is nothing to abort yet */
    char name[256];               /* of the GPU */
    int number, aborted;
} own;

/* A lane that waits holds up what comes behind it in the same hardware queue. There are 8 where nothing is said. */
extern "C" void backend_open(const struct rt_self *self, const struct rt_tables *tables) {
    (void)self, (void)tables;
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
}

static const struct cuda_transport *transport_of(const struct rank_run *r) {
    static const struct cuda_transport *const transport[] = {
#define X(name, ...) &cuda_##name,
        CUDA_TRANSPORTS(X)
#undef X
    };
    return transport[r->flags.messages];
}

/* ---- which GPU ---- */

struct gpu {
    char host[256], uuid[16];
    int devices, number;
};

/* Its rank among its host's ranks: as the launcher says, else by counting. */
static int local_rank(const struct rank_run *r, const struct gpu *all) {
    int me = r->world.rank, local = 0;
    for (int k = 0; k < me; k++)
        local += strcmp(all[k].host, all[me].host) == 0;
    return r->flags.launch.local >= 0 ? r->flags.launch.local : local;
}

/* Where each process is shown GPUs of its own (Slurm can do that), they all have the same number, but are not one. */
static bool alone(const struct rank_run *r, const struct gpu *all, char *why, size_t n) {
    const struct gpu *me = &all[r->world.rank];
    for (int k = 0; k < r->world.size; k++)
        if (k != r->world.rank && strcmp(all[k].host, me->host) == 0 &&
            memcmp(all[k].uuid, me->uuid, sizeof me->uuid) == 0) {
            snprintf(why, n,
                     "ranks %d and %d would share GPU %d of %s, a %s: each needs its own, and %d %s there to be seen; "
                     "to try things out, --messages put lets ranks share one",
                     min(k, r->world.rank), max(k, r->world.rank), me->number, me->host, own.name, me->devices,
                     me->devices == 1 ? "is" : "are");
            return false;
        }
    return true;
}

static bool together(const struct rank_run *r, const struct gpu *all, char *why, size_t n) {
    for (int k = 1; k < r->world.size; k++)
        if (strcmp(all[k].host, all->host) != 0) {
            snprintf(why, n,
                     "rank 0 is on %s and rank %d on %s: --messages %s is for ranks of one host; use --messages nccl",
                     all->host, k, all[k].host, rank_messages[r->flags.messages]);
            return false;
        }
    return true;
}

extern "C" void backend_choose(struct rank_run *r) {
    struct gpu me, *all = (struct gpu *)calloc((size_t)r->world.size, sizeof *all);
    struct cudaDeviceProp device;
    char why[512] = "";
    if (!all)
        rank_error(r->self, "no memory");
    memset(&me, 0, sizeof me);
    gethostname(me.host, sizeof me.host - 1);
    cudaError_t code = cudaGetDeviceCount(&me.devices);
    if (code != cudaSuccess || me.devices == 0)
        snprintf(why, sizeof why, "rank %d: no CUDA device on %s: %s", r->world.rank, me.host,
                 code == cudaSuccess ? "none is there" : cudaGetErrorString(code));
    world_verdict(&r->world, !*why, why);
    r->world.all(r->world.link, &me, all, sizeof me);
    me.number = own.number = local_rank(r, all) % me.devices;
    CUDA(cudaSetDevice(me.number));
    CUDA(cudaGetDeviceProperties(&device, me.number));
    snprintf(own.name, sizeof own.name, "%s", device.name);
    memcpy(me.uuid, &device.uuid, sizeof me.uuid);
    r->world.all(r->world.link, &me, all, sizeof me);
    bool ok = (transport_of(r)->one_host ? together : alone)(r, all, why, sizeof why);
    free(all);
    world_verdict(&r->world, ok, why);
}

/* ---- at the start ---- */

static int64_t free_memory(void) {
    size_t now, all;
    CUDA(cudaMemGetInfo(&now, &all));
    return (int64_t)now;
}

/* What attention.cu cannot do is refused before anything is planned. */
static bool heads_fit(const struct rank_run *r, char *why, size_t n) {
    for (int s = 0; s < r->program.stages; s++)
        for (int i = 0; i < r->program.stage[s].nlayers; i++) {
            const struct rt_layer *l = &r->program.stage[s].layer[i];
            if (l->kind != LAYER_attention || l->out / l->heads <= CUDA_HEAD)
                continue;
            snprintf(why, n,
                     "rank %d: heads of attention have %d columns, and GPUs take at most %d: give it more heads",
                     r->world.rank, l->out / l->heads, CUDA_HEAD);
            return false;
        }
    return true;
}

extern "C" bool backend_take(struct rank_run *r, char *why, size_t nwhy) {
    struct rank_backend *backend = r->backend = (struct rank_backend *)calloc(1, sizeof *backend);
    const struct rt_program *p = &r->program;
    const struct rt_rank *k = &p->rank[r->world.rank];
    int64_t most = 0;
    int copies = 1 + count_moments(p->model->optimizer); /* of a weight: itself and its moments */
    for (int h = 0; h < k->nhomes; h++) {
        int64_t n = weight_count(p->model, &p->stage[k->home[h].stage]);
        most = n > most ? n : most;
    }
    if (!heads_fit(r, why, nwhy))
        return false;
    cuda_attention_plan(p);
    const char *trouble = "no memory on the host";
    if (backend && (backend->mirror = (float *)malloc((size_t)copies * (size_t)most * sizeof(float) + 1))) {
        backend->free[0] = free_memory();
        trouble = cuda_take(&r->replay, &backend->rank, p, r->world.rank, transport_of(r), true);
        if (!trouble && r->flags.timeline)
            trouble = cuda_time(&backend->rank, k);
    }
    if (trouble) {
        snprintf(why, nwhy, "rank %d: %s: it takes %lld bytes of GPU %d, a %s, which has %lld free", r->world.rank,
                 trouble, (long long)cuda_rank_bytes(p, r->world.rank, transport_of(r)), own.number, own.name,
                 (long long)(backend ? backend->free[0] : 0));
        return false;
    }
    cuda_linear_plan(p);
    backend->steps.n = 1;
    backend->steps.replay = &r->replay;
    backend->steps.rank = &backend->rank;
    backend->steps.graph = !r->flags.eager;
    backend->steps.timing = r->flags.timeline ? TIME_ALL : TIME_NONE;
    snprintf(why, nwhy, "rank %d: no memory on the host", r->world.rank);
    bool ok = steps_open(&backend->steps);
    backend->free[1] = free_memory();
    return ok;
}

extern "C" void backend_connect(struct rank_run *r) {
    struct rank_backend *backend = r->backend;
    watch_phase("waits for all ranks to connect their GPUs");
    __atomic_store_n(&own.backend, backend, __ATOMIC_RELEASE);
    backend->rank.transport->open(&r->world, &r->program, r->tables->groups, &backend->rank);
    backend->free[2] = free_memory();
}

extern "C" void backend_begin(struct rank_run *r) { cuda_begin(&r->replay, (uint64_t)r->flags.seed); }

extern "C" const char *backend_line(const struct rank_run *r) {
    static char line[512];
    snprintf(line, sizeof line, "%s, messages by %s, %s", own.name, r->backend->rank.transport->name,
             r->flags.eager ? "each step enqueued anew" : "one graph for the step");
    return line;
}

/* ---- steps ---- */

static void wait_for(struct rank_run *r, cudaEvent_t event) {
    struct cuda_rank *c = &r->backend->rank;
    double asked = seconds();
    for (cudaError_t code; (code = cudaEventQuery(event)) != cudaSuccess; sched_yield()) {
        if (code != cudaErrorNotReady)
            cuda_must(code, "in a step");
        const char *why = c->transport->progress ? c->transport->progress(c->link) : NULL;
        if (why)
            watch_fail(why);
        if (seconds() > asked + WORLD_PROGRESS) {
            asked = seconds();
            r->world.progress(r->world.link);
        }
    }
}

/* The next step's microbatches are made while this one runs. */
extern "C" void backend_step(struct rank_run *r, float *loss) {
    struct rank_backend *backend = r->backend;
    struct cuda_rank *c = &backend->rank;
    int64_t step = r->replay.step;
    bool reads = rank_reads(r);
    if (!backend->begun)
        CUDA(cudaMemcpy(c->step, &step, sizeof step, cudaMemcpyHostToDevice)); /* those done before count */
    if (!backend->begun && reads)
        cuda_feed(&r->replay, step, r->data, backend->steps.origin);
    memset(c->reached, 0, sizeof *c->reached * (size_t)r->program.rank[r->world.rank].nlanes);
    if (!backend->begun)
        backend->since = seconds();
    steps_run(&backend->steps, step, r->flags.timeline);
    if (reads)
        cuda_feed(&r->replay, step + 1, r->data, backend->steps.origin);
    wait_for(r, c->came[step % 2]);
    memcpy(loss, c->told[step % 2], sizeof *loss * (size_t)r->program.batches);
    if (!backend->begun)
        backend->free[3] = free_memory();
    backend->begun = true;
}

/* Seconds of the device's clock, set to the host's where the first step began. The device was idle then but for that
 * step's microbatches, which it had to copy first: so its times say too early, all by the same, by that and by the time
 * of a launch. Later the two clocks run apart as clocks do. */
extern "C" void backend_times(struct rank_run *r, struct rt_stamp *stamp) {
    struct rank_backend *backend = r->backend;
    steps_times(&backend->steps, r->replay.step, &stamp);
    for (int32_t i = 0; i < r->program.rank[r->world.rank].nins; i++) {
        stamp[i].start += backend->since;
        stamp[i].end += backend->since;
    }
}

struct memory {
    int64_t planned, taken, connected, used;
};
static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

extern "C" void backend_report(struct rank_run *r) {
    const struct rank_backend *backend = r->backend;
    struct memory me = {cuda_rank_bytes(&r->program, r->world.rank, backend->rank.transport),
                        backend->free[0] - backend->free[1], backend->free[1] - backend->free[2],
                        backend->free[2] - backend->free[3]};
    struct memory most = {0, 0, 0, 0}, *all = (struct memory *)calloc((size_t)r->world.size, sizeof *all);
    if (!all)
        rank_error(r->self, "no memory");
    r->world.all(r->world.link, &me, all, sizeof me);
    for (int k = 0; k < r->world.size; k++) {
        most.planned = larger(most.planned, all[k].planned);
        most.taken = larger(most.taken, all[k].taken);
        most.connected = larger(most.connected, all[k].connected);
        most.used = larger(most.used, all[k].used);
    }
    free(all);
    if (r->world.rank == 0)
        fprintf(stderr,
                "pianola: device memory of a rank, at most: planned %lld bytes, taken %lld; %s's connections %lld, and "
                "%lld more with the first step\n",
                (long long)most.planned, (long long)most.taken, backend->rank.transport->name,
                (long long)most.connected, (long long)most.used);
}

/* ---- state ---- */

/* The moments behind the weights. */
extern "C" struct home_state backend_pull(struct rank_run *r, const struct rt_home *h) {
    const struct rt_learned y = learned_at(r->program.model, &r->program.stage[h->stage], h);
    const char *arena = r->backend->rank.arena;
    float *mirror = r->backend->mirror;
    size_t n = (size_t)y.count, moments = n * (size_t)count_moments(r->program.model->optimizer);
    if (n > 0)
        CUDA(cudaMemcpy(mirror, arena + y.weight, n * sizeof *mirror, cudaMemcpyDeviceToHost));
    if (n > 0 && y.moments >= 0)
        CUDA(cudaMemcpy(mirror + n, arena + y.moments, moments * sizeof *mirror, cudaMemcpyDeviceToHost));
    struct home_state m = {mirror, y.moments < 0 ? NULL : mirror + n};
    return m;
}

extern "C" void backend_push(struct rank_run *r, const struct rt_home *h) {
    const struct rt_learned y = learned_at(r->program.model, &r->program.stage[h->stage], h);
    const float *mirror = r->backend->mirror;
    size_t n = (size_t)y.count, moments = n * (size_t)count_moments(r->program.model->optimizer);
    if (n == 0)
        return;
    cuda_put_weights(&r->replay, h, mirror);
    if (y.moments >= 0)
        CUDA(cudaMemcpy(r->backend->rank.arena + y.moments, mirror + n, moments * sizeof *mirror,
                        cudaMemcpyHostToDevice));
}

/* ---- the end ---- */

static void *abort_messages(void *arg) {
    struct cuda_rank *c = &((struct rank_backend *)arg)->rank;
    void *link = __atomic_load_n(&c->link, __ATOMIC_ACQUIRE);
    if (link && c->transport->abort)
        c->transport->abort(link);
    __atomic_store_n(&own.aborted, 1, __ATOMIC_RELEASE);
    return NULL;
}

/* A little longer than it takes: a launcher that sees one rank end may kill the others before they could say what they
 * have found. */
extern "C" void backend_abort(void) {
    static const double LINGER = 0.2, PATIENCE = 2;
    const struct timespec pause = {0, 10000000};
    struct rank_backend *backend = __atomic_load_n(&own.backend, __ATOMIC_ACQUIRE);
    double begin = seconds();
    pthread_t helper;
    bool helped = backend && pthread_create(&helper, NULL, abort_messages, backend) == 0;
    while (seconds() < begin + LINGER ||
           (helped && !__atomic_load_n(&own.aborted, __ATOMIC_ACQUIRE) && seconds() < begin + PATIENCE))
        nanosleep(&pause, NULL);
}

extern "C" void backend_release(struct rank_run *r) {
    struct rank_backend *backend = r->backend;
    CUDA(cudaDeviceSynchronize());
    steps_close(&backend->steps);
    cuda_linear_forget();
    cuda_attention_forget();
    backend->rank.transport->close(backend->rank.link);
    cuda_release(&r->replay, &backend->rank);
    free(backend->mirror);
    free(backend);
}
