/* Sends gradients to the ranks that update with them.
 *
 * A rank sums its jobs' contributions to a set in its own parts (lower_parts.c). Once a part, or a piece of it, is
 * complete, it goes to the homes that w() named. With one home it is sent there and added. With a list of homes it is
 * cut into shards. If each member has a part, one REDUCE_SCATTER combines all members' parts, or, piece by piece, a
 * REDUCE to the shard's owner. Otherwise, and for parts of ranks outside the list, each shard is sent to its owner and
 * added there. When all replicas of a shard have their sums, they exchange them as `zero` specifies; then each may
 * update. With zero 2, if all replicas of a whole set have parts, the replicas are treated as such a list. */
#include "lower.h"
#include <string.h>

static const struct homes *homes_at(const struct build *build, const struct part *part) {
    return sums_of(build, part->set);
}
/* Returns a member of the list to which the part goes. */
static struct owner *member(const struct build *build, const struct part *part, int i) {
    return &build->sums.owner[build->sums.owners_at[part->sum] + part->list * homes_at(build, part)->size + i];
}
static struct sum *sum_at(const struct build *build, const struct owner *owner, int piece) {
    return &build->sums.sum[owner->sums + piece];
}

/* Returns the number that names messages of piece k of the part; -1: the part travels whole, and once. If updates are
 * jobs, the update's number is used. */
static int piece_number(const struct build *build, const struct part *part, int k) {
    int pieces = pieces_of_set(build, part->set);
    if (build->sp->updates.every)
        return build->sums.gradient[part->sum].update;
    return pieces == 1 && part->rounds == 1 ? -1 : k + pieces * part->round;
}
/* Returns the number that names the part on another rank; or on its own rank, in a later round, or beside the sum.
 * Rounds and tied tables cannot be combined with updates that are jobs, so no two parts of a rank have the same
 * number. */
static int number_of(const struct build *build, const struct part *part) {
    int nth = part->apart ? part->apart : build->sums.gradient[part->sum].update + part->round;
    return part->rank + build->sp->workers * nth;
}

/* ---- sums and parts as operands ---- */

static void accumulate_piece(struct build *build, int rank, int role, int32_t buf, int piece, int pieces, bool first) {
    struct rank *k = &build->p->rank[rank];
    struct instr *x = &k->ins[k->nins - 1];
    add_piece(build, rank, role, buf, piece, pieces);
    *(role == ROLE_dv ? &x->vfirst : role == ROLE_du ? &x->ufirst : &x->first) = first;
}

/* Returns the buffer of a home's sum. With zero 2, and if updates are jobs, the first use opens it, and it is used
 * until it has been exchanged, or until its update. */
static int32_t sum_of(struct build *build, struct owner *owner) {
    bool shards = sums_of(build, owner->set)->size > 1;
    int uses = shards ? 1 : pieces_of_sum(build, owner->set), update = build->sums.gradient[owner->gradient].update;
    if (owner->buf < 0)
        owner->buf = open_buf(build, owner->rank, shards ? K_gshard : K_wgrad, owner->set, -1,
                              update > 0 ? owner->rank + build->sp->workers * update : -1, uses);
    return owner->buf;
}

static void add_to_sum(struct build *build, struct owner *owner, int piece) {
    struct sum *sum = sum_at(build, owner, piece);
    accumulate_piece(build, owner->rank, ROLE_dw, sum_of(build, owner), piece, pieces_of_sum(build, owner->set),
                     !sum->written);
    sum->written = true;
}

static int32_t open_part(struct build *build, struct part *part) {
    const struct homes *homes = homes_at(build, part);
    int pieces = pieces_of_set(build, part->set), uses = pieces > 1 || part->together ? pieces : homes->size;
    if (part->buf < 0)
        part->buf = open_buf(build, part->rank, K_wgrad, part->set, -1,
                             number_of(build, part) >= build->sp->workers ? number_of(build, part) : -1, uses);
    return part->buf;
}

/* Returns the buffer that the part's jobs add to. *first: whether they are the first to do so. */
static int32_t target(struct build *build, struct part *part, bool *first) {
    struct owner *home = part->direct ? summing(build, part->rank, part->sum) : NULL;
    *first = home ? !sum_at(build, home, 0)->written : !part->written;
    return home ? sum_of(build, home) : open_part(build, part);
}

static void note_written(struct build *build, struct part *part) {
    struct owner *home = part->direct ? summing(build, part->rank, part->sum) : NULL;
    for (int k = 0; home && k < pieces_of_sum(build, part->set); k++)
        sum_at(build, home, k)->written = true;
    part->written = true;
}

static struct touched touched_by(const struct build *build, int32_t j, int p) {
    const struct job *job = &build->costs->job[j];
    return build->costs->stage[job->s].touched[job->d][p];
}

/* Adds the own set's gradient to a job's part. If a job has several parts, all write or all add, so `written` is set
 * with the last part. */
void add_own_gradient(struct build *build, int32_t j, int p) {
    struct part *part = part_to(build, j, SET_OWN);
    int pieces = pieces_of_set(build, part->set), parts = parts_of_job(build, j);
    bool first;
    int32_t buf = target(build, part, &first);
    if (parts == 1)
        accumulate_piece(build, part->rank, ROLE_dw, buf, 0, 1, first);
    else
        for (int k = touched_by(build, j, p).high; k >= touched_by(build, j, p).low; k--)
            accumulate_piece(build, part->rank, ROLE_dw, buf, k, pieces, first);
    if (p + 1 == parts)
        note_written(build, part);
}

void add_gradients(struct build *build, int32_t j) {
    static const uint8_t role[NSETS] = {[SET_TABLE] = ROLE_dv, [SET_SHARED] = ROLE_du};
    if (part_to(build, j, SET_OWN))
        add_own_gradient(build, j, 0);
    for (int which = SET_TABLE; which < NSETS; which++) {
        struct part *part = part_to(build, j, which);
        bool first;
        if (!part)
            continue;
        int32_t buf = target(build, part, &first);
        accumulate_piece(build, part->rank, role[which], buf, 0, 1, first);
        note_written(build, part);
    }
}

/* ---- sums are complete ---- */

static int replicas_group(struct build *build, struct shard shard) {
    int n = homes_of(build->costs, shard.set)->lists;
    int32_t *rank = NEW(int32_t, n);
    for (int l = 0; l < n; l++)
        rank[l] = replica(build, shard, l)->rank;
    return intern_group(build, rank, n);
}

/* Issues the exchange of member l of a shard's replicas; with zero, its result is piece l of what they divide. */
static void exchange_member(struct build *build, struct shard shard, int l, int g, int name, double t) {
    const struct homes *homes = homes_of(build->costs, shard.set);
    struct owner *owner = replica(build, shard, l);
    int op = homes->zero ? OP_REDUCE_SCATTER : OP_ALL_REDUCE, r = owner->rank;
    issue_collective(build, r, op, shard.set, name, -1, g)->first = homes->zero > 0;
    add_operand(build, r, homes->zero ? ROLE_src : ROLE_dw, owner->buf);
    if (homes->zero == 1)
        add_piece(build, r, ROLE_dw, owner->buf, l, homes->lists);
    if (homes->zero == 2)
        add_operand(build, r, ROLE_dw, owner->gown);
    set_algorithm(build, r);
    if (homes->zero == 2)
        end_use(build, t, r, owner->buf);
}

/* Issues the exchange of piece k of a whole set; its sum goes to all replicas, or to the one that updates it. */
static void exchange_piece(struct build *build, struct shard shard, int k, int g, double t) {
    const struct homes *homes = homes_of(build->costs, shard.set);
    int pieces = pieces_of_set(build, shard.set), each = pieces / shares_of(homes), root = k / each;
    for (int l = 0; l < homes->lists; l++) {
        struct owner *owner = replica(build, shard, l);
        int r = owner->rank, op = homes->zero ? OP_REDUCE : OP_ALL_REDUCE;
        issue_collective(build, r, op, shard.set, k, homes->zero ? replica(build, shard, root)->rank : -1, g)->first =
            homes->zero > 0;
        add_piece(build, r, homes->zero ? ROLE_src : ROLE_dw, owner->buf, k, pieces);
        if (homes->zero == 1 && l == root)
            add_piece(build, r, ROLE_dw, owner->buf, k, pieces);
        if (homes->zero == 2 && l == root)
            add_piece(build, r, ROLE_dw, owner->gown, k % each, each);
        set_algorithm(build, r);
        if (homes->zero == 2)
            end_use(build, t, r, owner->buf);
    }
}

static void exchange_sums(struct build *build, struct shard shard, int piece, double t) {
    const struct homes *homes = sums_of(build, shard.set);
    if (homes->lists == 1)
        return;
    int g = replicas_group(build, shard);
    if (homes->size == 1 && pieces_of_set(build, shard.set) > 1) {
        exchange_piece(build, shard, piece, g, t);
        return;
    }
    int rounds = build->sums.meetings[shard.gradient].rounds; /* rounds use the numbers before this one */
    int name = build->sp->updates.every         ? build->sums.gradient[shard.gradient].update
               : homes->size > 1 && homes->zero ? (rounds > 0 ? rounds : 1)
                                                : -1;
    for (int l = 0; l < homes->lists; l++)
        exchange_member(build, shard, l, g, name, t);
}

/* Notes that a home has the sum of a piece. When all replicas have theirs, exchanges them; then each may update. */
static void complete_sum(struct build *build, double t, const struct owner *owner, int piece) {
    const struct homes *homes = sums_of(build, owner->set);
    const struct sum *sum = sum_at(build, owner, piece);
    bool whole = homes->size == 1;
    struct shard shard = {owner->set, owner->place % homes->size, owner->gradient};
    if (sum->own > 0 || sum->arrivals > 0 ||
        --build->sums.incomplete[owner->gradient][whole ? piece : shard.number] > 0)
        return;
    exchange_sums(build, shard, piece, t);
    if (homes_of(build->costs, owner->set)->size == 1) { /* its updates come with the last piece, or rank */
        if (--build->sums.rest[owner->gradient] > 0)
            return;
        shard.number = 0;
    }
    build->sums.done[build->sums.ndone++] = shard;
}

static void add_received(struct build *build, struct owner *owner, int piece, struct received received) {
    int r = owner->rank;
    if (received.from == r)
        issue(build, r, OP_TAKE, owner->set, -1, -1, received.name);
    else
        issue(build, r, OP_ADD, owner->set, -1, received.from, received.name);
    add_piece(build, r, ROLE_src, received.buf, piece, pieces_of_sum(build, owner->set));
    add_to_sum(build, owner, piece);
    if (use_up(build, r, received.buf))
        push_event(build, r, ~received.buf);
    sum_at(build, owner, piece)->arrivals--;
}

/* Adds a received part to a sum, at once unless the home's own jobs would then have to wait for it. */
static void receive(struct build *build, double t, struct owner *owner, int piece, struct received received) {
    struct sum *sum = sum_at(build, owner, piece);
    if (sum->own > 0) {
        received.next = sum->waiting;
        GROW(build->sums.received, build->sums.received_cap, build->sums.nreceived + 1);
        sum->waiting = (int32_t)build->sums.nreceived;
        build->sums.received[build->sums.nreceived++] = received;
        return;
    }
    add_received(build, owner, piece, received);
    complete_sum(build, t, owner, piece);
}

/* Notes that one more part of the home's own rank is in its sum. */
static void own_done(struct build *build, double t, struct owner *owner, int piece) {
    struct sum *sum = sum_at(build, owner, piece);
    if (--sum->own > 0)
        return;
    for (int32_t i = sum->waiting; i >= 0; i = build->sums.received[i].next)
        add_received(build, owner, piece, build->sums.received[i]);
    complete_sum(build, t, owner, piece);
}

/* ---- parts go to their homes ---- */

/* Returns the members' parts of the same round as `part`. */
static int32_t *parts_of_round(const struct build *build, const struct part *part) {
    const struct meetings *meetings = &build->sums.meetings[part->sum];
    return meetings->part + (part->list * meetings->rounds + part->round) * homes_at(build, part)->size;
}

/* Issues a member's side of a collective in which the members' parts meet. */
static int32_t issue_meeting(struct build *build, const struct part *part, int op, int name, int i, int root) {
    int n = homes_at(build, part)->size, g = intern_group(build, homes_at(build, part)->rank + part->list * n, n);
    issue_collective(build, member(build, part, i)->rank, op, part->set, name, root, g);
    return build->sums.part[parts_of_round(build, part)[i]].buf;
}

/* Reduces all members' parts of a round, once they are complete: each member gets the sum of its shard. */
static void scatter(struct build *build, double t, const struct part *part) {
    int n = homes_at(build, part)->size;
    for (int i = 0; i < n; i++) {
        struct owner *owner = member(build, part, i);
        sum_of(build, owner);
        int32_t buf = issue_meeting(build, part, OP_REDUCE_SCATTER, piece_number(build, part, 0), i, -1);
        add_operand(build, owner->rank, ROLE_src, buf);
        add_to_sum(build, owner, 0);
        set_algorithm(build, owner->rank);
        end_use(build, t, owner->rank, buf);
    }
    for (int i = 0; i < n; i++)
        own_done(build, t, member(build, part, i), 0);
}

/* Reduces piece k of all members' parts of a round, once it is complete in all of them: the owner of its shard gets the
 * sum. */
static void reduce_piece(struct build *build, double t, const struct part *part, int k) {
    int each = pieces_of_sum(build, part->set), root = k / each;
    sum_of(build, member(build, part, root));
    for (int i = 0; i < homes_at(build, part)->size; i++) {
        struct owner *owner = member(build, part, i);
        int32_t buf =
            issue_meeting(build, part, OP_REDUCE, piece_number(build, part, k), i, member(build, part, root)->rank);
        add_piece(build, owner->rank, ROLE_src, buf, k, pieces_of_set(build, part->set));
        if (i == root)
            add_to_sum(build, owner, k % each);
        set_algorithm(build, owner->rank);
        end_use(build, t, owner->rank, buf);
    }
    own_done(build, t, member(build, part, root), k % each);
}

/* Delivers piece k of the n pieces of a part to the owner of `piece` of its sum. */
static void deliver(struct build *build, double t, struct part *part, int i, int k, int n, int piece) {
    struct owner *owner = member(build, part, i);
    int size = homes_at(build, part)->size, from = part->rank, to = owner->rank;
    int pieces = pieces_of_sum(build, part->set),
        name = piece_number(build, part, pieces_of_set(build, part->set) > 1 ? k : 0);
    if (part->apart) { /* after everything that its rank itself adds to the sum */
        receive(build, t, owner, piece, (struct received){from, name, part->buf, -1});
        return;
    }
    if (to == from) {
        sum_of(build, owner);
        issue(build, from, OP_TAKE, part->set, -1, -1, name);
        add_piece(build, from, ROLE_src, part->buf, k, n);
        add_to_sum(build, owner, piece);
        end_use(build, t, from, part->buf);
        own_done(build, t, owner, piece);
        return;
    }
    issue(build, from, OP_SEND_G, part->set, -1, to, name);
    add_piece(build, from, ROLE_t, part->buf, k, n);
    end_use(build, t, from, part->buf);
    if (!part->received) {
        part->received = NEW(int32_t, size);
        memset(part->received, -1, sizeof *part->received * (size_t)size);
    }
    int32_t *buf = &part->received[i];
    if (*buf < 0)
        *buf = open_buf(build, to, size > 1 ? K_gshard : K_wgrad, part->set, -1, number_of(build, part), pieces);
    issue(build, to, OP_RECV_G, part->set, -1, from, name);
    add_piece(build, to, ROLE_t, *buf, piece, pieces);
    receive(build, t, owner, piece, (struct received){from, name, *buf, -1});
}

/* Delivers every shard of a part to its owner. Begins with the owner after the sender, so that senders begin with
 * different owners. */
static void deliver_shards(struct build *build, double t, struct part *part) {
    int n = homes_at(build, part)->size, at = place_at(build, part->rank, part->set);
    for (int i = 0; i < n; i++)
        deliver(build, t, part, (at + 1 + i) % n, (at + 1 + i) % n, n, 0);
}

/* Handles a complete piece k of a part. */
static void piece_done(struct build *build, double t, struct part *part, int k) {
    int size = homes_at(build, part)->size, pieces = pieces_of_set(build, part->set);
    struct owner *home = part->direct ? summing(build, part->rank, part->sum) : NULL;
    if (home) {
        sum_at(build, home, k)->written = true; /* the lowest piece comes last; it determines whether the job writes or
                                                 * adds */
        own_done(build, t, home, k);
    } else if (size == 1)
        deliver(build, t, part, 0, k, pieces, k);
    else if (part->together) {
        const struct meetings *meetings = &build->sums.meetings[part->sum];
        if (--meetings->left[(part->list * meetings->rounds + part->round) * pieces + k] > 0)
            return;
        if (pieces == 1)
            scatter(build, t, part);
        else
            reduce_piece(build, t, part, k);
    } else if (pieces == 1)
        deliver_shards(build, t, part);
    else
        deliver(build, t, part, k / (pieces / size), k, pieces, k % (pieces / size));
}

/* Handles all pieces from `lowest` on, which are complete. */
static void pieces_done(struct build *build, double t, struct part *part, int lowest) {
    while (part->pieces > lowest)
        piece_done(build, t, part, --part->pieces);
}

void part_ends(struct build *build, int32_t j, int p, double t) {
    struct part *part = part_to(build, j, SET_OWN);
    if (leaves_early(build, part, j))
        pieces_done(build, t, part, touched_by(build, j, p + 1).high + 1);
}

void gradients_end(struct build *build, int32_t j, double t) {
    for (int which = 0; which < NSETS; which++) {
        struct part *part = part_to(build, j, which);
        if (part && --part->jobs == 0)
            pieces_done(build, t, part, 0);
    }
}

/* ---- the beginning and the end ---- */

void start_empty_sums(struct build *build) {
    for (int i = 0; i < build->sums.owners_at[build->sums.gradient_at[build->sets]]; i++) {
        struct owner *owner = &build->sums.owner[i];
        const struct sum *sum = sum_at(build, owner, 0);
        if (sum->own > 0 || sum->arrivals > 0)
            continue;
        if (build->sp->updates.every)
            die("%s: rank %d is a home of stage %d, but computes no backward of its update %d, and no other rank sends "
                "it one: if a stage has several homes, each must take part in all updates; change w, or update",
                build->sp->file, owner->rank, owner->set, build->sums.gradient[owner->gradient].update);
        sum_of(build, owner);
        issue(build, owner->rank, OP_ZERO, owner->set, -1, -1, -1);
        add_operand(build, owner->rank, ROLE_dw, owner->buf);
        for (int k = 0; k < pieces_of_sum(build, owner->set); k++) {
            sum_at(build, owner, k)->written = true;
            complete_sum(build, 0, owner, k);
        }
    }
}

void add_gradient(struct build *build, struct shard shard, int l) {
    const struct homes *homes = homes_of(build->costs, shard.set);
    const struct owner *owner = replica(build, shard, l);
    if (homes->zero == 2)
        add_operand(build, owner->rank, ROLE_dw, owner->gown);
    else
        add_piece(build, owner->rank, ROLE_dw, owner->buf, homes->zero ? l : 0, shares_of(homes));
}

static void update_layer(struct build *build, struct shard shard, int l) {
    const struct homes *homes = homes_of(build->costs, shard.set);
    const struct owner *owner = replica(build, shard, l);
    int r = owner->rank, pieces = shares_of(homes), piece = homes->zero ? l : 0;
    bool fetched = owner->opt >= 0 && state_leaves(build->sp, shard.set);
    int32_t opt = fetched ? fetch_state(build, owner) : owner->opt;
    issue(build, r, OP_U, shard.set, -1, -1, -1);
    add_gradient(build, shard, l);
    if (build->norms.buf[r] >= 0)
        add_operand(build, r, ROLE_norm, build->norms.buf[r]);
    if (opt >= 0)
        add_operand(build, r, ROLE_opt, opt);
    add_piece(build, r, ROLE_w, owner->weight, piece, pieces);
    if (fetched)
        return_state(build, owner, opt);
}

/* Gathers a shard's updated weights among the replicas that divided its updates. */
static void share(struct build *build, struct shard shard) {
    int n = homes_of(build->costs, shard.set)->lists, g = replicas_group(build, shard);
    for (int l = 0; l < n; l++) {
        const struct owner *owner = replica(build, shard, l);
        issue_collective(build, owner->rank, OP_ALL_GATHER, shard.set, -1, -1, g);
        add_piece(build, owner->rank, ROLE_src, owner->weight, l, n);
        add_operand(build, owner->rank, ROLE_w, owner->weight);
        set_algorithm(build, owner->rank);
    }
}

void issue_updates(struct build *build) {
    if (build->costs->clip && !build->costs->post_validation)
        issue_norms(build);
    for (int i = 0; i < build->sums.ndone; i++) {
        const struct homes *homes = homes_of(build->costs, build->sums.done[i].set);
        for (int l = 0; l < homes->lists; l++)
            update_layer(build, build->sums.done[i], l);
        if (homes->zero)
            share(build, build->sums.done[i]);
    }
    if (build->costs->post_validation)
        issue_next_norms(build);
}
