/* Compares the table of options with the parser, for each row and each of its commands. */
#include "cli/command.h"
#include "cli/options.h"
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Returns a value that the option accepts, and that differs from its default and from zero. */
static const char *value_for(const struct option_row *row) {
    static const struct {
        const char *arg, *value;
    } samples[] = {{"N", "77"},      {"K", "77"},      {"T", "0.5"},    {"P", "0.5"},    {"TIME", "0.5"},
                   {"SECONDS", "7"}, {"LEVEL", "12%"}, {"LOSS", "2.5"}, {"RATE", "2e9"}, {"BYTES", "2e9"}};
    int n;
    const char **words = option_words(row, &n);
    if (n > 0)
        return words[n - 1];
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++)
        if (row->arg && strcmp(row->arg, samples[i].arg) == 0)
            return samples[i].value;
    return "x";
}

/* Marks the bytes of struct settings that the option sets. */
static void mark_set(const struct option_row *row, bool set[sizeof(struct settings)]) {
    static const char *parameters[8];
    for (int fill = 0; fill < 2; fill++) {
        struct settings before, after;
        memset(&before, fill ? 0xff : 0, sizeof before);
        before.args.set = parameters;
        before.args.nset = 0;
        before.train.data = before.train.held_out = NULL; /* values are appended to these lists */
        memcpy(&after, &before, sizeof after);
        row->parse(row, value_for(row), (char *)&after + row->at);
        for (size_t i = 0; i < sizeof after; i++)
            set[i] |= ((char *)&before)[i] != ((char *)&after)[i];
    }
}

Test(options, each_sets_a_member_that_no_other_of_the_command_sets) {
    static bool set[256][sizeof(struct settings)];
    cr_assert_leq(noptions, 256);
    for (int i = 0; i < noptions; i++) {
        mark_set(&options[i], set[i]);
        size_t n = 0;
        for (size_t k = 0; k < sizeof(struct settings); k++) {
            n += set[i][k];
            cr_assert(!set[i][k] || (k >= options[i].at && k < options[i].at + options[i].size), "--%s sets byte %zu",
                      options[i].name, k);
        }
        cr_assert_gt(n, 0, "--%s sets nothing", options[i].name);
    }
    for (int i = 0; i < noptions; i++)
        for (int j = 0; j < i; j++)
            for (int c = 0; c < ncommands; c++)
                for (size_t k = 0; k < sizeof(struct settings); k++)
                    cr_assert(!set[i][k] || !set[j][k] || !option_text(&options[i], &commands[c]) ||
                                  !option_text(&options[j], &commands[c]),
                              "`%s`: --%s and --%s set the same member", commands[c].name, options[i].name,
                              options[j].name);
}

/* Ends a forked process at once: a leak checker would take its parent's threads for its own. */
static void leave(int status, void *unused) {
    (void)unused;
    _exit(status);
}

/* Returns whether the command accepts this option alone; a process that exits with 2 reads the command line. */
static bool accepts(const struct command *command, const struct option_row *row) {
    pid_t pid = fork();
    if (pid == 0) {
        on_exit(leave, NULL);
        char *argv[] = {copy_string(command->name), copy_string(format("--%s", row->name)), copy_string("FILE"),
                        copy_string("FILE"), NULL};
        struct settings settings;
        if (row->arg)
            argv[2] = copy_string(value_for(row));
        int argc = strcmp(row->name, "list") == 0 ? 2 : row->arg ? 4 : 3;
        if (!freopen("/dev/null", "w", stdout) || !freopen("/dev/null", "w", stderr))
            _exit(3);
        parse_command_line(&settings, command, argc, argv);
        _exit(0);
    }
    int status;
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_assert(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 2));
    return WEXITSTATUS(status) == 0;
}

/* Rows of one name accept different values, so one row may refuse another's. */
Test(options, commands_accept_what_their_help_lists_and_nothing_else) {
    for (int c = 0; c < ncommands; c++)
        for (int i = 0; i < noptions; i++) {
            bool taken = option_text(&options[i], &commands[c]) != NULL, other = false;
            for (int k = 0; k < noptions; k++)
                other |= k != i && strcmp(options[k].name, options[i].name) == 0 &&
                         option_text(&options[k], &commands[c]) != NULL;
            cr_assert(!(taken && other), "`%s`: two rows --%s", commands[c].name, options[i].name);
            if (!other)
                cr_assert_eq(accepts(&commands[c], &options[i]), taken, "`%s` --%s", commands[c].name, options[i].name);
        }
}

Test(options, texts_are_short_and_the_commands_of_a_row_differ) {
    for (int i = 0; i < noptions; i++) {
        int commands_so_far = 0;
        for (const struct wording *w = options[i].wording; w->commands; w++) {
            cr_assert_eq(commands_so_far & w->commands, 0, "--%s", options[i].name);
            commands_so_far |= w->commands;
            const char *text = wording_text(&options[i], w);
            cr_assert_leq(strlen(text), 200, "--%s: %zu characters: %s", options[i].name, strlen(text), text);
        }
        cr_assert_neq(commands_so_far, 0, "--%s", options[i].name);
    }
}

/* Returns whether a file may be written once a command has read its options; runs in its own process. */
static bool may_write(const struct settings *settings, const char *path) {
    pid_t pid = fork();
    if (pid == 0) {
        on_exit(leave, NULL);
        if (!freopen("/dev/null", "w", stderr))
            _exit(3);
        check_destination(path, settings);
        _exit(0);
    }
    int status;
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_assert(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 2));
    return WEXITSTATUS(status) == 0;
}

Test(options, a_file_that_an_option_reads_is_not_written_over) {
    char read[] = "/tmp/optionsXXXXXX", other[] = "/tmp/optionsXXXXXX";
    int fds[2] = {mkstemp(read), mkstemp(other)}, n = 0;
    bool refused = true, accepted = true;
    for (int i = 0; i < noptions; i++)
        if (options[i].reads) {
            struct settings settings = {0};
            options[i].parse(&options[i], read, (char *)&settings + options[i].at);
            refused &= !may_write(&settings, read);
            accepted &= may_write(&settings, other);
            n++;
        }
    for (int i = 0; i < 2; i++)
        close(fds[i]);
    remove(read);
    remove(other);
    cr_assert_eq(n, 8);
    cr_assert(refused);
    cr_assert(accepted);
}

/* The option itself would accept its default. */
Test(options, defaults_are_set_by_their_rows) {
    struct settings settings;
    char *argv[] = {copy_string("show"), copy_string("x.lua"), NULL};
    parse_command_line(&settings, find_command("show", false), 2, argv);
    cr_assert_eq(settings.train.steps, 100);
    cr_assert_eq(settings.jitter.runs, 200);
    cr_assert_eq(settings.seed, 1);
    cr_assert_eq(settings.generate.top_p, 0.95);
    cr_assert_str_eq(settings.command, "pianola show x.lua");
}

/* A page shows the command line, except for where its output goes. */
Test(options, the_command_line_is_recorded_as_a_shell_reads_it) {
    struct settings settings;
    char *argv[] = {copy_string("show"),     copy_string("my file.lua"), copy_string("--output"),
                    copy_string("x.html"),   copy_string("--define"),    copy_string("workers=4"),
                    copy_string("--format"), copy_string("html"),        NULL};
    parse_command_line(&settings, find_command("show", false), 8, argv);
    cr_assert_str_eq(settings.command, "pianola show 'my file.lua' -D workers=4 --format html");
    cr_assert_str_eq(settings.output, "x.html");
}
