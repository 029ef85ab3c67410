/* Reads update and version: updates that are jobs, and which updates the weights that a job reads include. */
#include "script.h"
#include <limits.h>
#include <math.h>
#include <string.h>

/* Calls f(s), f(s, b) or f(s, b, d), with the arguments that are not -1, followed by the slice q if b is a slice. Its
 * value is on top of the stack until call_end. */
static void ask_of_update(struct owners *owners, const char *name, int f, int s, int b, int d) {
    lua_State *L = owners->S->L;
    if (b >= 0)
        b += d == OP_U ? owners->S->later / owners->sp->updates.every[s] : owners->S->later;
    call_begin(owners->S, name, s, b, d);
    lua_pushvalue(L, f);
    lua_pushinteger(L, s);
    if (b >= 0)
        lua_pushinteger(L, d == OP_U ? b : b / slices_of(&owners->S->names));
    if (d >= 0)
        lua_pushstring(L, op_name[d]);
    int more = b >= 0 && d != OP_U ? push_slice(owners->S, b) : 0;
    lua_call(L, 1 + (b >= 0) + (d >= 0) + more, 1);
}

/* Returns the value on top of the stack if it is an integer of at least `least`, else -1. */
static int64_t integer_on_top(lua_State *L, int64_t least) {
    int isint = 0;
    lua_Integer x = lua_type(L, -1) == LUA_TNUMBER ? lua_tointegerx(L, -1, &isint) : 0;
    return isint && x >= least ? x : -1;
}

/* ---- update ---- */

/* Returns the microbatches of an update from the value on top of the stack; 0: it is not valid. */
static int64_t microbatches(lua_State *L, int64_t step) {
    if (lua_type(L, -1) == LUA_TSTRING)
        return !strcmp(lua_tostring(L, -1), "each") ? 1 : !strcmp(lua_tostring(L, -1), "flush") ? step : 0;
    int64_t n = integer_on_top(L, 1);
    return n < 0 ? 0 : n;
}

static void read_update_of(struct owners *owners, int f, int s) {
    static const char must[] = "\"flush\", \"each\", or a number of microbatches, at least 1";
    lua_State *L = owners->S->L;
    struct spec *sp = owners->sp;
    bool function = lua_type(L, f) == LUA_TFUNCTION;
    int64_t slices = slices_of(&sp->names), step = sp->updates.step / slices;
    if (function)
        ask_of_update(owners, "update", f, s, -1, -1);
    else
        lua_pushvalue(L, f);
    int64_t n = microbatches(L, step);
    if (!n && function)
        function_fail(L, f, "update", "%s returned %s; return %s", call_name(owners->S), describe(L, -1), must);
    if (!n)
        field_fail(L, owners->t->line, "update", "'update' must be %s, or a function(s) that returns one; not %s", must,
                   describe(L, -1));
    if (n > step || step % n)
        field_fail(L, owners->t->line, "update",
                   "stage %d is updated after every %lld microbatches, but batches = %lld is not a multiple of that", s,
                   (long long)n, (long long)step);
    sp->updates.every[s] = (int)(n * slices);
    lua_settop(L, f);
    if (function)
        call_end(owners->S);
}

void read_update(struct owners *owners, int most) {
    lua_State *L = owners->S->L;
    struct spec *sp = owners->sp;
    sp->updates.step = sp->batches;
    int type = push_field(owners->t, "update"), f = lua_gettop(L);
    if (type != LUA_TNIL && !(type == LUA_TSTRING && !strcmp(lua_tostring(L, f), "flush"))) {
        sp->updates.every = NEW(int, sp->stages);
        sp->updates.turn = 1;
        for (int s = 0; s < sp->stages; s++) {
            read_update_of(owners, f, s);
            sp->updates.turn = (int)common_multiple(sp->updates.turn, sp->updates.every[s]); /* turn: divides the step's
                                                                                              * microbatches */
        }
        int64_t wanted =
            (most + sp->updates.turn - 1) / sp->updates.turn * (int64_t)sp->updates.turn; /* whole turns, like a step */
        if (most > 0 && wanted < sp->updates.step)
            sp->batches = (int)wanted;
    }
    lua_settop(L, f - 1);
}

/* ---- version ---- */

static int32_t version_on_top(lua_State *L) {
    static const struct {
        const char *word;
        int32_t read;
    } words[] = {{"forward", READ_FORWARD}, {"latest", READ_LATEST}, {"input", READ_INPUT}};
    for (int i = 0; lua_type(L, -1) == LUA_TSTRING && i < 3; i++)
        if (!strcmp(lua_tostring(L, -1), words[i].word))
            return words[i].read;
    int64_t back = integer_on_top(L, 0);
    return back < 0 || back > INT_MAX ? INT32_MIN : (int32_t)back;
}

static void read_versions(struct owners *owners) {
    static const char must[] = "\"forward\", \"latest\", \"input\", or a number of updates back, at least 0";
    lua_State *L = owners->S->L;
    struct spec *sp = owners->sp;
    int type = push_field(owners->t, "version"), f = lua_gettop(L);
    sp->updates.reads = NEW(int32_t, sp->njobs);
    for (int j = 0; j < sp->njobs; j++) {
        const struct job *job = &sp->job[j];
        sp->updates.reads[j] = READ_FORWARD;
        if (type == LUA_TNIL || job->d == OP_W)
            continue;
        if (type == LUA_TFUNCTION)
            ask_of_update(owners, "version", f, job->s, job->b, job->d);
        else
            lua_pushvalue(L, f);
        sp->updates.reads[j] = version_on_top(L);
        if (sp->updates.reads[j] == INT32_MIN && type == LUA_TFUNCTION)
            function_fail(L, f, "version", "%s returned %s; return %s", call_name(owners->S), describe(L, -1), must);
        if (sp->updates.reads[j] == INT32_MIN)
            field_fail(L, owners->t->line, "version",
                       "'version' must be %s, or a function(s, b, d) that returns one; not %s", must, describe(L, -1));
        lua_settop(L, f);
        if (type == LUA_TFUNCTION)
            call_end(owners->S);
    }
    lua_settop(L, f - 1);
}

/* ---- jobs ---- */

/* Reads n of an update. If it is nil, the update runs before everything else. */
static void ask_priority(struct owners *owners, int n, struct job *j) {
    lua_State *L = owners->S->L;
    j->prio = -INFINITY;
    j->fill = owners->sp->strict;
    if (!n)
        return;
    ask_of_update(owners, "n", n, j->s, j->b, OP_U);
    if (!lua_isnil(L, -1)) {
        j->prio = lua_type(L, -1) == LUA_TNUMBER ? lua_tonumber(L, -1) : NAN;
        j->fill = false;
        if (!isfinite(j->prio))
            function_fail(L, n, "n", "n() returned %s for %s; return a finite number, or nil to run it at once",
                          describe(L, -1), job_name(&owners->sp->names, j->s, owners->S->call.b, OP_U));
    }
    lua_pop(L, 1);
    call_end(owners->S);
}

static void ask_update_cost(struct owners *owners, int cost, struct job *j) {
    lua_State *L = owners->S->L;
    if (!cost)
        return;
    ask_of_update(owners, "cost", cost, j->s, j->b, OP_U);
    j->cost = lua_type(L, -1) == LUA_TNUMBER ? lua_tonumber(L, -1) : NAN;
    if (!is_time(j->cost) && !lua_isnil(L, -1))
        function_fail(L, cost, "cost", "cost() returned %s for %s; return a time: " A_TIME ", or nil: the model's",
                      describe(L, -1), job_name(&owners->sp->names, j->s, owners->S->call.b, OP_U));
    lua_pop(L, 1);
    call_end(owners->S);
}

/* Asks the script about each update; the homes that it runs on follow from that (ir/updates.c). */
static void ask_updates(struct owners *owners, int n, int cost) {
    struct spec *sp = owners->sp;
    int64_t all = 0;
    for (int s = 0; s < sp->stages; s++)
        all += sp->batches / sp->updates.every[s];
    struct job *j = sp->updates.asked = NEW(struct job, all);
    for (int s = 0; s < sp->stages; s++)
        for (int k = 0; k < sp->batches / sp->updates.every[s]; k++, j++) {
            *j = (struct job){.s = s, .b = k, .d = OP_U, .cost = NAN};
            ask_priority(owners, n, j);
            ask_update_cost(owners, cost, j);
        }
}

static void refuse(struct owners *owners, const char *field, bool given, const char *why) {
    if (given)
        field_fail(owners->S->L, owners->t->line, field, "'%s' does not go with 'update' yet: %s", field, why);
}

void read_updates(struct owners *owners, int n, int cost) {
    lua_State *L = owners->S->L;
    struct spec *sp = owners->sp;
    if (!sp->updates.every) {
        if (push_field(owners->t, "version") != LUA_TNIL)
            field_fail(L, owners->t->line, "version",
                       "'version' needs an 'update' within the step; with \"flush\" all jobs read the same version");
        lua_pop(L, 1);
        return;
    }
    bool zero = false;
    for (int s = 0; sp->owners.zero && s < sp->stages; s++)
        zero |= sp->owners.zero[s] > 0;
    for (const struct job *j = sp->job; j < sp->job + sp->njobs; j++)
        if (j->home >= sp->workers && home_of(sp, &j->home).n > home_of(sp, &j->team).n)
            function_fail(L, owners->w, "w",
                          "w() returned a list of ranks as home; 'update' does not support sharded weights yet: name "
                          "one rank, or several in turn as replicas; for a team, one rank per member");
    refuse(owners, "zero", zero, "each replica runs the whole update");
    refuse(owners, "source", sp->owners.source, "weights come from their home");
    refuse(owners, "grad_slots", sp->limits.grad_slots, "gradients stay until their update");
    refuse(owners, "offload_optimizer", sp->limits.offload_state, "its state is used too often");
    read_versions(owners);
    ask_updates(owners, n, cost);
}
