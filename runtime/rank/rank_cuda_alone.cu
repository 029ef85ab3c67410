/* A rank's process on a GPU: the choice of its GPU, its memory, and its connections with others, over NCCL or, within a
 * host, by copies. rank_cuda.cu runs its steps. */
#include "rank_cuda.cuh"
extern "C" {
#include "comm/transports.h"
#include "comm/watch.h"
#include "store/algorithms.h"
#include "store/seconds.h"
#include "units/unit_check.h"
}
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* State of this process, for backend_abort, which any thread may call. */
static struct {
    struct rank_backend *backend; /* NULL: there is nothing to abort yet */
    char name[256];               /* name of the GPU */
    int number, aborted;
} own;
static struct { /* a group of one rank */
    struct cuda_group group;
    struct replay replay;
    struct cuda_rank rank;
} only;

/* Asks for as many hardware queues as possible, because a waiting lane blocks later work in the same queue. The
 * default is 8 queues; copies have queues of their own (CUDA Programming Guide, "CUDA Environment Variables"). */
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

/* ---- choice of the GPU ---- */

struct gpu {
    char host[256], uuid[16];
    int devices, number;
};

/* Returns the rank's place among its host's ranks: the launcher's value, or else by counting. */
static int local_rank(const struct rank_run *run, const struct gpu *all) {
    int me = run->world.rank, local = 0;
    for (int k = 0; k < me; k++)
        local += strcmp(all[k].host, all[me].host) == 0;
    return run->flags.launch.local >= 0 ? run->flags.launch.local : local;
}

/* Checks that no other rank uses this GPU. It compares UUIDs, because GPUs have the same number if each process sees
 * only its own (Slurm can do that). */
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

/* Sends all ranks the text that rank `from` has beyond the first `had` bytes, which all ranks have. */
static void spread_algorithms(const struct rank_run *run, struct algorithms *all, int from, size_t had) {
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

/* Plans matrix products. Rank 0 reads the file. Then ranks take turns: each times the products that no earlier rank has
 * timed, and sends the results to all. So a product has one algorithm on all GPUs with the same name, on any host. No
 * two ranks time at once, which matters if they share a GPU. */
static void plan_products(struct rank_run *run) {
    struct algorithms all = {};
    const struct world *world = &run->world;
    char why[1024] = "";
    cuda_linear_plan(&run->program);
    cuda_update_plan(&run->program);
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
        spread_algorithms(run, &all, turn, known);
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
    ok = units_check(run->self, &unit_memory_cuda, why, sizeof why);
    world_verdict(&run->world, ok, why);
    plan_products(run);
}

/* ---- while it waits ---- */

/* Returns whether the event has happened. If not, checks messages for errors. */
static bool has_happened(struct rank_run *run, cudaEvent_t event) {
    struct cuda_rank *own = run->backend->rank;
    char trouble[1024];
    cudaError_t code = cudaEventQuery(event);
    if (code == cudaSuccess)
        return true;
    if (code != cudaErrorNotReady)
        watch_fail(cuda_trouble(code, "cudaEventQuery", trouble, sizeof trouble));
    cudaGetLastError(); /* clears "not ready", so that the next launch does not report it */
    const char *why = own->transport->progress ? own->transport->progress(own->link) : NULL;
    if (why)
        watch_fail(why);
    sched_yield();
    return false;
}

void cuda_wait(struct rank_run *run, cudaEvent_t event) {
    double asked = seconds();
    while (!has_happened(run, event))
        if (seconds() > asked + WORLD_PROGRESS) {
            asked = seconds();
            run->world.progress(run->world.link);
        }
}
static void wait_in_step(void *context, cudaEvent_t event) { cuda_wait((struct rank_run *)context, event); }

extern "C" void backend_look(struct rank_run *run) { has_happened(run, run->backend->came); }

/* ---- at the start ---- */

/* Refuses attention heads that attention.cu cannot handle, before anything is planned. */
static bool heads_fit(const struct rank_run *run, char *why, size_t n) {
    for (int s = 0; s < run->program.stages; s++)
        for (int i = 0; i < run->program.stage[s].nlayers; i++) {
            const struct rt_layer *l = &run->program.stage[s].layer[i];
            int slices = run->program.model->slices;
            if (l->kind != LAYER_attention || (head_columns(l) <= CUDA_HEAD && slices <= CUDA_SLICES))
                continue;
            if (slices > CUDA_SLICES)
                snprintf(why, n,
                         "rank %d: %d slices of a microbatch attend to each other, and on GPUs at most %d do: cut it "
                         "into fewer",
                         run->world.rank, slices, CUDA_SLICES);
            else
                snprintf(why, n,
                         "rank %d: heads of attention have %d columns, and GPUs take at most %d: give it more heads",
                         run->world.rank, head_columns(l), CUDA_HEAD);
            return false;
        }
    return true;
}

/* Returns the bytes of device memory that messages need beyond the plan and that no call here allocates. */
static int64_t beside(const struct rank_run *run) {
    const struct cuda_transport *transport = transport_of(run);
    return transport->beside ? transport->beside(&run->program, run->world.rank, run->self->groups) : 0;
}

/* Checks that everything fits into memory. Running out later would be a connection error, while other ranks wait for
 * it. */
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
    if (!heads_fit(run, why, nwhy))
        return false;
    if (backend) {
        backend->free[0] = cuda_free_memory();
        if (!all_fits(run, why, nwhy))
            return false;
    }
    cuda_attention_plan(p);
    const char *trouble = "no memory on the host";
    if (backend && cuda_take_mirror(run)) {
        run->replay = &only.replay;
        backend->rank = &only.rank;
        backend->group = &only.group;
        trouble = cuda_take(run->replay, backend->rank, p, run->world.rank, transport_of(run), true);
        if (!trouble && run->flags.timeline)
            trouble = cuda_time(backend->rank, k);
    }
    if (trouble) {
        snprintf(
            why, nwhy,
            "rank %d: %s: it takes %lld bytes of GPU %d, a %s, which has %lld free, and %lld of pinned host memory",
            run->world.rank, trouble, (long long)cuda_rank_bytes(p, run->world.rank, transport_of(run)), own.number,
            own.name, (long long)(backend ? backend->free[0] : 0), (long long)k->host);
        return false;
    }
    struct cuda_steps *steps = &only.group.steps;
    steps->n = 1;
    steps->replay = &only.replay;
    steps->rank = &only.rank;
    steps->graph = !run->flags.eager;
    steps->timing = run->flags.timeline ? TIME_ALL : TIME_NONE;
    steps->wait = wait_in_step;
    steps->context = run;
    snprintf(why, nwhy, "rank %d: no memory on the host", run->world.rank);
    bool ok = steps_open(steps);
    backend->free[1] = cuda_free_memory();
    return ok;
}

extern "C" void backend_connect(struct rank_run *run) {
    struct rank_backend *backend = run->backend;
    watch_phase("waits for all ranks to connect their GPUs");
    __atomic_store_n(&own.backend, backend, __ATOMIC_RELEASE);
    backend->rank->transport->open(&run->world, &run->program, run->self->groups, backend->rank);
    backend->free[2] = cuda_free_memory();
}

extern "C" const char *backend_line(const struct rank_run *run) {
    static char line[512];
    const struct cuda_transport *transport = transport_of(run);
    snprintf(line, sizeof line, "%s, messages by %s, %s", own.name,
             transport->about ? transport->about(!run->flags.eager) : transport->name,
             run->flags.eager ? "each step enqueued anew" : "one graph for the step");
    return line;
}

struct taken { /* bytes */
    int64_t planned, taken, connected, used, beside, host_planned, host;
};
static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

extern "C" void backend_report(struct rank_run *run) {
    const struct rank_backend *backend = run->backend;
    struct taken me = {cuda_rank_bytes(&run->program, run->world.rank, backend->rank->transport),
                       backend->free[0] - backend->free[1],
                       backend->free[1] - backend->free[2],
                       backend->free[2] - backend->free[3],
                       beside(run),
                       run->self->rank->host,
                       backend->rank->host_bytes};
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
                (long long)most.planned, (long long)most.taken, backend->rank->transport->name,
                (long long)most.connected, (long long)most.used, expected);
    if (run->world.rank == 0 && most.host_planned > 0)
        fprintf(stderr, "pianola: pinned host memory of a rank, at most: planned %lld bytes, taken %lld\n",
                (long long)most.host_planned, (long long)most.host);
}

/* Returns the memory at the end, including graphs and code that were loaded after the first step. */
extern "C" int64_t backend_bytes_at_end(struct rank_run *run) {
    int64_t me = run->backend->free[0] - cuda_free_memory(), most = 0;
    int64_t *all = (int64_t *)calloc((size_t)run->world.size, sizeof *all);
    if (!all)
        rank_error(run->self, "no memory");
    run->world.all(run->world.link, &me, all, sizeof me);
    for (int k = 0; k < run->world.size; k++)
        most = larger(most, all[k]);
    free(all);
    return most;
}

/* ---- the end ---- */

static void *abort_messages(void *arg) {
    struct cuda_rank *c = ((struct rank_backend *)arg)->rank;
    void *link = __atomic_load_n(&c->link, __ATOMIC_ACQUIRE);
    if (link && c->transport->abort)
        c->transport->abort(link);
    __atomic_store_n(&own.aborted, 1, __ATOMIC_RELEASE);
    return NULL;
}

/* Aborts messages. Waits a little longer than necessary: a launcher that sees one rank end may kill the others before
 * they report their errors. */
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

extern "C" void backend_release(struct rank_run *run, char **arena) {
    struct rank_backend *backend = run->backend;
    (void)arena;
    CUDA(cudaDeviceSynchronize());
    steps_close(&backend->group->steps);
    cuda_linear_forget();
    cuda_update_forget();
    cuda_attention_forget();
    backend->rank->transport->close(backend->rank->link);
    cuda_release(run->replay, backend->rank);
    free(backend->mirror);
    free(backend);
}
