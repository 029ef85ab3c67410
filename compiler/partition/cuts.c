#include "partition.h"
#include <string.h>

static bool has(const uint64_t *set, int layer) { return set[layer / 64] >> layer % 64 & 1; }

static bool is_part(const uint64_t *a, const uint64_t *b, int words) {
    for (int i = 0; i < words; i++)
        if (a[i] & ~b[i])
            return false;
    return true;
}

/* Adds the set, unless it is among those from `first` on. */
static void add(struct cuts *cuts, const uint64_t *set, int first, size_t *cap) {
    size_t bytes = sizeof *set * (size_t)cuts->words;
    for (int i = first; i < cuts->n; i++)
        if (memcmp(cuts->set + i * cuts->words, set, bytes) == 0)
            return;
    if (cuts->n == MOST_CUTS)
        die("%s: its branches leave more than %d places for a cut; merge the layers of a branch into one, or give a "
            "block of branches as one layer",
            cuts->profile->name, MOST_CUTS);
    GROW(cuts->set, *cap, (size_t)(cuts->n + 1) * (size_t)cuts->words);
    memcpy(cuts->set + cuts->n++ * cuts->words, set, bytes);
}

/* Sets of k + 1 layers are sets of k and one layer whose predecessors they have. */
static void find_sets(struct cuts *cuts) {
    const struct profile *p = cuts->profile;
    int words = cuts->words;
    uint64_t *needs = NEW(uint64_t, p->nlayers * words), *set = NEW(uint64_t, words);
    size_t cap = 0;
    for (int i = 0; i < p->nedges; i++)
        needs[p->edge[i].to * words + p->edge[i].from / 64] |= UINT64_C(1) << p->edge[i].from % 64;
    add(cuts, set, 0, &cap);
    for (int first = 0, end = 1; first < end; first = end, end = cuts->n)
        for (int i = first; i < end; i++)
            for (int l = 0; l < p->nlayers; l++) {
                memcpy(set, cuts->set + i * words, sizeof *set * (size_t)words);
                if (has(set, l) || !is_part(needs + l * words, set, words))
                    continue;
                set[l / 64] |= UINT64_C(1) << l % 64;
                add(cuts, set, end, &cap);
            }
}

static void add_up(struct cuts *cuts, int i) {
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

struct cuts *find_cuts(const struct profile *profile) {
    struct cuts *cuts = NEW(struct cuts, 1);
    cuts->profile = profile;
    cuts->words = (profile->nlayers + 63) / 64;
    find_sets(cuts);
    int n = cuts->n;
    cuts->below = NEW(bool, (size_t)n *(size_t)n);
    cuts->seconds = NEW(double, n);
    cuts->kept = NEW(double, n);
    cuts->weights = NEW(double, n);
    cuts->crossing = NEW(double, n);
    for (int i = 0; i < n; i++) {
        add_up(cuts, i);
        for (int j = i + 1; j < n; j++)
            cuts->below[i * n + j] = is_part(cuts->set + i * cuts->words, cuts->set + j * cuts->words, cuts->words);
    }
    return cuts;
}
