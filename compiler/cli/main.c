/* The main program. */
#include "base/read_file.h"
#include "command.h"
#include "guess.h"
#include "options.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Exits with an error if stdout could not be written, e.g. on a full disk. */
static void close_stdout(void) {
    if (!diag_ended && (fflush(stdout) != 0 || ferror(stdout))) {
        fprintf(stderr, "pianola: error: stdout: %s\n", strerror(errno));
        _exit(2);
    }
}

int main(int argc, char **argv) {
    atexit(close_stdout);
    read_file_guess = guess_file;
    if (argc < 2) {
        help_usage(stderr);
        return 2;
    }
    if (strcmp(argv[1], "help") == 0 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        return help_command(argc - 2, argv + 2);
    if (strcmp(argv[1], "--version") == 0) {
        help_version();
        return 0;
    }
    for (int i = 2; i < argc; i++) /* before options are read: an error may concern one */
        diag_json = diag_json || strcmp(argv[i], "--json") == 0;
    const struct command *command = find_command(argv[1], false);
    struct settings settings;
    parse_command_line(&settings, command, argc - 1, argv + 1);
    return command->run(&settings);
}
