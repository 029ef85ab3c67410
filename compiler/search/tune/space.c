/* The candidates. For every schedule:
 *
 *   tensor     every divisor of the ranks: the schedule's own parameter, or the number of ranks for each of its ranks
 *   workers    the ranks; if tensor is not the schedule's own parameter, the ranks / tensor
 *   rows       rows per microbatch: every divisor of a step's rows, if the model has that parameter
 *   batches    a step's rows / rows per microbatch; at most MOST_BATCHES per rank
 *   recompute  no, yes
 *   and the values in its field `tune` for its other parameters, such as replicas, chunks and zero
 *
 * A parameter that the user sets with -D is not varied. A candidate that a script or the compiler refuses is not an
 * error here, but is counted. */
#include "tune.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_BATCHES = 16, MOST_CANDIDATES = 1000000 };

static int64_t value_of_setting(const struct script_args *args, const char *key) {
    int64_t value = 0;
    for (int i = 0; i < args->nset; i++)
        if (sets_key(args->set[i], key))
            value = atoll(strchr(args->set[i], '=') + 1); /* the scripts reject values that are no number */
    return value;
}

/* Returns whether "workers=8 batches=8" names the parameter. */
bool has_param(const char *params, const char *key) {
    for (const char *p = params; *p; p += strcspn(p, " "), p += *p == ' ')
        if (sets_key(p, key))
            return true;
    return false;
}

/* ---- the schedules ---- */

/* Returns the error of a refused candidate, with the line if the script itself is at fault. */
const char *refusal_text(void) {
    size_t end = strcspn(diag_text, "\n");
    const char *text = diag_text, *mark = strstr(diag_text, "error: ");
    if (mark && mark < diag_text + end)
        text = mark + strlen("error: ");
    const char *why = format("%.*s", (int)strcspn(text, "\n"), text), *line = mark ? mark - 2 : diag_text;
    while (line > diag_text && isdigit((unsigned char)line[-1]))
        line--;
    if (!script_broken || line == diag_text)
        return why;
    const char *file = format("%.*s", (int)(line - 1 - diag_text), diag_text);
    return format("%s fails at its line %d: %s", script_name(file), atoi(line), why);
}

struct describing {
    struct script_args args;
    struct schedule_file *file;
};

static void describe_choices(void *context) {
    const struct describing *describing = context;
    struct schedule_file *file = describing->file;
    const struct spec *sp = script_load(&describing->args);
    file->params = sp->declared.params;
    file->tuned = sp->declared.tuned;
    file->ntuned = sp->declared.ntuned;
    file->why = sp->updates.every ? "it updates weights within the step, so it trains to another result"
                : !has_param(sp->declared.params, "workers") || !has_param(sp->declared.params, "batches")
                    ? "it has no parameters workers and batches"
                    : NULL;
}

static void describe_schedule(const struct search_space *space, struct schedule_file *file) {
    struct describing describing = {*space->args, file};
    file->name = script_name(file->file);
    describing.args.schedule = file->file;
    describing.args.model = describing.args.cluster = NULL;
    if (try(describe_choices, &describing))
        return;
    if (space->named && (script_broken || space->nschedules == 1))
        die_again();
    file->why = refusal_text();
}

/* ---- their parameters ---- */

struct choice {
    const char *key, **value;
    int n;
};

static struct choice divisors(const char *key, int64_t of) {
    struct choice choice = {.key = key};
    size_t cap = 0;
    for (int64_t d = 1; d <= of; d++)
        if (of % d == 0) {
            GROW(choice.value, cap, (size_t)choice.n + 1);
            choice.value[choice.n++] = format("%lld", (long long)d);
        }
    return choice;
}

static void add_choice(struct search_space *space, const struct candidate *base, const struct choice *choice,
                       const int *at, int n) {
    struct candidate *c;
    if (space->n == MOST_CANDIDATES)
        die("more than %d candidates; fix some of their parameters with -D, or name fewer schedules", MOST_CANDIDATES);
    GROW(space->candidate, space->cap, (size_t)space->n + 1);
    c = &space->candidate[space->n++];
    *c = *base;
    c->set = NEW(const char *, base->nset + n);
    memcpy(c->set, base->set, sizeof *c->set * (size_t)base->nset);
    for (int i = 0; i < n; i++)
        c->set[c->nset++] = format("%s=%s", choice[i].key, choice[i].value[at[i]]);
    c->nsizes += n;
}

/* Adds all combinations of the values in the script's `tune` field, varying the last parameter fastest. */
static void vary_tuned(struct search_space *space, const struct candidate *base, int64_t workers) {
    const struct schedule_file *file = &space->schedule[base->schedule];
    struct choice choice[file->ntuned + 1];
    int at[file->ntuned + 1], n = 0;
    for (int i = 0; i < file->ntuned; i++) {
        const struct tuned *tuned = &file->tuned[i];
        if (!is_set(space->args, tuned->name))
            choice[n++] =
                tuned->n ? (struct choice){tuned->name, tuned->value, tuned->n} : divisors(tuned->name, workers);
    }
    memset(at, 0, sizeof at);
    for (int i = n; i >= 0;) {
        add_choice(space, base, choice, at, n);
        for (i = n - 1; i >= 0 && ++at[i] == choice[i].n; i--)
            at[i] = 0;
        if (i < 0)
            return;
    }
}

/* Adds candidates with `tensor` ranks to a team and microbatches of `rows` rows, without and with recomputation. */
static void vary_recompute(struct search_space *space, int schedule, int64_t tensor, int64_t rows) {
    const struct script_args *args = space->args;
    bool own = has_param(space->schedule[schedule].params, "tensor");
    int64_t workers = own ? space->workers : space->workers / tensor;
    const char *set[4];
    struct candidate base = {.schedule = schedule, .rows = rows, .batches = space->step_rows / rows, .set = set};
    if (base.batches > (int64_t)MOST_BATCHES * space->workers ||
        (is_set(args, "batches") && value_of_setting(args, "batches") != base.batches))
        return;
    if (space->vary_rows)
        set[base.nset++] = format("rows=%lld", (long long)rows);
    int shared = base.nset;
    set[base.nset++] = format("workers=%lld", (long long)workers);
    set[base.nset++] = format("batches=%lld", (long long)base.batches);
    if ((own || tensor > 1) && !is_set(args, "tensor"))
        set[base.nset++] = format("tensor=%lld", (long long)tensor);
    base.nsizes = base.nset - shared;
    for (int again = args->recompute; again <= 1; again++) {
        base.recompute = again;
        vary_tuned(space, &base, workers);
    }
}

static void vary_rows(struct search_space *space, int schedule, int64_t tensor) {
    for (int64_t rows = 1; rows <= space->step_rows; rows++)
        if (space->step_rows % rows == 0 && (space->vary_rows || rows == space->rows))
            vary_recompute(space, schedule, tensor, rows);
}

void list_candidates(struct search_space *space) {
    int64_t fixed = value_of_setting(space->args, "tensor");
    for (int i = 0; i < space->nschedules; i++) {
        describe_schedule(space, &space->schedule[i]);
        for (int64_t tensor = 1; !space->schedule[i].why && tensor <= space->workers; tensor++)
            if (space->workers % tensor == 0 && (!is_set(space->args, "tensor") || tensor == fixed))
                vary_rows(space, i, tensor);
    }
}

/* ---- as arguments ---- */

struct script_args args_of(const struct search_space *space, const struct candidate *candidate) {
    struct script_args args = *space->args;
    int own = candidate->nset;
    args.schedule = space->schedule[candidate->schedule].file;
    args.set = NEW(const char *, args.nset + own);
    memcpy(args.set, space->args->set, sizeof *args.set * (size_t)args.nset);
    memcpy(args.set + args.nset, candidate->set, sizeof *args.set * (size_t)own);
    args.nset += own;
    args.nsizes = candidate->nsizes;
    args.used = NEW(bool, args.nset);
    args.recompute = candidate->recompute;
    return args;
}

struct candidate of_model(const struct candidate *candidate, bool recompute) {
    struct candidate plain = *candidate;
    plain.nset -= plain.nsizes;
    plain.nsizes = 0;
    plain.recompute = recompute;
    return plain;
}

struct script_args args_of_script(const struct search_space *space, const struct candidate *candidate, bool recompute,
                                  const char *src) {
    struct candidate plain = of_model(candidate, recompute);
    struct script_args args = args_of(space, &plain);
    args.text = NEW(struct script_text, 3);
    args.text[0] = (struct script_text){copy_string(src), strlen(src)};
    return args;
}

static void put_choice(struct text *t, const char *option, const char *value) {
    put(t, " %s ", option);
    put_shell(t, value);
}

static bool sets_already(const struct candidate *candidate, const char *setting) {
    bool same = false;
    for (int i = 0; i < candidate->nset; i++)
        same |= strcmp(candidate->set[i], setting) == 0;
    return same;
}

const char *options_of_file(const struct search_space *space, const struct candidate *candidate, const char *file) {
    struct text t = {0};
    put_shell(&t, file);
    for (int i = 0; i < candidate->nset; i++)
        put_choice(&t, "-D", candidate->set[i]);
    for (int i = 0; i < space->args->nset; i++)
        if (!sets_already(candidate, space->args->set[i]))
            put_choice(&t, "-D", space->args->set[i]);
    if (candidate->recompute)
        put_word(&t, " --recompute");
    put_choice(&t, "--model", space->args->model);
    put_choice(&t, "--cluster", space->args->cluster);
    if (space->args->memory > 0)
        put(&t, " --memory %.0f", space->args->memory);
    return t.s;
}

const char *options_of(const struct search_space *space, const struct candidate *candidate) {
    return options_of_file(space, candidate, space->schedule[candidate->schedule].file);
}
