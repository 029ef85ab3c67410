/* Converts the compiler's program to the runtime's form. */
#include "runtime_program.h"
#include "../../runtime/rt.h"
#include "../../runtime/store/fingerprint.h"
#include <string.h>

/* more: further operands; at: the index of this instruction's first. */
static void fill_instr(const struct rank *k, const struct instr *x, struct rt_instr *y, int64_t *more, int32_t at) {
    *y = (struct rt_instr){.op = x->op, .first = x->first, .vfirst = x->vfirst, .lane = x->lane};
    y->stage = x->stage;
    y->batch = x->batch;
    y->peer = x->peer;
    y->msg = x->msg;
    y->wait = (int32_t)x->wait;
    y->nwait = x->nwait;
    y->more = at;
    for (int role = 0; role < NROLES; role++)
        y->at[role] = -1;
    for (uint32_t a = x->arg; a < x->arg + x->narg; a++) {
        const struct buf *b = &k->buf[k->arg[a].buf];
        int role = k->arg[a].role;
        y->bytes = b->bytes;
        if ((role == ROLE_x || role == ROLE_dy) && y->at[role] >= 0)
            more[y->more + y->nmore++] = b->off;
        else
            y->at[role] = b->off;
    }
}

/* Permanent buffers come first in a rank: weights, then gradients, then optimizer state. */
static void fill_homes(const struct rank *k, struct rt_rank *out) {
    int n = 0;
    while (n < k->nbufs && k->buf[n].kind == K_weight && k->buf[n].inst < 0)
        n++;
    struct rt_home *home = NEW(struct rt_home, n);
    for (int h = 0; h < n; h++)
        home[h] = (struct rt_home){k->buf[h].stage, k->buf[h].off, -1, -1};
    for (int i = n; i < k->nbufs && i < 3 * n; i++)
        for (int h = 0; h < n; h++) {
            if (k->buf[i].stage != home[h].stage || k->buf[i].inst >= 0)
                continue;
            if (k->buf[i].kind == K_wgrad)
                home[h].wgrad = k->buf[i].off;
            if (k->buf[i].kind == K_opt)
                home[h].opt = k->buf[i].off;
        }
    out->home = home;
    out->nhomes = n;
}

static void fill_rank(const struct rank *k, struct rt_rank *out) {
    struct rt_instr *ins = NEW(struct rt_instr, k->nins);
    struct lane_lists lists = lane_lists(k);
    int64_t *more = NEW(int64_t, k->nargs + 1);
    for (int32_t i = 0; i < k->nins; i++)
        fill_instr(k, &k->ins[i], &ins[i], more, i ? ins[i - 1].more + ins[i - 1].nmore : 0);
    for (size_t w = 0; w < k->nwaits; w++)
        ins[k->wait[w]].recorded = true;
    *out = (struct rt_rank){.ins = ins, .nins = k->nins, .nlanes = k->nlanes, .lane_ins = lists.ins};
    out->lane_at = lists.at;
    out->wait = k->wait;
    out->more = more;
    out->arena = k->arena;
    out->work = -1;
    for (int i = 0; i < k->nbufs; i++)
        if (k->buf[i].kind == K_work)
            out->work = k->buf[i].off;
    fill_homes(k, out);
}

/* Where the two sides of each message, or the members of each reduction, store the tensor. */
static struct rt_meeting *meetings(const struct program *p) {
    struct rt_meeting *meeting = NEW(struct rt_meeting, p->nmsgs);
    for (int r = 0; r < p->workers; r++)
        for (int i = 0; i < p->rank[r].nins; i++) {
            const struct rank *k = &p->rank[r];
            const struct instr *x = &k->ins[i];
            if (x->msg < 0)
                continue;
            struct rt_meeting *at = &meeting[x->msg];
            const struct group *g = is_group(x->op) ? &p->group[k->lane[x->lane].group] : NULL;
            if (!at->n) {
                at->n = g ? g->n : 2;
                at->rank = NEW(int32_t, at->n);
                at->off = NEW(int64_t, at->n);
            }
            int me = is_recv(x->op);
            while (g && g->rank[me] != r)
                me++;
            const struct buf *b = &k->buf[k->arg[x->arg].buf];
            ((int32_t *)at->rank)[me] = r;
            ((int64_t *)at->off)[me] = b->off;
            at->bytes = b->bytes;
        }
    return meeting;
}

struct rt_program *runtime_program(const struct spec *sp, const struct stage *st, const struct program *p) {
    struct rt_program *out = NEW(struct rt_program, 1);
    struct rt_stage *stage = NEW(struct rt_stage, p->stages + p->tied);
    struct rt_rank *rank = NEW(struct rt_rank, p->workers);
    for (int s = 0; s < p->stages + p->tied; s++)
        stage[s] = st[s].rt;
    for (int r = 0; r < p->workers; r++)
        fill_rank(&p->rank[r], &rank[r]);
    *out = (struct rt_program){.name = p->name, .workers = p->workers, .stages = p->stages, .batches = p->batches};
    out->nmsgs = p->nmsgs;
    out->sets = p->stages + p->tied;
    out->model = &sp->model->rt;
    out->stage = stage;
    out->rank = rank;
    out->msg = meetings(p);
    return out;
}

const char *const *lane_names(const struct program *p, const struct rank *k) {
    const char **name = NEW(const char *, k->nlanes);
    for (int l = 0; l < k->nlanes; l++) {
        struct text t = {0};
        put_lane(&t, p, &k->lane[l]);
        name[l] = t.s;
    }
    return name;
}

uint64_t fingerprint(const struct rt_program *p, char *const *arena) {
    uint64_t hash = FNV_START;
    for (int s = 0; s < p->sets; s++) {
        const char *home = NULL;
        for (int r = 0; r < p->workers; r++)
            for (int h = 0; h < p->rank[r].nhomes; h++) {
                if (p->rank[r].home[h].stage != s)
                    continue;
                struct rt_learned learned = learned_at(p->model, &p->stage[s], &p->rank[r].home[h]);
                const char *at = arena[r] + learned.weight;
                if (home && memcmp(home, at, (size_t)learned.count * sizeof(float)) != 0)
                    die("the homes of stage %d ended with different weights; this is a bug, please report it", s);
                home = at;
            }
        hash = fingerprint_stage(hash, p->model, &p->stage[s], (const float *)(const void *)home);
    }
    return hash;
}
