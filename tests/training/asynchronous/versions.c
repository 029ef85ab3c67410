/* The version of the weights that each job reads: by formula, and as a program declares it. */
#include "formulas.h"
#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the papers' formulas ---- */

int formula(const struct training *t, int s, int b, enum job job) {
    int n = t->stages, newest = b / t->update[s], delay = 0;
    switch (t->rule) {
    case STASHING: delay = n - 1 - s; break;
    case VERTICAL: delay = n - 1; break;
    case NAIVE: delay = job == BACKWARD ? 0 : n - 1 - s; break;
    case DOUBLE: delay = 1; break;
    default: break; /* SYNC; unused without a formula */
    }
    if (t->rule != NAIVE || job != BACKWARD)
        delay += t->late;
    return newest < delay ? 0 : delay < 0 ? newest : newest - delay;
}

/* Returns by how many updates, at least and at most, the rule lets the job lag. */
static void allowed(const struct training *t, int s, int b, enum job job, int *least, int *most) {
    int newest = b / t->update[s], ranks = 0;
    *least = *most = newest - formula(t, s, b, job);
    if (has_formula(t))
        return;
    for (int i = s; i < t->stages; i++)
        ranks += t->update[i];
    int flight = (ranks + t->update[s] - 1) / t->update[s];
    *least = t->rule == REPLICAS ? flight - 1 : 0;
    *most = t->rule != REPLICAS ? newest : t->update[s] > 1 ? flight : flight - 1;
    *least = *least < newest ? *least : newest;
    *most = *most < newest ? *most : newest;
}

void check_versions(const struct training *t) {
    for (int s = 0; s < t->stages; s++)
        for (int b = 0; b < t->batches; b++) {
            const int *version = &t->version[(s * t->batches + b) * NJOBS];
            for (enum job job = FORWARD; job < NJOBS; job++) {
                int least, most, behind = b / t->update[s] - version[job];
                allowed(t, s, b, job, &least, &most);
                if (version[job] < 0)
                    continue;
                if (behind < least || behind > most)
                    fail("%c %d %d reads version %d, by the rule %d", "FRB"[job], s, b, version[job],
                         version[job] + behind - (behind < least ? least : most));
                if (t->rule != ANY && t->rule != NAIVE && version[job] != version[FORWARD])
                    fail("%c %d %d reads version %d, and the forward %d", "FRB"[job], s, b, version[job],
                         version[FORWARD]);
            }
        }
}

/* ---- the program's text form ---- */

struct instr {
    char op[16];
    int s, b, part, version; /* b: for an update, its number */
    int place;               /* place in the stage's team: 1 in F 0.1 3 */
};

struct lane { /* a lane of the rank being read */
    struct instr *at;
    int n, room, issued;
};

struct reader {
    struct training *t;
    const char *path;
    FILE *file;
    struct lane *lane;
    int nlanes, period, repeats, written; /* written: microbatches written out */
    bool jobs, told;                      /* jobs: updates are jobs; told: the head has been read */
    int *updates;                         /* [stage][update]: number of ranks */
    int *version;                         /* as in training, for each place in a team: [place][…] */
    int members[MOST_STAGES];
    int section; /* section being issued: before, in or after the period */
};

/* Reads the version after the label: "v4". */
static int version_in(const char *line) {
    const char *at = strchr(line, 'v');
    for (; at; at = strchr(at + 1, 'v'))
        if (at > line && at[-1] == ' ' && isdigit((unsigned char)at[1]))
            return atoi(at + 1);
    return -1;
}

static void read_instr(struct reader *in, struct lane *lane, const char *line) {
    struct instr x = {.b = -1, .version = -1};
    int at = 0;
    if (sscanf(line, "%15s %d%n", x.op, &x.s, &at) < 2)
        fail("%s: no instruction: %s", in->path, line);
    if (line[at] == '.')
        x.place = (int)strtol(line + at + 1, (char **)&line, 10);
    else
        line += at;
    sscanf(line, " %d[%d", &x.b, &x.part);
    x.version = version_in(line);
    if (lane->n == lane->room) {
        lane->room = 2 * lane->room + 16;
        lane->at = realloc(lane->at, (size_t)lane->room * sizeof *lane->at);
        if (!lane->at)
            fail("out of memory");
    }
    lane->at[lane->n++] = x;
}

/* Notes one occurrence of a job in the step. */
static void note_job(struct reader *in, const struct instr *x, enum job job, int b, int v) {
    struct training *t = in->t;
    if (x->s < 0 || x->s >= t->stages || b < 0 || b >= t->batches || x->place >= in->members[x->s])
        fail("%s: %s %d %d: the step has no such job", in->path, x->op, x->s, b);
    int *version = &in->version[((x->place * t->stages + x->s) * t->batches + b) * NJOBS + job];
    if (*version >= 0 && (x->part == 0 || *version != v))
        fail("%s: %s %d %d occurs twice, or reads two versions", in->path, x->op, x->s, b);
    if (v < 0)
        fail("%s: %s %d %d does not say which version it reads", in->path, x->op, x->s, b);
    *version = v;
}

/* Notes the instruction as often as it runs. */
static void note(struct reader *in, const struct instr *x) {
    struct training *t = in->t;
    static const char *const names[] = {"F", "R", "B", "I"};
    int job = -1, first = in->section == 2 ? in->repeats - 1 : 0, end = in->section == 1 ? in->repeats : first + 1;
    for (int i = 0; i < 4; i++)
        job = strcmp(x->op, names[i]) == 0 ? i : job;
    bool is_update = strcmp(x->op, "U") == 0;
    if (job < 0 && !is_update)
        return;
    for (int i = first; i < end; i++) {
        int b = x->b + i * in->period;
        if (!is_update)
            note_job(in, x, job > BACKWARD ? BACKWARD : (enum job)job, b,
                     in->jobs ? x->version < 0 ? -1 : x->version + i * in->period / t->update[x->s] : 0);
        else {
            int k = in->jobs ? x->b + i * in->period / t->update[x->s] : 0;
            if (x->s < 0 || x->s >= t->stages || k < 0 || k >= t->batches / t->update[x->s])
                fail("%s: U %d %d: the step has no such update", in->path, x->s, k);
            in->updates[x->s * t->batches + k]++;
        }
    }
}

static void begin_program(struct reader *in) {
    struct training *t = in->t;
    in->told = true;
    int batches = in->written + (in->repeats - 1) * in->period;
    if (t->batches && t->batches != batches)
        fail("%s: has %d microbatches, not %d", in->path, batches, t->batches);
    t->batches = batches;
    for (int s = 0; s < t->stages && !in->jobs; s++)
        t->update[s] = t->batches;
    size_t n = (size_t)(t->stages * t->batches);
    in->version = malloc(MOST_MEMBERS * n * NJOBS * sizeof *in->version);
    in->updates = calloc(n, sizeof *in->updates);
    if (!in->version || !in->updates)
        fail("out of memory");
    memset(in->version, -1, MOST_MEMBERS * n * NJOBS * sizeof *in->version);
    t->version = in->version; /* the first members' versions */
}

static void read_head(struct reader *in, char *line) {
    struct training *t = in->t;
    int stages;
    if (sscanf(line, "program %*s workers %*d stages %d batches %d", &stages, &in->written) == 2 && stages != t->stages)
        fail("%s: has %d stages, not %d", in->path, stages, t->stages);
    sscanf(line, "period %d times %d", &in->period, &in->repeats);
    int s, members;
    if (sscanf(line, "team %d of %d", &s, &members) == 2) {
        if (s < 0 || s >= t->stages || members > MOST_MEMBERS)
            fail("%s: stage %d has a team of %d; at most %d", in->path, s, members, MOST_MEMBERS);
        in->members[s] = members;
    }
    if (strncmp(line, "updates ", 8) == 0) {
        in->jobs = true;
        char *at = line + 8;
        for (int s = 0; s < t->stages; s++)
            if ((t->update[s] = (int)strtol(at, &at, 10)) < 1)
                fail("%s: bad line of updates", in->path);
    }
}

/* Reads "0*3 | 1 0": the lanes of the next instructions; | marks the begin and the end of the period. */
static void read_issue(struct reader *in, char *line) {
    for (char *word = strtok(line, " \n"); word; word = strtok(NULL, " \n")) {
        if (strcmp(word, "|") == 0) {
            in->section++;
            continue;
        }
        int l = 0, run = 1;
        sscanf(word, "%d*%d", &l, &run);
        for (; run > 0; run--) {
            if (l < 0 || l >= in->nlanes || in->lane[l].issued == in->lane[l].n)
                fail("%s: lane %d has nothing left to issue", in->path, l);
            note(in, &in->lane[l].at[in->lane[l].issued++]);
        }
    }
}

static void end_rank(struct reader *in) {
    for (int l = 0; l < in->nlanes; l++) {
        if (in->lane[l].issued < in->lane[l].n)
            fail("%s: a lane has instructions that are not issued", in->path);
        free(in->lane[l].at);
    }
    if (in->nlanes && in->section != (in->period ? 2 : 0))
        fail("%s: a rank has %d marks", in->path, in->section);
    in->nlanes = in->section = 0;
}

/* Checks that the members of a team run the same jobs, which read the same versions. */
static void check_teams(const struct reader *in) {
    const struct training *t = in->t;
    int each = t->batches * NJOBS;
    for (int s = 0; s < t->stages; s++)
        for (int place = 1; place < in->members[s]; place++)
            for (int i = 0; i < each; i++) {
                int first = in->version[s * each + i], other = in->version[(place * t->stages + s) * each + i];
                if (first != other)
                    fail("%s: %c %d %d reads version %d, and its team's member %d %d", in->path, "FRB"[i % NJOBS], s,
                         i / NJOBS, first, place, other);
            }
}

static void check_all(const struct reader *in) {
    const struct training *t = in->t;
    check_teams(in);
    for (int s = 0; s < t->stages; s++) {
        for (int b = 0; b < t->batches; b++)
            for (enum job job = FORWARD; job < NJOBS; job++)
                if (job != RECOMPUTE && t->version[(s * t->batches + b) * NJOBS + job] < 0)
                    fail("%s: %c %d %d is missing", in->path, "FRB"[job], s, b);
        for (int k = 0; k < t->batches / t->update[s]; k++)
            if (in->updates[s * t->batches + k] < 1 || in->updates[s * t->batches + k] != in->updates[s * t->batches])
                fail("%s: U %d %d runs on %d ranks, U %d 0 on %d", in->path, s, k, in->updates[s * t->batches + k], s,
                     in->updates[s * t->batches]);
    }
}

void read_streams(struct training *t, const char *path) {
    struct reader in = {.t = t, .path = path, .file = fopen(path, "r"), .repeats = 1};
    for (int s = 0; s < MOST_STAGES; s++)
        in.members[s] = 1;
    char *line = NULL;
    size_t size = 0;
    enum { HEAD, LANE, ISSUE, MEMORY } where = HEAD;
    if (!in.file)
        fail("%s: cannot be read", path);
    while (getline(&line, &size, in.file) > 0) {
        char word[16] = "";
        if (sscanf(line, "rank %*d %15s", word) == 1) {
            if (!in.told)
                begin_program(&in);
            where = strcmp(word, "lane") == 0 ? LANE : strcmp(word, "issue") == 0 ? ISSUE : MEMORY;
            if (where == MEMORY)
                end_rank(&in);
            if (where == LANE) {
                in.lane = realloc(in.lane, (size_t)(in.nlanes + 1) * sizeof *in.lane);
                if (!in.lane)
                    fail("out of memory");
                in.lane[in.nlanes++] = (struct lane){0};
            }
        } else if (where == HEAD)
            read_head(&in, line);
        else if (where == LANE)
            read_instr(&in, &in.lane[in.nlanes - 1], line);
        else if (where == ISSUE)
            read_issue(&in, line);
    }
    if (!in.told)
        fail("%s: holds no program", path);
    check_all(&in);
    free(line);
    free(in.lane);
    free(in.updates);
    fclose(in.file);
}

/* ---- the learned weights ---- */

/* A safetensors file is an 8-byte number, that many bytes of JSON, and the data, to which its offsets refer. */
void check_weights(const struct training *t, const char *path, const float *w) {
    FILE *file = fopen(path, "rb");
    unsigned long long size = 0;
    if (!file || fread(&size, 8, 1, file) != 1 || size > 1 << 20)
        fail("%s: is no safetensors file", path);
    char *json = calloc(1, (size_t)size + 1);
    size_t n = (size_t)(t->features * t->features), bytes = n * sizeof *w;
    float *has = malloc(bytes);
    if (!json || !has || fread(json, 1, (size_t)size, file) != size)
        fail("%s: is cut off", path);
    for (int l = 0; l < t->stages * t->layers; l++, w += n) {
        char name[40];
        long begin, end;
        snprintf(name, sizeof name, "\"layer.%d.weight\":", 2 * l);
        const char *at = strstr(json, name);
        at = at ? strstr(at, "\"data_offsets\":[") : NULL;
        if (!at || sscanf(at, "\"data_offsets\":[%ld,%ld]", &begin, &end) != 2 || end - begin != (long)bytes ||
            fseek(file, 8 + (long)size + begin, SEEK_SET) || fread(has, 1, bytes, file) != bytes)
            fail("%s: has no %s of %zu bytes", path, name, bytes);
        for (size_t i = 0; i < n; i++)
            if (memcmp(&has[i], &w[i], sizeof *w) != 0)
                fail("%s: layer.%d.weight[%zu,%zu] is %.9g, by the formula %.9g", path, 2 * l, i / (size_t)t->features,
                     i % (size_t)t->features, (double)has[i], (double)w[i]);
    }
    free(has);
    free(json);
    fclose(file);
}
