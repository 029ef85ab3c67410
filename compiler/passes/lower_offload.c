/* Keeps a forward's stash or input, and optimizer state, in host memory while unused.
 *
 * A stash leaves as soon as it exists, on the rank whose backward reads it. It comes back as late as possible without
 * delaying that backward, given the times of its copy and of later copies in the lane: its copy starts after the last
 * job of its rank that ends by then. Nothing else orders the copy, so its place after that job is kept explicitly
 * (rank.ordered). Otherwise it would come back at once, and nothing would be saved.
 *
 * Optimizer state is loaded for its update and leaves again. The first state is loaded while the rank's last job runs,
 * every other one as soon as the update two before it has ended. So at most two are on the device. */
#include "lower.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool leaves(const struct build *build, const struct job *from, int kind) {
    const uint8_t *offload = build->choices->offload;
    return offload && from->d == OP_F && (kind == K_stash || kind == K_input) &&
           offload[(int64_t)from->s * build->sp->batches + from->b];
}

static int host_kind(int kind) { return kind == K_stash ? K_hstash : K_hinput; }
static int back(int kind) { return kind == K_stash ? K_rstash : K_rinput; }

/* Returns how many jobs of rank r end by t. */
static int ended_by(const struct sched *sc, int r, double t) {
    int least = 0, most = sc->norder[r];
    while (least < most) {
        int mid = (least + most) / 2;
        if (sc->end[sc->order[r][mid]] <= t)
            least = mid + 1;
        else
            most = mid;
    }
    return least;
}

/* ---- times of reloads ---- */

static int by_reader(const void *x, const void *y) { /* per rank, from the last that is due to the first */
    const struct reload *a = x, *b = y;
    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    return (a->due < b->due) - (a->due > b->due);
}

static int by_reload(const void *x, const void *y) {
    const struct reload *a = x, *b = y;
    return a->moment != b->moment ? (a->moment > b->moment) - (a->moment < b->moment)
                                  : (a->due > b->due) - (a->due < b->due);
}

/* Returns the last job of the reload's rank that ends by t and before the reader starts; a job that takes no time may
 * end by t as well. */
static int32_t last_before(const struct build *build, const struct moments *moments, const struct reload *x, double t) {
    const int32_t *order = build->sc->order[x->rank];
    int n = ended_by(build->sc, x->rank, t);
    while (n > 0 && moments->end[order[n - 1]] >= x->due)
        n--;
    return n > 0 ? order[n - 1] : -1;
}

static void choose_reloads(const struct build *build, const struct moments *moments, struct reload *reload, int n) {
    double next = INFINITY;
    for (int i = 0; i < n; i++) {
        struct reload *x = &reload[i];
        int32_t from = build->g->pred[x->edge];
        if (i == 0 || reload[i - 1].rank != x->rank)
            next = INFINITY;
        next = fmin(next, moments->time[x->due]) -
               host_time(build->sp, x->rank, stage_at(build->costs, x->set, build->costs->job[from].b)->bytes[x->kind]);
        x->after = last_before(build, moments, x, next);
        x->moment = moments->end[from] + 1;
        if (x->after >= 0 && moments->end[x->after] + 1 > x->moment)
            x->moment = moments->end[x->after] + 1;
    }
}

void plan_reloads(struct build *build) {
    const struct spec *sp = build->sp;
    size_t cap = 0;
    int n = 0;
    if (!build->choices->offload)
        return;
    struct moments moments = moments_in(build);
    for (int j = 0; j < sp->njobs; j++)
        for (int32_t e = build->g->pred_at[j]; e < build->g->pred_at[j + 1]; e++) {
            const struct job *from = &build->costs->job[build->g->pred[e]], *to = &build->costs->job[j];
            int kind = build->g->kind[e];
            if (!leaves(build, from, kind))
                continue;
            GROW(build->reloads.reload, cap, (size_t)n + 1);
            build->reloads.reload[n++] = (struct reload){to->rank, to->s, kind, e, -1, 0, moments.start[j]};
        }
    build->reloads.n = n;
    if (n == 0)
        return;
    sort(build->reloads.reload, (size_t)n, sizeof *build->reloads.reload, by_reader);
    choose_reloads(build, &moments, build->reloads.reload, n);
    sort(build->reloads.reload, (size_t)n, sizeof *build->reloads.reload, by_reload);
}

/* ---- the instructions ---- */

static void keep_order(struct build *build, int r, int32_t after) {
    struct rank *k = &build->p->rank[r];
    GROW(k->ordered, build->rank[r].orders, k->nordered + 1);
    k->ordered[k->nordered++] = (struct ordered){k->nins - 1, after};
}

void offload(struct build *build, int32_t e, const struct job *to, double t) {
    const struct job *from = &build->costs->job[build->g->pred[e]];
    int kind = build->g->kind[e], r = to->rank;
    if (!leaves(build, from, kind))
        return;
    int32_t buf = build->edge_buf[e];
    int32_t copy = open_buf(build, r, host_kind(kind), from->s, from->b, -1, 1);
    issue(build, r, OP_OFFLOAD_S, from->s, from->b, -1, -1);
    add_operand(build, r, ROLE_src, buf);
    add_operand(build, r, ROLE_t, copy);
    end_use(build, t, r, buf);
    build->edge_buf[e] = copy;
}

void issue_reloads(struct build *build, int32_t moment, double t) {
    for (; build->reloads.issued < build->reloads.n && build->reloads.reload[build->reloads.issued].moment <= moment;
         build->reloads.issued++) {
        const struct reload *x = &build->reloads.reload[build->reloads.issued];
        const struct job *from = &build->costs->job[build->g->pred[x->edge]];
        int32_t copy = build->edge_buf[x->edge];
        int32_t buf = open_buf(build, x->rank, back(x->kind), from->s, from->b, -1, 1);
        issue(build, x->rank, OP_RELOAD_S, from->s, from->b, -1, -1);
        add_operand(build, x->rank, ROLE_src, copy);
        add_operand(build, x->rank, ROLE_t, buf);
        end_use(build, t, x->rank, copy);
        if (x->after >= 0)
            keep_order(build, x->rank, build->job_ins[x->after]);
        build->edge_buf[x->edge] = buf;
    }
}

/* ---- optimizer state ---- */

bool state_leaves(const struct spec *sp, int set) { return sp->limits.offload_state && sp->limits.offload_state[set]; }

int32_t fetch_state(struct build *build, const struct owner *owner) {
    const struct sched *sc = build->sc;
    struct caps *caps = &build->rank[owner->rank];
    int r = owner->rank;
    int32_t buf = open_buf(build, r, K_opt, owner->set, -1, -1, 1);
    issue(build, r, OP_RELOAD_O, owner->set, -1, -1, -1);
    add_operand(build, r, ROLE_src, owner->opt);
    add_operand(build, r, ROLE_t, buf);
    if (caps->updates >= 2)
        keep_order(build, r, caps->update[caps->updates % 2]);
    else if (sc->norder[r] > 0) {
        double end = sc->end[sc->order[r][sc->norder[r] - 1]];
        double took = host_time(build->sp, r, build->costs->stage[owner->set].bytes[K_opt]);
        int n = ended_by(sc, r, caps->updates == 0 ? end - took : end);
        if (n > 0)
            keep_order(build, r, build->job_ins[sc->order[r][n - 1]]);
    }
    return buf;
}

void return_state(struct build *build, const struct owner *owner, int32_t buf) {
    struct caps *caps = &build->rank[owner->rank];
    int r = owner->rank;
    caps->update[caps->updates++ % 2] = build->p->rank[r].nins - 1;
    issue(build, r, OP_OFFLOAD_O, owner->set, -1, -1, -1);
    add_operand(build, r, ROLE_src, buf);
    add_operand(build, r, ROLE_t, owner->opt);
    use_up(build, r, buf);
    push_event(build, r, ~buf);
}
