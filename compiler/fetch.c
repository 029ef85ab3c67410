/* Which weights a rank fetches, keeps and drops. All uses are known, so the victim is the one needed last (Belady 1966,
 * "A study of replacement algorithms for a virtual-storage computer"): no rule fetches less with as many slots. */
#include "lower.h"
#include <limits.h>
#include <string.h>

bool is_home(const struct homes *h, int stage, int rank) {
    int lo = h->at[stage], hi = h->at[stage + 1];
    while (lo < hi) {
        int mid = (lo + hi) / 2;
        if (h->rank[mid] < rank)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < h->at[stage + 1] && h->rank[lo] == rank;
}

/* The homes of a stage are all ranks that w() names as home for any of its jobs. */
struct homes homes_of(const struct spec *sp) {
    struct homes h = {.at = NEW(int32_t, sp->stages + 1)};
    int *seen = NEW(int, sp->workers); /* the stage that marked the rank last, plus one */
    size_t cap = 0, n = 0;
    for (int j = 0; j < sp->njobs;) {
        int s = sp->job[j].s;
        for (; j < sp->njobs && sp->job[j].s == s; j++)
            seen[sp->job[j].home] = s + 1;
        for (int r = 0; r < sp->workers; r++)
            if (seen[r] == s + 1) {
                GROW(h.rank, cap, n + 1);
                h.rank[n++] = r;
            }
        h.at[s + 1] = (int32_t)n;
    }
    return h;
}

/* W reads only its wstash; the other jobs read weights. */
static bool fetches_weights(const struct homes *h, const struct job *j) {
    return j->d != OP_W && !is_home(h, j->s, j->rank);
}

struct slot_use {
    int32_t fetch, next, last; /* what the slot holds; its next and last use, as positions in the rank's uses */
};

static void plan_rank(const struct spec *sp, const int32_t *use, int nuse, int rank, struct fetches *f, size_t *cap) {
    int keep = sp->slots[rank], nslots = 0, limit = keep > 0 ? keep : 1;
    int32_t *next = NEW(int32_t, nuse), *soonest = NEW(int32_t, sp->stages), *insts = NEW(int32_t, sp->stages);
    int32_t *in_slot = NEW(int32_t, sp->stages); /* slot + 1 */
    struct slot_use *slot = NEW(struct slot_use, limit < sp->stages ? limit : sp->stages);
    for (int s = 0; s < sp->stages; s++)
        soonest[s] = INT_MAX;
    for (int i = nuse - 1; i >= 0; i--) {
        int s = sp->job[use[i]].s;
        next[i] = soonest[s];
        soonest[s] = i;
    }
    for (int i = 0; i < nuse; i++) {
        const struct job *job = &sp->job[use[i]];
        int at = in_slot[job->s] - 1;
        if (at < 0 || keep == 0) {
            int32_t after = -1;
            if (nslots < limit && nslots < sp->stages)
                at = nslots++;
            else {
                at = 0;
                for (int k = 1; k < nslots; k++)
                    if (slot[k].next > slot[at].next || (slot[k].next == slot[at].next && slot[k].last < slot[at].last))
                        at = k;
                after = use[slot[at].last];
                in_slot[f->a[slot[at].fetch].stage] = 0;
            }
            GROW(f->a, *cap, (size_t)f->n + 1);
            f->a[f->n] = (struct fetch){rank, job->s, job->home, insts[job->s]++, 0, after};
            slot[at].fetch = f->n++;
            in_slot[job->s] = at + 1;
        }
        slot[at].next = next[i];
        slot[at].last = i;
        f->a[slot[at].fetch].uses++;
        f->of_job[use[i]] = slot[at].fetch;
    }
}

struct fetches fetch_plan(const struct spec *sp, const struct sched *sc, const struct homes *h) {
    struct fetches f = {.of_job = NEW(int32_t, sp->njobs)};
    memset(f.of_job, -1, sizeof *f.of_job * (size_t)sp->njobs);
    size_t cap = 0;
    for (int r = 0; r < sp->workers; r++) {
        int32_t *use = NEW(int32_t, sc->norder[r]);
        int n = 0;
        for (int i = 0; i < sc->norder[r]; i++)
            if (fetches_weights(h, &sp->job[sc->order[r][i]]))
                use[n++] = sc->order[r][i];
        if (n > 0)
            plan_rank(sp, use, n, r, &f, &cap);
    }
    f.next = NEW(int32_t, f.n + 1);
    if (f.n == 0)
        return f;
    f.after = NEW(int32_t, sp->njobs + 1);
    memset(f.after, -1, sizeof *f.after * (size_t)(sp->njobs + 1));
    for (int i = f.n - 1; i >= 0; i--) { /* lists in ascending order; the last one holds those ready at the start */
        int32_t *head = &f.after[f.a[i].after < 0 ? sp->njobs : f.a[i].after];
        f.next[i] = *head;
        *head = i;
    }
    return f;
}
