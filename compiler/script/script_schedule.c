/* Turns schedule { … } into jobs. Each of the script's functions is called once per job, in the canonical order: stage,
 * microbatch, direction. A million jobs take two million calls, so a call makes no strings: the directions are interned
 * once and kept on the stack with the functions. */
#include "script.h"
#include <limits.h>
#include <math.h>
#include <string.h>

enum { MAX_JOBS = 20000000 / FUZZ_SHARE, MAX_SLICES = 1024 };

struct reader {
    struct script *S;
    lua_State *L;
    struct table t;
    struct spec *sp;
    int dir[NDIRS];                                 /* stack indices of "F", "R", … */
    int w, n, fill, cost, split, recompute, source; /* stack indices of the functions; 0: not given */
    struct owners owners;
};

const char *const schedule_fields[] = {"workers",
                                       "stages",
                                       "batches",
                                       "w",
                                       "n",
                                       "order",
                                       "cap",
                                       "split_backward",
                                       "recompute",
                                       "pred",
                                       "cost",
                                       "update",
                                       "weight_slots",
                                       "sequence",
                                       "overlap",
                                       "tensor",
                                       "fill",
                                       "version",
                                       "zero",
                                       "bucket",
                                       "offload",
                                       "offload_optimizer",
                                       "grad_slots",
                                       "source",
                                       "slices",
                                       "slice_cut",
                                       "bubble",
                                       "tune",
                                       NULL};

/* ---- fields ---- */

static bool given(struct reader *reader, const char *name) {
    bool yes = push_field(&reader->t, name) != LUA_TNIL;
    lua_pop(reader->L, 1);
    return yes;
}

/* slice_cut: a list of each slice's rows of a sequence, or "balanced". */
static void read_cut(struct reader *reader) {
    static const char must[] = "a list of so many rows of a sequence for each slice, at least 1, or \"balanced\"";
    lua_State *L = reader->L;
    struct spec *sp = reader->sp;
    int type = push_field(&reader->t, "slice_cut"), list = lua_gettop(L), n = sp->names.slices;
    sp->slice_balanced = type == LUA_TSTRING && !strcmp(lua_tostring(L, list), "balanced");
    if (type != LUA_TNIL && !n)
        field_fail(L, reader->t.line, "slice_cut",
                   "'slice_cut' goes with slices, of which there are none: say slices = 4");
    if (type == LUA_TNIL || sp->slice_balanced) {
        lua_pop(L, 1);
        return;
    }
    bool good = type == LUA_TTABLE && (int)lua_rawlen(L, list) == n;
    sp->slice_rows = NEW(int, n);
    for (int q = 0; good && q < n; q++) {
        int isint = 0;
        lua_rawgeti(L, list, q + 1);
        lua_Integer rows = lua_type(L, -1) == LUA_TNUMBER ? lua_tointegerx(L, -1, &isint) : 0;
        good = isint && rows >= 1 && rows <= INT_MAX / n;
        sp->slice_rows[q] = good ? (int)rows : 0;
    }
    if (type == LUA_TTABLE && (int)lua_rawlen(L, list) != n)
        field_fail(L, reader->t.line, "slice_cut", "'slice_cut' has %d entries, but slices = %d; it must be %s",
                   (int)lua_rawlen(L, list), n, must);
    if (!good)
        field_fail(L, reader->t.line, "slice_cut", "'slice_cut' must be %s, not %s", must, describe(L, -1));
    lua_settop(L, list - 1);
}

static void read_sizes(struct reader *reader) {
    struct spec *sp = reader->sp;
    sp->workers = integer_field(&reader->t, "workers", 1, MAX_WORKERS);
    sp->stages = integer_field(&reader->t, "stages", 1, INT_MAX);
    sp->batches = integer_field(&reader->t, "batches", 1, INT_MAX);
    int slices = given(reader, "slices") ? integer_field(&reader->t, "slices", 1, MAX_SLICES) : 1;
    if ((double)sp->stages * sp->batches * slices > MAX_JOBS / 3 && !given(reader, "update"))
        field_fail(reader->L, reader->t.line, "batches", "stages * batches%s * 3 is %.0f; at most %d jobs are possible",
                   slices > 1 ? " * slices" : "", 3.0 * sp->stages * sp->batches * slices, MAX_JOBS);
    if (slices > 1) {
        sp->names.slices = reader->S->names.slices = slices;
        sp->batches *= slices;
    }
    read_update(&reader->owners, reader->S->wanted);
    if ((int64_t)sp->stages * sp->batches > MAX_JOBS / 3)
        field_fail(reader->L, reader->t.line, "batches", "stages * batches * 3 is %.0f; at most %d jobs are possible",
                   3.0 * sp->stages * sp->batches, MAX_JOBS);
    if (push_field(&reader->t, "order") != LUA_TNIL) {
        const char *order = lua_type(reader->L, -1) == LUA_TSTRING ? lua_tostring(reader->L, -1) : "";
        sp->strict = !strcmp(order, "strict");
        if (!sp->strict && strcmp(order, "greedy"))
            field_fail(reader->L, reader->t.line, "order", "'order' must be \"greedy\" or \"strict\", not %s",
                       describe(reader->L, -1));
    }
    lua_pop(reader->L, 1);
}

/* cap and weight_slots: a function(worker) or one number for all. math.huge: no limit. */
static int *per_worker(struct reader *reader, const char *name, int least, int otherwise) {
    lua_State *L = reader->L;
    int type = push_field(&reader->t, name), f = lua_gettop(L);
    int *value = NEW(int, reader->sp->workers);
    if (type != LUA_TNIL && type != LUA_TFUNCTION && type != LUA_TNUMBER)
        field_fail(L, reader->t.line, name, "'%s' must be a number or a function(worker) that returns one, not %s",
                   name, describe(L, f));
    for (int k = 0; k < reader->sp->workers; k++) {
        if (type == LUA_TNIL) {
            value[k] = otherwise;
            continue;
        }
        call_begin(reader->S, name, k, -1, -1);
        lua_pushvalue(L, f);
        if (type == LUA_TFUNCTION) {
            lua_pushinteger(L, k);
            lua_call(L, 1, 1);
        }
        int isint = 0;
        lua_Integer x = lua_type(L, -1) == LUA_TNUMBER ? lua_tointegerx(L, -1, &isint) : 0;
        if (lua_type(L, -1) == LUA_TNUMBER && lua_tonumber(L, -1) == INFINITY)
            x = isint = INT_MAX;
        if (!isint || x < least) {
            const char *must = format("an integer of at least %d, or math.huge for no limit", least);
            if (type == LUA_TFUNCTION)
                function_fail(L, f, name, "%s returned %s; return %s", call_name(reader->S), describe(L, -1), must);
            field_fail(L, reader->t.line, name, "'%s' must be %s, not %s", name, must, describe(L, -1));
        }
        value[k] = x < INT_MAX ? (int)x : INT_MAX;
        lua_settop(L, f);
        call_end(reader->S);
    }
    lua_settop(L, f - 1);
    return value;
}

/* ---- asking ---- */

/* Calls f(s, b, d), or f(s, b) for d < 0, where b counts from the step's beginning; with slices, q is one more argument
 * behind these. The call lasts until call_end, so that errors in its results name it. */
static void ask(struct reader *reader, const char *name, int f, int s, int b, int d, int results) {
    lua_State *L = reader->L;
    b += reader->S->later;
    call_begin(reader->S, name, s, b, d);
    lua_pushvalue(L, f);
    lua_pushinteger(L, s);
    push_batch(reader->S, b);
    if (d >= 0)
        lua_pushvalue(L, reader->dir[d]);
    int more = push_slice(reader->S, b);
    lua_call(L, (d >= 0 ? 3 : 2) + more, results);
}

static bool ask_yes(struct reader *reader, const char *name, int f, int s, int b, int d) {
    ask(reader, name, f, s, b, d, 1);
    int type = lua_type(reader->L, -1);
    if (type != LUA_TBOOLEAN && type != LUA_TNIL)
        function_fail(reader->L, f, name, "%s returned %s; return true or false", call_name(reader->S),
                      describe(reader->L, -1));
    bool yes = lua_toboolean(reader->L, -1);
    lua_pop(reader->L, 1);
    call_end(reader->S);
    return yes;
}

static void ask_w(struct reader *reader, struct job *j, int d) {
    ask(reader, "w", reader->w, j->s, j->b, d, 2);
    j->home = home_result(&reader->owners, -2);
    j->team = ranks_result(&reader->owners, -1, "compute rank");
    j->rank = home_of(reader->sp, &j->team).rank[0];
    lua_pop(reader->L, 2);
    call_end(reader->S);
}

/* i minus the nearest double. */
static double rest_of(lua_Integer i) {
    double near = (double)i;
    return near < 0x1p63 ? (double)(i - (lua_Integer)near) : (double)(i - INT64_MAX) - 1;
}

static void ask_n(struct reader *reader, struct job *j) {
    ask(reader, "n", reader->n, j->s, j->b, j->d, 1);
    j->prio = lua_type(reader->L, -1) == LUA_TNUMBER ? lua_tonumber(reader->L, -1) : NAN;
    j->rest = lua_isinteger(reader->L, -1) ? rest_of(lua_tointeger(reader->L, -1)) : 0;
    if (!isfinite(j->prio))
        function_fail(reader->L, reader->n, "n", "n() returned %s for %s; return a finite number",
                      describe(reader->L, -1), job_name(&reader->sp->names, j->s, reader->S->b, j->d));
    lua_pop(reader->L, 1);
    call_end(reader->S);
}

static void ask_cost(struct reader *reader, struct job *j) {
    ask(reader, "cost", reader->cost, j->s, j->b, j->d, 1);
    j->cost = lua_type(reader->L, -1) == LUA_TNUMBER ? lua_tonumber(reader->L, -1) : NAN;
    if (!is_time(j->cost))
        function_fail(reader->L, reader->cost, "cost", "cost() returned %s for %s; return a time: " A_TIME,
                      describe(reader->L, -1), job_name(&reader->sp->names, j->s, reader->S->b, j->d));
    lua_pop(reader->L, 1);
    call_end(reader->S);
}

/* A recompute reads the copy that its backward would: source() is asked about that, as w() is. */
static int32_t ask_source(struct reader *reader, const struct job *j) {
    lua_State *L = reader->L;
    int workers = reader->sp->workers, isint = 0, d = j->d == OP_R ? j[1].d : j->d;
    ask(reader, "source", reader->source, j->s, j->b, d, 1);
    const char *job = job_name(&reader->sp->names, j->s, j->b, d), *value = describe(L, -1);
    lua_Integer rank = lua_type(L, -1) == LUA_TNUMBER ? lua_tointegerx(L, -1, &isint) : -1;
    if (!isint && !lua_isnil(L, -1))
        function_fail(L, reader->source, "source", "source() returned %s for %s; return a rank, or nil for the home",
                      value, job);
    if (isint && (rank < 0 || rank >= workers))
        function_fail(L, reader->source, "source",
                      "source() returned rank %s for %s, but workers = %d; ranks are 0 to %d", value, job, workers,
                      workers - 1);
    if (isint && rank == j->rank)
        function_fail(L, reader->source, "source",
                      "source() returned rank %s for %s, which runs on that rank; return another, or nil for the home",
                      value, job);
    lua_pop(L, 1);
    call_end(reader->S);
    return isint ? (int32_t)rank : -1;
}

static void read_sources(struct reader *reader) {
    struct spec *sp = reader->sp;
    reader->source =
        function_field(&reader->t, "source", "the rank from which a job's weights are taken, or nil: the home");
    if (!reader->source)
        return;
    sp->source = NEW(int32_t, sp->njobs);
    for (int j = 0; j < sp->njobs; j++)
        sp->source[j] = ask_source(reader, &sp->job[j]);
}

/* ---- jobs from functions ---- */

/* Which directions (s,b) has, as bits. */
static uint8_t directions(struct reader *reader, bool split_all, bool recompute_all, int s, int b) {
    bool split = reader->split ? ask_yes(reader, "split_backward", reader->split, s, b, -1) : split_all;
    bool again = recompute_all || (reader->recompute && ask_yes(reader, "recompute", reader->recompute, s, b, -1));
    return (uint8_t)(1 << OP_F | (again ? 1 << OP_R : 0) | (split ? 1 << OP_I | 1 << OP_W : 1 << OP_B));
}

/* A function(s,b), or true or false for all. */
static bool yes_field(struct reader *reader, const char *name, int *function) {
    int type = push_field(&reader->t, name);
    if (type == LUA_TFUNCTION) {
        *function = lua_gettop(reader->L);
        return false;
    }
    if (type != LUA_TBOOLEAN && type != LUA_TNIL)
        field_fail(reader->L, reader->t.line, name, "'%s' must be true, false or a function(s, b), not %s", name,
                   describe(reader->L, -1));
    bool yes = lua_toboolean(reader->L, -1);
    lua_pop(reader->L, 1);
    return yes;
}

/* Lays out the jobs that `has` names, (s,b) by (s,b), in canonical order. */
static void make_jobs(struct spec *sp, const uint8_t *has) {
    int64_t pairs = (int64_t)sp->stages * sp->batches;
    for (int64_t i = 0; i < pairs; i++)
        sp->njobs += __builtin_popcount(has[i]);
    sp->job = NEW(struct job, sp->njobs);
    sp->at = NEW(int32_t, pairs * NDIRS);
    struct job *j = sp->job;
    for (int64_t i = 0; i < pairs; i++)
        for (int d = 0; d < NDIRS; d++) {
            sp->at[i * NDIRS + d] = has[i] >> d & 1 ? (int32_t)(j - sp->job) : -1;
            if (has[i] >> d & 1)
                *j++ = (struct job){
                    .s = (int32_t)(i / sp->batches), .b = (int32_t)(i % sp->batches), .d = (uint8_t)d, .cost = NAN};
        }
}

/* Asks where and when a job runs: w, n and fill. */
static void ask_about(struct reader *reader, struct job *j) {
    bool again = j > reader->sp->job && j[-1].d == OP_R; /* the job before is its recompute */
    if (again)
        j->home = j[-1].home, j->rank = j[-1].rank, j->team = j[-1].team;
    else
        ask_w(reader, j, j->d == OP_R ? j[1].d : j->d);
    if (reader->n)
        ask_n(reader, j);
    if (again && reader->sp->strict && compare_n(&j[-1], j) > 0) {
        j[-1].prio = j->prio; /* in a strict order it can come no later than just before its backward */
        j[-1].rest = j->rest;
    }
    if (reader->fill)
        j->fill = ask_yes(reader, "fill", reader->fill, j->s, j->b, j->d);
}

static void jobs_from_functions(struct reader *reader) {
    struct spec *sp = reader->sp;
    reader->w = function_field(&reader->t, "w",
                               "home, compute: the rank that owns the stage's weights and the one that computes");
    reader->owners.w = reader->w;
    if (!reader->w)
        field_fail(reader->L, reader->t.line, "w",
                   "schedule needs the field 'w'; add: w = function(s, b, d) return home, compute end");
    bool split = yes_field(reader, "split_backward", &reader->split);
    bool again = yes_field(reader, "recompute", &reader->recompute) || sp->recompute;
    uint8_t *has = NEW(uint8_t, (int64_t)sp->stages * sp->batches);
    for (int s = 0; s < sp->stages; s++)
        for (int b = 0; b < sp->batches; b++)
            has[(int64_t)s * sp->batches + b] = directions(reader, split, again, s, b);
    make_jobs(sp, has);
    reader->n = function_field(&reader->t, "n", "a number: among jobs a rank could start, the smallest runs");
    reader->fill = function_field(&reader->t, "fill",
                                  "true: a job without a place in the order, which runs when its rank would idle");
    if (reader->fill && !sp->strict)
        field_fail(reader->L, reader->t.line, "fill",
                   "'fill' goes with order = \"strict\": a greedy rank runs whatever it can anyway");
    for (struct job *j = sp->job; j < sp->job + sp->njobs; j++)
        ask_about(reader, j);
}

/* ---- jobs from a sequence ---- */

/* Reads the digits at *p; -1: there are none, or too many. */
static int digits(const char **p) {
    const char *q = *p;
    int64_t x = 0;
    while (*q >= '0' && *q <= '9' && x <= INT_MAX)
        x = x * 10 + (*q++ - '0');
    bool good = q != *p && x <= INT_MAX;
    *p = q;
    return good ? (int)x : -1;
}

/* Parses one entry of a rank's list: a job, or two that overlap. Returns how many. */
static int parse_entry(struct reader *reader, int list, int position, struct job out[2]) {
    lua_State *L = reader->L;
    const struct spec *sp = reader->sp;
    size_t size = 0;
    const char *text = lua_type(L, -1) == LUA_TSTRING ? lua_tolstring(L, -1, &size) : "", *p = text;
    for (int n = 0; n < 2; n++, p++) {
        int s = digits(&p), d = *p ? direction(p, 1) : -1;
        p += d >= 0;
        int slices = sp->names.slices, b = d >= 0 ? digits(&p) : -1;
        int q = slices && *p == '.' ? (p++, digits(&p)) : slices ? -1 : 0;
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

static void check_complete(struct reader *reader, int s, int b, uint8_t has) {
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
    if (reader->sp->update)
        field_fail(reader->L, reader->t.line, "update",
                   "'update' and 'sequence' both given; a sequence's updates end the step: say w and n instead");
    for (int i = 0; i < 4; i++)
        if (given(reader, out[i]))
            field_fail(reader->L, reader->t.line, out[i],
                       "'%s' and 'sequence' both given; the sequence says it already", out[i]);
    if (given(reader, "order") && !reader->sp->strict)
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
                    field_fail(L, reader->t.line, "sequence", "sequence[%d][%d] is \"%s\", which was listed before", k,
                               i, job_name(&reader->sp->names, j->s, j->b, j->d));
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

static void jobs_from_sequence(struct reader *reader) {
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
            check_complete(reader, s, b, has[(int64_t)s * sp->batches + b]);
    for (int64_t i = 0; sp->recompute && i < (int64_t)sp->stages * sp->batches; i++)
        has[i] |= 1 << OP_R;
    make_jobs(sp, has);
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
        if (j->rank <
            0) { /* a recompute that is not listed: just before its backward, by the ties, or before its pair */
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
        ask(reader, "w", reader->w, j->s, j->b, j->d, 2);
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

static double read_overlap(struct reader *reader) {
    int type = push_field(&reader->t, "overlap");
    double x = type == LUA_TNUMBER ? lua_tonumber(reader->L, -1) : 0;
    if (type != LUA_TNIL && (type != LUA_TNUMBER || !(x >= 0 && x <= 1)))
        field_fail(reader->L, reader->t.line, "overlap",
                   "'overlap' must be a number from 0 to 1, not %s: the share of a pair's shorter job that hides "
                   "behind the longer one",
                   describe(reader->L, -1));
    if (type != LUA_TNIL && !reader->sp->npairs)
        field_fail(reader->L, reader->t.line, "overlap",
                   "'overlap' is for the pairs of a sequence, such as \"0F3+7B1\", and there are none; leave it out");
    lua_pop(reader->L, 1);
    return x;
}

static const double *read_bubble(const struct table *t) {
    lua_State *L = t->L;
    int type = push_field(t, "bubble");
    double *x = type == LUA_TNIL ? NULL : NEW(double, 1);
    if (x)
        *x = type == LUA_TNUMBER ? lua_tonumber(L, -1) : -1;
    if (x && !(*x >= 0 && *x < 1))
        field_fail(L, t->line, "bubble",
                   "'bubble' must be a number of at least 0 and below 1, not %s: the part of the makespan that ranks "
                   "idle, by a closed form",
                   describe(L, -1));
    lua_pop(L, 1);
    return x;
}

void extract_schedule(struct script *script, void *spec) {
    lua_State *L = script->L;
    struct lists lists = {0};
    struct reader reader = {.S = script, .L = L, .sp = spec, .t = {L, lua_gettop(L), script->line, "schedule"}};
    reader.owners = (struct owners){script, spec, &reader.t, &lists, 0};
    struct spec *sp = reader.sp;
    luaL_checkstack(L, 64, "schedule");
    check_fields(&reader.t, schedule_fields);
    read_sizes(&reader);
    read_tensor(&reader.owners);
    for (int d = 0; d < NDIRS; d++) {
        lua_pushstring(L, op_name[d]);
        reader.dir[d] = lua_gettop(L);
    }
    if (push_field(&reader.t, "sequence") != LUA_TNIL)
        jobs_from_sequence(&reader);
    else
        jobs_from_functions(&reader);
    check_replicas(&reader.owners);
    check_teams(&reader.owners);
    read_zero(&reader.owners);
    sp->overlap = read_overlap(&reader);
    sp->bubble = read_bubble(&reader.t);
    read_cut(&reader);
    reader.cost = function_field(&reader.t, "cost", "the time a job takes");
    for (struct job *j = sp->job; reader.cost && j < sp->job + sp->njobs; j++)
        ask_cost(&reader, j);
    read_preds(&reader.owners);
    read_sources(&reader);
    sp->cap = per_worker(&reader, "cap", 1, INT_MAX);
    sp->slots = per_worker(&reader, "weight_slots", 0, 2);
    if (given(&reader, "grad_slots"))
        sp->grad_slots = per_worker(&reader, "grad_slots", 1, INT_MAX);
    read_offload(&reader.owners);
    read_tune(&reader.owners);
    read_updates(&reader.owners, reader.n, reader.cost);
}
