/* `pianola compile` in a page: what a folder gets, without the ranks' programs, and what the page shows besides: the
 * picture, the report alone, and the scripts' parameters. One compile makes them all. What is in sight comes first, and
 * the page shows it while the rest is written. */
#include "base/put_json.h"
#include "cli/command.h"
#include "cli/compile.h"
#include "cli/files.h"
#include "cli/format_table.h"
#include <emscripten.h>
#include <string.h>

/* [{"script", "name", "type", "value", "default", "values"}]; values: those that the script's `tune` lists, or []. */
static void put_params(struct text *t, const struct spec *sp) {
    put(t, "[");
    for (size_t i = 0; i < sp->nparams; i++) {
        const struct param *param = &sp->param[i];
        put(t, "%s\n  { \"script\": %s, \"name\": %s", i ? "," : "", quoted(param->script), quoted(param->name));
        put(t, ", \"type\": %s, \"value\": %s", quoted(param->type), quoted(param->value));
        put(t, ", \"default\": %s, \"values\": [", quoted(param->otherwise));
        for (int k = 0; k < sp->ntuned; k++)
            for (int v = 0; !strcmp(sp->tuned[k].name, param->name) && v < sp->tuned[k].n; v++)
                put(t, "%s%s", v ? ", " : "", quoted(sp->tuned[k].value[v]));
        put(t, "] }");
    }
    put(t, "\n]\n");
}

static void add(const char *dir, const char *name, const struct text *t) {
    stage_file(format("%s/%s", dir, name), t, false);
}

EM_JS(void, tell_page, (void), { if (Module.seen) Module.seen(); })

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
    add(dir, "params.json", &params);
    place_files();
    tell_page();
    add_formats(dir, &c, &settings->style, false);
    place_files();
    return 0;
}
