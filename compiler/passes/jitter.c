/* Robustness of a schedule against times other than predicted: its makespans if every job and message takes a little
 * longer or shorter, and the order on the lanes stays.
 *
 * Each time is multiplied by 1 + u, with u uniform in [-level, level) and independent of all others. u is a hash of the
 * seed, the run, the repetition of a period, and the instruction's place in the program: so it depends neither on the
 * order of the simulation, nor on the machine. A makespan is a maximum of sums of these times. Since u averages 0, the
 * expected makespan is never below the makespan without noise; a sample mean can be, by chance.
 *
 * The level AS_MEASURED multiplies each job's and update's time by a number of the cluster's spread instead, whose mean
 * is 1, and no others. */
#include "passes.h"
#include <math.h>
#include <stdlib.h>

/* Returns SplitMix64's bits (Steele, Lea & Flood 2014). */
uint64_t random_bits(uint64_t seed, uint64_t which) {
    uint64_t z = seed + (which + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

double random_part(uint64_t random) { return (double)(random >> 11) * 0x1p-52 - 1; }

const char *jitter_text(double level) {
    return level == AS_MEASURED ? "each job's time drawn from the measured ones"
                                : format("times up to %g %% longer or shorter", 100 * level);
}

struct jitter *jitter_make(const struct compile *c, double level, uint64_t seed, int64_t runs) {
    if (level == AS_MEASURED && !c->spec->machine.spread)
        die("--jitter measured: no cluster says how times of jobs vary; `pianola diff --fit` writes one that does, for "
            "--cluster");
    struct jitter *jitter = NEW(struct jitter, 1);
    double *makespan = NEW(double, runs), sum = 0;
    sim_noisy(c, level, seed, runs, makespan);
    sort(makespan, (size_t)runs, sizeof *makespan, by_value);
    for (int64_t i = 0; i < runs; i++)
        sum += makespan[i] - makespan[0]; /* without noise the sum is 0, and the mean equals the makespan bit for bit */
    int64_t within = runs - runs / 20;
    *jitter = (struct jitter){level, runs, makespan[0] + sum / (double)runs, makespan[within - 1], makespan[runs - 1]};
    return jitter;
}
