#include "partition.h"
#include <string.h>

static bool has(const uint64_t *set, int layer) { return set[layer / 64] >> layer % 64 & 1; }

static bool is_subset(const uint64_t *a, const uint64_t *b, int words) {
    for (int i = 0; i < words; i++)
        if (a[i] & ~b[i])
            return false;
    return true;
}

static _Noreturn void refuse_branches(const struct cuts *cuts) {
    die("%s: its branches leave more than %d places for a cut; merge the layers of a branch into one, or give a "
        "block of branches as one layer",
        cuts->profile->name, MOST_CUTS);
}

/* Adds the set, unless it is among those from `first` on. */
static void add_set(struct cuts *cuts, const uint64_t *set, int first, size_t *cap) {
    size_t bytes = sizeof *set * (size_t)cuts->words;
    for (int i = first; i < cuts->n; i++)
        if (memcmp(cuts->set + i * cuts->words, set, bytes) == 0)
            return;
    if (cuts->n == MOST_CUTS)
        refuse_branches(cuts);
    GROW(cuts->set, *cap, (size_t)(cuts->n + 1) * (size_t)cuts->words);
    memcpy(cuts->set + cuts->n++ * cuts->words, set, bytes);
}

/* Finds all sets of layers that contain the predecessors of each of their layers. A set of k + 1 is a set of k plus a
 * layer whose predecessors it contains. */
static void find_sets(struct cuts *cuts) {
    const struct profile *p = cuts->profile;
    int words = cuts->words;
    uint64_t *needs = NEW(uint64_t, p->nlayers * words), *set = NEW(uint64_t, words);
    size_t cap = 0;
    for (int i = 0; i < p->nedges; i++)
        needs[p->edge[i].to * words + p->edge[i].from / 64] |= UINT64_C(1) << p->edge[i].from % 64;
    add_set(cuts, set, 0, &cap);
    for (int first = 0, end = 1; first < end; first = end, end = cuts->n)
        for (int i = first; i < end; i++)
            for (int l = 0; l < p->nlayers; l++) {
                memcpy(set, cuts->set + i * words, sizeof *set * (size_t)words);
                if (has(set, l) || !is_subset(needs + l * words, set, words))
                    continue;
                set[l / 64] |= UINT64_C(1) << l % 64;
                add_set(cuts, set, end, &cap);
            }
}

static void sum_up_cut(struct cuts *cuts, int i) {
    const struct profile *p = cuts->profile;
    const uint64_t *set = cuts->set + i * cuts->words;
    bool *crosses = NEW(bool, p->nlayers);
    for (int k = 0; k < p->nedges; k++)
        crosses[p->edge[k].from] |= has(set, p->edge[k].from) && !has(set, p->edge[k].to);
    for (int l = 0; l < p->nlayers; l++) {
        if (!has(set, l))
            continue;
        cuts->seconds[i] += p->layer[l].forward + p->layer[l].backward;
        cuts->kept[i] += p->layer[l].kept;
        cuts->weights[i] += p->layer[l].weights;
        cuts->crossing[i] += crosses[l] ? p->layer[l].output : 0;
    }
}

static void take_sums(struct cuts *cuts) {
    cuts->seconds = NEW(double, cuts->n);
    cuts->kept = NEW(double, cuts->n);
    cuts->weights = NEW(double, cuts->n);
    cuts->crossing = NEW(double, cuts->n);
}

/* ---- chains ---- */

/* Returns, per layer, the last one that reads its output; 0: none does. */
static int *last_readers(const struct profile *p) {
    int *last = NEW(int, p->nlayers);
    for (int i = 0; i < p->nedges; i++)
        if (p->edge[i].to > last[p->edge[i].from])
            last[p->edge[i].from] = p->edge[i].to;
    return last;
}

/* Returns whether each layer reads the one before it. Then all cuts are between two neighbouring layers, whatever else
 * they read. */
static bool is_chain(const struct profile *p) {
    bool *reads = NEW(bool, p->nlayers);
    for (int i = 0; i < p->nedges; i++)
        reads[p->edge[i].to] |= p->edge[i].from == p->edge[i].to - 1;
    for (int l = 1; l < p->nlayers; l++)
        if (!reads[l])
            return false;
    return true;
}

static void cut_chain(struct cuts *cuts) {
    const struct profile *p = cuts->profile;
    const int *last = last_readers(p);
    int *open = NEW(int, p->nlayers), nopen = 0; /* layers before the cut that layers after it read */
    cuts->n = p->nlayers + 1;
    take_sums(cuts);
    for (int l = 0; l < p->nlayers; l++) {
        int still = 0;
        open[nopen++] = l;
        cuts->seconds[l + 1] = cuts->seconds[l] + (p->layer[l].forward + p->layer[l].backward);
        cuts->kept[l + 1] = cuts->kept[l] + p->layer[l].kept;
        cuts->weights[l + 1] = cuts->weights[l] + p->layer[l].weights;
        for (int i = 0; i < nopen; i++)
            if (last[open[i]] > l) {
                cuts->crossing[l + 1] += p->layer[open[i]].output;
                open[still++] = open[i];
            }
        nopen = still;
    }
}

/* ---- the whole search ---- */

struct cuts *find_cuts(const struct profile *profile) {
    struct cuts *cuts = NEW(struct cuts, 1);
    cuts->profile = profile;
    if (is_chain(profile)) {
        cut_chain(cuts);
        return cuts;
    }
    if (profile->nlayers >= MOST_CUTS) /* a cut follows each layer */
        refuse_branches(cuts);
    cuts->words = (profile->nlayers + 63) / 64;
    find_sets(cuts);
    int n = cuts->n;
    cuts->below = NEW(bool, (size_t)n *(size_t)n);
    take_sums(cuts);
    for (int i = 0; i < n; i++) {
        sum_up_cut(cuts, i);
        for (int j = i + 1; j < n; j++)
            cuts->below[i * n + j] = is_subset(cuts->set + i * cuts->words, cuts->set + j * cuts->words, cuts->words);
    }
    return cuts;
}
