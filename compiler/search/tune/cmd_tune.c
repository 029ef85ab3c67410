/* `pianola tune`: searches schedules and their parameters for the fastest step of a model on a cluster.
 *
 * First bounds every candidate. Then compiles the candidates that fit and may be among the best, best bound first. An
 * interrupt (SIGINT) ends the search: the best so far are printed, and the exit code is 130. */
#include "tune.h"
#include "base/read_file.h"
#include "cli/command.h"
#include "cli/pipeline.h"
#include "cli/files.h"
#include <math.h>
#include <string.h>
#include <unistd.h>

enum { BATCHES_PER_RANK = 4, AT_ONCE = 32, INTERRUPTED = 130 };

struct tuning {
    struct search_space space;
    struct ranking ranking;
    struct improvement improvement; /* for the winner */
    int next, done, total;          /* in the current phase */
    const char *phase;
};

/* ---- in a child ---- */

static void refuse_candidate(struct answer *answer, enum outcome outcome, const char *why) {
    answer->outcome = outcome;
    snprintf(answer->why, WHY, "%s", why);
}

/* Returns how many rows a microbatch has as --rows counts them: sequences of tokens, or rows. */
static int64_t counted_rows(const struct model *model) {
    int64_t rows = model->rt.input == INPUT_TOKENS ? model->rt.rows / model->rt.context : model->rt.rows;
    return rows > 0 ? rows : 1;
}

static void check_program_size(const struct search_space *space, const struct candidate *candidate,
                               const struct spec *sp, struct answer *answer) {
    int64_t rows = counted_rows(sp->model);
    if (sp->workers != space->workers)
        refuse_candidate(answer, REFUSED, format("it has %d ranks, not %d", sp->workers, space->workers));
    else if (rows != candidate->rows || whole_batches(sp) != candidate->batches)
        refuse_candidate(answer, REFUSED,
                         format("a step has %d microbatches of %lld rows, not %lld of %lld", whole_batches(sp),
                                (long long)rows, (long long)candidate->batches, (long long)candidate->rows));
}

/* One candidate, handled in a child */
struct task {
    const struct tuning *tuning;
    const struct candidate *candidate;
    struct answer *answer;
};

static struct task task_of(const struct tuning *tuning, int task, struct answer *answer) {
    return (struct task){tuning, &tuning->space.candidate[task], answer};
}

static void bound(void *context) {
    const struct task *task = context;
    const struct tuning *tuning = task->tuning;
    const struct candidate *candidate = task->candidate;
    struct answer *answer = task->answer;
    struct script_args args = args_of(&tuning->space, candidate);
    struct compile c = compile_of(script_load(&args), NULL);
    const struct spec *sp = c.spec;
    compile_until(&c, GRAPH);
    check_program_size(&tuning->space, candidate, sp, answer);
    answer->bound = fmax(least_makespan(&c) * (1 - tuning->space.judgement.level), LEAST_TIME);
    answer->least = least_memory(c.costs);
    if (answer->outcome == WAITING && (double)answer->least > sp->machine.memory)
        answer->outcome = BEYOND_MEMORY;
    if (answer->outcome != WAITING)
        answer->bound = 0;
}

/* Bounds several candidates in one child, since bounding one takes little longer than starting a child. */
static void bound_candidates(void *context, int task, void *to) {
    const struct tuning *tuning = context;
    struct answer *answer = to;
    for (int i = 0; i < AT_ONCE && task * AT_ONCE + i < tuning->space.n; i++) {
        struct scratch scratch = scratch_begin();
        struct task one = task_of(tuning, task * AT_ONCE + i, &answer[i]);
        if (!try(bound, &one))
            refuse_candidate(&answer[i], REFUSED, refusal_text());
        scratch_end(scratch);
    }
}

static void measure(void *context) {
    const struct task *task = context;
    const struct tuning *tuning = task->tuning;
    const struct judgement judgement = tuning->space.judgement;
    struct compile c = {.args = args_of(&tuning->space, task->candidate)};
    struct answer *answer = task->answer;
    compile_all(&c, "");
    answer->outcome = MEASURED;
    answer->makespan = c.report->makespan;
    if (judgement.level > 0) {
        const struct jitter *jitter = jitter_make(&c, judgement.level, judgement.seed, judgement.runs);
        answer->mean = jitter->mean;
        answer->p95 = jitter->p95;
    }
    for (int r = 0; r < c.report->workers; r++) {
        const struct rank_report *rank = &c.report->rank[r];
        answer->peak = rank->peak_bytes > answer->peak ? rank->peak_bytes : answer->peak;
        answer->fits = rank->least_bytes > answer->fits ? rank->least_bytes : answer->fits;
    }
    answer->context = c.spec->model->rt.input == INPUT_TOKENS ? c.spec->model->rt.context : 0;
    shares_of_time(&c, answer->share);
}

static void measure_candidate(void *context, int task, void *to) {
    const struct tuning *tuning = context;
    struct answer *answer = to;
    struct task one = task_of(tuning, task, answer);
    *answer = tuning->ranking.answer[task];
    if (!try(measure, &one))
        refuse_candidate(answer, is_beyond_memory(diag_text) ? BEYOND_MEMORY : REFUSED, refusal_text());
}

/* ---- the phases ---- */

static void tell_progress(const struct tuning *tuning) {
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\033[Kpianola: %s, %d of %d\r", tuning->phase, tuning->done, tuning->total);
}

static void take_answer(struct tuning *tuning, int task, const struct answer *answer) {
    struct answer *kept = &tuning->ranking.answer[task];
    if (answer)
        *kept = *answer;
    else
        refuse_candidate(kept, REFUSED, "the compiler failed; this is a bug: see what `check` says of it");
    tuning->done++;
    tell_progress(tuning);
}

static int next_to_bound(void *context) {
    struct tuning *tuning = context;
    return tuning->next * AT_ONCE < tuning->total ? tuning->next++ : -1;
}

static void take_bounds(void *context, int task, const void *answers) {
    struct tuning *tuning = context;
    const struct answer *answer = answers;
    for (int i = 0; i < AT_ONCE && task * AT_ONCE + i < tuning->total; i++)
        take_answer(tuning, task * AT_ONCE + i, answer ? &answer[i] : NULL);
}

/* Returns the next candidate in the order of bounds, skipping those above their bars. */
static int next_to_measure(void *context) {
    struct tuning *tuning = context;
    const struct ranking *ranking = &tuning->ranking;
    while (tuning->next < tuning->total) {
        int candidate = ranking->order[tuning->next++];
        if (ranking->answer[candidate].bound <= bar_of(ranking, candidate))
            return candidate;
    }
    return -1;
}

static void take_measured_answer(void *context, int task, const void *answer) {
    struct tuning *tuning = context;
    take_answer(tuning, task, answer);
    if (tuning->ranking.answer[task].outcome == MEASURED)
        rank_answer(&tuning->ranking, task);
}

static bool run_phase(struct tuning *tuning, const char *phase, int total, struct pool pool) {
    tuning->phase = phase;
    tuning->next = tuning->done = 0;
    tuning->total = total;
    pool.context = tuning;
    pool.size = sizeof(struct answer) * (pool.work == bound_candidates ? AT_ONCE : 1);
    tell_progress(tuning);
    bool whole = run_pool(&pool);
    if (isatty(STDERR_FILENO))
        fputs("\033[K", stderr);
    return whole;
}

/* ---- if none fits ---- */

static int next_beyond(void *context) {
    struct tuning *tuning = context;
    while (tuning->next < tuning->total && tuning->ranking.answer[tuning->next].outcome != BEYOND_MEMORY)
        tuning->next++;
    return tuning->next < tuning->total ? tuning->next++ : -1;
}

static void take_unlimited(void *context, int task, const void *answer) { take_answer(context, task, answer); }

/* Compiles the candidates that do not fit again, with the least memory and no limit, and dies with the smallest. */
static _Noreturn void die_of_memory(struct tuning *tuning) {
    struct script_args roomy = *tuning->space.args;
    double limit = roomy.memory;
    const struct answer *least = NULL;
    int which = 0;
    roomy.memory = INFINITY;
    roomy.least_memory = true;
    tuning->space.args = &roomy;
    run_phase(tuning, "the least memory", tuning->space.n,
              (struct pool){.next = next_beyond, .work = measure_candidate, .done = take_unlimited});
    for (int i = 0; i < tuning->space.n; i++) {
        const struct answer *answer = &tuning->ranking.answer[i];
        if (answer->outcome == MEASURED && (!least || answer->fits < least->fits)) {
            least = answer;
            which = i;
        }
    }
    if (!least)
        die("no candidate compiles");
    roomy.memory = (double)least->fits;
    roomy.least_memory = false;
    die("no candidate fits into %s; the least that any of them takes is %lld bytes of a rank: pianola show %s",
        limit > 0 ? format("%.0f bytes", limit) : "the cluster's memory", (long long)least->fits,
        options_of(&tuning->space, &tuning->space.candidate[which]));
}

static _Noreturn void die_of_refusals(const struct ranking *ranking) {
    const struct search_space *space = ranking->space;
    struct text t = {0};
    put_refusals(&t, ranking);
    const struct schedule_file *only = space->nschedules == 1 ? space->schedule : NULL;
    if (only && only->why) /* an error may name the file itself */
        die("%s%s", strstr(only->why, only->file) ? "" : format("%s: ", only->file), only->why);
    die("none of %d candidates compiles:\n%s", space->n, t.s ? t.s : "");
}

/* ---- the winner as a script ---- */

static const char *known_result(const char *result, const char *key) {
    if (!result)
        die("-o: the script has no plain default for %s that tune could replace; give it with the options above", key);
    return result;
}

/* Returns the schedule's text with its compiled parameters as defaults, and with its other settings as fields. */
static const char *winner_source(const struct search_space *space, const struct candidate *best, const char *src,
                                 bool again) {
    const struct schedule_file *file = &space->schedule[best->schedule];
    struct script_args args = args_of(space, best);
    for (int i = 0; i < args.nset; i++) {
        const char *equals = strchr(args.set[i], '=');
        const char *key = format("%.*s", (int)(equals - args.set[i]), args.set[i]);
        if (has_param(file->params, key))
            src = known_result(with_default(src, key, equals + 1), key);
        else if (!strcmp(key, "tensor"))
            src = known_result(with_field(src, format("tensor = %s", equals + 1)), key);
    }
    return again ? known_result(with_field(src, "recompute = true"), "recompute") : src;
}

/* Returns whether the text gives the candidate's step without the candidate's own settings, except the model's. */
static bool reproduces(const struct search_space *space, const struct candidate *best, const struct answer *answer,
                       const char *src, bool recompute) {
    struct compile c = {.args = args_of_script(space, best, recompute, src)};
    return try(compile_it, &c) && c.report->makespan == answer->makespan;
}

/* Returns the user's arguments without the settings that only schedules used. */
static struct script_args machine_args(const struct search_space *space) {
    struct script_args args = *space->args;
    args.set = NEW(const char *, args.nset);
    args.nset = 0;
    for (int i = 0; i < space->args->nset; i++)
        if (space->of_machines[i])
            args.set[args.nset++] = space->args->set[i];
    return args;
}

/* Writes the comment at the top. rest: the settings that the script itself does not make. */
static void put_script_header(struct text *out, const struct search_space *space, const struct candidate *rest,
                              double value, const char *path) {
    struct search_space plain = *space;
    struct script_args args = machine_args(space);
    char time[32];
    plain.args = &args;
    put(out, "-- Found by `pianola tune`, of %d candidates: %s s for a step of %lld rows%s. As it was found:\n",
        space->n, number(value, time), (long long)space->step_rows,
        space->judgement.level > 0 ? ", which 95 of 100 noisy ones do not exceed" : "");
    put(out, "-- pianola show %s\n", tame(options_of_file(&plain, rest, path)));
}

/* Writes the winner in its better order. */
static void write_improved(const struct tuning *tuning, const char *path) {
    const struct search_space *space = &tuning->space;
    const struct candidate *best = &space->candidate[tuning->ranking.best[0]];
    const struct improvement *improvement = &tuning->improvement;
    struct candidate rest = of_model(best, false);
    struct text out = {0};
    char before[32];
    put_script_header(&out, space, &rest, improvement->after, path);
    put(&out, "-- The jobs of %s in a better order: there, they take %s s.\n", tame(options_of(space, best)),
        number(improvement->before, before));
    put_bytes(&out, improvement->script.s, improvement->script.n);
    write_file(path, &out);
}

/* Writes the winner with its parameters as defaults. A sequence lists its jobs itself, so a script with one leaves
 * --recompute to the command line. */
static void write_winner(const struct tuning *tuning, const char *path) {
    const struct search_space *space = &tuning->space;
    const struct candidate *best = &space->candidate[tuning->ranking.best[0]];
    const struct answer *answer = &tuning->ranking.answer[tuning->ranking.best[0]];
    const struct schedule_file *schedule = &space->schedule[best->schedule];
    struct search_space plain = *space;
    struct script_args args = machine_args(space);
    struct candidate rest = of_model(best, best->recompute && space->args->recompute);
    struct text out = {0};
    size_t size;
    const char *src = without_picture(read_file(schedule->file, &size)),
               *found = winner_source(space, best, src, best->recompute);
    plain.args = &args;
    if (!reproduces(&plain, best, answer, found, rest.recompute)) {
        found = winner_source(space, best, src, false);
        rest.recompute = best->recompute;
        if (!reproduces(&plain, best, answer, found, rest.recompute))
            die("-o: %s with other defaults is not the same schedule; see above for the options that give it",
                schedule->file);
    }
    put_script_header(&out, space, &rest, rank_value(&tuning->ranking, tuning->ranking.best[0]), path);
    put(&out, "-- From %s.lua:\n%s", tame(schedule->name), found);
    write_file(path, &out);
}

/* ---- the command ---- */

static void check_options(const struct settings *settings) {
    const struct script_args *args = &settings->args;
    if (!args->model || !args->cluster)
        die("`tune` needs --model FILE.lua and --cluster FILE.lua; see `pianola help tune`");
    if (!settings->partition.workers)
        die("`tune` needs --workers N");
    if (settings->jitter.level == AS_MEASURED)
        die("--jitter measured: only show and compare take it; give a level, such as 10%%");
    if (settings->partition.workers > 4096)
        die("--workers %lld: at most 4096 ranks are possible", (long long)settings->partition.workers);
    if (is_set(args, "workers"))
        die("-D workers: `tune` takes the ranks from --workers");
    check_destination(settings->output, settings);
}

/* Returns whether the model has a parameter `rows`, that is, uses this setting. */
static bool takes_rows(const struct script_args *given) {
    struct script_args args = *given;
    bool used[given->nset + 1];
    const char *set[given->nset + 1];
    memcpy(set, given->set, sizeof *set * (size_t)given->nset);
    memset(used, 0, sizeof used);
    set[args.nset++] = "rows=1";
    args.set = set;
    args.used = used;
    args.cluster = NULL;
    script_units(&args, 1, 1);
    return used[given->nset];
}

/* Loads the model and the cluster alone: an error in them is an error of all candidates. */
static void load_machines(struct search_space *space, const struct settings *settings) {
    const struct script_args *args = &settings->args;
    const struct spec *sp = script_units(args, space->workers, 1);
    if (!is_costs(sp) && sp->machine.flops == 0 && !sp->machine.took)
        die("%s: has no flops, so layers take FLOP and links seconds; add flops, the FLOP per second of a rank",
            args->cluster);
    space->rows = counted_rows(sp->model);
    space->of_machines = NEW(bool, args->nset + 1);
    memcpy(space->of_machines, args->used, sizeof *args->used * (size_t)args->nset);
    space->vary_rows = !is_set(args, "rows") && takes_rows(args);
    space->step_rows = settings->search.rows ? settings->search.rows : BATCHES_PER_RANK * space->rows * space->workers;
    if (!space->vary_rows && space->step_rows % space->rows != 0)
        die("--rows %lld: microbatches of %lld rows do not add up to that", (long long)space->step_rows,
            (long long)space->rows);
}

static void list_schedule_files(struct search_space *space, const struct settings *settings) {
    const char *const *file = settings->file;
    space->nschedules = settings->nfiles;
    space->named = settings->nfiles > 0;
    if (!settings->nfiles)
        file = shipped_schedules(&space->nschedules);
    space->schedule = NEW(struct schedule_file, space->nschedules);
    for (int i = 0; i < space->nschedules; i++)
        space->schedule[i].file = file[i];
}

static void check_used(const struct script_args *args) {
    for (int i = 0; i < args->nset; i++)
        if (!args->used[i])
            die("-D %s: none of the scripts has this parameter", args->set[i]);
}

static void search_all(struct tuning *tuning) {
    struct ranking *ranking = &tuning->ranking;
    begin_ranking(ranking);
    ranking->interrupted =
        !run_phase(tuning, "bounds", tuning->space.n,
                   (struct pool){.next = next_to_bound, .work = bound_candidates, .done = take_bounds});
    if (ranking->interrupted)
        return;
    order_by_bound(ranking);
    ranking->interrupted =
        !run_phase(tuning, "simulated", ranking->n,
                   (struct pool){.next = next_to_measure, .work = measure_candidate, .done = take_measured_answer});
}

/* Proves the better order's program, like every other program, and checks that it takes as long as claimed. */
static void confirm(const struct tuning *tuning) {
    const struct improvement *improvement = &tuning->improvement;
    const struct judgement judgement = tuning->space.judgement;
    const struct candidate *best = &tuning->space.candidate[tuning->ranking.best[0]];
    struct compile c = {.args = args_of_script(&tuning->space, best, false, improvement->script.s)};
    compile_all(&c, "");
    double takes = c.report->makespan;
    if (judgement.level > 0)
        takes = jitter_make(&c, judgement.level, judgement.seed, judgement.runs)->p95;
    if (takes != improvement->after)
        die("the better order takes %.17g, not %.17g; this is a bug of the compiler, please report it", takes,
            improvement->after);
}

static void improve_best(struct tuning *tuning, uint64_t seed) {
    const struct ranking *ranking = &tuning->ranking;
    int best = ranking->best[0];
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\033[Kpianola: orders of the best\r");
    tuning->improvement = improve_winner(&tuning->space, &tuning->space.candidate[best], rank_value(ranking, best),
                                         tuning->space.judgement, seed);
    if (tuning->improvement.script.n)
        confirm(tuning);
    tuning->ranking.interrupted = !tuning->improvement.why && !tuning->improvement.whole;
    if (isatty(STDERR_FILENO))
        fputs("\033[K", stderr);
}

int cmd_tune(const struct settings *settings) {
    struct script_args args = settings->args;
    double level = settings->jitter.level > 0 ? settings->jitter.level : 0;
    struct tuning tuning = {.space = {.args = &args,
                                      .workers = (int)settings->partition.workers,
                                      .judgement = {level, settings->seed, settings->jitter.runs}}};
    struct ranking *ranking = &tuning.ranking;
    struct text out = {0};
    check_options(settings);
    args.used = NEW(bool, args.nset + 1);
    load_machines(&tuning.space, &(struct settings){.args = args, .search.rows = settings->search.rows});
    list_schedule_files(&tuning.space, settings);
    list_candidates(&tuning.space);
    ranking->space = &tuning.space;
    check_used(&args);
    search_all(&tuning);
    count_outcomes(ranking);
    if (ranking->nbest > 0 && !ranking->interrupted)
        improve_best(&tuning, settings->seed);
    if (ranking->nbest == 0 && ranking->interrupted)
        die("interrupted before anything was simulated");
    if (ranking->nbest == 0 && ranking->beyond > 0)
        die_of_memory(&tuning);
    if (ranking->nbest == 0)
        die_of_refusals(ranking);
    if (settings->json)
        put_tuned_json(&out, ranking, &tuning.improvement);
    else
        put_tuned(&out, ranking, &tuning.improvement,
                  (struct tuned_style){settings->search.all, settings->draw.style.ascii});
    write_file("-", &out);
    if (settings->output)
        (tuning.improvement.script.n ? write_improved : write_winner)(&tuning, settings->output);
    return ranking->interrupted ? INTERRUPTED : 0;
}
