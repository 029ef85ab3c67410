/* The memory plan where there is memory to spare.
 *
 * Bytes that a message still has when the next tensor needs them hold that tensor's instruction up. So the program is
 * simulated as if no bytes were reused. A plan that gives bytes on only when, by these times, their last access has
 * ended adds no order that the times do not have: the program keeps them all.
 *
 * Only fetched weights reuse bytes in that simulation, as in the plan by the schedule alone. They depend on no data:
 * otherwise all would come at once, as early as their lanes permit.
 *
 * Where the cluster's memory is too small for that on some ranks, mem.c gives bytes on there somewhat before these
 * times, and other ranks' times change with theirs. If that makes the program slower than the plan by the schedule
 * alone does on all ranks, it is dropped. */
#include "passes.h"
#include <math.h>
#include <string.h>

static void remove_waits(struct program *p) {
    for (int r = 0; r < p->workers; r++) {
        struct rank *k = &p->rank[r];
        for (int32_t i = 0; i < k->nins; i++)
            k->ins[i].wait = k->ins[i].nwait = 0;
        k->wait = NULL;
        k->nwaits = 0;
    }
}

void mem_forget(struct program *p) {
    remove_waits(p);
    for (int r = 0; r < p->workers; r++) {
        struct rank *k = &p->rank[r];
        k->life = NULL;
        k->over = k->over_at = NULL;
        k->arena = k->least = k->base = 0;
        for (int b = 0; b < k->nbufs; b++)
            k->buf[b].off = -1;
    }
}

/* Times that differ by rounding alone count as equal. */
static const double ROUNDING = 1e-12;

/* Of what takes over whose bytes, only what fetched weights do: from others of their kind, if they take over any. */
static void keep_slots(struct rank *k) {
    int32_t n = 0;
    for (int b = 0; b < k->nbufs; b++) {
        int32_t from = k->over_at[b], end = k->over_at[b + 1], weights = 0;
        for (int32_t o = from; o < end; o++)
            weights += k->buf[k->over[o]].kind == K_weight;
        k->over_at[b] = n;
        for (int32_t o = from; k->buf[b].kind == K_weight && o < end; o++)
            if (weights == 0 || k->buf[k->over[o]].kind == K_weight)
                k->over[n++] = k->over[o];
    }
    k->over_at[k->nbufs] = n;
}

/* When an instruction starts to hold its operands' bytes: a RECV as its SEND starts, before anything arrives. */
static double ready(const struct spec *sp, const struct timeline *tl, int r, int32_t i, const struct instr *x) {
    return tl->start[r][i] - (is_recv(x->op) ? link_of(sp, x->peer, r).latency : 0);
}

static void find_lifetimes(const struct spec *sp, const struct stage *st, struct program *p) {
    struct lifetime **lives = NEW(struct lifetime *, p->workers);
    for (int r = 0; r < p->workers; r++)
        lives[r] = NEW(struct lifetime, p->rank[r].nbufs);
    struct scratch scratch = scratch_begin();
    mem_plan(sp, p);
    for (int r = 0; r < p->workers; r++)
        keep_slots(&p->rank[r]);
    lanes_sync(p);
    const struct timeline *tl = sim_run(sp, st, p);
    for (int r = 0; r < p->workers; r++) {
        struct rank *k = &p->rank[r];
        k->life = lives[r];
        for (int b = 0; b < k->nbufs; b++)
            k->life[b] = (struct lifetime){INFINITY, 0};
        double next = INFINITY; /* of the communications from here on, when the first starts */
        for (int32_t i = k->nins - 1; i >= 0; i--) {
            double from = ready(sp, tl, r, i, &k->ins[i]), to = tl->end[r][i] - ROUNDING * tl->makespan;
            if (sp->launch != LAUNCH_LANE && k->ins[i].msg >= 0) /* one that waits for bytes holds up those behind it */
                from = next = fmin(next, from);
            for (uint32_t a = k->ins[i].arg; a < k->ins[i].arg + k->ins[i].narg; a++) {
                struct lifetime *life = &k->life[k->arg[a].buf];
                life->start = fmin(life->start, from);
                life->end = fmax(life->end, to);
            }
        }
    }
    remove_waits(p);
    scratch_end(scratch);
}

static double makespan(const struct spec *sp, const struct stage *st, struct program *p) {
    struct scratch scratch = scratch_begin();
    lanes_sync(p);
    double makespan = sim_run(sp, st, p)->makespan;
    remove_waits(p);
    scratch_end(scratch);
    return makespan;
}

void mem_plan_spare(const struct spec *sp, const struct stage *st, struct program *p) {
    find_lifetimes(sp, st, p);
    if (!mem_plan(sp, p))
        return;
    double spare = makespan(sp, st, p);
    struct lifetime **life = NEW(struct lifetime *, p->workers);
    for (int r = 0; r < p->workers; r++) {
        life[r] = p->rank[r].life;
        p->rank[r].life = NULL;
    }
    mem_plan(sp, p);
    if (makespan(sp, st, p) <= spare)
        return;
    for (int r = 0; r < p->workers; r++)
        p->rank[r].life = life[r];
    mem_plan(sp, p);
}
