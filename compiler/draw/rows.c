/* Finds ranks that share a row of a picture. If there are more than MANY_ROWS ranks, ranks share a row if they run the
 * same jobs at the same times with the same memory in use, like the members of a team. */
#include "base/map.h"
#include "svg.h"
#include <string.h>

struct finder {
    const struct program *p;
    const struct timeline *tl;
    struct usage *usage; /* per rank */
    uint64_t *hash;      /* per rank: of what ranks in the same row have in common */
    struct map leaders;
};

static int script_stage(const struct program *p, int stage) { return member_at(&p->names, stage).stage; }

/* Returns the first instruction from i on that is a block in the row; nins if there is none. */
static int next_block(const struct finder *finder, int r, int i) {
    const struct rank *k = &finder->p->rank[r];
    while (i < k->nins && (k->ins[i].lane != 0 || !paint_of(&k->ins[i], BY_OP).name ||
                           finder->tl->end[r][i] <= finder->tl->start[r][i]))
        i++;
    return i;
}

static bool same_block(const struct finder *finder, int a, int i, int b, int j) {
    const struct instr *x = &finder->p->rank[a].ins[i], *y = &finder->p->rank[b].ins[j];
    return x->op == y->op && x->batch == y->batch && x->inst == y->inst &&
           script_stage(finder->p, x->stage) == script_stage(finder->p, y->stage) &&
           finder->tl->start[a][i] == finder->tl->start[b][j] && finder->tl->end[a][i] == finder->tl->end[b][j];
}

/* Returns whether both rows have the same blocks. Sets twin, for each block of b, to the instruction of a. */
static bool same_blocks(const struct finder *finder, int a, int b, int32_t *twin) {
    int na = finder->p->rank[a].nins, nb = finder->p->rank[b].nins;
    for (int i = 0, j = 0;; i++, j++) {
        i = next_block(finder, a, i);
        j = next_block(finder, b, j);
        if (i == na || j == nb)
            return i == na && j == nb;
        if (!same_block(finder, a, i, b, j))
            return false;
        twin[j] = i;
    }
}

static bool same_memory(const struct finder *finder, int a, int b) {
    const struct usage *x = &finder->usage[a], *y = &finder->usage[b];
    bool same = finder->p->rank[a].arena == finder->p->rank[b].arena && x->n == y->n;
    for (int i = 0; same && i < x->n; i++)
        same = x->at[i].t == y->at[i].t && x->at[i].bytes == y->at[i].bytes;
    return same;
}

static bool same_joins(const struct finder *finder, int a, int b) {
    int n = joins_of(finder->p);
    return n == 0 || !memcmp(join_times(finder->p, finder->tl, a), join_times(finder->p, finder->tl, b),
                             sizeof(double) * (size_t)n);
}

/* Returns the numbers of the ranks that share r's row, with runs as 0–3. If they exceed `letters` characters, ends with
 * a …. */
static const char *shared_numbers(const struct rows *rows, int r, int workers, int letters) {
    struct text t = {0};
    for (int a = r, b, n = 0; a < workers; a = b + 1) {
        b = a;
        if (rows->leader[a] != r)
            continue;
        while (b + 1 < workers && rows->leader[b + 1] == r)
            b++;
        const char *run = b == a ? format("%d", a) : format("%d%s%d", a, b > a + 1 ? "–" : ", ", b);
        n += (int)strlen(run) + 2;
        if (n > letters && a > r) {
            put(&t, ", …");
            break;
        }
        put(&t, "%s%s", a > r ? ", " : "", run);
    }
    return t.s;
}

static void name_row(struct rows *rows, int r, int workers) {
    enum { LABEL = 7 }; /* letters that fit into the margin, in a small font, after "ranks " */
    const char *all = shared_numbers(rows, r, workers, INT32_MAX);
    bool several = strpbrk(all, ",\xe2") != NULL;
    rows->who[r] = format(several ? "ranks %s" : "rank %s", all);
    rows->label[r] = several ? format("ranks %s", shared_numbers(rows, r, workers, LABEL)) : NULL;
}

static uint64_t hash_time(uint64_t hash, double t) {
    int64_t bits;
    t += 0.0; /* not -0 */
    memcpy(&bits, &t, sizeof bits);
    return hash_add(hash, bits);
}

static uint64_t hash_rank(const struct finder *finder, int r) {
    const struct rank *k = &finder->p->rank[r];
    uint64_t hash = hash_add(0, k->arena);
    for (int i = next_block(finder, r, 0); i < k->nins; i = next_block(finder, r, i + 1)) {
        const struct instr *x = &k->ins[i];
        hash = hash_add(hash_add(hash_add(hash, x->op), x->batch), script_stage(finder->p, x->stage));
        hash = hash_time(hash_time(hash, finder->tl->start[r][i]), finder->tl->end[r][i]);
    }
    for (int i = 0; i < finder->usage[r].n; i++)
        hash = hash_add(hash_time(hash, finder->usage[r].at[i].t), finder->usage[r].at[i].bytes);
    return hash;
}

/* Returns the rank whose row r shares, which is r itself if no earlier rank is equal. Sets twin if it is another. */
static int find_leader(struct finder *finder, int r, int32_t **twin) {
    const struct program *p = finder->p;
    finder->usage[r] = memory_use(&p->rank[r], finder->tl->start[r], finder->tl->end[r]);
    finder->hash[r] = hash_rank(finder, r);
    uint32_t at = map_start(&finder->leaders, finder->hash[r]);
    for (int a; (a = finder->leaders.slot[at] - 1) >= 0; at = map_next(&finder->leaders, at)) {
        if (finder->hash[a] != finder->hash[r] || !same_memory(finder, a, r) || !same_joins(finder, a, r))
            continue;
        int32_t *of = NEW(int32_t, p->rank[r].nins);
        for (int i = 0; i < p->rank[r].nins; i++)
            of[i] = -1;
        if (same_blocks(finder, a, r, of)) {
            *twin = of;
            return a;
        }
    }
    finder->leaders.slot[at] = r + 1;
    return r;
}

struct rows rows_of(const struct program *p, const struct timeline *tl, bool share) {
    struct rows rows = {.leader = NEW(int, p->workers),
                        .twin = NEW(int32_t *, p->workers),
                        .who = NEW(const char *, p->workers),
                        .label = NEW(const char *, p->workers)};
    struct finder finder = {p, tl, NEW(struct usage, p->workers), NEW(uint64_t, p->workers),
                            map_new((size_t)p->workers)};
    share = share && p->workers > MANY_ROWS;
    for (int r = 0; r < p->workers; r++) {
        rows.leader[r] = share ? find_leader(&finder, r, &rows.twin[r]) : r;
        rows.n += rows.leader[r] == r;
    }
    for (int r = 0; r < p->workers; r++)
        if (rows.leader[r] == r)
            name_row(&rows, r, p->workers);
    return rows;
}

void rows_share_path(const struct rows *rows, const struct program *p, bool **path) {
    for (int r = 0; r < p->workers; r++)
        for (int i = 0; rows->leader[r] != r && i < p->rank[r].nins; i++)
            if (rows->twin[r][i] >= 0 && path[r][i])
                path[rows->leader[r]][rows->twin[r][i]] = true;
}
