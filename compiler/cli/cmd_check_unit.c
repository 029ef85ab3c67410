/* `pianola check-unit`: tests the units of a model on random data, and compares their gradients with differences of
 * their forwards. Tests all layers of the model in the same way, an item of its list at a time. If the model names a
 * file with values that another program computed, compares the whole model with it. */
#include "../../runtime/compute.h"
#include "../../runtime/units/known.h"
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
/* The largest relative error of the whole model's loss, and of a gradient, against another program. */
static const double KNOWN_TOLERANCE = 1e-4;

/* A unit's layer, or an item of the model's list, once for each size. */
struct checked {
    const struct rt_layer *l; /* the unit's, or the item's first */
    int layers;               /* of the item; 0: it is a unit */
    struct unit_slope *slope;
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
            checked[n] = (struct checked){.l = l, .slope = NEW(struct unit_slope, MOST_PARAMETERS + 1)};
            if (!unit_check(m, l, &unit_memory_host, why, sizeof why))
                die("%s", why);
            checked[n].n = unit_slopes(m, l, &unit_memory_host, checked[n].slope, why, sizeof why);
            if (checked[n].n < 0)
                die("%s", why);
            n++;
        }
    return n;
}

/* Returns whether the layers of two items have the same kinds, fields and sizes. */
static bool same_item(const struct checked *a, const struct rt_stage *s) {
    bool same = a->layers == s->nlayers;
    for (int i = 0; same && i < s->nlayers; i++) {
        const struct rt_layer *x = &a->l[i], *y = &s->layer[i];
        same = x->kind == y->kind && x->rows == y->rows && x->in == y->in && x->out == y->out &&
               x->out_rows == y->out_rows && x->nparam == y->nparam && x->set == y->set &&
               memcmp(&x->config, &y->config, sizeof x->config) == 0 && (x->unit == y->unit || unit_same(x, y));
    }
    return same;
}

/* Checks the items of the model's list, each of which is a stage here. Returns their number. */
static int check_model_items(const struct compile *c, struct checked *checked) {
    const struct rt_model *m = &c->spec->model->rt;
    char why[512];
    int n = 0;
    for (int i = 0; i < c->spec->stages; i++) {
        const struct rt_stage *s = &c->costs->stage[i].rt, *table = NULL;
        int same = 0;
        while (same < n && !same_item(&checked[same], s))
            same++;
        if (same < n)
            continue;
        if (c->spec->names.tables > 0 && uses_table(m, s, 0))
            table = &c->costs->stage[c->spec->stages].rt;
        checked[n] = (struct checked){s->layer, s->nlayers, NULL, 0};
        checked[n].slope = NEW(struct unit_slope, (size_t)s->nlayers * MOST_PARAMETERS + 2);
        if (!stage_check(m, s, table, why, sizeof why))
            die("%s", why);
        checked[n].n = stage_slopes(m, s, table, checked[n].slope, why, sizeof why);
        if (checked[n].n < 0)
            die("%s", why);
        n++;
    }
    return n;
}

/* ---- the whole model ---- */

/* Computes the model's values on the microbatch of its file of values. */
static struct known_result check_known(const struct compile *c) {
    const struct model *model = c->spec->model;
    const int sets = c->spec->stages + c->spec->names.tables;
    const struct rt_stage **stage = NEW(const struct rt_stage *, sets);
    struct known_result known;
    char why[1000] = "";
    for (int i = 0; i < sets; i++)
        stage[i] = &c->costs->stage[i].rt;
    const struct known_model k = {&model->rt, stage, c->spec->stages, sets, model->check.values, model->check.weights};
    if (!known_compare(&k, &known, why, sizeof why))
        die("%s", why);
    return known;
}

static double loss_error(const struct known_result *known) {
    return fabs(known->loss - known->wanted_loss) / fabs(known->wanted_loss);
}
/* Returns the gradient with the largest error; NULL: there are none. An error that is no number is the largest. */
static const struct known_gradient *worst_gradient(const struct known_result *known) {
    const struct known_gradient *worst = known->gradient;
    for (int i = 1; i < known->n; i++)
        if (!(known->gradient[i].error <= worst->error))
            worst = &known->gradient[i];
    return known->n > 0 ? worst : NULL;
}
static bool known_agrees(const struct known_result *known) {
    const struct known_gradient *worst = worst_gradient(known);
    return loss_error(known) <= KNOWN_TOLERANCE && (!worst || worst->error <= KNOWN_TOLERANCE);
}

static void put_known(struct text *t, const char *file, const struct known_result *known) {
    const struct known_gradient *worst = worst_gradient(known);
    put(t, "whole model: loss %.7f, %.7f in %s: differs by %.1e%s\n", known->loss, known->wanted_loss, file,
        loss_error(known), loss_error(known) <= KNOWN_TOLERANCE ? "" : "  wrong");
    if (worst)
        put(t, "  gradients of %d parameters differ by at most %.1e, most in %s%s\n", known->n, worst->error,
            worst->name, worst->error <= KNOWN_TOLERANCE ? "" : "  wrong");
}

/* ---- what is printed ---- */

/* Returns a gradient's name: x, or the parameter's, after its layer's number unless it is a unit's. */
static const char *slope_name(const struct checked *checked, int k) {
    const struct unit_slope *slope = &checked->slope[k];
    return checked->layers == 0 || strcmp(slope->name, "x") == 0 ? slope->name
                                                                 : format("%d.%s", slope->layer, slope->name);
}

static void put_checked_title(struct text *t, const struct checked *checked) {
    const struct rt_layer *l = checked->l, *last = l + (checked->layers > 0 ? checked->layers - 1 : 0);
    if (checked->layers == 0)
        put(t, "unit %s of layer %d", l->unit->name, l->index);
    else if (checked->layers == 1)
        put(t, "layer %d, %s", l->index, name_of_layer(l));
    else
        put(t, "layers %d to %d, %s to %s", l->index, last->index, name_of_layer(l), name_of_layer(last));
    put(t, ": %d rows, %d columns in, %d out: %s\n", l->rows, l->in, last->out,
        checked->layers > 1 ? "write what they should, the same bits twice"
                            : "writes what it should, the same bits twice");
}

static void put_checked(struct text *t, const struct checked *checked) {
    put_checked_title(t, checked);
    if (checked->n > 0)
        put(t, "  %-24s %14s %14s %10s\n", "gradient of",
            checked->layers == 0   ? "by its code"
            : checked->layers == 1 ? "by the layer"
                                   : "by the layers",
            "difference", "error");
    for (int k = 0; k < checked->n; k++) {
        const struct unit_slope *slope = &checked->slope[k];
        put(t, "  %-24s %14.6g %14.6g %10.2g%s\n", slope_name(checked, k), slope->gradient, slope->difference,
            error_of(slope), agrees(slope) ? "" : "  wrong");
    }
}

/* Returns a number as JSON, which has none for inf and nan. */
static const char *finite_or_null(double x) { return isfinite(x) ? format("%.9g", x) : "null"; }

static void put_gradients_json(struct text *t, const struct checked *checked) {
    put_word(t, "\"gradients\": [");
    for (int k = 0; k < checked->n; k++) {
        const struct unit_slope *slope = &checked->slope[k];
        put(t, "%s\n      { \"name\": %s, \"gradient\": %s, \"difference\": %s, \"error\": %s, \"rounding\": %s }",
            k ? "," : "", quoted(slope_name(checked, k)), finite_or_null(slope->gradient),
            finite_or_null(slope->difference), finite_or_null(error_of(slope)), finite_or_null(rounding_of(slope)));
    }
    put_word(t, " ] }");
}

static void put_comparison_json(struct text *t, const struct known_result *known) {
    put(t, "  \"check\": { \"tolerance\": %g, \"loss\": %s, \"known\": %s, \"gradients\": [", KNOWN_TOLERANCE,
        finite_or_null(known->loss), finite_or_null(known->wanted_loss));
    for (int i = 0; i < known->n; i++)
        put(t, "%s\n    { \"name\": %s, \"norm\": %s, \"known\": %s, \"error\": %s }", i ? "," : "",
            quoted(known->gradient[i].name), finite_or_null(known->gradient[i].norm),
            finite_or_null(known->gradient[i].wanted_norm), finite_or_null(known->gradient[i].error));
    put_word(t, " ] },\n");
}

/* known: NULL: the model has no file of values. */
static void put_checked_json(struct text *t, const char *model, const struct checked *checked, int n, int items,
                             const struct known_result *known) {
    const bool agree = all_agree(checked, n + items) && (!known || known_agrees(known));
    put(t, "{\n  \"schema\": 1,\n  \"model\": %s,\n  \"tolerance\": %g,\n  \"agree\": %s,\n", quoted(model), TOLERANCE,
        agree ? "true" : "false");
    if (known)
        put_comparison_json(t, known);
    put_word(t, "  \"units\": [");
    for (int i = 0; i < n; i++) {
        const struct rt_layer *l = checked[i].l;
        put(t, "%s\n    { \"unit\": %s, \"layer\": %d, \"rows\": %d, \"in\": %d, \"out\": %d, ", i ? "," : "",
            quoted(l->unit->name), l->index, l->rows, l->in, l->out);
        put_gradients_json(t, &checked[i]);
    }
    put_word(t, "\n  ],\n  \"items\": [");
    for (int i = n; i < n + items; i++) {
        const struct rt_layer *l = checked[i].l;
        put(t, "%s\n    { \"layer\": %d, \"layers\": [", i > n ? "," : "", l->index);
        for (int k = 0; k < checked[i].layers; k++)
            put(t, "%s%s", k ? ", " : "", quoted(name_of_layer(l + k)));
        put(t, "], \"rows\": %d, \"in\": %d, \"out\": %d, ", l->rows, l->in, l[checked[i].layers - 1].out);
        put_gradients_json(t, &checked[i]);
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
    if (c.spec->model->rt.precision == BF16)
        die("%s: computes in bf16, and the CPU, which tests it, in fp32: leave out its precision here", model);
    struct checked *checked = NEW(struct checked, c.spec->model->nlayers + c.spec->stages);
    open_units(c.spec->model, false);
    int n = check_named(&c, name, checked);
    if (name && n == 0)
        die("%s: has no unit '%s'", model, name);
    host_blas();
    int items = name ? 0 : check_model_items(&c, checked + n);
    const char *values = name ? NULL : c.spec->model->check.values;
    struct known_result known = {0};
    if (values)
        known = check_known(&c);
    const bool agree = all_agree(checked, n + items) && (!values || known_agrees(&known));
    if (settings->json)
        put_checked_json(&out, model, checked, n, items, values ? &known : NULL);
    for (int i = 0; i < n + items && !settings->json; i++)
        put_checked(&out, &checked[i]);
    if (values && !settings->json)
        put_known(&out, values, &known);
    write_file("-", &out);
    known_free(&known);
    return agree ? 0 : 1;
}
