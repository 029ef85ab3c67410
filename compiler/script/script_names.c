/* `pianola help scripts`: every name that a script can use and every field that its tables take, from the same tables
 * and environment that scripts run with. schedules/pianola.d.lua gives them to editors. */
#include "script.h"
#include <string.h>

void put_names(struct text *out, const char *title, const char *const *names) {
    enum { WIDTH = 78 };
    size_t column = WIDTH;
    put(out, "%s%s:", out->n ? "\n\n" : "", title);
    for (; *names; names++) {
        size_t n = strlen(*names) + 1;
        bool fits = column + n <= WIDTH;
        put(out, "%s %s", fits ? "" : "\n ", *names);
        column = fits ? column + n : n + 1;
    }
}

/* Appends the keys of the table on top, in the arena; for a library, appends its functions, such as `math.floor`. */
static void add_keys(lua_State *L, const char *prefix, const char ***names, size_t *n, size_t *capacity) {
    int table = lua_gettop(L);
    push_sorted_keys(L, table);
    for (int i = 1; lua_rawgeti(L, table + 1, i) != LUA_TNIL; i++, lua_settop(L, table + 1)) {
        const char *name = format("%s%s", prefix, lua_tostring(L, -1));
        if (lua_rawget(L, table) == LUA_TTABLE && !*prefix) {
            add_keys(L, format("%s.", name), names, n, capacity);
            continue;
        }
        GROW(*names, *capacity, *n + 2);
        (*names)[(*n)++] = name;
        (*names)[*n] = NULL;
    }
    lua_settop(L, table);
}

/* Lists the names for a script of this kind. A cluster script has the names that all have, and its own `cluster`. */
static void list(struct script *script, void *names) {
    size_t n = 0, capacity = 0;
    lua_State *L = script->L;
    push_environment(L, script->kind);
    lua_getmetatable(L, -1);
    lua_getfield(L, -1, "__index"); /* its globals */
    add_keys(L, "", names, &n, &capacity);
}

static const char **names_in(enum script_kind kind) {
    struct settings none = {0};
    struct script script = {.kind = kind, .set = &none, .call.d = -1, .file = script_kinds[kind]};
    const char **names = NULL;
    script.src = format("return %s {}", script_kinds[kind]);
    script.size = strlen(script.src);
    sandbox_run(&script, list, &names);
    return names;
}

/* Returns the names that are not in others. */
static const char **without(const char **names, const char **others) {
    const char **out = names, **to = names;
    for (; *names; names++) {
        const char **o = others;
        while (*o && strcmp(*o, *names) != 0)
            o++;
        if (!*o)
            *to++ = *names;
    }
    *to = NULL;
    return out;
}

void script_names(struct text *out) {
    const char **schedule = names_in(SCRIPT_SCHEDULE), **model = names_in(SCRIPT_MODEL);
    const char **cluster = names_in(SCRIPT_CLUSTER), **own = without(names_in(SCRIPT_CLUSTER), schedule);
    put_names(out, "Every script finds", without(cluster, own));
    put_names(out, "A schedule finds, besides", without(schedule, cluster));
    put_names(out, "A model finds, besides", without(model, cluster));
    put_names(out, "A cluster finds, besides", own);
    put_names(out, "Fields of schedule", schedule_fields);
    put_names(out, "Fields of model", model_fields);
    put_names(out, "Fields of costs", cost_fields);
    put_names(out, "Fields of cluster", cluster_fields);
    put_layer_fields(out);
    put(out, "\n");
}
