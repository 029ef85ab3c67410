/* Colours of timelines. By kind: Okabe & Ito's palette, safe for colour-blind readers. By microbatch or stage: one hue
 * for each, and one lightness per kind. Colour is never the only cue: numbers are printed too. */
#include "draw.h"
#include <math.h>

static const struct paint by_kind[NOPS] = {
    [OP_F] = {"forward", 15, 25, 31, 0x0072b2},         [OP_B] = {"full backward", 16, 36, 79, 0x009e73},
    [OP_I] = {"input gradient", 16, 80, 116, 0x56b4e9}, [OP_W] = {"weight gradient", 16, 175, 218, 0xcc79a7},
    [OP_R] = {"recompute", 16, 214, 220, 0xf0e442},     [OP_U] = {"update", 16, 247, 251, 0xd55e00},
};
static const struct paint message = {"message", 16, 172, 178, 0xe69f00};
/* Forwards are dark and backwards light; adjacent shades are clearly distinct. */
static const double lightness[NDIRS] = {[OP_F] = 0.36, [OP_R] = 0.48, [OP_I] = 0.6, [OP_B] = 0.68, [OP_W] = 0.82};

double lightness_of(uint8_t op) { return is_job(op) ? lightness[op] : 0; }

bool dark(uint32_t rgb) { return 299 * (rgb >> 16) + 587 * (rgb >> 8 & 255) + 114 * (rgb & 255) < 128 * 1000; }

/* Returns one channel of a hue's colour (CSS Color 4, section 7.1): n is 0 for red, 8 for green, 4 for blue. */
static double channel(double hue, double light, int n) {
    double k = fmod(n + hue / 30, 12), a = 0.6 * fmin(light, 1 - light);
    return light - a * fmax(-1, fmin(fmin(k - 3, 9 - k), 1));
}

static uint32_t color_of(double hue, double light) {
    static const int n[] = {0, 8, 4};
    uint32_t rgb = 0;
    for (int i = 0; i < 3; i++)
        rgb = rgb << 8 | (uint32_t)lround(channel(hue, light, n[i]) * 255);
    return rgb;
}

/* Returns the nearest of the terminal's 6 x 6 x 6 colours, whose levels are 0, 95, 135, 175, 215, 255. */
static uint8_t cube(uint32_t rgb) {
    int c = 16, weight[] = {36, 6, 1};
    for (int i = 0; i < 3; i++) {
        int v = rgb >> (16 - 8 * i) & 255;
        c += weight[i] * (v < 48 ? 0 : v < 115 ? 1 : (v - 35) / 40);
    }
    return (uint8_t)c;
}

struct paint paint_of(const struct instr *in, enum color_by by) {
    if (op_lane[in->op] != LANE_COMPUTE)
        return message;
    struct paint paint = by_kind[in->op];
    if (by == BY_OP || !is_job(in->op))
        return paint;
    double hue = fmod((by == BY_MB ? in->batch : in->stage) * 137.5 + 205, 360); /* the golden angle */
    double light = lightness[in->op];
    paint.fill = color_of(hue, light);
    paint.text = dark(paint.fill) ? 15 : 16;
    paint.ground = cube(paint.fill);
    paint.shade = cube(color_of(hue, light + 0.14));
    return paint;
}
