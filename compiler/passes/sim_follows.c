/* The order of a rank's instructions, for a simulation that advances from event to event. */
#include "sim.h"

/* A pass over what instructions follow: counts, or fills in. frees: until the lane is free. */
typedef void note(struct follows *f, int32_t before, int32_t i, bool frees);

static void count_follower(struct follows *f, int32_t before, int32_t i, bool frees) {
    (void)frees;
    f->at[before + 2]++;
    f->need[i]++;
}

static void add_follower(struct follows *f, int32_t before, int32_t i, bool frees) {
    f->next[f->at[before + 1]++] = frees ? ~i : i;
}

/* Notes what instructions of rank r follow within their sections. Of an overlapped pair, the first follows what either
 * does, and starts both. */
static void walk_rank(const struct sim *sim, int r, struct follows *f, note *note) {
    const struct rank *k = &sim->p->rank[r];
    struct scratch scratch = scratch_begin();
    int32_t *last = NEW(int32_t, k->nlanes); /* per lane: 1 + its last instruction so far */
    for (int32_t i = 0; i < k->nins; i++) {
        const struct instr *x = &k->ins[i];
        bool second = i > 0 && sim_leads_pair(sim, x - 1);
        int section = section_of(k, i), beside = sim->sibling[r][x->lane];
        int32_t at = second ? i - 1 : i, before = second ? -1 : last[x->lane] - 1;
        int32_t other = beside >= 0 ? last[beside] - 1 : -1;
        if (before >= 0 && section_of(k, before) == section)
            note(f, before, at, sim_follows_edge(k, x));
        if (other >= 0 && section_of(k, other) == section)
            note(f, other, at, false);
        for (uint32_t w = x->wait; w < x->wait + x->nwait; w++)
            if (section_of(k, k->wait[w]) == section)
                note(f, k->wait[w], at, false);
        last[x->lane] = i + 1;
    }
    scratch_end(scratch);
}

struct follows follows_of(const struct sim *sim, int r) {
    int32_t n = sim->p->rank[r].nins;
    struct follows f = {.at = NEW(int32_t, n + 2), .need = NEW(int32_t, n)};
    walk_rank(sim, r, &f, count_follower);
    for (int32_t i = 0; i <= n; i++)
        f.at[i + 1] += f.at[i];
    f.next = NEW(int32_t, f.at[n + 1]);
    walk_rank(sim, r, &f, add_follower);
    for (int32_t i = 1; i < n; i++)
        if (sim_leads_pair(sim, &sim->p->rank[r].ins[i - 1]))
            f.need[i] = 1; /* it never starts by itself */
    return f;
}
