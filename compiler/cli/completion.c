/* `pianola help completion-bash` and the like: shell completion scripts, from the tables in options.c.
 *
 * A script contains the tables' words in its shell's syntax and never calls pianola: it completes at once, even on
 * machines where the program does not run. */
#include "base/text.h"
#include "options.h"
#include <string.h>

static bool takes(const struct command *command, const struct option_row *option) {
    return option->commands & command->bit;
}
static bool has_letter(const struct option_row *option) { return strchr(option_letters, option->key); }

static bool is_flag(const struct option_row *option) { return !option->arg; }

/* Writes text for inside '…' in a shell; bracket: escape ] too, for zsh's [explanation]. */
static void put_quoted(FILE *out, const char *s, const char *quote, bool bracket) {
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

/* A shell pattern for `before`, the word preceding the one being completed. */
static void bash_option(FILE *out, const struct option_row *option) {
    fprintf(out, "    --%s%s) ", option->name, has_letter(option) ? format(" | -%c", option->key) : "");
}

static const char *bash_action(const char *arg) {
    const char *words;
    switch (value_of(arg, &words)) {
    case V_WORDS: return format("words='%s'", words);
    case V_LUA: return "files=lua";
    case V_FILE: return "files=all";
    case V_FOLDER: return "files=folders";
    default: return "return";
    }
}

/* The next row with the name of this one, for other commands; NULL: none. */
static const struct option_row *namesake(const struct option_row *option) {
    const struct option_row *next = option + 1;
    while (next < options + noptions && strcmp(next->name, option->name) != 0)
        next++;
    return next < options + noptions ? next : NULL;
}

/* What follows an option, also where some commands have other options of this name. */
static void bash_value(FILE *out, const struct option_row *option) {
    if (!namesake(option)) {
        fprintf(out, "%s ;;\n", bash_action(option->arg));
        return;
    }
    fputs("case ${COMP_WORDS[1]} in ", out);
    for (const struct option_row *other = namesake(option); other; other = namesake(other)) {
        for (int i = 0, n = 0; i < ncommands; i++)
            if (takes(&commands[i], other))
                fprintf(out, "%s%s", n++ ? " | " : "", commands[i].name);
        fprintf(out, ") %s ;; ", bash_action(other->arg));
    }
    fprintf(out, "*) %s ;; esac ;;\n", bash_action(option->arg));
}

static bool has_former(const struct option_row *option) {
    for (const struct option_row *row = options; row < option; row++)
        if (strcmp(row->name, option->name) == 0)
            return true;
    return false;
}

static void bash_command(FILE *out, const struct command *command) {
    const char *action = bash_action(command->args);
    fprintf(out, "      %s) %s words='", command->name, strcmp(action, "return") == 0 ? "files=all" : action);
    for (int i = 0, n = 0; i < noptions; i++)
        if (takes(command, &options[i]))
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
        if (!is_flag(&options[i]) && !has_former(&options[i])) {
            bash_option(out, &options[i]);
            bash_value(out, &options[i]);
        }
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

static const char *zsh_action(const char *arg) {
    const char *words;
    switch (value_of(arg, &words)) {
    case V_WORDS: return format("(%s)", words);
    case V_LUA: return "_files -g \"*.lua\"";
    case V_FILE: return "_files";
    case V_FOLDER: return "_files -/";
    default: return " ";
    }
}

/* An option in _arguments syntax: '--format=[explanation]:FORMAT:(grid tsv)'. -D may be repeated. */
static void zsh_option(FILE *out, const struct option_row *option) {
    const char *tail = is_flag(option) ? "" : "=";
    fputs(" \\\n      ", out);
    if (has_letter(option))
        fprintf(out, "%s{-%c%s,--%s%s}", option->key == 'D' ? "\\*" : format("'(-%c --%s)'", option->key, option->name),
                option->key, is_flag(option) ? "" : "+", option->name, tail);
    else
        fprintf(out, "--%s%s", option->name, tail);
    fputs("'[", out);
    put_quoted(out, what_of(option->what), "'\\''", true);
    fputc(']', out);
    if (!is_flag(option))
        fprintf(out, ":%s:%s", option->arg, zsh_action(option->arg));
    fputc('\'', out);
}

static void zsh_command(FILE *out, const struct command *command) {
    const char *action = zsh_action(command->args);
    fprintf(out, "  %s)\n    _arguments -s", command->name);
    for (int i = 0; i < noptions; i++)
        if (takes(command, &options[i]))
            zsh_option(out, &options[i]);
    fprintf(out, " \\\n      '*:%.*s:%s' ;;\n", (int)strcspn(command->args, " "), command->args,
            *action == ' ' ? "_files" : action);
}

static void zsh_described(FILE *out, const char *name, const char *what) {
    fprintf(out, "    '%s:", name);
    put_quoted(out, what, "'\\''", false);
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
          "# As a file of $fpath this is the function's body; sourced, it says what it completes.\n"
          "if [[ $funcstack[1] == _pianola ]]; then _pianola \"$@\"; else compdef _pianola pianola; fi\n",
          out);
}

/* ---- fish ---- */

static void fish_described(FILE *out, const char *condition, const char *name, const char *what) {
    fprintf(out, "complete -c pianola -n '%s' -f -a %s -d '", condition, name);
    put_quoted(out, what, "\\'", false);
    fputs("'\n", out);
}

static const char *fish_action(const char *arg) {
    const char *words;
    switch (value_of(arg, &words)) {
    case V_WORDS: return format(" -f -a '%s'", words);
    case V_LUA: return " -f -a '(__fish_complete_suffix .lua)'";
    case V_FILE: return " -F";
    case V_FOLDER: return " -f -a '(__fish_complete_directories)'";
    default: return " -f";
    }
}

static void fish_option(FILE *out, const struct option_row *option) {
    fputs("complete -c pianola -n '__fish_seen_subcommand_from", out);
    for (int i = 0; i < ncommands; i++)
        if (takes(&commands[i], option))
            fprintf(out, " %s", commands[i].name);
    fprintf(out, "' -l %s%s%s -d '", option->name, has_letter(option) ? format(" -s %c", option->key) : "",
            is_flag(option) ? " -f" : format(" -r%s", fish_action(option->arg)));
    put_quoted(out, what_of(option->what), "\\'", false);
    fputs("'\n", out);
}

void help_fish(FILE *out) {
    const char *first = "__fish_use_subcommand", *help = "__fish_seen_subcommand_from help";
    fputs("# Completion of pianola for fish, made by `pianola help completion-fish`.\n"
          "complete -c pianola -f\n",
          out);
    for (int i = 0; i < ncommands; i++) {
        const struct command *command = &commands[i];
        const char *action = fish_action(command->args);
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
        fish_option(out, &options[i]);
}
