/* Parts of all pictures: the frame, the time axis, names in boxes, memory under rows, the legend. Coordinates are
 * printed to a hundredth, so the same input gives the same bytes.
 *
 * The time axis determines the width: all but a few jobs have room for their names, as long as the picture stays
 * printable. Names that do not fit are omitted; the tooltip has them. */
#include "svg.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double LETTER = 6.4; /* width of a digit in names' font size; W is half as wide again */

/* ---- the frame ---- */

void put_xml(struct text *t, const char *s) {
    for (size_t n = 1; *s; s += n, n = 1)
        if (*s == '<' || *s == '>' || *s == '&' || *s == '"')
            put(t, "&#%d;", *s);
        else if ((unsigned char)*s < ' ' && *s != '\n') /* XML cannot represent other control characters */
            put(t, "?");
        else
            n = put_utf8(t, s);
}

void svg_begin(struct text *t, const struct svg *svg) {
    put(t, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.2f %.2f\" width=\"%.2f\" height=\"%.2f\">\n",
        svg->width, svg->height, svg->width, svg->height);
    /* The title comes first: at each shape's <title>, Chromium searches the root's children for the document's
     * title. */
    put(t, "<title>");
    put_xml(t, svg->name);
    put(t, "</title>\n<style>\n"
           "text { font: 10px Helvetica, Arial, 'DejaVu Sans', sans-serif; fill: #222; pointer-events: none }\n"
           "text.h { font-size: 13px; font-weight: bold }\n"
           "text.n { text-anchor: middle; fill: #000 }\n"
           "text.n.w { fill: #fff }\n"
           "text.l { text-anchor: end }\n"
           "text.s { font-size: 8px }\n"
           "text.a { text-anchor: middle; fill: #666 }\n"
           ".g { stroke: #ddd; fill: none }\n"
           ".o { stroke: #fff; stroke-width: .6 }\n"
           ".c { stroke: #000; stroke-width: 1.8 }\n"
           ".u { fill: #b8bec6 }\n"
           ".q { stroke: #666; stroke-dasharray: 3 2; fill: none }\n"
           ".x { stroke: #c00; stroke-width: 1.4; fill: none }\n");
    put(t, "%s", svg->style);
    put(t, "</style>\n<defs>\n<pattern id=\"idle\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\">"
           "<path d=\"M0 6L6 0\" stroke=\"#dcdcdc\" stroke-width=\".8\"/></pattern>\n");
    put(t, "%s</defs>\n<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n<text class=\"h\" x=\"%d\" y=\"19\">",
        svg->top, LEFT);
    put_xml(t, svg->name);
    put(t, "</text>\n");
}

/* ---- time ---- */

void span_scale(struct span *d, double *length, int n, int letters) {
    sort(length, (size_t)n, sizeof *length, by_value);
    double span = d->to - d->from, width = n ? (letters * LETTER + 8) / length[n / 10] * span : NARROW;
    d->px = span > 0 ? fmin(fmax(width, NARROW), WIDE) / span : 1;
}

double x_of(const struct span *span, double t) {
    return LEFT + (fmin(fmax(t, span->from), span->to) - span->from) * span->px;
}

double svg_width(const struct span *span) { return fmax(x_of(span, span->to), LEFT + NARROW) + RIGHT; }

/* Writes a tick every 1, 2, 5, 10, 20, 50… units, as labels need room. */
void put_axis(struct text *t, const struct span *d, double y, double bottom) {
    double every = pow(10, floor(log10(70 / d->px / d->m.one))), span = (d->to - d->from) / d->m.one;
    every *= every * d->px * d->m.one >= 70       ? 1
             : 2 * every * d->px * d->m.one >= 70 ? 2
             : 5 * every * d->px * d->m.one >= 70 ? 5
                                                  : 10;
    put(t, "<text class=\"l\" x=\"%d\" y=\"%.6g\">%s</text>\n", LEFT - 12, y,
        !strcmp(d->m.name, "units") ? "time" : d->m.name);
    double first = ceil(d->from / d->m.one / every - 1e-9) + 0.0;
    for (int i = 0; i <= span / every;
         i++) { /* counts ticks, so that it ends even if a tick is too small to change `first` */
        double n = first + i;
        if (n * every > d->from / d->m.one + span * (1 + 1e-9))
            break;
        double x = x_of(d, n * every * d->m.one);
        put(t, "<path class=\"g\" d=\"M%.2f %.6gV%.2f\"/><text class=\"a\" x=\"%.2f\" y=\"%.6g\">%.6g</text>\n", x,
            y + 3, bottom, x, y, n * every);
    }
}

void svg_put_number(struct text *t, int op, int batch, int slices) {
    if (op == OP_U)
        put(t, ", update %d", batch);
    else
        put(t, ", microbatch %d", slices ? batch / slices : batch);
    if (op != OP_U && slices)
        put(t, ", slice %d", batch % slices);
}

/* ---- names ---- */

void put_name(struct text *t, const struct names *names, const struct instr *x, const struct box *box, bool stages) {
    const char *all = is_job(x->op) ? job_name(names, x->stage, x->batch, x->op) : op_name[x->op];
    const char *s = stages || !is_job(x->op) ? all : all + strspn(all, "0123456789.");
    bool small = box->height < 14;
    double room = (box->width - 2) / (LETTER * (small ? 0.8 : 1)) - (x->op == OP_W ? 0.5 : 0);
    if ((double)strlen(s) > room && is_job(x->op))
        s = all + strspn(all, "0123456789.");
    if ((double)strlen(s) > room && is_job(x->op))
        s++;
    if ((double)strlen(s) <= room)
        put(t, "<text class=\"n%s%s\" x=\"%.2f\" y=\"%.2f\">%s</text>\n", dark(box->fill) ? " w" : "",
            small ? " s" : "", box->x + box->width / 2, box->y + box->height / 2 + (small ? 2.9 : 3.6), s);
}

/* ---- memory ---- */

/* Returns the bytes at the top of a band. Excludes a limit far above the plan, which would flatten the curves. */
double band_top(double plan, double limit) { return limit <= 4 * plan ? fmax(plan, limit) : plan; }

static void put_level(struct text *t, const struct span *span, const char *class, double y, const char *what,
                      double bytes) {
    char buf[32];
    put(t, "<path class=\"%s\" d=\"M%d %.2fH%.2f\"><title>%s %s</title></path>\n", class, LEFT, y, x_of(span, span->to),
        what, bytes_text(bytes, buf));
}

const char folded_style[] = ".f { fill: #3b4754 }\n";

/* Returns the shade, one of LEVELS, for an amount of bytes. Each shade is one path over all its times. */
enum { LEVELS = 8 };
static int shade_of(const struct band *band, int64_t bytes) {
    return band->top > 0 ? (int)ceil((double)bytes / band->top * LEVELS - 1e-9) : 0;
}

static void put_fold(struct text *t, const struct span *span, const struct band *band, const struct usage *usage) {
    struct text shade[LEVELS + 1] = {0};
    for (int i = 0, next; i < usage->n; i = next) {
        int level = shade_of(band, usage->at[i].bytes);
        for (next = i + 1; next < usage->n && shade_of(band, usage->at[next].bytes) == level;)
            next++;
        double until = next < usage->n ? usage->at[next].t : span->to;
        double from = x_of(span, usage->at[i].t), to = x_of(span, until);
        if (to > from)
            put(&shade[level], "M%.2f %.2fH%.2fv%gH%.2fZ", from, band->base - band->high, to, band->high, from);
    }
    for (int level = 1; level <= LEVELS; level++)
        if (shade[level].n)
            put(t, "<path fill-opacity=\"%g\" d=\"%s\"/>", (double)level / LEVELS, shade[level].s);
}

void put_band(struct text *t, const struct span *span, const struct band *band, const struct rank *k, const char *who,
              const double *start, const double *end) {
    struct usage usage = memory_use(k, start, end);
    double scale = band->top > 0 ? band->high / band->top : 0;
    int64_t most = 0;
    struct text line = {0};
    for (int i = 0; i < usage.n; i++) {
        double until = i + 1 < usage.n ? usage.at[i + 1].t : span->to;
        if (until <= span->from || usage.at[i].t >= span->to)
            continue;
        most = usage.at[i].bytes > most ? usage.at[i].bytes : most;
        put(&line, "V%.2fH%.2f", band->base - (double)usage.at[i].bytes * scale, x_of(span, until));
    }
    char a[32], of[32];
    const char *title = format("<title>%s: at most %s in use, of a plan of %s</title>", who, bytes_text(most, a),
                               bytes_text(k->arena, of));
    if (band->folded) {
        put(t, "<g class=\"f\">%s", title);
        put_fold(t, span, band, &usage);
        put(t, "</g>\n");
        return;
    }
    put(t, "<path class=\"u\" d=\"M%d %.2f%sV%.2fZ\">%s</path>\n", LEFT, band->base, line.n ? line.s : "", band->base,
        title);
    put_level(t, span, "q", band->base - (double)k->arena * scale, "the plan:", (double)k->arena);
    if (band->limit <= band->top)
        put_level(t, span, "x", band->base - band->limit * scale, "the limit:", band->limit);
    put(t, "<text class=\"l s\" x=\"%d\" y=\"%.2f\">%s</text>\n", LEFT - 5, band->base - 2, bytes_text(k->arena, a));
}

/* ---- the legend ---- */

void put_key(struct text *t, struct pen *at, const char *shape, const char *what) {
    double width = 30 + 5.6 * (double)strlen(what);
    if (at->x + width > at->right) {
        at->x = LEFT;
        at->y += 15;
    }
    put(t, "<rect %s x=\"%.2f\" y=\"%.2f\" width=\"14\" height=\"10\"/>", shape, at->x, at->y - 8.5);
    put(t, "<text x=\"%.2f\" y=\"%.2f\">%s</text>\n", at->x + 18, at->y, what);
    at->x += width;
}

void put_op_keys(struct text *t, struct pen *at, uint32_t drawn) {
    for (uint8_t op = 0; op < NOPS; op++)
        if (has_cost(op) && drawn >> op & 1) {
            struct paint paint = paint_of(&(struct instr){.op = op}, BY_OP);
            put_key(t, at, format("fill=\"#%06x\"", paint.fill), format("%s %s", op_name[op], paint.name));
        }
}

void put_band_keys(struct text *t, struct pen *at, double top, double limit, bool folded) {
    char buf[32];
    if (folded) {
        put_key(t, at, "class=\"f\"",
                format("memory in use: this shade is %s, %s", bytes_text(top, buf),
                       limit <= top ? "the limit" : "the largest plan"));
        return;
    }
    put_key(t, at, "class=\"u\"", "memory in use");
    put_key(t, at, "fill=\"#666\" style=\"height:2px\"", "dashed: the plan, what is allocated");
    if (isfinite(limit))
        put_key(t, at, "fill=\"#c00\" style=\"height:2px\"",
                format("the limit, %s%s", bytes_text(limit, buf), limit > top ? ": beyond the scale" : ""));
}
