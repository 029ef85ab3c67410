#include "base.h"
#include <stdlib.h>
#include <string.h>

jmp_buf *diag_trap;
char diag_text[4096];
bool diag_ended;

bool try(void (*call)(void *context), void *context) {
    jmp_buf here, *outer = diag_trap;
    volatile bool ran = false;
    diag_trap = &here;
    if (setjmp(here) == 0) {
        call(context);
        ran = true;
    }
    diag_trap = outer;
    return ran;
}

static _Noreturn void end_process(void) {
    if (diag_trap)
        longjmp(*diag_trap, 1);
    diag_ended = true;
    fflush(stdout);
    fputs(diag_text, stderr);
    exit(2);
}

void die_again(void) { end_process(); }

void die(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    size_t n = (size_t)snprintf(diag_text, sizeof diag_text, "pianola: error: ");
    vsnprintf(diag_text + n, sizeof diag_text - n - 1, fmt, ap);
    va_end(ap);
    strcat(diag_text, "\n");
    end_process();
}

/* Line `line` of src, without its newline; its length in *n. */
static const char *line_of(const char *src, int line, int *n) {
    for (; line > 1 && src; line--) {
        src = strchr(src, '\n');
        src = src ? src + 1 : NULL;
    }
    *n = src ? (int)strcspn(src, "\r\n") : 0;
    return src;
}

void die_at(const char *file, const char *src, int line, int col, const char *fmt, ...) {
    char message[2048];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(message, sizeof message, fmt, ap);
    va_end(ap);
    int n = 0;
    const char *s = line_of(src, line, &n);
    size_t at = (size_t)snprintf(diag_text, sizeof diag_text, "%s:%d: error: %s\n", file, line, message);
    if (s && n > 0 && n < 400 && at < sizeof diag_text) {
        at += (size_t)snprintf(diag_text + at, sizeof diag_text - at, "%5d | %.*s\n", line, n, s);
        if (col > 0 && col <= n + 1 && at < sizeof diag_text) {
            at += (size_t)snprintf(diag_text + at, sizeof diag_text - at, "      | ");
            for (int i = 0; i < col - 1 && at < sizeof diag_text - 3; i++) /* tabs stay, so the caret lines up */
                diag_text[at++] = s[i] == '\t' ? '\t' : ' ';
            snprintf(diag_text + at, sizeof diag_text - at, "^\n");
        }
    }
    end_process();
}

const char *diag_line(void) {
    static const char said[] = "pianola: error: ";
    const char *text = diag_text + (strncmp(diag_text, said, strlen(said)) == 0 ? strlen(said) : 0);
    return format("%.*s", (int)strcspn(text, "\n"), text);
}
