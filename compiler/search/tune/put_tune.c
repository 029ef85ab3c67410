/* Prints the answer of `pianola tune`. */
#include "base/put_json.h"
#include "draw/draw.h"
#include "tune.h"
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- reasons ---- */

/* Returns what makes a candidate slower than the best: the share of time that grew most. NULL: none did. */
static const char *reason(const struct answer *best, const struct answer *answer) {
    double most = 1e-9 * best->makespan;
    int why = -1;
    for (int i = 0; i < NSHARES; i++) {
        double more = answer->share[i] * answer->makespan - best->share[i] * best->makespan;
        if (more > most) {
            most = more;
            why = i;
        }
    }
    if (why < 0)
        return answer->peak > best->peak ? "more memory" : "the same";
    const char *exposed = why >= SHARE_MESSAGES ? "exposed " : "";
    return format("%s%s %.1f %%", exposed, share_name[why], 100 * answer->share[why]);
}

/* Returns the exposed communication by kind: "teams 3.1 %, reductions 2.0 %". */
static const char *exposed_text(const struct answer *answer) {
    struct text t = {0};
    for (int i = SHARE_MESSAGES; i < NSHARES; i++)
        if (answer->share[i] >= 0.0005)
            put(&t, "%s%s %.1f %%", t.n ? ", " : "", share_name[i], 100 * answer->share[i]);
    return t.n ? t.s : "-";
}

/* ---- refusals that differ only in their numbers ---- */

struct refusal {
    const char *why; /* the first one's */
    char *key;
    int n;
};

static char *without_numbers(const char *why) {
    char *key = copy_string(why), *to = key;
    for (const char *p = why; *p; p++)
        if (!isdigit((unsigned char)*p))
            *to++ = *p;
        else if (to == key || to[-1] != '#')
            *to++ = '#';
    *to = 0;
    return key;
}

static int by_count(const void *x, const void *y) {
    const struct refusal *a = x, *b = y;
    return a->n != b->n ? b->n - a->n : strcmp(a->key, b->key);
}

static int by_reason(const void *x, const void *y) {
    const struct refusal *a = x, *b = y;
    int order = strcmp(a->key, b->key);
    return order ? order : strcmp(a->why, b->why);
}

/* Lists the kinds of refusals that count_outcomes counts; returns their number. */
static int list_refusals(const struct ranking *ranking, struct refusal **list) {
    struct refusal *all = NEW(struct refusal, ranking->space->n);
    int n = 0, kinds = 0;
    for (int i = 0; i < ranking->space->n; i++) {
        const struct answer *answer = &ranking->answer[i];
        if (answer->outcome == REFUSED && answer->bound <= bar_of(ranking, i))
            all[n++] = (struct refusal){answer->why, without_numbers(answer->why), 1};
    }
    sort(all, (size_t)n, sizeof *all, by_reason);
    for (int i = 0; i < n; i++)
        if (kinds > 0 && strcmp(all[kinds - 1].key, all[i].key) == 0)
            all[kinds - 1].n++;
        else
            all[kinds++] = all[i];
    sort(all, (size_t)kinds, sizeof *all, by_count);
    *list = all;
    return kinds;
}

/* ---- for people ---- */

static double per_second(const struct answer *answer, int64_t rows) {
    return (double)rows * (answer->context ? answer->context : 1) / answer->makespan;
}

/* Prints one candidate: its figures, why it is slower than the first, and the command that shows it. */
static void put_candidate(struct text *out, const struct ranking *ranking, int place, int candidate,
                          const struct measure *measure) {
    const struct search_space *space = ranking->space;
    int best = ranking->best[0];
    const struct answer *first = &ranking->answer[best], *answer = &ranking->answer[candidate];
    char time[32], bytes[32];
    put(out, "%2d  %11s  ", place, time_text(answer->makespan, measure, time));
    if (space->judgement.level > 0) {
        put(out, "%7s  ", time_text(answer->mean, measure, time));
        put(out, "%7s  ", time_text(answer->p95, measure, time));
    }
    put(out, "%12.0f  %10s  %5.1f %%  %s\n", per_second(answer, space->step_rows),
        bytes_text((double)answer->peak, bytes), 100 * answer->share[SHARE_BUBBLE], exposed_text(answer));
    if (candidate != best)
        put(out, "    %+.1f %%: %s\n", 100 * (rank_value(ranking, candidate) / rank_value(ranking, best) - 1),
            reason(first, answer));
    put(out, "    pianola show %s\n", options_of(space, &space->candidate[candidate]));
}

static void put_best(struct text *out, const struct ranking *ranking, struct tuned_style style) {
    const struct answer *first = &ranking->answer[ranking->best[0]];
    struct measure measure = measure_of(first->makespan, "s", style.ascii);
    bool noisy = ranking->space->judgement.level > 0;
    int list[2 * BEST], n = list_ranked(ranking, style.all, list), others = list_ranked(ranking, true, list) - n;
    put(out, "    %7s %3s  %s%12s  %10s  %7s  %s\n", "time", measure.name, noisy ? "   mean      p95  " : "",
        first->context ? "tokens/s" : "rows/s", "memory", "bubble", "exposed");
    list_ranked(ranking, style.all, list);
    for (int i = 0; i < n; i++)
        put_candidate(out, ranking, i + 1, list[i], &measure);
    if (others > 0)
        put(out, "the best of each schedule; --all prints %d more variants of them, which are among the %d best\n",
            others, ranking->nbest);
}

void put_refusals(struct text *out, const struct ranking *ranking) {
    const struct search_space *space = ranking->space;
    struct refusal *refusal;
    int kinds = list_refusals(ranking, &refusal);
    for (int i = 0; i < kinds; i++)
        put(out, "  refused %d: %s\n", refusal[i].n, refusal[i].why);
    for (int i = 0; i < space->nschedules; i++)
        if (space->schedule[i].why)
            put(out, "  not tried: %s: %s\n", space->schedule[i].name, space->schedule[i].why);
}

static void put_outcomes(struct text *out, const struct ranking *ranking) {
    put(out, "\n%s: %d simulated, %d slower by their bounds, %d beyond memory, %d refused\n",
        counted(ranking->space->n, "candidate"), ranking->simulated, ranking->slower, ranking->beyond,
        ranking->refused);
    put_refusals(out, ranking);
    if (ranking->interrupted)
        put_word(out, "interrupted: these are the best of what was simulated by then\n");
}

static void put_improvement(struct text *out, const struct ranking *ranking, const struct improvement *improvement,
                            bool ascii) {
    char before[32], after[32];
    if (!improvement->why && improvement->orders == 0)
        return;
    if (improvement->why) {
        put(out, "\nlocal search over orders of the first: not tried: %s\n", improvement->why);
        return;
    }
    struct measure measure = measure_of(improvement->before, "s", ascii);
    put(out, "\nlocal search over %s of the first's jobs%s: ", counted(improvement->orders, "order"),
        improvement->whole ? "" : ", until it was interrupted");
    if (improvement->after < improvement->before)
        put(out, "%s%s instead of %s %s (%+.1f %%)\n", ranking->space->judgement.level > 0 ? "a p95 of " : "",
            time_text(improvement->after, &measure, after), time_text(improvement->before, &measure, before),
            measure.name, 100 * (improvement->after / improvement->before - 1));
    else
        put_word(out, "none is better\n");
}

void put_tuned(struct text *out, const struct ranking *ranking, const struct improvement *improvement,
               struct tuned_style style) {
    const struct search_space *space = ranking->space;
    int context = ranking->answer[ranking->best[0]].context;
    put(out, "%s on %s, %s a step%s\n\n", script_name(space->args->model), counted(space->workers, "rank"),
        counted(space->step_rows, "row"), context ? format(", %s a row", counted(context, "token")) : "");
    put_best(out, ranking, style);
    put_improvement(out, ranking, improvement, style.ascii);
    put_outcomes(out, ranking);
}

/* ---- as JSON ---- */

static void put_candidate_json(struct text *out, const struct ranking *ranking, int i) {
    const struct search_space *space = ranking->space;
    const struct answer *answer = &ranking->answer[i];
    const struct candidate *candidate = &space->candidate[i];
    char a[32], b[32];
    put(out, "\n    {\"schedule\": %s", quoted(space->schedule[candidate->schedule].name));
    put(out, ", \"best_of_schedule\": %s", is_fastest(ranking, i) ? "true" : "false");
    put(out, ", \"batches\": %lld, \"rows\": %lld, \"recompute\": %s", (long long)candidate->batches,
        (long long)candidate->rows, candidate->recompute ? "true" : "false");
    put(out, ", \"makespan\": %s, \"lower_bound\": %s", number(answer->makespan, a), number(answer->bound, b));
    if (space->judgement.level > 0)
        put(out, ", \"mean\": %s, \"p95\": %s", number(answer->mean, a), number(answer->p95, b));
    put(out, ", \"%s_per_second\": %s, \"peak_bytes\": %lld", answer->context ? "tokens" : "rows",
        number(per_second(answer, space->step_rows), a), (long long)answer->peak);
    put_word(out, ", \"shares\": {");
    for (int k = 0; k < NSHARES; k++)
        put(out, "%s\"%s\": %s", k ? ", " : "", share_name[k], number(answer->share[k], a));
    put(out, "}, \"why\": %s",
        i == ranking->best[0] ? "null" : quoted(reason(&ranking->answer[ranking->best[0]], answer)));
    put(out, ", \"options\": %s}", quoted(options_of(space, candidate)));
}

static void put_improvement_json(struct text *out, const struct improvement *improvement) {
    char before[32], after[32];
    if (improvement->why)
        put(out, "{\"not_tried\": %s}", quoted(improvement->why));
    else if (improvement->orders > 0)
        put(out, "{\"before\": %s, \"after\": %s, \"orders\": %lld}", number(improvement->before, before),
            number(improvement->after, after), (long long)improvement->orders);
    else
        put_word(out, "null");
}

void put_tuned_json(struct text *out, const struct ranking *ranking, const struct improvement *improvement) {
    const struct search_space *space = ranking->space;
    struct refusal *refusal;
    int kinds = list_refusals(ranking, &refusal), list[2 * BEST], n = list_ranked(ranking, true, list);
    put(out, "{\n  \"schema\": 1,\n  \"workers\": %d,\n  \"rows\": %lld,\n  \"best\": [", space->workers,
        (long long)space->step_rows);
    for (int i = 0; i < n; i++) {
        put_word(out, i ? "," : "");
        put_candidate_json(out, ranking, list[i]);
    }
    put_word(out, "\n  ],\n  \"improved\": ");
    put_improvement_json(out, improvement);
    put(out, ",\n  \"candidates\": %d,\n  \"simulated\": %d,\n  \"slower\": %d,\n", space->n, ranking->simulated,
        ranking->slower);
    put(out, "  \"beyond_memory\": %d,\n  \"refused\": %d,\n  \"refusals\": [", ranking->beyond, ranking->refused);
    for (int i = 0; i < kinds; i++)
        put(out, "%s\n    {\"n\": %d, \"why\": %s}", i ? "," : "", refusal[i].n, quoted(refusal[i].why));
    put_word(out, "\n  ],\n  \"not_tried\": [");
    for (int i = 0, n = 0; i < space->nschedules; i++)
        if (space->schedule[i].why)
            put(out, "%s\n    {\"schedule\": %s, \"why\": %s}", n++ ? "," : "", quoted(space->schedule[i].name),
                quoted(space->schedule[i].why));
    put(out, "\n  ],\n  \"interrupted\": %s\n}\n", ranking->interrupted ? "true" : "false");
}
