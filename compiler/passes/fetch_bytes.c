/* Decides which weights a rank keeps if sets have unequal sizes, or memory is too small for the slots: it keeps the
 * sets that minimize the bytes received (residency.c). A turn is a job of the rank, or two that overlap. */
#include "lower.h"
#include "residency.h"
#include <limits.h>
#include <string.h>

struct turns {
    int32_t *of_job, *last; /* per job; per turn, the job that ends it */
    int n;
};

static struct turns turns_of(const struct costs *costs, const struct sched *sc, int rank) {
    struct turns turns = {.of_job = NEW(int32_t, costs->njobs), .last = NEW(int32_t, sc->norder[rank])};
    for (int i = 0; i < sc->norder[rank]; i++) {
        int32_t j = sc->order[rank][i], before = i > 0 ? sc->order[rank][i - 1] : -1;
        if (before < 0 || !at_once(costs, j * NSETS, before * NSETS))
            turns.last[turns.n++] = j;
        int32_t *last = &turns.last[turns.n - 1];
        turns.of_job[j] = turns.n - 1;
        *last = j > *last ? j : *last; /* of two jobs that end at once, the one retired last */
    }
    return turns;
}

/* Returns the room per turn; NULL: there is no limit. */
static int64_t *room_of(const struct compile *c, int rank, const struct turns *turns) {
    const struct sched *sc = c->sched;
    int64_t *room = NEW(int64_t, turns->n);
    if (!has_room_limit(c, rank))
        return NULL;
    for (int t = 0; t < turns->n; t++)
        room[t] = INT64_MAX;
    for (int i = 0; i < sc->norder[rank]; i++) {
        int32_t j = sc->order[rank][i];
        int64_t *least = &room[turns->of_job[j]];
        *least = c->choices.room[j] < *least ? c->choices.room[j] : *least;
    }
    return room;
}

/* Returns the uses of the problem: a set that two jobs of a turn read is used once. of[i]: the problem's use for
 * use[i]. */
static struct residency_use *uses_of(const struct costs *costs, const int32_t *use, int nuse, const struct turns *turns,
                                     int32_t *of, int *n) {
    int32_t *last = NEW(int32_t, sets_of(costs->spec)); /* 1 + the set's newest use */
    struct residency_use *uses = NEW(struct residency_use, nuse);
    *n = 0;
    for (int i = 0; i < nuse; i++) {
        int32_t job = use[i] / NSETS, turn = turns->of_job[job],
                set = set_read(costs, &costs->job[job], use[i] % NSETS);
        if (last[set] == 0 || uses[last[set] - 1].turn != turn) {
            uses[*n] = (struct residency_use){turn, set};
            last[set] = ++*n;
        }
        of[i] = last[set] - 1;
    }
    return uses;
}

/* The live range of a fetch's weights: they may arrive from turn `from` on, and are used from `first` to `last`. */
struct stay {
    int32_t from, first, last;
    int64_t size;
};

/* Assigns slots: each stay gets the slot that has been free for longest. */
static void take_slots(struct stay *stay, int n, int slots) {
    int32_t *used = NEW(int32_t, slots); /* per slot: 1 + the last turn that used it */
    for (int i = 0; i < n; i++) {
        int at = 0;
        for (int k = 1; k < slots; k++)
            at = used[k] < used[at] ? k : at;
        stay[i].from = used[at] < stay[i].first ? used[at] : stay[i].first;
        used[at] = stay[i].last + 1;
    }
}

/* Delays arrivals until the weights fit together with the others. */
static void come_within(struct stay *stay, int n, const int64_t *room, int turns, bool late) {
    int64_t *left = NEW(int64_t, turns);
    memcpy(left, room, sizeof *room * (size_t)turns);
    for (int i = 0; i < n; i++)
        for (int t = stay[i].first; t <= stay[i].last; t++)
            left[t] -= stay[i].size;
    for (int i = 0; i < n; i++) {
        int32_t from = stay[i].first;
        for (; !late && from > stay[i].from && left[from - 1] >= stay[i].size; from--)
            left[from - 1] -= stay[i].size;
        stay[i].from = from;
    }
}

void plan_bytes(const struct compile *c, const int32_t *place, struct uses all, int slots, struct fetches *fetches) {
    const struct spec *sp = c->spec;
    const struct sched *sc = c->sched;
    const int32_t *use = all.a;
    int rank = all.rank, nuse = all.n;
    int sets = sets_of(sp), first = fetches->n, begun = 0, nuses;
    struct turns turns = turns_of(c->costs, sc, rank);
    int64_t *size = NEW(int64_t, sets), *bytes = NEW(int64_t, sets), *room = room_of(c, rank, &turns);
    int32_t *of = NEW(int32_t, nuse), *insts = NEW(int32_t, sets), *now = NEW(int32_t, sets); /* its fetch */
    struct residency_use *uses = uses_of(c->costs, use, nuse, &turns, of, &nuses);
    for (int s = 0; s < sets; s++) {
        size[s] = mem_room(sp, c->costs->stage ? c->costs->stage[s].bytes[K_weight] : 1);
        bytes[s] = fetch_bytes(c->costs, place, rank, s);
    }
    struct residency residency =
        residency_solve(&(struct residency_problem){sets, turns.n, nuses, uses, size, bytes, slots, room});
    struct stay *stay = NEW(struct stay, nuses);
    for (int i = 0; i < nuse; i++) {
        int32_t job = use[i] / NSETS, set = uses[of[i]].set, turn = uses[of[i]].turn;
        if (of[i] == begun && !residency.kept[begun++]) {
            int home = *home_of_set(sp, &c->costs->job[job], use[i] % NSETS);
            GROW(fetches->a, fetches->cap, (size_t)fetches->n + 1);
            stay[fetches->n - first] = (struct stay){.first = turn, .size = size[set]};
            fetches->a[fetches->n] = new_fetch(rank, set, home, insts[set]++, job);
            now[set] = fetches->n++;
        }
        stay[now[set] - first].last = turn;
        add_use(&fetches->a[now[set]], job);
        fetches->of_job[use[i]] = now[set];
    }
    take_slots(stay, fetches->n - first, slots < sets ? slots : sets);
    if (room)
        come_within(stay, fetches->n - first, room, turns.n, c->choices.late[rank]);
    for (int i = first; i < fetches->n; i++)
        if (stay[i - first].from > 0)
            fetches->a[i].after = turns.last[stay[i - first].from - 1];
    fetches->least[rank] = residency.bound;
}
