/* Reads unit { … }, a layer that brings its own code: its files, its parameters and its sizes. A model takes the units
 * that its layers name; until then a unit's fields stay in Lua's memory. */
#include "../../runtime/parameters.h"
#include "base/path.h"
#include "script_parts.h"
#include <limits.h>
#include <string.h>

enum { LONGEST_NAME = 64, MOST_FILES = 64 };
static const int64_t MOST_BYTES = (int64_t)1 << 48;

const char *const unit_fields[] = {"name", "source", "libraries", "parameters", "keeps", "stash",  "extra",
                                   "work", "flop",   "init",      "data",       "side",  "frozen", NULL};

static _Noreturn void unit_fail(const struct table *t, const char *field, const char *must) {
    field_fail(t->L, t->line, field, "'%s' must be %s, not %s", field, must, describe(t->L, -1));
}

/* Fails if the value on top of the stack is a table with other keys than 1, 2, …: a list's reader would ignore them. */
static void check_list(const struct table *t, const char *field) {
    lua_State *L = t->L;
    int top = lua_gettop(L), n = 0;
    for (int i = 1; lua_istable(L, top) && lua_rawgeti(L, top, i) != LUA_TNIL; i++, lua_settop(L, top))
        n++;
    lua_settop(L, top);
    if (!lua_istable(L, top))
        return;
    for (lua_pushnil(L); lua_next(L, top); lua_pop(L, 1)) {
        int isint = 0;
        int64_t i = lua_type(L, -2) == LUA_TNUMBER ? lua_tointegerx(L, -2, &isint) : 0;
        if (!isint || i < 1 || i > n)
            field_fail(L, t->line, field, "'%s' must be a list, such as { \"a\", \"b\" }, but has the key %s", field,
                       lua_type(L, -2) == LUA_TSTRING ? format("'%s'", lua_tostring(L, -2)) : describe(L, -2));
    }
}

/* ---- names and files ---- */

bool is_plain_name(const char *s, const char *others) {
    bool ok = *s && !(*s >= '0' && *s <= '9') && strlen(s) < LONGEST_NAME;
    for (; ok && *s; s++)
        ok = (*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z') || (*s >= '0' && *s <= '9') || *s == '_' ||
             strchr(others, *s);
    return ok;
}

/* Returns whether shells, make and compilers take a file's name as it is. */
static bool is_plain_path(const char *s) {
    for (; *s; s++)
        if (!((*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z') || (*s >= '0' && *s <= '9') || strchr("_./+-", *s)))
            return false;
    return true;
}

/* Returns a file beside the script. An absolute path stays as it is. */
static const char *beside_script(const struct table *t, const char *name) {
    const char *script = script_of(t->L)->file, *slash = strrchr(script, '/');
    return *name == '/' || !slash ? name : format("%.*s/%s", (int)(slash - script), script, name);
}

/* Returns the hash that a library's item { "file.so", sha256 = "…" } gives, at that stack index; NULL: none. */
static const char *read_sha256(const struct table *t, int item) {
    lua_State *L = t->L;
    int type = lua_getfield(L, item, "sha256");
    const char *hex = type == LUA_TSTRING ? copy_string(lua_tostring(L, -1)) : "";
    if (type != LUA_TNIL && (strlen(hex) != 64 || hex[strspn(hex, "0123456789abcdef")]))
        field_fail(L, t->line, "libraries", "'sha256' must be the 64 hexadecimal digits that sha256sum prints, not %s",
                   describe(L, -1));
    lua_pop(L, 1);
    return type == LUA_TNIL ? NULL : hex;
}

/* Adds the file on top of the stack, or the one that the table there names. */
static void add_unit_file(const struct table *t, struct unit_files *files, const char *field) {
    lua_State *L = t->L;
    bool source = strcmp(field, "source") == 0, item = !source && lua_istable(L, -1);
    const char *sha256 = item ? read_sha256(t, lua_gettop(L)) : NULL;
    if (item)
        lua_rawgeti(L, -1, 1);
    const char *name = lua_type(L, -1) == LUA_TSTRING ? copy_string(lua_tostring(L, -1)) : NULL;
    if (!name || !*name || *name == '-' || !is_plain_path(name))
        unit_fail(t, field, "a file, or a list of files, whose names have only letters, digits and _ . / + -");
    if (source && !has_ending(name, ".c") && !has_ending(name, ".cu"))
        field_fail(L, t->line, field, "'source' names %s, but a unit's sources end in .c, for CPUs, or in .cu", name);
    if (files->n == MOST_FILES)
        field_fail(L, t->line, field, "a unit has at most %d files", MOST_FILES);
    for (int i = 0; i < files->n; i++)
        if (strcmp(last_part(files->file[i]), last_part(name)) == 0)
            field_fail(L, t->line, field, "'%s' names two files %s", field, last_part(name));
    files->sha256[files->n] = sha256;
    files->file[files->n++] = beside_script(t, name);
}

/* Reads a file or a list of files. */
static void read_files(const struct table *t, const char *field, struct unit_files *files) {
    lua_State *L = t->L;
    int type = push_field(t, field), top = lua_gettop(L);
    check_list(t, field);
    if (type == LUA_TTABLE)
        for (int i = 1; lua_rawgeti(L, top, i) != LUA_TNIL; i++, lua_settop(L, top))
            add_unit_file(t, files, field);
    else if (type != LUA_TNIL)
        add_unit_file(t, files, field);
    lua_settop(L, top - 1);
}

/* Returns the field `name`, or by default the stem of the first source. */
static const char *read_unit_name(const struct table *t, const struct unit_files *files) {
    int type = push_field(t, "name");
    const char *name = type == LUA_TSTRING ? copy_string(lua_tostring(t->L, -1)) : "";
    if (type == LUA_TNIL && files->nsources > 0) {
        const char *stem = last_part(files->file[0]);
        name = format("%.*s", (int)(strrchr(stem, '.') - stem), stem);
    }
    if (!is_plain_name(name, ""))
        field_fail(t->L, t->line, "name",
                   "the name of a unit begins its functions' names in C: fewer than %d letters, digits and _, not %s; "
                   "add: name = \"my_unit\"",
                   LONGEST_NAME, type == LUA_TNIL ? format("'%s'", name) : describe(t->L, -1));
    lua_pop(t->L, 1);
    return name;
}

const char *read_weights_file(const struct table *t, const char *field) {
    int type = push_field(t, field);
    const char *name = type == LUA_TSTRING ? lua_tostring(t->L, -1) : "";
    if (type != LUA_TNIL && (!*name || !is_plain_path(name)))
        unit_fail(t, field, "a safetensors file, whose name has only letters, digits and _ . / + -");
    const char *path = type == LUA_TNIL ? NULL : copy_string(beside_script(t, name));
    const char *whole = path ? resolved_path(path) : NULL;
    path = whole && is_plain_path(whole) ? whole : path;
    lua_pop(t->L, 1);
    return path;
}

void need_data_file(const struct table *t) {
    field_fail(t->L, t->line, "frozen", "frozen parameters come from a file; add: data = \"weights.safetensors\"");
}

struct known_files read_known_files(const struct table *model) {
    static const char *const fields[] = {"values", "weights", NULL};
    lua_State *L = model->L;
    int type = push_field(model, "check");
    struct table t = {L, lua_gettop(L), model->line, "check"};
    struct known_files files = {NULL, NULL};
    if (type == LUA_TTABLE) {
        check_fields(&t, fields);
        files.values = read_weights_file(&t, "values");
        files.weights = read_weights_file(&t, "weights");
    }
    if (type != LUA_TNIL && (!files.values || !files.weights))
        field_fail(L, t.line, "check",
                   "'check' must be { values = \"check.safetensors\", weights = \"model.safetensors\" }");
    lua_pop(L, 1);
    return files;
}

/* ---- sizes ---- */

static int64_t bytes_at_top(const struct table *t, const char *field) {
    int isint = 0;
    int64_t x = lua_type(t->L, -1) == LUA_TNUMBER ? lua_tointegerx(t->L, -1, &isint) : 0;
    if (!isint || x < 0 || x > MOST_BYTES)
        unit_fail(t, field, "a number of bytes, from 0 to 2^48");
    return x;
}

static int64_t read_bytes(const struct table *t, const char *field) {
    int64_t x = push_field(t, field) == LUA_TNIL ? 0 : bytes_at_top(t, field);
    lua_pop(t->L, 1);
    return x;
}

/* Reads work = { forward, input, weight }, or one number for all three. */
static void read_work(const struct table *t, int64_t work[UNIT_OPERATIONS]) {
    lua_State *L = t->L;
    int type = push_field(t, "work"), top = lua_gettop(L);
    for (int op = 0; op < UNIT_OPERATIONS && type != LUA_TNIL; op++, lua_settop(L, top)) {
        if (type == LUA_TTABLE && lua_rawgeti(L, top, op + 1) == LUA_TNIL)
            continue;
        work[op] = bytes_at_top(t, "work");
    }
    lua_settop(L, top - 1);
}

static void read_flop(const struct table *t, double flop[UNIT_OPERATIONS]) {
    lua_State *L = t->L;
    int type = push_field(t, "flop"), top = lua_gettop(L);
    const char *must = "{ forward, input, weight }, each from 0 to 1e18";
    if (type != LUA_TNIL && type != LUA_TTABLE)
        unit_fail(t, "flop", must);
    for (int op = 0; op < UNIT_OPERATIONS && type == LUA_TTABLE; op++, lua_settop(L, top)) {
        int one = lua_rawgeti(L, top, op + 1);
        flop[op] = one == LUA_TNUMBER ? lua_tonumber(L, -1) : 0;
        if ((one != LUA_TNIL && one != LUA_TNUMBER) || !(flop[op] >= 0 && flop[op] <= 1e18))
            unit_fail(t, "flop", must);
    }
    lua_settop(L, top - 1);
}

static int32_t read_keeps(const struct table *t) {
    int type = push_field(t, "keeps");
    const char *word = type == LUA_TSTRING ? lua_tostring(t->L, -1) : type == LUA_TNIL ? "x" : "?";
    int32_t keeps = (strchr(word, 'x') ? UNIT_KEEPS_X : 0) | (strchr(word, 'y') ? UNIT_KEEPS_Y : 0);
    if (word[strspn(word, "xy")] || strlen(word) > 2)
        unit_fail(t, "keeps", "\"x\", \"y\", \"xy\" or \"\": what the backward reads again");
    lua_pop(t->L, 1);
    return keeps;
}

static const char *const side_words[] = {"tokens", "targets", "seed", "labels"};
enum { SIDE_WORDS = 3 }; /* the last names a file of targets */
bool is_side_word(const char *name) {
    for (int k = 0; k <= SIDE_WORDS; k++)
        if (strcmp(name, side_words[k]) == 0)
            return true;
    return false;
}

/* Adds one of the model's inputs to what a unit reads. Returns false if the model has none of that name. */
static bool add_input(const struct rt_model *m, const char *name, struct rt_unit *unit) {
    for (int k = 0; k < m->ninputs; k++)
        if (strcmp(name, m->input_of_units[k].name) == 0 && unit->ninputs < MOST_INPUTS) {
            unit->input[unit->ninputs++] = k;
            return true;
        }
    return false;
}

static void read_side(const struct table *t, const struct rt_model *m, struct rt_unit *unit) {
    lua_State *L = t->L;
    int type = push_field(t, "side"), top = lua_gettop(L);
    const char *must = "a list of \"tokens\", \"targets\", \"seed\" and names that the model's 'inputs' have";
    if (type != LUA_TNIL && type != LUA_TTABLE)
        unit_fail(t, "side", must);
    check_list(t, "side");
    for (int i = 1; type == LUA_TTABLE && lua_rawgeti(L, top, i) != LUA_TNIL; i++, lua_settop(L, top)) {
        const char *word = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : "";
        int k = 0;
        while (k < SIDE_WORDS && strcmp(word, side_words[k]) != 0)
            k++;
        if (k == SIDE_WORDS && !add_input(m, word, unit))
            unit_fail(t, "side", must);
        unit->side |= k < SIDE_WORDS ? 1 << k : 0;
    }
    lua_settop(L, top - 1);
}

/* ---- parameters ---- */

/* Fails if the name cannot be a parameter's. A last part of one letter would be an optimizer's moment in a checkpoint.
 */
static void check_parameter_name(const struct table *t, const char *name) {
    const char *dot = strrchr(name, '.');
    if (!is_plain_name(name, ".") || (dot && strlen(dot) <= 2))
        field_fail(t->L, t->line, "parameters",
                   "'%s' cannot name a parameter: a name has letters, digits, _ and dots, fewer than %d of them, and "
                   "more than one after the last dot",
                   name, LONGEST_NAME);
}

/* Adds the parameter whose sizes are in the table on top, from item `first` on. */
static void add_unit_parameter(const struct table *t, struct rt_unit *unit, const char *name, int first) {
    lua_State *L = t->L;
    struct rt_unit_parameter *p = (struct rt_unit_parameter *)&unit->parameter[unit->nparameters];
    int list = lua_gettop(L), n = lua_istable(L, list) ? (int)lua_rawlen(L, list) - first + 1 : 0;
    check_parameter_name(t, name);
    if (unit->nparameters == MOST_PARAMETERS)
        field_fail(t->L, t->line, "parameters", "a unit has at most %d parameters; make two units of it",
                   MOST_PARAMETERS);
    for (int i = 0; i < unit->nparameters; i++)
        if (strcmp(unit->parameter[i].name, name) == 0)
            field_fail(t->L, t->line, "parameters", "'parameters' names '%s' twice", name);
    if (n != 1 && n != 2)
        field_fail(t->L, t->line, "parameters",
                   "parameter '%s' must have a list of one size, for a vector, or of two: rows and columns", name);
    *p = (struct rt_unit_parameter){.name = name, .ndims = n, .dim = {1, 0}};
    for (int i = 0; i < n; i++, lua_settop(L, list)) {
        int isint = 0;
        int64_t x = lua_rawgeti(L, list, first + i) == LUA_TNUMBER ? lua_tointegerx(L, -1, &isint) : 0;
        if (!isint || x < 1 || x > INT_MAX)
            field_fail(t->L, t->line, "parameters", "size %d of parameter '%s' must be an integer from 1, not %s",
                       i + 1, name, describe(L, -1));
        p->dim[i] = x;
    }
    unit->nparameters++;
}

/* Reads { { "down", 256, 64 }, … }, whose order is memory's, or { down = { 256, 64 }, … }, sorted by name. */
static void read_parameters(const struct table *t, struct rt_unit *unit) {
    lua_State *L = t->L;
    int type = push_field(t, "parameters"), top = lua_gettop(L);
    unit->parameter = NEW(struct rt_unit_parameter, MOST_PARAMETERS);
    if (type != LUA_TNIL && type != LUA_TTABLE)
        unit_fail(t, "parameters", "a table such as { weight = { 64, 256 } }");
    if (type == LUA_TTABLE && lua_rawlen(L, top) > 0)
        for (int i = 1; lua_rawgeti(L, top, i) != LUA_TNIL; i++, lua_settop(L, top)) {
            if (lua_type(L, -1) != LUA_TTABLE || lua_rawgeti(L, -1, 1) != LUA_TSTRING)
                unit_fail(t, "parameters", "a table such as { weight = { 64, 256 } }, or { { \"weight\", 64, 256 } }");
            const char *name = copy_string(lua_tostring(L, -1));
            lua_pop(L, 1);
            add_unit_parameter(t, unit, name, 2);
        }
    else if (type == LUA_TTABLE) {
        push_sorted_keys(L, top);
        for (int i = 1; lua_rawgeti(L, top + 1, i) != LUA_TNIL; i++, lua_settop(L, top + 1)) {
            const char *name = lua_type(L, -1) == LUA_TSTRING ? copy_string(lua_tostring(L, -1)) : "?";
            lua_rawget(L, top);
            add_unit_parameter(t, unit, name, 1);
        }
    }
    lua_settop(L, top - 1);
}

static void read_init(const struct table *t, struct rt_unit *unit) {
    static const char *const words[] = {
        [UNIT_INIT_ZEROS] = "zeros", [UNIT_INIT_ONES] = "ones", [UNIT_INIT_NORMAL] = "normal"};
    lua_State *L = t->L;
    int type = push_field(t, "init"), top = lua_gettop(L);
    if (type != LUA_TNIL && type != LUA_TTABLE)
        unit_fail(t, "init", "a table such as { gamma = \"ones\" }");
    if (type == LUA_TTABLE)
        push_sorted_keys(L, top);
    for (int i = 1; type == LUA_TTABLE && lua_rawgeti(L, top + 1, i) != LUA_TNIL; i++, lua_settop(L, top + 1)) {
        const char *name = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : "?";
        int p = 0, init = UNIT_INIT_ZEROS;
        while (p < unit->nparameters && strcmp(unit->parameter[p].name, name) != 0)
            p++;
        if (p == unit->nparameters)
            field_fail(L, t->line, "init", "'init' names '%s', which 'parameters' does not have", name);
        lua_pushvalue(L, -1);
        lua_rawget(L, top);
        while (init <= UNIT_INIT_NORMAL &&
               strcmp(lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : "", words[init]) != 0)
            init++;
        if (init > UNIT_INIT_NORMAL)
            field_fail(L, t->line, "init", "'init' of '%s' must be \"zeros\", \"ones\" or \"normal\", not %s", name,
                       describe(L, -1));
        ((struct rt_unit_parameter *)unit->parameter)[p].init = init;
    }
    lua_settop(L, top - 1);
}

/* Marks the frozen parameter that the list names on top of the stack. */
static void freeze_parameter(const struct table *t, struct rt_unit *unit) {
    const char *name = lua_type(t->L, -1) == LUA_TSTRING ? lua_tostring(t->L, -1) : describe(t->L, -1);
    int p = 0;
    while (p < unit->nparameters && strcmp(unit->parameter[p].name, name) != 0)
        p++;
    if (p == unit->nparameters)
        field_fail(t->L, t->line, "frozen", "'frozen' names %s, which 'parameters' does not have", name);
    ((struct rt_unit_parameter *)unit->parameter)[p].frozen = true;
}

/* Reads frozen = true, for all parameters, or a list of their names. No checkpoint has them, so they must come from a
 * file. */
static void read_frozen(const struct table *t, struct rt_unit *unit) {
    lua_State *L = t->L;
    int type = push_field(t, "frozen"), top = lua_gettop(L);
    if (type != LUA_TNIL && type != LUA_TBOOLEAN && type != LUA_TTABLE)
        unit_fail(t, "frozen", "true, false or a list of parameters");
    for (int p = 0; p < unit->nparameters && type == LUA_TBOOLEAN; p++)
        ((struct rt_unit_parameter *)unit->parameter)[p].frozen = lua_toboolean(L, top);
    check_list(t, "frozen");
    for (int i = 1; type == LUA_TTABLE && lua_rawgeti(L, top, i) != LUA_TNIL; i++, lua_settop(L, top))
        freeze_parameter(t, unit);
    if (unit_elements(unit, true) > 0 && !unit->data)
        need_data_file(t);
    lua_settop(L, top - 1);
}

/* ---- the unit ---- */

const struct rt_unit *read_unit_table(lua_State *L, int at, int line, const struct rt_model *m,
                                      struct unit_files *files) {
    struct table t = {L, at, line, "unit"};
    struct rt_unit *unit = NEW(struct rt_unit, 1);
    *files = (struct unit_files){.unit = unit, .script = script_of(L)->file, .line = line};
    files->file = NEW(const char *, MOST_FILES);
    files->sha256 = NEW(const char *, MOST_FILES);
    read_files(&t, "source", files);
    files->nsources = files->n;
    read_files(&t, "libraries", files);
    if (files->n == 0)
        field_fail(L, line, "source",
                   "unit needs the field 'source', its code in C or CUDA; add: source = \"my_unit.c\"");
    unit->name = read_unit_name(&t, files);
    read_parameters(&t, unit);
    read_init(&t, unit);
    unit->data = read_weights_file(&t, "data");
    unit->keeps = read_keeps(&t);
    read_side(&t, m, unit);
    read_frozen(&t, unit);
    unit->stash = read_bytes(&t, "stash");
    unit->extra = read_bytes(&t, "extra");
    read_work(&t, unit->work);
    read_flop(&t, unit->flop);
    unit->code = NEW(struct rt_unit_code, 1);
    return unit;
}
