/* Private to script*.c, the only files that use Lua: the state of one running script. */
#ifndef PIANOLA_SCRIPT_H
#define PIANOLA_SCRIPT_H
#include "ir/program.h"
#include "scripts.h"
#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>

/* The fuzzer runs thousands of scripts a second, so its build divides the limits by these. */
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

/* The script's function that runs now, for messages: w() for job (s,b,d) if d >= 0, else name(s) or (s, b). */
struct running_call {
    const char *name;
    int s, b, d;
};

/* Instructions that the script uses, and their limits. */
struct meter {
    int64_t used, budget; /* instructions since the call began, and their limit */
    int64_t left;         /* rest of the budget of all calls together */
    int64_t inside;       /* part of `used` charged to library functions, and the last function charged */
    const char *library;
    int64_t filling; /* part of `used` charged for allocations */
    int64_t nesting; /* part of `used` charged for deeply nested calls */
    double effort;   /* the largest share of any limit used so far: at most 1 */
};

/* The error that ends the load. The first one recorded stays, whatever the script catches. */
struct failure {
    const char *message;
    int line, col; /* line 0: not in the script, but for example on the command line */
    bool broken;   /* Lua itself found the error, such as bad syntax or an index of nil */
};

/* Lua's memory, and the last refused request: see heap() */
struct lua_heap {
    size_t bytes, most;
    size_t longest, largest; /* bytes of the longest string so far, and of the largest other block */
    int64_t metatables;      /* number of metatables set */
    bool starved, refused;
    uintptr_t refused_block;
    size_t refused_size;
    int refused_line;
};

struct script {
    enum script_kind kind;
    const char *file, *src; /* its name in messages, and its text */
    size_t size;
    lua_State *L, *running; /* its state, and the coroutine last seen running */
    struct settings *set;
    int wanted;          /* for a schedule whose updates are jobs: the microbatches to write out; 0: all */
    bool uncut;          /* whether the model's cut is left unread */
    int later;           /* offset in microbatches of the jobs that its functions are called for */
    struct param *param; /* parameters as declared */
    size_t nparams, params_capacity;
    int line; /* line that called schedule, model or cluster */
    struct names names;
    struct running_call call;
    struct meter meter;
    struct failure failure;
    struct lua_heap heap;
};

/* script_sandbox.c: a Lua state that can only compute, and the ways in which a script ends there. */
struct script *script_of(lua_State *L);
/* Runs the main chunk, then extract(script, data) with the returned value on top of the stack. Closes the state. Dies
 * with file:line on the script's errors. */
void sandbox_run(struct script *script, void (*extract)(struct script *script, void *data), void *data);
/* Bracket a call of a script's function. They give it its own budget, and its name for messages. */
void call_begin(struct script *script, const char *name, int s, int b, int d);
void call_end(struct script *script);
/* Push the microbatch of b, and its slice if there are slices. Return the number of values pushed: 1; and 0 or 1. */
int push_batch(struct script *script, int b);
int push_slice(struct script *script, int b);
/* Charge instructions for work that C code does for a script, which would otherwise be unlimited. spend ends the script
 * when its budget is used up; a library function first gives its name with enter. */
void enter(lua_State *L, const char *function);
void spend(lua_State *L, int64_t instructions);
int64_t cost_of_frames(lua_State *L);           /* returns the cost of unwinding to here, in instructions */
bool script_ended(const struct script *script); /* returns whether a limit or an error has ended it; code may still
                                                 * run */

/* script_library.c, script_pattern.c: library functions that charge instructions as they run, or before. */
void count_libraries(lua_State *L);
void charge_patterns(lua_State *L); /* wraps functions of the table `string` on top of the stack */
/* Wraps field `name` of the table on top: its new value is a closure over the old one, which call_original calls. */
void wrap(lua_State *L, const char *name, lua_CFunction f);
int call_original(lua_State *L);

/* script_globals.c: the names available to a script. */
void confine_libraries(lua_State *L);
void push_environment(lua_State *L, enum script_kind kind); /* pushes the _ENV of the script's main chunk */
/* Pushes a list of the table's keys: numbers ascending, then strings, then false, true. */
void push_sorted_keys(lua_State *L, int table);
void push_plain_string(lua_State *L, int index); /* like tostring, but without addresses */
/* Raises the Lua error `what 'name'` with the nearest key of the table on top. Uses no arena memory, since a script may
 * catch the error any number of times. */
int unknown_name(lua_State *L, const char *what, const char *name);

/* script_error.c: all user errors. Each ends the load. */
_Noreturn void script_fail(lua_State *L, int line, int col, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
/* Fails at `field = ` in the table that begins on the given line, or else at that line itself. */
_Noreturn void field_fail(lua_State *L, int line, const char *field, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* Fails at a word on that line. */
_Noreturn void word_fail(lua_State *L, int line, const char *word, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* Fails at the definition of the function at a stack index, the value of the named field. */
_Noreturn void function_fail(lua_State *L, int index, const char *field, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
int on_error(lua_State *L);                         /* the message handler of every protected call */
int script_line(lua_State *L);                      /* returns the innermost script line that runs now; 0: none */
const char *describe(lua_State *L, int index);      /* returns a value as messages show it, in the arena */
const char *call_name(const struct script *script); /* returns "w() for 1F3", "cap(2)", in the arena */
const char *hint(const char *name, const char *const *names, int n); /* returns "; did you mean 'stages'?" or "" */

/* script_fields.c: reads the tables that scripts write. `what` is the function that takes the table: "schedule". */
struct table {
    lua_State *L;
    int at;   /* stack index */
    int line; /* script line that calls `what` */
    const char *what;
};
void check_fields(const struct table *table, const char *const *names); /* names ends with NULL */
/* Pushes the field and returns its Lua type. */
int push_field(const struct table *table, const char *field);
/* is_time: x is 0, or in the range of times (spec.h). is_positive: x is in that range, and above 0. */
bool is_time(double x);
bool is_positive(double x);
#define A_TIME "0, or from 1e-100 to 1e100"
int integer_field(const struct table *table, const char *field, int least, int most);
/* Pushes the field's function and returns its stack index; 0: there is none. returns: what it must return. */
int function_field(const struct table *table, const char *name, const char *returns);
double number_field(const struct table *table, const char *field, double otherwise); /* above 0; may be infinite */
/* Parses a direction F, R, I, B or W; -1: none of them. */
int direction(const char *s, size_t n);
void put_value(struct text *out, lua_State *L, int index); /* writes a parameter's value as -D takes it */
int script_params(lua_State *L);                           /* params { name = default, … } */
/* Returns the value of the last -D with that name, which then counts as used; NULL: there is none, or it is a parameter
 * of the script. */
const char *undeclared_setting(struct script *script, const char *name);

/* script_schedule.c, script_model.c, script_cluster.c: read the value that the script returned, on top of the stack. */
void extract_schedule(struct script *script, void *spec);
void extract_model(struct script *script, void *spec);
void extract_cluster(struct script *script, void *spec);
extern const char *const schedule_fields[], *const model_fields[], *const cluster_fields[]; /* each ends with NULL */
/* script_costs.c: reads the field `costs` of a model into its units; returns false if it has none. */
bool read_costs(const struct table *table, struct model *m);
extern const char *const cost_fields[]; /* fields of each entry, ending with NULL */
/* script_parts.c */
void open_layers(lua_State *L, int globals); /* defines the constructors of a model's layers, inputs and optimizers */
void put_layer_fields(struct text *out);     /* writes the fields that each of them takes */
/* script_layer_fields.c: reads such a field from the table, or its default, into its place in *to. Dies if the value is
 * out of range. */
struct field;
void read_layer_field(const struct table *table, const struct field *field, void *to);
enum { MAX_SIZE = 1 << 20 }; /* largest size of a layer, and most rows of a microbatch */

/* script_names.c: writes a title and its names, which end with NULL, as readable paragraphs */
void put_names(struct text *out, const char *title, const char *const *names);

/* script_homes.c: the ranks and lists of ranks that w() returns. */
struct lists {
    int32_t *rank, *member, number; /* current list; per rank, the last list that has it; number of the current list */
    size_t cap;
    int n;
    int32_t last[2]; /* the last team and the last home, coded like job.home */
};
enum { MAX_WORKERS = 4096 };
struct owners {
    struct script *S;
    struct spec *sp;
    const struct table *t;
    struct lists *lists;
    int w; /* stack index of the function */
};
int rank_result(struct owners *owners, int index, const char *what);
int32_t ranks_result(struct owners *owners, int index, const char *what); /* like job.home; a list of one: its rank */
int32_t home_result(struct owners *owners, int index);                    /* like ranks_result; nil is -1, no home */
void check_replicas(struct owners *owners); /* dies if homes of a stage cannot be replicas */
void read_tensor(struct owners *owners);    /* reads the field tensor, or -D tensor */
void check_teams(struct owners *owners);    /* dies if the teams of a stage do not fit */
void read_zero(struct owners *owners);      /* reads the field zero */
void read_offload(struct owners *owners);   /* script_offload.c: reads offload, offload_optimizer, bucket */
void read_preds(struct owners *owners);     /* script_preds.c: reads pred */
void read_tune(struct owners *owners);      /* script_tune.c: reads the field tune */
/* script_updates.c: read_update reads update, after the sizes, and sets how many of the step's microbatches are written
 * out, about `most`; 0: all. read_updates reads version and the updates, after everything else; n, cost: stack indices
 * of the functions, or 0. */
void read_update(struct owners *owners, int most);
void read_updates(struct owners *owners, int n, int cost);
#endif
