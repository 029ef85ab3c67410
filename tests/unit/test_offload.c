/* offload = "auto" against brute force: the fewest stashes, all of one size, that must leave for a rank's plan to fit.
 * */
#include "random_spec.h"
#include <criterion/criterion.h>

enum { W = 4, B = 7 };

/* Returns 1F1B with unit costs and caps, or a random spec from the seed. Copies take `took`. */
static struct spec *draw_pipeline(int seed, double took) {
    random_state = (uint64_t)seed;
    struct spec *sp = pipeline_spec(W, B, below(2) ? 2 : 1);
    for (int r = 0; r < W; r++)
        sp->limits.cap[r] = seed % 2 ? W - r : 1 + below(B);
    for (int j = 0; j < sp->njobs && seed % 2 == 0; j++)
        sp->job[j].cost = 1 + below(3);
    sp->choices.offload = NEW(uint8_t, W * B);
    sp->machine.host_link = NEW(struct link, W);
    for (int r = 0; r < W; r++)
        sp->machine.host_link[r] = (struct link){0, took > 0 ? 1 / took : INFINITY};
    return sp;
}

static int64_t arena_of(const struct spec *sp, const struct costs *costs, const struct graph *g, const struct sched *sc,
                        int r) {
    struct scratch scratch = scratch_begin();
    struct spec free = *sp;
    free.machine.memory = INFINITY;
    struct program *p = lower_of(&free, costs, g, sc);
    mem_of(&free, p);
    int64_t arena = p->rank[r].arena;
    scratch_end(scratch);
    return arena;
}

static int count(const struct spec *sp, int s) {
    int n = 0;
    for (int b = 0; b < B; b++)
        n += sp->choices.offload[s * B + b];
    return n;
}

Test(offload, no_fewer_stashes_would_do) {
    int some = 0, more = 0, cases = 0;
    for (int seed = 0; seed < 24; seed++) {
        struct spec *sp = draw_pipeline(seed, 0.5 * (seed % 3));
        struct costs *costs = unit_stages(sp);
        struct graph *g = graph_of(sp);
        struct sched *sc = sched_of(sp, costs, g);
        int r = seed / 2 % W;
        int64_t arena[1 << B], least = INT64_MAX;
        for (int set = 0; set < 1 << B; set++) {
            memset(sp->choices.offload, 0, W * B);
            for (int b = 0; b < B; b++)
                sp->choices.offload[r * B + b] = set >> b & 1;
            arena[set] = arena_of(sp, costs, g, sc, r);
            least = arena[set] < least ? arena[set] : least;
        }
        for (int64_t memory = least; memory <= arena[0]; memory++) {
            int fewest = B;
            for (int set = 0; set < 1 << B; set++)
                if (arena[set] <= memory && __builtin_popcount((unsigned)set) < fewest)
                    fewest = __builtin_popcount((unsigned)set);
            sp->choices.auto_offload = true;
            sp->machine.memory = (double)memory;
            struct compile c = parts_of(sp, costs, g, NULL);
            c.sched = sc;
            search_offloads(&c);
            memcpy(sp->choices.offload, c.choices.offload, W * B);
            int n = count(sp, r);
            cr_assert_geq(n, fewest);
            more += n > fewest;
            some += fewest > 0;
            cases++;
        }
        free_all();
    }
    fprintf(stderr, "%d limits, %d of them take offloading; more than the fewest: %d\n", cases, some, more);
    cr_assert(some > 20 && more == 0, "%d of %d take more than needed", more, some);
}

/* An offloaded tensor is back before its reader starts, even if that takes no time. */
Test(offload, jobs_without_cost_read_from_the_device) {
    for (int seed = 0; seed < 40; seed++, free_all()) {
        struct spec *sp = draw_pipeline(seed, 0.5 * (seed % 3));
        memset(sp->choices.offload, 1, W * B);
        for (int j = 0; j < sp->njobs; j++)
            sp->job[j].cost = below(2);
        struct costs *costs = unit_stages(sp);
        struct graph *g = graph_of(sp);
        struct program *p = lower_of(sp, costs, g, sched_of(sp, costs, g));
        for (int r = 0; r < W; r++)
            for (int i = 0; i < p->rank[r].nins; i++) {
                const struct instr *x = &p->rank[r].ins[i];
                bool copies = op_lane[x->op] == LANE_OFFLOAD || op_lane[x->op] == LANE_RELOAD;
                for (int a = 0; a < x->narg && !copies; a++)
                    cr_assert(memory_of(&p->rank[r].buf[p->rank[r].arg[x->arg + a].buf]) == MEMORY_DEVICE,
                              "seed %d, rank %d, instruction %d", seed, r, i);
            }
    }
}
