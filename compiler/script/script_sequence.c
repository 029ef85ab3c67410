/* Reads the jobs of a schedule that lists them, per rank and in order: sequence = { { "0F0", "0F1+1B0" }, … }. */
#include "script_schedule.h"
#include <limits.h>
#include <math.h>

/* Reads the digits at *p; returns -1 if there are none, or too many. */
static int read_digits(const char **p) {
    const char *q = *p;
    int64_t x = 0;
    while (*q >= '0' && *q <= '9' && x <= INT_MAX)
        x = x * 10 + (*q++ - '0');
    bool good = q != *p && x <= INT_MAX;
    *p = q;
    return good ? (int)x : -1;
}

/* Parses one entry of a rank's list: a job, or two that overlap. Returns their number. */
static int parse_entry(struct reader *reader, int list, int position, struct job out[2]) {
    lua_State *L = reader->L;
    const struct spec *sp = reader->sp;
    size_t size = 0;
    const char *text = lua_type(L, -1) == LUA_TSTRING ? lua_tolstring(L, -1, &size) : "", *p = text;
    for (int n = 0; n < 2; n++, p++) {
        int s = read_digits(&p), d = *p ? direction(p, 1) : -1;
        p += d >= 0;
        int slices = sp->names.slices, b = d >= 0 ? read_digits(&p) : -1;
        int q = slices && *p == '.' ? (p++, read_digits(&p)) : slices ? -1 : 0;
        bool ends = p == text + size;
        if (s < 0 || d < 0 || b < 0 || q < 0 || (!ends && (n == 1 || *p != '+')))
            field_fail(L, reader->t.line, "sequence",
                       "sequence[%d][%d] is %s; a job is a stage, one of F R I B W, and a microbatch%s; "
                       "two that overlap are joined: %s",
                       list, position, describe(L, -1),
                       slices ? ", a point and a slice, such as \"0F3.1\"" : ", such as \"0F3\"",
                       slices ? "\"0F3.1+7B1.0\"" : "\"0F3+7B1\"");
        if (s >= sp->stages || b >= whole_batches(sp))
            field_fail(L, reader->t.line, "sequence", "sequence[%d][%d] is \"%s\", but %s = %d", list, position, text,
                       s >= sp->stages ? "stages" : "batches", s >= sp->stages ? sp->stages : whole_batches(sp));
        if (slices && q >= slices)
            field_fail(L, reader->t.line, "sequence", "sequence[%d][%d] is \"%s\", but slices = %d", list, position,
                       text, slices);
        out[n] =
            (struct job){.s = s, .b = b * slices_of(&sp->names) + q, .d = (uint8_t)d, .rank = list - 1, .cost = NAN};
        if (ends)
            return n + 1;
    }
    return 2;
}

static void check_directions(struct reader *reader, int s, int b, uint8_t has) {
    bool full = has >> OP_B & 1, split = has >> OP_I & 1, weight = has >> OP_W & 1;
    int missing = !(has >> OP_F & 1) ? OP_F : full || (split && weight) ? -1 : split ? OP_W : weight ? OP_I : OP_B;
    if (missing >= 0)
        field_fail(reader->L, reader->t.line, "sequence",
                   "sequence has no %s; each stage and microbatch needs F and B, or F, I and W",
                   job_name(&reader->sp->names, s, b, missing));
    if (full && (split || weight))
        field_fail(reader->L, reader->t.line, "sequence",
                   "sequence has both %s and %s; a backward is either B, or I and W",
                   job_name(&reader->sp->names, s, b, OP_B), job_name(&reader->sp->names, s, b, split ? OP_I : OP_W));
}

static void refuse_beside_sequence(struct reader *reader) {
    static const char *const out[] = {"n", "fill", "split_backward", "recompute"};
    if (reader->sp->updates.every)
        field_fail(reader->L, reader->t.line, "update",
                   "'update' and 'sequence' are both given; a sequence's updates end the step: give w and n instead");
    for (int i = 0; i < 4; i++)
        if (field_given(reader, out[i]))
            field_fail(reader->L, reader->t.line, out[i],
                       "'%s' and 'sequence' are both given; the sequence already determines it", out[i]);
    if (field_given(reader, "order") && !reader->sp->strict)
        field_fail(reader->L, reader->t.line, "order", "'sequence' implies order = \"strict\"; leave 'order' out");
}

/* Returns the jobs as listed, and marks them in `has`. */
static struct job *parse_sequence(struct reader *reader, uint8_t *has, int *count) {
    lua_State *L = reader->L;
    struct spec *sp = reader->sp;
    int top = lua_gettop(L), lists = (int)lua_rawlen(L, top);
    struct job *job = NULL;
    size_t n = 0, capacity = 0, pairs = 0;
    if (lists != sp->workers)
        field_fail(L, reader->t.line, "sequence",
                   "sequence has %d lists, but workers = %d; give each rank a list of its jobs", lists, sp->workers);
    for (int k = 1; k <= lists; k++, lua_settop(L, top)) {
        if (lua_rawgeti(L, top, k) != LUA_TTABLE)
            field_fail(L, reader->t.line, "sequence", "sequence[%d] must be a list of jobs such as \"0F0\", not %s", k,
                       describe(L, -1));
        for (int i = 1, place = 0; lua_rawgeti(L, top + 1, i) != LUA_TNIL; i++, lua_pop(L, 1)) {
            struct job entry[2];
            int jobs = parse_entry(reader, k, i, entry);
            if (jobs == 2) {
                GROW(sp->pair, pairs, (size_t)sp->npairs + 1);
                entry[0].pair = entry[1].pair = ++sp->npairs;
            }
            for (struct job *j = entry; j < entry + jobs; j++) {
                uint8_t *set = &has[(int64_t)j->s * sp->batches + j->b];
                if (*set >> j->d & 1)
                    field_fail(L, reader->t.line, "sequence", "sequence[%d][%d] is \"%s\", which is listed twice", k, i,
                               job_name(&reader->sp->names, j->s, j->b, j->d));
                *set |= (uint8_t)(1 << j->d);
                GROW(job, capacity, n + 1);
                j->prio = place++;
                job[n++] = *j;
            }
        }
    }
    *count = (int)n;
    return job;
}

void jobs_from_sequence(struct reader *reader) {
    struct spec *sp = reader->sp;
    if (lua_type(reader->L, -1) != LUA_TTABLE)
        field_fail(reader->L, reader->t.line, "sequence", "'sequence' must be a list of jobs per rank, not %s",
                   describe(reader->L, -1));
    int top = lua_gettop(reader->L), count;
    refuse_beside_sequence(reader);
    uint8_t *has = NEW(uint8_t, (int64_t)sp->stages * sp->batches);
    const struct job *listed = parse_sequence(reader, has, &count);
    for (int s = 0; s < sp->stages; s++)
        for (int b = 0; b < sp->batches; b++)
            check_directions(reader, s, b, has[(int64_t)s * sp->batches + b]);
    for (int64_t i = 0; sp->declared.recompute && i < (int64_t)sp->stages * sp->batches; i++)
        has[i] |= 1 << OP_R;
    lay_out_jobs(sp, has);
    for (struct job *j = sp->job; j < sp->job + sp->njobs; j++)
        j->rank = -1;
    for (int i = 0; i < count; i++) {
        int32_t j = job_at(sp, listed[i].s, listed[i].b, listed[i].d);
        sp->job[j] = listed[i];
        if (listed[i].pair) { /* its two jobs are neighbours in the list */
            struct pair *pair = &sp->pair[listed[i].pair - 1];
            *(i > 0 && listed[i - 1].pair == listed[i].pair ? &pair->second : &pair->first) = j;
        }
    }
    for (struct job *j = sp->job; j < sp->job + sp->njobs; j++)
        if (j->rank < 0) { /* a recompute that is not listed: it comes just before its backward, because of the ties, or
                            * before the backward's pair */
            j->rank = j[1].rank;
            j->prio = j[1].pair ? sp->job[sp->pair[j[1].pair - 1].first].prio - 0.5 : j[1].prio;
        }
    for (const struct job *j = sp->job; j < sp->job + sp->njobs; j++)
        if (j->d == OP_R && j->rank != j[1].rank)
            field_fail(reader->L, reader->t.line, "sequence",
                       "sequence[%d] runs %s, but sequence[%d] runs %s; a recompute runs "
                       "on the rank of its backward",
                       j->rank + 1, job_name(&reader->sp->names, j->s, j->b, OP_R), j[1].rank + 1,
                       job_name(&reader->sp->names, j->s, j->b, j[1].d));
    sp->strict = true;
    lua_settop(reader->L, top);
    reader->w = reader->owners.w = function_field(&reader->t, "w", "the rank that owns the stage's weights");
    for (struct job *j = sp->job; j < sp->job + sp->njobs; j++) {
        j->home = j->team = j->rank;
        if (!reader->w)
            continue;
        ask_script(reader, "w", reader->w, j->s, j->b, j->d, 2);
        j->home = home_result(&reader->owners, -2);
        if (lua_istable(reader->L, -1))
            function_fail(
                reader->L, reader->w, "w",
                "w() returned a list to compute %s, but a sequence lists the jobs of single ranks; let it return "
                "the rank, or nil, and make teams of all ranks with 'tensor'",
                job_name(&reader->sp->names, j->s, j->b, j->d));
        if (!lua_isnil(reader->L, -1) && rank_result(&reader->owners, -1, "compute rank") != j->rank)
            function_fail(reader->L, reader->w, "w", "w() returned compute rank %s for %s, but sequence[%d] runs it",
                          describe(reader->L, -1), job_name(&reader->sp->names, j->s, j->b, j->d), j->rank + 1);
        lua_pop(reader->L, 2);
        call_end(reader->S);
    }
}
