/* Every collective among ranks that are processes with a GPU each, or among all ranks of one process, against its
 * definition (tests/support/hand_collectives.h): collectives nccl|ordered|put|loopback SEED RANKS. Processes find each
 * other as ranks do. Steps are enqueued, captured and launched. Exits 0 if all arenas are right, byte for byte. NCCL's
 * own sums have no fixed order, so only with nccl the numbers are integers. With an odd SEED, a team's numbers are
 * bf16. */
#include "process/comm_loopback.cuh"
extern "C" {
#include "comm/transports.h"
#include "comm/world.h"
#include "hand_collectives.h"
}
#include <cstdio>
#include <sched.h>

static struct hand hand;
static char *arena[HAND_RANKS], *before[HAND_RANKS];
static struct replay replays[HAND_RANKS];
static struct cuda_rank ranks[HAND_RANKS];

static void make(uint64_t seed, int workers, bool whole) {
    hand_unit = 256; /* as the compiler aligns pieces */
    hand_make(&hand, seed, workers, seed % 2 ? BF16 : FP32);
    hand.model.input = INPUT_INTEGERS; /* microbatches are never empty */
    hand.model.rows = hand.model.features = 1;
    for (int r = 0; r < workers; r++) {
        arena[r] = (char *)calloc(1, (size_t)hand.rank[r].arena + 1);
        before[r] = (char *)calloc(1, (size_t)hand.rank[r].arena + 1);
        hand_fill(&hand, arena[r], hand.rank[r].arena, r, whole);
    }
}

static bool take(int at, int rank, const struct cuda_transport *transport) {
    const char *why = cuda_take(&replays[at], &ranks[at], &hand.program, rank, transport, false);
    if (why)
        fprintf(stderr, "rank %d: %s\n", rank, why);
    else
        cuda_store(ranks[at].arena, arena[rank], (size_t)hand.rank[rank].arena);
    return !why;
}

static void run(int n, const struct world *world) {
    struct cuda_steps steps = {};
    steps.n = n;
    steps.replay = replays;
    steps.rank = ranks;
    steps.graph = true;
    if (!steps_open(&steps))
        exit(2);
    for (int64_t step = 0; step < HAND_STEPS; step++) {
        steps_run(&steps, step, false);
        for (int r = 0; r < n; r++)
            while (cudaEventQuery(ranks[r].result.came[step % 2]) == cudaErrorNotReady) {
                cudaGetLastError(); /* clears the status, which is no error of the next launch */
                if (ranks[r].transport->progress && ranks[r].transport->progress(ranks[r].link))
                    exit(2);
                if (world)
                    world->progress(world->link);
                sched_yield();
            }
    }
    steps_close(&steps);
}

static bool same(int at, int rank) {
    size_t bytes = (size_t)hand.rank[rank].arena;
    char *got = (char *)malloc(bytes + 1);
    CUDA(cudaMemcpy(got, ranks[at].arena, bytes, cudaMemcpyDeviceToHost));
    bool ok = memcmp(got, arena[rank], bytes) == 0;
    for (int i = 0; !ok && i < hand.rank[rank].nins; i++) {
        const struct rt_instr *x = &hand.ins[rank][i];
        int64_t to = result_at(x);
        if (to >= 0 && memcmp(got + to, arena[rank] + to, (size_t)x->bytes) != 0)
            fprintf(stderr, "rank %d: %s of %lld bytes%s\n", rank, op_row(x->op)->name, (long long)x->bytes,
                    x->first ? "" : ", added");
    }
    free(got);
    return ok;
}

static bool in_one_process(int workers) {
    bool ok = true;
    for (int r = 0; r < workers; r++)
        if (!take(r, r, &cuda_loopback))
            return false;
    struct loopback *loopback = loopback_open(&hand.program, ranks);
    for (int r = 0; r < workers; r++)
        ranks[r].link = loopback;
    run(workers, NULL);
    hand_expect(&hand, arena, before);
    for (int r = 0; r < workers; r++)
        ok &= same(r, r);
    loopback_close(loopback);
    for (int r = 0; r < workers; r++)
        cuda_release(&replays[r], &ranks[r]);
    return ok;
}

static bool as_process(const struct cuda_transport *transport) {
    static struct rt_rank rank;
    static struct rt_program self;
    struct launch how = {-1, -1, -1, NULL, NULL, 0, NULL, 0};
    struct world world;
    char why[512];
    self.name = "collectives";
    self.rank = &rank;
    if (!launch_find(&how, why, sizeof why) || !tcp_open(&world, &how, why, sizeof why))
        rank_error(&self, why);
    world.self = &self;
    rank.number = world.rank;
    CUDA(cudaSetDevice(world.rank));
    world_verdict(&world, take(0, world.rank, transport), "no memory");
    transport->open(&world, &hand.program, hand.groups, &ranks[0]);
    run(1, &world);
    hand_expect(&hand, arena, before);
    bool ok = same(0, world.rank);
    transport->close(ranks[0].link);
    cuda_release(&replays[0], &ranks[0]);
    world_verdict(&world, ok, "an arena is not what the collectives should have made of it");
    world.close(world.link);
    return ok;
}

int main(int argc, char **argv) {
    if (argc < 4)
        return 2;
    bool nccl = strcmp(argv[1], "nccl") == 0, ordered = strcmp(argv[1], "ordered") == 0;
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    make(strtoull(argv[2], NULL, 10), atoi(argv[3]), nccl);
    if (strcmp(argv[1], "loopback") == 0)
        return !in_one_process(atoi(argv[3]));
    return !as_process(nccl ? &cuda_nccl : ordered ? &cuda_nccl_ordered : &cuda_put);
}
