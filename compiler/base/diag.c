#include "base.h"
#include "put_json.h"
#include <stdlib.h>
#include <string.h>

jmp_buf *diag_trap;
char diag_text[4096];
bool diag_ended, diag_json;
/* The error in diag_text: its message and, unless line is 0, its place in a file. */
static struct {
    char message[4000], file[1024];
    int line, column;
} error;

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

/* Prints the name that a message suggests: "did you mean 'batches'?" */
static void print_suggestion(const char *message) {
    static const char phrase[] = "did you mean ";
    const char *name = strstr(message, phrase);
    if (!name)
        return;
    name += strlen(phrase);
    name += strspn(name, "'\"");
    printf(", \"suggestion\": %s", quoted(format("%.*s", (int)strcspn(name, "'\"?;"), name)));
}

/* Prints the error as compiler/formats/schema.json defines it. Lines after the message's first give the reasons. */
static void print_as_json(void) {
    const char *line = error.message;
    size_t n = strcspn(line, "\n");
    printf("{\"schema\": 1, \"error\": {\"message\": %s", quoted(format("%.*s", (int)n, line)));
    if (error.line > 0)
        printf(", \"file\": %s, \"line\": %d", quoted(error.file), error.line);
    if (error.line > 0 && error.column > 0)
        printf(", \"column\": %d", error.column);
    print_suggestion(error.message);
    for (int i = 0; line[n]; i++) {
        line += n + 1;
        line += strspn(line, " ");
        n = strcspn(line, "\n");
        printf("%s%s", i ? ", " : ", \"because\": [", quoted(format("%.*s", (int)n, line)));
        if (!line[n])
            printf("]");
    }
    printf("}}\n");
}

static _Noreturn void end_process(void) {
    if (diag_trap)
        longjmp(*diag_trap, 1);
    diag_ended = true;
    if (diag_json)
        print_as_json();
    fflush(stdout);
    fputs(diag_text, stderr);
    exit(2);
}

void die_again(void) { end_process(); }

void die(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(error.message, sizeof error.message, fmt, ap);
    va_end(ap);
    error.line = 0;
    snprintf(diag_text, sizeof diag_text, "pianola: error: %s\n", error.message);
    end_process();
}

/* Returns line `line` of src, and its length without the newline in *n. */
static const char *line_of(const char *src, int line, int *n) {
    for (; line > 1 && src; line--) {
        src = strchr(src, '\n');
        src = src ? src + 1 : NULL;
    }
    *n = src ? (int)strcspn(src, "\r\n") : 0;
    return src;
}

void die_at(const char *file, const char *src, int line, int col, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(error.message, sizeof error.message, fmt, ap);
    va_end(ap);
    snprintf(error.file, sizeof error.file, "%s", file);
    error.line = line, error.column = col;
    int n = 0;
    const char *s = line_of(src, line, &n);
    size_t at = (size_t)snprintf(diag_text, sizeof diag_text, "%s:%d: error: %s\n", file, line, error.message);
    if (s && n > 0 && n < 400 && at < sizeof diag_text) {
        at += (size_t)snprintf(diag_text + at, sizeof diag_text - at, "%5d | %.*s\n", line, n, s);
        if (col > 0 && col <= n + 1 && at < sizeof diag_text) {
            at += (size_t)snprintf(diag_text + at, sizeof diag_text - at, "      | ");
            for (int i = 0; i < col - 1 && at < sizeof diag_text - 3; i++) /* keeps tabs, so the caret lines up */
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
