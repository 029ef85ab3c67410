/* Reads the head of the program's text form: what comes before the ranks' sections. */
#include "read_text.h"
#include <string.h>

/* Reads a schedule's name: one word, in which %HH stands for any byte. */
static const char *schedule_name(struct reader *in) {
    static const char hex[] = "0123456789ABCDEF";
    struct text t = {0};
    put_bytes(&t, "", 0);
    for (; (unsigned char)*in->p > ' '; in->p++) {
        char c = *in->p;
        const char *high = NULL, *low = NULL;
        if (c == '%') {
            high = in->p[1] ? strchr(hex, in->p[1]) : NULL;
            low = high && in->p[2] ? strchr(hex, in->p[2]) : NULL;
            if (!low)
                FAIL(in, in->p, "expected two of 0-9 A-F after %%");
            c = (char)((high - hex) * 16 + (low - hex));
            in->p += 2;
        }
        put_bytes(&t, &c, 1);
    }
    return t.s;
}

static struct job_name job(struct reader *in) {
    struct job_name name = {.d = (uint8_t)read_name(in, "a job", op_name, NDIRS)};
    read_word(in, " ");
    name.s = read_stage(in, true);
    read_word(in, " ");
    name.b = read_batch(in);
    return name;
}

static const char *set_name(const struct program *p, int32_t s) {
    struct text t = {0};
    put_stage(&t, &p->names, s);
    return t.s;
}

/* Reads the sets without weights, ascending: `bare 1 3`. */
static void read_bare(struct reader *in) {
    struct program *p = in->prog;
    const char *at = in->p;
    if (!read_if(in, "bare"))
        return;
    if ((size_t)sets_in(p) > strlen(in->p)) /* bounds the memory taken for them */
        FAIL(in, at, "%d sets of weights are too many for this file", sets_in(p));
    p->bare = NEW(bool, sets_in(p));
    int32_t last = -1;
    do {
        read_word(in, " ");
        const char *set = in->p;
        int32_t s = read_stage(in, false);
        if (s <= last)
            FAIL(in, set, "sets ascend, each only once");
        p->bare[last = s] = true;
    } while (*in->p == ' ');
    read_end(in);
}

static struct ranges read_ranges(struct reader *in) {
    struct ranges list = {0};
    struct byte_range *at = NULL;
    size_t cap = 0;
    do {
        read_word(in, " ");
        const char *place = in->p;
        if (list.n == UINT8_MAX)
            FAIL(in, place, "a job has at most %d parts", UINT8_MAX);
        GROW(at, cap, (size_t)list.n + 1);
        struct byte_range range = {0, 0};
        if (!read_if(in, "-")) {
            range.from = read_integer(in, "the first byte that a part contributes", 0, INT64_MAX - 1);
            read_word(in, "-");
            range.to = read_integer(in, "the byte after the last that a part contributes", range.from + 1, INT64_MAX);
        }
        at[list.n++] = range;
    } while (*in->p == ' ');
    list.at = at;
    return list;
}

/* Reads the bytes that each part of a backward contributes, by stage, B before W: `parts B 0: 4096-8256 - 0-4096`. */
static void read_contributed(struct reader *in) {
    struct program *p = in->prog;
    if (strncmp(in->p, "parts ", 6))
        return;
    if ((size_t)p->stages > strlen(in->p)) /* bounds the memory taken for them */
        FAIL(in, in->p, "%d stages are too many for this file", p->stages);
    p->contributed = NEW(struct ranges, (int64_t)p->stages * NDIRS);
    for (int64_t last = -1, line; read_if(in, "parts "); last = line) {
        const char *at = in->p;
        int d = read_name(in, "a job", op_name, NDIRS);
        read_word(in, " ");
        int32_t s = read_stage(in, true);
        line = (int64_t)s * NDIRS + d;
        if (d != OP_B && d != OP_W)
            FAIL(in, at, "%s contributes to no gradient; only B and W do", op_name[d]);
        if (!has_weights(p, s))
            FAIL(in, at, "stage %s has no weights", set_name(p, s));
        if (line <= last)
            FAIL(in, at, "stages ascend, B comes before W, each only once");
        read_word(in, ":");
        p->contributed[line] = read_ranges(in);
        read_end(in);
    }
}

static int next_with_weights(const struct program *p, int s) {
    while (s < sets_in(p) && !has_weights(p, s))
        s++;
    return s;
}

/* Reads the homes of each set that has weights, if any is sharded: `homes 2 zero 1: 0 1, 2 3`. */
static void read_homes(struct reader *in) {
    struct program *p = in->prog;
    size_t cap_homes = 0;
    for (int s = next_with_weights(p, 0), next; s < sets_in(p) && !strncmp(in->p, "homes ", 6); s = next) {
        struct homes homes = {.zero = 0};
        size_t cap = 0;
        int n = 0;
        read_word(in, "homes ");
        const char *set = in->p;
        if (read_stage(in, false) != s)
            FAIL(in, set, "expected the next set, %s", set_name(p, s));
        if (read_if(in, " zero "))
            homes.zero = (int)read_integer(in, "zero", 1, 2);
        in->listed++;
        for (read_word(in, ":"); *in->p == ' ' || *in->p == ',';) {
            const char *at = in->p;
            if (read_if(in, ",")) {
                homes.size = homes.lists++ ? homes.size : n;
                if (n != homes.lists * homes.size)
                    FAIL(in, at, "lists that are replicas have the same length");
            }
            read_word(in, " ");
            GROW(homes.rank, cap, (size_t)n + 1);
            homes.rank[n++] = read_new_rank(in);
        }
        homes.size = homes.lists++ ? homes.size : n;
        if (!n || n != homes.lists * homes.size)
            FAIL(in, in->p, n ? "lists that are replicas have the same length" : "expected a rank");
        read_end(in);
        next = next_with_weights(p, s + 1);
        GROW(p->homes, cap_homes, (size_t)next);
        p->homes[s] = homes;
        for (int bare = s + 1; bare < next; bare++)
            p->homes[bare] = (struct homes){.size = 1};
        for (int bare = s - 1; bare >= 0 && !has_weights(p, bare); bare--)
            p->homes[bare] = (struct homes){.size = 1};
        if (next < sets_in(p) && strncmp(in->p, "homes ", 6))
            FAIL(in, in->p, "expected \"homes %s\": if one set has such a line, all must have one", set_name(p, next));
    }
}

/* Reads what each job needs, if pred() set it: `needs F 1 3: F 0 3, F 0 2`. */
static void read_needs(struct reader *in) {
    struct program *p = in->prog;
    size_t cap = 0, pred_cap = 0, npreds = 0;
    while (read_if(in, "needs ")) {
        GROW(p->need, cap, (size_t)p->nneeds + 2);
        p->need[p->nneeds++] = (struct need){job(in), (int32_t)npreds};
        read_word(in, ":");
        while (read_if(in, npreds > (size_t)p->need[p->nneeds - 1].pred ? ", " : " ")) {
            GROW(p->pred, pred_cap, npreds + 1);
            p->pred[npreds++] = job(in);
        }
        read_end(in);
        p->need[p->nneeds].pred = (int32_t)npreds;
    }
}

/* Reads updates that are jobs, and the period: `updates 1 1 3`, `period 12 times 100`. */
static void read_updates_line(struct reader *in) {
    struct program *p = in->prog;
    int m = 0, slices = slices_of(&p->names), batches = p->batches / slices;
    p->repeats = 1;
    if (!read_if(in, "updates"))
        return;
    p->update = NEW(int, sets_in(p));
    for (int s = 0; s < p->stages; s++) {
        if (p->names.member && p->names.member[s].place > 0) {
            p->update[s] = m;
            continue;
        }
        read_word(in, " ");
        const char *at = in->p;
        m = (int)read_integer(in, "the microbatches of an update", 1, batches);
        if (batches % m)
            FAIL(in, at, "%d microbatches are not a whole number of updates of %d", batches, m);
        p->update[s] = m *= slices;
    }
    updates_of_sets(&p->names, p->stages, p->update);
    read_end(in);
    if (!read_if(in, "period "))
        return;
    const char *at = in->p;
    p->period = slices * (int)read_integer(in, "the microbatches of a period", 1, batches);
    for (int s = 0; s < p->stages; s++)
        if (p->period % p->update[s])
            FAIL(in, at, "a period of %d microbatches is not a whole number of updates of stage %s, of %d each",
                 p->period / slices, set_name(p, s), p->update[s] / slices);
    read_word(in, " times ");
    p->repeats = read_integer(in, "how often the period runs", 1, (INT64_MAX - p->batches) / p->period);
    read_end(in);
}

/* ---- teams: `team 0 of 4: F sum sum, B sum late - sum late -` ---- */

struct team {
    int32_t stage, size; /* stage as the script counts */
    bool whole;
    struct exchanges exchange[NDIRS];
};

static struct exchanges read_exchanges(struct reader *in) {
    struct exchanges list = {0};
    struct exchange *at = NULL;
    size_t cap = 0;
    const char *place = in->p;
    do {
        bool follows_late = list.n > 0 && at[list.n - 1].late;
        read_word(in, " ");
        place = in->p;
        if (list.n == UINT8_MAX - 1)
            FAIL(in, in->p, "a job has at most %d parts", UINT8_MAX);
        GROW(at, cap, (size_t)list.n + 1);
        struct exchange exchange = {OP_none, false};
        if (!read_if(in, "-")) {
            exchange.op = (uint8_t)(OP_ALL_REDUCE_A + read_name(in, "an exchange", exchange_name, NEXCHANGES));
            exchange.late = read_if(in, " late");
        }
        if (follows_late && !exchange.late && exchange.op != OP_none)
            FAIL(in, place,
                 "the part after it would get two exchanges: after a late exchange must come another late one, or -");
        at[list.n++] = exchange;
    } while (*in->p == ' ');
    if (at[list.n - 1].late)
        FAIL(in, place, "no part gets it: after a late exchange must come another late one, or -");
    list.at = at;
    return list;
}

static struct team read_team(struct reader *in, int32_t least) {
    struct team team = {0};
    team.stage = (int32_t)read_integer(in, "a stage after the stages of earlier lines", least, in->prog->stages - 1);
    read_word(in, " of ");
    const char *at = in->p;
    team.size = (int32_t)read_integer(in, "how many members", 2, INT32_MAX);
    if (team.size > in->prog->workers)
        FAIL(in, at, "a team of %d, but there are only %d workers", team.size, in->prog->workers);
    team.whole = !read_if(in, " divided");
    int last = -1;
    while (read_if(in, last < 0 ? ": " : ", ")) {
        at = in->p;
        int d = read_name(in, "a job", op_name, NDIRS);
        if (d <= last)
            FAIL(in, at, "%s comes before %s, each only once", op_name[d], op_name[last]);
        team.exchange[d] = read_exchanges(in);
        last = d;
    }
    read_end(in);
    return team;
}

/* Makes a stage for each member of each team; up to here, stages count as in the script. */
static void divide_stages(struct reader *in, const struct team *team, int nteams, int32_t all) {
    struct program *p = in->prog;
    int stages = p->stages;
    int32_t *first = NEW(int32_t, stages + 1);
    struct member *member = NEW(struct member, all);
    bool *whole = NEW(bool, all), any = false;
    p->exchange = NEW(struct exchanges, (int64_t)all * NDIRS);
    for (int s = 0; s < stages; s++) {
        const struct team *its = nteams && team->stage == s ? team : NULL;
        int size = its ? its->size : 1;
        for (int place = 0; place < size; place++) {
            member[first[s] + place] = (struct member){s, its ? place : -1, size};
            any |= whole[first[s] + place] = its && its->whole;
            if (its)
                memcpy(&p->exchange[((int64_t)first[s] + place) * NDIRS], its->exchange, sizeof its->exchange);
        }
        first[s + 1] = first[s] + size;
        nteams -= its != NULL;
        team += its != NULL;
    }
    p->names.member = member;
    p->names.whole = any ? whole : NULL;
    p->names.first = first;
    p->names.stages = stages;
    p->stages = all;
    p->unembedding = first[p->unembedding];
}

static void read_teams(struct reader *in) {
    const char *at = in->p;
    struct team *team = NULL;
    size_t cap = 0, n = 0, lines = 0;
    int64_t all = in->prog->stages;
    while (read_if(in, "team ")) {
        GROW(team, cap, n + 1);
        team[n] = read_team(in, n ? team[n - 1].stage + 1 : 0);
        all += team[n++].size - 1;
    }
    if (!n)
        return;
    for (const char *s = in->p; (s = strchr(s, '\n')); s++)
        lines++;
    if ((size_t)all > lines) { /* also bounds the memory taken for them */
        in->line -= (int)n;
        in->start = at;
        FAIL(in, at, "%d stages have %lld members, each with jobs of its own; the file has %zu more lines",
             in->prog->stages, (long long)all, lines);
    }
    divide_stages(in, team, (int)n, (int32_t)all);
}

/* Reads the stages on which slices read each other's keys and values, ascending; `attention none`: no stage. */
static void read_attention(struct reader *in) {
    struct program *p = in->prog;
    if (!p->names.slices || !read_if(in, "attention"))
        return;
    const char *at = in->p;
    int n = 0;
    if ((size_t)p->stages > strlen(in->p)) /* bounds the memory taken for them */
        FAIL(in, at, "%d stages are too many for this file", p->stages);
    p->attends = NEW(bool, p->stages);
    for (int32_t s = -1, last = -1; !read_if(in, " none") && *in->p == ' '; n++, last = s) {
        read_word(in, " ");
        if ((s = read_stage(in, true)) <= last)
            FAIL(in, at, "stages ascend, each only once");
        p->attends[s] = true;
    }
    if (n == p->stages)
        FAIL(in, at, "all stages: leave this line out");
    read_end(in);
}

void read_head(struct reader *in) {
    struct program *p = in->prog;
    if (!read_if(in, "pianola 1"))
        FAIL(in, in->p, "expected \"pianola 1\", the first line of a program's text form");
    read_end(in);
    read_word(in, "program ");
    p->name = schedule_name(in);
    read_word(in, " workers ");
    int sections = 0;
    for (const char *s = in->p; (s = strstr(s, "\nrank ")); s++)
        sections++;
    const char *at = in->p;
    p->workers = (int)read_integer(in, "how many workers", 1, INT32_MAX);
    if (p->workers > sections / 3) /* also bounds the memory taken for them */
        FAIL(in, at, "%d workers have three sections each, lane, issue and memory; the file has %d in all", p->workers,
             sections);
    read_word(in, " stages ");
    p->stages = (int)read_integer(in, "how many stages", 1, INT32_MAX);
    read_word(in, " batches ");
    p->batches = (int)read_integer(in, "how many microbatches", 1, INT32_MAX);
    if (read_if(in, " slices ")) {
        p->names.slices = (int)read_integer(in, "how many slices a microbatch has", 2, INT32_MAX / p->batches);
        p->batches *= p->names.slices;
    }
    p->tied = read_if(in, " tied ");
    if (p->tied)
        p->unembedding = (int)read_integer(in, "the stage of the unembedding", 0, p->stages - 1);
    const char *shared = in->p, *start = in->start;
    bool shares = read_if(in, " shared");
    read_end(in);
    p->rank = NEW(struct rank, p->workers);
    p->group = NEW(struct group, sections);
    in->groups = map_new((size_t)sections);
    in->grouped = NEW(int32_t, sections);
    in->gathered = NEW(int32_t, sections);
    in->teamed = NEW(int32_t, sections);
    in->in_list = NEW(int32_t, p->workers);
    in->sent = NEW(int32_t, p->workers);
    in->received = NEW(int32_t, p->workers);
    read_teams(in);
    name_sets(&p->names, p->stages, p->tied, shares);
    if (shares && !p->names.member) {
        in->line = 2;
        in->start = start;
        FAIL(in, shared, "no stage has a team whose members could share weights");
    }
    read_bare(in);
    read_contributed(in);
    read_attention(in);
    read_updates_line(in);
    read_homes(in);
    read_needs(in);
}
