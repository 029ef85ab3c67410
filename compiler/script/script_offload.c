/* Reads offload, offload_optimizer and bucket: the tensors that leave the device while unused, and the size of gradient
 * messages. */
#include "script.h"
#include <math.h>
#include <string.h>

static const char some[] = "true, or a function that returns true or false";

/* Returns the boolean that f, the function at that stack index, returns for (s,b), or for s alone if b < 0. */
static bool ask_truth(struct owners *owners, const char *name, int f, int s, int b) {
    lua_State *L = owners->S->L;
    if (b >= 0)
        b += owners->S->later;
    call_begin(owners->S, name, s, b, -1);
    lua_pushvalue(L, f);
    lua_pushinteger(L, s);
    lua_call(L, 1 + (b >= 0 ? push_batch(owners->S, b) + push_slice(owners->S, b) : 0), 1);
    if (!lua_isboolean(L, -1))
        function_fail(L, f, name, "%s returned %s; return true or false", call_name(owners->S), describe(L, -1));
    bool yes = lua_toboolean(L, -1);
    lua_settop(L, f);
    call_end(owners->S);
    return yes;
}

/* Reads offload: true, "auto", or a function(s, b). */
static void read_offloaded(struct owners *owners) {
    lua_State *L = owners->S->L;
    struct spec *sp = owners->sp;
    int type = push_field(owners->t, "offload"), f = lua_gettop(L);
    sp->choices.auto_offload = type == LUA_TSTRING && !strcmp(lua_tostring(L, f), "auto");
    bool all = type == LUA_TBOOLEAN && lua_toboolean(L, f), none = type == LUA_TNIL || (type == LUA_TBOOLEAN && !all);
    if (!all && !none && !sp->choices.auto_offload && type != LUA_TFUNCTION)
        field_fail(L, owners->t->line, "offload", "'offload' must be \"auto\", or %s, not %s", some, describe(L, f));
    if (!none)
        sp->choices.offload = NEW(uint8_t, (int64_t)sp->stages * sp->batches);
    for (int s = 0; sp->choices.offload && s < sp->stages; s++)
        for (int b = 0; b < sp->batches; b++)
            sp->choices.offload[(int64_t)s * sp->batches + b] =
                all || (type == LUA_TFUNCTION && ask_truth(owners, "offload", f, s, b));
    lua_settop(L, f - 1);
}

/* Reads offload_optimizer: true, or a function(s). */
static void read_offloaded_state(struct owners *owners) {
    lua_State *L = owners->S->L;
    struct spec *sp = owners->sp;
    int type = push_field(owners->t, "offload_optimizer"), f = lua_gettop(L);
    bool all = type == LUA_TBOOLEAN && lua_toboolean(L, f);
    if (type != LUA_TNIL && type != LUA_TBOOLEAN && type != LUA_TFUNCTION)
        field_fail(L, owners->t->line, "offload_optimizer", "'offload_optimizer' must be %s, not %s", some,
                   describe(L, f));
    if (all || type == LUA_TFUNCTION)
        sp->limits.offload_state = NEW(bool, sp->stages + 1); /* and for the table, which follows stage 0 */
    for (int s = 0; sp->limits.offload_state && s < sp->stages; s++)
        sp->limits.offload_state[s] = all || ask_truth(owners, "offload_optimizer", f, s, -1);
    if (sp->limits.offload_state)
        sp->limits.offload_state[sp->stages] = sp->limits.offload_state[0];
    lua_settop(L, f - 1);
}

/* Reads bucket: bytes, or a function(s) that returns them. */
static void read_bucket(struct owners *owners) {
    lua_State *L = owners->S->L;
    struct spec *sp = owners->sp;
    int type = push_field(owners->t, "bucket"), f = lua_gettop(L);
    sp->limits.bucket = NEW(int64_t, sp->stages);
    for (int s = 0; type != LUA_TNIL && s < sp->stages; s++) {
        call_begin(owners->S, "bucket", s, -1, -1);
        lua_pushvalue(L, f);
        if (type == LUA_TFUNCTION) {
            lua_pushinteger(L, s);
            lua_call(L, 1, 1);
        }
        double x = lua_type(L, -1) == LUA_TNUMBER ? lua_tonumber(L, -1) : NAN;
        static const char must[] = "the most bytes of a gradient that travel as one message, at least 1, or math.huge";
        if (type == LUA_TFUNCTION && !(x >= 1))
            function_fail(L, f, "bucket", "%s returned %s; return %s", call_name(owners->S), describe(L, -1), must);
        if (!(x >= 1))
            field_fail(L, owners->t->line, "bucket", "'bucket' must be %s, or a function(s) that returns it; not %s",
                       must, describe(L, -1));
        sp->limits.bucket[s] = x < 0x1p62 ? (int64_t)x : INT64_MAX;
        lua_settop(L, f);
        call_end(owners->S);
    }
    lua_settop(L, f - 1);
}

void read_offload(struct owners *owners) {
    read_offloaded(owners);
    read_offloaded_state(owners);
    read_bucket(owners);
}
