/* `pianola help man`: the manual page, pianola(1), from the tables in options.c. */
#include "base/text.h"
#include "options.h"
#include <string.h>

/* Writes the UTF-8 character at *s in roff notation, and leaves *s at its last byte. Writes ASCII unchanged, except
 * characters special to roff. */
static void put_escaped(FILE *out, const char **s) {
    unsigned char c = (unsigned char)**s;
    unsigned code = c & (c >= 0xf0 ? 7 : c >= 0xe0 ? 15 : 31);
    if (c == '\\')
        fputs("\\e", out);
    else if (c == '-')
        fputs("\\-", out);
    else if (c == '\'')
        fputs("\\(aq", out);
    else if (c == '`')
        fputs("\\(ga", out);
    else if (c < 0x80)
        fputc(c, out);
    else {
        while (((*s)[1] & 0xc0) == 0x80)
            code = code << 6 | (*++*s & 0x3f);
        fprintf(out, "\\[u%04X]", code);
    }
}

static void put_roff(FILE *out, const char *s) {
    bool begins = true; /* at the start of a line, where a period begins a request */
    for (; *s; s++) {
        if (begins && *s == '.')
            fputs("\\&", out);
        begins = *s == '\n';
        put_escaped(out, &s);
    }
}

/* Writes one text of an option and, unless all commands share it, its commands. */
static void put_wording(FILE *out, const struct option_row *row, const struct wording *wording) {
    put_roff(out, wording_text(row, wording));
    fputs(".\n", out);
    for (int i = 0, n = 0; wording->commands != ALL && i <= ncommands; i++)
        if (i == ncommands)
            fputs(".\n", out);
        else if (wording->commands & commands[i].bit) {
            fputs(n++ ? ", " : "For ", out);
            put_roff(out, commands[i].name);
        }
}

static void put_option_roff(FILE *out, const struct option_row *row) {
    fputs(".TP\n.B ", out);
    if (row->letter)
        fprintf(out, "\\-%c\\fR, \\fB", row->letter);
    put_roff(out, format("--%s", row->name));
    if (row->arg) {
        fputs(" \\fI", out);
        put_roff(out, row->arg);
    }
    fputs("\\fR\n", out);
    for (const struct wording *w = row->wording; w->commands; w++) {
        fputs(w > row->wording ? ".br\n" : "", out);
        put_wording(out, row, w);
    }
}

static void put_command(FILE *out, const struct command *command) {
    fputs(".SS \"pianola ", out);
    put_roff(out, format("%s %s", command->name, command->args));
    fputs("\"\n", out);
    put_roff(out, format("%c%s", command->what[0] & ~0x20, what_of(command->what + 1)));
    fputs(".\n.PP\n.EX\n", out);
    put_roff(out, command->examples);
    fputs(".EE\n", out);
}

void help_man(FILE *out) {
    fprintf(out, ".TH PIANOLA 1 \"\" \"pianola %s\" \"User Commands\"\n", VERSION);
    fputs(".SH NAME\npianola \\- compile training schedules into proved instruction streams, one per rank\n"
          ".SH SYNOPSIS\n.B pianola\n.I COMMAND\n.RI [ options ]\n.I FILE\n\\&...\n.br\n.B pianola help\n"
          ".RI [ COMMAND \" | \" TOPIC ]\n"
          ".SH DESCRIPTION\n"
          "A schedule is a Lua script: where each job of a training step runs, and in what order.\n"
          "Pianola compiles it into one instruction stream per rank, with every send, receive and fetch explicit and\n"
          "every buffer at a fixed address. It proves the streams together, and replays them on CPUs and GPUs.\n"
          ".SH COMMANDS\n",
          out);
    for (int i = 0; i < ncommands; i++)
        put_command(out, &commands[i]);
    fputs(".SS \"pianola help \\fR[\\fPCOMMAND \\fR|\\fP TOPIC\\fR]\\fP\"\n"
          "Explains a command, or prints a topic.\n",
          out);
    for (int i = 0; i < ntopics; i++) {
        fputs(".TP\n.B ", out);
        put_roff(out, topics[i].name);
        fputc('\n', out);
        put_roff(out, topics[i].what);
        fputs(".\n", out);
    }
    fputs(".SH OPTIONS\nOptions may stand before and after files;\n.B \\-\\-\nends them.\n"
          "A file named\n.B \\-\nis standard input, or standard output.\n",
          out);
    for (int i = 0; i < noptions; i++)
        put_option_roff(out, &options[i]);
    fputs(".SH EXIT STATUS\n"
          ".TP\n.B 0\nYes: done, proved, the same.\n"
          ".TP\n.B 1\nNo: does not verify, differs.\n"
          ".TP\n.B 2\nUsage error or other trouble; standard error says what and where.\n"
          ".SH ENVIRONMENT\n"
          ".TP\n.B NO_COLOR\nNo colors, unless\n.B \\-\\-color\nsays otherwise.\n"
          ".TP\n.B FORCE_COLOR\nColors even if standard output is not a terminal.\n"
          ".TP\n.B COLUMNS\nThe width of a terminal that does not report its own.\n"
          ".SH FILES\n"
          "The schedules that came with the program are listed by\n.BR \"pianola show \\-\\-list\" .\n"
          "Beside them, in their folder,\n.I pianola.d.lua\n"
          "describes to editors with a Lua language server everything that scripts can use.\n",
          out);
}
