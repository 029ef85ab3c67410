/* The sandbox: a script computes, within limits. What it can name is script_globals.c.
 * - Instructions: a hook counts them. What it raises can be caught by pcall, so it raises again and again. What our C
 *   functions do, and memory that is taken, is charged as instructions.
 * - Memory: the allocator refuses beyond a limit, and remembers that it did. Blocks freed in a crowd of others may not
 *   serve again, so it also looks at what the process really holds.
 * - Library calls: the hook does not run inside C functions, some of which can run for hours (a string pattern, a
 *   table.move over a billion), and some are so slow that few of them last as long as many instructions. So CPU time
 *   is limited, too. When it is over, the process ends: nothing can be unwound from there, and nothing has been
 *   written yet. */
#include "script.h"
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

/* Sanitized builds are slower, and keep what is freed. */
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
enum { SANITIZED = 1, SLOWER = 10 };
#else
enum { SANITIZED = 0, SLOWER = 1 };
#endif

enum {
    HOOK_STEP = 100,                      /* instructions between two calls of the hook */
    MAIN_BUDGET = 100000000 / FUZZ_SHARE, /* of a main chunk; and of all calls together, besides CALL_SHARE for each */
    CALL_BUDGET = 10000000 / FUZZ_SHARE,  /* of a call of w, n, … */
    CALL_SHARE = 100000 / FUZZ_SHARE,
    MEMORY_LIMIT = (192 << 20) / FUZZ_HEAP, /* bytes of Lua's heap */
    PROCESS_LIMIT = 224 << 10,              /* KiB by which the process may grow meanwhile */
    LOOK_STEP = 1 << 20,                    /* bytes taken between two looks at that */
    BYTES_PER_INSTRUCTION = 32,             /* of memory taken: filling it takes about as long */
    MAIN_MILLISECONDS = 1500 * SLOWER,      /* CPU time of the main chunk */
    CALL_MILLISECONDS = 1,                  /* and what each call adds to that */
    INTERVAL = 100,                         /* milliseconds between two looks at it */
};

struct script *script_of(lua_State *L) {
    return *(struct script **)lua_getextraspace(L);
}

static volatile sig_atomic_t calls; /* of the script's functions */

static void on_count(lua_State *L, lua_Debug *ar);

bool script_ended(const struct script *S) { return S->error || S->starved || S->refused || S->used > S->budget; }

void charge(struct script *S, int64_t instructions) {
    S->used += instructions;
    if (S->used > S->budget && S->L) /* at once, not after HOOK_STEP more that are as dear */
        lua_sethook(S->running, on_count, LUA_MASKCOUNT, 1);
}

/* ---- memory ---- */

/* What malloc takes for n bytes: it rounds up, and small strings are many. */
static size_t taken(size_t n) { return n == 0 ? 0 : n < 24 ? 32 : (n + 23) & ~(size_t)15; }

/* Whether the process has grown too much, at its peak: asked once for every LOOK_STEP bytes taken. */
static bool crowded(struct script *S, size_t needs) {
    struct rusage use;
    S->unlooked += needs;
    if (S->unlooked >= LOOK_STEP) {
        S->unlooked = 0;
        getrusage(RUSAGE_SELF, &use);
        S->crowded = !SANITIZED && use.ru_maxrss - S->held > PROCESS_LIMIT;
    }
    return S->crowded;
}

/* Lua's allocator. When refused, Lua collects garbage and asks for the same once more: only then is memory out, or if
 * that freed too little to go on without collecting at every step. A request that is not repeated was refused for good
 * too. Memory out is final, though a pcall may catch it: the hook and sandbox_run look at it. */
static void *heap(void *data, void *block, size_t old, size_t size) {
    struct script *S = data;
    size_t had = block ? taken(old) : 0, needs = taken(size);
    if (size == 0) {
        free(block);
        S->bytes -= had;
        return NULL;
    }
    uintptr_t at = (uintptr_t)block;
    bool again = S->starved && at == S->refused_block && size == S->refused_size;
    size_t limit = again ? MEMORY_LIMIT - MEMORY_LIMIT / 8 : MEMORY_LIMIT;
    bool refuse = needs > had && (S->bytes - had + needs > limit || crowded(S, needs));
    void *p = refuse ? NULL : realloc(block, size);
    if (needs > had) {
        charge(S, (int64_t)(needs / BYTES_PER_INSTRUCTION));
        S->refused |= S->starved && (!again || !p);
        S->starved = !p;
        if (S->refused) /* at once: now every allocation may collect all garbage in vain */
            lua_sethook(S->running, on_count, LUA_MASKCOUNT, 1);
        S->refused_block = at;
        S->refused_size = size;
        if (!p && S->L && !S->refused)
            S->refused_line = script_line(S->L);
    }
    if (p)
        S->bytes += needs - had;
    return p;
}

/* ---- instructions ---- */

static const char *memory_text(const struct script *S) {
    const char *text = format("the script used more than %d MiB of memory", MEMORY_LIMIT >> 20);
    return S->calling ? format("%s, in %s", text, call_name(S)) : text;
}

static void on_count(lua_State *L, lua_Debug *ar) {
    (void)ar;
    struct script *S = script_of(L);
    S->running = L;
    charge(S, HOOK_STEP);
    if (script_ended(S))
        lua_sethook(L, on_count, LUA_MASKCOUNT, 1); /* from now on at every instruction: no pcall gets far */
    else if (lua_gethookcount(L) != HOOK_STEP)
        lua_sethook(L, on_count, LUA_MASKCOUNT, HOOK_STEP); /* what was charged outside of calls is forgiven */
    if (S->starved || S->refused)
        script_fail(L, S->refused_line, 0, "%s", memory_text(S));
    if (S->error || S->used <= S->budget) {
        if (S->error)
            luaL_error(L, "the script has ended");
        return;
    }
    const char *name = S->calling ? call_name(S) : NULL;
    if (!name)
        script_fail(L, script_line(L), 0, "the script used %d million instructions; does this loop end?",
                    MAIN_BUDGET / 1000000);
    const char *where = S->d >= 0 ? format(" on %s", job_name(S->s, S->b, S->d)) : "";
    if (S->d >= 0)
        name = format("%s()", S->calling);
    if (S->budget < CALL_BUDGET)
        script_fail(L, script_line(L), 0, "calls up to %s used %d million instructions, besides %d thousand each",
                    call_name(S), MAIN_BUDGET / 1000000, CALL_SHARE / 1000);
    name = format("%s used %d million instructions%s", name, CALL_BUDGET / 1000000, where);
    script_fail(L, script_line(L), 0, "%s; does this loop end?", name);
}

void call_begin(struct script *S, const char *name, int s, int b, int d) {
    S->calling = name;
    S->s = s;
    S->b = b;
    S->d = d;
    S->used = 0;
    S->left += CALL_SHARE;
    S->budget = S->left < CALL_BUDGET ? S->left : CALL_BUDGET;
    calls++;
}

void call_end(struct script *S) {
    S->calling = NULL;
    S->left -= S->used;
}

/* ---- time ---- */

static const char *watched; /* the script's file */
static int64_t elapsed;     /* milliseconds of CPU time */

static void on_interval(int sig) {
    (void)sig;
    static const char message[] =
        ": error: the script used more than 1.5 s of CPU time, besides 1 ms for each call of w, n and others; avoid "
        "string patterns that backtrack, and table functions over huge ranges\n";
    elapsed += INTERVAL;
    if (elapsed < MAIN_MILLISECONDS + (int64_t)calls * CALL_MILLISECONDS)
        return;
    ssize_t done = write(STDERR_FILENO, watched, strlen(watched));
    done = write(STDERR_FILENO, message, sizeof message - 1);
    (void)done;
    _exit(2);
}

struct watchdog {
    struct sigaction action;
    struct itimerval timer;
};

static void watch(struct watchdog *before, const char *file) {
    struct sigaction action = {.sa_handler = on_interval, .sa_flags = SA_RESTART};
    struct itimerval interval = {.it_interval = {.tv_usec = INTERVAL * 1000}};
    interval.it_value = interval.it_interval;
    watched = file;
    elapsed = calls = 0;
    sigemptyset(&action.sa_mask);
    sigaction(SIGPROF, &action, &before->action);
    setitimer(ITIMER_PROF, &interval, &before->timer);
}

static void unwatch(const struct watchdog *before) {
    setitimer(ITIMER_PROF, &before->timer, NULL);
    sigaction(SIGPROF, &before->action, NULL);
}

/* ---- a run ---- */

struct run {
    struct script *S;
    void (*extract)(struct script *S, void *data);
    void *data;
    struct watchdog before;
};

static void check_answer(struct script *S) {
    lua_State *L = S->L;
    const char *kind = script_kinds[S->kind];
    lua_rawgetp(L, LUA_REGISTRYINDEX, S);
    if (!lua_istable(L, -1) || !lua_rawequal(L, -1, -2)) {
        int lines = 1;
        for (const char *p = S->src; *p; p++)
            lines += *p == '\n' && p[1];
        script_fail(L, lines, 0, "the script returned %s, not a %s; end it with: return %s { ... }", describe(L, -2),
                    kind, kind);
    }
    lua_pop(L, 1);
}

static int protected_run(lua_State *L) {
    struct run *run = lua_touserdata(L, 1);
    struct script *S = run->S;
    char *chunk = format("@%s", S->file);
    if (S->src[0] == LUA_SIGNATURE[0]) {
        S->src = "";
        script_fail(L, 1, 0, "this is compiled Lua; give the script's source");
    }
    confine_libraries(L);
    push_environment(L, S->kind);
    watch(&run->before, S->file);
    charge(S, (int64_t)S->size);
    if (luaL_loadbufferx(L, S->src, S->size, chunk, "t"))
        lua_error(L);
    lua_insert(L, -2);
    if (!lua_setupvalue(L, -2, 1))
        lua_pop(L, 1);
    lua_sethook(L, on_count, LUA_MASKCOUNT, HOOK_STEP);
    lua_call(L, 0, 1);
    check_answer(S);
    run->extract(S, run->data);
    return 0;
}

void sandbox_run(struct script *S, void (*extract)(struct script *S, void *data), void *data) {
    struct run run = {.S = S, .extract = extract, .data = data};
    S->budget = S->left = MAIN_BUDGET;
    lua_State *L = lua_newstate(heap, S);
    if (!L)
        die("out of memory");
    S->L = S->running = L;
    *(struct script **)lua_getextraspace(L) = S;
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    S->held = use.ru_maxrss;
    /* The three pushes below cannot fail: the stack of a new state has room, and a light value needs no memory. */
    lua_pushcfunction(L, on_error);
    lua_pushcfunction(L, protected_run);
    lua_pushlightuserdata(L, &run);
    sigaction(SIGPROF, NULL, &run.before.action);
    getitimer(ITIMER_PROF, &run.before.timer);
    int status = lua_pcall(L, 1, 0, 1);
    unwatch(&run.before);
    if (!S->error && (S->starved || S->refused)) {
        S->error = memory_text(S);
        S->error_line = S->refused_line;
    } else if (!S->error && status) {
        S->error = lua_tostring(L, -1) ? copy_string(lua_tostring(L, -1)) : "the script failed";
    }
    S->L = NULL;
    lua_sethook(L, NULL, 0, 0);
    lua_close(L);
    if (S->error && S->error_line > 0)
        die_at(S->file, S->src, S->error_line, S->error_col, "%s", S->error);
    if (S->error)
        die("%s", S->error);
}
