/* A rank's process on a GPU: the step as one graph, messages over NCCL or, within a host, by copies.
 *
 * The process's only thread enqueues a step, and the next one behind it, so that the GPU does not idle between them;
 * then it polls until the first has ended. It blocks in no call, so that an error, a dead rank or the watch's deadline
 * can always end it. The watch itself makes no CUDA calls, which would break a capture: it reads the device's progress
 * in words that the device writes to host memory. */
#include "device/device_cuda.cuh"
#include "layers/clip.h"
extern "C" {
#include "rank_run.h"
#include "comm/transports.h"
#include "comm/watch.h"
#include "store/algorithms.h"
#include "store/seconds.h"
}
#include <assert.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

struct rank_backend {
    struct cuda_rank rank;
    struct cuda_steps steps;
    double since;            /* when the first step began, by the host */
    int64_t ended, enqueued; /* how many steps of this run */
    cudaEvent_t came;        /* the losses of the step that was enqueued last */
    float *mirror;           /* host memory: what the largest home has learned */
    int64_t free[4]; /* device memory, as the device counts: before anything, with the arena, connected, after a step */
};
extern "C" const char backend_kind[] = "GPU";

/* The process's, for backend_abort, which any thread may call. */
static struct {
    struct rank_backend *backend; /* NULL: there is nothing to abort yet */
    char name[256];               /* of the GPU */
    int number, aborted;
} own;

/* A waiting lane holds up what follows it in the same hardware queue. The default is 8 queues; copies have queues of
 * their own (CUDA Programming Guide, "CUDA Environment Variables"). */
extern "C" void backend_open(const struct rt_program *self) {
    (void)self;
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    setenv("CUDA_DEVICE_MAX_COPY_CONNECTIONS", "32", 0);
}

static const struct cuda_transport *transport_of(const struct rank_run *run) {
    static const struct cuda_transport *const transport[] = {
#define X(name, ...) &cuda_##name,
        CUDA_TRANSPORTS(X)
#undef X
    };
    return run->flags.messages == CUDA_nccl && run->flags.ordered ? &cuda_nccl_ordered : transport[run->flags.messages];
}

/* ---- which GPU ---- */

struct gpu {
    char host[256], uuid[16];
    int devices, number;
};

/* Its rank among its host's ranks: from the launcher, else by counting. */
static int local_rank(const struct rank_run *run, const struct gpu *all) {
    int me = run->world.rank, local = 0;
    for (int k = 0; k < me; k++)
        local += strcmp(all[k].host, all[me].host) == 0;
    return run->flags.launch.local >= 0 ? run->flags.launch.local : local;
}

/* If each process sees only its own GPUs (Slurm can do that), all have the same number, but are different ones. */
static bool alone(const struct rank_run *run, const struct gpu *all, char *why, size_t n) {
    const struct gpu *me = &all[run->world.rank];
    for (int k = 0; k < run->world.size; k++)
        if (k != run->world.rank && strcmp(all[k].host, me->host) == 0 &&
            memcmp(all[k].uuid, me->uuid, sizeof me->uuid) == 0) {
            snprintf(why, n,
                     "ranks %d and %d would share GPU %d of %s, a %s: each needs its own, and %d %s there to be seen; "
                     "to try things out, --messages put lets ranks share one",
                     min(k, run->world.rank), max(k, run->world.rank), me->number, me->host, own.name, me->devices,
                     me->devices == 1 ? "is" : "are");
            return false;
        }
    return true;
}

static bool together(const struct rank_run *run, const struct gpu *all, char *why, size_t n) {
    for (int k = 1; k < run->world.size; k++)
        if (strcmp(all[k].host, all->host) != 0) {
            snprintf(why, n,
                     "rank 0 is on %s and rank %d on %s: --messages %s is for ranks of one host; use --messages nccl",
                     all->host, k, all[k].host, rank_messages[run->flags.messages]);
            return false;
        }
    return true;
}

/* ---- the algorithms of products ---- */

/* Gives all ranks what rank `from` has behind the first had bytes, which all have. */
static void spread(const struct rank_run *run, struct algorithms *all, int from, size_t had) {
    const struct world *world = &run->world;
    int64_t more = world->rank == from ? (int64_t)(all->n - had) : 0, *sizes;
    if (!(sizes = (int64_t *)calloc((size_t)world->size, sizeof *sizes)))
        rank_error(run->self, "no memory");
    world->all(world->link, &more, sizes, sizeof more);
    size_t n = (size_t)sizes[from];
    free(sizes);
    char *mine = n > 0 ? (char *)calloc(1 + (size_t)world->size, n) : NULL, *every = mine + n;
    if (n > 0 && !mine)
        rank_error(run->self, "no memory");
    if (n > 0 && world->rank == from)
        memcpy(mine, all->text + had, n);
    if (n > 0)
        world->all(world->link, mine, every, n);
    if (n > 0 && world->rank != from && !algorithms_join(all, every + (size_t)from * n, n))
        rank_error(run->self, "no memory");
    free(mine);
}

/* Rank 0 reads the file. Then ranks take turns: each times what nobody has timed before it, and tells all. So a product
 * has one algorithm on all GPUs of a name, whatever hosts they are in; and no two ranks time at once, which matters
 * where they share a GPU. */
static void plan_products(struct rank_run *run) {
    struct algorithms all = {};
    const struct world *world = &run->world;
    char why[1024] = "";
    cuda_linear_plan(&run->program);
    cuda_muon_plan(&run->program);
    if (!run->flags.algorithms)
        return;
    watch_phase("waits for all ranks to time matrix products");
    all.path = run->flags.algorithms;
    bool ok = world->rank > 0 || algorithms_read(&all, run->flags.algorithms, why, sizeof why);
    world_verdict(world, ok, why);
    size_t had = all.n, known = 0; /* known: bytes that all ranks have */
    for (int turn = 0; turn < world->size; turn++, known = all.n) {
        ok = turn != world->rank || cuda_linear_pin(&all, why, sizeof why);
        world_verdict(world, ok, why);
        spread(run, &all, turn, known);
    }
    ok = world->rank > 0 || all.n == had || algorithms_write(&all, why, sizeof why);
    world_verdict(world, ok, why);
    algorithms_free(&all);
}

extern "C" void backend_choose(struct rank_run *run) {
    struct gpu me, *all = (struct gpu *)calloc((size_t)run->world.size, sizeof *all);
    struct cudaDeviceProp device;
    char why[512] = "";
    if (!all)
        rank_error(run->self, "no memory");
    memset(&me, 0, sizeof me);
    gethostname(me.host, sizeof me.host - 1);
    cudaError_t code = cudaGetDeviceCount(&me.devices);
    if (code != cudaSuccess || me.devices == 0)
        snprintf(why, sizeof why, "rank %d: no CUDA device on %s: %s", run->world.rank, me.host,
                 code == cudaSuccess ? "none is there" : cudaGetErrorString(code));
    world_verdict(&run->world, !*why, why);
    run->world.all(run->world.link, &me, all, sizeof me);
    me.number = own.number = local_rank(run, all) % me.devices;
    CUDA(cudaSetDevice(me.number));
    CUDA(cudaGetDeviceProperties(&device, me.number));
    snprintf(own.name, sizeof own.name, "%s", device.name);
    memcpy(me.uuid, &device.uuid, sizeof me.uuid);
    run->world.all(run->world.link, &me, all, sizeof me);
    bool ok = cuda_fits(&device, why, sizeof why) &&
              (transport_of(run)->one_host ? together : alone)(run, all, why, sizeof why);
    free(all);
    world_verdict(&run->world, ok, why);
    plan_products(run);
}

/* ---- at the start ---- */

static int64_t free_memory(void) {
    size_t now, all;
    CUDA(cudaMemGetInfo(&now, &all));
    return (int64_t)now;
}

/* Refuses what attention.cu cannot do, before anything is planned. */
static bool heads_fit(const struct rank_run *run, char *why, size_t n) {
    for (int s = 0; s < run->program.stages; s++)
        for (int i = 0; i < run->program.stage[s].nlayers; i++) {
            const struct rt_layer *l = &run->program.stage[s].layer[i];
            int slices = run->program.model->slices;
            if (l->kind != LAYER_attention || (l->out / l->heads <= CUDA_HEAD && slices <= CUDA_SLICES))
                continue;
            if (slices > CUDA_SLICES)
                snprintf(why, n,
                         "rank %d: %d slices of a microbatch attend to each other, and on GPUs at most %d do: cut it "
                         "into fewer",
                         run->world.rank, slices, CUDA_SLICES);
            else
                snprintf(why, n,
                         "rank %d: heads of attention have %d columns, and GPUs take at most %d: give it more heads",
                         run->world.rank, l->out / l->heads, CUDA_HEAD);
            return false;
        }
    return true;
}

/* What messages take beside the plan, for which no call here asks. */
static int64_t beside(const struct rank_run *run) {
    const struct cuda_transport *transport = transport_of(run);
    return transport->beside ? transport->beside(&run->program, run->world.rank, run->self->groups) : 0;
}

/* Where it comes later, a lack of memory is an error of a connection, while other ranks wait for it. */
static bool all_fits(const struct rank_run *run, char *why, size_t n) {
    int64_t planned = cuda_rank_bytes(&run->program, run->world.rank, transport_of(run)), more = beside(run);
    if (planned + more <= run->backend->free[0])
        return true;
    int at =
        snprintf(why, n, "rank %d: no memory on the device: GPU %d, a %s, has %lld bytes free; the plan takes %lld",
                 run->world.rank, own.number, own.name, (long long)run->backend->free[0], (long long)planned);
    if (more > 0 && at < (int)n)
        snprintf(why + at, n - (size_t)at,
                 ", and the buffers of %s up to %lld, which fewer channels (NCCL_MAX_CTAS), a smaller NCCL_BUFFSIZE or "
                 "--messages put reduce",
                 transport_of(run)->name, (long long)more);
    return false;
}

extern "C" bool backend_take(struct rank_run *run, char *why, size_t nwhy) {
    struct rank_backend *backend = run->backend = (struct rank_backend *)calloc(1, sizeof *backend);
    const struct rt_program *p = &run->program;
    const struct rt_rank *k = &p->rank[run->world.rank];
    int64_t most = 0;
    int copies = 1 + count_moments(p->model->optimizer); /* of a weight: itself and its moments */
    for (int h = 0; h < k->nhomes; h++) {
        int64_t n = k->home[h].owned;
        most = n > most ? n : most;
    }
    if (!heads_fit(run, why, nwhy))
        return false;
    if (backend) {
        backend->free[0] = free_memory();
        if (!all_fits(run, why, nwhy))
            return false;
    }
    cuda_attention_plan(p);
    const char *trouble = "no memory on the host";
    if (backend && (backend->mirror = (float *)malloc((size_t)copies * (size_t)most * sizeof(float) + 1))) {
        trouble = cuda_take(&run->replay, &backend->rank, p, run->world.rank, transport_of(run), true);
        if (!trouble && run->flags.timeline)
            trouble = cuda_time(&backend->rank, k);
    }
    if (trouble) {
        snprintf(
            why, nwhy,
            "rank %d: %s: it takes %lld bytes of GPU %d, a %s, which has %lld free, and %lld of pinned host memory",
            run->world.rank, trouble, (long long)cuda_rank_bytes(p, run->world.rank, transport_of(run)), own.number,
            own.name, (long long)(backend ? backend->free[0] : 0), (long long)k->host);
        return false;
    }
    backend->steps.n = 1;
    backend->steps.replay = &run->replay;
    backend->steps.rank = &backend->rank;
    backend->steps.graph = !run->flags.eager;
    backend->steps.timing = run->flags.timeline ? TIME_ALL : TIME_NONE;
    snprintf(why, nwhy, "rank %d: no memory on the host", run->world.rank);
    bool ok = steps_open(&backend->steps);
    backend->free[1] = free_memory();
    return ok;
}

extern "C" void backend_connect(struct rank_run *run) {
    struct rank_backend *backend = run->backend;
    watch_phase("waits for all ranks to connect their GPUs");
    __atomic_store_n(&own.backend, backend, __ATOMIC_RELEASE);
    backend->rank.transport->open(&run->world, &run->program, run->self->groups, &backend->rank);
    backend->free[2] = free_memory();
}

extern "C" void backend_begin(struct rank_run *run) {
    char why[1000];
    if (!cuda_begin(&run->replay, &run->start, why, sizeof why))
        rank_error(run->self, why);
}

extern "C" const char *backend_line(const struct rank_run *run) {
    static char line[512];
    const struct cuda_transport *transport = transport_of(run);
    snprintf(line, sizeof line, "%s, messages by %s, %s", own.name,
             transport->about ? transport->about(!run->flags.eager) : transport->name,
             run->flags.eager ? "each step enqueued anew" : "one graph for the step");
    return line;
}

/* ---- steps ---- */

/* Has it happened? If not, this looks for trouble with messages meanwhile. */
static bool has_come(struct rank_run *run, cudaEvent_t event) {
    struct cuda_rank *own = &run->backend->rank;
    char trouble[1024];
    cudaError_t code = cudaEventQuery(event);
    if (code == cudaSuccess)
        return true;
    if (code != cudaErrorNotReady)
        watch_fail(cuda_trouble(code, "cudaEventQuery", trouble, sizeof trouble));
    cudaGetLastError(); /* not ready: no error of the next launch's */
    const char *why = own->transport->progress ? own->transport->progress(own->link) : NULL;
    if (why)
        watch_fail(why);
    sched_yield();
    return false;
}

static void wait_for(struct rank_run *run, cudaEvent_t event) {
    double asked = seconds();
    while (!has_come(run, event))
        if (seconds() > asked + WORLD_PROGRESS) {
            asked = seconds();
            run->world.progress(run->world.link);
        }
}
static void wait_in_step(void *context, cudaEvent_t event) { wait_for((struct rank_run *)context, event); }

/* On the stream of all steps come a step's microbatches, the step, the copy of its losses, then the next step's: so the
 * device's only place for microbatches is overwritten once the step before is over. Their two places on the host, and
 * those of the losses, are enough: a step is enqueued when the one two before it has ended. */
extern const bool backend_leads = true;
extern "C" void backend_enqueue(struct rank_run *run, int64_t step) {
    struct rank_backend *backend = run->backend;
    bool reads = rank_reads(run);
    assert(backend->enqueued - backend->ended <
           (backend->ended > 0 && !run->flags.timeline && !rank_records(&run->flags) ? 2 : 1));
    if (backend->enqueued == 0) {
        cuda_store(backend->rank.counted, &step, sizeof step); /* steps of earlier runs count */
        if (reads)
            cuda_feed(&run->replay, step, 0, run->data, backend->steps.origin);
        backend->steps.data = reads ? run->data : NULL;
        backend->steps.wait = wait_in_step;
        backend->steps.context = run;
        backend->since = seconds();
    }
    steps_run(&backend->steps, step, run->flags.timeline);
    backend->came = backend->rank.came[step % 2];
    backend->enqueued++;
    if (reads) /* made while this step runs */
        cuda_feed(&run->replay, step + 1, 0, run->data, backend->steps.origin);
}

extern "C" void backend_look(struct rank_run *run) { has_come(run, run->backend->came); }

extern "C" void backend_wait(struct rank_run *run, int64_t step, float *loss, double *when) {
    struct rank_backend *backend = run->backend;
    struct cuda_rank *own = &backend->rank;
    wait_for(run, own->came[step % 2]);
    memcpy(loss, own->told[step % 2], sizeof *loss * (size_t)run->program.batches);
    if (backend->ended++ == 0)
        backend->free[3] = free_memory();
    if (!when)
        return;
    steps_when(&backend->steps, step, 0, when);
    for (int32_t k = 0; k < updates_per_step(run->program.batches, &run->program.stage[run->program.updated]); k++)
        when[k] += backend->since;
}

extern "C" const uint64_t *backend_found(struct rank_run *run) { return run->backend->rank.found; }

extern "C" void backend_again(struct rank_run *run, int64_t step, float *loss, double *when) {
    struct rank_backend *backend = run->backend;
    bool reads = rank_reads(run);
    steps_again(&backend->steps, step, run->flags.timeline, reads ? run->data : NULL);
    if (reads) /* backend_enqueue had sent them */
        cuda_feed(&run->replay, step + 1, 0, run->data, backend->steps.origin);
    backend->ended--;
    backend_wait(run, step, loss, when);
}

extern "C" const uint64_t *backend_settle(struct rank_run *run) {
    struct rank_backend *backend = run->backend;
    const struct cuda_rank *own = &backend->rank;
    int64_t next = run->from + backend->enqueued;
    steps_beside(&backend->steps, SETTLES, next, 0, NULL);
    wait_for(run, own->came[next % 2]);
    memcpy(own->norm[(next + 1) % 2], own->norm[next % 2], NORM_BYTES); /* it is the last step's */
    return own->norm[next % 2];
}

extern "C" void backend_validate(struct rank_run *run, int64_t step, float *loss) {
    struct rank_backend *backend = run->backend;
    const struct cuda_rank *own = &backend->rank;
    int64_t next = run->from + backend->enqueued;
    bool reads = rank_reads(run);
    steps_beside(&backend->steps, VALIDATES, next, step, reads ? run->held_out : NULL);
    if (reads && step == run->held_steps - 1) /* backend_enqueue had sent them */
        cuda_feed(&run->replay, next, 0, run->data, backend->steps.origin);
    wait_for(run, own->came[next % 2]);
    memcpy(loss, own->told[next % 2], sizeof *loss * (size_t)run->program.batches);
}

extern "C" double backend_waited(struct rank_run *run) {
    (void)run;
    return NAN;
}

extern "C" double backend_norm(struct rank_run *run, int64_t step) {
    const struct cuda_rank *own = &run->backend->rank;
    return own->norm_at < 0 ? NAN : norm_value(own->norm[step % 2]);
}

extern "C" struct rt_routed backend_routed(struct rank_run *run) {
    struct rt_routed routed;
    CUDA(cudaMemcpy(&routed, run->backend->rank.routed, sizeof routed, cudaMemcpyDeviceToHost));
    return routed;
}

/* Seconds of the device's clock, set to the host's when the first step began. The device was idle then except for that
 * step's microbatches, which it had to copy first: so all times are too early by the same amount, that copy and a
 * launch. After that the two clocks drift apart. */
extern "C" void backend_times(struct rank_run *run, int64_t step, struct rt_stamp *stamp) {
    struct rank_backend *backend = run->backend;
    steps_times(&backend->steps, step, &stamp);
    for (int32_t i = 0; i < run->program.rank[run->world.rank].nins; i++) {
        stamp[i].start += backend->since;
        stamp[i].end += backend->since;
    }
}

struct taken { /* bytes */
    int64_t planned, taken, connected, used, beside, host_planned, host;
};
static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

extern "C" void backend_report(struct rank_run *run) {
    const struct rank_backend *backend = run->backend;
    struct taken me = {cuda_rank_bytes(&run->program, run->world.rank, backend->rank.transport),
                       backend->free[0] - backend->free[1],
                       backend->free[1] - backend->free[2],
                       backend->free[2] - backend->free[3],
                       beside(run),
                       run->self->rank->host,
                       backend->rank.host_bytes};
    struct taken most = {0, 0, 0, 0, 0, 0, 0}, *all = (struct taken *)calloc((size_t)run->world.size, sizeof *all);
    if (!all)
        rank_error(run->self, "no memory");
    run->world.all(run->world.link, &me, all, sizeof me);
    for (int k = 0; k < run->world.size; k++) {
        most.planned = larger(most.planned, all[k].planned);
        most.taken = larger(most.taken, all[k].taken);
        most.connected = larger(most.connected, all[k].connected);
        most.used = larger(most.used, all[k].used);
        most.beside = larger(most.beside, all[k].beside);
        most.host_planned = larger(most.host_planned, all[k].host_planned);
        most.host = larger(most.host, all[k].host);
    }
    free(all);
    char expected[64] = "";
    if (most.beside > 0)
        snprintf(expected, sizeof expected, ", of %lld expected", (long long)most.beside);
    if (run->world.rank == 0)
        fprintf(stderr,
                "pianola: device memory of a rank, at most: planned %lld bytes, taken %lld; %s's connections %lld, and "
                "%lld more with the first step%s\n",
                (long long)most.planned, (long long)most.taken, backend->rank.transport->name,
                (long long)most.connected, (long long)most.used, expected);
    if (run->world.rank == 0 && most.host_planned > 0)
        fprintf(stderr, "pianola: pinned host memory of a rank, at most: planned %lld bytes, taken %lld\n",
                (long long)most.host_planned, (long long)most.host);
}

/* Includes what came after the first step: code that was loaded later, and graphs. */
extern "C" int64_t backend_bytes_at_end(struct rank_run *run) {
    int64_t me = run->backend->free[0] - free_memory(), most = 0;
    int64_t *all = (int64_t *)calloc((size_t)run->world.size, sizeof *all);
    if (!all)
        rank_error(run->self, "no memory");
    run->world.all(run->world.link, &me, all, sizeof me);
    for (int k = 0; k < run->world.size; k++)
        most = larger(most, all[k]);
    free(all);
    return most;
}

/* ---- state ---- */

extern "C" struct checkpoint_shard backend_pull(struct rank_run *run, const struct rt_home *home) {
    return cuda_pull(&run->replay, home, run->backend->mirror);
}

extern "C" void backend_push(struct rank_run *run, const struct rt_home *home, const float *weight,
                             const float *moments) {
    cuda_push(&run->replay, home, weight, moments);
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

/* Takes a little longer than it must: a launcher that sees one rank end may kill the others before they report their
 * errors. */
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

extern "C" void backend_release(struct rank_run *run) {
    struct rank_backend *backend = run->backend;
    CUDA(cudaDeviceSynchronize());
    steps_close(&backend->steps);
    cuda_linear_forget();
    cuda_muon_forget();
    cuda_attention_forget();
    backend->rank.transport->close(backend->rank.link);
    cuda_release(&run->replay, &backend->rank);
    free(backend->mirror);
    free(backend);
}
