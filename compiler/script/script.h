/* Private to script*.c, the only files that know Lua: one script while it runs. */
#ifndef PIANOLA_SCRIPT_H
#define PIANOLA_SCRIPT_H
#include "ir/program.h"
#include "scripts.h"
#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>

/* A fuzzer runs thousands of scripts a second: its build has the same limits, much tighter. */
#ifdef FUZZING
enum { FUZZ_SHARE = 2000, FUZZ_HEAP = 32 };
#else
enum { FUZZ_SHARE = 1, FUZZ_HEAP = 1 };
#endif

enum script_kind { SCRIPT_SCHEDULE, SCRIPT_MODEL, SCRIPT_CLUSTER };
extern const char *const script_kinds[]; /* "schedule", … */

/* The -D settings, and every parameter that the scripts declared. */
struct settings {
    int n;
    const char **key, **value;
    bool *used;
    const char **declared;
    size_t ndeclared, capacity;
};

struct script {
    enum script_kind kind;
    const char *file, *src; /* as messages name it, and its text */
    size_t size;
    lua_State *L, *running; /* its state; and the coroutine of it that was last seen */
    struct settings *set;
    struct param {
        const char *name, *value; /* the value as text: "8", "2,1,1" */
    } * param;                    /* as declared */
    size_t nparams, params_capacity;
    int line; /* where schedule, model or cluster was called */

    /* Which function of the script runs, for messages: w() for job (s,b,d) if d >= 0, else calling(s) or (s, b). */
    const char *calling;
    int s, b, d;
    int64_t used, budget; /* instructions since the call began, and how many it may use */
    int64_t left;         /* of what all calls may use together */
    int64_t inside;       /* of those used: what library functions count as; the last one that was charged */
    const char *library;
    int64_t filling; /* and what memory counts as that was taken */
    double effort;   /* the largest share of a limit that was used: at most 1 */

    /* The error that ends the load: the first one recorded stays, whatever the script catches. */
    const char *error;
    int error_line, error_col; /* line 0: not the script's, say the command line's */

    /* Lua's memory, and the request that was last refused: see heap() */
    size_t bytes, most;
    size_t longest, largest; /* of the strings made so far, and of all other blocks */
    int64_t metatables;      /* how many were set */
    bool starved, refused;
    uintptr_t refused_block;
    size_t refused_size;
    int refused_line;
};

/* script_sandbox.c: a state in which nothing but computing can be done, and how a script ends there. */
struct script *script_of(lua_State *L);
void sandbox_open(struct script *script);
/* Runs the main chunk and then extract(S, data) with the value it returned on top of the stack. Closes the state.
 * Dies with file:line on the script's errors. */
void sandbox_run(struct script *script, void (*extract)(struct script *script, void *data), void *data);
/* Before and after a function of the script: a budget of its own, and its name for messages. */
void call_begin(struct script *script, const char *name, int s, int b, int d);
void call_end(struct script *script);
/* What C code does at a script's word counts as instructions too, or it could be asked for without end; when they are
 * used up, the script ends there. A library function says first which it is. */
void enter(lua_State *L, const char *function);
void spend(lua_State *L, int64_t instructions);
bool script_ended(const struct script *script); /* by a limit or an error: what runs now only has not noticed yet */

/* script_library.c, script_pattern.c: library functions that are counted while they run. */
void count_libraries(lua_State *L);
extern const luaL_Reg counted_patterns[];
/* Wraps field `name` of the table on top: its new value is a closure over the old one, which call_original calls. */
void wrap(lua_State *L, const char *name, lua_CFunction f);
int call_original(lua_State *L);

/* script_globals.c: the names that a script finds. */
void confine_libraries(lua_State *L);
void push_environment(lua_State *L, enum script_kind kind); /* the _ENV of its main chunk */
/* Pushes a list of the table's keys: numbers ascending, then strings, then false, true. */
void push_sorted_keys(lua_State *L, int table);
void push_plain_string(lua_State *L, int index); /* tostring without addresses */
/* A Lua error, `what 'name'`, with the nearest of the keys of the table on top. Takes nothing of the arena: a script
 * may catch it any number of times. */
int unknown_name(lua_State *L, const char *what, const char *name);

/* script_error.c: every error of the user. All end the load. */
_Noreturn void script_fail(lua_State *L, int line, int col, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
/* At `field = ` of the table written from the given line on, or at that line itself. */
_Noreturn void field_fail(lua_State *L, int line, const char *field, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* At a word of that line. */
_Noreturn void word_fail(lua_State *L, int line, const char *word, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* At the definition of the function at a stack index, which is the field of that name. */
_Noreturn void function_fail(lua_State *L, int index, const char *field, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
int on_error(lua_State *L);                         /* the message handler of every protected call */
int script_line(lua_State *L);                      /* the innermost line of the script that runs now; 0: none */
const char *describe(lua_State *L, int index);      /* a value as a message shows it, in the arena */
const char *call_name(const struct script *script); /* "w() for 1F3", "cap(2)", in the arena */
const char *hint(const char *name, const char *const *names, int n); /* "; did you mean 'stages'?" or "" */

/* script_fields.c: reading the tables that scripts write. `what` is what the table is given to: "schedule". */
struct table {
    lua_State *L;
    int at;   /* stack index */
    int line; /* of the script, where it was given to `what` */
    const char *what;
};
void check_fields(const struct table *table, const char *const *names); /* up to NULL */
/* Pushes the field and returns its Lua type. */
int push_field(const struct table *table, const char *field);
/* 0, or as large as a time may be (spec.h); and such a number above 0. */
bool is_time(double x);
bool is_positive(double x);
#define A_TIME "0, or from 1e-100 to 1e100"
int integer_field(const struct table *table, const char *field, int least, int most);
double number_field(const struct table *table, const char *field, double otherwise); /* above 0; may be infinite */
/* Parses a direction F, R, I, B or W; -1: none of them. */
int direction(const char *s, size_t n);
int script_params(lua_State *L); /* params { name = default, … } */

/* script_schedule.c, script_model.c, script_cluster.c: the value that the script returned is on top of the stack. */
void extract_schedule(struct script *script, void *spec);
void extract_model(struct script *script, void *spec);
void extract_cluster(struct script *script, void *spec);
extern const char *const schedule_fields[], *const model_fields[], *const cluster_fields[]; /* up to NULL */
void open_layers(lua_State *L, int globals); /* the constructors of a model's layers, inputs and optimizers */
void put_layer_fields(struct text *out);     /* what each of them takes */

/* script_names.c: a title and its names, up to NULL, as paragraphs for people */
void put_names(struct text *out, const char *title, const char *const *names);
#endif
