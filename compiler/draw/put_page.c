/* A picture in a page: one file that needs no network. Its style is page.css and viewer/viewer.css, its script is
 * viewer/, which draws the data, or the timelines that are selected in a static picture. Without scripts, it shows a
 * static picture, if there is one, and the report. */
#include "page.h"
#include "svg.h"

/* Writes JSON into a <script>, with every < escaped so that none ends the script. */
static void put_data(struct text *t, const struct text *data) {
    for (size_t i = 0, from = 0; i <= data->n; i++)
        if (i == data->n || data->s[i] == '<') {
            put_bytes(t, data->s + from, i - from);
            put_word(t, i < data->n ? "\\u003c" : "");
            from = i + 1;
        }
}

static void put_header(struct text *t, const struct page *page) {
    put(t, "<header>\n<h1>");
    put_xml(t, page->name);
    put(t, "</h1>\n");
    if (page->verdict)
        put(t, "<p id=\"verdict\"%s>%s</p>\n", page->proved ? " class=\"good\"" : "", page->verdict);
    put(t, "<code>");
    put_xml(t, page->command);
    put(t, "</code>\n<dl>");
    for (int i = 0; i < page->nfigures; i++)
        put(t, "\n<div><dt>%s</dt><dd>%s</dd></div>", page->figure[i].name, page->figure[i].value);
    put(t, "\n</dl>\n");
    if (page->note) {
        put(t, "<p id=\"note\">");
        put_xml(t, page->note);
        put(t, "</p>\n");
    }
    put(t, "</header>\n");
}

static void put_picture(struct text *t, const struct page *page) {
    put(t, "<figure>\n<div id=\"picture\">");
    if (page->svg && !page->data)
        put_bytes(t, page->svg->s, page->svg->n);
    put(t, "</div>\n");
    if (page->data) {
        put(t, "<noscript>");
        if (page->svg)
            put_bytes(t, page->svg->s, page->svg->n);
        else
            put(t, "<p>The picture needs JavaScript; the report does not.</p>");
        put(t, "</noscript>\n");
    }
    put(t, "</figure>\n");
}

/* Writes the data and the scripts that show them. */
static void put_scripts(struct text *t, const struct page *page) {
    if (page->data) {
        put(t, "<script type=\"application/json\" id=\"data\">");
        put_data(t, page->data);
        put(t, "</script>\n");
    }
    for (int i = 0; i < page->nshown; i++) {
        put(t, "<script type=\"application/json\" data-place=\"%s\" data-said=\"", page->shown[i].place);
        put_xml(t, page->shown[i].said);
        put(t, "\">");
        put_data(t, &page->shown[i].data);
        put(t, "</script>\n");
    }
    if (page->data || page->nshown)
        put(t, "<script>\n%s%s</script>\n", viewer_js, page->data ? page_js : curve_js);
}

void put_page(struct text *t, const struct page *page) {
    put(t, "<!DOCTYPE html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n"
           "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
           "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src 'unsafe-inline'; "
           "style-src 'unsafe-inline'\">\n<title>");
    put_xml(t, page->name);
    put(t, "</title>\n<style>\n%s%s</style>\n<body>\n", page_css, viewer_css);
    put_header(t, page);
    put(t, "<main>\n");
    put_picture(t, page);
    put(t, "<section id=\"report\" aria-label=\"Report\" tabindex=\"0\"><pre>");
    put_xml(t, page->report);
    put(t, "</pre></section>\n</main>\n");
    put_scripts(t, page);
    put(t, "</html>\n");
}
