/* The sandbox limits how much a script computes; script_globals.c limits the names that it can use. All limits are
 * counts, never times, so that the same script ends the same way on every machine, every time.
 *
 * - Instructions: a hook counts them. A pcall can catch the error it raises, so it keeps raising it. An instruction on
 *   long strings or many values counts as several, depending on the values that the hook finds in its reach.
 * - Nested calls: Lua allocates a frame for each, frees it when an error unwinds it, and visits all that are left. So a
 *   deeply nested call counts as several instructions, and so does a caught error, for each frame below it.
 * - Library calls: the hook does not run inside C functions. Functions whose work a script controls charge for it as
 *   instructions, while they run (script_library.c) or before (script_pattern.c).
 * - Memory: the allocator refuses requests beyond a limit, and records each refusal. Allocations count as
 * instructions. */
#include "script.h"
#include <stdlib.h>
#include <string.h>

enum {
    HOOK_STEP = 101, /* instructions between hook calls: a prime, so that it samples all parts of a loop */
    MAIN_BUDGET = 200000000 / FUZZ_SHARE, /* for a main chunk; and for all calls together, plus CALL_SHARE each */
    CALL_BUDGET = 10000000 / FUZZ_SHARE,  /* for a call of w, n, … */
    CALL_SHARE = 100000 / FUZZ_SHARE,
    MEMORY_LIMIT = (384 << 20) / FUZZ_HEAP, /* bytes of Lua's heap */
    OBJECT = 8,                             /* instructions to make and collect a string, a table, … */
    BYTES_PER_INSTRUCTION = 32,             /* bytes that it fills per instruction */
    FRESH_BYTES = 2,                        /* or, if it is large enough to need new pages, */
    FRESH = 1 << 16,                        /* which is from this size in bytes on */
    LONG_STRING = 512,                      /* bytes above which comparing one counts as more than an instruction */
    HUGE_STRING = 1 << 20,                  /* and above which the hook runs more often, */
    HUGE_STEP = 7,                          /* every this many instructions */
    MANY = 256,                             /* values above which a call or return counts as more */
    MANY_METATABLES = 32,                   /* set before the hook looks for long chains of __index */
    DEEP = 32,                              /* nested calls beyond which the hook counts calls, too: */
    DEEP_CALL = 64,                         /* instructions to make and unwind a frame, */
    FRAME = 8,                              /* and to pass one, when an error is caught far below or above it */
};

struct script *script_of(lua_State *L) {
    return *(struct script **)lua_getextraspace(L);
}

static void on_count(lua_State *L, lua_Debug *ar);

bool script_ended(const struct script *script) {
    return script->failure.message || script->heap.starved || script->heap.refused ||
           script->meter.used > script->meter.budget;
}

static void charge(struct script *script, int64_t instructions) {
    script->meter.used += instructions;
    if (script->meter.used > script->meter.budget &&
        script->L) /* at once, not after HOOK_STEP more instructions that cost as much */
        lua_sethook(script->running, on_count, LUA_MASKCOUNT, 1);
}

/* ---- memory ---- */

/* Returns the bytes that malloc uses for n bytes. It rounds up, which matters because there are many small strings. */
static size_t taken(size_t n) { return n == 0 ? 0 : n < 24 ? 32 : (n + 23) & ~(size_t)15; }

/* Charges objects when they are made. Does not charge for growing blocks here: when a table grows depends on its
 * hashes, which Lua seeds with addresses. Insertions are charged instead. */
static void charge_block(struct script *script, int kind, size_t size) {
    size_t *largest = kind == LUA_TSTRING ? &script->heap.longest : &script->heap.largest;
    if (size > *largest)
        *largest = size;
    if (kind == LUA_TNIL)
        return;
    int64_t instructions = OBJECT + (int64_t)(size / (size < FRESH ? BYTES_PER_INSTRUCTION : FRESH_BYTES));
    script->meter.filling += instructions;
    charge(script, instructions);
}

/* Lua's allocator. After a refusal Lua collects garbage and repeats the request. The script is out of memory if that
 * fails, if collecting freed too little to continue without collecting at every step, or if the request is not
 * repeated. This is final, even if a pcall catches it: the hook and sandbox_run check for it. */
static void *heap(void *data, void *block, size_t old, size_t size) {
    struct script *script = data;
    size_t had = block ? taken(old) : 0, needs = taken(size);
    if (size == 0) {
        free(block);
        script->heap.bytes -= had;
        return NULL;
    }
    uintptr_t at = (uintptr_t)block;
    bool again = script->heap.starved && at == script->heap.refused_block && size == script->heap.refused_size;
    size_t limit = again ? MEMORY_LIMIT - MEMORY_LIMIT / 8 : MEMORY_LIMIT;
    bool refuse = needs > had && script->heap.bytes - had + needs > limit;
    void *p = refuse ? NULL : realloc(block, size);
    if (needs > had) {
        charge_block(script, block ? LUA_TNIL : (int)old, size); /* for a new block, `old` is its type */
        script->heap.refused |= script->heap.starved && (!again || !p);
        script->heap.starved = !p;
        if (script->heap.refused) /* at once: every allocation may now collect all garbage in vain */
            lua_sethook(script->running, on_count, LUA_MASKCOUNT, 1);
        script->heap.refused_block = at;
        script->heap.refused_size = size;
        if (!p && script->L && !script->heap.refused)
            script->heap.refused_line = script_line(script->L);
    }
    if (p)
        script->heap.bytes += needs - had;
    if (script->heap.bytes > script->heap.most)
        script->heap.most = script->heap.bytes;
    return p;
}

/* ---- instructions ---- */

static const char *memory_text(const struct script *script) {
    const char *text = format("the script used more than %d MiB of memory", MEMORY_LIMIT >> 20);
    return script->call.name ? format("%s, in %s", text, call_name(script)) : text;
}

/* Returns a note on what used most of the budget. */
static const char *used_by(const struct script *script) {
    if (2 * script->meter.inside > script->meter.used)
        return format(", most of them inside %s; give it less to do",
                      script->meter.library ? script->meter.library : "what it returned");
    if (2 * script->meter.filling > script->meter.used)
        return ", most of them to build strings, tables and functions; does this loop end?";
    if (2 * script->meter.nesting > script->meter.used)
        return ", most of them in deeply nested calls; does a function call itself without end?";
    return "; does this loop end?";
}

static _Noreturn void over_budget(lua_State *L) {
    struct script *script = script_of(L);
    int line = script_line(L) ? script_line(L) : script->line, all = MAIN_BUDGET / 1000000,
        each = CALL_BUDGET / 1000000;
    if (!script->call.name)
        script_fail(L, line, 0, "the script used %d million instructions%s", all, used_by(script));
    if (script->meter.budget < CALL_BUDGET)
        script_fail(L, line, 0, "calls up to %s used %d million instructions, beyond %d thousand each",
                    call_name(script), all, CALL_SHARE / 1000);
    if (script->call.d < 0)
        script_fail(L, line, 0, "%s used %d million instructions%s", call_name(script), each, used_by(script));
    script_fail(L, line, 0, "%s() used %d million instructions on %s%s", script->call.name, each,
                job_name(&script->names, script->call.s, script->call.b, script->call.d), used_by(script));
}

void enter(lua_State *L, const char *function) { script_of(L)->meter.library = function; }

void spend(lua_State *L, int64_t instructions) {
    struct script *script = script_of(L);
    script->meter.used += instructions;
    script->meter.inside += instructions;
    if (script->meter.used <= script->meter.budget)
        return;
    lua_sethook(L, on_count, LUA_MASKCOUNT, 1); /* in case the script catches it */
    over_budget(L);
}

/* Returns the number of extra arguments of the running function, if it is large. */
static int64_t extra_arguments(lua_State *L, const lua_Debug *ar) {
    int64_t n = 0;
    for (int step = MANY; step > 0;) { /* doubles, then halves, the step */
        bool more = n + step <= 1000000 && lua_getlocal(L, ar, (int)-(n + step));
        if (more) {
            lua_pop(L, 1);
            n += step;
            step *= 2;
        } else {
            step = n ? step / 2 : 0;
        }
    }
    return n;
}

/* Returns the bytes of the longest string that an instruction of the running function could use. */
static size_t string_in_reach(lua_State *L, const lua_Debug *ar) {
    size_t longest = 0;
    for (int i = 1; lua_getlocal(L, ar, i); i++, lua_pop(L, 1)) {
        size_t n = lua_type(L, -1) == LUA_TSTRING ? lua_rawlen(L, -1) : 0;
        longest = n > longest ? n : longest;
    }
    return longest;
}

/* Returns how many tables may be searched for a field that the table on top lacks. */
static int chain_length(lua_State *L) {
    enum { LONGEST = 2000 }; /* Lua's own limit */
    int n = 0, top = lua_gettop(L);
    for (bool more = lua_istable(L, -1); more && n < LONGEST; n++) {
        more = lua_getmetatable(L, -1);
        if (more) {
            lua_pushliteral(L, "__index");
            more = lua_rawget(L, -2) == LUA_TTABLE;
        }
        lua_replace(L, top);
        lua_settop(L, top);
    }
    return n;
}

/* Returns the length of the longest such chain that the running function could follow. */
static int chain_in_reach(lua_State *L, lua_Debug *ar) {
    int longest = 0, n;
    for (int i = 1; lua_getlocal(L, ar, i); i++, lua_pop(L, 1))
        longest = (n = chain_length(L)) > longest ? n : longest;
    lua_getinfo(L, "f", ar);
    for (int i = 1; lua_getupvalue(L, -1, i); i++, lua_pop(L, 1))
        longest = (n = chain_length(L)) > longest ? n : longest;
    lua_pop(L, 1);
    return longest;
}

/* Returns the cost of an instruction here, by the values that it may have to copy, compare or search. */
static int64_t instruction_weight(lua_State *L, lua_Debug *ar) {
    enum { VALUES = 8, BYTES = 16, SHORT_CHAIN = 4 }; /* number of each that costs as much as an instruction */
    const struct script *script = script_of(L);
    int64_t values = extra_arguments(L, ar), top = lua_gettop(L);
    size_t bytes = script->heap.longest > LONG_STRING ? string_in_reach(L, ar) : 0;
    int chain = script->heap.metatables > MANY_METATABLES ? chain_in_reach(L, ar) : 0;
    values = top > MANY && top > values ? top : values;
    return 1 + values / VALUES + (bytes > LONG_STRING ? (int64_t)bytes / BYTES : 0) + (chain > SHORT_CHAIN ? chain : 0);
}

int64_t cost_of_frames(lua_State *L) {
    lua_Debug ar;
    int n = 1;
    while (n < LUAI_MAXSTACK && lua_getstack(L, n, &ar)) /* doubles, because each test walks all frames again */
        n *= 2;
    return (int64_t)FRAME * n;
}

/* Returns the events that call the hook. */
static int events(lua_State *L) {
    lua_Debug ar;
    return lua_getstack(L, DEEP, &ar) ? LUA_MASKCOUNT | LUA_MASKCALL : LUA_MASKCOUNT;
}

static void on_count(lua_State *L, lua_Debug *ar) {
    struct script *script = script_of(L);
    int step = script->heap.longest > HUGE_STRING ? HUGE_STEP : HOOK_STEP, mask = events(L);
    bool call = ar->event != LUA_HOOKCOUNT;
    script->running = L;
    if (!script_ended(script))
        charge(script, call ? DEEP_CALL : lua_gethookcount(L) * instruction_weight(L, ar));
    script->meter.nesting += call ? DEEP_CALL : 0;
    if (script_ended(script))
        lua_sethook(L, on_count, LUA_MASKCOUNT, 1); /* from now on at every instruction, so that no pcall gets far */
    else if (!call && (lua_gethookcount(L) != step || lua_gethookmask(L) != mask))
        lua_sethook(L, on_count, mask, step); /* drops charges made outside calls */
    if (script->heap.starved || script->heap.refused)
        script_fail(L, script->heap.refused_line, 0, "%s", memory_text(script));
    if (script->failure.message)
        luaL_error(L, "the script has ended");
    if (script->meter.used > script->meter.budget)
        over_budget(L);
}

static double larger(double x, double y) { return x > y ? x : y; }

static void begin_count(struct script *script, int64_t budget) {
    script->meter.used = script->meter.inside = script->meter.filling = script->meter.nesting = 0;
    script->meter.library = NULL;
    script->meter.budget = budget;
}

void call_begin(struct script *script, const char *name, int s, int b, int d) {
    script->call = (struct running_call){name, s, b, d};
    script->meter.left += CALL_SHARE;
    begin_count(script, script->meter.left < CALL_BUDGET ? script->meter.left : CALL_BUDGET);
}

void call_end(struct script *script) {
    script->call.name = NULL;
    script->meter.left -= script->meter.used;
    script->meter.effort = larger(script->meter.effort, (double)script->meter.used / CALL_BUDGET);
    script->meter.effort = larger(script->meter.effort, (double)(MAIN_BUDGET - script->meter.left) / MAIN_BUDGET);
}

int push_batch(struct script *script, int b) {
    lua_pushinteger(script->L, b / slices_of(&script->names));
    return 1;
}

int push_slice(struct script *script, int b) {
    if (script->names.slices)
        lua_pushinteger(script->L, b % script->names.slices);
    return script->names.slices > 0;
}

/* ---- a run ---- */

struct run {
    struct script *S;
    void (*extract)(struct script *script, void *data);
    void *data;
};

static void check_answer(struct script *script) {
    lua_State *L = script->L;
    const char *kind = script_kinds[script->kind];
    lua_rawgetp(L, LUA_REGISTRYINDEX, script);
    if (!lua_istable(L, -1) || !lua_rawequal(L, -1, -2)) {
        int lines = 1;
        for (const char *p = script->src; *p; p++)
            lines += *p == '\n' && p[1];
        script_fail(L, lines, 0, "the script returned %s, not a %s; end it with: return %s { ... }", describe(L, -2),
                    kind, kind);
    }
    lua_pop(L, 1);
}

/* Returns the cost of parsing. It is proportional to the length, and to the square of the number of branches, which Lua
 * keeps in lists that it walks to the end. */
static int64_t cost_of_text(const char *src, size_t size) {
    static const char *const branches[] = {"or", "and", "elseif", "goto", "break", "::"};
    int64_t n = 0;
    for (int i = 0; i < 6; i++)
        for (const char *p = src; (p = strstr(p, branches[i])); p += 2)
            n++;
    return 4 * (int64_t)size + n * n / 4;
}

static int protected_run(lua_State *L) {
    struct run *run = lua_touserdata(L, 1);
    struct script *script = run->S;
    char *chunk = format("@%s", script->file);
    if (script->src[0] == LUA_SIGNATURE[0]) {
        script->src = "";
        script_fail(L, 1, 0, "this is compiled Lua; give the script's source");
    }
    confine_libraries(L);
    push_environment(L, script->kind);
    charge(script, cost_of_text(script->src, script->size));
    if (script_ended(script))
        script_fail(L, 1, 0, "the script is too long or has too many branches");
    if (luaL_loadbufferx(L, script->src, script->size, chunk, "t")) {
        script->failure.broken = true;
        lua_error(L);
    }
    lua_insert(L, -2);
    if (!lua_setupvalue(L, -2, 1))
        lua_pop(L, 1);
    lua_sethook(L, on_count, LUA_MASKCOUNT, HOOK_STEP);
    lua_call(L, 0, 1);
    script->meter.effort = (double)script->meter.used / MAIN_BUDGET;
    check_answer(script);
    run->extract(script, run->data);
    return 0;
}

bool script_broken;

void sandbox_run(struct script *script, void (*extract)(struct script *script, void *data), void *data) {
    struct run run = {.S = script, .extract = extract, .data = data};
    script->meter.left = MAIN_BUDGET;
    begin_count(script, MAIN_BUDGET);
    lua_State *L = lua_newstate(heap, script);
    if (!L)
        die("out of memory");
    script->L = script->running = L;
    *(struct script **)lua_getextraspace(L) = script;
    /* The three pushes below cannot fail: the stack of a new state has room, and a light value needs no memory. */
    lua_pushcfunction(L, on_error);
    lua_pushcfunction(L, protected_run);
    lua_pushlightuserdata(L, &run);
    int status = lua_pcall(L, 1, 0, 1);
    if (!script->failure.message && (script->heap.starved || script->heap.refused)) {
        script->failure.message = memory_text(script);
        script->failure.line = script->heap.refused_line;
    } else if (!script->failure.message && status) {
        script->failure.message = lua_tostring(L, -1) ? copy_string(lua_tostring(L, -1)) : "the script failed";
    }
    script->meter.effort = larger(script->meter.effort, (double)script->heap.most / MEMORY_LIMIT);
    script->L = NULL;
    lua_sethook(L, NULL, 0, 0);
    lua_close(L);
    script_broken = script->failure.broken;
    if (script->failure.message && script->failure.line > 0)
        die_at(script->file, script->src, script->failure.line, script->failure.col, "%s", script->failure.message);
    if (script->failure.message)
        die("%s", script->failure.message);
}
