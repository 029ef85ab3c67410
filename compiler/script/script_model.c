/* Turns model { … } into a list of layers, from the parts that their constructors made (script_parts.c). Checks here,
 * by the rows of layers.c, which layer may be in which place; cost.c checks shapes. */
#include "script_parts.h"
#include <assert.h>
#include <limits.h>
#include <math.h>
#include <string.h>

struct builder {
    struct script *S;
    lua_State *L;
    struct table t;
    struct spec *sp;
    struct model *m;
    size_t capacity, sources, files; /* capacities of m->layer, m->from and m->files */
};

static void add_layer(struct builder *builder, struct model_layer layer) {
    struct model *m = builder->m;
    GROW(m->layer, builder->capacity, (size_t)m->nlayers + 1);
    if (layer.kind == LAYER_attention) {
        layer.attends = layer.split;
        layer.split = SPLIT_NONE;
        m->by_rows = m->by_rows || layer.attends;
        m->by_chunks = m->by_chunks || layer.attends == SPLIT_ROWS;
    }
    /* Here `split` only determines how its input and its neighbours are divided. */
    if (row_of(layer.kind)->team.by_rows && layer.split == SPLIT_ROWS) {
        m->by_rows = true;
        layer.split = SPLIT_NONE;
    }
    m->layer[m->nlayers++] = layer;
}

/* Checks whether the layer's place and the model's input allow it. */
static void check_layer(struct builder *builder, const struct part *part, bool first, bool last) {
    const struct layer_row *row = row_of(part->maker->kind);
    int input = builder->m->rt.input;
    const char *name = part->maker->name;
    if (row->first && (!first || input != row->input))
        word_fail(builder->L, part->line, name, "%s must be the first layer of a model whose input is tokens", name);
    if (first && input == INPUT_TOKENS && !row->first)
        word_fail(builder->L, part->line, name, "the first layer of a tokens input must be embedding, not %s", name);
    if (last && !row->loss)
        word_fail(builder->L, part->line, name,
                  "the last layer must be a loss, cross_entropy, mean_loss or mse, not %s", name);
    if (!last && row->loss)
        word_fail(builder->L, part->line, name, "%s is a loss and must be the last layer", name);
    if (row->input != INPUT_NONE && input != row->input)
        word_fail(builder->L, part->line, name, "%s needs input = %s { ... }%s", name,
                  row->input == INPUT_TOKENS ? "tokens" : "integers", row->because);
    if (row->shares && builder->m->from)
        word_fail(builder->L, part->line, name, "%s needs layers in a chain; in a model of stages use linear", name);
    for (int i = 0; row->shares && i < builder->m->nlayers; i++)
        if (row_of(builder->m->layer[i].kind)->shares)
            word_fail(builder->L, part->line, name, "a model has one %s; use linear { width = ... } for the other",
                      name);
}

/* Adds a moe: tokens go to experts, two linear layers each with gelu or swiglu between them, and come back. */
static void add_moe(struct builder *builder, const struct part *part, int item) {
    const struct moe_config *moe = &part->layer.config.moe;
    if (moe->top > moe->experts)
        word_fail(builder->L, part->line, "moe", "top = %d, but experts = %d: a token goes to each expert once at most",
                  moe->top, moe->experts);
    bool divided = part->layer.split == SPLIT_ROWS;
    builder->m->by_rows |= divided; /* each member sends its own tokens */
    const int kind[] = {LAYER_route, LAYER_experts, moe->gated ? LAYER_swiglu : LAYER_gelu, LAYER_experts,
                        LAYER_combine};
    for (int i = 0; i < 5; i++) {
        struct model_layer layer = {.kind = kind[i], .item = item, .in_moe = true};
        if (row_of(kind[i])->of_moe)
            layer.config.moe = *moe;
        layer.out = i == 1 ? (moe->gated ? 2 : 1) * part->layer.out : 0;
        layer.split = divided && kind[i] == LAYER_experts ? SPLIT_ROWS : SPLIT_NONE;
        add_layer(builder, layer);
    }
}

static bool same_hash(const char *a, const char *b) { return a && b ? strcmp(a, b) == 0 : a == b; }

/* Adds a unit's files to the model's. Fails if another unit has the same name, but other files. */
static void add_unit_files(struct builder *builder, const struct unit_files *files) {
    struct model *m = builder->m;
    for (int i = 0; i < m->nfiles; i++) {
        const struct unit_files *before = &m->files[i];
        bool same = before->n == files->n;
        if (strcmp(before->unit->name, files->unit->name) != 0)
            continue;
        for (int k = 0; same && k < files->n; k++)
            same = strcmp(before->file[k], files->file[k]) == 0 && same_hash(before->sha256[k], files->sha256[k]);
        if (!same)
            field_fail(builder->L, files->line, "name",
                       "two units are called '%s', the other one in line %d, and their files differ; give one of them "
                       "another name",
                       files->unit->name, before->line);
        return;
    }
    GROW(m->files, builder->files, (size_t)m->nfiles + 1);
    m->files[m->nfiles++] = *files;
}

/* Returns the unit of a part, which several layers may share. It is read when the first one names it. */
static const struct rt_unit *unit_at(struct builder *builder, int index) {
    lua_State *L = builder->L;
    struct part *part = lua_touserdata(L, index);
    struct unit_files files;
    if (part->layer.unit)
        return part->layer.unit;
    lua_getiuservalue(L, index, 2);
    part->layer.unit = read_unit_table(L, lua_gettop(L), part->line, &builder->m->rt, &files);
    lua_pop(L, 1);
    if (builder->m->rt.precision == BF16)
        word_fail(L, part->line, "unit", "units compute in fp32: leave out the model's precision = \"bf16\"");
    if (files.unit->side & (UNIT_READS_TOKENS | UNIT_READS_TARGETS) && builder->m->rt.input != INPUT_TOKENS)
        field_fail(L, part->line, "side", "'side' names tokens or targets, which only a model with input = tokens has");
    add_unit_files(builder, &files);
    return part->layer.unit;
}

static void add_part(struct builder *builder, int index, int item, bool first, bool last);

/* Adds the layers between fork and join, from the list in the residual's user value. */
static void add_residual(struct builder *builder, int index, int item, const struct part *part) {
    lua_State *L = builder->L;
    lua_getiuservalue(L, index, 1);
    int list = lua_gettop(L), n = (int)lua_rawlen(L, list);
    if (n == 0)
        word_fail(L, part->line, "residual", "residual needs at least one layer");
    add_layer(builder, (struct model_layer){.kind = LAYER_fork, .item = item});
    for (int i = 1; i <= n; i++, lua_settop(L, list)) {
        lua_rawgeti(L, list, i);
        const struct part *inner = part_at(L, -1, LAYER);
        if (!inner)
            word_fail(L, part->line, "residual", "item %d of residual is %s; it must be a layer", i, describe(L, -1));
        if (inner->maker == &residual_maker)
            word_fail(L, inner->line, "residual", "a residual inside a residual is not supported yet");
        if (inner->maker == &stage_maker)
            word_fail(L, inner->line, "stage", "a stage inside a residual; stages are items of the model's layers");
        add_part(builder, lua_gettop(L), item, false, false);
    }
    add_layer(builder, (struct model_layer){.kind = LAYER_join, .item = item});
    lua_settop(L, list - 1);
}

/* Returns entry i of the list on top of the stack if it is a string, else NULL. */
static const char *name_at(lua_State *L, int i) {
    const char *name = lua_rawgeti(L, -1, i) == LUA_TSTRING ? copy_string(lua_tostring(L, -1)) : NULL;
    lua_pop(L, 1);
    return name;
}

static void add_part(struct builder *builder, int index, int item, bool first, bool last) {
    const struct part *part = part_at(builder->L, index, LAYER);
    if (!part)
        field_fail(builder->L, builder->t.line, "layers",
                   "layers[%d] is %s; it must be a layer such as linear { width = 4 }", item + 1,
                   describe(builder->L, index));
    if (part->maker == &stage_maker)
        word_fail(builder->L, part->line, "stage", "either all of a model's layers stand in stages, or none do");
    check_layer(builder, part, first, last);
    if (part->maker == &residual_maker) {
        add_residual(builder, index, item, part);
        return;
    }
    if (is_moe(part->maker)) {
        add_moe(builder, part, item);
        return;
    }
    struct model_layer layer = part->layer;
    layer.item = item;
    layer.unit = is_declared(part->maker) ? unit_at(builder, index) : NULL;
    if (has_names(part->maker)) {
        lua_getiuservalue(builder->L, index, 1);
        layer.names.hf = name_at(builder->L, 1);
        layer.names.gguf = name_at(builder->L, 2);
        lua_pop(builder->L, 1);
    }
    if (layer.frozen && builder->m->rt.precision == BF16)
        field_fail(builder->L, part->line, "frozen",
                   "frozen layers compute in fp32: leave out the model's precision = \"bf16\"");
    if (row_of(layer.kind)->shares && builder->m->layer[0].frozen) { /* it has a copy of the embedding's table */
        layer.frozen = true;
        layer.names = builder->m->layer[0].names;
    }
    add_layer(builder, layer);
}

static const struct part *part_field(struct builder *builder, const char *field, enum part_group group,
                                     const char *such) {
    const struct table *table = &builder->t;
    if (push_field(table, field) == LUA_TNIL)
        field_fail(builder->L, table->line, field, "model needs the field '%s'; add: %s = %s", field, field, such);
    const struct part *part = part_at(builder->L, -1, group);
    if (!part)
        field_fail(builder->L, table->line, field, "'%s' must be made with a constructor, such as %s, not %s", field,
                   such, describe(builder->L, -1));
    return part; /* stays on the stack, and so alive */
}

static void read_input(struct builder *builder) {
    struct rt_model *rt = &builder->m->rt;
    const struct part *part = part_field(builder, "input", INPUT, "tokens { vocab = 256, context = 64, rows = 4 }");
    rt->input = part->maker->kind;
    rt->vocab = part->model.vocab;
    rt->context = part->model.context;
    rt->labels = part->model.labels;
    rt->features = part->model.features;
    double rows = (double)part->model.rows * (rt->input == INPUT_TOKENS ? rt->context : 1);
    if (rows > MAX_SIZE)
        word_fail(builder->L, part->line, part->maker->name,
                  "a microbatch of context * rows = %.0f tokens is too large; at most %d", rows, MAX_SIZE);
    rt->rows = (int32_t)rows;
    rt->batches = whole_batches(builder->sp);
}

static void read_optimizer(struct builder *builder) {
    struct rt_model *rt = &builder->m->rt;
    const struct part *part = part_field(builder, "optimizer", OPTIMIZER, "sgd { lr = 0.1 }");
    rt->optimizer = part->maker->kind;
#define X(name) rt->name = part->model.name;
    RATES(X)
#undef X
#define X(name) rt->name = part->model.name;
    COUNTS(X)
#undef X
    if (rt->post_validation && rt->clip == 0)
        field_fail(builder->L, part->line, "post_validation", "post_validation needs clip, which is 0; add: clip = 1");
    rt->post_validation = rt->post_validation && builder->sp->workers > 1; /* a single rank has no norm to wait for */
    if (rt->steps > 0 && rt->warmup > rt->steps)
        field_fail(builder->L, part->line, "warmup", "warmup = %d exceeds steps = %d, which includes the warm-up",
                   rt->warmup, rt->steps);
}

static void read_precision(struct builder *builder) {
    lua_State *L = builder->L;
    int type = push_field(&builder->t, "precision");
    const char *name = type == LUA_TNIL ? "fp32" : type == LUA_TSTRING ? lua_tostring(L, -1) : "";
    bool bf16 = strcmp(name, "bf16") == 0;
    if (!bf16 && strcmp(name, "fp32") != 0)
        field_fail(L, builder->t.line, "precision", "'precision' must be \"fp32\" or \"bf16\", not %s",
                   describe(L, -1));
    builder->m->rt.precision = bf16 ? BF16 : FP32;
}

/* ---- a model given as stages: stage { from = {0, 1}, linear { … }, … } ---- */

static void add_source(struct builder *builder, int line, int s, int index) {
    lua_State *L = builder->L;
    struct model *m = builder->m;
    int isint = 0, at = m->from_at[s + 1];
    GROW(m->from, builder->sources, (size_t)at + 1);
    lua_Integer t = lua_type(L, index) == LUA_TNUMBER ? lua_tointegerx(L, index, &isint) : 0;
    if (s == 0)
        field_fail(L, line, "from", "stage 0: 'from' names %s, but no stage comes before it; write from = \"input\"",
                   describe(L, index));
    if (!isint || t < 0 || t >= s)
        field_fail(L, line, "from", "stage %d: 'from' names %s; it must name earlier stages, from 0 to %d", s,
                   describe(L, index), s - 1);
    while (at > m->from_at[s] && m->from[at - 1] > t) {
        m->from[at] = m->from[at - 1];
        at--;
    }
    if (at > m->from_at[s] && m->from[at - 1] == t)
        field_fail(L, line, "from", "stage %d: 'from' names stage %d twice", s, (int)t);
    m->from[at] = (int)t;
    m->from_at[s + 1]++;
}

/* Reads the sources of stage s, whose table is on top of the stack. */
static void read_stage_sources(struct builder *builder, int line, int s) {
    lua_State *L = builder->L;
    int top = lua_gettop(L), type = lua_getfield(L, top, "from"), n = 0;
    builder->m->from_at[s + 1] = builder->m->from_at[s];
    if (type == LUA_TNIL && s > 0) {
        lua_pushinteger(L, s - 1);
        add_source(builder, line, s, -1);
    } else if (type == LUA_TNUMBER)
        add_source(builder, line, s, -1);
    else if (type == LUA_TTABLE) {
        n = (int)lua_rawlen(L, -1);
        if (n == 0)
            field_fail(L, line, "from", "stage %d: 'from' is an empty list; write from = \"input\" to read the batch",
                       s);
        for (int i = 1; i <= n; i++) {
            lua_rawgeti(L, top + 1, i);
            add_source(builder, line, s, -1);
        }
    } else if (type != LUA_TNIL && (type != LUA_TSTRING || strcmp(lua_tostring(L, -1), "input") != 0))
        field_fail(L, line, "from", "stage %d: 'from' must be a stage, a list of stages or \"input\", not %s", s,
                   describe(L, -1));
    lua_settop(L, top);
}

/* Inverts `from`: lists the stages that read each stage. */
static void turn_sources(struct builder *builder, const struct part *part, int n) {
    struct model *m = builder->m;
    m->to_at = NEW(int, n + 2);
    m->to = NEW(int, m->from_at[n] + 1);
    for (int e = 0; e < m->from_at[n]; e++)
        m->to_at[m->from[e] + 2]++;
    for (int s = 0; s < n; s++)
        m->to_at[s + 2] += m->to_at[s + 1];
    for (int s = 0; s < n; s++)
        for (int e = m->from_at[s]; e < m->from_at[s + 1]; e++)
            m->to[m->to_at[m->from[e] + 1]++] = s;
    for (int s = 0; s < n - 1; s++)
        if (m->to_at[s] == m->to_at[s + 1])
            word_fail(builder->L, part->line, "stage",
                      "no stage reads the output of stage %d; add %d to a later stage's 'from'", s, s);
}

/* Checks that a stage's table has only items and `from`. */
static void check_keys(struct builder *builder, int line, int index) {
    lua_State *L = builder->L;
    for (lua_pushnil(L); lua_next(L, index); lua_pop(L, 1))
        if (lua_type(L, -2) == LUA_TSTRING && strcmp(lua_tostring(L, -2), stage_maker.field[0].name) != 0)
            word_fail(L, line, "stage", "stage has no field '%s'; it has 'from', and its layers", lua_tostring(L, -2));
}

static void read_stages(struct builder *builder, int list, int n) {
    lua_State *L = builder->L;
    struct model *m = builder->m;
    const struct part *part = NULL;
    m->from_at = NEW(int, n + 1);
    m->cut = NEW(int, n);
    m->ncut = n - 1;
    for (int s = 0; s < n; s++, lua_settop(L, list)) {
        lua_rawgeti(L, list, s + 1);
        part = part_at(L, -1, LAYER);
        if (!part || part->maker != &stage_maker)
            field_fail(L, builder->t.line, "layers",
                       "layers[%d] is %s; either all of a model's layers stand in stages, or none do", s + 1,
                       part ? part->maker->name : describe(L, -1));
        lua_getiuservalue(L, -1, 1);
        int items = lua_gettop(L), count = (int)lua_rawlen(L, items);
        if (count == 0)
            word_fail(L, part->line, "stage", "stage %d has no layers", s);
        check_keys(builder, part->line, items);
        read_stage_sources(builder, part->line, s);
        for (int i = 1; i <= count; i++, lua_settop(L, items)) {
            bool opens = i == 1 && m->from_at[s] == m->from_at[s + 1];
            lua_rawgeti(L, items, i);
            if (!part_at(L, -1, LAYER))
                word_fail(L, part->line, "stage", "item %d of stage %d is %s; it must be a layer", i, s,
                          describe(L, -1));
            add_part(builder, items + 1, s, opens, s == n - 1 && i == count);
        }
        if (s > 0)
            m->cut[s - 1] = s;
    }
    if (builder->sp->stages == 0)
        field_fail(
            L, builder->t.line, "layers",
            "a model whose layers are stages is already cut; to partition or tune it, give its layers without stages");
    if (n != builder->sp->stages)
        field_fail(L, builder->t.line, "layers", "the model has %d stages, but the schedule has stages = %d", n,
                   builder->sp->stages);
    turn_sources(builder, part, n);
}

static void read_layers(struct builder *builder) {
    lua_State *L = builder->L;
    if (push_field(&builder->t, "layers") != LUA_TTABLE || lua_rawlen(L, -1) == 0)
        field_fail(L, builder->t.line, "layers", "model needs the field 'layers', a list of layers; it is %s",
                   lua_istable(L, -1) ? "empty" : describe(L, -1));
    int list = lua_gettop(L), n = (int)lua_rawlen(L, list);
    lua_rawgeti(L, list, 1);
    const struct part *first = part_at(L, -1, LAYER);
    lua_settop(L, list);
    builder->m->nitems = n;
    if (first && first->maker == &stage_maker) {
        read_stages(builder, list, n);
        return;
    }
    for (int i = 1; i <= n; i++, lua_settop(L, list)) {
        lua_rawgeti(L, list, i);
        add_part(builder, list + 1, i - 1, i == 1, i == n);
    }
}

/* Reads an input of units, whose table is on top of the stack. */
static struct rt_input read_unit_input(struct builder *builder, const char *name) {
    static const char *const fields[] = {"columns", "type", "below", NULL};
    lua_State *L = builder->L;
    struct rt_model *rt = &builder->m->rt;
    struct table t = {L, lua_gettop(L), builder->t.line, "an input of units"};
    if (!lua_istable(L, -1))
        field_fail(L, t.line, "inputs", "input '%s' must be a table such as { columns = 1, type = \"i32\" }, not %s",
                   name, describe(L, -1));
    check_fields(&t, fields);
    struct rt_input input = {.name = name, .columns = 1, .below = rt->context};
    if (push_field(&t, "columns") != LUA_TNIL)
        input.columns = integer_field(&t, "columns", 1, MAX_SIZE / rt->rows);
    if (push_field(&t, "below") != LUA_TNIL)
        input.below = integer_field(&t, "below", 1, INT_MAX);
    const char *type = push_field(&t, "type") == LUA_TSTRING ? lua_tostring(L, -1) : "";
    input.floats = strcmp(type, "f32") == 0;
    if (!input.floats && strcmp(type, "i32") != 0)
        field_fail(L, t.line, "type", "'type' of input '%s' must be \"i32\" or \"f32\", not %s", name, describe(L, -1));
    lua_settop(L, t.at);
    return input;
}

/* Reads inputs = { positions = { columns = 1, type = "i32", below = 64 } }, sorted by name. */
static void read_inputs_of_units(struct builder *builder) {
    lua_State *L = builder->L;
    struct rt_model *rt = &builder->m->rt;
    int type = push_field(&builder->t, "inputs"), top = lua_gettop(L);
    if (type == LUA_TNIL)
        return;
    if (type != LUA_TTABLE || rt->input != INPUT_TOKENS)
        field_fail(L, builder->t.line, "inputs",
                   "'inputs' must be a table such as { positions = { columns = 1, type = \"i32\" } }, for a model of "
                   "tokens");
    struct rt_input *input = NEW(struct rt_input, MOST_INPUTS);
    rt->input_of_units = input;
    push_sorted_keys(L, top);
    for (int i = 1; lua_rawgeti(L, top + 1, i) != LUA_TNIL; i++, lua_settop(L, top + 1)) {
        const char *name = lua_type(L, -1) == LUA_TSTRING ? copy_string(lua_tostring(L, -1)) : "";
        if (!is_plain_name(name, "") || is_side_word(name))
            field_fail(
                L, builder->t.line, "inputs",
                "'%s' cannot name an input: a name has letters, digits and _, and is not tokens, targets, seed or "
                "labels",
                name);
        if (rt->ninputs == MOST_INPUTS)
            field_fail(L, builder->t.line, "inputs", "a model has at most %d inputs", MOST_INPUTS);
        lua_rawget(L, top);
        input[rt->ninputs++] = read_unit_input(builder, name);
    }
    lua_settop(L, top - 1);
}

/* Reads cut = { 3, 5 }: stage 1 opens with layers[3], stage 2 with layers[5]. */
static void read_stage_cut(struct builder *builder) {
    lua_State *L = builder->L;
    struct model *m = builder->m;
    int type = push_field(&builder->t, "cut"), list = lua_gettop(L);
    if (type == LUA_TNIL || builder->S->uncut)
        return;
    if (m->from)
        field_fail(L, builder->t.line, "cut", "a model whose layers are stages is already cut; leave 'cut' out");
    if (type != LUA_TTABLE)
        field_fail(L, builder->t.line, "cut", "'cut' must be a list of positions in %s, not %s",
                   m->cost ? "costs" : "layers", describe(L, list));
    if (builder->sp->stages == 0)
        field_fail(L, builder->t.line, "cut", "this model is already cut; to partition it, leave 'cut' out");
    m->ncut = (int)lua_rawlen(L, list);
    if (m->ncut != builder->sp->stages - 1)
        field_fail(L, builder->t.line, "cut", "'cut' opens %d stages after the first, but the schedule has stages = %d",
                   m->ncut, builder->sp->stages);
    m->cut = NEW(int, m->ncut);
    for (int i = 0, before = 1; i < m->ncut; i++, lua_settop(L, list)) {
        int isint = 0;
        lua_Integer x = lua_rawgeti(L, list, i + 1) == LUA_TNUMBER ? lua_tointegerx(L, -1, &isint) : 0;
        if (!isint || x <= before || x > m->nitems)
            field_fail(L, builder->t.line, "cut", "cut[%d] is %s; positions in %s must ascend, from 2 to %d", i + 1,
                       describe(L, -1), m->cost ? "costs" : "layers", m->nitems);
        m->cut[i] = (int)x - 1;
        before = (int)x;
    }
}

const char *const model_fields[] = {"input", "layers", "optimizer", "precision", "cut",
                                    "costs", "inputs", "check",     NULL};

static void keep_names(struct model *m) {
    struct rt_names *names = NEW(struct rt_names, m->nlayers + 1);
    for (int i = 0; i < m->nlayers; i++) {
        names[i] = m->layer[i].names;
        if (names[i].hf || names[i].gguf)
            m->rt.names = names;
    }
}

void extract_model(struct script *script, void *spec) {
    struct spec *sp = spec;
    struct builder builder = {.S = script, .L = script->L, .sp = sp, .m = NEW(struct model, 1)};
    builder.t = (struct table){script->L, lua_gettop(script->L), script->line, "model"};
    check_fields(&builder.t, model_fields);
    if (!read_costs(&builder.t, builder.m)) {
        read_precision(&builder);
        read_input(&builder);
        read_optimizer(&builder);
        read_inputs_of_units(&builder);
        builder.m->check = read_known_files(&builder.t);
        read_layers(&builder);
    }
    struct model *m = builder.m;
    m->rt.output = m->nlayers > 1 && m->layer[m->nlayers - 2].kind == LAYER_linear ? m->nlayers - 2 : -1;
    m->shares = m->by_rows;
    for (int i = 0; i < m->nlayers; i++) {
        m->tied |= row_of(m->layer[i].kind)->shares && !m->layer[i].frozen;
        m->shares |= row_of(m->layer[i].kind)->team.in_common;
    }
    keep_names(m);
    read_stage_cut(&builder);
    sp->model = m;
}
