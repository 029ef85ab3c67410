/* Reads model { costs = { { name = "conv1", forward = 0.01, … }, … } }: the costs of each layer, from a profiler or a
 * paper, without the layers themselves. */
#include "script.h"
#include <math.h>

const char *const cost_fields[] = {"name",       "forward", "backward", "weight_gradient",
                                   "activation", "stash",   "weights",  NULL};

/* Returns the name of costs[i] for messages: costs[3] (conv3). */
static const char *item_name(int i, const char *name) {
    return name ? format("costs[%d] (%s)", i, name) : format("costs[%d]", i);
}

static double seconds_field(const struct table *table, const char *field, double otherwise) {
    int type = push_field(table, field);
    double x = type == LUA_TNUMBER ? lua_tonumber(table->L, -1) : otherwise;
    if (type == LUA_TNIL && isnan(otherwise))
        field_fail(table->L, table->line, "costs", "%s needs the field '%s'; add: %s = <seconds of a microbatch>",
                   table->what, field, field);
    if (type != LUA_TNIL && (type != LUA_TNUMBER || !is_time(x)))
        field_fail(table->L, table->line, "costs", "%s: '%s' must be seconds (" A_TIME "), not %s", table->what, field,
                   describe(table->L, -1));
    lua_pop(table->L, 1);
    return x;
}

/* Reads a field in bytes. otherwise -1: it must be given. The total stays below 2^58, because several such sums are
 * added up later. */
static int64_t bytes_field(const struct table *table, const char *field, int64_t otherwise, double *all) {
    int type = push_field(table, field);
    double x = type == LUA_TNUMBER ? ceil(lua_tonumber(table->L, -1)) : (double)otherwise;
    if (type == LUA_TNIL && otherwise < 0)
        field_fail(table->L, table->line, "costs", "%s needs the field '%s'; add: %s = <bytes>", table->what, field,
                   field);
    if (type != LUA_TNIL && (type != LUA_TNUMBER || !(x >= 0 && x <= 0x1p58)))
        field_fail(table->L, table->line, "costs", "%s: '%s' must be bytes, from 0 to 2^58, not %s", table->what, field,
                   describe(table->L, -1));
    *all += x;
    if (*all > 0x1p58)
        field_fail(table->L, table->line, "costs",
                   "%s: with the layers before it, the model takes more than 2^58 bytes", table->what);
    lua_pop(table->L, 1);
    return (int64_t)x;
}

/* Returns the layer's name, or a numbered one if it has none. */
static const char *name_field(const struct table *table, int i) {
    int type = push_field(table, "name");
    const char *name = type == LUA_TSTRING ? copy_string(lua_tostring(table->L, -1)) : format("layer %d", i);
    if (type != LUA_TNIL && (type != LUA_TSTRING || !*name))
        field_fail(table->L, table->line, "costs", "%s: 'name' must be a string, not %s", table->what,
                   describe(table->L, -1));
    lua_pop(table->L, 1);
    return name;
}

static struct layer_cost read_cost(struct table table, int i, double *all) {
    struct layer_cost cost;
    check_fields(&table, cost_fields);
    cost.name = name_field(&table, i);
    table.what = item_name(i, cost.name);
    cost.forward = seconds_field(&table, "forward", NAN);
    cost.backward = seconds_field(&table, "backward", fmin(2 * cost.forward, MOST_TIME));
    cost.activation = bytes_field(&table, "activation", -1, all);
    cost.stash = bytes_field(&table, "stash", cost.activation, all);
    cost.weights = bytes_field(&table, "weights", 0, all);
    cost.weight_gradient = seconds_field(&table, "weight_gradient", cost.weights > 0 ? cost.backward / 2 : 0);
    if (cost.weight_gradient > cost.backward)
        field_fail(table.L, table.line, "costs",
                   "%s: 'weight_gradient' is a part of 'backward', and cannot take longer", table.what);
    return cost;
}

bool read_costs(const struct table *table, struct model *m) {
    static const char *const excluded[] = {"input", "layers", "optimizer", "precision"};
    lua_State *L = table->L;
    double all = 0;
    int type = push_field(table, "costs"), list = lua_gettop(L);
    if (type == LUA_TNIL) {
        lua_pop(L, 1);
        return false;
    }
    for (int i = 0; i < 4; i++)
        if (push_field(table, excluded[i]) != LUA_TNIL)
            field_fail(L, table->line, excluded[i],
                       "a cost model has no '%s': 'costs' gives the costs of layers, 'layers' the layers "
                       "themselves; leave one out",
                       excluded[i]);
    lua_settop(L, list);
    m->nitems = type == LUA_TTABLE ? (int)lua_rawlen(L, list) : 0;
    if (m->nitems == 0)
        field_fail(
            L, table->line, "costs",
            "'costs' must be a list of each layer's costs, { { forward = 0.01, activation = 4096 }, ... }; it is %s",
            type == LUA_TTABLE ? "empty" : describe(L, list));
    m->cost = NEW(struct layer_cost, m->nitems);
    for (int i = 1; i <= m->nitems; i++, lua_settop(L, list)) {
        if (lua_rawgeti(L, list, i) != LUA_TTABLE)
            field_fail(L, table->line, "costs",
                       "costs[%d] is %s; it must be a table: { forward = 0.01, activation = 4096 }", i,
                       describe(L, -1));
        m->cost[i - 1] = read_cost((struct table){L, list + 1, table->line, item_name(i, NULL)}, i, &all);
    }
    lua_settop(L, list - 1);
    return true;
}
