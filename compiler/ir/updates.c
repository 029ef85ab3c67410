/* Updates that are jobs. A script gives U(s,k) of a stage, and each home of the stage's weights gets one such update.
 * If a team computes the stage, so does each home of each member's part and of the shared set. */
#include "costs.h"
#include <string.h>

/* Returns the script's stage of a set. */
static int stage_of_set(const struct spec *sp, int set) { return sp->names.member ? sp->names.member[set].stage : set; }

/* Gives the sets after the stages the update intervals of their stages; a table's is stage 0's. */
void updates_of_sets(const struct names *names, int stages, int *update) {
    for (int set = stages; set < stages + names->tables; set++)
        update[set] = update[0];
    for (int s = 0; names->shared && s < stages; s++)
        if (names->shared[s] >= 0)
            update[names->shared[s]] = update[s];
}

void name_spec_sets(struct spec *sp, bool tied, bool shared) {
    name_sets(&sp->names, sp->stages, tied, shared);
    if (!sp->updates.every)
        return;
    int *update = NEW(int, sp->stages + sp->names.sets);
    memcpy(update, sp->updates.every, sizeof *update * (size_t)sp->stages);
    updates_of_sets(&sp->names, sp->stages, update);
    sp->updates.every = update;
}

/* Returns where the updates of each of the script's stages begin in updates.asked. */
static int32_t *asked_at(const struct spec *sp) {
    int32_t *each = NEW(int32_t, sp->stages), *at = NEW(int32_t, sp->stages + 1);
    for (int s = 0; s < sp->stages; s++)
        each[stage_of_set(sp, s)] = sp->batches / sp->updates.every[s];
    for (int s = 0; s < sp->stages; s++)
        at[s + 1] = at[s] + each[s];
    return at;
}

/* Returns a set's cost of an update. A cost from the script covers the whole stage: the members' own parts carry it, if
 * they have weights, and a shared set costs nothing. */
static double member_cost(const struct costs *costs, int set, double asked) {
    const struct spec *sp = costs->spec;
    bool beside = set >= sp->stages && !is_bare(costs, sp->names.first[stage_of_set(sp, set)]);
    return beside && !isnan(asked) ? 0 : asked;
}

void place_updates(struct costs *costs) {
    const struct spec *sp = costs->spec;
    int sets = sp->stages + sp->names.sets;
    const int32_t *from = asked_at(sp);
    costs->update_at = NEW(int32_t, sets + 1);
    costs->update_at[0] = sp->njobs;
    for (int set = 0; set < sets; set++)
        costs->update_at[set + 1] =
            costs->update_at[set] +
            (is_bare(costs, set) ? 0 : sp->batches / sp->updates.every[set] * costs->homes[set].lists);
    costs->njobs = costs->update_at[sets];
    struct job *job = NEW(struct job, costs->njobs);
    memcpy(job, sp->job, sizeof *job * (size_t)sp->njobs);
    costs->job = job;
    for (int set = 0; set < sets; set++)
        for (int32_t j = costs->update_at[set]; j < costs->update_at[set + 1]; j++) {
            int32_t at = j - costs->update_at[set], lists = costs->homes[set].lists;
            job[j] = sp->updates.asked[from[stage_of_set(sp, set)] + at / lists];
            job[j].s = set;
            job[j].rank = job[j].home = job[j].team = costs->homes[set].rank[at % lists];
            job[j].cost = member_cost(costs, set, job[j].cost);
        }
}
