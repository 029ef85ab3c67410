/* Turns schedule { … } into jobs. Each of the script's functions is called once per job, in the canonical order: stage,
 * microbatch, direction. A million jobs take two million calls, so a call makes no strings: the directions are interned
 * once and kept on the stack with the functions. */
#include "script_schedule.h"
#include <limits.h>
#include <math.h>
#include <string.h>

enum { MAX_JOBS = 20000000 / FUZZ_SHARE, MAX_SLICES = 1024 };

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

bool field_given(struct reader *reader, const char *name) {
    bool yes = push_field(&reader->t, name) != LUA_TNIL;
    lua_pop(reader->L, 1);
    return yes;
}

/* Reads slice_cut: a list of each slice's rows of a sequence, or "balanced". */
static void read_slice_cut(struct reader *reader) {
    static const char must[] =
        "a list with the number of rows of a sequence in each slice, at least 1, or \"balanced\"";
    lua_State *L = reader->L;
    struct spec *sp = reader->sp;
    int type = push_field(&reader->t, "slice_cut"), list = lua_gettop(L), n = sp->names.slices;
    sp->slicing.balanced = type == LUA_TSTRING && !strcmp(lua_tostring(L, list), "balanced");
    if (type != LUA_TNIL && !n)
        field_fail(L, reader->t.line, "slice_cut",
                   "'slice_cut' needs slices, and there are none; add, for example, slices = 4");
    if (type == LUA_TNIL || sp->slicing.balanced) {
        lua_pop(L, 1);
        return;
    }
    bool good = type == LUA_TTABLE && (int)lua_rawlen(L, list) == n;
    sp->slicing.rows = NEW(int, n);
    for (int q = 0; good && q < n; q++) {
        int isint = 0;
        lua_rawgeti(L, list, q + 1);
        lua_Integer rows = lua_type(L, -1) == LUA_TNUMBER ? lua_tointegerx(L, -1, &isint) : 0;
        good = isint && rows >= 1 && rows <= INT_MAX / n;
        sp->slicing.rows[q] = good ? (int)rows : 0;
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
    int slices = field_given(reader, "slices") ? integer_field(&reader->t, "slices", 1, MAX_SLICES) : 1;
    if ((double)sp->stages * sp->batches * slices > MAX_JOBS / 3 && !field_given(reader, "update"))
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

/* Reads cap or weight_slots: a function(worker) or one number for all. math.huge: no limit. */
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

/* ---- calls of the script's functions ---- */

void ask_script(struct reader *reader, const char *name, int f, int s, int b, int d, int results) {
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
    ask_script(reader, name, f, s, b, d, 1);
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
    ask_script(reader, "w", reader->w, j->s, j->b, d, 2);
    j->home = home_result(&reader->owners, -2);
    j->team = ranks_result(&reader->owners, -1, "compute rank");
    j->rank = home_of(reader->sp, &j->team).rank[0];
    lua_pop(reader->L, 2);
    call_end(reader->S);
}

/* Returns i minus the nearest double. */
static double rest_of(lua_Integer i) {
    double near = (double)i;
    return near < 0x1p63 ? (double)(i - (lua_Integer)near) : (double)(i - INT64_MAX) - 1;
}

static void ask_n(struct reader *reader, struct job *j) {
    ask_script(reader, "n", reader->n, j->s, j->b, j->d, 1);
    j->prio = lua_type(reader->L, -1) == LUA_TNUMBER ? lua_tonumber(reader->L, -1) : NAN;
    j->rest = lua_isinteger(reader->L, -1) ? rest_of(lua_tointeger(reader->L, -1)) : 0;
    if (!isfinite(j->prio))
        function_fail(reader->L, reader->n, "n", "n() returned %s for %s; return a finite number",
                      describe(reader->L, -1), job_name(&reader->sp->names, j->s, reader->S->call.b, j->d));
    lua_pop(reader->L, 1);
    call_end(reader->S);
}

static void ask_cost(struct reader *reader, struct job *j) {
    ask_script(reader, "cost", reader->cost, j->s, j->b, j->d, 1);
    j->cost = lua_type(reader->L, -1) == LUA_TNUMBER ? lua_tonumber(reader->L, -1) : NAN;
    if (!is_time(j->cost))
        function_fail(reader->L, reader->cost, "cost", "cost() returned %s for %s; return a time: " A_TIME,
                      describe(reader->L, -1), job_name(&reader->sp->names, j->s, reader->S->call.b, j->d));
    lua_pop(reader->L, 1);
    call_end(reader->S);
}

/* Returns the rank that source() names. A recompute reads the copy that its backward would read, so source() is called
 * for the backward, as w() is. */
static int32_t ask_source(struct reader *reader, const struct job *j) {
    lua_State *L = reader->L;
    int workers = reader->sp->workers, isint = 0, d = j->d == OP_R ? j[1].d : j->d;
    ask_script(reader, "source", reader->source, j->s, j->b, d, 1);
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
    reader->source = function_field(&reader->t, "source", "the rank that sends a job's weights, or nil for the home");
    if (!reader->source)
        return;
    sp->owners.source = NEW(int32_t, sp->njobs);
    for (int j = 0; j < sp->njobs; j++)
        sp->owners.source[j] = ask_source(reader, &sp->job[j]);
}

/* ---- jobs from functions ---- */

/* Returns the directions of (s,b), as bits. */
static uint8_t directions(struct reader *reader, bool split_all, bool recompute_all, int s, int b) {
    bool split = reader->split ? ask_yes(reader, "split_backward", reader->split, s, b, -1) : split_all;
    bool again = recompute_all || (reader->recompute && ask_yes(reader, "recompute", reader->recompute, s, b, -1));
    return (uint8_t)(1 << OP_F | (again ? 1 << OP_R : 0) | (split ? 1 << OP_I | 1 << OP_W : 1 << OP_B));
}

/* Reads a function(s,b), or true or false for all. */
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

void lay_out_jobs(struct spec *sp, const uint8_t *has) {
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

/* Asks the script about a job: w, n and fill. */
static void ask_about(struct reader *reader, struct job *j) {
    bool again = j > reader->sp->job && j[-1].d == OP_R; /* the previous job is its recompute */
    if (again)
        j->home = j[-1].home, j->rank = j[-1].rank, j->team = j[-1].team;
    else
        ask_w(reader, j, j->d == OP_R ? j[1].d : j->d);
    if (reader->n)
        ask_n(reader, j);
    if (again && reader->sp->strict && compare_n(&j[-1], j) > 0) {
        j[-1].prio = j->prio; /* a strict order puts it no later than just before its backward */
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
    bool again = yes_field(reader, "recompute", &reader->recompute) || sp->declared.recompute;
    uint8_t *has = NEW(uint8_t, (int64_t)sp->stages * sp->batches);
    for (int s = 0; s < sp->stages; s++)
        for (int b = 0; b < sp->batches; b++)
            has[(int64_t)s * sp->batches + b] = directions(reader, split, again, s, b);
    lay_out_jobs(sp, has);
    reader->n = function_field(&reader->t, "n",
                               "a number: of the jobs that a rank could start, the one with the smallest runs");
    reader->fill = function_field(&reader->t, "fill",
                                  "true for a job without a place in the order, which runs when its rank would idle");
    if (reader->fill && !sp->strict)
        field_fail(reader->L, reader->t.line, "fill",
                   "'fill' goes with order = \"strict\": a greedy rank runs whatever it can anyway");
    for (struct job *j = sp->job; j < sp->job + sp->njobs; j++)
        ask_about(reader, j);
}

static double read_overlap(struct reader *reader) {
    int type = push_field(&reader->t, "overlap");
    double x = type == LUA_TNUMBER ? lua_tonumber(reader->L, -1) : 0;
    if (type != LUA_TNIL && (type != LUA_TNUMBER || !(x >= 0 && x <= 1)))
        field_fail(reader->L, reader->t.line, "overlap",
                   "'overlap' must be a number from 0 to 1, not %s: the share of a pair's shorter job that the longer "
                   "one hides",
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
                   "'bubble' must be a number of at least 0 and below 1, not %s: the fraction of the makespan in which "
                   "ranks idle, by a closed form",
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
    sp->declared.bubble = read_bubble(&reader.t);
    read_slice_cut(&reader);
    reader.cost = function_field(&reader.t, "cost", "the time a job takes");
    for (struct job *j = sp->job; reader.cost && j < sp->job + sp->njobs; j++)
        ask_cost(&reader, j);
    read_preds(&reader.owners);
    read_sources(&reader);
    sp->limits.cap = per_worker(&reader, "cap", 1, INT_MAX);
    sp->choices.slots = per_worker(&reader, "weight_slots", 0, 2);
    if (field_given(&reader, "grad_slots"))
        sp->limits.grad_slots = per_worker(&reader, "grad_slots", 1, INT_MAX);
    read_offload(&reader.owners);
    read_tune(&reader.owners);
    read_updates(&reader.owners, reader.n, reader.cost);
}
