/* Writes the units of a rank's own program: layers whose functions the linker finds in the units' own code. */
#include "emit_cuda.h"
#include <string.h>

int list_units(const struct rt_program *p, const struct rt_unit **unit) {
    int n = 0;
    for (int s = 0; s < p->sets; s++)
        for (int i = 0; i < p->stage[s].nlayers; i++) {
            const struct rt_unit *one = p->stage[s].layer[i].unit;
            int k = 0;
            while (k < n && unit[k] != one)
                k++;
            if (one && k == n)
                unit[n++] = one;
        }
    return n;
}

void put_unit_of(struct text *t, const struct rt_layer *l, const struct rt_unit *const *unit, int n) {
    for (int u = 0; u < n; u++)
        put_word(t, unit[u] == l->unit ? format(", .unit = &unit_%d", u) : "");
}

static void emit_parameters(struct text *t, const struct rt_unit *unit, int number) {
    static const char *const init[] = {"UNIT_INIT_KIND", "UNIT_INIT_ZEROS", "UNIT_INIT_ONES", "UNIT_INIT_NORMAL"};
    if (unit->nparameters == 0)
        return;
    put(t, "static const struct rt_unit_parameter parameters_%d[] = {\n", number);
    for (int i = 0; i < unit->nparameters; i++) {
        const struct rt_unit_parameter *p = &unit->parameter[i];
        put(t, "    {\"%s\", %d, {%lld, %lld}, %s, %d},\n", p->name, p->ndims, (long long)p->dim[0],
            (long long)p->dim[1], init[p->init], p->frozen);
    }
    put_word(t, "};\n");
}

static void emit_libraries(struct text *t, const struct rt_unit *unit, int number) {
    const struct rt_unit_code *code = unit->code;
    if (code->nlibraries > 0)
        put(t, "static const struct rt_unit_library libraries_%d[] = {\n", number);
    for (int i = 0; i < code->nlibraries; i++)
        put(t, "    {\"%s\", %lld, \"%s\"},\n", code->library[i].name, (long long)code->library[i].bytes,
            code->library[i].sha256);
    put_word(t, code->nlibraries > 0 ? "};\n" : "");
}

static void put_unit_work(struct text *t, const char *name, const int64_t *size) {
    put(t, "%s{%lld, %lld, %lld},\n", name, (long long)size[0], (long long)size[1], (long long)size[2]);
}

static void emit_unit(struct text *t, const struct rt_unit *unit, int number) {
    bool weight = unit_has(unit, UNIT_WEIGHT);
    put(t, "\nextern pianola_unit_function UNIT(%s_forward), UNIT(%s_input)%s;\n", unit->name, unit->name,
        weight ? format(", UNIT(%s_weight)", unit->name) : "");
    emit_parameters(t, unit, number);
    emit_libraries(t, unit, number);
    put(t, "static struct rt_unit_code code_%d = {{UNIT(%s_forward), UNIT(%s_input), %s}, NULL, %s, %d};\n", number,
        unit->name, unit->name, weight ? format("UNIT(%s_weight)", unit->name) : "NULL",
        unit->code->nlibraries > 0 ? format("libraries_%d", number) : "NULL", unit->code->nlibraries);
    put(t, "static const struct rt_unit unit_%d = {\n    .name = \"%s\",\n", number, unit->name);
    if (unit->data)
        put(t, "    .data = \"%s\",\n", unit->data);
    if (unit->nparameters > 0)
        put(t, "    .parameter = parameters_%d,\n    .nparameters = %d,\n", number, unit->nparameters);
    put(t, "    .keeps = %d,\n    .side = %d,\n    .stash = %lld,\n    .extra = %lld,\n", unit->keeps, unit->side,
        (long long)unit->stash, (long long)unit->extra);
    put_unit_work(t, "    .work = ", unit->work);
    put_word(t, unit->ninputs > 0 ? "    .input = {" : "");
    for (int i = 0; i < unit->ninputs; i++)
        put(t, "%s%d", i ? ", " : "", unit->input[i]);
    put_word(t, unit->ninputs > 0 ? format("},\n    .ninputs = %d,\n", unit->ninputs) : "");
    put(t, "    .code = &code_%d,\n};\n", number);
}

void emit_units(struct text *t, const struct rt_unit *const *unit, int n) {
    if (n == 0)
        return;
    put_word(t, "\n/* Units: layers whose code the model brings, as functions for CPUs or for GPUs. */\n"
                "#ifdef PIANOLA_GPU\n#define UNIT(name) name##_cuda\n#else\n#define UNIT(name) name\n#endif\n"
                "#ifdef __cplusplus\nextern \"C\" {\n#endif");
    for (int i = 0; i < n; i++)
        emit_unit(t, unit[i], i);
    put_word(t, "#ifdef __cplusplus\n}\n#endif\n");
}
