/* Turns cluster { link, speed, memory, flops, cost, stages, host_link, host_memory, cores, threads, serial, handoff }
 * into links between all pairs of ranks and to host memory, the speed of each rank, shared cores, and measured job
 * times. */
#include "script.h"
#include <limits.h>
#include <math.h>

const char *const cluster_fields[] = {"link",        "speed", "memory",  "flops",  "cost",    "stages", "host_link",
                                      "host_memory", "cores", "threads", "serial", "handoff", NULL};

static double number_at(lua_State *L, int index) {
    return lua_type(L, index) == LUA_TNUMBER ? lua_tonumber(L, index) : NAN;
}

static _Noreturn void refuse_link(lua_State *L, int index, int function, const char *name, const char *what) {
    function_fail(L, function, name,
                  "%s returned %s %s; return latency, bandwidth: seconds (" A_TIME
                  ") and bytes per second (from 1e-100 to 1e100, or math.huge: a free link)",
                  call_name(script_of(L)), what, describe(L, index));
}

/* Returns what the function `name` at stack index f returns for rank src, and, unless dst < 0, for dst. */
static struct link ask_link(struct script *script, const char *name, int f, int src, int dst) {
    lua_State *L = script->L;
    call_begin(script, name, src, dst, -1);
    lua_pushvalue(L, f);
    lua_pushinteger(L, src);
    if (dst >= 0)
        lua_pushinteger(L, dst);
    lua_call(L, dst >= 0 ? 2 : 1, 2);
    struct link link = {number_at(L, -2), number_at(L, -1)};
    if (!is_time(link.latency))
        refuse_link(L, -2, f, name, "latency");
    if (!is_positive(link.bandwidth) && link.bandwidth != INFINITY)
        refuse_link(L, -1, f, name, "bandwidth");
    lua_pop(L, 2);
    call_end(script);
    return link;
}

static struct link *links(struct script *script, const struct table *table, int workers) {
    lua_State *L = script->L;
    int type = push_field(table, "link"), f = lua_gettop(L);
    if (type == LUA_TNIL)
        return NULL;
    if (type != LUA_TFUNCTION)
        field_fail(L, table->line, "link",
                   "'link' must be a function(src, dst) that returns latency, bandwidth, not %s", describe(L, f));
    struct link *link = NEW(struct link, (size_t)workers * (size_t)workers);
    for (int src = 0; src < workers; src++)
        for (int dst = 0; dst < workers; dst++)
            link[(size_t)src * (size_t)workers + (size_t)dst] =
                src == dst ? (struct link){0, INFINITY} : ask_link(script, "link", f, src, dst);
    return link;
}

static struct link *host_links(struct script *script, const struct table *table, int workers) {
    lua_State *L = script->L;
    int type = push_field(table, "host_link"), f = lua_gettop(L);
    if (type == LUA_TNIL)
        return NULL;
    if (type != LUA_TFUNCTION)
        field_fail(L, table->line, "host_link",
                   "'host_link' must be a function(rank) that returns latency, bandwidth, not %s", describe(L, f));
    struct link *link = NEW(struct link, workers);
    for (int rank = 0; rank < workers; rank++)
        link[rank] = ask_link(script, "host_link", f, rank, -1);
    return link;
}

static double *speeds(struct script *script, const struct table *table, int workers) {
    lua_State *L = script->L;
    int type = push_field(table, "speed"), f = lua_gettop(L);
    if (type == LUA_TNIL)
        return NULL;
    if (type != LUA_TFUNCTION)
        field_fail(L, table->line, "speed", "'speed' must be a function(rank) that returns how fast it is, not %s",
                   describe(L, f));
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
    int type = push_field(table, "cost"), f = lua_gettop(L);
    if (type == LUA_TNIL)
        return NULL;
    if (type != LUA_TFUNCTION)
        field_fail(L, table->line, "cost", "'cost' must be a function(s, op) that returns seconds, not %s",
                   describe(L, f));
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

/* Checks that link and job times have the same unit, so that they can be added. Link times are in seconds, unless there
 * are neither a model nor flops: then all times are in the undefined unit of cost. */
static void check_units(struct script *script, const struct table *table, const struct spec *sp) {
    bool free = true, own = !isnan(sp->job[0].cost);
    for (int64_t i = 0; sp->machine.link && i < (int64_t)sp->workers * sp->workers; i++)
        free &= sp->machine.link[i].latency == 0 && isinf(sp->machine.link[i].bandwidth);
    for (int r = 0; sp->machine.host_link && r < sp->workers; r++)
        free &= sp->machine.host_link[r].latency == 0 && isinf(sp->machine.host_link[r].bandwidth);
    if (free || sp->machine.took || is_costs(sp))
        return;
    if (sp->model && sp->machine.flops == 0)
        field_fail(script->L, table->line, "link",
                   "'link' returns seconds, but the costs of the model's jobs are in FLOP, and the two cannot be "
                   "added; add flops, the FLOP per second of a rank: flops = 1e14");
    if (!sp->model && !own && sp->machine.flops > 0)
        field_fail(script->L, table->line, "flops",
                   "'flops' converts a model's FLOP to seconds, and 'link' returns seconds, but without a model costs "
                   "are in units; give --model, or leave 'flops' out and let 'link' return units");
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
    sp->machine.host_link = host_links(script, &table, sp->workers);
    sp->machine.speed = speeds(script, &table, sp->workers);
    sp->machine.took = costs(script, &table, sp->stages, sp->names.sets);
    share_cores(script, &table, sp);
    check_units(script, &table, sp);
}
