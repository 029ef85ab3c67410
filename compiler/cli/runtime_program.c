/* Converts the compiler's program to the runtime's form. */
#include "runtime_program.h"
#include "../../runtime/rt.h"
#include "../../runtime/store/fingerprint.h"
#include <assert.h>
#include <string.h>

enum { ALIGNED = 16 }; /* bytes: kernels load and store as many at once */

/* Where the runtime finds an operand: a job finds its parameters' gradients in the whole, of which it names pieces. */
static int64_t place(const struct rank *k, const struct instr *x, const struct arg *a) {
    assert(!a->last || arg_off(k, a) % ALIGNED == 0);
    return is_job(x->op) ? k->buf[a->buf].off : arg_off(k, a);
}

/* more: further operands; at: the index of this instruction's first. */
static void fill_instr(const struct stage *st, const struct rank *k, const struct instr *x, struct rt_instr *y,
                       int64_t *more, int32_t at) {
    *y = (struct rt_instr){.op = x->op, .first = x->first, .vfirst = x->vfirst, .ufirst = x->ufirst, .lane = x->lane};
    y->stage = x->stage;
    y->batch = x->batch;
    y->peer = is_group(x->op) ? -1 : x->peer;
    y->root = is_group(x->op) ? x->peer : -1;
    y->msg = x->msg;
    y->wait = (int32_t)x->wait;
    y->nwait = x->nwait;
    y->more = at;
    for (int role = 0; role < NROLES; role++)
        y->at[role] = -1;
    for (uint32_t a = x->arg; a < x->arg + x->narg; a++) {
        int role = k->arg[a].role;
        if ((role == ROLE_x || role == ROLE_dy) && y->at[role] >= 0)
            more[y->more + y->nmore++] = arg_off(k, &k->arg[a]);
        else if (role != ROLE_kv)
            y->at[role] = place(k, x, &k->arg[a]);
    }
    for (uint32_t a = x->arg; a < x->arg + x->narg; a++)
        if (k->arg[a].role == ROLE_kv)
            more[y->more + y->nmore + y->nkv++] = arg_off(k, &k->arg[a]);
    y->first = y->first && (y->at[ROLE_dw] >= 0 || x->op == OP_NORM); /* a part's layers may have no parameters */
    if (is_job(x->op)) {
        struct layer_span span = layers_of(&st[x->stage], x);
        y->from = span.from;
        y->to = span.to;
        y->sweep = span.sweep;
    }
    y->bytes = moved_bytes(k, x);
}

/* Members of all groups, each group ended by -1, and one more -1. */
static int32_t *groups_of(const struct program *p) {
    int n = 1;
    for (int g = 0; g < p->ngroups; g++)
        n += p->group[g].n + 1;
    int32_t *list = NEW(int32_t, n), *at = list;
    for (int g = 0; g < p->ngroups; g++) {
        for (int m = 0; m < p->group[g].n; m++)
            *at++ = p->group[g].rank[m];
        *at++ = -1;
    }
    *at = -1;
    return list;
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

static void fill_homes(const struct spec *sp, const struct program *p, int r, struct rt_rank *out) {
    const struct held *held = held_on(p, r, precision_bytes(sp->model->rt.precision), &out->nhomes);
    struct rt_home *home = NEW(struct rt_home, out->nhomes);
    for (int h = 0; h < out->nhomes; h++)
        home[h] = (struct rt_home){held[h].set,   held[h].memory, held[h].weight, held[h].opt,
                                   held[h].first, held[h].count,  held[h].own,    held[h].owned};
    out->home = home;
}

static void fill_rank(const struct spec *sp, const struct stage *st, const struct program *p, int r,
                      struct rt_rank *out) {
    const struct rank *k = &p->rank[r];
    struct rt_instr *ins = NEW(struct rt_instr, k->nins);
    struct lane_lists lists = lane_lists(k);
    int64_t *more = NEW(int64_t, k->nargs + 1);
    for (int32_t i = 0; i < k->nins; i++)
        fill_instr(st, k, &k->ins[i], &ins[i], more, i ? ins[i - 1].more + ins[i - 1].nmore + ins[i - 1].nkv : 0);
    for (size_t w = 0; w < k->nwaits; w++)
        ins[k->wait[w]].recorded = true;
    *out = (struct rt_rank){.number = r, .ins = ins, .nins = k->nins, .nlanes = k->nlanes, .lane_ins = lists.ins};
    out->lane_at = lists.at;
    out->lane = lane_names(p, k);
    out->wait = k->wait;
    out->more = more;
    out->arena = k->arena;
    out->host = k->host;
    out->begin = k->begin;
    out->end = k->end;
    out->work = -1;
    for (int i = 0; i < k->nbufs; i++)
        if (k->buf[i].kind == K_work && k->buf[i].inst < 0)
            out->work = k->buf[i].off;
    fill_homes(sp, p, r, out);
}

static int64_t place_of(const struct rank *k, const struct instr *x, int role) {
    for (uint32_t a = x->arg; a < x->arg + x->narg; a++)
        if (k->arg[a].role == role)
            return arg_off(k, &k->arg[a]);
    return -1;
}

/* Where the two sides of each message, or the members of each collective, store the tensor. */
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
                at->to = NEW(int64_t, at->n);
            }
            int me = is_recv(x->op);
            while (g && g->rank[me] != r)
                me++;
            const uint8_t *roles;
            int nroles = op_roles(x->op, &roles);
            ((int32_t *)at->rank)[me] = r;
            ((int64_t *)at->off)[me] = place_of(k, x, roles[0]);
            ((int64_t *)at->to)[me] = nroles > 1 ? place_of(k, x, roles[1]) : -1;
            at->bytes = moved_bytes(k, x);
        }
    return meeting;
}

/* Stage s of the program, of whole microbatches or of a slice. */
static struct rt_stage runtime_stage(const struct program *p, const struct rt_stage *stage, int s) {
    struct rt_stage out = *stage;
    struct member member = member_at(&p->names, s);
    out.number = member.stage;
    out.place = member.place;
    out.members = member.size;
    return out;
}

static struct rt_stage *slices_of_stages(const struct spec *sp, const struct stage *st, const struct program *p) {
    int slices = sp->names.slices, n = sp->stages * slices;
    struct rt_stage *slice = NEW(struct rt_stage, n);
    for (int i = 0; i < n; i++)
        slice[i] = runtime_stage(p, &stage_at(sp, st, i / slices, i % slices)->rt, i / slices);
    return slice;
}

struct rt_program *runtime_program(const struct spec *sp, const struct stage *st, const struct program *p) {
    struct rt_program *out = NEW(struct rt_program, 1);
    struct rt_stage *stage = NEW(struct rt_stage, sets_in(p));
    struct rt_rank *rank = NEW(struct rt_rank, p->workers);
    struct rt_model *model = NEW(struct rt_model, 1);
    *model = trained_model(sp, p);
    for (int s = 0; s < sets_in(p); s++) {
        stage[s] = runtime_stage(p, &st[s].rt, s);
        stage[s].update = p->update ? p->update[s] : 0;
    }
    for (int r = 0; r < p->workers; r++)
        fill_rank(sp, st, p, r, &rank[r]);
    *out = (struct rt_program){.name = p->name, .workers = p->workers, .stages = p->stages};
    out->batches = (int32_t)step_batches(p);
    out->slice = sp->sliced ? slices_of_stages(sp, st, p) : NULL;
    out->period = p->period;
    out->repeats = p->repeats;
    out->nmsgs = p->nmsgs;
    out->sets = sets_in(p);
    for (int s = 0; s < p->stages; s++)
        out->updated = has_weights(p, s) ? s : out->updated;
    out->model = model;
    out->stage = stage;
    out->groups = groups_of(p);
    out->rank = rank;
    out->msg = meetings(p);
    return out;
}

/* What the homes of set s have learned, shard by shard. Dies if two differ. */
static const float *learned(const struct rt_program *p, char *const *arena, int s) {
    int64_t n = weight_count(p->model, &p->stage[s]);
    float *all = NEW(float, n);
    bool *known = NEW(bool, n + 1); /* per element that begins a home's */
    for (int r = 0; r < p->workers; r++)
        for (int h = 0; h < p->rank[r].nhomes; h++) {
            if (p->rank[r].home[h].stage != s)
                continue;
            struct rt_learned learned = learned_at(p->model, &p->stage[s], &p->rank[r].home[h]);
            if (learned.count == 0)
                continue;
            const char *at = arena[learned.weight_in * p->workers + r] + learned.weight;
            size_t bytes = (size_t)learned.count * sizeof(float);
            if (known[learned.first] && memcmp(all + learned.first, at, bytes) != 0)
                die("the homes of stage %d ended with different weights; this is a bug, please report it",
                    p->stage[s].number);
            memcpy(all + learned.first, at, bytes);
            known[learned.first] = true;
        }
    return all;
}

uint64_t fingerprint(const struct rt_program *p, char *const *arena) {
    uint64_t hash = 0, copies = 0;
    for (int s = 0; s < p->sets; s++) {
        struct scratch scratch = scratch_begin();
        const struct rt_stage *stage = &p->stage[s];
        int64_t n = weight_count(p->model, stage);
        const float *w = learned(p, arena, s);
        uint64_t of_copies = fingerprint_stage(p->model, stage, 0, n, w, true);
        if (stage->place > 0 && of_copies != copies)
            die("the members of the team of stage %d ended with different weights; this is a bug, please report it",
                stage->number);
        copies = of_copies;
        hash += fingerprint_stage(p->model, stage, 0, n, w, false);
        scratch_end(scratch);
    }
    return hash;
}
