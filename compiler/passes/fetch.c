/* Decides which weights a rank fetches, keeps and evicts, among those that it does not hold whole. All uses are known,
 * so the victim is the set needed furthest in the future (Belady 1966, "A study of replacement algorithms for a
 * virtual-storage computer"): no rule fetches less with the same number of slots. A slot holds one set of weights. A
 * rank always has the slots that a job with two sets, or two jobs that overlap, need at once. If sets have unequal
 * sizes, or memory limits what is kept, fetch_bytes.c chooses. */
#include "lower.h"
#include <limits.h>
#include <string.h>

/* Returns whether a member stage is stage 0 of a tied model. The unembedding's stage has as many members. */
static bool embeds(const struct spec *sp, int s) { return s < sp->names.tables; }
bool unembeds(const struct costs *costs, int s) {
    return costs->spec->names.tables > 0 && s - place_of_stage(&costs->spec->names, s) == costs->unembedding;
}
static int32_t table_of(const struct spec *sp, int s) { return sp->stages + place_of_stage(&sp->names, s); }

static int32_t own_or_shared(const struct costs *costs, int s, enum which_set which) {
    int32_t set = which == SET_OWN ? s : costs->spec->names.shared ? costs->spec->names.shared[s] : -1;
    return set >= 0 && !is_bare(costs, set) ? set : -1;
}

/* Returns the set that a job reads. W reads only its wstash. The embedding's forward reads the table, as do the
 * unembedding's forward and backward. */
int32_t set_read(const struct costs *costs, const struct job *j, enum which_set which) {
    bool forward = j->d == OP_F || j->d == OP_R;
    if (j->d == OP_W || j->d == OP_U)
        return -1;
    return which != SET_TABLE                                                ? own_or_shared(costs, j->s, which)
           : unembeds(costs, j->s) || (embeds(costs->spec, j->s) && forward) ? table_of(costs->spec, j->s)
                                                                             : -1;
}

int32_t set_added(const struct costs *costs, const struct job *j, enum which_set which) {
    if (j->d != OP_B && j->d != OP_W)
        return -1;
    return which != SET_TABLE                                   ? own_or_shared(costs, j->s, which)
           : unembeds(costs, j->s) || embeds(costs->spec, j->s) ? table_of(costs->spec, j->s)
                                                                : -1;
}

const int32_t *home_of_set(const struct spec *sp, const struct job *j, enum which_set which) {
    return which != SET_TABLE || embeds(sp, j->s)
               ? &j->home
               : &sp->job[job_at(sp, place_of_stage(&sp->names, j->s), j->b, OP_F)].home;
}

int32_t *home_places(const struct costs *costs) {
    const struct spec *sp = costs->spec;
    int64_t sets = sets_of(sp);
    int32_t *place = NEW(int32_t, sp->workers * sets);
    memset(place, -1, sizeof *place * (size_t)(sp->workers * sets));
    for (int s = 0; s < sets; s++) {
        const struct homes *homes = homes_of(costs, s);
        for (int i = 0; i < homes->lists * homes->size; i++)
            place[homes->rank[i] * sets + s] = i;
    }
    return place;
}

/* Returns the key of what a rank fetches: a set's weights, or a version of them. */
static int32_t fetched_key(const struct costs *costs, const struct sched *sc, int32_t use) {
    int32_t set = set_read(costs, &costs->job[use / NSETS], use % NSETS);
    return costs->spec->updates.every ? sc->version[use / NSETS] * sets_of(costs->spec) + set : set;
}

static int count_keys(const struct spec *sp) {
    int most = 1; /* versions */
    for (int s = 0; sp->updates.every && s < sp->stages; s++)
        most = sp->batches / sp->updates.every[s] + 1 > most ? sp->batches / sp->updates.every[s] + 1 : most;
    return most * sets_of(sp);
}

struct by_key { /* tables for all ranks; each rank clears the entries it uses */
    int32_t *soonest, *held;
};

struct slot_use {
    int32_t fetch, next, last; /* fetch in the slot; its next and last use, as positions in the rank's uses */
};

bool at_once(const struct costs *costs, int32_t use, int32_t other) {
    int32_t a = use / NSETS, b = other / NSETS;
    return a == b || (costs->job[a].pair && costs->job[a].pair == costs->job[b].pair);
}

/* Returns the number of sets that are read at once from use i on. */
static int sets_at_once(const struct costs *costs, const int32_t *use, const int32_t *key, int nuse, int i) {
    int n = 0;
    for (int k = i; k < nuse && at_once(costs, use[i], use[k]); k++) {
        bool again = false;
        for (int l = i; l < k; l++)
            again |= key[l] == key[k];
        n += !again;
    }
    return n;
}

/* Returns the slot whose set is needed last, except slots in use together with use i. */
static int victim(const struct costs *costs, const struct slot_use *slot, int nslots, const int32_t *use, int i) {
    int at = -1;
    for (int k = 0; k < nslots; k++)
        if (!at_once(costs, use[slot[k].last], use[i]) &&
            (at < 0 || slot[k].next > slot[at].next || (slot[k].next == slot[at].next && slot[k].last < slot[at].last)))
            at = k;
    return at;
}

int64_t fetch_bytes(const struct costs *costs, const int32_t *place, int rank, int32_t set) {
    const struct homes *homes = homes_of(costs, set);
    if (!costs->stage)
        return 1;
    bool member = homes->size > 1 && place[(int64_t)rank * sets_of(costs->spec) + set] >= 0;
    return costs->stage[set].bytes[K_weight] - (member ? costs->stage[set].bytes[K_wshard] : 0);
}

/* Returns whether fetches of all sets used here receive equally many bytes. */
static bool equal_sizes(const struct costs *costs, const int32_t *place, int rank, const int32_t *key, int n) {
    for (int i = 1; i < n; i++)
        if (fetch_bytes(costs, place, rank, key[i] % sets_of(costs->spec)) !=
            fetch_bytes(costs, place, rank, key[0] % sets_of(costs->spec)))
            return false;
    return true;
}

struct fetch new_fetch(int rank, int set, int home, int inst, int32_t first) {
    return (struct fetch){.rank = rank,
                          .set = set,
                          .home = home,
                          .inst = inst,
                          .after = -1,
                          .beside = -1,
                          .first = first,
                          .source = -1,
                          .from = -1};
}

void add_use(struct fetch *f, int32_t job) {
    f->uses++;
    f->last = job;
}

/* Plans a rank's fetches. use[]: job * NSETS + which, in the order of jobs. */
static void plan_rank(const struct compile *c, const int32_t *place, struct uses uses, const struct by_key *tables,
                      struct fetches *fetches) {
    const struct spec *sp = c->spec;
    const struct sched *sc = c->sched;
    const int32_t *use = uses.a;
    int rank = uses.rank, nuse = uses.n;
    int keep = c->choices.slots[rank], nslots = 0, limit = keep > 0 ? keep : 1, sets = sets_of(sp), keys = 0;
    int32_t *next = NEW(int32_t, nuse), *key = NEW(int32_t, nuse), *insts = NEW(int32_t, sets);
    int32_t *soonest = tables->soonest, *in_slot = tables->held; /* slot + 1 */
    for (int i = 0; i < nuse; i++) {
        key[i] = fetched_key(c->costs, sc, use[i]);
        soonest[key[i]] = -1;
    }
    for (int i = 0; i < nuse; i++) {
        keys += soonest[key[i]] < 0;
        soonest[key[i]] = INT_MAX;
        in_slot[key[i]] = 0;
    }
    for (int i = nuse - 1; i >= 0; i--) {
        next[i] = soonest[key[i]];
        soonest[key[i]] = i;
        int need = sets_at_once(c->costs, use, key, nuse, i);
        limit = need > limit ? need : limit;
    }
    if (keep > 0 && !sp->updates.every && (has_room_limit(c, rank) || !equal_sizes(c->costs, place, rank, key, nuse))) {
        plan_bytes(c, place, uses, limit, fetches);
        return;
    }
    struct slot_use *slot = NEW(struct slot_use, limit < keys ? limit : keys);
    for (int i = 0; i < nuse; i++) {
        int at = in_slot[key[i]] - 1, set = key[i] % sets;
        if (at < 0 || (keep == 0 && !at_once(c->costs, use[slot[at].last], use[i]))) {
            int32_t after = -1;
            if (nslots < limit && nslots < keys)
                at = nslots++;
            else {
                at = victim(c->costs, slot, nslots, use, i);
                after = use[slot[at].last] / NSETS;
                const struct fetch *left = &fetches->a[slot[at].fetch];
                int32_t old = left->version * sets + left->set;
                in_slot[old] = in_slot[old] == at + 1 ? 0 : in_slot[old];
            }
            int home = *home_of_set(sp, &c->costs->job[use[i] / NSETS], use[i] % NSETS);
            GROW(fetches->a, fetches->cap, (size_t)fetches->n + 1);
            fetches->a[fetches->n] = new_fetch(rank, set, home, insts[set]++, use[i] / NSETS);
            fetches->a[fetches->n].after = after;
            fetches->a[fetches->n].version = key[i] / sets;
            slot[at].fetch = fetches->n++;
            in_slot[key[i]] = at + 1;
            fetches->least[rank] += fetch_bytes(c->costs, place, rank, set);
        }
        slot[at].next = keep > 0 ? next[i] : INT_MAX;
        slot[at].last = i;
        add_use(&fetches->a[slot[at].fetch], use[i] / NSETS);
        fetches->of_job[use[i]] = slot[at].fetch;
    }
}

/* Plans a rank's fetches by a fixed rule, as other systems do. Weights are dropped after a run of consecutive uses of
 * their set. They are fetched when the run that is `ahead` runs earlier begins. */
static void plan_fixed(const struct compile *c, struct uses uses, const struct by_key *tables,
                       struct fetches *fetches) {
    const struct spec *sp = c->spec;
    const struct sched *sc = c->sched;
    const int32_t *use = uses.a;
    int rank = uses.rank, nuse = uses.n;
    int32_t *insts = NEW(int32_t, sets_of(sp)), *run = NEW(int32_t, nuse); /* fetches, in the order of first use */
    int32_t *now = tables->held;                                           /* 1 + the set's current fetch */
    int runs = 0, ahead = (int)c->choices.prefetch - JUST_IN_TIME;
    for (int i = 0; i < nuse; i++)
        now[fetched_key(c->costs, sc, use[i])] = 0;
    for (int i = 0; i < nuse; i++) {
        int32_t key = fetched_key(c->costs, sc, use[i]), set = key % sets_of(sp), job = use[i] / NSETS;
        bool goes_on = false; /* the set was read by the job before this one, or by this one's pair */
        for (int k = i - 1; k >= 0 && (at_once(c->costs, use[k], use[i]) || at_once(c->costs, use[k], use[i - 1])); k--)
            goes_on |= fetched_key(c->costs, sc, use[k]) == key;
        if (!goes_on || now[key] == 0) {
            int32_t beside = ahead == 0 ? job : runs >= ahead ? fetches->a[run[runs - ahead]].first : -1;
            int home = *home_of_set(sp, &c->costs->job[job], use[i] % NSETS);
            GROW(fetches->a, fetches->cap, (size_t)fetches->n + 1);
            fetches->a[fetches->n] = new_fetch(rank, set, home, insts[set]++, job);
            fetches->a[fetches->n].beside = beside;
            fetches->a[fetches->n].version = key / sets_of(sp);
            run[runs++] = fetches->n;
            now[key] = ++fetches->n;
        }
        add_use(&fetches->a[now[key] - 1], job);
        fetches->of_job[use[i]] = now[key] - 1;
    }
}

/* ---- relays ---- */

/* Dies if a source is not the home of the whole set and has no job that reads it. This does not hold for the table,
 * which a rank with the stage need not have. */
static void refuse_strangers(const struct costs *costs, const int32_t *place, const struct fetches *fetches) {
    const struct spec *sp = costs->spec;
    bool *holds = NEW(bool, (int64_t)sp->workers *sets_of(sp));
    for (int i = 0; i < fetches->n; i++)
        holds[(int64_t)fetches->a[i].rank * sets_of(sp) + fetches->a[i].set] = true;
    for (int j = 0; j < sp->njobs; j++) {
        int source = fetches->of_job[(int64_t)j * NSETS + SET_OWN] < 0 ? -1 : sp->owners.source[j], s = costs->job[j].s;
        int64_t at = (int64_t)source * sets_of(sp) + s;
        if (source >= 0 && !holds[at] && (place[at] < 0 || homes_of(costs, s)->size > 1))
            die("%s: source() returned rank %d for %s, but rank %d never holds the weights of stage %d: return a rank "
                "that is their home or has a job that reads them, or nil for the home",
                sp->file, source, job_name(&sp->names, s, costs->job[j].b, costs->job[j].d), source, s);
    }
}

/* Returns whether the source that source() names for job j has this set when j starts. j's rank does not hold it whole.
 * *from: the latest fetch there that has been used, or -1: the source's weights at home. A rank has such a fetch from
 * its first use of the set on, whatever it keeps and evicts, so the result depends on the schedule alone. */
static bool find_source(const struct costs *costs, const int32_t *place, const int32_t *latest, int32_t j,
                        enum which_set which, int32_t *from) {
    int32_t set = set_read(costs, &costs->job[j], which), source = costs->spec->owners.source[j];
    if (source < 0)
        return false;
    int64_t at = (int64_t)source * sets_of(costs->spec) + set;
    bool whole = place[at] >= 0 && homes_of(costs, set)->size == 1;
    *from = whole ? -1 : latest[at];
    return whole || *from >= 0;
}

/* Finds the sources of all fetches, in schedule order, that is, in the order of their first uses. */
static void find_sources(const struct costs *costs, const struct sched *sc, const int32_t *place,
                         struct fetches *fetches) {
    const struct spec *sp = costs->spec;
    int64_t n = (int64_t)sp->workers * sets_of(sp);
    int32_t *latest = NEW(int32_t, n), from; /* [rank * sets + set] */
    memset(latest, -1, sizeof *latest * (size_t)n);
    refuse_strangers(costs, place, fetches);
    for (int i = 0; i < sc->nmoments; i++)
        for (int which = 0; which < NSETS && sc->moment[i] >= 0; which++) {
            int32_t j = sc->moment[i], at = fetches->of_job[(int64_t)j * NSETS + which];
            bool relayed = at >= 0 && find_source(costs, place, latest, j, which, &from);
            struct fetch *f = at < 0 ? NULL : &fetches->a[at];
            if (!f || f->first != j)
                continue;
            latest[(int64_t)f->rank * sets_of(sp) + f->set] = at;
            if (!relayed)
                continue;
            f->source = sp->owners.source[j];
            f->from = from;
            if (from >= 0)
                fetches->a[from].uses++;
        }
}

int64_t weights_received(const struct costs *costs, const int32_t *place, const struct program *p, int r) {
    int64_t bytes = 0;
    for (int b = 0; b < p->rank[r].nbufs; b++) {
        const struct buf *buf = &p->rank[r].buf[b];
        if (buf->kind == K_weight && buf->inst >= 0)
            bytes += fetch_bytes(costs, place, r, buf->stage);
    }
    return bytes;
}

struct fetches fetch_plan(const struct compile *c, const int32_t *place) {
    const struct spec *sp = c->spec;
    const struct sched *sc = c->sched;
    struct fetches fetches = {.of_job = NEW(int32_t, NSETS * (int64_t)c->costs->njobs)};
    memset(fetches.of_job, -1, sizeof *fetches.of_job * NSETS * (size_t)c->costs->njobs);
    fetches.least = NEW(int64_t, sp->workers);
    const struct by_key tables = {NEW(int32_t, count_keys(sp)), NEW(int32_t, count_keys(sp))};
    for (int r = 0; r < sp->workers; r++) {
        int32_t *use = NEW(int32_t, NSETS * (int64_t)sc->norder[r]);
        int n = 0;
        for (int i = 0; i < sc->norder[r]; i++)
            for (int which = 0; which < NSETS; which++) {
                int32_t j = sc->order[r][i], set = set_read(c->costs, &c->costs->job[j], which);
                if (set >= 0 && (place[(int64_t)r * sets_of(sp) + set] < 0 || homes_of(c->costs, set)->size > 1))
                    use[n++] = j * NSETS + which;
            }
        if (n > 0 && c->choices.prefetch == SOLVED)
            plan_rank(c, place, (struct uses){r, n, use}, &tables, &fetches);
        else if (n > 0)
            plan_fixed(c, (struct uses){r, n, use}, &tables, &fetches);
    }
    if (sp->owners.source)
        find_sources(c->costs, sc, place, &fetches);
    return fetches;
}
