/* Compares text with printf's. */
#include "base/text.h"
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static void same(double x) {
    char wanted[400];
    struct text t = {0};
    put(&t, "%.2f", x);
    snprintf(wanted, sizeof wanted, "%.2f", x);
    cr_assert_str_eq(t.s, wanted, "%a", x);
}

static uint64_t seed = 1;
static uint64_t draw(void) { return seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407); }

Test(text, hundredths_are_printfs) {
    static const double some[] = {
        0,     -0.0,     0.005,    0.015,      0.025,          0.125,     0.375,       0.995,
        0.999, 0.0625,   0x1p-4,   0x1p-8,     0x1.3ffffp-8,   0x1p-1074, 0.004999999, 2.675,
        1e14,  999999.5, 1e15 - 1, 1e15 - 0.5, 1e15,           1e22,      1e300,       INFINITY,
        NAN,   -1.005,   -0.001,   8.125,      4503599627.375, 0.5,       99.995,      1.115};
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        same(some[i]);
        same(nextafter(some[i], INFINITY));
        same(nextafter(some[i], -INFINITY));
    }
    for (int i = 0; i < 200000; i++) {
        double part = (double)(draw() >> 11) * 0x1p-53;
        same(part);
        same(ldexp(part, (int)(draw() >> 58) - 20));
        same((double)(draw() >> 44) / 8 - 1000);    /* ties */
        same(((double)(draw() >> 40) + 0.5) / 100); /* almost ties */
        same(nextafter(((double)(draw() >> 40) + 0.5) / 100, (double)(draw() & 1) * 1e9));
    }
}

Test(text, directives_are_printfs) {
    char wanted[400];
    struct text t = {0};
    put(&t, "%s %d%% #%06x %.2f|%g|%5d|%-4s|%06x", "abc", -7, 0xc0ffeu, 2.5, 0.1, 42, "x", 0x1234567u);
    snprintf(wanted, sizeof wanted, "%s %d%% #%06x %.2f|%g|%5d|%-4s|%06x", "abc", -7, 0xc0ffeu, 2.5, 0.1, 42, "x",
             0x1234567u);
    cr_assert_str_eq(t.s, wanted);
    t.n = 0;
    put(&t, "%d %s", -2147483647 - 1, "");
    cr_assert_str_eq(t.s, "-2147483648 ");
    t.n = 0;
    put(&t, "%s%c", "long: ", 'c');
    cr_assert_str_eq(t.s, "long: c");
}
