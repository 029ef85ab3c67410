/* Owners of weights: the ranks and lists of ranks that w() returns, each list stored once in spec.list, and zero. */
#include "script.h"
#include <stdlib.h>
#include <string.h>

/* ---- lists, built rank by rank ---- */

static void list_begin(struct lists *lists, int workers) {
    if (!lists->member)
        lists->member = NEW(int32_t, workers);
    lists->number++;
    lists->n = 0;
}

static bool list_add(struct lists *lists, int32_t rank) {
    if (lists->member[rank] == lists->number)
        return false;
    lists->member[rank] = lists->number;
    GROW(lists->rank, lists->cap, (size_t)lists->n + 1);
    lists->rank[lists->n++] = rank;
    return true;
}

/* ---- results of w() ---- */

/* Returns a rank, checked. what: "home" or "compute rank". */
int rank_result(struct owners *owners, int index, const char *what) {
    lua_State *L = owners->S->L;
    int isint = 0, type = lua_type(L, index), workers = owners->sp->workers;
    lua_Integer x = type == LUA_TNUMBER ? lua_tointegerx(L, index, &isint) : 0;
    if (isint && x >= 0 && x < workers)
        return (int)x;
    const char *job = job_name(&owners->sp->names, owners->S->call.s, owners->S->call.b, owners->S->call.d),
               *value = describe(L, index);
    if (isint)
        function_fail(L, owners->w, "w", "w() returned %s %s for %s, but workers = %d; ranks are 0 to %d", what, value,
                      job, workers, workers - 1);
    if (type == LUA_TNUMBER)
        function_fail(L, owners->w, "w", "w() returned %s %s for %s; ranks are integers, and // divides to one", what,
                      value, job);
    function_fail(L, owners->w, "w", "w() returned %s %s for %s; return two ranks: home, compute", what, value, job);
}

/* Returns whether the list is the last one. Most calls return the previous call's list, whose ranks need no new
 * check. */
static bool is_same_home(lua_State *L, int index, int n, struct home home) {
    bool same = n == home.n;
    for (int i = 1, isint; same && i <= n; i++, lua_pop(L, 1))
        same = lua_rawgeti(L, index, i) == LUA_TNUMBER && lua_tointegerx(L, -1, &isint) == home.rank[i - 1] && isint;
    return same;
}

int32_t ranks_result(struct owners *owners, int index, const char *what) {
    lua_State *L = owners->S->L;
    if (lua_type(L, index) != LUA_TTABLE)
        return rank_result(owners, index, what);
    struct lists *lists = owners->lists;
    int n = (int)lua_rawlen(L, index = lua_absindex(L, index));
    int32_t *last = &lists->last[!strcmp(what, "home")];
    if (lists->n > 1 && *last >= owners->sp->workers && is_same_home(L, index, n, home_of(owners->sp, last))) {
        spend(L, n);
        return *last;
    }
    const char *job = job_name(&owners->sp->names, owners->S->call.s, owners->S->call.b, owners->S->call.d);
    if (n == 0)
        function_fail(L, owners->w, "w", "w() returned an empty list as %s for %s; name at least one rank", what, job);
    list_begin(lists, owners->sp->workers);
    for (int i = 1; i <= n; i++, lua_pop(L, 1)) {
        lua_rawgeti(L, index, i);
        int rank = rank_result(owners, -1, what);
        if (!list_add(lists, rank))
            function_fail(L, owners->w, "w", "w() returned a list with rank %d twice as %s for %s", rank, what, job);
    }
    spend(L, n);
    return *last = keep_list(owners->sp, lists->rank, lists->n);
}

int32_t home_result(struct owners *owners, int index) {
    return lua_isnil(owners->S->L, index) ? -1 : ranks_result(owners, index, "home");
}

/* ---- replicas ---- */

/* Checks that a stage has homes for all of its jobs, or for none. */
static void check_owned(struct owners *owners) {
    const struct spec *sp = owners->sp;
    const struct job *first = sp->job; /* first job of the stage */
    for (const struct job *j = sp->job; j < sp->job + sp->njobs; j++) {
        first = j->s == first->s ? first : j;
        if ((j->home < 0) == (first->home < 0))
            continue;
        bool none = j->home < 0;
        const char *one = job_name(&sp->names, j->s, j->b, j->d),
                   *other = job_name(&sp->names, first->s, first->b, first->d);
        function_fail(owners->S->L, owners->w, "w",
                      "w() returned nil as home for %s, but a rank for %s; nil means that stage %d has no weights: "
                      "return nil for all of its jobs, or for none",
                      none ? one : other, none ? other : one, j->s);
    }
}

/* Checks that different homes of a stage are replicas: lists of one length, without a rank in common. */
void check_replicas(struct owners *owners) {
    const struct spec *sp = owners->sp;
    check_owned(owners);
    const struct job **owner = NEW(const struct job *, sp->workers); /* per rank: a job that names it as home */
    int32_t *seen = NEW(int32_t, sp->workers + sp->owners.nlists);   /* 1 + the last stage that named this home */
    const struct job *first = sp->job;                               /* first job of the stage */
    for (const struct job *j = sp->job; sp->owners.nlists && j < sp->job + sp->njobs; j++) {
        first = j->s == first->s ? first : j;
        if (j->home < 0 || seen[j->home] == j->s + 1)
            continue;
        struct home home = home_of(sp, &j->home);
        seen[j->home] = j->s + 1;
        const char *job = job_name(&owners->sp->names, j->s, j->b, j->d);
        if (home.n != home_of(sp, &first->home).n)
            function_fail(owners->S->L, owners->w, "w",
                          "w() returned %d rank%s as home for %s, but %d for %s; the homes of a stage are replicas, so "
                          "their lists must have equal lengths",
                          home.n, home.n == 1 ? "" : "s", job, home_of(sp, &first->home).n,
                          job_name(&owners->sp->names, first->s, first->b, first->d));
        for (int i = 0; i < home.n; i++) {
            const struct job *other = owner[home.rank[i]];
            if (other && other->s == j->s)
                function_fail(owners->S->L, owners->w, "w",
                              "w() returned rank %d in the home for %s and in another for %s; the homes of a stage are "
                              "replicas, so they must have no rank in common",
                              home.rank[i], job, job_name(&owners->sp->names, other->s, other->b, other->d));
            owner[home.rank[i]] = j;
        }
    }
}

/* ---- teams ---- */

/* Reads `tensor`. It turns any schedule into one with teams, so -D can set it even if no script declares it. */
void read_tensor(struct owners *owners) {
    struct spec *sp = owners->sp;
    lua_State *L = owners->S->L;
    sp->owners.tensor = 1;
    if (push_field(owners->t, "tensor") != LUA_TNIL)
        sp->owners.tensor = integer_field(owners->t, "tensor", 1, MAX_WORKERS);
    lua_pop(L, 1);
    const char *set = undeclared_setting(owners->S, "tensor");
    char *end = NULL;
    long size = set ? strtol(set, &end, 10) : sp->owners.tensor;
    if (set && (*end || size < 1 || size > MAX_WORKERS))
        script_fail(L, 0, 0, "-D tensor=%s: expected the number of ranks that each rank becomes, 1 to %d", set,
                    MAX_WORKERS);
    sp->owners.tensor = (int)size;
    if ((int64_t)sp->workers * sp->owners.tensor > MAX_WORKERS)
        field_fail(L, owners->t->line, "workers", "workers * tensor is %lld; at most %d ranks are possible",
                   (long long)sp->workers * sp->owners.tensor, MAX_WORKERS);
}

/* Checks that the teams of a stage have one size, that a rank has one place in all of them, and that the weights can be
 * divided. */
void check_teams(struct owners *owners) {
    const struct spec *sp = owners->sp;
    lua_State *L = owners->S->L;
    int32_t *place = NEW(int32_t, sp->workers);                       /* per rank: its place in the team */
    const struct job **member = NEW(const struct job *, sp->workers); /* per rank: a job that gave it that place */
    const struct job *first = sp->job;                                /* first job of the stage */
    for (const struct job *j = sp->job; j < sp->job + sp->njobs; j++) {
        struct home team = home_of(sp, &j->team), home = j->home < 0 ? team : home_of(sp, &j->home);
        first = j->s == first->s ? first : j;
        int32_t n = home_of(sp, &first->team).n;
        const char *job = team.n > 1 || n > 1 ? job_name(&sp->names, j->s, j->b, j->d) : "";
        if (team.n != n)
            function_fail(
                L, owners->w, "w",
                "w() returned %d rank%s to compute %s, but %d for %s; all teams of a stage must have one size", team.n,
                team.n == 1 ? "" : "s", job, n, job_name(&sp->names, first->s, first->b, first->d));
        if (team.n > 1 && home.n % team.n && team.n % home.n)
            function_fail(L, owners->w, "w",
                          "w() returned %d ranks as home for %s and a team of %d: each member's part of the weights "
                          "lies on equally many ranks, so one number must divide the other",
                          home.n, job, team.n);
        for (int i = 0; i < team.n && team.n > 1; i++) {
            const struct job *other = member[team.rank[i]];
            if (other && other->s == j->s && place[team.rank[i]] != i)
                function_fail(L, owners->w, "w",
                              "w() returned rank %d as member %d of the team for %s, but as member %d for %s; a rank "
                              "must always have the same part of a stage's weights",
                              team.rank[i], i, job, place[team.rank[i]],
                              job_name(&sp->names, other->s, other->b, other->d));
            member[team.rank[i]] = j;
            place[team.rank[i]] = i;
        }
    }
}

/* Reads zero: 0, 1 or 2, or a function(s) that returns it. */
void read_zero(struct owners *owners) {
    lua_State *L = owners->S->L;
    struct spec *sp = owners->sp;
    int type = push_field(owners->t, "zero"), f = lua_gettop(L);
    if (type != LUA_TNIL)
        sp->owners.zero = NEW(uint8_t, sp->stages);
    for (int s = 0; sp->owners.zero && s < sp->stages; s++) {
        call_begin(owners->S, "zero", s, -1, -1);
        lua_pushvalue(L, f);
        if (type == LUA_TFUNCTION) {
            lua_pushinteger(L, s);
            lua_call(L, 1, 1);
        }
        int isint = 0;
        lua_Integer x = lua_type(L, -1) == LUA_TNUMBER ? lua_tointegerx(L, -1, &isint) : -1;
        static const char must[] = "0, 1 (replicas share the optimizer's state) or 2 (and the gradient)";
        if (type == LUA_TFUNCTION && (!isint || x < 0 || x > 2))
            function_fail(L, f, "zero", "%s returned %s; return %s", call_name(owners->S), describe(L, -1), must);
        if (!isint || x < 0 || x > 2)
            field_fail(L, owners->t->line, "zero", "'zero' must be %s, or a function(s) that returns it; not %s", must,
                       describe(L, -1));
        sp->owners.zero[s] = (uint8_t)x;
        lua_settop(L, f);
        call_end(owners->S);
    }
    lua_settop(L, f - 1);
}
