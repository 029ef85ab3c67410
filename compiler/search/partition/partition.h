/* Cuts a model into stages and gives each a number of machines: PipeDream's partitioner (Harlap 2018, arXiv
 * 1806.03377; Narayanan 2019, "PipeDream: Generalized Pipeline Parallelism for DNN Training"). */
#ifndef PIANOLA_PARTITION_H
#define PIANOLA_PARTITION_H
#include "base/text.h"

/* The cost of a layer per minibatch: seconds, and bytes of its output, of what it keeps for its backward, and of its
 * weights */
struct profiled {
    const char *id, *what; /* "node2", "Linear(...)" */
    double forward, backward, output, kept, weights;
};
struct profile {
    const char *name; /* name of the file, as given by the user */
    int nlayers, nedges;
    struct profiled *layer; /* edges go from a layer to a later one */
    struct edge {
        int from, to;
    } * edge;
};

/* profile.c: reads PipeDream's text form (github.com/msr-fiddle/pipedream, profiler/): a line per layer, then a line
 * per edge. Skips lines that begin with #. As the authors do, leaves out layers that are called Input, and __getitem__
 * whose output nobody reads. Dies with file:line on malformed input. */
struct profile *read_profile(const char *name, const char *text);

/* emit_profile.c: writes the same text form, with ids node1, node2, …; and a model script of costs, whose first line
 * says what was measured. */
void emit_graph(struct text *out, const struct profile *profile);
void emit_costs(struct text *out, const struct profile *profile, const char *measured);

/* cuts.c: finds all sets of layers that contain, for each of their layers, all its predecessors. A cut is between such
 * a set and the rest. Their last layers are the antichains of PipeDream's code. Cut 0 is before all layers, cut n - 1
 * after all of them. In a chain, cut i has i layers before it. */
enum { MOST_CUTS = 2048 }; /* limit for a graph with branches */
struct cuts {
    const struct profile *profile;
    int n;
    bool *below; /* [i * n + j]: the set of cut i is a proper subset of cut j's; NULL for a chain */
    double *seconds, *kept, *weights; /* sums over all layers before the cut */
    double *crossing;                 /* bytes of outputs before the cut that layers after it read */
    uint64_t *set;                    /* [i * words + layer / 64]; NULL for a chain */
    int words;
};
/* Finds all cuts. Dies if a graph with branches has more than MOST_CUTS. */
struct cuts *find_cuts(const struct profile *profile);
/* Returns whether cut i, whose number is lower than j's, can cut the layers before j. */
static inline bool is_below(const struct cuts *cuts, int i, int j) {
    return !cuts->below || cuts->below[i * cuts->n + j];
}
/* Returns whether the layer is between the cuts i and j. */
static inline bool is_between(const struct cuts *cuts, int i, int j, int layer) {
    if (!cuts->set)
        return layer >= i && layer < j;
    int word = layer / 64, bit = layer % 64;
    return (cuts->set[j * cuts->words + word] & ~cuts->set[i * cuts->words + word]) >> bit & 1;
}

/* A machine, as the papers call it, is a rank; above the lowest level it is a group of ranks. A level gives the number
 * of machines and the bandwidth between them: first the machines of a group, then the groups, ... */
struct level {
    int machines;
    double bandwidth; /* bytes per second; INFINITY: free */
};
enum { MOST_LEVELS = 8, MOST_MACHINES = 1024 };
struct machines {
    struct level level[MOST_LEVELS];
    int nlevels;
    bool sum;  /* a stage's time is compute + synchronization, as in the authors' code; else the larger of the two */
    bool ring; /* replicas synchronize by a ring: 2 (m-1)/m |w|; else by parameter servers: 4 (m-1)/m |w| */
    bool transfers;      /* transfers over a cut take time: 2 a / bandwidth */
    double memory;       /* bytes per machine; INFINITY: no limit. With one level only */
    const double *speed; /* per machine, which get stages in this order; NULL: all 1. With one level only */
};
int count_machines(const struct machines *machines);

struct part {
    int from, to; /* cuts */
    int replicas;
    int *rank;            /* the replica of microbatch b is rank[b % replicas] */
    double compute, sync; /* seconds per minibatch */
    int versions;         /* sets of weights, and minibatches at a time, on each replica: its warm-up forwards + 1 */
};
struct partition {
    struct part *part;
    int nparts;
    double seconds;       /* per minibatch, for the slowest stage or transfer */
    double one, parallel; /* the same for the fastest single machine; for data parallelism, whatever the memory */
};

/* partition.c: finds the partition with the fewest seconds per minibatch that uses all machines. A later cut replaces
 * cut i only if it is faster. Time: cuts^2 machines^2 for the last level, but in a chain mostly cuts machines^2; for a
 * level below, cuts^3 machines^2. Dies if memory does not suffice. */
struct partition *find_partition(const struct cuts *cuts, const struct machines *machines);

/* emit_partition.c: writes the partition as a schedule script; costs: with the layers' times as its costs. */
void emit_partition(struct text *out, const struct cuts *cuts, const struct partition *partition, bool costs);
#endif
