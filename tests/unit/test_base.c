#include "base/heap.h"
#include "base/read_file.h"
#include "base/text.h"
#include <criterion/criterion.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- memory ---- */

static bool all_are(int value, const char *p, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (p[i] != value)
            return false;
    return true;
}

/* Allocates a mix of small, chunk-sized and larger pieces: each is zeroed, aligned, and disjoint from the others. */
Test(base, alloc_is_zeroed_aligned_and_apart) {
    static const size_t size[] = {1, 15, 16, 17, 1000, 1 << 20, 3, (1 << 20) + 1, 5 << 20, 24, (1 << 20) - 64, 8};
    enum { N = sizeof size / sizeof *size };
    for (int round = 0; round < 3; round++) {
        char *piece[N];
        size_t sum = 0;
        for (int i = 0; i < N; i++) {
            piece[i] = alloc(size[i]);
            sum += (size[i] + 15) / 16 * 16;
            cr_assert_eq((uintptr_t)piece[i] % 16, 0, "piece %d", i);
            cr_assert(all_are(0, piece[i], size[i]), "piece %d", i);
            memset(piece[i], i + 1, size[i]);
        }
        for (int i = 0; i < N; i++)
            cr_assert(all_are(i + 1, piece[i], size[i]), "piece %d was overwritten", i);
        cr_assert_eq(allocated(), sum);
        free_all();
        cr_assert_eq(allocated(), 0);
    }
}

Test(base, many_small_pieces_do_not_overlap) {
    enum { N = 50000 };
    int **p = NEW(int *, N);
    for (int i = 0; i < N; i++) {
        p[i] = NEW(int, 1 + i % 7);
        p[i][i % 7] = i;
        p[i][0] = i;
    }
    for (int i = 0; i < N; i++) {
        cr_assert_eq(p[i][0], i);
        cr_assert_eq(p[i][i % 7], i);
    }
    free_all();
}

/* Nested scratches: allocations from before them stay. Later ones are zeroed although they reuse the memory, and an
 * inner scratch that never ended ends with the outer. */
Test(base, a_string_outlives_its_scratch) {
    for (size_t n = 1; n < 5000000; n *= 7) {
        struct scratch scratch = scratch_begin();
        char *s = alloc(n + 1);
        memset(s, 'x', n);
        const char *kept = scratch_end_keeping(scratch, s);
        memset(alloc(n + 1), 'y', n); /* in the same place */
        cr_assert(strlen(kept) == n && strspn(kept, "x") == n);
    }
    free_all();
}

Test(base, scratch_gives_back) {
    enum { SMALL = 1000, BIG = 3 << 20, GROWN = 5 << 20 };
    char *small = memset(alloc(SMALL), 1, SMALL), *big = memset(alloc(BIG), 2, BIG);
    for (int round = 0; round < 20; round++) {
        struct scratch outer = scratch_begin();
        for (int depth = 0; depth < 3; depth++) {
            struct scratch inner = scratch_begin();
            char *p = alloc(SMALL), *q = alloc(BIG), *grown = NULL;
            size_t cap = 0, grows_to = GROWN >> round % 3;
            cr_assert(all_are(0, p, SMALL) && all_are(0, q, BIG));
            GROW(grown, cap, 100000);
            memset(grown, 3, cap);
            GROW(grown, cap, grows_to);
            cr_assert(all_are(3, grown, 100000));
            memset(p, 4, SMALL);
            memset(q, 5, BIG);
            memset(grown, 6, cap);
            if (depth < 2)
                scratch_end(inner);
        }
        scratch_end(outer);
        char *after = alloc(round % 2 ? BIG - 64 : SMALL);
        cr_assert(all_are(0, after, round % 2 ? BIG - 64 : SMALL));
        memset(after, 7, round % 2 ? BIG - 64 : SMALL);
    }
    cr_assert(all_are(1, small, SMALL) && all_are(2, big, BIG));
    free_all();
    cr_assert_eq(allocated(), 0);
}

/* Three arrays grow alternately, with small pieces in between, from nothing to a size at which they move as whole
 * pages. */
Test(base, grow_keeps_what_it_holds) {
    enum { ARRAYS = 3, N = 60000 };
    size_t *array[ARRAYS] = {0}, cap[ARRAYS] = {0}, moves = 0;
    for (size_t n = 0; n < N; n++)
        for (size_t k = 0; k < ARRAYS; k++) {
            size_t was = cap[k];
            GROW(array[k], cap[k], n + 1);
            moves += cap[k] != was;
            array[k][n] = n * ARRAYS + k;
            if (n % 100 == 0)
                memset(alloc(n % 700), 0xff, n % 700);
        }
    for (size_t k = 0; k < ARRAYS; k++)
        for (size_t n = 0; n < N; n++)
            if (array[k][n] != n * ARRAYS + k)
                cr_assert_fail("array %zu lost element %zu", k, n);
    cr_assert_lt(moves, ARRAYS * 40, "it grows in proportion to its size");
    cr_assert_geq(allocated(), sizeof **array * ARRAYS * N);
    free_all();
    cr_assert_eq(allocated(), 0);
}

Test(base, grow_only_when_needed) {
    int *p = NULL;
    size_t cap = 0;
    GROW(p, cap, 10);
    int *first = p;
    p[9] = 9;
    GROW(p, cap, cap);
    cr_assert_eq(p, first);
    size_t far = 100 * cap; /* far beyond the next step */
    GROW(p, cap, far);
    cr_assert_geq(cap, far);
    cr_assert_eq(p[9], 9);
    p[far - 1] = 1;
}

/* ---- text ---- */

Test(base, put_of_any_length) {
    for (int n = 250; n < 262; n++) { /* around the size of the small buffer */
        struct text t = {0};
        put(&t, "<");
        put(&t, "%0*d", n, 7);
        put(&t, ">");
        cr_assert_eq(t.n, (size_t)n + 2);
        cr_assert_eq(strlen(t.s), t.n);
        cr_assert_eq(t.s[n], '7');
        cr_assert_eq(t.s[n + 1], '>');
    }
}

Test(base, put_bytes_with_zeros) {
    struct text t = {0};
    put_bytes(&t, "a\0b", 3);
    put_bytes(&t, "", 0);
    put_bytes(&t, "c", 1);
    cr_assert_eq(t.n, 4);
    cr_assert_arr_eq(t.s, "a\0bc", 5);
}

Test(base, format_and_copy) {
    char original[] = "rank 3";
    char *copy = copy_string(original);
    original[0] = 'b';
    cr_assert_str_eq(copy, "rank 3");
    cr_assert_str_eq(format("%d%s%d", 1, "F", 3), "1F3");
    cr_assert_eq(strlen(format("%5000d", 1)), 5000);
}

/* ---- numbers ---- */

/* splitmix64 (Steele, Lea & Flood 2014): the tests' own random numbers, the same everywhere. */
static uint64_t random_bits(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Returns the significant digits of a written number: zeros before the first and after the last do not count. */
static int digits_of(const char *s) {
    int n = 0, zeros = 0;
    for (; *s && *s != 'e'; s++) {
        if (*s < '0' || *s > '9' || (n == 0 && *s == '0'))
            continue;
        if (*s == '0') {
            zeros++;
        } else {
            n += zeros + 1;
            zeros = 0;
        }
    }
    return n;
}

static void check_number(double x) {
    char buf[32], shorter[400];
    cr_assert_eq(number(x, buf), buf);
    cr_assert_eq(strtod(buf, NULL), x, "%s does not read back as %.17g", buf, x);
    int digits = digits_of(buf);
    if (digits < 2)
        return;
    snprintf(shorter, sizeof shorter, "%.*g", digits - 1, x);
    cr_assert_neq(strtod(shorter, NULL), x, "%s is longer than %s", buf, shorter);
}

Test(base, number_reads_back_and_is_shortest) {
    uint64_t state = 1;
    for (int i = 0; i < 20000; i++) {
        uint64_t bits = random_bits(&state);
        double any;
        memcpy(&any, &bits, sizeof any);
        if (isfinite(any))
            check_number(any);
        check_number((double)(bits >> 11) / 9007199254740992.0 * 1000);
        check_number((double)(bits % 100000) / 1000);
    }
}

Test(base, number_of_integers_has_no_point) {
    uint64_t state = 2;
    for (int i = 0; i < 20000; i++) {
        long long x = (long long)(random_bits(&state) >> (11 + i % 50)) * (i % 2 ? 1 : -1);
        char buf[32];
        cr_assert_str_eq(number((double)x, buf), format("%lld", x));
    }
}

Test(base, number_examples) {
    char buf[32];
    cr_assert_str_eq(number(0, buf), "0");
    cr_assert_str_eq(number(0.1, buf), "0.1");
    cr_assert_str_eq(number(0.1 + 0.2, buf), "0.30000000000000004");
    cr_assert_str_eq(number(-34.5, buf), "-34.5");
    cr_assert_str_eq(number(1000000, buf), "1000000");
    cr_assert_str_eq(number(9007199254740991.0, buf), "9007199254740991");
    cr_assert_str_eq(number(1e300, buf), "1e+300");
    cr_assert_str_eq(number(INFINITY, buf), "inf");
}

/* ---- suggestions ---- */

Test(base, nearest_suggests_what_was_meant) {
    static const char *const field[] = {"workers", "stages", "batches", "w", "n", "order"};
    enum { N = sizeof field / sizeof *field };
    cr_assert_str_eq(nearest("worker", field, N), "workers");
    cr_assert_str_eq(nearest("wrokers", field, N), "workers");
    cr_assert_str_eq(nearest("stage", field, N), "stages");
    cr_assert_str_eq(nearest("batchs", field, N), "batches");
    cr_assert_str_eq(nearest("order", field, N), "order");
    cr_assert_null(nearest("microbatch_size", field, N));
    cr_assert_null(nearest("zzz", field, N));
    cr_assert_null(nearest("worker", field, 0));
}

Test(base, nearest_takes_the_first_of_equals) {
    static const char *const name[] = {"cat", "car", "can"};
    cr_assert_str_eq(nearest("cap", name, 3), "cat");
}

/* ---- errors ---- */

/* Checks the message of the death of `call`; fails the test if it does not die. */
#define DIES_WITH(text, call)                                                                                          \
    do {                                                                                                               \
        jmp_buf trap;                                                                                                  \
        diag_trap = &trap;                                                                                             \
        if (setjmp(trap) == 0) {                                                                                       \
            call;                                                                                                      \
            cr_assert_fail(#call " did not die");                                                                      \
        }                                                                                                              \
        diag_trap = NULL;                                                                                              \
        cr_assert_str_eq(diag_text, text);                                                                             \
    } while (0)

static const char source[] = "return schedule {\n\tworkers = p.n,\twrkers = 1,\r\n}\n";

Test(diag, die_tells) { DIES_WITH("pianola: error: 3 ranks\n", die("%d %s", 3, "ranks")); }

Test(diag, die_without_a_trap_exits_2, .exit_code = 2) { die("the end"); }

Test(diag, die_at_without_a_trap_exits_2, .exit_code = 2) { die_at("a.lua", source, 1, 1, "the end"); }

Test(diag, die_at_shows_line_and_caret) {
    DIES_WITH("a.lua:1: error: no 'x'\n"
              "    1 | return schedule {\n"
              "      |        ^\n",
              die_at("a.lua", source, 1, 8, "no '%s'", "x"));
}

Test(diag, die_at_keeps_tabs_before_the_caret) {
    DIES_WITH("a.lua:2: error: unknown\n"
              "    2 | \tworkers = p.n,\twrkers = 1,\n"
              "      | \t              \t^\n",
              die_at("a.lua", source, 2, 17, "unknown"));
}

Test(diag, die_at_points_just_behind_the_line) {
    DIES_WITH("a.lua:3: error: cut off\n"
              "    3 | }\n"
              "      |  ^\n",
              die_at("a.lua", source, 3, 2, "cut off"));
}

Test(diag, die_at_leaves_out_what_it_lacks) {
    DIES_WITH("a.lua:3: error: no column\n    3 | }\n", die_at("a.lua", source, 3, 0, "no column"));
    DIES_WITH("a.lua:3: error: column off the line\n    3 | }\n", die_at("a.lua", source, 3, 9, "column off the line"));
    DIES_WITH("a.lua:9: error: no such line\n", die_at("a.lua", source, 9, 1, "no such line"));
    DIES_WITH("a.lua:1: error: no source\n", die_at("a.lua", NULL, 1, 1, "no source"));
    DIES_WITH("a.lua:4: error: empty line\n", die_at("a.lua", source, 4, 1, "empty line"));
}

/* Texts of any length stay inside diag_text. */
Test(diag, long_texts_are_cut) {
    char line[400];
    memset(line, 'x', sizeof line - 1);
    line[sizeof line - 1] = 0;
    static jmp_buf trap;
    static int width;
    diag_trap = &trap;
    if (setjmp(trap) == 0)
        die("%9000d", 1);
    cr_assert_lt(strlen(diag_text), sizeof diag_text);
    cr_assert_eq(diag_text[strlen(diag_text) - 1], '\n');
    for (width = 1500; width < 4500; width += 50) { /* of the name, so that each part is cut off once */
        if (setjmp(trap) == 0)
            die_at(format("%*s", width, "a.lua"), line, 1, 399, "%9000d", 1);
        cr_assert_lt(strlen(diag_text), sizeof diag_text);
    }
    diag_trap = NULL;
}

/* ---- try ---- */

static void die_of_the_inner(void *n) { die("the inner one, %d", *(int *)n); }
static void add_one(void *n) { ++*(int *)n; }

/* Errors of inner tries are answers; an error outside these belongs to the outer try. */
static void die_of_the_outer(void *n) {
    cr_assert(!try(die_of_the_inner, n));
    cr_assert_str_eq(diag_text, "pianola: error: the inner one, 5\n");
    cr_assert_str_eq(diag_line(), "the inner one, 5");
    cr_assert(try(add_one, n));
    cr_assert(!try(die_of_the_inner, n));
    ++*(int *)n;
    die("the outer one, %d", *(int *)n);
}

Test(try, an_error_belongs_to_the_innermost) {
    int n = 5;
    cr_assert(!try(die_of_the_outer, &n));
    cr_assert_str_eq(diag_text, "pianola: error: the outer one, 7\n");
    cr_assert_eq(n, 7);
    cr_assert_null(diag_trap);
    cr_assert_not(diag_ended);
}

static void die_again_of_the_inner(void *n) {
    if (!try(die_of_the_inner, n))
        die_again();
}

Test(try, an_error_is_passed_on) {
    int n = 6;
    cr_assert(!try(die_again_of_the_inner, &n));
    cr_assert_str_eq(diag_text, "pianola: error: the inner one, 6\n");
}

Test(try, an_error_behind_all_tries_exits_2, .exit_code = 2) {
    int n = 8;
    cr_assert(!try(die_of_the_inner, &n));
    die("the end");
}

/* ---- files ---- */

/* Writes these bytes into a new file, and returns its name. */
static char *file_of(const char *bytes, size_t n) {
    static char path[] = "build/test_base_XXXXXX";
    int f = mkstemp(path);
    cr_assert(f >= 0, "%s", strerror(errno));
    cr_assert_eq(write(f, bytes, n), (ssize_t)n);
    close(f);
    return path;
}

/* Returns what put_utf8 makes of s, and checks that it consumes all of s. */
static const char *utf8(const char *s) {
    struct text t = {0};
    size_t n = strlen(s), at = 0;
    while (at < n)
        at += put_utf8(&t, s + at);
    cr_assert_eq(at, n);
    return t.s;
}

Test(text, utf8_stays_and_other_bytes_are_replaced) {
    static const char *const whole[] = {"plain",        "\xc2\x80",         "\xdf\xbf",
                                        "\xe0\xa0\x80", "\xed\x9f\xbf",     "\xee\x80\x80",
                                        "\xef\xbf\xbd", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbd"};
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
        cr_expect_str_eq(utf8(whole[i]), whole[i]);
#define FFFD "\xef\xbf\xbd"
    cr_expect_str_eq(utf8("a\xff"
                          "b"),
                     "a" FFFD "b");
    cr_expect_str_eq(utf8("\xc1\xbf"), FFFD FFFD);                   /* a one-byte character in two */
    cr_expect_str_eq(utf8("\xe0\x9f\xbf"), FFFD FFFD FFFD);          /* a two-byte character in three */
    cr_expect_str_eq(utf8("\xed\xa0\x80"), FFFD FFFD FFFD);          /* half of a UTF-16 pair */
    cr_expect_str_eq(utf8("\xef\xbf\xbf"), FFFD FFFD FFFD);          /* no character, and invalid in XML */
    cr_expect_str_eq(utf8("\xf4\x90\x80\x80"), FFFD FFFD FFFD FFFD); /* beyond the last character */
    cr_expect_str_eq(utf8("\xe2\x82"), FFFD FFFD);                   /* cut off */
    cr_expect_str_eq(utf8("\xe2\x82z"), FFFD FFFD "z");
}

Test(files, read_back_whole) {
    size_t n = 300001, got = 0;
    char *bytes = alloc(n);
    uint64_t state = 3;
    for (size_t i = 0; i < n; i++)
        bytes[i] = (char)random_bits(&state); /* includes zeros */
    char *path = file_of(bytes, n);
    char *back = read_file(path, &got);
    unlink(path);
    cr_assert_eq(got, n);
    cr_assert_eq(memcmp(back, bytes, n), 0);
    cr_assert_eq(back[n], 0);
}

Test(files, empty_is_empty) {
    size_t got = 1;
    char *path = file_of("", 0);
    cr_assert_str_eq(read_file(path, &got), "");
    cr_assert_str_eq(read_file(path, NULL), "");
    unlink(path);
    cr_assert_eq(got, 0);
}

Test(files, dash_is_stdin) {
    char *path = file_of("from stdin", 10);
    cr_assert_not_null(freopen(path, "rb", stdin));
    unlink(path);
    cr_assert_str_eq(read_file("-", NULL), "from stdin");
}

Test(files, errors_name_the_file) {
    DIES_WITH("pianola: error: no/such/file.lua: No such file or directory\n", read_file("no/such/file.lua", NULL));
    DIES_WITH("pianola: error: .: Is a directory\n", read_file(".", NULL));
}

/* ---- heap ---- */

struct card {
    int value, number;
};
static inline bool less(struct card x, struct card y) { return x.value < y.value; }
HEAP(cards, struct card, less)

/* A pop returns the smallest value in the heap, in any order of pushes and pops. */
Test(base, heap_gives_the_smallest_first) {
    struct cards h = {0};
    int in[200] = {0}, n = 0; /* in: copies of each value in the heap */
    for (int i = 0; i < 100000; i++)
        if (h.n == 0 || rand() % 5 < (i < 50000 ? 3 : 2)) {
            int value = rand() % 200;
            in[value]++;
            cards_push(&h, (struct card){value, value * 7});
            n++;
        } else {
            int least = 0;
            while (!in[least])
                least++;
            struct card c = cards_pop(&h);
            cr_assert(c.value == least && c.number == least * 7, "%d instead of %d", c.value, least);
            in[least]--;
            n--;
            cr_assert_eq(h.n, (size_t)n);
        }
}

struct placed {
    int32_t key;
    uint8_t place[3]; /* an odd size */
};
static int by_key(const void *x, const void *y) {
    const struct placed *a = x, *b = y;
    return (a->key > b->key) - (a->key < b->key);
}

Test(base, sort_keeps_equal_elements_in_their_order) {
    uint64_t state = 1;
    for (int n = 0; n < 300; n++) {
        struct placed *a = NEW(struct placed, n);
        int32_t count[8] = {0};
        for (int i = 0; i < n; i++) {
            int32_t key = (int32_t)(random_bits(&state) >> 61);
            a[i] = (struct placed){key, {(uint8_t)count[key], (uint8_t)(count[key] >> 8), 7}};
            count[key]++;
        }
        sort(a, (size_t)n, sizeof *a, by_key);
        for (int i = 0, key = 0, place = 0; i < n; i++, place++) {
            for (; place == count[key]; place = 0)
                key++;
            cr_assert_eq(a[i].key, key, "%d of %d", i, n);
            cr_assert_eq(a[i].place[0] + 256 * a[i].place[1], place, "%d of %d", i, n);
        }
        free_all();
    }
}
