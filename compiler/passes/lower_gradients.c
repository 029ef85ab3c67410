/* How gradients come to the ranks that update with them.
 *
 * A rank sums what its jobs contribute to a set in a part of its own. When the last of them has ended, the part goes to
 * the homes that w() named for them. With one home it travels whole and is added there. With a list of homes it is cut
 * into shards: all members' parts meet in one REDUCE_SCATTER if each member has a part; otherwise, and from ranks
 * outside the list, each shard is sent to its owner and added there. When all replicas of a shard have their sums, they
 * exchange them as zero says; then each may update. */
#include "lower.h"
#include <string.h>

static const uint8_t gradient_role[NSETS] = {[OWN] = ROLE_dw, [TABLE] = ROLE_dv};

static struct part *part_of(const struct build *build, int rank, int set) {
    return &build->part[build->part_at[(int64_t)rank * build->sets + set]];
}
static struct list *list_of(const struct build *build, int set, int number) {
    return &build->list[build->list_at[set] + number];
}
/* The homes of one shard, or of a whole set: those of its replicas. */
static struct owner *replica(const struct build *build, struct shard shard, int l) {
    return &build->owner[build->owners_at[shard.set] + l * homes_of(build->sp, shard.set)->size + shard.number];
}
/* The home whose sum the part's rank adds to without a message: a home of the whole set. */
static struct owner *at_home(const struct build *build, const struct part *part) {
    bool whole = homes_of(build->sp, part->set)->size == 1;
    return whole && place_at(build, part->rank, part->set) >= 0 ? owner_at(build, part->rank, part->set) : NULL;
}
/* The part meets those of all other members of its list. */
static bool scatters(const struct build *build, const struct part *part) {
    int size = homes_of(build->sp, part->set)->size;
    bool member = place_at(build, part->rank, part->set) >= 0;
    return member && size > 1 && list_of(build, part->set, part->list)->members == size;
}

/* ---- sums and parts as operands ---- */

/* The newest instruction adds to the buffer, or writes it if it is the first to do so. */
static void accumulate(struct build *build, int rank, int role, int32_t buf, bool *written) {
    struct rank *k = &build->p->rank[rank];
    add_operand(build, rank, role, buf);
    *(role == ROLE_dv ? &k->ins[k->nins - 1].vfirst : &k->ins[k->nins - 1].first) = !*written;
    *written = true;
}

/* A home's sum; with zero 2 it is opened by the first that adds to it, and used once, when it is exchanged. */
static int32_t sum_of(struct build *build, struct owner *owner) {
    int kind = homes_of(build->sp, owner->set)->size > 1 ? K_gshard : K_wgrad;
    if (owner->sum < 0)
        owner->sum = open_buf(build, owner->rank, kind, owner->set, -1, -1, 1);
    return owner->sum;
}

static void add_to_sum(struct build *build, struct owner *owner) {
    accumulate(build, owner->rank, ROLE_dw, sum_of(build, owner), &owner->written);
}

void add_gradients(struct build *build, int32_t j) {
    const struct job *job = &build->sp->job[j];
    for (int which = 0; which < NSETS; which++) {
        int32_t set = set_added(build->sp, job, which);
        if (set < 0)
            continue;
        struct part *part = part_of(build, job->rank, set);
        struct owner *home = at_home(build, part);
        if (home) {
            accumulate(build, job->rank, gradient_role[which], sum_of(build, home), &home->written);
            continue;
        }
        int uses = scatters(build, part) ? 1 : homes_of(build->sp, set)->size;
        if (part->buf < 0)
            part->buf = open_buf(build, job->rank, K_wgrad, set, -1, -1, uses);
        accumulate(build, job->rank, gradient_role[which], part->buf, &part->written);
    }
}

/* ---- sums are complete ---- */

/* Member l of a shard's replicas, and piece l of what they divide. */
static void exchange_member(struct build *build, struct shard shard, int l, int g, double t) {
    const struct homes *homes = homes_of(build->sp, shard.set);
    struct owner *owner = replica(build, shard, l);
    int op = homes->zero ? OP_REDUCE_SCATTER : OP_ALL_REDUCE, inst = homes->zero && homes->size > 1 ? 1 : -1,
        r = owner->rank;
    struct instr *x = issue_collective(build, r, op, shard.set, inst, -1, g);
    x->first = homes->zero > 0;
    add_operand(build, r, homes->zero ? ROLE_src : ROLE_dw, owner->sum);
    if (homes->zero == 1)
        add_piece(build, r, ROLE_dw, owner->sum, l, homes->lists);
    if (homes->zero == 2)
        add_operand(build, r, ROLE_dw, owner->gown);
    set_algorithm(build, r);
    if (homes->zero == 2)
        end_use(build, t, r, owner->sum);
}

static int replicas_group(struct build *build, struct shard shard) {
    int n = homes_of(build->sp, shard.set)->lists;
    int32_t *rank = NEW(int32_t, n);
    for (int l = 0; l < n; l++)
        rank[l] = replica(build, shard, l)->rank;
    return intern_group(build, rank, n);
}

/* A home has its sum. When all replicas have theirs, they exchange them; then each may update. */
static void check_complete(struct build *build, double t, const struct owner *owner) {
    const struct homes *homes = homes_of(build->sp, owner->set);
    struct shard shard = {owner->set, owner->place % homes->size};
    if (owner->own > 0 || owner->arrivals > 0 || --build->incomplete[build->owners_at[shard.set] + shard.number] > 0)
        return;
    build->done[build->ndone++] = shard;
    if (homes->lists == 1)
        return;
    int g = replicas_group(build, shard);
    for (int l = 0; l < homes->lists; l++)
        exchange_member(build, shard, l, g, t);
}

static void add_received(struct build *build, struct owner *owner, struct received received) {
    issue(build, owner->rank, OP_ADD, owner->set, -1, received.from, -1);
    add_operand(build, owner->rank, ROLE_src, received.buf);
    add_to_sum(build, owner);
    use_up(build, owner->rank, received.buf);
    push_event(build, owner->rank, ~received.buf);
    owner->arrivals--;
}

/* A received part is added at once, unless the home's own jobs would have to wait for it. */
static void receive(struct build *build, double t, struct owner *owner, int from, int32_t buf) {
    struct received received = {from, buf, owner->waiting};
    if (owner->own > 0) {
        GROW(build->received, build->received_cap, build->nreceived + 1);
        owner->waiting = (int32_t)build->nreceived;
        build->received[build->nreceived++] = received;
        return;
    }
    add_received(build, owner, received);
    check_complete(build, t, owner);
}

/* What the home's own rank contributes is in its sum. */
static void own_done(struct build *build, double t, struct owner *owner) {
    owner->own = 0;
    for (int32_t i = owner->waiting; i >= 0; i = build->received[i].next)
        add_received(build, owner, build->received[i]);
    check_complete(build, t, owner);
}

/* ---- parts go to their homes ---- */

/* The parts of all members of a list are complete: each member gets the sum of its shard. */
static void scatter(struct build *build, double t, int set, int number) {
    const struct homes *homes = homes_of(build->sp, set);
    const int32_t *rank = homes->rank + number * homes->size;
    int g = intern_group(build, rank, homes->size);
    for (int i = 0; i < homes->size; i++) {
        struct owner *owner = owner_at(build, rank[i], set);
        int32_t part = part_of(build, rank[i], set)->buf;
        sum_of(build, owner);
        issue_collective(build, rank[i], OP_REDUCE_SCATTER, set, -1, -1, g);
        add_operand(build, rank[i], ROLE_src, part);
        add_to_sum(build, owner);
        set_algorithm(build, rank[i]);
        end_use(build, t, rank[i], part);
    }
    for (int i = 0; i < homes->size; i++)
        own_done(build, t, owner_at(build, rank[i], set));
}

/* Every shard of a part goes to its owner, beginning with the one behind the sender, so that not all begin with the
 * same. */
static void send_shards(struct build *build, double t, const struct part *part) {
    const struct homes *homes = homes_of(build->sp, part->set);
    int at = place_at(build, part->rank, part->set), n = homes->size;
    for (int i = 0; i < n; i++) {
        int shard = (at + 1 + i) % n;
        struct owner *owner = owner_at(build, homes->rank[part->list * n + shard], part->set);
        if (owner->rank != part->rank) {
            int32_t buf = send_piece(build, t, part->rank, owner->rank, part->buf, shard, n);
            receive(build, t, owner, part->rank, buf);
            continue;
        }
        sum_of(build, owner);
        issue(build, part->rank, OP_TAKE, part->set, -1, -1, -1);
        add_piece(build, part->rank, ROLE_src, part->buf, shard, n);
        add_to_sum(build, owner);
        end_use(build, t, part->rank, part->buf);
        own_done(build, t, owner);
    }
}

/* The last contribution of this rank has ended. */
static void part_done(struct build *build, double t, struct part *part) {
    const struct homes *homes = homes_of(build->sp, part->set);
    struct list *list = list_of(build, part->set, part->list);
    struct owner *home = at_home(build, part);
    if (home)
        own_done(build, t, home);
    else if (homes->size == 1) {
        home = owner_at(build, homes->rank[part->list], part->set);
        receive(build, t, home, part->rank, send_message(build, t, part->rank, home->rank, part->buf, -1, 1));
    } else if (!scatters(build, part))
        send_shards(build, t, part);
    else if (--list->left == 0)
        scatter(build, t, part->set, part->list);
}

void gradients_end(struct build *build, int32_t j, double t) {
    const struct job *job = &build->sp->job[j];
    for (int which = 0; which < NSETS; which++) {
        int32_t set = set_added(build->sp, job, which);
        if (set >= 0 && --part_of(build, job->rank, set)->jobs == 0)
            part_done(build, t, part_of(build, job->rank, set));
    }
}

/* ---- the beginning and the end ---- */

static void find_owners(struct build *build) {
    int n = 0, lists = 0;
    build->owners_at = NEW(int32_t, build->sets + 1);
    build->list_at = NEW(int32_t, build->sets + 1);
    for (int s = 0; s < build->sets; s++) {
        const struct homes *homes = homes_of(build->sp, s);
        build->owners_at[s + 1] = n += homes->lists * homes->size;
        build->list_at[s + 1] = lists += homes->lists;
    }
    build->owner = NEW(struct owner, n);
    build->list = NEW(struct list, lists);
    build->incomplete = NEW(int32_t, n);
    build->done = NEW(struct shard, n);
    for (int s = 0; s < build->sets; s++) {
        const struct homes *homes = homes_of(build->sp, s);
        for (int i = 0; i < homes->lists * homes->size; i++) {
            build->owner[build->owners_at[s] + i] = (struct owner){.rank = homes->rank[i],
                                                                   .set = s,
                                                                   .place = i,
                                                                   .weight = -1,
                                                                   .opt = -1,
                                                                   .gown = -1,
                                                                   .sum = -1,
                                                                   .waiting = -1};
            build->incomplete[build->owners_at[s] + i % homes->size]++;
        }
    }
}

/* Where a job's contribution to a set goes: to its rank's own list, if it is in one, else to the one that w() named. */
static int list_for(const struct build *build, const struct job *job, enum which_set which, int set) {
    struct home home = home_of(build->sp, home_of_set(build->sp, job, which));
    int own = place_at(build, job->rank, set);
    return (own >= 0 ? own : place_at(build, home.rank[0], set)) / homes_of(build->sp, set)->size;
}

static void find_part(struct build *build, const struct job *job, enum which_set which, int set) {
    int32_t *at = &build->part_at[(int64_t)job->rank * build->sets + set];
    if (*at < 0) {
        int list = list_for(build, job, which, set);
        build->part[build->nparts] = (struct part){.rank = job->rank, .set = set, .buf = -1, .list = list};
        if (place_at(build, job->rank, set) >= 0)
            list_of(build, set, list)->members++;
        *at = build->nparts++;
    }
    build->part[*at].jobs++;
}

/* Every rank that contributes to a gradient has a part; and what each home waits for follows. */
void find_parts(struct build *build) {
    const struct spec *sp = build->sp;
    int64_t cells = (int64_t)sp->workers * build->sets, most = (int64_t)(1 + sp->tied) * sp->njobs;
    find_owners(build);
    build->part_at = NEW(int32_t, cells);
    memset(build->part_at, -1, sizeof *build->part_at * (size_t)cells);
    build->part = NEW(struct part, most < cells ? most : cells);
    for (int j = 0; j < sp->njobs; j++)
        for (int which = 0; which < NSETS; which++) {
            int32_t set = set_added(sp, &sp->job[j], which);
            if (set >= 0)
                find_part(build, &sp->job[j], which, set);
        }
    for (int i = 0; i < build->nparts; i++) {
        const struct part *part = &build->part[i];
        const struct homes *homes = homes_of(sp, part->set);
        struct list *list = list_of(build, part->set, part->list);
        bool together = scatters(build, part);
        list->left += together;
        for (int k = 0; k < homes->size; k++) {
            struct owner *owner = &build->owner[build->owners_at[part->set] + part->list * homes->size + k];
            if (owner->rank == part->rank)
                owner->own = 1;
            else
                owner->arrivals += !together;
        }
    }
}

void start_empty_sums(struct build *build) {
    for (int i = 0; i < build->owners_at[build->sets]; i++) {
        struct owner *owner = &build->owner[i];
        if (owner->own > 0 || owner->arrivals > 0)
            continue;
        sum_of(build, owner);
        issue(build, owner->rank, OP_ZERO, owner->set, -1, -1, -1);
        add_operand(build, owner->rank, ROLE_dw, owner->sum);
        check_complete(build, 0, owner);
    }
}

static void update(struct build *build, struct shard shard, int l) {
    const struct homes *homes = homes_of(build->sp, shard.set);
    const struct owner *owner = replica(build, shard, l);
    int r = owner->rank, pieces = shares_of(homes), piece = homes->zero ? l : 0;
    bool fetched = owner->opt >= 0 && state_leaves(build->sp, shard.set);
    int32_t opt = fetched ? fetch_state(build, owner) : owner->opt;
    issue(build, r, OP_U, shard.set, -1, -1, -1);
    if (homes->zero == 2)
        add_operand(build, r, ROLE_dw, owner->gown);
    else
        add_piece(build, r, ROLE_dw, owner->sum, piece, pieces);
    if (opt >= 0)
        add_operand(build, r, ROLE_opt, opt);
    add_piece(build, r, ROLE_w, owner->weight, piece, pieces);
    if (fetched)
        return_state(build, owner, opt);
}

/* Replicas that divided the updates of a shard share the results. */
static void share(struct build *build, struct shard shard) {
    int n = homes_of(build->sp, shard.set)->lists, g = replicas_group(build, shard);
    for (int l = 0; l < n; l++) {
        const struct owner *owner = replica(build, shard, l);
        issue_collective(build, owner->rank, OP_ALL_GATHER, shard.set, -1, -1, g);
        add_piece(build, owner->rank, ROLE_src, owner->weight, l, n);
        add_operand(build, owner->rank, ROLE_w, owner->weight);
        set_algorithm(build, owner->rank);
    }
}

void issue_updates(struct build *build) {
    for (int i = 0; i < build->ndone; i++) {
        const struct homes *homes = homes_of(build->sp, build->done[i].set);
        for (int l = 0; l < homes->lists; l++)
            update(build, build->done[i], l);
        if (homes->zero)
            share(build, build->done[i]);
    }
}
