/* Sets of weights beyond the stages' own, and sets without weights. A set that follows the stages is a table of tokens,
 * or the parameters that a team shares. It is represented as a stage without jobs, whose layers are those with
 * parameters in it. */
#include "cost.h"
#include "layers.h"

/* ---- sets that follow the stages ---- */

/* Fills a table as a stage without jobs. Its one layer is an embedding without positions: the embedding's tokens, or a
 * member's part of them. */
static void fill_table(struct stage *st, const struct spec *sp, const struct rt_layer *embedding) {
    struct rt_layer *l = NEW(struct rt_layer, 1);
    *l = (struct rt_layer){.kind = embedding->kind, .in = 1, .out = embedding->out, .index = embedding->index};
    l->share = embedding->share;
    l->nparam = share_of(l, SPLIT_ROWS, sp->model->rt.vocab) * l->out;
    st->rt.layer = l;
    st->rt.nlayers = 1;
    layout_weights(&st->rt, l, sp->model->rt.precision, state_of(sp->model));
    cost_of(st, sp);
}

/* Checks that the embedding's member and the unembedding's at the same place use one table with the same tokens. */
static void check_tables(const struct costs *costs) {
    const struct spec *sp = costs->spec;
    const struct stage *st = costs->stage;
    int u = costs->unembedding, sizes[] = {team_size(sp, 0), team_size(sp, u)};
    const struct rt_layer *embedding = st[0].rt.layer, *l = st[u].rt.layer;
    if (sizes[0] != sizes[1])
        die("%s: the model's embedding and its output layer share a token table, but stage 0 has a team of %d and "
            "stage %d one of %d; make both teams the same size, or give the model its own output layer",
            sp->file, sizes[0], sp->names.member[u].stage, sizes[1]);
    while (!row_of(l->kind)->shares)
        l++;
    if (sp->names.member && sp->model->by_rows && embedding->share.split != SPLIT_ROWS)
        die("%s and %s share a token table, and each member would only have the gradient of its own rows; give the "
            "embedding split = \"rows\" and the unembedding split = \"columns\", or give the model its own output "
            "layer (-D tied=false)",
            where_layer(sp->model, embedding->index), where_layer(sp->model, l->index));
    if ((embedding->share.split == SPLIT_ROWS) != (l->share.split == SPLIT_COLUMNS))
        die("%s and %s share a token table, but a team divides it only for %s; give the embedding split = \"rows\" and "
            "the unembedding split = \"columns\", and do not cut between the unembedding and the loss if their stages' "
            "teams differ in size",
            where_layer(sp->model, embedding->index), where_layer(sp->model, l->index),
            embedding->share.split == SPLIT_ROWS ? "the former" : "the latter");
}

/* Fills the set that a team shares, as a stage without jobs: its layers are those whose parameters are in it. s: the
 * stage of the team's first member. */
static void fill_shared(struct stage *st, const struct spec *sp, int s) {
    struct stage *shared = &st[sp->names.shared[s]];
    struct rt_layer *own = NEW(struct rt_layer, st[s].rt.nlayers);
    int n = 0;
    for (const struct rt_layer *l = st[s].rt.layer; l < st[s].rt.layer + st[s].rt.nlayers; l++)
        if (l->set == SET_SHARED && l->nparam > 0)
            own[n++] = (struct rt_layer){.kind = l->kind,
                                         .rows = l->rows,
                                         .in = l->in,
                                         .out = l->out,
                                         .context = l->context,
                                         .config = l->config,
                                         .index = l->index,
                                         .nparam = l->nparam};
    shared->rt.layer = own;
    shared->rt.nlayers = n;
    layout_weights(&shared->rt, own, sp->model->rt.precision, state_of(sp->model));
    cost_of(shared, sp);
    for (int i = 0; i < sp->names.member[s].size; i++) {
        struct rt_layer *layer = (struct rt_layer *)st[s + i].rt.layer;
        n = 0;
        for (int l = 0; l < st[s + i].rt.nlayers; l++)
            if (layer[l].set == SET_SHARED && layer[l].nparam > 0)
                layer[l].param = own[n++].param;
    }
}

void fill_sets(const struct costs *costs) {
    const struct spec *sp = costs->spec;
    struct stage *st = costs->stage;
    for (int i = 0; i < sp->names.tables; i++)
        fill_table(&st[sp->stages + i], sp, st[i].rt.layer);
    if (sp->names.tables > 0)
        check_tables(costs);
    for (int s = 0; sp->names.shared && s < sp->stages; s++)
        if (sp->names.member[s].place == 0)
            fill_shared(st, sp, s);
}

/* ---- sets without weights ---- */

/* Returns an error's text for the first layer with parameters in a member's stage; "": there is none. */
static const char *weighty_layer(const struct spec *sp, const struct stage *st, int s) {
    if (is_costs(sp))
        return st[s].rt.weight > 0 ? " in a cost model" : "";
    bool table = s < sp->names.tables;
    for (const struct rt_layer *l = st[s].rt.layer; l < st[s].rt.layer + st[s].rt.nlayers; l++)
        if ((l->nparam > 0 && l->set != SET_FROZEN) || (table && l->index == 0))
            return format(": %s", where_layer(sp->model, l->index));
    return "";
}

/* Sets costs.bare from the model. The script may have declared stages bare, and must then be right. */
void bare_sets(struct costs *costs) {
    const struct spec *sp = costs->spec;
    const struct stage *st = costs->stage;
    bool any = false;
    for (const struct job *j = sp->job; j < sp->job + sp->njobs; j++) {
        const char *layer = j->home < 0 ? weighty_layer(sp, st, j->s) : "";
        if (*layer)
            die("%s: w() returned nil as home for %s, but the model's stage %d has parameters%s; return the rank, or "
                "the list of ranks, that owns them",
                sp->file, job_name(&sp->names, j->s, j->b, j->d),
                sp->names.member ? sp->names.member[j->s].stage : j->s, layer);
    }
    costs->bare = NEW(bool, sp->stages + sp->names.sets);
    for (int set = 0; set < sp->stages + sp->names.sets; set++)
        any |= costs->bare[set] = st[set].rt.weight == 0;
    costs->bare = any ? costs->bare : NULL;
}

/* Dies if the table is shared, which has no versions, or if a job is to read a version of a stage without weights. Only
 * the stages' own sets, and sets that teams share, have versions. */
void refuse_unversioned(const struct costs *costs) {
    const struct spec *sp = costs->spec;
    if (sp->names.tables > 0)
        die("%s: the model's stages share a token table, which cannot have versions yet: leave 'update' out, or give "
            "the model its own output layer",
            sp->file);
    for (int32_t j = 0; j < sp->njobs; j++)
        if (sp->updates.reads[j] == READ_INPUT && !has_version(costs, 0))
            die("%s: %s must read the version that stage 0's forward reads, but stage 0 has no weights; choose another "
                "'version'",
                sp->file, job_name(&sp->names, sp->job[j].s, sp->job[j].b, sp->job[j].d));
}
