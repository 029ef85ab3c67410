/* Terminal properties: width, colours and encoding, unless options override them. */
#include "terminal.h"
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static int usable_width(const struct settings *settings) {
    struct winsize size;
    if (settings->draw.style.width)
        return settings->draw.style.width;
    if (!isatty(STDOUT_FILENO))
        return 120; /* piped output does not depend on the terminal */
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        return size.ws_col;
    const char *columns = getenv("COLUMNS");
    return columns && atoi(columns) > 0 ? atoi(columns) : 80;
}

/* Returns whether to use colours. Order of precedence: --color, NO_COLOR, FORCE_COLOR, TERM=dumb, whether stdout is a
 * terminal (no-color.org). */
static bool use_color(enum color_when when) {
    const char *no = getenv("NO_COLOR"), *force = getenv("FORCE_COLOR"), *term = getenv("TERM");
    if (when != COLOR_AUTO)
        return when == COLOR_ALWAYS;
    if (no && *no)
        return false;
    if (force && *force)
        return true;
    return !(term && strcmp(term, "dumb") == 0) && isatty(STDOUT_FILENO);
}

/* Returns whether the locale supports characters beyond ASCII: the first non-empty of LC_ALL, LC_CTYPE, LANG; else the
 * C locale. */
bool is_utf8(void) {
    static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    const char *locale = NULL;
    for (int i = 0; i < 3 && !(locale && *locale); i++)
        locale = getenv(names[i]);
    return locale && (strcasestr(locale, "UTF-8") || strcasestr(locale, "UTF8"));
}

struct style terminal_style(const struct settings *settings) {
    struct style style = settings->draw.style;
    style.width = usable_width(settings);
    style.color = use_color(settings->draw.color);
    return style;
}
