/* Who owns which part of a set of weights, and which part of it each operand is.
 *
 * A set is counted in units, fine enough that every piece that a rank updates or an operand names is a whole number of
 * them. Member i of a replica sharded over F ranks holds shard i. If P replicas divide the update, it updates one of P
 * pieces of that shard, else all of it. A buffer's name and rank determine its units, so the two ends of a transfer
 * must have the same units. */
#include "check_homes.h"
#include <string.h>

struct owner { /* a rank's ownership of one set; sorted by set */
    int32_t set, place;
    int32_t weights; /* its buffer of weights */
    bool in_host;    /* whether the optimizer state is in host memory */
};

/* Returns rank r's ownership of the set, or NULL. */
static struct owner *owner_of(const struct check *check, int r, int set) {
    int low = check->values->owner_at[r], high = check->values->owner_at[r + 1];
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (check->values->owner[middle].set == set)
            return &check->values->owner[middle];
        if (check->values->owner[middle].set < set)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

static int place_as_owner(const struct check *check, int r, int set) {
    const struct owner *owner = owner_of(check, r, set);
    return owner ? owner->place : -1;
}

int32_t weights_at_home(const struct check *check, int r, int set) {
    const struct owner *owner = owner_of(check, r, set);
    return owner ? owner->weights : -1;
}

struct span own_span(const struct check *check, int r, int set) {
    const struct homes *homes = &check->values->homes[set];
    int place = place_as_owner(check, r, set);
    if (place < 0)
        return (struct span){0, -1};
    struct span shard = part_of((struct span){0, check->values->units[set]}, place % homes->size, homes->size);
    return homes->zero ? part_of(shard, place / homes->size, homes->lists) : shard;
}

struct span units_of(const struct check *check, int r, const struct arg *a) {
    const struct buf *b = &check->p->rank[r].buf[a->buf];
    struct span all = {0, 1};
    if (holds_weights(b->kind) || holds_gradient(b->kind)) {
        int size = check->values->homes[b->stage].size;
        all.to = check->values->units[b->stage];
        if (b->kind == K_gown)
            all = own_span(check, r, b->stage);
        else if (b->kind == K_wshard || b->kind == K_gshard) {
            int place = place_as_owner(check, r, b->stage);
            all = place < 0 ? (struct span){0, -1} : part_of(all, place % size, size);
        }
    }
    return all.to < 0 || !a->last ? all : part_of(all, (int)a->piece, pieces_of(a));
}

bool keeps(const struct check *check, int r, const struct buf *b) {
    if (b->kind == K_opt) {
        const struct owner *owner = owner_of(check, r, b->stage);
        return !owner || !owner->in_host;
    }
    if (b->kind == K_hopt || is_of_rank(b->kind) || b->kind == K_gown || at_home(b))
        return true;
    if (b->inst >= 0 || (b->kind != K_wgrad && b->kind != K_gshard) || check->p->update)
        return false;
    const struct homes *homes = &check->values->homes[b->stage];
    return homes->zero < 2 && place_as_owner(check, r, b->stage) >= 0 && (homes->size > 1) == (b->kind == K_gshard);
}

const char *arg_text(const struct check *check, int r, const struct arg *a) {
    struct text t = {0};
    put_arg(&t, &check->p->names, &check->p->rank[r], a);
    return t.s;
}

const char *span_text(struct span span) {
    return span.to - span.from == 1 ? format("unit %d", span.from) : format("units %d to %d", span.from, span.to - 1);
}

/* ---- what the homes are ---- */

enum { MOST_UNITS = 1 << 30 };

/* Counts the units of each set. */
static bool count_units(struct check *check) {
    struct values *values = check->values;
    values->units = NEW(int32_t, values->sets.n);
    for (int set = 0; set < values->sets.n; set++)
        values->units[set] = values->homes[set].size * shares_of(&values->homes[set]);
    for (int r = 0; r < check->p->workers; r++) {
        const struct rank *k = &check->p->rank[r];
        for (int32_t i = 0; i < k->nins; i++)
            for (const struct arg *a = k->arg + k->ins[i].arg; a < k->arg + k->ins[i].arg + k->ins[i].narg; a++) {
                const struct buf *b = &k->buf[a->buf];
                if (!a->last || !(holds_weights(b->kind) || holds_gradient(b->kind)))
                    continue;
                const struct homes *homes = &values->homes[b->stage];
                bool shard = b->kind == K_wshard || b->kind == K_gshard;
                int64_t buffers = shard ? homes->size : b->kind == K_gown ? homes->size * shares_of(homes) : 1;
                int64_t units = common_multiple(values->units[b->stage], buffers * pieces_of(a));
                if (units > MOST_UNITS)
                    return refute(check, CLAIM_JOBS, r, i, "%s and other pieces of set %d have no common units",
                                  arg_text(check, r, a), b->stage);
                values->units[b->stage] = (int32_t)units;
            }
    }
    return true;
}

/* Returns the program's homes; if it lists none, every rank that holds a set's weights without an instance is one. */
static struct homes *listed_homes(const struct check *check) {
    const struct program *p = check->p;
    int sets = check->values->sets.n;
    struct homes *all = NEW(struct homes, sets);
    if (p->homes) {
        for (int set = 0; set < sets; set++) {
            all[set] = has_weights(p, set) ? p->homes[set] : (struct homes){0, 1, 0, NULL};
            all[set].zero = all[set].lists > 1 ? all[set].zero : 0;
        }
        return all;
    }
    for (int pass = 0; pass < 2; pass++) {
        for (int r = 0; r < p->workers; r++)
            for (const struct buf *b = p->rank[r].buf; b < p->rank[r].buf + p->rank[r].nbufs; b++)
                if (b->kind == K_weight && b->inst < 0) {
                    if (pass)
                        all[b->stage].rank[all[b->stage].lists] = r;
                    all[b->stage].lists++;
                }
        for (int set = 0; set < sets && !pass; set++)
            all[set] = (struct homes){0, 1, 0, NEW(int32_t, all[set].lists)};
    }
    return all;
}

/* Refutes unless a table's homes are the homes of stage 0 or of its member, if these have weights of their own. */
static bool tables_are_with_stage_0(struct check *check) {
    const struct program *p = check->p;
    for (int s = 0; p->tied && p->homes && s < p->stages && slot_of(check, check->values->sets.table[s], s) == 0; s++) {
        const struct homes *a = &p->homes[s], *b = &p->homes[check->values->sets.table[s]];
        bool same = a->lists == b->lists && a->size == b->size && a->zero == b->zero &&
                    !memcmp(a->rank, b->rank, sizeof *a->rank * (size_t)(a->lists * a->size));
        if (!same && has_weights(p, s))
            return refute_all(check, CLAIM_GRADIENTS, "the homes of the table, set %d, are not those of stage 0",
                              check->values->sets.table[s]);
    }
    return true;
}

static bool has_list(const struct homes *homes, const int32_t *rank, int n) {
    for (int l = 0; l < homes->lists && homes->size == n; l++)
        if (!memcmp(homes->rank + l * n, rank, sizeof *rank * (size_t)n))
            return true;
    return false;
}

/* Refutes unless each home of a member's own weights has a replica of what its team shares, and no other rank has
 * one. */
static bool shared_by_members(struct check *check) {
    const struct program *p = check->p;
    for (int set = p->stages + p->names.tables; set < check->values->sets.n; set++) {
        const struct homes *shared = &check->values->homes[set];
        bool known = has_weights(p, set), *named = NEW(bool, shared->lists + 1);
        for (int s = 0; s < p->stages; s++) {
            const struct homes *own = &check->values->homes[s];
            if (check->values->sets.shared[s] != set)
                continue;
            known &= has_weights(p, s);
            for (int l = 0; known && l < own->lists; l++)
                if (!has_list(shared, own->rank + l * own->size, own->size))
                    return refute_all(
                        check, CLAIM_GRADIENTS,
                        "a home of stage %d, from rank %d on, has no replica of set %d, which its team shares", s,
                        own->rank[l * own->size], set);
            for (int l = 0; l < shared->lists; l++)
                named[l] |= has_list(own, shared->rank + l * shared->size, shared->size);
        }
        for (int l = 0; known && l < shared->lists; l++)
            if (!named[l])
                return refute_all(
                    check, CLAIM_GRADIENTS,
                    "set %d has a home from rank %d on, but no member of its team has weights at home there", set,
                    shared->rank[l * shared->size]);
    }
    return true;
}

/* Lists each rank's sets. */
static bool list_owners(struct check *check) {
    struct values *values = check->values;
    int W = check->p->workers;
    int32_t *at = values->owner_at = NEW(int32_t, W + 2), *seen = NEW(int32_t, W); /* 1 + the last set owned */
    for (int set = 0; set < values->sets.n; set++)
        for (int i = 0; i < values->homes[set].lists * values->homes[set].size; i++) {
            int r = values->homes[set].rank[i];
            if (r < 0 || r >= W || seen[r] == set + 1)
                return refute_all(check, CLAIM_GRADIENTS, "the homes of weight(%d) name rank %d twice", set, r);
            seen[r] = set + 1;
            at[r + 2]++;
        }
    for (int r = 0; r < W; r++)
        at[r + 2] += at[r + 1];
    values->owner = NEW(struct owner, at[W + 1] + 1);
    for (int set = 0; set < values->sets.n; set++)
        for (int i = 0; i < values->homes[set].lists * values->homes[set].size; i++)
            values->owner[at[values->homes[set].rank[i] + 1]++] = (struct owner){set, i, -1, false};
    return true;
}

/* ---- what must agree with the homes ---- */

/* Refutes unless a rank holds the buffers of an owner exactly where it is one. Notes its buffer of weights. */
static bool check_owner(struct check *check, int r, int32_t *held) {
    const struct rank *k = &check->p->rank[r];
    struct values *values = check->values;
    for (int i = 0; i < k->nbufs; i++) { /* a rank may have no buffers at all */
        const struct buf *b = &k->buf[i];
        bool shard = b->kind == K_wshard || b->kind == K_gshard || b->kind == K_gown;
        struct owner *owner = b->kind == K_hopt ? owner_of(check, r, b->stage) : NULL;
        if (owner)
            owner->in_host = true;
        if (!shard && !at_home(b))
            continue;
        const struct homes *homes = &values->homes[b->stage];
        const char *name = buf_text(check, r, i);
        if (place_as_owner(check, r, b->stage) < 0)
            return refute_all(check, CLAIM_GRADIENTS, "rank %d holds %s, but is not a home of it", r, name);
        if (b->kind == K_gown ? homes->zero < 2 : (homes->size > 1) != shard)
            return refute_all(check, CLAIM_GRADIENTS, "rank %d holds %s, but its homes are %d lists of %d, zero %d", r,
                              name, homes->lists, homes->size, homes->zero);
        if (at_home(b)) {
            held[b->stage] = r + 1;
            owner_of(check, r, b->stage)->weights = i;
        }
    }
    for (int i = values->owner_at[r]; i < values->owner_at[r + 1]; i++)
        if (held[values->owner[i].set] != r + 1)
            return refute_all(check, CLAIM_GRADIENTS, "a home of weight(%d), rank %d, does not hold %s",
                              values->owner[i].set, r,
                              values->homes[values->owner[i].set].size > 1 ? "its shard" : "it");
    return true;
}

/* Refutes unless the set's homes are the lists that w() named for jobs first .. last - 1, and no others. seen: per home
 * that any job may name, 1 + the last set. */
static bool named_by_script(struct check *check, int set, int first, int last, int32_t *seen) {
    const struct spec *sp = check->sp;
    const struct homes *homes = &check->values->homes[set];
    bool *named = NEW(bool, homes->lists);
    int zero = sp->owners.zero && homes->lists > 1 ? sp->owners.zero[sp->job[first].s] : 0;
    for (int j = first; j < last; j++) {
        if (sp->job[j].home < 0 || seen[sp->job[j].home] == set + 1)
            continue;
        seen[sp->job[j].home] = set + 1;
        struct home home = home_of(sp, &sp->job[j].home);
        int place = place_as_owner(check, home.rank[0], set);
        if (place < 0 || place % homes->size || home.n != homes->size ||
            memcmp(home.rank, homes->rank + place, sizeof *home.rank * (size_t)home.n))
            return refute_all(check, CLAIM_GRADIENTS, "a home of weight(%d), from rank %d on, is not in the program",
                              set, home.rank[0]);
        named[place / homes->size] = true;
    }
    for (int l = 0; l < homes->lists; l++)
        if (!named[l])
            return refute_all(check, CLAIM_GRADIENTS, "rank %d holds weight(%d), but is not a home of it",
                              homes->rank[l * homes->size], set);
    return zero == homes->zero ||
           refute_all(check, CLAIM_GRADIENTS, "the script says zero %d for stage %d, the program %d", zero, set,
                      homes->zero);
}

/* Returns whether w(), called for the jobs of stage s, decides where a set is at home. A set of its own: yes; a table:
 * for the embedding's member; what a team shares: for any member. */
static bool says_home(const struct check *check, int set, int s) {
    int slot = slot_of(check, set, s);
    return set < check->p->stages + check->p->names.tables ? slot == 0 : slot >= 0;
}

/* Refutes unless the homes are those that w() named. Skips programs read from their text, which does not record
 * them. */
static bool check_named_homes(struct check *check) {
    const struct spec *sp = check->sp;
    if (!knows_homes(sp))
        return true;
    int32_t *seen = NEW(int32_t, sp->workers + sp->owners.nlists);
    for (int set = 0; set < check->values->sets.n; set++) {
        int first = 0, last;
        if (!has_weights(check->p, set))
            continue;
        while (!says_home(check, set, sp->job[first].s))
            first++;
        for (last = first; last < sp->njobs && says_home(check, set, sp->job[last].s);)
            last++; /* jobs are sorted by stage */
        if (!named_by_script(check, set, first, last, seen))
            return false;
    }
    return true;
}

bool homes_begin(struct check *check) {
    check->values->homes = listed_homes(check);
    if (!tables_are_with_stage_0(check) || !shared_by_members(check) || !list_owners(check) ||
        !check_named_homes(check) || !count_units(check))
        return false;
    int32_t *held = NEW(int32_t, check->values->sets.n); /* per set: 1 + the last rank that has its home's weights */
    for (int r = 0; r < check->p->workers; r++)
        if (!check_owner(check, r, held))
            return false;
    return true;
}
