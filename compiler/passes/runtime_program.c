/* Lowers a program to the runtime's form, struct rt_program. Instructions refer to buffers by address, and to the
 * instructions they wait for by names. Names are numbers derived from an instruction's content, not from its position,
 * so that a moved instruction keeps its name. */
#include "runtime_program.h"
#include <assert.h>
#include <string.h>

enum { ALIGNED = 16 }; /* bytes that kernels load and store at once */

/* A rank under construction. key[i] identifies buffer i. */
struct build {
    const struct program *p;
    const struct stage *st;
    const struct rank *k;
    uint64_t *key;
    struct rt_buffer *buffer;
    int nbuffers;
    struct rt_instr *ins;
};

/* ---- buffers that instructions use, and the workspace, in the order of the plan ---- */

/* Returns the buffer, or piece of one, that an operand refers to. A job finds its parameters' gradients in the whole
 * buffer, even if it names pieces. */
static struct arg named_arg(const struct rank *k, const struct instr *x, const struct arg *a) {
    assert(!a->last || arg_off(k, a) % ALIGNED == 0);
    return is_job(x->op) ? (struct arg){.buf = a->buf}
                         : (struct arg){.buf = a->buf, .piece = a->piece, .last = a->last};
}

static uint64_t key_of(struct arg a) { return (uint64_t)a.buf << 24 | (uint64_t)a.last << 12 | (uint64_t)a.piece; }
static struct arg arg_of(uint64_t key) {
    return (struct arg){.buf = (int32_t)(key >> 24), .last = key >> 12 & 0xfff, .piece = key & 0xfff};
}
static int compare_keys(const void *x, const void *y) {
    uint64_t a = *(const uint64_t *)x, b = *(const uint64_t *)y;
    return (a > b) - (a < b);
}

static int workspace_buffer(const struct rank *k) {
    int b = 0;
    while (b < k->nbufs && (k->buf[b].kind != K_work || k->buf[b].inst >= 0))
        b++;
    return b;
}

static void find_buffers(struct build *f) {
    const struct rank *k = f->k;
    int n = 0, work = workspace_buffer(k);
    f->key = NEW(uint64_t, k->nargs + 1);
    for (int32_t i = 0; i < k->nins; i++)
        for (uint32_t a = k->ins[i].arg; a < k->ins[i].arg + k->ins[i].narg; a++)
            f->key[n++] = key_of(named_arg(k, &k->ins[i], &k->arg[a]));
    if (work < k->nbufs)
        f->key[n++] = key_of((struct arg){.buf = work});
    sort(f->key, (size_t)n, sizeof *f->key, compare_keys);
    for (int i = 0; i < n; i++)
        if (i == 0 || f->key[i] != f->key[i - 1])
            f->key[f->nbuffers++] = f->key[i];
    f->buffer = NEW(struct rt_buffer, f->nbuffers);
    for (int i = 0; i < f->nbuffers; i++) {
        struct arg a = arg_of(f->key[i]);
        f->buffer[i] = (struct rt_buffer){arg_off(k, &a), arg_bytes(k, &a)};
        assert(f->buffer[i].off >= 0 && f->buffer[i].bytes >= 0); /* mem has planned it */
    }
}

static const struct rt_buffer *buffer_of(const struct build *f, struct arg a) {
    int from = 0, to = f->nbuffers;
    while (to - from > 1) {
        int middle = from + (to - from) / 2;
        if (f->key[middle] <= key_of(a))
            from = middle;
        else
            to = middle;
    }
    assert(f->key[from] == key_of(a)); /* find_buffers has seen it */
    return &f->buffer[from];
}

/* ---- instructions ---- */

/* Returns x's operands in a role, without the first `but`, ended by NULL; NULL: there are none. */
static const struct rt_buffer *const *operands(const struct build *f, const struct instr *x, int role, int but) {
    int n = 0;
    for (uint32_t a = x->arg; a < x->arg + x->narg; a++)
        n += f->k->arg[a].role == role;
    if (n <= but)
        return NULL;
    const struct rt_buffer **list = NEW(const struct rt_buffer *, n - but + 1), **at = list;
    for (uint32_t a = x->arg; a < x->arg + x->narg; a++)
        if (f->k->arg[a].role == role && but-- <= 0)
            *at++ = buffer_of(f, named_arg(f->k, x, &f->k->arg[a]));
    return list;
}

static void fill_operands(const struct build *f, const struct instr *x, struct rt_instr *y) {
    for (uint32_t a = x->arg; a < x->arg + x->narg; a++) {
        int role = f->k->arg[a].role;
        if (role != ROLE_kv && !operand_in(y, role))
            set_operand(y, role, buffer_of(f, named_arg(f->k, x, &f->k->arg[a])));
    }
    y->more = operands(f, x, y->at.x ? ROLE_x : ROLE_dy, 1);
    y->kv = operands(f, x, ROLE_kv, 0);
}

static struct rt_instr runtime_instr(const struct build *f, const struct instr *x) {
    struct rt_instr y = {.op = x->op, .stage = x->stage, .batch = x->batch, .lane = x->lane};
    y.peer = has_peer(x->op) ? x->peer : 0;
    y.group = is_group(x->op) ? f->k->lane[x->lane].group : 0;
    y.root = has_root(x->op) ? x->peer : 0;
    y.msg = is_message(x->op) ? x->msg : 0;
    y.bytes = has_cost(x->op) ? 0 : moved_bytes(f->k, x);
    fill_operands(f, x, &y);
    y.first = x->first && (y.at.dw || x->op == OP_NORM); /* a part's layers may have no parameters */
    y.vfirst = x->vfirst;
    y.ufirst = x->ufirst;
    if (is_job(x->op) && x->last) {
        struct layer_span span = layers_of(&f->st[x->stage], x);
        assert(span.to > 0);
        y.from = span.from;
        y.to = span.to;
        y.sweep = span.sweep;
    }
    return y;
}

/* ---- names and waits ---- */

struct named {
    const struct instr *x;
    int32_t place;
};
static int compare_named(const void *a, const void *b) {
    const struct named *one = a, *other = b;
    const struct instr *x = one->x, *y = other->x;
    const int32_t by[][2] = {{x->op, y->op},     {x->stage, y->stage}, {x->batch, y->batch},      {x->part, y->part},
                             {x->inst, y->inst}, {x->peer, y->peer},   {one->place, other->place}};
    for (size_t i = 0; i < sizeof by / sizeof *by; i++)
        if (by[i][0] != by[i][1])
            return by[i][0] < by[i][1] ? -1 : 1;
    return 0;
}

static void name_awaited(const struct build *f) {
    struct named *named = NEW(struct named, f->k->nins);
    int32_t n = 0;
    for (size_t w = 0; w < f->k->nwaits; w++)
        f->ins[f->k->wait[w]].name = 1;
    for (int32_t i = 0; i < f->k->nins; i++)
        if (f->ins[i].name)
            named[n++] = (struct named){&f->k->ins[i], i};
    sort(named, (size_t)n, sizeof *named, compare_named);
    for (int32_t i = 0; i < n; i++)
        f->ins[named[i].place].name = i + 1;
}

static void fill_waits(const struct build *f, const struct instr *x, struct rt_instr *y) {
    int32_t *also = x->nwait > RT_AFTER ? NEW(int32_t, x->nwait - RT_AFTER + 1) : NULL;
    for (int32_t w = 0; w < x->nwait; w++)
        *(w < RT_AFTER ? &y->after[w] : &also[w - RT_AFTER]) = f->ins[f->k->wait[x->wait + (uint32_t)w]].name;
    y->also = also;
}

/* ---- ranks ---- */

static const char *const *lane_names(const struct program *p, const struct rank *k) {
    const char **name = NEW(const char *, k->nlanes);
    for (int l = 0; l < k->nlanes; l++) {
        struct text t = {0};
        put_lane(&t, p, &k->lane[l]);
        name[l] = t.s;
    }
    return name;
}

static struct rt_home *runtime_homes(const struct spec *sp, const struct program *p, int r, int *n) {
    const struct held *held = held_on(p, r, precision_bytes(sp->model->rt.precision), n);
    struct rt_home *home = NEW(struct rt_home, *n);
    for (int h = 0; h < *n; h++)
        home[h] = (struct rt_home){held[h].set,   held[h].memory, held[h].weight, held[h].opt,
                                   held[h].first, held[h].count,  held[h].own,    held[h].owned};
    return home;
}

static struct build build_rank(const struct stage *st, const struct program *p, int r) {
    const struct rank *k = &p->rank[r];
    struct build f = {.p = p, .st = st, .k = k, .ins = NEW(struct rt_instr, k->nins)};
    find_buffers(&f);
    for (int32_t i = 0; i < k->nins; i++)
        f.ins[i] = runtime_instr(&f, &k->ins[i]);
    name_awaited(&f);
    for (int32_t i = 0; i < k->nins; i++)
        fill_waits(&f, &k->ins[i], &f.ins[i]);
    return f;
}

/* Lists the frozen parameters of the stages that the rank computes, which lie at the end of its workspace. */
static const struct rt_frozen *frozen_of(const struct build *f, const struct rt_buffer *work, int stages, int *n) {
    bool *here = NULL; /* by stage; only if there is one with frozen parameters */
    int64_t off = work ? work->off + work->bytes : 0;
    *n = 0;
    for (int32_t i = 0; i < f->k->nins; i++)
        if (is_job(f->ins[i].op) && f->st[f->ins[i].stage].rt.frozen > 0) {
            here = here ? here : NEW(bool, stages);
            *n += !here[f->ins[i].stage];
            here[f->ins[i].stage] = true;
        }
    struct rt_frozen *frozen = here ? NEW(struct rt_frozen, *n) : NULL;
    *n = 0;
    for (int s = 0; here && s < stages; s++) {
        if (!here[s])
            continue;
        off -= f->st[s].rt.frozen;
        frozen[(*n)++] = (struct rt_frozen){s, off};
    }
    return frozen;
}

static struct rt_rank runtime_rank(const struct spec *sp, const struct build *f, int r) {
    const struct rank *k = f->k;
    struct rt_rank rank = {.number = r, .ins = f->ins, .nins = k->nins, .nlanes = k->nlanes};
    int work = workspace_buffer(k);
    rank.lane = lane_names(f->p, k);
    rank.home = runtime_homes(sp, f->p, r, &rank.nhomes);
    rank.arena = k->arena;
    rank.host = k->host;
    rank.work = work < k->nbufs ? buffer_of(f, (struct arg){.buf = work}) : NULL;
    rank.frozen = frozen_of(f, rank.work, f->p->stages, &rank.nfrozen);
    rank.begin = k->period.begin;
    rank.end = k->period.end;
    rank_index(&rank, NEW(int32_t, rank_index_size(&rank)));
    return rank;
}

/* ---- data that ranks share ---- */

/* Returns the members of all groups, each group ended by -1, and one more -1. */
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

/* Returns stage s of the program, of whole microbatches or of a slice. here: false for a stage of other ranks; a rank
 * knows only the names of these. */
static struct rt_stage runtime_stage(const struct program *p, const struct rt_stage *stage, int s, bool here) {
    struct rt_stage out = here ? *stage : (struct rt_stage){.layer = NULL};
    struct member member = member_at(&p->names, s);
    out.number = member.stage;
    out.place = member.place;
    out.members = member.size;
    return out;
}

/* Returns the program without ranks and meetings. here: per set, whether the view includes its layers. */
static struct rt_program runtime_shared(const struct costs *costs, const struct program *p, const bool *here) {
    int sets = sets_in(p), slices = costs->sliced ? costs->spec->names.slices : 0;
    struct rt_program out = {.name = p->name, .workers = p->workers, .stages = p->stages, .nmsgs = p->nmsgs};
    struct rt_stage *stage = NEW(struct rt_stage, sets), *slice = NEW(struct rt_stage, p->stages * slices);
    struct rt_model *model = NEW(struct rt_model, 1);
    *model = trained_model(costs->spec, p);
    for (int s = 0; s < sets; s++) {
        stage[s] = runtime_stage(p, &costs->stage[s].rt, s, here[s]);
        stage[s].update = p->update ? p->update[s] : 0;
        out.updated = s < p->stages && has_weights(p, s) ? s : out.updated;
    }
    for (int i = 0; i < p->stages * slices; i++)
        slice[i] = runtime_stage(p, &stage_at(costs, i / slices, i % slices)->rt, i / slices, here[i / slices]);
    out.batches = (int32_t)step_batches(p);
    out.period = p->period;
    out.repeats = p->repeats;
    out.sets = sets;
    out.model = model;
    out.stage = stage;
    out.slice = slices ? slice : NULL;
    out.groups = groups_of(p);
    return out;
}

/* Returns where the two sides of each message, or the members of each collective, store the tensor. */
static struct rt_meeting *meetings(const struct program *p, const struct rt_rank *rank) {
    struct rt_meeting *meeting = NEW(struct rt_meeting, p->nmsgs);
    for (int r = 0; r < p->workers; r++)
        for (const struct rt_instr *x = rank[r].ins; x < rank[r].ins + rank[r].nins; x++) {
            if (!is_message(x->op))
                continue;
            struct rt_meeting *at = &meeting[x->msg];
            const struct group *g = is_group(x->op) ? &p->group[x->group] : NULL;
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
            ((int64_t *)at->off)[me] = operand_at(x, roles[0]);
            ((int64_t *)at->to)[me] = nroles > 1 ? operand_at(x, roles[1]) : -1;
            at->bytes = x->bytes;
        }
    return meeting;
}

struct rt_program *runtime_program(const struct costs *costs, const struct program *p) {
    struct rt_program *out = NEW(struct rt_program, 1);
    struct rt_rank *rank = NEW(struct rt_rank, p->workers);
    bool *here = NEW(bool, sets_in(p));
    memset(here, true, (size_t)sets_in(p));
    *out = runtime_shared(costs, p, here);
    for (int r = 0; r < p->workers; r++) {
        struct build f = build_rank(costs->stage, p, r);
        rank[r] = runtime_rank(costs->spec, &f, r);
    }
    out->rank = rank;
    out->msg = meetings(p, rank);
    return out;
}

struct runtime_view *runtime_view(const struct costs *costs, const struct program *p, int r) {
    struct runtime_view *view = NEW(struct runtime_view, 1);
    struct build f = build_rank(costs->stage, p, r);
    struct arg *of = NEW(struct arg, f.nbuffers);
    bool *here = NEW(bool, sets_in(p));
    view->rank = runtime_rank(costs->spec, &f, r);
    for (int32_t i = 0; i < view->rank.nins; i++)
        here[f.ins[i].stage] |= op_lane[f.ins[i].op] == LANE_COMPUTE;
    for (int h = 0; h < view->rank.nhomes; h++)
        here[view->rank.home[h].stage] = true;
    for (int i = 0; i < f.nbuffers; i++)
        of[i] = arg_of(f.key[i]);
    view->program = runtime_shared(costs, p, here);
    view->program.rank = &view->rank;
    view->buffer = f.buffer;
    view->of = of;
    view->nbuffers = f.nbuffers;
    return view;
}
