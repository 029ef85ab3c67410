/* The command line. */
#include "base/text.h"
#include "command.h"
#include "options.h"
#include "terminal.h"
#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static long number_arg(const char *name, const char *s, long least) {
    char *end;
    errno = 0;
    long n = strtol(s, &end, 10);
    if (end == s || *end || errno || n < least)
        die("--%s %s: expected a whole number of at least %ld", name, s, least);
    return n;
}

static double time_arg(const char *name, const char *s, bool zero) {
    char *end;
    double t = strtod(s, &end);
    if (end == s || *end || !(t > 0 || (zero && t == 0)) || isinf(t))
        die("--%s %s: expected a time %s 0", name, s, zero ? "of at least" : "after");
    return t;
}

static double part_arg(const char *name, const char *s, double most) {
    char *end;
    double x = strtod(s, &end);
    if (end == s || *end || !(x >= 0 && x <= most))
        die("--%s %s: expected a number from 0 to %g", name, s, most);
    return x;
}

static double size_arg(const char *name, const char *s, const char *unit) {
    char *end;
    double x = strtod(s, &end);
    if (end == s || *end || !(x >= LEAST_TIME && x <= MOST_TIME))
        die("--%s %s: expected %s, such as 1e9", name, s, unit);
    return x;
}

static double loss_arg(const char *name, const char *s) {
    char *end;
    double loss = strtod(s, &end);
    if (end == s || *end || !isfinite(loss))
        die("--%s %s: expected a loss, such as 2.5", name, s);
    return loss;
}

/* "10%" as 0.1. */
static double percent_arg(const char *name, const char *s) {
    char *end;
    double part = strtod(s, &end) / 100;
    if (end == s || strcmp(end, "%") != 0 || !(part >= 0 && part <= 1))
        die("--%s %s: expected at least 0%% and at most 100%%, such as 10%%", name, s);
    return part;
}

/* Parses comma-separated words into bits of enum with, whose order is that of the words. */
static int list_arg(const char *name, const char *arg) {
    int bits = 0;
    for (const char *s = arg;; s++) {
        int n = (int)strcspn(s, ",");
        bits |= 1 << choice(name, format("%.*s", n, s));
        s += n;
        if (!*s)
            return bits;
    }
}

/* A list that is ended by NULL, with one more. */
static const char **added(const char **list, const char *arg) {
    int n = 0;
    while (list && list[n])
        n++;
    const char **more = NEW(const char *, n + 2);
    for (int i = 0; i < n; i++)
        more[i] = list[i];
    more[n] = arg;
    return more;
}

static void set_option(struct settings *settings, const struct command *command, int key, const char *name,
                       const char *arg) {
    struct script_args *args = &settings->args;
    switch (key) {
    case 'D': args->set[args->nset++] = arg; break;
    case 'm': args->model = arg; break;
    case 'c': args->cluster = arg; break;
    case 'l': args->lanes = (enum lanes_per)choice(name, arg); break;
    case 'p': args->prefetch = (enum prefetch)choice(name, arg); break;
    case 'q': args->launch = (enum launch_order)choice(name, arg); break;
    case 'r': args->recompute = true; break;
    case 'y':
        if (isdigit((unsigned char)*arg))
            args->memory = size_arg(name, arg, "bytes");
        else
            args->least_memory = choice(name, arg) == 1;
        break;
    case '4': settings->search.rows = number_arg(name, arg, 1); break;
    case '5': args->memory = size_arg(name, arg, "bytes"); break;
    case 'o': settings->output = arg; break;
    case 'f': settings->draw.format = arg; break;
    case 'd': settings->dump = arg; break;
    case 'x': settings->train.data = added(settings->train.data, arg); break;
    case 'n': settings->train.steps = number_arg(name, arg, command->bit == RUN ? 0 : 1); break;
    case 'Z': settings->draw.copies = number_arg(name, arg, 1); break;
    case 'R': settings->compare.steady = true; break;
    case 'S': settings->checkpoint.step = number_arg(name, arg, 0); break;
    case 's': settings->seed = (uint64_t)number_arg(name, arg, 0); break;
    case 'C': settings->train.one_rank = true; break;
    case 't': settings->record.timeline = arg; break;
    case 'J': settings->record.losses = arg; break;
    case '^': settings->record.metrics = arg; break;
    case KEY_TENSORBOARD: settings->record.tensorboard = arg; break;
    case '=': settings->record.loss_svg = arg; break;
    case '/': settings->train.held_out = added(settings->train.held_out, arg); break;
    case '~': settings->train.validate_every = number_arg(name, arg, 1); break;
    case KEY_CHECKPOINT: settings->checkpoint.folder = arg; break;
    case KEY_SAVE_EVERY: settings->checkpoint.every = number_arg(name, arg, 1); break;
    case KEY_KEEP: settings->checkpoint.keep = number_arg(name, arg, 1); break;
    case KEY_RESUME: settings->checkpoint.resume = true; break;
    case KEY_NEW_DATA: settings->checkpoint.new_data = true; break;
    case KEY_ALLOW_NONFINITE: settings->train.allow_nonfinite = true; break;
    case 'g': settings->train.eager = true; break;
    case 'A': settings->train.algorithms = arg; break;
    case 'u': settings->train.cuda = choice(name, arg) == 1; break;
    case 'j': settings->json = true; break;
    case 'k': settings->draw.color = arg; break;
    case 'e': settings->draw.measured = arg; break;
    case 'w': settings->draw.style.width = (int)number_arg(name, arg, 20); break;
    case 'a': settings->draw.style.ascii = true; break;
    case 'W': settings->draw.style.with = list_arg(name, arg); break;
    case 'b': settings->draw.style.by = (enum color_by)choice(name, arg); break;
    case 'F': settings->draw.style.from = time_arg(name, arg, true); break;
    case 'T': settings->draw.style.to = time_arg(name, arg, false); break;
    case '1': settings->compare.train = true; break;
    case '2': settings->compare.target = loss_arg(name, arg); break;
    case '6': settings->search.bytes = true; break;
    case '7': settings->jitter.level = percent_arg(name, arg); break;
    case '9': settings->search.objective = (enum objective)choice(name, arg); break;
    case '8': settings->jitter.runs = number_arg(name, arg, 1); break;
    case 'L': settings->draw.list = true; break;
    case '>': settings->draw.watch = true; break;
    case '|': settings->search.all = true; break;
    case 'O': settings->compare.sort = arg; break;
    case 'M': settings->markdown = true; break;
    case 'X': settings->diff.fail_on = arg; break;
    case 'P': settings->fit = arg; break;
    case 'v': settings->diff.svg = arg; break;
    case 'H': settings->diff.html = arg; break;
    case 'G': settings->diff.git = true; break;
    case 'i': settings->partition.profile = arg; break;
    case 'N': settings->partition.workers = number_arg(name, arg, 1); break;
    case 'B': settings->partition.bandwidth = size_arg(name, arg, "bytes per second"); break;
    case 'E': settings->partition.levels = arg; break;
    case 'Q': settings->partition.ring = choice(name, arg) == 1; break;
    case 'U': settings->partition.sum = true; break;
    case 'Y': settings->partition.transfers = true; break;
    case 'z': settings->partition.room = size_arg(name, arg, "bytes"); break;
    case 'I': settings->profile.microbatches = number_arg(name, arg, 1); break;
    case '3': settings->search.seconds = number_arg(name, arg, 1); break;
    case '@': settings->published.tokenizer = arg; break;
    case '%': settings->published.weights = arg; break;
    case '0': settings->published.decode = true; break;
    case '!': settings->generate.prompt = arg; break;
    case '#': settings->generate.tokens = number_arg(name, arg, 1); break;
    case '&': settings->generate.temperature = part_arg(name, arg, 100); break;
    case '*': settings->generate.top_p = part_arg(name, arg, 1); break;
    case '+': settings->generate.chat = true; break;
    case '$': settings->published.names = choice(name, arg) == 1; break;
    case 'K': settings->profile.warm_up = number_arg(name, arg, 0); break;
    case 'h': help_about(command); exit(0);
    case 'V': printf("pianola %s\n", VERSION); exit(0);
    }
}

/* Dies unless the number of files is what the command takes. */
static void check_files(const struct settings *settings, const struct command *command) {
    const char *words, *second = settings->nfiles > 1 ? settings->file[1] : NULL;
    if (settings->draw.list) {
        if (settings->nfiles)
            die("`show --list` takes no file, but got '%s'", settings->file[0]);
        return;
    }
    if (command->needs && !settings->nfiles)
        die("`%s` needs a %s; see `pianola help %s`", command->name, command->needs, command->name);
    if (second && !command->several)
        die("`%s` takes one %s, but got '%s' too", command->name,
            value_of(command->args, &words) == V_FOLDER ? "folder" : "file", second);
}

/* " WORD", as a shell reads it. */
static void put_shell(struct text *t, const char *word) {
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./=,+-:%@";
    bool quote = word[strspn(word, plain)] != 0;
    put(t, quote ? " '" : " ");
    for (; *word; word++)
        put(t, *word == '\'' ? "'\\''" : "%c", *word);
    put(t, quote ? "'" : "");
}

static void put_option(struct text *t, const struct option_row *option, const char *arg) {
    static const char elsewhere[] = "ovHPjMX"; /* where things go, and what is printed beside a page */
    if (strchr(elsewhere, option->key))
        return;
    put(t, option->key == 'D' ? " -D" : " --%s", option->name);
    if (option->arg)
        put_shell(t, arg);
}

static void parse(struct settings *settings, const struct command *command, int argc, char **argv) {
    struct option *longs = NEW(struct option, noptions + 1);
    const char **names = NEW(const char *, noptions);
    for (int i = 0; i < noptions; i++)
        names[i] = options[i].name;
    /* The command's own come first: of two with one name, as --memory, they count. */
    for (int own = 1, n = 0; own >= 0; own--)
        for (int i = 0; i < noptions; i++)
            if (!(options[i].commands & command->bit) == !own)
                longs[n++] = (struct option){options[i].name, options[i].arg ? required_argument : no_argument, NULL,
                                             options[i].key};
    settings->args.set = NEW(const char *, argc);
    struct text files = {0}, given = {0};
    put(&given, "%s", "");
    opterr = 0;
    for (int key, at = 0; (key = getopt_long(argc, argv, option_letters, longs, &at)) != -1;) {
        const char *word = argv[optind - 1];
        if (key == ':')
            die("%s needs a value; see `pianola help %s`", word, command->name);
        if (key == '?') {
            const char *near = strncmp(word, "--", 2) == 0 ? nearest(word + 2, names, noptions) : NULL;
            die("unknown option %s%s%s; see `pianola help %s`", word, near ? "; did you mean --" : "", near ? near : "",
                command->name);
        }
        const struct option_row *option = options;
        while (option->key != key)
            option++;
        if (!(option->commands & command->bit))
            die("`%s` takes no --%s; see `pianola help %s`", command->name, option->name, command->name);
        if (option->arg && !*optarg)
            die("--%s needs a value, but got an empty one; see `pianola help %s`", option->name, command->name);
        set_option(settings, command, key, option->name, optarg);
        put_option(&given, option, optarg);
    }
    put(&files, "pianola %s", command->name);
    for (int i = optind; i < argc; i++) {
        if (!*argv[i])
            die("`%s` was given an empty name instead of a file's", command->name);
        put_shell(&files, argv[i]);
    }
    settings->command = format("%s%s", files.s, given.s);
    settings->file = (const char *const *)argv + optind;
    settings->nfiles = argc - optind;
    check_files(settings, command);
    settings->args.schedule = settings->nfiles ? settings->file[0] : NULL;
}

/* Exits with an error if stdout could not be written, e.g. on a full disk. */
static void close_stdout(void) {
    if (!diag_ended && (fflush(stdout) != 0 || ferror(stdout))) {
        fprintf(stderr, "pianola: error: stdout: %s\n", strerror(errno));
        _exit(2);
    }
}

int main(int argc, char **argv) {
    atexit(close_stdout);
    if (argc < 2) {
        help_usage(stderr);
        return 2;
    }
    if (strcmp(argv[1], "help") == 0 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        return help_command(argc - 2, argv + 2);
    if (strcmp(argv[1], "--version") == 0) {
        printf("pianola %s\n", VERSION);
        return 0;
    }
    const struct command *command = find_command(argv[1], false);
    struct settings settings = {.seed = 1,
                                .dump = "",
                                .draw.style.ascii = !is_utf8(),
                                .train = {.steps = 100, .validate_every = 100},
                                .checkpoint = {.every = 100, .keep = 3, .step = -1},
                                .compare.target = NAN,
                                .jitter = {.level = -1, .runs = 200},
                                .profile = {.microbatches = 64, .warm_up = 8},
                                .generate = {.tokens = 200, .temperature = 0.8, .top_p = 0.95}};
    parse(&settings, command, argc - 1, argv + 1);
    if (settings.json && settings.markdown)
        die("--json and --markdown exclude each other");
    return command->run(&settings);
}
