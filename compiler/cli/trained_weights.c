/* Hashes the weights that all ranks of a run have learned. */
#include "trained_weights.h"
#include "base/base.h"
#include "../../runtime/rt.h"
#include "../../runtime/store/fingerprint.h"
#include <string.h>

/* Gathers the weights of set s from its homes, shard by shard. Dies if two homes differ. */
static const float *learned(const struct rt_program *p, char *const *arena, int s) {
    int64_t n = weight_count(p->model, &p->stage[s]);
    float *all = NEW(float, n);
    bool *known = NEW(bool, n + 1); /* indexed by a shard's first element */
    for (int r = 0; r < p->workers; r++)
        for (int h = 0; h < p->rank[r].nhomes; h++) {
            if (p->rank[r].home[h].stage != s)
                continue;
            struct rt_learned learned = learned_at(p->model, &p->stage[s], &p->rank[r].home[h]);
            if (learned.count == 0)
                continue;
            const char *at = arena[learned.weight_in * p->workers + r] + learned.weight;
            size_t bytes = (size_t)learned.count * sizeof(float);
            if (known[learned.first] && memcmp(all + learned.first, at, bytes) != 0)
                die("the homes of stage %d ended with different weights; this is a bug, please report it",
                    p->stage[s].number);
            memcpy(all + learned.first, at, bytes);
            known[learned.first] = true;
        }
    return all;
}

uint64_t hash_trained(const struct rt_program *p, char *const *arena) {
    uint64_t hash = 0, copies = 0;
    for (int s = 0; s < p->sets; s++) {
        struct scratch scratch = scratch_begin();
        const struct rt_stage *stage = &p->stage[s];
        int64_t n = weight_count(p->model, stage);
        const float *w = learned(p, arena, s);
        uint64_t of_copies = fingerprint_stage((struct rt_piece){p->model, stage, 0, n}, w, true);
        if (stage->place > 0 && of_copies != copies)
            die("the members of the team of stage %d ended with different weights; this is a bug, please report it",
                stage->number);
        copies = of_copies;
        hash += fingerprint_stage((struct rt_piece){p->model, stage, 0, n}, w, false);
        scratch_end(scratch);
    }
    return hash;
}
