/* `pianola compile` in a page: writes a folder's files except the ranks' programs, and also what the page shows: the
 * picture's data, the report, and the scripts' parameters. One compile makes them all. It writes the visible files
 * first, and the page shows them while a second run writes the rest. */
#include "base/put_json.h"
#include "cli/command.h"
#include "cli/pipeline.h"
#include "cli/files.h"
#include "cli/format_table.h"
#include "cli/options.h"
#include "draw/view.h"
#include <emscripten.h>
#include <string.h>

/* Writes [{"script", "name", "type", "value", "default", "values"}], the scripts' declared `params`. values: those that
 * the script's `tune` lists, or []. The compiler's own options follow, with script "compiler" and "what" they do. */
static void put_param(struct text *t, const char *script, const char *name, const char *type, const char *value,
                      const char *otherwise) {
    put(t, "%s\n  { \"script\": %s, \"name\": %s", t->n > 1 ? "," : "", quoted(script), quoted(name));
    put(t, ", \"type\": %s, \"value\": %s", quoted(type), quoted(value));
    put(t, ", \"default\": %s, \"values\": [", quoted(otherwise));
}

static void put_params(struct text *t, const struct spec *sp) {
    put(t, "[");
    for (size_t i = 0; i < sp->declared.nparams; i++) {
        const struct param *param = &sp->declared.param[i];
        const char *comma = "";
        put_param(t, param->script, param->name, param->type, param->value, param->otherwise);
        for (int k = 0; k < sp->declared.ntuned; k++)
            for (int v = 0; !strcmp(sp->declared.tuned[k].name, param->name) && v < sp->declared.tuned[k].n;
                 v++, comma = ", ")
                put(t, "%s%s", comma, quoted(sp->declared.tuned[k].value[v]));
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
        const struct command *compile = find_command("compile", false);
        const struct option_row *o = option_named(all[i].name, compile);
        int n;
        const char **word = option_words(o, &n);
        put_param(t, "compiler", format("--%s", o->name), all[i].type, all[i].text ? all[i].text : word[all[i].value],
                  word ? word[0] : "false");
        for (int k = 0; k < n; k++)
            put(t, "%s%s", k ? ", " : "", quoted(word[k]));
        put(t, "], \"what\": %s }", quoted(option_text(o, compile)));
    }
    put(t, "\n]\n");
}

static void add(const char *dir, const char *name, const struct text *t) {
    stage_file(format("%s/%s", dir, name), t, false);
}

/* Returns whether only what the page shows first is requested: the picture's data and the figures. */
EM_JS(bool, page_first, (void), { return Boolean(Module.first); })

/* Extras of the picture: the options --with and --color-by, which `show` has and `compile` lacks. */
EM_JS(int, page_with, (void), { return (Module.look && Module.look.with) | 0; })
EM_JS(int, page_by, (void), { return (Module.look && Module.look.by) | 0; })

/* Adds the formats' files; with `first`, the report alone. */
static void list_formats(const char *dir, const struct compile *c, bool first) {
    static const struct style plain = {.width = 120, .ascii = true};
    for (int i = 0; i < nformats; i++) {
        struct text t = {0};
        if (!formats[i].file || (first && strcmp(formats[i].name, "json") != 0))
            continue;
        formats[i].emit(&t, c, &plain);
        add(dir, formats[i].file, &t);
    }
}

int cmd_compile(const struct settings *settings) {
    static const struct style plain = {.width = 120, .ascii = true};
    if (!settings->output)
        die("`compile` needs -o DIR");
    const char *dir = folder_named(settings->output);
    struct compile c = {.args = settings->args};
    struct text report = {0}, params = {0}, view = {0};
    struct style style = settings->draw.style;
    style.with = page_with();
    style.by = (enum color_by)page_by();
    compile_all(&c, settings->dump);
    make_folder(dir);
    list_formats(dir, &c, page_first());
    emit_view(&view, c.program, c.timeline, c.report, c.spec->machine.memory, &style);
    add(dir, "view.json", &view);
    emit_report(&report, c.report, &plain);
    add(dir, "report.txt", &report);
    put_params(&params, c.spec);
    put_options(&params, &settings->args);
    add(dir, "params.json", &params);
    place_files();
    return 0;
}
