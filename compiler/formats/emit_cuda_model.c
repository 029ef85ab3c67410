/* Writes the model, the layers and the stages of a rank's own program. */
#include "emit_cuda.h"
#include "put_fields.h"

#define X(name, ...) "LAYER_" #name,
static const char *const layer_word[] = {LAYERS(X)};
#undef X
#define X(NAME, ...) "OPT_" #NAME,
static const char *const optimizer_word[] = {"OPT_NONE", OPTIMIZERS(X)};
#undef X
static const char *const input_word[] = {"INPUT_NONE", "INPUT_TOKENS", "INPUT_INTEGERS"};
static const char *const precision_word[] = {"FP32", "BF16"};
static const char *const split_word[] = {"SPLIT_NONE", "SPLIT_COLUMNS", "SPLIT_ROWS"};
static const char *const set_word[] = {"SET_OWN", "SET_TABLE", "SET_SHARED", "SET_FROZEN"};
static const char *const space_word[] = {"SP_NONE", "SP_X",  "SP_Y",  "SP_STASH", "SP_EXT",
                                         "SP_WORK", "SP_DY", "SP_DX", "SP_GIVE",  "SP_GOT"};

static const struct field_row model_fields[] = {FIELD_NAME(rt_model, input, input_word),
                                                FIELD_NUMBER(rt_model, rows),
                                                FIELD_NUMBER(rt_model, context),
                                                FIELD_NUMBER(rt_model, vocab),
                                                FIELD_NUMBER(rt_model, labels),
                                                FIELD_NUMBER(rt_model, features),
                                                FIELD_NAME(rt_model, optimizer, optimizer_word),
#define X(name) FIELD_REAL(rt_model, name),
                                                RATES(X)
#undef X
#define X(name) FIELD_NUMBER(rt_model, name),
                                                    COUNTS(X)
#undef X
                                                        FIELD_NUMBER(rt_model, batches),
                                                FIELD_NAME(rt_model, precision, precision_word),
                                                FIELD_NUMBER(rt_model, update),
                                                FIELD_NUMBER(rt_model, slices),
                                                FIELD_NUMBER(rt_model, output),
                                                FIELD_NUMBER(rt_model, ninputs),
                                                {.name = NULL}};

static const struct field_row slot_fields[] = {
    FIELD_NAME(slot, space, space_word), FIELD_NUMBER(slot, off), {.name = NULL}};
static const struct field_row group_fields[] = {{"", FIELD_INT, 0, NULL, NULL, false},
                                                {"", FIELD_INT, 4, NULL, NULL, false},
                                                {"", FIELD_INT, 8, NULL, NULL, false},
                                                {.name = NULL}};
static const struct field_row share_fields[] = {FIELD_NAME(rt_share, split, split_word),
                                                FIELD_NUMBER(rt_share, member),
                                                FIELD_NUMBER(rt_share, members),
                                                FIELD_LIST(rt_share, group, group_fields),
                                                {.name = NULL}};
static const struct field_row rows_fields[] = {
    FIELD_NUMBER(rt_rows, member), FIELD_NUMBER(rt_rows, members), FIELD_NUMBER(rt_rows, context), {.name = NULL}};
#define F(group, name, ...) FIELD_TYPED(group##_config, name),
#define X(group, fields)    static const struct field_row group##_fields[] = {fields(F){.name = NULL}};
LAYER_CONFIGS(X)
#undef X
#undef F
#define X(group, fields) FIELD_NESTED(rt_config, group, group##_fields),
static const struct field_row config_fields[] = {LAYER_CONFIGS(X){.name = NULL}};
#undef X
static const struct field_row layer_fields[] = {FIELD_NAME(rt_layer, kind, layer_word),
                                                FIELD_NUMBER(rt_layer, rows),
                                                FIELD_NUMBER(rt_layer, in),
                                                FIELD_NUMBER(rt_layer, out),
                                                FIELD_NUMBER(rt_layer, out_rows),
                                                FIELD_NUMBER(rt_layer, context),
                                                FIELD_NESTED(rt_layer, config, config_fields),
                                                FIELD_NUMBER(rt_layer, index),
                                                FIELD_NESTED(rt_layer, share, share_fields),
                                                FIELD_NESTED(rt_layer, part, rows_fields),
                                                FIELD_NAME(rt_layer, set, set_word),
                                                FIELD_NUMBER(rt_layer, param),
                                                FIELD_NUMBER(rt_layer, nparam),
                                                FIELD_NUMBER(rt_layer, frozen),
                                                FIELD_LIST(rt_layer, x, slot_fields),
                                                FIELD_LIST(rt_layer, y, slot_fields),
                                                FIELD_LIST(rt_layer, aux, slot_fields),
                                                FIELD_LIST(rt_layer, dy, slot_fields),
                                                FIELD_LIST(rt_layer, dx, slot_fields),
                                                FIELD_LIST(rt_layer, tmp, slot_fields),
                                                FIELD_LIST(rt_layer, left, slot_fields),
                                                FIELD_NUMBER(rt_layer, first),
                                                FIELD_NUMBER(rt_layer, length),
                                                FIELD_NUMBER(rt_layer, kv),
                                                {.name = NULL}};

static const struct field_row stage_fields[] = {
    FIELD_NUMBER(rt_stage, nlayers), FIELD_NUMBER(rt_stage, act),     FIELD_NUMBER(rt_stage, grad),
    FIELD_NUMBER(rt_stage, stash),   FIELD_NUMBER(rt_stage, ext),     FIELD_NUMBER(rt_stage, input),
    FIELD_NUMBER(rt_stage, weight),  FIELD_NUMBER(rt_stage, opt),     FIELD_NUMBER(rt_stage, work),
    FIELD_NUMBER(rt_stage, frozen),  FIELD_NUMBER(rt_stage, update),  FIELD_ALWAYS(rt_stage, number),
    FIELD_NUMBER(rt_stage, place),   FIELD_NUMBER(rt_stage, members), {.name = NULL}};

static const char *string_or_null(const char *s) { return s ? format("\"%s\"", s) : "NULL"; }

/* Writes the names of n layers in files of weights. */
static void emit_names(struct text *t, const struct rt_names *names, int n) {
    put_word(t, "\nstatic const struct rt_names names[] = {\n");
    for (int i = 0; i < n; i++)
        put(t, "    {%s, %s, %s},\n", string_or_null(names[i].hf), string_or_null(names[i].gguf),
            string_or_null(names[i].data));
    put_word(t, "};\n");
}

static void emit_model(struct text *t, const struct rt_model *m) {
    put_word(t, m->ninputs > 0 ? "\nstatic const struct rt_input inputs[] = {\n" : "");
    for (int k = 0; k < m->ninputs; k++) {
        const struct rt_input *input = &m->input_of_units[k];
        put(t, "    {\"%s\", %d, %d, %d},\n", input->name, input->columns, input->floats, input->below);
    }
    put_word(t, m->ninputs > 0 ? "};\n" : "");
    put_word(t, "\nstatic const struct rt_model model = {\n    ");
    put_fields(t, model_fields, m, ",\n    ");
    put_word(t, m->names ? ",\n    .names = names" : "");
    put_word(t, m->ninputs > 0 ? ",\n    .input_of_units = inputs,\n};\n" : ",\n};\n");
}

/* The units of a program, numbered as they are written. */
struct units {
    const struct rt_unit **at;
    int n;
};

static void emit_layers(struct text *t, const struct rt_stage *s, const char *name, const struct units *units) {
    put(t, "\nstatic const struct rt_layer layers_%s[] = {\n", name);
    for (int i = 0; i < s->nlayers; i++) {
        put_word(t, "    {");
        put_fields(t, layer_fields, &s->layer[i], ", ");
        put_unit_of(t, &s->layer[i], units->at, units->n);
        put_word(t, "},\n");
    }
    put_word(t, "};\n");
}

/* Writes n stages into an array of that name. Only this rank's stages have layers. slices: per stage; 0: whole
 * microbatches. */
static void emit_stages(struct text *t, const struct rt_stage *stage, int n, int slices, const char *array,
                        const struct units *units) {
    const char **name = NEW(const char *, n);
    for (int i = 0; i < n; i++) {
        name[i] = slices ? format("%d_%d", i / slices, i % slices) : format("%d", i);
        if (stage[i].nlayers)
            emit_layers(t, &stage[i], name[i], units);
    }
    put(t, "\nstatic const struct rt_stage %s[] = {\n", array);
    for (int i = 0; i < n; i++) {
        put_word(t, "    {");
        put_word(t, stage[i].nlayers ? format(".layer = layers_%s, ", name[i]) : "");
        put_fields(t, stage_fields, &stage[i], ", ");
        put_word(t, "},\n");
    }
    put_word(t, "};\n");
}

void emit_trained(struct text *t, const struct rt_program *p, int nlayers) {
    struct units units = {NEW(const struct rt_unit *, nlayers), 0};
    units.n = list_units(p, units.at);
    if (p->model->names)
        emit_names(t, p->model->names, nlayers);
    emit_model(t, p->model);
    emit_units(t, units.at, units.n);
    emit_stages(t, p->stage, p->sets, 0, "stages", &units);
    if (p->slice)
        emit_stages(t, p->slice, p->stages * p->model->slices, p->model->slices, "slices", &units);
}
