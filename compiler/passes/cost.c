/* The costs and sizes of each stage. They are FLOP and bytes of the model's layers, the numbers in a cost model, or
 * units if there is no model.
 *
 * The number of columns is first propagated through the layers; an error names a layer that does not fit. Then the
 * model's units (a layer, or a whole residual block) are cut into stages, evenly by FLOP or as the model specifies.
 * layout.c places each stage's tensors. Costs count only what the runtime really computes: the first stage is cheaper,
 * since it needs no gradient of its input. */
#include "cost.h"
#include "layers.h"
#include <assert.h>
#include <float.h>
#include <math.h>

/* ---- shapes ---- */

/* Counts a layer's parameters. A tied embedding owns only the positions, if any. */
int64_t count_parameters(const struct model *m, const struct rt_layer *l) {
    struct rt_parameters parameters = parameters_of(&m->rt, l, m->tied);
    int64_t n = 0;
    for (int i = 0; i < parameters.n; i++)
        n += parameters.at[i].count;
    return n;
}

/* Returns the columns of the input of stage s, for a model given as stages; out: columns of each stage's output. */
static int columns_in(const struct model *m, int s, const int *out) {
    int begin = m->from_at[s], end = m->from_at[s + 1];
    for (int i = begin + 1; i < end; i++)
        if (out[m->from[i]] != out[m->from[begin]])
            die("stage %d reads the sum of stage %d, which has %d columns, and stage %d, which has %d; both must end "
                "with the same width",
                s, m->from[begin], out[m->from[begin]], m->from[i], out[m->from[i]]);
    return begin < end ? out[m->from[begin]] : m->rt.input == INPUT_TOKENS ? 1 : m->rt.features;
}

/* Dies if a layer takes a microbatch's rows only, and the one before it makes others. */
static void check_row_count(const struct model *m, int i, int rows) {
    bool changed = i > 0 && row_of(m->layer[i - 1].kind)->any_rows && rows != m->rt.rows;
    if (changed && !row_of(m->layer[i].kind)->any_rows)
        die("%s: it takes a microbatch's %d rows, but %s makes %d; only units work on other rows: let the latter have "
            "out_rows = %d",
            where_layer(m, i), m->rt.rows, where_layer(m, i - 1), rows, m->rt.rows);
}

/* Returns all layers with kind, shapes and parameter counts. The script reader has checked that each kind is allowed in
 * its place. */
static struct rt_layer *shape_layers(const struct model *m) {
    struct rt_layer *all = NEW(struct rt_layer, m->nlayers);
    int *forked = NEW(int, m->nlayers), depth = 0, *stage_out = NEW(int, m->nitems);
    int in = m->rt.input == INPUT_TOKENS ? 1 : m->rt.features, rows = m->rt.rows;
    assert(m->nlayers > 0 && row_of(m->layer[0].kind)->first == (m->rt.input == INPUT_TOKENS));
    for (int i = 0; i < m->nlayers; i++) {
        const struct model_layer *layer = &m->layer[i];
        const struct layer_row *row = row_of(layer->kind);
        if (m->from && (i == 0 || layer->item > m->layer[i - 1].item))
            in = columns_in(m, layer->item, stage_out);
        check_row_count(m, i, rows);
        int out = row->out ? row->out(m, i, in, depth > 0 ? forked[depth - 1] : 0) : in;
        if (brackets(row) > 0)
            forked[depth++] = in;
        assert(brackets(row) >= 0 || depth > 0);
        depth -= brackets(row) < 0;
        all[i] = (struct rt_layer){.kind = layer->kind, .rows = rows, .in = in, .out = out, .index = i};
        all[i].unit = layer->unit;
        all[i].set = layer->frozen ? SET_FROZEN : SET_OWN;
        all[i].config = layer->config;
        all[i].context = row->sequences ? m->rt.context : 0;
        if (row->size)
            row->size(m, i, &all[i]);
        all[i].nparam = count_parameters(m, &all[i]);
        assert(counts_flop(&all[i]));
        in = stage_out[layer->item] = out;
        rows = rows_out(&all[i]);
    }
    assert(depth == 0 && row_of(m->layer[m->nlayers - 1].kind)->loss);
    return all;
}

/* ---- stages ---- */

static double update_flop(const struct model *m) {
#define X(NAME, name, moments, flop, ...) flop,
    static const double each[NOPTIMIZERS] = {0, OPTIMIZERS(X)};
#undef X
    /* post-validation also copies the state */
    return each[m->rt.optimizer] + (m->rt.post_validation ? count_moments(m->rt.optimizer) + 2 : 0);
}

static double matrix_flop(const struct rt_model *m, const struct rt_parameter *p) {
    double n = (double)p->count, side = (double)(p->dim[0] < p->dim[1] ? p->dim[0] : p->dim[1]);
    switch (m->optimizer) {
#define X(NAME, name, work, flop)                                                                                      \
    case OPT_##NAME: return flop;
        MATRIX_OPTIMIZERS(X)
#undef X
    default: return 0;
    }
}

/* Returns the FLOP of matrices that are stepped whole, and sets the stage's workspace to the largest that one needs. */
static double matrices_flop(struct stage *st, const struct rt_model *m) {
    double flop = 0;
    for (const struct rt_layer *l = st->rt.layer; l < st->rt.layer + st->rt.nlayers; l++) {
        const struct rt_parameters all = parameters_of(m, l, false);
        for (int i = 0; i < all.n && l->set == SET_OWN; i++) {
            const struct rt_parameter *p = &all.at[i];
            int64_t bytes = (int64_t)sizeof(float) * matrix_work(m, l, p);
            flop += bytes > 0 ? matrix_flop(m, p) : 0;
            st->update_work = bytes > st->update_work ? bytes : st->update_work;
        }
    }
    return flop;
}

void cost_of(struct stage *st, const struct spec *sp) {
    double f = 0, i = 0, w = 0, speed = sp->machine.flops > 0 ? sp->machine.flops : 1, nparam = 0;
    for (const struct rt_layer *l = st->rt.layer; l < st->rt.layer + st->rt.nlayers; l++) {
        struct flop each = flop_of(l);
        f += each.f;
        i += has_input_gradient(l) ? each.i : 0;
        w += each.w;
        nparam += (double)own_parameters(l);
    }
    st->flop[OP_F] = st->flop[OP_R] = fmax(f, 1); /* no job has zero cost */
    st->flop[OP_I] = fmax(i, 1);
    st->flop[OP_W] = fmax(w, 1);
    st->flop[OP_B] = st->flop[OP_I] + w;
    for (int d = 0; d < NDIRS; d++)
        st->cost[d] = st->flop[d] / speed;
    st->update = (update_flop(sp->model) * nparam + matrices_flop(st, &sp->model->rt)) / speed;
}

static void count_bytes(struct stage *st) {
    const struct rt_stage *rt = &st->rt;
    int64_t recomputing = rt->stash + aligned(rt->act); /* F makes an unused stash, R an unused y */
    st->bytes[K_work] = rt->work + (rt->ext > recomputing ? rt->ext : recomputing);
    st->bytes[K_act] = rt->act;
    st->bytes[K_grad] = rt->grad;
    st->bytes[K_stash] = rt->stash;
    st->bytes[K_wstash] = rt->stash + rt->ext;
    st->bytes[K_input] = rt->input > 0 ? rt->input : 4; /* the first stage keeps nothing, but a buffer must have a
                                                         * size */
    st->bytes[K_token] = 4;
    st->bytes[K_hstash] = st->bytes[K_rstash] = st->bytes[K_stash];
    st->bytes[K_hinput] = st->bytes[K_rinput] = st->bytes[K_input];
}

static void fill_stage(struct stage *st, const struct spec *sp, int s, struct rt_layer *layer, int n) {
    int reads = 0, readers = 0;
    while (source_of(sp, s, reads) >= 0)
        reads++;
    while (reader_of(sp, s, readers) >= 0)
        readers++;
    int64_t element = precision_bytes(sp->model->rt.precision);
    st->rt.layer = layer;
    st->rt.nlayers = n;
    layout_stage(&st->rt, layer, reads, readers, sp->model->rt.precision, state_of(sp->model));
    st->rt.grad = st->rt.input = reads ? element * layer[0].rows * layer[0].in : 0;
    st->rt.act = readers ? element * rows_out(&layer[n - 1]) * layer[n - 1].out : 0;
    cost_of(st, sp);
    count_bytes(st);
}

static int first_member(const struct spec *sp, int s) { return sp->names.member ? sp->names.first[s] : s; }

/* Returns the first layer after stage s, numbered as in scripts, and after the stages that follow it in a chain while
 * their teams have its size. */
static int reach_of(const struct spec *sp, int s, const int *open) {
    const struct model *m = sp->model;
    int size = team_size(sp, first_member(sp, s)), stages = script_stages(&sp->names, sp->stages), to = 0;
    for (s++; s < stages && !is_graph(sp) && team_size(sp, first_member(sp, s)) == size; s++)
        continue;
    while (to < m->nlayers && m->layer[to].item < open[s])
        to++;
    return to;
}

static void fill_slices(const struct costs *costs, int s) {
    const struct spec *sp = costs->spec;
    for (int q = 0; costs->sliced && q < sp->names.slices; q++) {
        struct stage *slice = (struct stage *)stage_at(costs, s, q);
        fill_stage(slice, sp, s, layers_of_slice(costs, &costs->stage[s].rt, q), costs->stage[s].rt.nlayers);
        size_keys(costs, slice, q);
        find_stops(slice, sp);
    }
}

/* Fills the stages of all members of the team that computes stage s, numbered as in scripts, and their slices. reach:
 * number of layers from its first one on that are in stages with teams of its size. *divided: whether its input, and
 * then its output, is divided by columns. */
static void fill_members(const struct costs *costs, int s, struct rt_layer *layer, int n, int reach, bool *divided) {
    const struct spec *sp = costs->spec;
    struct stage *st = costs->stage;
    int first = first_member(sp, s), size = team_size(sp, first), count = n;
    bool before = *divided;
    for (int i = 0; i < size; i++) {
        *divided = before;
        struct rt_layer *own =
            size > 1 ? split_layers(sp->model, layer, n, sp->names.member[first + i], reach, divided, &count) : layer;
        fill_stage(&st[first + i], sp, first + i, own, count);
        find_stops(&st[first + i], sp);
        fill_slices(costs, first + i);
    }
}

/* Checks that teams are equally large, since a member's rows go to the next stage's member. */
static void check_rows(const struct spec *sp) {
    for (int s = 1; sp->names.member && sp->model->by_rows && s < script_stages(&sp->names, sp->stages); s++) {
        int a = team_size(sp, first_member(sp, 0)), b = team_size(sp, first_member(sp, s));
        if (a != b)
            die("%s: the model's layers are split by rows, so all stages need teams of one size, but stage 0 is "
                "computed by %d rank%s and stage %d by %d",
                sp->file, a, a > 1 ? "s" : "", s, b);
    }
}

static void stages_of_model(struct costs *costs) {
    const struct spec *sp = costs->spec;
    const struct model *m = sp->model;
    struct rt_layer *all = shape_layers(m);
    int stages = script_stages(&sp->names, sp->stages), *open = cut_stages(sp, all, stages), from = 0;
    bool divided = false;
    check_rows(sp);
    if (costs->sliced)
        cut_sequence(costs, all);
    for (int s = 0; s < stages; s++) {
        int to = from;
        while (to < m->nlayers && m->layer[to].item < open[s + 1])
            to++;
        fill_members(costs, s, all + from, to - from, reach_of(sp, s, open) - from, &divided);
        for (; from < to; from++)
            if (row_of(all[from].kind)->shares)
                costs->unembedding = first_member(sp, s);
    }
    if (costs->sliced)
        find_attention(costs);
    fill_sets(costs);
}

/* Returns a size that is not 0, as a buffer needs. */
static int64_t sized(int64_t bytes) { return bytes > 0 ? bytes : 4; }

/* Fills a stage of a cost model with the sums over its layers. The layer before them gives the size of its
 * input. */
static void fill_costs(struct stage *st, const struct spec *sp, int s, const struct layer_cost *cost, int n) {
    for (const struct layer_cost *c = cost; c < cost + n; c++) {
        st->cost[OP_F] += c->forward;
        st->cost[OP_B] += c->backward;
        st->cost[OP_W] += c->weight_gradient;
        st->rt.stash += c->stash;
        st->rt.weight += c->weights;
    }
    st->cost[OP_R] = st->cost[OP_F];
    st->cost[OP_I] = st->cost[OP_B] - st->cost[OP_W];
    st->rt.weight = (st->rt.weight + 3) / 4 * 4; /* a multiple of an fp32 value */
    st->rt.stash = sized(st->rt.stash);
    st->rt.grad = st->rt.input = s > 0 ? sized(cost[-1].activation) : 0;
    st->rt.act = s + 1 < sp->stages ? sized(cost[n - 1].activation) : 0;
    count_bytes(st);
    st->bytes[K_work] = 0; /* unknown, since such a model does not run */
}

static void stages_of_costs(const struct spec *sp, struct stage *st) {
    const struct model *m = sp->model;
    if (sp->names.member)
        die("%s: a cost model has no layers that a team could divide; give one with layers", sp->file);
    int *open = cut_stages(sp, NULL, sp->stages);
    for (int s = 0; s < sp->stages; s++)
        fill_costs(&st[s], sp, s, m->cost + open[s], open[s + 1] - open[s]);
}

static void stage_of_units(struct stage *st) {
    static const double unit[NDIRS] = {[OP_F] = 1, [OP_R] = 1, [OP_I] = 1, [OP_B] = 2, [OP_W] = 1};
    for (int d = 0; d < NDIRS; d++)
        st->cost[d] = st->flop[d] = unit[d];
    for (int k = 0; k < NKINDS; k++)
        st->bytes[k] = k == K_opt || k == K_work ? 0 : 1;
}

/* Returns whether a stage of the model has no weight gradient. */
static bool is_untrained(const struct spec *sp, const struct stage *st) {
    bool none = !is_costs(sp) || (st->rt.weight == 0 && st->cost[OP_W] == 0);
    for (int i = 0; i < st->rt.nlayers && none; i++)
        none = !has_weight_gradient(&st->rt.layer[i]);
    return none;
}

/* Replaces the computed costs of an entry by those that its stage took. seconds: whether the computed ones are in
 * seconds and stay where nothing was measured. A stage without a weight gradient has its backward's time measured as
 * its input gradient's. */
static void take_entry(const struct spec *sp, struct stage *st, const double *took, bool seconds) {
    bool untrained = sp->model && is_untrained(sp, st); /* by the computed costs */
    for (int d = 0; d < NDIRS; d++)
        st->cost[d] = !isnan(took[d]) ? took[d] : seconds ? st->cost[d] : NAN;
    if (untrained && isnan(took[OP_B]) && !isnan(took[OP_I]))
        st->cost[OP_B] = took[OP_I];
}

/* Replaces computed costs by measured ones. FLOP cannot be converted to seconds without a model and the cluster's
 * flops; then every cost must be measured. */
static void take_costs(const struct costs *costs) {
    const struct spec *sp = costs->spec;
    struct stage *st = costs->stage;
    bool seconds = is_costs(sp) || (sp->model && sp->machine.flops > 0);
    int sets = sp->stages + sp->names.sets;
    for (int s = 0; s < sets; s++) {
        const double *took = &sp->machine.took[s * NOPS];
        take_entry(sp, &st[s], took, seconds);
        st[s].update = !isnan(took[OP_U]) ? took[OP_U] : seconds || !sp->model ? st[s].update : NAN;
        if (isnan(st[s].update))
            die("the cluster's cost(%d, \"U\") is nil, and it has no flops to go by", s);
    }
    for (int i = sets; i < stage_entries(costs); i++) /* a stage's slices were measured together */
        take_entry(sp, &st[i], &sp->machine.took[(i - sets) / sp->names.slices * NOPS], seconds);
    for (const struct job *j = sp->job; j < sp->job + sp->njobs; j++)
        if (isnan(j->cost) && isnan(stage_at(costs, j->s, j->b)->cost[j->d]))
            die("the cluster's cost(%d, \"%s\") is nil, and %s", j->s, op_name[j->d],
                sp->machine.flops > 0 ? "without a model its flops do not help; give --model"
                                      : "it has no flops to derive it from; `diff --fit` gives flops if one side is "
                                        "predicted from a model");
    for (int i = 0; i < stage_entries(costs); i++) /* the rest is of operations that no job is */
        for (int d = 0; d < NDIRS; d++)
            st[i].cost[d] = isnan(st[i].cost[d]) ? 0 : st[i].cost[d];
}

/* Sets the sizes of a set of weights. A sharded set is padded to equal, aligned pieces, each updated on one rank.
 * Without a model, it has one byte per piece. */
static void size_of_set(const struct spec *sp, const struct homes *homes, struct stage *st) {
    int64_t owned = (int64_t)homes->size * shares_of(homes), pieces = st->pieces > owned ? st->pieces : owned;
    int64_t unit = !sp->model ? pieces : pieces > 1 ? 256 * pieces : 1;
    int64_t element = sp->model ? precision_bytes(sp->model->rt.precision) : 1;
    int64_t n = ((sp->model ? st->rt.weight : 1) + unit - 1) / unit * unit / element;
    st->bytes[K_weight] = element * n;
    st->bytes[K_wgrad] = sp->model ? 4 * n : n; /* gradients are always fp32 */
    st->bytes[K_opt] = sp->model ? 4 * state_floats(&sp->model->rt, n / owned) : 0;
    st->bytes[K_hopt] = st->bytes[K_opt];
    st->bytes[K_wshard] = st->bytes[K_weight] / homes->size;
    st->bytes[K_gshard] = st->bytes[K_wgrad] / homes->size;
    st->bytes[K_gown] = st->bytes[K_wgrad] / owned;
}

void cost_homes(const struct costs *costs) {
    const struct spec *sp = costs->spec;
    struct stage *st = costs->stage;
    static const uint8_t kinds[] = {K_weight, K_wgrad, K_opt, K_hopt, K_wshard, K_gshard, K_gown};
    for (int s = 0; s < sp->stages + sp->names.sets; s++)
        if (!is_bare(costs, s))
            size_of_set(sp, &costs->homes[s], &st[s]);
        else
            for (size_t i = 0; i < sizeof kinds; i++)
                st[s].bytes[kinds[i]] = 0;
}

/* Dies if homes would update pieces of matrices that the optimizer steps whole. */
static void refuse_pieces(const struct costs *costs) {
#define X(NAME, name, ...) [OPT_##NAME] = #name,
    static const char *const names[NOPTIMIZERS] = {MATRIX_OPTIMIZERS(X)};
#undef X
    const struct spec *sp = costs->spec;
    const char *name = names[sp->model->rt.optimizer];
    for (int s = 0; s < sp->stages && name; s++) {
        struct member member = member_at(&sp->names, s);
        if (member.size > 1)
            die("%s: %s steps whole matrices, but a team of %d ranks divides those of stage %d; train it without "
                "teams, or with adamw",
                sp->file, name, member.size, member.stage);
        if (!is_bare(costs, s) && (costs->homes[s].size > 1 || costs->homes[s].zero > 0))
            die("%s: %s steps whole matrices, but the homes of stage %d each update a piece of its weights; give it "
                "single ranks as homes and leave 'zero' out, or train it with adamw",
                sp->file, name, s);
    }
}

/* Sets costs.clip. Dies if clipping is combined with updates within the step: the norm of all gradients is known only
 * when the last gradient is. */
static void take_clip(struct costs *costs) {
    const struct spec *sp = costs->spec;
    costs->clip = sp->model && sp->model->rt.clip > 0;
    costs->post_validation = costs->clip && sp->model->rt.post_validation;
    if (costs->clip && sp->updates.every)
        die("%s: clip needs the norm of all gradients before the first update, but 'update' has stages updated within "
            "the step; leave clip out of the model's optimizer, or 'update' out of the schedule",
            sp->file);
}

/* Chooses the pieces in which gradients travel, which depend on the sizes, and then pads the sizes to these pieces. */
static void cost_gradients(const struct costs *costs) {
    cost_homes(costs);
    choose_buckets(costs);
    cost_homes(costs);
    cut_backwards(costs->spec, costs->stage);
}

/* Computes the jobs' times, alone and with their teams and pairs. */
static void cost_jobs(struct costs *costs) {
    const struct spec *sp = costs->spec;
    costs->computes = NEW(double, costs->njobs);
    for (int32_t j = 0; j < costs->njobs; j++) {
        const struct job *job = &costs->job[j];
        double cost = job->cost;
        if (isnan(cost))
            cost = job->d == OP_U ? cost_update(costs, job->s) : stage_at(costs, job->s, job->b)->cost[job->d];
        costs->computes[j] = sp->machine.speed ? cost / sp->machine.speed[job->rank] : cost;
    }
    wait_for_team(costs);
    cost_pairs(costs);
    for (int32_t j = 0; sp->updates.every && j < costs->njobs; j++)
        if (costs->computes[j] > 0)
            costs->grain = fmax(costs->grain, ldexp(1, ilogb(costs->computes[j]) - 24));
}

/* Computes the costs and sizes of the stages of a model, and finds those without weights. */
static void cost_model(struct costs *costs) {
    const struct spec *sp = costs->spec;
    if (sp->names.slices && is_costs(sp))
        die("%s: a cost model says nothing about slices: leave 'slices' out, or give a model with layers", sp->file);
    costs->sliced = sp->names.slices > 0;
    costs->stage = NEW(struct stage, stage_entries(costs));
    if (is_costs(sp))
        stages_of_costs(sp, costs->stage);
    else
        stages_of_model(costs);
    bare_sets(costs);
}

bool *untrained_stages(const struct spec *sp) {
    struct costs costs = {.spec = sp, .job = sp->job, .njobs = sp->njobs};
    bool *untrained = NEW(bool, sp->stages);
    cost_model(&costs);
    for (int s = 0; s < sp->stages; s++)
        untrained[s] = is_untrained(sp, &costs.stage[s]);
    return untrained;
}

struct costs *costs_make(const struct spec *sp) {
    struct costs *costs = NEW(struct costs, 1);
    *costs = (struct costs){.spec = sp, .job = sp->job, .njobs = sp->njobs};
    find_bare(costs);
    if (sp->model)
        cost_model(costs);
    else {
        costs->stage = NEW(struct stage, stage_entries(costs));
        for (int s = 0; s < sp->stages; s++)
            stage_of_units(&costs->stage[s]);
    }
    find_whole(costs);
    if (sp->updates.every)
        refuse_unversioned(costs);
    take_clip(costs);
    if (sp->machine.took)
        take_costs(costs);
    costs->homes = find_homes(costs);
    if (sp->updates.every)
        place_updates(costs);
    if (sp->model)
        refuse_pieces(costs);
    cost_gradients(costs);
    list_exchanges(costs);
    cost_jobs(costs);
    return costs;
}

double cost_update(const struct costs *costs, int set) {
    const struct homes *homes = &costs->homes[set];
    const double *took = costs->spec->machine.took, all = costs->stage[set].update;
    bool measured = took && !isnan(took[set * NOPS + OP_U]); /* such a piece took that long */
    return measured ? all : all / ((double)homes->size * shares_of(homes));
}

double cost_add(const struct spec *sp, int64_t bytes) {
    double flop = sp->model ? (double)bytes / 4 : 0; /* one addition per float; free where costs are units */
    return sp->machine.flops > 0 ? flop / sp->machine.flops : sp->machine.took || is_costs(sp) ? 0 : flop;
}
