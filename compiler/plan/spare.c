/* Plans memory when there is some to spare. If a message still occupies the bytes that the next tensor needs, that
 * tensor's instruction waits. To avoid such waits, the program is first simulated as if no bytes were reused. A plan
 * that reuses bytes only after their last access has ended by these times adds no waits, so the program keeps the
 * times.
 *
 * In that simulation only fetched weights reuse bytes, as in the plan by the schedule alone. They depend on no data,
 * and would otherwise all arrive at once, as early as their lanes permit.
 *
 * If some ranks lack the memory for that, mem.c reuses bytes there somewhat earlier, which changes other ranks' times
 * too. If the program then becomes slower than with the plan by the schedule alone on all ranks, this plan is
 * dropped. */
#include "plan.h"
#include <math.h>

/* Treats times that differ only by rounding as equal. */
static const double ROUNDING = 1e-12;

static const char *const once_free = "reuse bytes once they are free, by the predicted times";
static const char *const by_schedule = "reuse bytes as soon as the schedule permits";

/* Drops all reuse of bytes except by fetched weights. Fetched weights that take over other weights' bytes keep only
 * that reuse; the rest keep all of theirs. */
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

/* Returns when an instruction starts to occupy its operands' bytes: a RECV when its SEND starts, before anything
 * arrives. */
static double holds_from(const struct compile *c, int r, int32_t i, const struct instr *x) {
    return c->timeline->start[r][i] - (is_recv(x->op) ? link_of(c->spec, x->peer, r).latency : 0);
}

/* Takes the lifetimes of rank r's buffers from the timeline. */
static void take_lifetimes(const struct compile *c, int r, struct lifetime *life) {
    const struct rank *k = &c->program->rank[r];
    double next = INFINITY; /* start of the first communication from here on */
    for (int b = 0; b < k->nbufs; b++)
        life[b] = (struct lifetime){INFINITY, 0};
    for (int32_t i = k->nins - 1; i >= 0; i--) {
        double from = holds_from(c, r, i, &k->ins[i]), to = c->timeline->end[r][i] - ROUNDING * c->timeline->makespan;
        if (c->choices.launch != LAUNCH_LANE && k->ins[i].msg >= 0) /* a waiting one delays later ones */
            from = next = fmin(next, from);
        for (uint32_t a = k->ins[i].arg; a < k->ins[i].arg + k->ins[i].narg; a++) {
            struct lifetime *at = &life[k->arg[a].buf];
            at->start = fmin(at->start, from);
            at->end = fmax(at->end, to);
        }
    }
}

/* Returns the lifetimes without reuse of bytes, except for fetched weights. That variation is compiled only for its
 * times. */
static struct lifetime **find_lifetimes(struct compile *c) {
    int workers = c->program->workers;
    struct lifetime **life = NEW(struct lifetime *, workers);
    for (int r = 0; r < workers; r++)
        life[r] = NEW(struct lifetime, c->program->rank[r].nbufs);
    struct scratch scratch = scratch_begin();
    compile_until(c, OFFSETS);
    for (int r = 0; r < workers; r++)
        keep_slots(&c->program->rank[r]);
    compile_until(c, TIMES);
    for (int r = 0; r < workers; r++)
        take_lifetimes(c, r, life[r]);
    compile_forget(c, OFFSETS);
    scratch_end(scratch);
    return life;
}

/* Compiles the variation that reuses bytes by these lifetimes, and returns its makespan. Drops the results after the
 * offsets. */
static double try_reuse(struct compile *c, struct lifetime **life) {
    if (c->choices.life != life)
        compile_forget(c, OFFSETS);
    c->choices.life = life;
    compile_until(c, OFFSETS);
    struct scratch scratch = scratch_begin();
    compile_until(c, TIMES);
    double makespan = c->timeline->makespan;
    compile_forget(c, WAITS);
    scratch_end(scratch);
    return makespan;
}

void search_spare(struct compile *c) {
    if (c->choices.least_memory)
        return;
    struct lifetime **life = find_lifetimes(c);
    c->choices.life = life;
    compile_until(c, OFFSETS);
    if (!c->hurried) { /* memory suffices, so no instruction waits for bytes */
        tried_add(c, "spare", once_free, NAN, NULL);
        tried_ships(c, once_free);
        return;
    }
    double spare = try_reuse(c, life), soon = try_reuse(c, NULL);
    if (soon > spare) {
        compile_forget(c, OFFSETS);
        c->choices.life = life;
        compile_until(c, OFFSETS);
    }
    tried_add(c, "spare", once_free, spare, NULL);
    tried_add(c, "spare", by_schedule, soon, NULL);
    tried_ships(c, soon > spare ? once_free : by_schedule);
}
