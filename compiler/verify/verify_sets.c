/* Determines the sets of weights that a job reads, and the gradients it adds to.
 *
 * F, R, I and B read their stage's own set, and what its team shares, if anything; B and W add to the gradients of
 * both. In a tied model, stage 0's forward looks up tokens in the table, and the unembedding multiplies by it forward
 * and backward. Nothing else reads the table, and the weight gradients of both stages are added to its gradient. Each
 * member of a team has a table of its own. No job reads a set that has no weights, or adds to its gradient. */
#include "check.h"

/* Returns the set, among those that follow the stages' own, with this name; -1: none. */
static int32_t named_set(const struct names *names, int stages, int32_t stage, int32_t place) {
    for (int32_t set = stages; set < stages + names->sets; set++)
        if (names->member[set].stage == stage && names->member[set].place == place)
            return set;
    return -1;
}

/* Returns the table that stage s uses as the embedding or unembedding, or as a member of its team; -1: none. */
static int32_t table_at(const struct check *check, int s) {
    const struct names *names = &check->p->names;
    const struct member *member = names->member;
    if (!check->p->tied)
        return -1;
    if (!member)
        return s == 0 || s == check->p->unembedding ? check->p->stages : -1;
    bool has = member[s].stage == 0 || member[s].stage == member[check->p->unembedding].stage;
    return has ? named_set(names, check->p->stages, names->stages, member[s].place) : -1;
}

bool sets_begin(struct check *check) {
    const struct program *p = check->p;
    const struct names *names = &p->names;
    struct values *values = check->values;
    values->sets.table = NEW(int32_t, p->stages);
    values->sets.shared = NEW(int32_t, p->stages);
    bool shares = names->member && names->shared;
    if (check->sp->names.sets != names->sets || !check->sp->names.shared != !names->shared ||
        (check->sp->names.tables > 0) != p->tied)
        return refute_all(check, CLAIM_JOBS, "besides the stages' sets of weights, the script has %d, the program %d",
                          check->sp->names.sets, names->sets);
    if (p->tied && names->member && names->member[0].size != names->member[p->unembedding].size)
        return refute_all(check, CLAIM_JOBS, "the teams of the two stages that share a table have %d and %d members",
                          names->member[0].size, names->member[p->unembedding].size);
    for (int s = 0; s < p->stages; s++) {
        values->sets.table[s] = table_at(check, s);
        values->sets.shared[s] =
            shares && names->member[s].place >= 0 ? named_set(names, p->stages, names->member[s].stage, -1) : -1;
    }
    values->sets.slots = NEW(int32_t, values->sets.n);
    for (int s = 0; s < p->stages; s++) {
        values->sets.slots[s] = 1;
        if (values->sets.table[s] >= 0)
            values->sets.slots[values->sets.table[s]]++;
        if (values->sets.shared[s] >= 0)
            values->sets.slots[values->sets.shared[s]]++;
    }
    for (int set = 0; set < values->sets.n; set++) {
        bool none = check->costs->stage && check->costs->stage[set].bytes[K_weight] == 0;
        if (check->costs->stage && none == has_weights(p, set))
            return refute_all(check, CLAIM_JOBS, "the program says that set %d has %s weights, but it has %s", set,
                              none ? "some" : "no", none ? "none" : "some");
    }
    for (const struct job *j = check->sp->job; j < check->sp->job + check->sp->njobs && knows_homes(check->sp); j++)
        if (j->home < 0 && has_weights(p, j->s))
            return refute_all(check, CLAIM_JOBS, "the script gives no home of weight(%d), which the program has", j->s);
    return true;
}

bool knows_homes(const struct spec *sp) {
    for (const struct job *j = sp->job; j < sp->job + sp->njobs; j++)
        if (j->home >= 0)
            return true;
    return false;
}

int32_t set_of_operand(const struct check *check, const struct instr *x, int role) {
    const struct values *values = check->values;
    bool forward = x->op == OP_F || x->op == OP_R, back = x->op == OP_B || x->op == OP_I;
    bool adds = x->op == OP_B || x->op == OP_W;
    bool embeds = check->p->names.member ? check->p->names.member[x->stage].stage == 0 : x->stage == 0;
    bool unembeds = check->p->names.member
                        ? check->p->names.member[x->stage].stage == check->p->names.member[check->p->unembedding].stage
                        : x->stage == check->p->unembedding;
    int32_t set = -1;
    switch (role) {
    case ROLE_w: set = forward || back ? x->stage : -1; break;
    case ROLE_u: set = forward || back ? values->sets.shared[x->stage] : -1; break;
    case ROLE_v:
        set = (embeds && forward) || (unembeds && (forward || back)) ? values->sets.table[x->stage] : -1;
        break;
    case ROLE_dw: set = adds ? x->stage : -1; break;
    case ROLE_du: set = adds ? values->sets.shared[x->stage] : -1; break;
    case ROLE_dv: set = adds ? values->sets.table[x->stage] : -1; break;
    }
    return set >= 0 && has_weights(check->p, set) ? set : -1;
}

int slot_of(const struct check *check, int set, int s) {
    const struct values *values = check->values;
    const struct member *member = check->p->names.member;
    if (set < check->p->stages)
        return s == set ? 0 : -1;
    if (values->sets.table[s] == set)
        return member ? member[s].stage > 0 : s > 0;
    return values->sets.shared[s] == set ? member[s].place : -1;
}
