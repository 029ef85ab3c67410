/* A picture in a page: one file that needs no network. Its style is page.css, its script page.js. */
#include "page.h"
#include "svg.h"

void page_begin(struct text *t, const struct page *page) {
    put(t, "<!DOCTYPE html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n"
           "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
           "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src 'unsafe-inline'; "
           "style-src 'unsafe-inline'\">\n<title>");
    put_xml(t, page->name);
    put(t, "</title>\n<style>\n%s</style>\n<body>\n<header>\n<h1>", page_css);
    put_xml(t, page->name);
    put(t, "</h1>\n<p id=\"verdict\"%s>%s</p>\n<code>", page->proved ? " class=\"good\"" : "", page->verdict);
    put_xml(t, page->command);
    put(t, "</code>\n<dl>");
    for (int i = 0; i < page->nfigures; i++)
        put(t, "\n<div><dt>%s</dt><dd>%s</dd></div>", page->figure[i].name, page->figure[i].value);
    put(t,
        "\n</dl>\n</header>\n<main>\n<figure>\n<div id=\"picture\" data-top=\"%d\" tabindex=\"0\" role=\"application\" "
        "aria-label=\"Timeline. Arrows pan, plus and minus zoom, 0 shows all, comma and full stop go from operation to "
        "operation.\">\n",
        HEADING + 8);
}

void page_end(struct text *t, const struct page *page) {
    put(t,
        "</div>\n<div id=\"below\">\n<div id=\"info\" aria-live=\"polite\">Point at an operation: %s. The wheel zooms, "
        "dragging pans. Keys: arrows, + - 0, and , . from one to the next.</div>\n",
        page->shows);
    put(t, "<button type=\"button\" data-key=\"+\" aria-label=\"zoom in\">+</button>\n"
           "<button type=\"button\" data-key=\"-\" aria-label=\"zoom out\">−</button>\n"
           "<button type=\"button\" data-key=\"0\">All</button>\n</div>\n</figure>\n"
           "<section id=\"report\" aria-label=\"Report\" tabindex=\"0\"><pre>");
    put_xml(t, page->report);
    put(t, "</pre></section>\n</main>\n<script>\n%s</script>\n</html>\n", page_js);
}
