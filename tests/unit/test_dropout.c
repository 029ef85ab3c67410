/* Dropout on the host: Philox against Random123's published words; the fraction dropped; different masks each time; and
 * the same mask for any holder of some of the rows as for a holder of all. */
#include "layers/dropout.h"
#include "layers/host.h"
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

Test(dropout, known_answers) { /* kat_vectors of the Random123 distribution, "philox4x32 10" */
    static const struct {
        struct words4 counter;
        uint32_t key[2], want[4];
    } answer[] = {
        {{{0, 0, 0, 0}}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{{~0u, ~0u, ~0u, ~0u}}, {~0u, ~0u}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof answer / sizeof *answer; i++) {
        struct words4 words = philox(answer[i].counter, answer[i].key[0], answer[i].key[1]);
        cr_assert_arr_eq(words.at, answer[i].want, sizeof words.at);
    }
}

enum { ROWS = 96, COLUMNS = 1000, CONTEXT = 12 };

/* Runs a dropout layer: y from rows of ones, dx from rows of twos. */
static void run(struct rt_layer l, const struct rt_draw *draw, float *y, float *dx) {
    static float ones[ROWS * COLUMNS], twos[ROWS * COLUMNS];
    struct rt_model m = {.rows = ROWS};
    for (int i = 0; i < ROWS * COLUMNS; i++)
        ones[i] = 1, twos[i] = 2;
    l.kind = LAYER_dropout;
    l.out = l.in = COLUMNS;
    l.x.space = SP_X, l.y.space = SP_Y, l.dy.space = SP_DY, l.dx.space = SP_DX;
    struct rt_bind at = {.draw = draw};
    at.at[SP_X] = (char *)ones, at.at[SP_Y] = (char *)y, at.at[SP_DY] = (char *)twos, at.at[SP_DX] = (char *)dx;
    host_dropout.forward(&(struct host_call){&m, &l, &at});
    host_dropout.input(&(struct host_call){&m, &l, &at});
}

static const struct rt_draw usual = {.seed = 7, .step = 3, .batch = 2};
static float whole[ROWS * COLUMNS], part[ROWS * COLUMNS], back[ROWS * COLUMNS];

Test(dropout, as_many_as_probable) {
    static const float p[] = {0.001f, 0.1f, 0.5f, 0.9f};
    for (int i = 0; i < 4; i++) {
        double n = ROWS * COLUMNS, kept = 0, scale = 1 / (1 - (double)p[i]);
        run((struct rt_layer){.rows = ROWS, .config.dropout.p = p[i]}, &usual, whole, back);
        for (int k = 0; k < ROWS * COLUMNS; k++) {
            cr_assert(whole[k] == 0 || whole[k] == (float)scale);
            cr_assert_eq(back[k], 2 * whole[k], "a gradient goes where its value went");
            kept += whole[k] > 0;
        }
        double off = (n - kept - (double)p[i] * n) / sqrt(n * (double)p[i] * (1 - (double)p[i]));
        cr_assert(fabs(off) < 4, "p = %g: %g standard deviations off", (double)p[i], off);
    }
    run((struct rt_layer){.rows = ROWS, .config.dropout.p = 0.5f}, NULL, whole, back);
    for (int k = 0; k < ROWS * COLUMNS; k++)
        cr_assert(whole[k] == 1 && back[k] == 2, "nothing is dropped where nothing is drawn");
}

/* Returns how many elements of two draws agree with p = 0.5. */
static int agreeing(struct rt_draw draw, int index) {
    int same = 0;
    run((struct rt_layer){.rows = ROWS, .config.dropout.p = 0.5f}, &usual, whole, back);
    run((struct rt_layer){.rows = ROWS, .config.dropout.p = 0.5f, .index = index}, &draw, part, back);
    for (int k = 0; k < ROWS * COLUMNS; k++)
        same += whole[k] == part[k];
    return same;
}

Test(dropout, never_the_same_twice) {
    const struct rt_draw other[] = {{.seed = 8, .step = 3, .batch = 2},
                                    {.seed = 7 + (1ull << 32), .step = 3, .batch = 2},
                                    {.seed = 7, .step = 4, .batch = 2},
                                    {.seed = 7, .step = 3, .batch = 3}};
    cr_assert_eq(agreeing(usual, 0), ROWS * COLUMNS);
    for (int i = 0; i < 5; i++) {
        int same = i < 4 ? agreeing(other[i], 0) : agreeing(usual, 1);
        cr_assert(abs(same - ROWS * COLUMNS / 2) < 4 * (int)sqrt(ROWS * COLUMNS / 4.0), "%d: %d agree", i, same);
    }
    for (int r = 1; r < ROWS; r++) /* no two rows share a mask */
        cr_assert(memcmp(whole, whole + r * COLUMNS, COLUMNS * sizeof *whole));
}

static void has_rows(struct rt_layer l, const int32_t *rows) {
    l.config.dropout.p = 0.5f;
    run((struct rt_layer){.rows = ROWS, .config.dropout.p = 0.5f}, &usual, whole, back);
    run(l, &usual, part, back);
    for (int r = 0; r < l.rows; r++)
        cr_assert_arr_eq(part + r * COLUMNS, whole + rows[r] * COLUMNS, COLUMNS * sizeof *part, "row %d", r);
}

Test(dropout, divided_rows) {
    int32_t rows[ROWS], n = 0;
    for (int s = 0; s < ROWS / CONTEXT; s++) /* a slice: rows 5 to 8 of each sequence */
        for (int i = 5; i < 9; i++)
            rows[n++] = s * CONTEXT + i;
    has_rows((struct rt_layer){.rows = n, .context = CONTEXT, .first = 5, .length = 4}, rows);
    for (n = 0; n < ROWS / 3; n++) /* the second of three members */
        rows[n] = ROWS / 3 + n;
    has_rows((struct rt_layer){.rows = n, .context = CONTEXT, .part = {1, 3, 0}}, rows);
    n = 0;
    for (int s = 0; s < ROWS / CONTEXT; s++) /* second of two members with two chunks each: 3 to 8 */
        for (int i = 3; i < 9; i++)
            rows[n++] = s * CONTEXT + i;
    has_rows((struct rt_layer){.rows = n, .context = CONTEXT, .part = {1, 2, CONTEXT}}, rows);
}
