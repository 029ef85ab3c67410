/* `pianola compile` in a page: what a folder gets, without the ranks' programs, and what the page shows besides: the
 * picture, the report alone, and the scripts' parameters. One compile makes them all. What is in sight comes first, and
 * the page shows it while the rest is written. */
#include "base/put_json.h"
#include "cli/command.h"
#include "cli/compile.h"
#include "cli/files.h"
#include "cli/format_table.h"
#include "cli/options.h"
#include <emscripten.h>
#include <string.h>

/* [{"script", "name", "type", "value", "default", "values"}]: what the scripts' `params` declared; values: those that
 * the script's `tune` lists, or []. Behind them the compiler's own options, of the script "compiler", with "what" they
 * do. */
static void put_param(struct text *t, const char *script, const char *name, const char *type, const char *value,
                      const char *otherwise) {
    put(t, "%s\n  { \"script\": %s, \"name\": %s", t->n > 1 ? "," : "", quoted(script), quoted(name));
    put(t, ", \"type\": %s, \"value\": %s", quoted(type), quoted(value));
    put(t, ", \"default\": %s, \"values\": [", quoted(otherwise));
}

static void put_params(struct text *t, const struct spec *sp) {
    put(t, "[");
    for (size_t i = 0; i < sp->nparams; i++) {
        const struct param *param = &sp->param[i];
        const char *comma = "";
        put_param(t, param->script, param->name, param->type, param->value, param->otherwise);
        for (int k = 0; k < sp->ntuned; k++)
            for (int v = 0; !strcmp(sp->tuned[k].name, param->name) && v < sp->tuned[k].n; v++, comma = ", ")
                put(t, "%s%s", comma, quoted(sp->tuned[k].value[v]));
        put(t, "] }");
    }
}

static void put_options(struct text *t, const struct script_args *args) {
    const char *memory = args->memory > 0 ? format("%.17g", args->memory) : args->least_memory ? "least" : "spare";
    const struct {
        const char *name, *type;
        int value;
        const char *text;
    } all[] = {{"lanes", "string", (int)args->lanes, NULL},
               {"launch-order", "string", (int)args->launch, NULL},
               {"prefetch", "string", (int)args->prefetch, NULL},
               {"memory", "text", 0, memory},
               {"recompute", "boolean", 0, args->recompute ? "true" : "false"}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const struct option_row *o = option_named(all[i].name);
        int n;
        const char **word = option_words(o, &n);
        put_param(t, "compiler", format("--%s", o->name), all[i].type, all[i].text ? all[i].text : word[all[i].value],
                  word ? word[0] : "false");
        for (int k = 0; k < n; k++)
            put(t, "%s%s", k ? ", " : "", quoted(word[k]));
        put(t, "], \"what\": %s }", quoted(o->what));
    }
    put(t, "\n]\n");
}

static void add(const char *dir, const char *name, const struct text *t) {
    stage_file(format("%s/%s", dir, name), t, false);
}

EM_JS(void, tell_page, (void), {
    if (Module.seen)
        Module.seen();
})

static void add_formats(const char *dir, const struct compile *c, const struct style *style, bool in_sight) {
    static const struct style plain = {.width = 120, .ascii = true};
    for (int i = 0; i < nformats; i++) {
        struct text t = {0};
        bool picture = strcmp(formats[i].name, "svg") == 0, shown = picture || strcmp(formats[i].name, "json") == 0;
        if ((!formats[i].file && !picture) || shown != in_sight)
            continue;
        formats[i].emit(&t, c, picture ? style : &plain);
        add(dir, picture ? "timeline.svg" : formats[i].file, &t);
    }
}

int cmd_compile(const struct settings *settings) {
    static const struct style plain = {.width = 120, .ascii = true};
    if (!settings->output)
        die("`compile` needs -o DIR");
    const char *dir = folder_named(settings->output);
    struct compile c = {.args = settings->args};
    struct text report = {0}, params = {0};
    compile_all(&c, settings->dump);
    make_folder(dir);
    add_formats(dir, &c, &settings->style, true);
    emit_report(&report, c.report, &plain);
    add(dir, "report.txt", &report);
    put_params(&params, c.spec);
    put_options(&params, &settings->args);
    add(dir, "params.json", &params);
    place_files();
    tell_page();
    add_formats(dir, &c, &settings->style, false);
    place_files();
    return 0;
}
