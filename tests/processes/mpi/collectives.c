/* Every collective over MPI, against its definition (tests/support/hand_collectives.h), with a process for each rank.
 * Exits 0 if the arena of this rank is right, byte for byte. */
#include "comm/watch.h"
#include "comm/world.h"
#include "device/device_host.h"
#include "hand_collectives.h"
#include "layers/host.h"
#include <stdio.h>

static struct hand hand;

static bool try_seed(struct world *w, uint64_t seed) {
    char *arena[HAND_RANKS], *before[HAND_RANKS];
    struct replay re;
    struct host_rank own = {.transport = w->transport, .link = w->link};
    hand_make(&hand, seed, w->size, FP32);
    for (int r = 0; r < w->size; r++) {
        arena[r] = malloc((size_t)hand.rank[r].arena + 1);
        before[r] = malloc((size_t)hand.rank[r].arena + 1);
        memset(arena[r], 0, (size_t)hand.rank[r].arena);
        hand_fill(&hand, arena[r], hand.rank[r].arena, r, false);
    }
    if (!host_take(&re, &own, &hand.program, w->rank))
        return false;
    memcpy(own.arena, arena[w->rank], (size_t)hand.rank[w->rank].arena);
    bool ok = w->prepare(w->link, &hand.rank[w->rank], hand.program.nmsgs, hand.groups, own.arena);
    for (re.step = 0; ok && re.step < HAND_STEPS; re.step++)
        replay_step(&re);
    hand_expect(&hand, arena, before);
    return ok && memcmp(own.arena, arena[w->rank], (size_t)hand.rank[w->rank].arena) == 0;
}

int main(int argc, char **argv) {
    static const struct rt_rank rank;
    static const struct rt_program self = {.name = "collectives", .rank = &rank};
    const struct launch how = {.rank = -1, .size = -1, .local = -1};
    struct world w;
    char why[512];
    if (!mpi_open(&w, &how, why, sizeof why))
        return 2;
    w.self = &self;
    bool ok = try_seed(&w, argc > 1 ? strtoull(argv[1], NULL, 10) : 0);
    snprintf(why, sizeof why, "rank %d: its arena is not what the collectives should have made of it", w.rank);
    world_verdict(&w, ok, why);
    w.close(w.link);
    return 0;
}
