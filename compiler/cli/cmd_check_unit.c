/* `pianola check-unit`: tests the units of a model on random data, and compares their gradients with differences of
 * their forwards. */
#include "../../runtime/units/unit_check.h"
#include "base/put_json.h"
#include "command.h"
#include "files.h"
#include "passes/passes.h"
#include "pipeline.h"
#include "script/scripts.h"
#include "unit_library.h"
#include <math.h>
#include <string.h>

/* The largest error of a gradient besides the difference's rounding, as a part of the sum of its absolute values. */
static const double TOLERANCE = 1e-3;

/* A unit's layer, once for each size. */
struct checked {
    const struct rt_layer *l;
    struct unit_slope slope[MOST_PARAMETERS + 1];
    int n;
};

static double error_of(const struct unit_slope *slope) {
    return fabs(slope->gradient - slope->difference) / fmax(slope->scale, 1e-30);
}
static double rounding_of(const struct unit_slope *slope) { return slope->rounding / fmax(slope->scale, 1e-30); }
static bool agrees(const struct unit_slope *slope) { return error_of(slope) <= TOLERANCE + rounding_of(slope); }

static bool all_agree(const struct checked *checked, int n) {
    bool all = true;
    for (int i = 0; i < n; i++)
        for (int k = 0; k < checked[i].n; k++)
            all &= agrees(&checked[i].slope[k]);
    return all;
}

/* Returns whether a layer of the same unit, in the same sizes, was checked before. */
static bool seen(const struct checked *checked, int n, const struct rt_layer *l) {
    for (int i = 0; i < n; i++)
        if (unit_same(checked[i].l, l))
            return true;
    return false;
}

/* Checks the units of that name, or all. Returns their number. */
static int check_named(const struct compile *c, const char *name, struct checked *checked) {
    const struct rt_model *m = &c->spec->model->rt;
    char why[512];
    int n = 0;
    for (int s = 0; s < c->spec->stages; s++)
        for (int i = 0; i < c->costs->stage[s].rt.nlayers; i++) {
            const struct rt_layer *l = &c->costs->stage[s].rt.layer[i];
            if (!l->unit || (name && strcmp(l->unit->name, name) != 0) || seen(checked, n, l))
                continue;
            checked[n].l = l;
            if (!unit_check(m, l, &unit_memory_host, why, sizeof why))
                die("%s", why);
            checked[n].n = unit_slopes(m, l, &unit_memory_host, checked[n].slope, why, sizeof why);
            if (checked[n].n < 0)
                die("%s", why);
            n++;
        }
    return n;
}

static void put_checked(struct text *t, const struct checked *checked) {
    const struct rt_layer *l = checked->l;
    put(t, "unit %s of layer %d: %d rows, %d columns in, %d out: writes what it should, the same bits twice\n",
        l->unit->name, l->index, l->rows, l->in, l->out);
    put(t, "  %-24s %14s %14s %10s\n", "gradient of", "by its code", "difference", "error");
    for (int k = 0; k < checked->n; k++) {
        const struct unit_slope *slope = &checked->slope[k];
        put(t, "  %-24s %14.6g %14.6g %10.2g%s\n", slope->name, slope->gradient, slope->difference, error_of(slope),
            agrees(slope) ? "" : "  wrong");
    }
}

/* Returns a number as JSON, which has none for inf and nan. */
static const char *finite_or_null(double x) { return isfinite(x) ? format("%.9g", x) : "null"; }

static void put_checked_json(struct text *t, const char *model, const struct checked *checked, int n) {
    put(t, "{\n  \"schema\": 1,\n  \"model\": %s,\n  \"tolerance\": %g,\n  \"agree\": %s,\n  \"units\": [",
        quoted(model), TOLERANCE, all_agree(checked, n) ? "true" : "false");
    for (int i = 0; i < n; i++) {
        const struct rt_layer *l = checked[i].l;
        put(t, "%s\n    { \"unit\": %s, \"layer\": %d, \"rows\": %d, \"in\": %d, \"out\": %d, \"gradients\": [",
            i ? "," : "", quoted(l->unit->name), l->index, l->rows, l->in, l->out);
        for (int k = 0; k < checked[i].n; k++) {
            const struct unit_slope *slope = &checked[i].slope[k];
            put(t, "%s\n      { \"name\": %s, \"gradient\": %s, \"difference\": %s, \"error\": %s, \"rounding\": %s }",
                k ? "," : "", quoted(slope->name), finite_or_null(slope->gradient), finite_or_null(slope->difference),
                finite_or_null(error_of(slope)), finite_or_null(rounding_of(slope)));
        }
        put_word(t, " ] }");
    }
    put_word(t, "\n  ]\n}\n");
}

int cmd_check_unit(const struct settings *settings) {
    const char *model = settings->file[0], *name = settings->nfiles > 1 ? settings->file[1] : NULL;
    struct script_args args = settings->args;
    struct text out = {0};
    if (settings->nfiles > 2)
        die("`check-unit` takes a model and a unit's name, but got '%s' too", settings->file[2]);
    args.model = model;
    args.schedule = NULL;
    args.uncut = true;
    struct compile c = {.args = args, .spec = script_units(&args, 1, 1)};
    if (is_costs(c.spec))
        die("%s: is a cost model, which has no units", model);
    c.costs = costs_make(c.spec);
    struct checked *checked = NEW(struct checked, c.spec->model->nlayers);
    open_units(c.spec->model, false);
    int n = check_named(&c, name, checked);
    if (n == 0)
        die(name ? "%s: has no unit '%s'" : "%s: has no unit", model, name);
    if (settings->json)
        put_checked_json(&out, model, checked, n);
    for (int i = 0; i < n && !settings->json; i++)
        put_checked(&out, &checked[i]);
    write_file("-", &out);
    return all_agree(checked, n) ? 0 : 1;
}
