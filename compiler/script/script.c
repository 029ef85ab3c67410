/* Turns scripts into plain data. A schedule, a model and a cluster are three independent Lua files. Each runs once, in
 * its own sandbox, where all its functions are called; callers never see Lua.
 *
 *   script.c            this: files and -D settings in, struct spec out; a PyTorch CSV is a script too
 *   script_sandbox.c    limits on what a script can do: instructions, memory
 *   script_library.c    library functions that charge as they run;  script_pattern.c: those with patterns
 *   script_globals.c    names that it can use
 *   script_error.c      messages with the script's line
 *   script_fields.c     tables and parameters
 *   script_schedule.c   schedule { … } to jobs, with script_preds.c and more for its fields
 *   script_updates.c    updates and versions
 *   script_model.c      model { … };  script_costs.c: a cost model;  script_cluster.c: cluster { … } */
#include "formats/formats.h"
#include "base/read_file.h"
#include "passes/passes.h"
#include "script.h"
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const script_kinds[] = {"schedule", "model", "cluster"};

static struct settings read_settings(const struct script_args *args) {
    struct settings set = {.n = args->nset};
    set.key = NEW(const char *, args->nset);
    set.value = NEW(const char *, args->nset);
    set.used = args->used ? args->used : NEW(bool, args->nset);
    for (int i = 0; i < args->nset; i++) {
        char *key = copy_string(args->set[i]), *equals = strchr(key, '=');
        if (!equals || equals == key)
            die("-D %s: expected key=value, such as -D workers=8", args->set[i]);
        *equals = 0;
        set.key[i] = key;
        set.value[i] = equals + 1;
    }
    return set;
}

static void check_settings(const struct settings *set) {
    for (int i = 0; i < set->n; i++)
        if (!set->used[i])
            die("-D %s=%s: no script has a parameter '%s'%s", set->key[i], set->value[i], set->key[i],
                hint(set->key[i], set->declared, (int)set->ndeclared));
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct param *)a)->name, ((const struct param *)b)->name);
}

/* Refuses outputs of a compile or a run, with a clearer message than Lua's. */
static void refuse_outputs(const struct script *script) {
    if (strncmp(script->src, "pianola 1\n", 10) == 0)
        die("%s: this is a program, not a script; `pianola verify` and `pianola diff` read it", script->file);
    if (strncmp(script->src, "rank\tlane\t", 10) == 0 || strncmp(script->src, "step\trank\t", 10) == 0)
        die("%s: this is a timeline, not a script; `pianola diff` reads it, and `pianola show SCHEDULE.lua --measured` "
            "reads one that was measured",
            script->file);
}

/* Reads a script. A schedule may be a PyTorch CSV, which is run as the script that import makes of it. */
static void read_script(struct script *script, const char *path, struct script_text *kept) {
    struct text lua = {0};
    if (!kept->src)
        kept->src = read_file(path, &kept->size);
    script->src = kept->src;
    script->size = kept->size;
    refuse_outputs(script);
    if (script->kind != SCRIPT_SCHEDULE || !is_torch(path, script->src))
        return;
    if (strlen(script->src) != script->size)
        die("%s: byte %zu is zero: this is not text", script->file, strlen(script->src));
    read_torch(&lua, script->file, script->src);
    script->src = lua.s;
    script->size = lua.n;
}

/* Runs a script. Returns the parameters it ran with, as text. */
static const char *run_script(enum script_kind kind, const char *path, struct settings *set,
                              void (*extract)(struct script *, void *), struct spec *sp,
                              const struct script_args *args) {
    struct script script = {.kind = kind, .set = set, .call.d = -1, .wanted = args->most, .later = args->later};
    script.uncut = args->uncut;
    struct script_text text_read = {0};
    script.file = strcmp(path, "-") ? path : "stdin";
    size_t n = strlen(path);
    if (n > 6 && strcmp(path + n - 6, ".d.lua") == 0)
        die("%s tells editors what scripts can use; it is not a script", path);
    read_script(&script, path, args->text ? &args->text[kind] : &text_read);
    sandbox_run(&script, extract, sp);
    if (kind == SCRIPT_SCHEDULE)
        sp->declared.effort = script.meter.effort;
    struct text text = {0};
    put(&text, "%s", "");
    if (script.nparams > 0)
        sort(script.param, script.nparams, sizeof *script.param, by_name);
    for (size_t i = 0; i < script.nparams; i++)
        put(&text, "%s%s=%s", i ? " " : "", script.param[i].name, script.param[i].value);
    GROW(sp->declared.param, sp->declared.params_capacity, sp->declared.nparams + script.nparams);
    for (size_t i = 0; i < script.nparams; i++)
        sp->declared.param[sp->declared.nparams++] = script.param[i];
    return text.s;
}

const char *script_name(const char *path) {
    const char *slash = strrchr(path, '/');
    char *name = copy_string(slash ? slash + 1 : path);
    size_t n = strlen(name);
    if (n > 4 && (!strcmp(name + n - 4, ".lua") || !strcmp(name + n - 4, ".csv")))
        name[n - 4] = 0;
    return strcmp(name, "-") ? name : "stdin";
}

/* Dies if the schedule's cost() counts units while the model counts FLOP, since sums of both mean nothing. */
static void check_cost_unit(const struct spec *sp) {
    for (int j = 0; j < sp->njobs; j++)
        if (sp->model && !is_costs(sp) && sp->machine.flops == 0 && !sp->machine.took && !isnan(sp->job[j].cost))
            die("%s: cost() says how long jobs take, but the model counts FLOP, and no sum of both means anything; "
                "give "
                "a cluster with flops, beside which cost() returns seconds, or leave cost() or --model out",
                sp->file);
}

/* Drops the weight gradients of stages that have none. Without a model, a schedule's word counts. */
static void drop_weight_gradients(struct spec *sp) {
    bool split = false;
    for (int j = 0; j < sp->njobs && !split; j++)
        split = sp->job[j].d == OP_W;
    if (split && sp->model)
        merge_backwards(sp, untrained_stages(sp));
}

struct spec *script_load(const struct script_args *args) {
    struct spec *sp = NEW(struct spec, 1);
    sp->choices.lanes = args->lanes;
    sp->choices.launch = args->launch;
    sp->choices.prefetch = args->prefetch;
    sp->declared.recompute = args->recompute;
    sp->choices.least_memory = args->least_memory;
    struct settings set = read_settings(args);
    sp->name = script_name(args->schedule);
    sp->file = args->schedule;
    sp->machine.memory = sp->machine.host_memory = INFINITY;
    sp->declared.params = run_script(SCRIPT_SCHEDULE, args->schedule, &set, extract_schedule, sp, args);
    set.n -= args->nsizes;
    if (args->model)
        run_script(SCRIPT_MODEL, args->model, &set, extract_model, sp, args);
    expand_teams(sp);
    name_spec_sets(sp, sp->model && sp->model->tied, sp->model && sp->model->shares);
    if (args->cluster)
        run_script(SCRIPT_CLUSTER, args->cluster, &set, extract_cluster, sp, args);
    sp->machine.memory = args->memory > 0 ? args->memory : sp->machine.memory;
    check_cost_unit(sp);
    if (!args->used)
        check_settings(&set);
    drop_weight_gradients(sp);
    return sp;
}

/* Makes F and B of each stage and microbatch. */
static void jobs_of_units(struct spec *sp) {
    sp->njobs = 2 * sp->stages * sp->batches;
    sp->job = NEW(struct job, sp->njobs);
    sp->at = NEW(int32_t, sp->stages * sp->batches * NDIRS);
    for (int i = 0; i < sp->stages * sp->batches * NDIRS; i++)
        sp->at[i] = -1;
    for (int j = 0; j < sp->njobs; j++) {
        struct job job = {.s = j / 2 / sp->batches, .b = j / 2 % sp->batches, .d = j % 2 ? OP_B : OP_F, .cost = NAN};
        sp->job[j] = job;
        sp->at[j / 2 * NDIRS + job.d] = j;
    }
}

struct spec *script_units(const struct script_args *args, int workers, int batches) {
    struct spec *sp = NEW(struct spec, 1);
    struct settings set = read_settings(args);
    sp->name = sp->file = args->model;
    sp->machine.memory = sp->machine.host_memory = INFINITY;
    sp->workers = workers;
    sp->batches = batches;
    sp->declared.params = "";
    sp->limits.cap = NEW(int, workers);
    sp->choices.slots = NEW(int, workers);
    for (int r = 0; r < workers; r++)
        sp->limits.cap[r] = INT_MAX;
    run_script(SCRIPT_MODEL, args->model, &set, extract_model, sp, args);
    sp->stages = sp->model->nitems;
    jobs_of_units(sp);
    name_spec_sets(sp, sp->model->tied, false);
    if (args->cluster)
        run_script(SCRIPT_CLUSTER, args->cluster, &set, extract_cluster, sp, args);
    if (!args->used)
        check_settings(&set);
    return sp;
}
