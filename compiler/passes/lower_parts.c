/* Finds the parts of gradients that ranks sum before they send them, their destinations, and what each home waits for.
 *
 * A rank's contributions to a set form one part, unless grad_slots limits the number of sets whose gradients it may sum
 * at a time. Then the part whose next contribution comes last leaves early (Belady 1966, fetch.c's rule for weights),
 * and later contributions form another round.
 *
 * If one rank computes both users of a token table, each user has a part of its own, and the unembedding's is added to
 * the embedding's when both are complete. So the sum has the same bits as with two ranks, or as with one rank and any
 * order of jobs. */
#include "lower.h"
#include <limits.h>
#include <string.h>

static void find_gradients(struct build *build) {
    const struct spec *sp = build->sp;
    build->sums.gradient_at = NEW(int32_t, build->sets + 1);
    for (int s = 0; s < build->sets; s++)
        build->sums.gradient_at[s + 1] =
            build->sums.gradient_at[s] + (sp->updates.every ? sp->batches / sp->updates.every[s] : 1);
    build->sums.gradient = NEW(struct gradient, build->sums.gradient_at[build->sets]);
    for (int s = 0; s < build->sets; s++)
        for (int32_t g = build->sums.gradient_at[s]; g < build->sums.gradient_at[s + 1]; g++)
            build->sums.gradient[g] = (struct gradient){s, g - build->sums.gradient_at[s]};
}

static int gradients_of(const struct build *build) { return build->sums.gradient_at[build->sets]; }
static const struct homes *summers(const struct build *build, int32_t gradient) {
    return sums_of(build, build->sums.gradient[gradient].set);
}

static void find_part_owners(struct build *build) {
    int n = 0, sums = 0, gradients = gradients_of(build);
    build->sums.owners_at = NEW(int32_t, gradients + 1);
    for (int g = 0; g < gradients; g++) {
        const struct homes *homes = summers(build, g);
        build->sums.owners_at[g + 1] = n += homes->lists * homes->size;
        sums += homes->lists * homes->size * pieces_of_sum(build, build->sums.gradient[g].set);
    }
    build->sums.owner = NEW(struct owner, n);
    build->sums.sum = NEW(struct sum, sums);
    for (int i = 0; i < sums; i++)
        build->sums.sum[i].waiting = -1;
    sums = 0;
    for (int g = 0; g < gradients; g++) {
        const struct homes *homes = summers(build, g);
        int s = build->sums.gradient[g].set;
        for (int i = 0; i < homes->lists * homes->size; i++, sums += pieces_of_sum(build, s))
            build->sums.owner[build->sums.owners_at[g] + i] =
                (struct owner){homes->rank[i], s, i, g, .weight = -1, .opt = -1, .gown = -1, .buf = -1, .sums = sums};
    }
}

/* ---- parts ---- */

/* Returns the list that gets a job's contribution to a set: its rank's own, if it is in one, else the one that w()
 * named. */
static int list_for(const struct build *build, const struct job *job, enum which_set which, int set) {
    struct home home = home_of(build->sp, home_of_set(build->sp, job, which));
    int own = place_at(build, job->rank, set);
    return (own >= 0 ? own : place_at(build, home.rank[0], set)) / sums_of(build, set)->size;
}

struct contributions { /* a rank's contributions, in the order of its jobs */
    int32_t *at;       /* [n]: job * NSETS + which */
    int32_t *next;     /* [n]: the next contribution to the same gradient, or INT_MAX */
    int n;
};

/* Tables for all ranks, with two entries per gradient; the second is for the unembedding's part. */
struct open_parts {
    int32_t *open;   /* index in part, or -1 */
    int32_t *last;   /* newest contribution to it */
    int32_t *rounds; /* rounds so far */
    int32_t *apart;  /* number of those rounds that are the unembedding's */
    int32_t *taken;  /* entries that occupy a slot */
    int n;
    bool both; /* the rank computes both users of a table */
};

static int32_t gradient_of(const struct build *build, int32_t contribution) {
    int32_t j = contribution / NSETS;
    return gradient_to(build, j, set_added(build->costs, &build->costs->job[j], contribution % NSETS));
}

static bool is_of_unembedding(const struct build *build, int32_t contribution) {
    return contribution % NSETS == SET_TABLE && unembeds(build->costs, build->costs->job[contribution / NSETS].s);
}

/* Returns a contribution's index in the tables of struct open_parts. */
static int32_t part_slot(const struct build *build, const struct open_parts *open, int32_t contribution) {
    bool apart = open->both && is_of_unembedding(build, contribution);
    return gradient_of(build, contribution) + (apart ? gradients_of(build) : 0);
}

static bool is_home(const struct build *build, int r, int32_t gradient) {
    return summers(build, gradient)->size == 1 && place_at(build, r, build->sums.gradient[gradient].set) >= 0;
}

/* Returns whether the rank computes both users of a table and is the home of its whole sum. Shards are added up where
 * they meet, and other ranks send one part. */
static bool has_both_users(const struct build *build, const struct contributions *list, int r) {
    bool embeds = false, too = false;
    for (int i = 0; i < list->n; i++)
        if (list->at[i] % NSETS == SET_TABLE && is_home(build, r, gradient_of(build, list->at[i]))) {
            bool last = is_of_unembedding(build, list->at[i]);
            embeds |= !last;
            too |= last;
        }
    return embeds && too;
}

static void list_contributions(const struct build *build, int r, struct contributions *list, struct open_parts *open,
                               int32_t *soonest) {
    const struct sched *sc = build->sc;
    list->n = 0;
    for (int i = 0; i < sc->norder[r]; i++)
        for (int which = 0; which < NSETS; which++)
            if (set_added(build->costs, &build->costs->job[sc->order[r][i]], which) >= 0)
                list->at[list->n++] = sc->order[r][i] * NSETS + which;
    open->both = has_both_users(build, list, r);
    for (int g = 0; g < 2 * gradients_of(build); g++)
        soonest[g] = INT_MAX;
    for (int i = list->n - 1; i >= 0; i--) {
        int32_t slot = part_slot(build, open, list->at[i]);
        list->next[i] = soonest[slot];
        soonest[slot] = i;
    }
}

static void close_part(struct open_parts *open, int32_t slot) {
    int k = 0;
    while (open->taken[k] != slot)
        k++;
    open->taken[k] = open->taken[--open->n];
    open->open[slot] = -1;
}

/* Closes a part to make room for one more, unless the current job needs all open parts. */
static void leave_open_part(const struct contributions *list, struct open_parts *open, int i) {
    int32_t victim = -1;
    for (int k = 0; k < open->n; k++) {
        int32_t slot = open->taken[k];
        bool in_use = list->at[open->last[slot]] / NSETS == list->at[i] / NSETS;
        if (!in_use && (victim < 0 || list->next[open->last[slot]] > list->next[open->last[victim]]))
            victim = slot;
    }
    if (victim >= 0)
        close_part(open, victim);
}

static struct part *new_part(struct build *build, int rank, int32_t gradient, int round, int apart) {
    int32_t set = build->sums.gradient[gradient].set;
    struct part *part = &build->sums.part[build->sums.nparts++];
    *part = (struct part){.rank = rank, .set = set, .sum = gradient, .buf = -1, .round = round, .first = INT32_MAX};
    part->apart = apart;
    part->direct = !apart && is_home(build, rank, gradient);
    part->pieces = pieces_of_set(build, set);
    return part;
}

static void contribute(struct build *build, const struct contributions *list, struct open_parts *open, int i, int r) {
    int32_t j = list->at[i] / NSETS, gradient = gradient_of(build, list->at[i]),
            slot = part_slot(build, open, list->at[i]);
    int limit = build->sp->limits.grad_slots ? build->sp->limits.grad_slots[r] : INT_MAX;
    if (open->open[slot] < 0) {
        int apart = slot == gradient ? 0 : ++open->apart[gradient];
        struct part *part = new_part(build, r, gradient, open->rounds[gradient]++, apart);
        if (!part->direct) {
            if (open->n >= limit)
                leave_open_part(list, open, i);
            open->taken[open->n++] = slot;
        }
        open->open[slot] = (int32_t)(part - build->sums.part);
    }
    struct part *part = &build->sums.part[open->open[slot]];
    if (j < part->first) { /* the whole part goes where w() sends this job's contribution */
        part->first = j;
        part->list = list_for(build, &build->costs->job[j], list->at[i] % NSETS, part->set);
    }
    part->jobs++;
    part->last = j;
    open->last[slot] = i;
    build->sums.part_of[list->at[i]] = open->open[slot];
    if (list->next[i] == INT_MAX && !part->direct)
        close_part(open, slot);
}

static void find_parts_of(struct build *build, int r, struct contributions *list, struct open_parts *open,
                          int32_t *soonest) {
    list_contributions(build, r, list, open, soonest);
    memset(open->open, -1, sizeof *open->open * 2 * (size_t)gradients_of(build));
    memset(open->rounds, 0, sizeof *open->rounds * (size_t)gradients_of(build));
    memset(open->apart, 0, sizeof *open->apart * (size_t)gradients_of(build));
    open->n = 0;
    int first = build->sums.nparts;
    for (int i = 0; i < list->n; i++)
        contribute(build, list, open, i, r);
    for (int p = first; p < build->sums.nparts; p++)
        build->sums.part[p].rounds = open->rounds[build->sums.part[p].sum];
}

/* ---- contributions that homes wait for ---- */

/* Per list of homes: the number of its ranks that have parts, and their number of rounds; -1: members differ. */
struct lists {
    int32_t *members, *rounds;
    int32_t *at; /* per gradient: index of its first list */
};

static struct lists find_lists(const struct build *build) {
    int gradients = gradients_of(build);
    struct lists lists = {.at = NEW(int32_t, gradients + 1)};
    for (int g = 0; g < gradients; g++)
        lists.at[g + 1] = lists.at[g] + summers(build, g)->lists;
    lists.members = NEW(int32_t, lists.at[gradients]);
    lists.rounds = NEW(int32_t, lists.at[gradients]);
    for (int p = 0; p < build->sums.nparts; p++) {
        const struct part *part = &build->sums.part[p];
        int32_t at = lists.at[part->sum] + part->list;
        if (part->round > 0 || place_at(build, part->rank, part->set) < 0)
            continue;
        lists.rounds[at] = lists.members[at]++ == 0 || lists.rounds[at] == part->rounds ? part->rounds : -1;
    }
    return lists;
}

static void take_meetings(struct build *build, const struct lists *lists, int32_t gradient) {
    int set = build->sums.gradient[gradient].set;
    const struct homes *homes = sums_of(build, set);
    struct meetings *meetings = &build->sums.meetings[gradient];
    for (int l = 0; l < homes->lists; l++) {
        int32_t at = lists->at[gradient] + l;
        if (homes->size > 1 && lists->members[at] == homes->size && lists->rounds[at] > meetings->rounds)
            meetings->rounds = lists->rounds[at];
    }
    int64_t rounds = (int64_t)homes->lists * meetings->rounds;
    meetings->left = NEW(int32_t, rounds * pieces_of_set(build, set));
    meetings->part = NEW(int32_t, rounds * homes->size);
}

/* Finds the rounds in which members' parts meet, piece by piece. Parts meet if all members of their list have equally
 * many rounds. */
static void find_meetings(struct build *build, const struct lists *lists) {
    build->sums.meetings = NEW(struct meetings, gradients_of(build));
    for (int g = 0; g < gradients_of(build); g++)
        take_meetings(build, lists, g);
    for (int p = 0; p < build->sums.nparts; p++) {
        struct part *part = &build->sums.part[p];
        const struct homes *homes = sums_of(build, part->set);
        int32_t at = lists->at[part->sum] + part->list, place = place_at(build, part->rank, part->set);
        struct meetings *meetings = &build->sums.meetings[part->sum];
        part->together = homes->size > 1 && place >= 0 && lists->members[at] == homes->size && lists->rounds[at] > 0;
        if (!part->together)
            continue;
        int32_t round = part->list * meetings->rounds + part->round, pieces = pieces_of_set(build, part->set);
        meetings->part[round * homes->size + place % homes->size] = p;
        for (int k = 0; k < pieces; k++)
            meetings->left[round * pieces + k]++;
    }
}

static void count_arrivals(struct build *build) {
    for (int p = 0; p < build->sums.nparts; p++) {
        const struct part *part = &build->sums.part[p];
        const struct homes *homes = sums_of(build, part->set);
        for (int i = 0; i < homes->size; i++) {
            struct owner *owner = &build->sums.owner[build->sums.owners_at[part->sum] + part->list * homes->size + i];
            for (int k = 0; k < pieces_of_sum(build, part->set); k++) {
                struct sum *sum = &build->sums.sum[owner->sums + k];
                if (owner->rank == part->rank && !part->apart)
                    sum->own++;
                else
                    sum->arrivals += !part->together;
            }
        }
    }
    build->sums.incomplete = NEW(int32_t *, gradients_of(build));
    build->sums.rest = NEW(int32_t, gradients_of(build));
    int shards = 0;
    for (int g = 0; g < gradients_of(build); g++) {
        const struct homes *homes = summers(build, g);
        int pieces = pieces_of_sum(build, build->sums.gradient[g].set);
        int whole = homes->size == 1, n = whole ? pieces : homes->size;
        build->sums.incomplete[g] = NEW(int32_t, n);
        for (int i = 0; i < n; i++)
            build->sums.incomplete[g][i] = homes->lists * (whole ? 1 : pieces);
        build->sums.rest[g] = n;
        shards += homes->size;
    }
    build->sums.done = NEW(struct shard, shards);
}

/* ---- ranks that sum ---- */

/* Finds the sets whose replicas divide gradients and are summed as lists: those to which exactly the replicas
 * contribute. */
static void divide_sums(struct build *build) {
    const struct spec *sp = build->sp;
    build->sums.homes = NEW(struct homes, build->sets);
    int32_t *owners = NEW(int32_t, build->sets); /* number of replicas that contribute; -1: other ranks do too */
    bool *works = NEW(bool, (int64_t)sp->workers * build->sets);
    for (int j = 0; j < sp->njobs; j++)
        for (int which = 0; which < NSETS; which++) {
            int rank = build->costs->job[j].rank, set = set_added(build->costs, &build->costs->job[j], which);
            if (set < 0 || works[(int64_t)rank * build->sets + set])
                continue;
            works[(int64_t)rank * build->sets + set] = true;
            owners[set] = owners[set] < 0 || place_at(build, rank, set) < 0 ? -1 : owners[set] + 1;
        }
    for (int s = 0; s < build->sets; s++) {
        build->sums.homes[s] = *homes_of(build->costs, s);
        if (build->sums.homes[s].zero == 2 && build->sums.homes[s].size == 1 && owners[s] == build->sums.homes[s].lists)
            build->sums.homes[s] = (struct homes){1, build->sums.homes[s].lists, 2, build->sums.homes[s].rank};
    }
}

/* Gives sets one sum each again if their replicas sum in different numbers of rounds and so cannot meet. Returns
 * whether there was any such set. */
static bool undivide_sums(struct build *build, const struct lists *lists) {
    bool any = false;
    for (int s = 0; s < build->sets; s++)
        if (build->sums.homes[s].size > homes_of(build->costs, s)->size &&
            lists->rounds[lists->at[build->sums.gradient_at[s]]] < 0) {
            build->sums.homes[s] = *homes_of(build->costs, s);
            any = true;
        }
    return any;
}

static struct lists find_all_parts(struct build *build, int contributions) {
    int most = 0;
    for (int r = 0; r < build->sp->workers; r++)
        most = build->sc->norder[r] > most ? build->sc->norder[r] : most;
    find_part_owners(build);
    memset(build->sums.part_of, -1, sizeof *build->sums.part_of * NSETS * (size_t)build->sp->njobs);
    int64_t cells = (int64_t)build->sp->workers * gradients_of(build) * (build->sp->names.tables > 0 ? 2 : 1);
    build->sums.part = NEW(struct part, !build->sp->limits.grad_slots && cells < contributions ? cells : contributions);
    build->sums.nparts = 0;
    struct contributions list = {NEW(int32_t, (int64_t)most * NSETS), NEW(int32_t, (int64_t)most * NSETS), 0};
    int slots = 2 * gradients_of(build);
    struct open_parts open = {.open = NEW(int32_t, slots),
                              .last = NEW(int32_t, slots),
                              .rounds = NEW(int32_t, slots),
                              .apart = NEW(int32_t, slots),
                              .taken = NEW(int32_t, slots)};
    int32_t *soonest = NEW(int32_t, slots);
    for (int r = 0; r < build->sp->workers; r++)
        find_parts_of(build, r, &list, &open, soonest);
    return find_lists(build);
}

/* ---- teams ---- */

/* Checks that parameters that members have whole stay equal bit for bit: all members must add up their gradients in one
 * order. So each part of a member's sum must have the same microbatches and the same destination as a part of the first
 * member's sum. */
static void check_members(const struct build *build) {
    const struct spec *sp = build->sp;
    int32_t *back = NEW(int32_t, build->sums.nparts + 1); /* per part of a member: the first member's part */
    memset(back, -1, sizeof *back * ((size_t)build->sums.nparts + 1));
    for (int32_t i = 0; build->costs->whole && i < sp->njobs * NSETS; i++) {
        int32_t j = i / NSETS, which = i % NSETS, first = gang_of(sp, j),
                a = build->sums.part_of[first * NSETS + which], b = build->sums.part_of[i];
        if (which == SET_SHARED || first == j || a < 0 || build->sums.part[b].set >= sp->stages ||
            !build->costs->whole[build->sums.part[b].set])
            continue;
        const struct part *one = &build->sums.part[a], *two = &build->sums.part[b];
        back[b] = back[b] < 0 ? a : back[b];
        if (back[b] != a || one->list != two->list || one->direct != two->direct || one->jobs != two->jobs)
            die("%s: the members that compute %s would add up its gradient with those of other microbatches, or in "
                "another order: weights that each of them holds whole, such as norms, would not stay equal bit for "
                "bit; list each member's ranks and homes in the first member's order",
                sp->file,
                job_name(&sp->names, build->costs->job[first].s, build->costs->job[first].b,
                         build->costs->job[first].d));
    }
}

void find_parts(struct build *build) {
    int contributions = 0;
    for (int j = 0; j < build->sp->njobs; j++)
        for (int which = 0; which < NSETS; which++)
            contributions += set_added(build->costs, &build->costs->job[j], which) >= 0;
    build->sums.part_of = NEW(int32_t, (int64_t)build->sp->njobs * NSETS);
    find_gradients(build);
    divide_sums(build);
    struct lists lists = find_all_parts(build, contributions);
    while (undivide_sums(build, &lists))
        lists = find_all_parts(build, contributions);
    find_meetings(build, &lists);
    count_arrivals(build);
    check_members(build);
}

bool leaves_early(const struct build *build, const struct part *part, int32_t j) {
    return part && part->last == j && part->round + 1 == part->rounds && !build->costs->job[j].pair &&
           pieces_of_set(build, part->set) > 1 && !(part->direct && sums_of(build, part->set)->lists == 1);
}

int parts_of_job(const struct build *build, int32_t j) {
    const struct job *job = &build->costs->job[j];
    if (build->costs->stage[job->s].nstops[job->d] > 0)
        return build->costs->stage[job->s].nstops[job->d] + 1;
    const struct part *part = part_to(build, j, SET_OWN);
    return leaves_early(build, part, j) ? build->costs->stage[part->set].parts : 1;
}
