/* Turns cluster { link, collective, speed, memory, flops, cost, spread, stages, host_link, host_memory, cores, threads,
 * serial, handoff } into links between all pairs of ranks and to host memory, the times of collectives, the speed of
 * each rank, shared cores, and measured job times and how they vary. */
#include "script.h"
#include <limits.h>
#include <math.h>

const char *const cluster_fields[] = {"link",  "collective", "speed",  "memory",    "flops",
                                      "cost",  "spread",     "stages", "host_link", "host_memory",
                                      "cores", "threads",    "serial", "handoff",   NULL};

static double number_at(lua_State *L, int index) {
    return lua_type(L, index) == LUA_TNUMBER ? lua_tonumber(L, index) : NAN;
}

static _Noreturn void refuse_link(lua_State *L, int index, int function, const char *call, const char *what) {
    function_fail(L, function, script_of(L)->call.name,
                  "%s returned %s %s; return latency, bandwidth: seconds (" A_TIME
                  ") and bytes per second (from 1e-100 to 1e100, or math.huge: a free link)",
                  call, what, describe(L, index));
}

/* Calls a copy of the function at stack index f, with the n arguments above it. Returns the latency and bandwidth that
 * it returns; if it may return nil and does, a latency of NAN. call: the call as errors name it. */
static struct link call_link(lua_State *L, const char *call, int f, int n, bool may_be_nil) {
    lua_call(L, n, 2);
    struct link link = {number_at(L, -2), number_at(L, -1)};
    bool none = may_be_nil && lua_isnil(L, -2);
    if (!none && !is_time(link.latency))
        refuse_link(L, -2, f, call, "latency");
    if (!none && !is_positive(link.bandwidth) && link.bandwidth != INFINITY)
        refuse_link(L, -1, f, call, "bandwidth");
    lua_pop(L, 2);
    return link;
}

/* Returns what the function `name` at stack index f returns for rank src, and, unless dst < 0, for dst. */
static struct link ask_link(struct script *script, const char *name, int f, int src, int dst) {
    lua_State *L = script->L;
    call_begin(script, name, src, dst, -1);
    lua_pushvalue(L, f);
    lua_pushinteger(L, src);
    if (dst >= 0)
        lua_pushinteger(L, dst);
    struct link link = call_link(L, call_name(script), f, dst >= 0 ? 2 : 1, false);
    call_end(script);
    return link;
}

static struct link *links(struct script *script, const struct table *table, int workers) {
    int f = function_field(table, "link", "latency, bandwidth of the link from rank src to rank dst");
    if (f == 0)
        return NULL;
    struct link *link = NEW(struct link, (size_t)workers * (size_t)workers);
    for (int src = 0; src < workers; src++)
        for (int dst = 0; dst < workers; dst++)
            link[(size_t)src * (size_t)workers + (size_t)dst] =
                src == dst ? (struct link){0, INFINITY} : ask_link(script, "link", f, src, dst);
    return link;
}

static struct link *host_links(struct script *script, const struct table *table, int workers) {
    int f = function_field(table, "host_link", "latency, bandwidth of a rank's link to host memory");
    if (f == 0)
        return NULL;
    struct link *link = NEW(struct link, workers);
    for (int rank = 0; rank < workers; rank++)
        link[rank] = ask_link(script, "host_link", f, rank, -1);
    return link;
}

static struct link *collectives(struct script *script, const struct table *table, int workers) {
    lua_State *L = script->L;
    int f = function_field(table, "collective", "latency, bandwidth of an operation among n ranks");
    if (f == 0)
        return NULL;
    struct link *of = NEW(struct link, (int64_t)NOPS * (workers + 1));
    for (int op = 0; op < NOPS; op++)
        for (int n = 2; n <= workers && is_group(op) && motion_of(op) == op; n++) {
            char call[64];
            struct link *link = &of[(int64_t)op * (workers + 1) + n];
            call_begin(script, "collective", n, -1, -1);
            lua_pushvalue(L, f);
            lua_pushstring(L, op_name[op]);
            lua_pushinteger(L, n);
            snprintf(call, sizeof call, "collective(\"%s\", %d)", op_name[op], n);
            *link = call_link(L, call, f, 2, true);
            call_end(script);
        }
    return of;
}

static double *speeds(struct script *script, const struct table *table, int workers) {
    lua_State *L = script->L;
    int f = function_field(table, "speed", "how fast a rank is");
    if (f == 0)
        return NULL;
    double *speed = NEW(double, workers);
    for (int k = 0; k < workers; k++) {
        call_begin(script, "speed", k, -1, -1);
        lua_pushvalue(L, f);
        lua_pushinteger(L, k);
        lua_call(L, 1, 1);
        speed[k] = number_at(L, -1);
        if (!is_positive(speed[k]))
            function_fail(L, f, "speed",
                          "%s returned %s; return a number from 1e-100 to 1e100: 1 is the speed that costs are for, "
                          "and 0.5 takes twice as long",
                          call_name(script), describe(L, -1));
        lua_pop(L, 1);
        call_end(script);
    }
    return speed;
}

/* Returns the costs of ops in the compute lane, [stage * NOPS + op]; after the stages, the costs of the sets of weights
 * that no single stage has. */
static double *costs(struct script *script, const struct table *table, int stages, int sets) {
    lua_State *L = script->L;
    int f = function_field(table, "cost", "the seconds of stage s's operation");
    if (f == 0)
        return NULL;
    int of = integer_field(table, "stages", 1, INT_MAX);
    if (of != stages)
        field_fail(L, table->line, "stages",
                   "'stages' is %d: these costs are for %d stages, but the schedule has %d; measure such a schedule, "
                   "or leave 'cost' out",
                   of, of, stages);
    double *cost = NEW(double, ((int64_t)stages + sets) * NOPS);
    for (int s = 0; s < stages + sets; s++)
        for (int op = 0; op < NOPS; op++) {
            if (!has_cost(op) || (s >= stages && is_job(op)))
                continue;
            call_begin(script, "cost", s, -1, -1);
            lua_pushvalue(L, f);
            lua_pushinteger(L, s);
            lua_pushstring(L, op_name[op]);
            lua_call(L, 2, 1);
            double x = cost[s * NOPS + op] = number_at(L, -1);
            if (!is_time(x) && !lua_isnil(L, -1))
                function_fail(L, f, "cost",
                              "cost(%d, \"%s\") returned %s; return seconds (" A_TIME
                              "), or nil if nothing was measured",
                              s, op_name[op], describe(L, -1));
            lua_pop(L, 1);
            call_end(script);
        }
    return cost;
}

/* Returns the list on top of the stack as multiples of the mean of the lines between its numbers. */
static struct spread read_spread(lua_State *L, int f, int s, int op) {
    struct spread spread = {(int)lua_rawlen(L, -1), NULL};
    double sum = 0, before = 0;
    bool good = spread.n >= 2 && spread.n <= 1000;
    spread.at = NEW(double, good ? spread.n : 1);
    for (int i = 0; good && i < spread.n; i++) {
        lua_rawgeti(L, -1, i + 1);
        spread.at[i] = number_at(L, -1);
        lua_pop(L, 1);
        good = is_time(spread.at[i]) && spread.at[i] >= before;
        sum += i > 0 ? (before + spread.at[i]) / 2 : 0;
        before = spread.at[i];
    }
    if (!good || sum <= 0)
        function_fail(L, f, "spread",
                      "spread(%d, \"%s\") returned %s; return a list of 2 to 1000 times that ascend, from the least to "
                      "the greatest, or nil if nothing was measured",
                      s, op_name[op], describe(L, -1));
    for (int i = 0; i < spread.n; i++)
        spread.at[i] /= sum / (spread.n - 1);
    return spread;
}

static struct spread *spreads(struct script *script, const struct table *table, int sets) {
    lua_State *L = script->L;
    int f = function_field(table, "spread", "a list of ascending times of stage s's operation");
    if (f == 0)
        return NULL;
    struct spread *spread = NEW(struct spread, (int64_t)sets * NOPS);
    for (int s = 0; s < sets; s++)
        for (int op = 0; op < NOPS; op++) {
            if (!has_cost(op))
                continue;
            call_begin(script, "spread", s, -1, -1);
            lua_pushvalue(L, f);
            lua_pushinteger(L, s);
            lua_pushstring(L, op_name[op]);
            lua_call(L, 2, 1);
            if (lua_istable(L, -1))
                spread[s * NOPS + op] = read_spread(L, f, s, op);
            else if (!lua_isnil(L, -1))
                function_fail(L, f, "spread", "spread(%d, \"%s\") returned %s, not a list of times", s, op_name[op],
                              describe(L, -1));
            lua_pop(L, 1);
            call_end(script);
        }
    return spread;
}

/* Returns whether all links are free. Those that are not given, of latency NAN or bandwidth 0, do not count. */
static bool all_free(const struct link *link, int64_t n) {
    for (int64_t i = 0; link && i < n; i++)
        if (link[i].latency > 0 || (link[i].bandwidth > 0 && !isinf(link[i].bandwidth)))
            return false;
    return true;
}

/* Checks that link and job times have the same unit, so that they can be added. Link times are in seconds, unless there
 * are neither a model nor flops: then all times are in the undefined unit of cost. */
static void check_units(struct script *script, const struct table *table, const struct spec *sp) {
    int64_t n = sp->workers;
    bool own = !isnan(sp->job[0].cost);
    const char *name = !all_free(sp->machine.link, n * n)                  ? "link"
                       : !all_free(sp->machine.collective, NOPS * (n + 1)) ? "collective"
                                                                           : "host_link";
    if ((strcmp(name, "host_link") == 0 && all_free(sp->machine.host_link, n)) || sp->machine.took || is_costs(sp))
        return;
    if (sp->model && sp->machine.flops == 0)
        field_fail(script->L, table->line, name,
                   "'%s' returns seconds, but the costs of the model's jobs are in FLOP, and the two cannot be "
                   "added; add flops, the FLOP per second of a rank: flops = 1e14",
                   name);
    if (!sp->model && !own && sp->machine.flops > 0)
        field_fail(script->L, table->line, "flops",
                   "'flops' converts a model's FLOP to seconds, and '%s' returns seconds, but without a model costs "
                   "are in units; give --model, or leave 'flops' out and let '%s' return units",
                   name, name);
}

/* Reads how many cores all ranks share, and how many of them a job uses. */
static void share_cores(struct script *script, const struct table *table, struct spec *sp) {
    lua_State *L = script->L;
    sp->machine.cores = number_field(table, "cores", 0);
    bool threads = push_field(table, "threads") != LUA_TNIL;
    int serial = push_field(table, "serial");
    if (serial != LUA_TNIL && serial != LUA_TBOOLEAN)
        field_fail(L, table->line, "serial", "'serial' must be true or false, not %s", describe(L, -1));
    sp->machine.serial = lua_toboolean(L, -1);
    int handoff = push_field(table, "handoff");
    sp->machine.handoff = lua_tonumber(L, -1);
    if (handoff != LUA_TNIL && (handoff != LUA_TNUMBER || !(sp->machine.handoff >= 0) || isinf(sp->machine.handoff)))
        field_fail(L, table->line, "handoff", "'handoff' must be a number of seconds, at least 0, not %s",
                   describe(L, -1));
    lua_pop(L, 3);
    if (sp->machine.handoff > 0 && !sp->machine.serial)
        field_fail(L, table->line, "handoff",
                   "'handoff' is the time until a rank that gets a core runs, but the ranks are no threads that take "
                   "turns; add serial = true");
    sp->machine.threads = threads ? integer_field(table, "threads", 1, INT_MAX) : 1;
    if (threads && sp->machine.cores == 0)
        field_fail(L, table->line, "threads",
                   "'threads' says how many of the cores a job uses, but there is no 'cores'; add the number of cores "
                   "that all ranks share: cores = 8");
    if ((sp->machine.cores > 0 || sp->machine.serial) && sp->choices.launch != LAUNCH_LANE)
        field_fail(L, table->line, sp->machine.serial ? "serial" : "cores",
                   "'%s' is about ranks that are threads of a CPU, and --launch-order is about GPUs; leave one of "
                   "them out",
                   sp->machine.serial ? "serial" : "cores");
}

void extract_cluster(struct script *script, void *spec) {
    struct spec *sp = spec;
    char buf[32];
    struct table table = {script->L, lua_gettop(script->L), script->line, "cluster"};
    check_fields(&table, cluster_fields);
    sp->machine.has_cluster = true;
    sp->machine.memory = number_field(&table, "memory", INFINITY);
    sp->machine.flops = number_field(&table, "flops", 0);
    if (sp->machine.flops != 0 && !is_positive(sp->machine.flops))
        field_fail(script->L, table.line, "flops",
                   "'flops' must be from 1e-100 to 1e100, not %s; leave it out to count times in FLOP",
                   number(sp->machine.flops, buf));
    sp->machine.host_memory = number_field(&table, "host_memory", INFINITY);
    sp->machine.link = links(script, &table, sp->workers);
    sp->machine.collective = collectives(script, &table, sp->workers);
    sp->machine.host_link = host_links(script, &table, sp->workers);
    sp->machine.speed = speeds(script, &table, sp->workers);
    sp->machine.took = costs(script, &table, sp->stages, sp->names.sets);
    sp->machine.spread = spreads(script, &table, sp->stages + sp->names.sets);
    share_cores(script, &table, sp);
    check_units(script, &table, sp);
}
