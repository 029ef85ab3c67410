/* `pianola partition`: cuts a model, from a profile or from a script, into replicated stages. */
#include "partition.h"
#include "base/put_json.h"
#include "base/read_file.h"
#include "cli/command.h"
#include "cli/pipeline.h"
#include "cli/files.h"
#include "units.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Sets up one level: --workers ranks, with --bandwidth or else the slowest link of the cluster. */
static void one_level(const struct settings *settings, const struct spec *sp, struct machines *machines) {
    double bandwidth = settings->partition.bandwidth;
    if (settings->partition.workers == 0)
        die("`partition` needs --workers N, or --levels such as 4x10e9,2x1.25e9");
    for (int64_t i = 0; bandwidth == 0 && sp && sp->machine.link && i < (int64_t)sp->workers * sp->workers; i++)
        machines->level[0].bandwidth = fmin(machines->level[0].bandwidth, sp->machine.link[i].bandwidth);
    if (bandwidth == 0 && !(sp && sp->machine.has_cluster))
        die("without a cluster `partition` needs --bandwidth, in bytes per second, or --levels such as "
            "4x10e9,2x1.25e9");
    machines->level[0].machines = (int)settings->partition.workers;
    if (bandwidth > 0)
        machines->level[0].bandwidth = bandwidth;
    machines->speed = sp ? sp->machine.speed : NULL;
    machines->nlevels = 1;
}

/* Reads "4x10e9,2x1.25e9": 4 machines a group, 2 groups. */
static void read_levels(const char *levels, struct machines *machines) {
    const char *s = levels;
    for (char *end;; s = end + 1) {
        long n = strtol(s, &end, 10);
        bool good = end > s && n >= 1 && n <= MOST_MACHINES && *end == 'x';
        s = end + 1;
        double bandwidth = good ? strtod(s, &end) : 0;
        if (!good || end == s || !(bandwidth >= LEAST_TIME && bandwidth <= MOST_TIME) || (*end && *end != ','))
            die("--levels %s: expected the ranks in a group x the bandwidth between them in bytes per second, then the "
                "number of groups x the bandwidth between groups, such as 4x10e9,2x1.25e9",
                levels);
        if (machines->nlevels == MOST_LEVELS || count_machines(machines) * n > MOST_MACHINES)
            die("--levels %s: at most %d levels and %d ranks", levels, MOST_LEVELS, MOST_MACHINES);
        machines->level[machines->nlevels++] = (struct level){(int)n, bandwidth};
        if (!*end)
            return;
    }
}

static int count_workers(const struct settings *settings) {
    struct machines machines = {0};
    if (!settings->partition.levels)
        return (int)settings->partition.workers;
    read_levels(settings->partition.levels, &machines);
    int n = count_machines(&machines);
    if (settings->partition.workers && settings->partition.workers != n)
        die("--workers %lld: --levels %s are %d ranks; leave --workers out", (long long)settings->partition.workers,
            settings->partition.levels, n);
    if (settings->partition.bandwidth > 0)
        die("--bandwidth and --levels exclude each other: the levels have their own");
    return n;
}

static struct machines machines_of(const struct settings *settings, const struct spec *sp) {
    struct machines machines = {
        .sum = settings->partition.sum, .ring = settings->partition.ring, .transfers = settings->partition.transfers};
    machines.memory = settings->partition.room > 0 ? settings->partition.room : INFINITY;
    machines.level[0].bandwidth = INFINITY;
    if (!settings->partition.levels) {
        one_level(settings, sp, &machines);
        return machines;
    }
    read_levels(settings->partition.levels, &machines);
    if (machines.nlevels > 1 && settings->partition.room > 0)
        die("--memory holds for one level of links: within a group it is not known how many ranks later stages "
            "have, and so how many minibatches a stage keeps; leave --memory out, or give --workers and --bandwidth");
    for (int r = 0; machines.nlevels > 1 && sp && sp->machine.speed && r < sp->workers; r++)
        if (sp->machine.speed[r] != 1)
            die("--levels: rank %d of the cluster has a speed of its own, but groups of ranks must be alike; give "
                "--workers and --bandwidth",
                r);
    machines.speed = machines.nlevels == 1 && sp ? sp->machine.speed : NULL;
    return machines;
}

/* Dies unless the options say where the layers and their times come from. */
static void check_sources(const struct settings *settings) {
    const struct script_args *args = &settings->args;
    if (settings->nfiles)
        die("`partition` takes no file, but got '%s'; name a profile with --profile, a model with --model",
            settings->file[0]);
    if (!settings->partition.profile == !args->model)
        die("`partition` needs %s --profile FILE or --model FILE.lua%s", args->model ? "either" : "a",
            args->model ? ", not both" : "");
    if (settings->partition.profile && args->cluster)
        die("--cluster goes with --model: a profile has its times, and --bandwidth says how fast links are");
    if (settings->partition.profile && args->nset)
        die("-D %s: a profile has no parameters", args->set[0]);
    if (settings->partition.workers > MOST_MACHINES)
        die("--workers %lld: expected at most %d", (long long)settings->partition.workers, MOST_MACHINES);
    check_destination(settings->output, settings);
}

static const struct profile *load_profile(const struct settings *settings, struct spec **sp) {
    if (settings->partition.profile)
        return read_profile(strcmp(settings->partition.profile, "-") ? settings->partition.profile : "stdin",
                            file_text(settings->partition.profile));
    *sp = script_units(&settings->args, count_workers(settings), 1);
    if (!is_costs(*sp) && !settings->args.cluster)
        die("for a model with layers, `partition` needs --cluster FILE.lua, whose flops convert FLOP to seconds");
    if (!is_costs(*sp) && (*sp)->machine.flops == 0 && !(*sp)->machine.took)
        die("%s: has no flops, so layers take FLOP and links seconds; add flops, the FLOP per second of a rank",
            settings->args.cluster);
    return profile_of(costs_make(*sp), settings->args.model);
}

/* ---- printing ---- */

static int count_layers(const struct cuts *cuts, const struct part *part) {
    int n = 0;
    for (int l = 0; l < cuts->profile->nlayers; l++)
        n += is_between(cuts, part->from, part->to, l);
    return n;
}

static void put_list(struct text *out, const char *key, const struct partition *p, int less) {
    put(out, "  \"%s\": [", key);
    for (int s = 0; s < p->nparts; s++)
        put(out, "%s%d", s ? ", " : "", p->part[s].versions - less);
    put(out, "],\n");
}

static void put_partition_json(struct text *out, const struct cuts *cuts, const struct partition *p, int workers) {
    char buf[32];
    put(out, "{\n  \"schema\": 1,\n  \"workers\": %d,\n  \"layers\": %d,\n", workers, cuts->profile->nlayers);
    put(out, "  \"seconds\": %s,\n", number_or_null(p->seconds, buf));
    put(out, "  \"speedup\": %s,\n", number_or_null(p->one / p->seconds, buf));
    put(out, "  \"speedup_over_data_parallel\": %s,\n", number_or_null(p->parallel / p->seconds, buf));
    put(out, "  \"noam\": %d,\n", p->part[0].versions);
    put_list(out, "warmups", p, 1);
    put_list(out, "versions", p, 0);
    put(out, "  \"stages\": [");
    for (int s = 0, first = 0; s < p->nparts; s++) {
        const struct part *part = &p->part[s];
        int n = count_layers(cuts, part);
        put(out, "%s\n    {\"first\": %d, \"last\": %d, \"replicas\": %d", s ? "," : "", first, first + n - 1,
            part->replicas);
        put(out, ", \"compute\": %s", number_or_null(part->compute, buf));
        put(out, ", \"synchronization\": %s", number_or_null(part->sync, buf));
        put(out, ", \"weights\": %s", number_or_null(cuts->weights[part->to] - cuts->weights[part->from], buf));
        put(out, ", \"output\": %s", number_or_null(s + 1 < p->nparts ? cuts->crossing[part->to] : 0, buf));
        put(out, ", \"layers\": [");
        for (int l = 0, k = 0; l < cuts->profile->nlayers; l++)
            if (is_between(cuts, part->from, part->to, l))
                put(out, "%s%s", k++ ? ", " : "", quoted(cuts->profile->layer[l].id));
        put(out, "]}");
        first += n;
    }
    put(out, "\n  ]\n}\n");
}

/* Returns the layers of a stage as numbers, with the names of the first and the last. */
static const char *range_of(const struct cuts *cuts, const struct part *part, int first) {
    const char *from = NULL, *to = NULL;
    for (int l = 0; l < cuts->profile->nlayers; l++)
        if (is_between(cuts, part->from, part->to, l)) {
            to = cuts->profile->layer[l].id;
            from = from ? from : to;
        }
    return format("%d..%d  %s .. %s", first, first + count_layers(cuts, part) - 1, from, to);
}

static void put_partition(struct text *out, const struct cuts *cuts, const struct partition *p, int workers,
                          bool ascii) {
    char buf[32];
    const char *layers[p->nparts];
    int width = 6;
    for (int s = 0, first = 0; s < p->nparts; first += count_layers(cuts, &p->part[s++])) {
        layers[s] = range_of(cuts, &p->part[s], first);
        width = (int)strlen(layers[s]) > width ? (int)strlen(layers[s]) : width;
    }
    struct measure measure = measure_of(p->seconds, "s", ascii);
    put(out, "%s: %s on %s; times in %s per minibatch\n\n", cuts->profile->name,
        counted(cuts->profile->nlayers, "layer"), counted(workers, "rank"), measure.name);
    put(out, "stage  %-*s  replicas  compute     sync  warm-ups  versions\n", width, "layers");
    for (int s = 0; s < p->nparts; s++) {
        const struct part *part = &p->part[s];
        put(out, "%5d  %-*s  %8d", s, width, layers[s], part->replicas);
        put(out, "  %7s", time_text(part->compute, &measure, buf));
        put(out, "  %7s  %8d  %8d\n", time_text(part->sync, &measure, buf), part->versions - 1, part->versions);
    }
    put(out, "\n%s %s per minibatch: ", time_text(p->seconds, &measure, buf), measure.name);
    put(out, "%.3f times as fast as one rank, %.3f times as data parallelism\n", p->one / p->seconds,
        p->parallel / p->seconds);
    put(out, "NOAM %d: minibatches at a time on each rank of the first stage\n", p->part[0].versions);
}

int cmd_partition(const struct settings *settings) {
    struct spec *sp = NULL;
    struct text out = {0}, script = {0};
    check_sources(settings);
    int workers = count_workers(settings);
    const struct profile *profile = load_profile(settings, &sp);
    struct machines machines = machines_of(settings, sp);
    const struct cuts *cuts = find_cuts(profile);
    const struct partition *p = find_partition(cuts, &machines);
    if (p->one == 0)
        die("%s: its layers take no time at all, so there is nothing to divide", profile->name);
    if (settings->output) {
        emit_partition(&script, cuts, p, sp == NULL);
        write_file(settings->output, &script);
        if (strcmp(settings->output, "-") == 0)
            return 0;
    }
    if (settings->json)
        put_partition_json(&out, cuts, p, workers);
    else
        put_partition(&out, cuts, p, workers, settings->draw.style.ascii);
    write_file("-", &out);
    return 0;
}
