/* `pianola help completion-bash` and the like: shell completion scripts, from the tables in options.c.
 *
 * A script contains the tables' words in its shell's syntax and never calls pianola: it completes at once, even on
 * machines where the program does not run. */
#include "base/text.h"
#include "options.h"
#include <string.h>

/* Actions of a shell that complete the word after an option or a command. */
struct shell {
    const char *before, *after;       /* around known words */
    const char *value_named[NVALUES]; /* otherwise, by the type of value */
};

static const char *after_command(const struct shell *shell, const struct command *command) {
    return shell->value_named[value_of(command->args)];
}

static const char *after_option(const struct shell *shell, const struct option_row *row) {
    const char *words = words_of(row);
    return *words ? format("%s%s%s", shell->before, words, shell->after) : shell->value_named[value_of(row->arg)];
}

/* Writes text for use inside '…' in a shell. bracket: also escapes ], for zsh's [explanation]. */
static void put_shell_quoted(FILE *out, const char *s, const char *quote, bool bracket) {
    for (; *s; s++)
        if (*s == '\'')
            fputs(quote, out);
        else if (*s == '\\' || (bracket && *s == ']'))
            fprintf(out, "\\%c", *s);
        else
            fputc(*s, out);
}

static void put_commands(FILE *out) {
    for (int i = 0; i < ncommands; i++)
        fprintf(out, "%s%s", i ? " " : "", commands[i].name);
}

static void put_topics(FILE *out) {
    for (int i = 0; i < ntopics; i++)
        fprintf(out, " %s", topics[i].name);
}

/* ---- bash ---- */

static const struct shell bash = {"words='", "'", {"return", "files=lua", "files=all", "files=folders"}};

static bool has_former(const struct option_row *row) {
    for (const struct option_row *former = options; former < row; former++)
        if (strcmp(former->name, row->name) == 0)
            return true;
    return false;
}

/* Completes the value of an option. If later rows have the same name, their commands are tested first. */
static void bash_option(FILE *out, const struct option_row *row) {
    const char *other = "case ${COMP_WORDS[1]} in ";
    bool same = true;
    fprintf(out, "    --%s%s) ", row->name, row->letter ? format(" | -%c", row->letter) : "");
    for (const struct option_row *later = row + 1; later < options + noptions; later++) {
        if (strcmp(later->name, row->name) != 0)
            continue;
        for (int i = 0, n = 0; i < ncommands; i++)
            if (option_text(later, &commands[i]))
                fprintf(out, "%s%s", n++ ? " | " : other, commands[i].name);
        fprintf(out, ") %s ;; ", after_option(&bash, later));
        other = "";
        same = false;
    }
    fprintf(out, same ? "%s ;;\n" : "*) %s ;; esac ;;\n", after_option(&bash, row));
}

static void bash_command(FILE *out, const struct command *command) {
    const char *action = after_command(&bash, command);
    fprintf(out, "      %s) %s words='", command->name, strcmp(action, "return") == 0 ? "files=all" : action);
    for (int i = 0, n = 0; i < noptions; i++)
        if (option_text(&options[i], command))
            fprintf(out, "%s--%s", n++ ? " " : "", options[i].name);
    fprintf(out, "' ;;\n");
}

void help_bash(FILE *out) {
    fputs("# Completion of pianola for bash, made by `pianola help completion-bash`.\n"
          "_pianola() {\n"
          "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} words='' files=''\n"
          "  COMPREPLY=()\n"
          "  # --name=value comes as three words\n"
          "  if [[ $word == '=' ]]; then word=''\n"
          "  elif [[ $before == '=' ]]; then before=${COMP_WORDS[COMP_CWORD - 2]}; fi\n"
          "  if ((COMP_CWORD == 1)); then words='",
          out);
    put_commands(out);
    fputs(" help --help --version'\n"
          "  elif [[ ${COMP_WORDS[1]} == help ]]; then ((COMP_CWORD > 2)) || words='",
          out);
    put_commands(out);
    put_topics(out);
    fputs("'\n"
          "  else\n"
          "    case $before in\n",
          out);
    for (int i = 0; i < noptions; i++)
        if (options[i].arg && !has_former(&options[i]))
            bash_option(out, &options[i]);
    fputs("    *)\n"
          "      case ${COMP_WORDS[1]} in\n",
          out);
    for (int i = 0; i < ncommands; i++)
        bash_command(out, &commands[i]);
    fputs("      esac\n"
          "      if [[ $word == -* ]]; then files=''; else words=''; fi ;;\n"
          "    esac\n"
          "  fi\n"
          "  if [[ $files ]]; then compopt -o filenames 2>/dev/null; fi\n"
          "  case $files in\n"
          "  lua) mapfile -t COMPREPLY < <(compgen -d -- \"$word\"; compgen -f -X '!*.lua' -- \"$word\") ;;\n"
          "  all) mapfile -t COMPREPLY < <(compgen -f -- \"$word\") ;;\n"
          "  folders) mapfile -t COMPREPLY < <(compgen -d -- \"$word\") ;;\n"
          "  *) mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$word\") ;;\n"
          "  esac\n"
          "}\n"
          "complete -F _pianola pianola\n",
          out);
}

/* ---- zsh ---- */

static const struct shell zsh = {"(", ")", {" ", "_files -g \"*.lua\"", "_files", "_files -/"}};

/* Writes an option in _arguments syntax: '--format=[explanation]:FORMAT:(grid tsv)'. -D may be repeated. */
static void zsh_option(FILE *out, const struct option_row *row, const char *text) {
    const char *tail = row->arg ? "=" : "", c = row->letter;
    fputs(" \\\n      ", out);
    if (c)
        fprintf(out, "%s{-%c%s,--%s%s}", c == 'D' ? "\\*" : format("'(-%c --%s)'", c, row->name), c,
                row->arg ? "+" : "", row->name, tail);
    else
        fprintf(out, "--%s%s", row->name, tail);
    fputs("'[", out);
    put_shell_quoted(out, text, "'\\''", true);
    fputc(']', out);
    if (row->arg)
        fprintf(out, ":%s:%s", row->arg, after_option(&zsh, row));
    fputc('\'', out);
}

static void zsh_command(FILE *out, const struct command *command) {
    const char *action = after_command(&zsh, command);
    fprintf(out, "  %s)\n    _arguments -s", command->name);
    for (int i = 0; i < noptions; i++) {
        const char *text = option_text(&options[i], command);
        if (text)
            zsh_option(out, &options[i], text);
    }
    fprintf(out, " \\\n      '*:%.*s:%s' ;;\n", (int)strcspn(command->args, " "), command->args,
            *action == ' ' ? "_files" : action);
}

static void zsh_described(FILE *out, const char *name, const char *what) {
    fprintf(out, "    '%s:", name);
    put_shell_quoted(out, what, "'\\''", false);
    fputs("'\n", out);
}

void help_zsh(FILE *out) {
    fputs("#compdef pianola\n"
          "# Completion of pianola for zsh, made by `pianola help completion-zsh`.\n"
          "_pianola() {\n"
          "  local -a commands topics\n"
          "  commands=(\n",
          out);
    for (int i = 0; i < ncommands; i++)
        zsh_described(out, commands[i].name, what_of(commands[i].what));
    fputs("  )\n"
          "  topics=(\n",
          out);
    for (int i = 0; i < ntopics; i++)
        zsh_described(out, topics[i].name, topics[i].what);
    fputs("  )\n"
          "  if ((CURRENT == 2)); then\n"
          "    commands+=('help:explain a command or a topic')\n"
          "    _describe -t commands command commands\n"
          "    return\n"
          "  fi\n"
          "  shift words\n"
          "  ((CURRENT--))\n"
          "  case $words[1] in\n"
          "  help) ((CURRENT > 2)) || _describe -t commands command commands -- topics ;;\n",
          out);
    for (int i = 0; i < ncommands; i++)
        zsh_command(out, &commands[i]);
    fputs("  esac\n"
          "}\n"
          "# In $fpath, zsh takes this file as the function's body. If it is sourced, it registers the function.\n"
          "if [[ $funcstack[1] == _pianola ]]; then _pianola \"$@\"; else compdef _pianola pianola; fi\n",
          out);
}

/* ---- fish ---- */

static void fish_described(FILE *out, const char *condition, const char *name, const char *what) {
    fprintf(out, "complete -c pianola -n '%s' -f -a %s -d '", condition, name);
    put_shell_quoted(out, what, "\\'", false);
    fputs("'\n", out);
}

static const struct shell fish = {
    " -f -a '",
    "'",
    {" -f", " -f -a '(__fish_complete_suffix .lua)'", " -F", " -f -a '(__fish_complete_directories)'"}};

static void fish_option(FILE *out, const struct option_row *row, const struct wording *wording) {
    fputs("complete -c pianola -n '__fish_seen_subcommand_from", out);
    for (int i = 0; i < ncommands; i++)
        if (wording->commands & commands[i].bit)
            fprintf(out, " %s", commands[i].name);
    fprintf(out, "' -l %s%s%s -d '", row->name, row->letter ? format(" -s %c", row->letter) : "",
            row->arg ? format(" -r%s", after_option(&fish, row)) : " -f");
    put_shell_quoted(out, wording_text(row, wording), "\\'", false);
    fputs("'\n", out);
}

void help_fish(FILE *out) {
    const char *first = "__fish_use_subcommand", *help = "__fish_seen_subcommand_from help";
    fputs("# Completion of pianola for fish, made by `pianola help completion-fish`.\n"
          "complete -c pianola -f\n",
          out);
    for (int i = 0; i < ncommands; i++) {
        const struct command *command = &commands[i];
        const char *action = after_command(&fish, command);
        fish_described(out, first, command->name, what_of(command->what));
        fish_described(out, help, command->name, what_of(command->what));
        fprintf(out,
                "complete -c pianola -n '__fish_seen_subcommand_from %s; and not __fish_seen_subcommand_from help'%s\n",
                command->name, strcmp(action, " -f") == 0 ? " -F" : action);
    }
    fish_described(out, first, "help", "explain a command or a topic");
    for (int i = 0; i < ntopics; i++)
        fish_described(out, help, topics[i].name, topics[i].what);
    for (int i = 0; i < noptions; i++)
        for (const struct wording *w = options[i].wording; w->commands; w++)
            fish_option(out, &options[i], w);
}
