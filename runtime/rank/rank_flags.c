/* The flags of a rank's program. */
#include "rank_run.h"
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* All flags; getopt's options and the help come from this table. */
static const struct flag {
    const char *name, *arg, *what;
    int key;
} flags[] = {
    {"data", "FILE",
     "training text; several files, or a pattern such as 'shard*.bin', are one text; without it, random tokens", 'x'},
    {"weights", "FILE",
     "start from these weights: safetensors, an index of such files, or GGUF, under the names that the model script "
     "gives; without it, random weights",
     'w'},
    {"steps", "N", "steps in total, including the steps before a resume; default 100", 'n'},
    {"seed", "N", "seed of the weights and of the order of the data; default 1", 's'},
    {"checkpoint", "DIR", "write checkpoints into DIR, which all ranks see", 'c'},
    {"every", "N", "steps between checkpoints; default 100. The last step writes one too", 'e'},
    {"keep", "K", "how many of the newest checkpoints to keep; default 3", 'k'},
    {"resume", NULL, "continue from the newest checkpoint in DIR, if there is one", 'r'},
    {"allow-nonfinite", NULL,
     "continue when a loss or a weight is inf or nan; default: stop with an error that names the first", 'N'},
    {"new-data", NULL,
     "with --resume: if --data differs from the data of the checkpoint's training, begin with its first sequence", 'D'},
    {"deadline", "SECONDS", "time limit of a step or a checkpoint; default 600", 'd'},
    {"flight", "DIR", "folder for the flight record of a rank that gives up; default .", 'f'},
    {"timeline", "DIR", "write when the instructions of the last ten steps ran, into DIR/timeline.<rank>.tsv", 't'},
    {"losses", "FILE",
     "write the loss of each update of the last stage, and the time at which it ended (TSV); rank 0 writes it", 'l'},
    {"metrics", "FILE",
     "write each step's loss, learning rate, tokens per second, ... as a line of JSON; rank 0 writes it", 'M'},
    {"tensorboard", "DIR",
     "write the same metrics into DIR, as event files for TensorBoard and `wandb sync`; rank 0 writes them", 'T'},
    {"val", "FILE", "held-out text: print the loss on all of it before the first step and every --val-every steps",
     'v'},
    {"val-every", "N", "steps between validations; default 100, or all steps if there are fewer", 'V'},
    {"json", NULL, "print figures, and an error that ends the rank, as JSON", 'j'},
    {"no-graph", NULL, "on a GPU, enqueue every step anew instead of replaying a graph", 'g'},
    {"algorithms", "FILE",
     "on GPUs, use the algorithms in rank 0's FILE for the layers' matrix products; time the products it lacks, and "
     "add them; Muon's are not timed",
     'a'},
    {"messages", "WAY", "on GPUs: ", 'm'},
    {"reduce", "WAY", "over NCCL: nccl (default) sums in its own order; ordered gives the bits of one process", 'o'},
    {"rank", "K", "this process's rank (instead of RANK, Open MPI's or Slurm's variables)", 'R'},
    {"world-size", "N", "number of ranks (WORLD_SIZE)", 'W'},
    {"master-addr", "HOST", "address of rank 0 (MASTER_ADDR); ranks then meet without MPI", 'A'},
    {"master-port", "PORT", "likewise (MASTER_PORT)", 'P'},
    {"help", NULL, "this text", 'h'},
};
enum { NFLAGS = sizeof flags / sizeof *flags };

#define X(name, ...) #name,
const char *const rank_messages[] = {CUDA_TRANSPORTS(X)};
#undef X
#define X(name, help) help,
static const char *const messages_help[] = {CUDA_TRANSPORTS(X)};
#undef X

static _Noreturn void help(const struct rt_program *self) {
    printf("Rank %d of %d of %s. Start all ranks together, each with the same flags:\n\n"
           "  mpirun -n %d DIR/rank --steps 300 --data book.txt --checkpoint saved\n\nFlags:\n",
           self->rank->number, self->workers, self->name, self->workers);
    for (int i = 0; i < NFLAGS; i++) {
        printf("  --%s%s%-*s %s", flags[i].name, flags[i].arg ? " " : "",
               19 - (int)strlen(flags[i].name) - (flags[i].arg != NULL), flags[i].arg ? flags[i].arg : "",
               flags[i].what);
        for (int m = 0; flags[i].key == 'm' && m < NCUDA_TRANSPORTS; m++)
            printf("%s%s", m ? ", or " : "", messages_help[m]);
        printf("\n");
    }
    printf("\n"
           "SIGINT, SIGTERM: finish the step, write a checkpoint, exit 130 or 143.\n"
           "Exits 0 when done, 1 if another rank did not come, 2 for a usage error or other trouble.\n");
    exit(0);
}

static int64_t parse_number(const struct rt_program *self, const char *flag, const char *s, int64_t least) {
    char *end, why[128];
    errno = 0;
    long long n = strtoll(s, &end, 10);
    if (end == s || *end || errno || n < least) {
        snprintf(why, sizeof why, "--%s %.32s: expected a whole number of at least %lld", flag, s, (long long)least);
        rank_error(self, why);
    }
    return n;
}

static double parse_seconds(const struct rt_program *self, const char *s) {
    char *end, why[128];
    double n = strtod(s, &end);
    if (end == s || *end || !(n > 0 && n < 1e9)) {
        snprintf(why, sizeof why, "--deadline %.32s: expected a number of seconds above 0", s);
        rank_error(self, why);
    }
    return n;
}

static int parse_messages(const struct rt_program *self, const char *s) {
    char why[256];
    for (int m = 0; m < NCUDA_TRANSPORTS; m++)
        if (strcmp(s, rank_messages[m]) == 0)
            return m;
    int n = snprintf(why, sizeof why, "--messages %.32s: expected ", s);
    for (int m = 0; m < NCUDA_TRANSPORTS; m++)
        n += snprintf(why + n, sizeof why - (size_t)n, "%s%s", m ? " or " : "", rank_messages[m]);
    rank_error(self, why);
}

static bool ordered(const struct rt_program *self, const char *s) {
    char why[128];
    if (strcmp(s, "ordered") != 0 && strcmp(s, "nccl") != 0) {
        snprintf(why, sizeof why, "--reduce %.32s: expected nccl or ordered", s);
        rank_error(self, why);
    }
    return *s == 'o';
}

static void append_argument(const char ***list, const struct rt_program *self, const char *arg) {
    size_t n = 0;
    while (*list && (*list)[n])
        n++;
    *list = realloc(*list, (n + 2) * sizeof **list);
    if (!*list)
        rank_error(self, "no memory");
    (*list)[n] = arg;
    (*list)[n + 1] = NULL;
}

static void set_flag(struct rank_flags *flags, const struct rt_program *self, const struct flag *flag,
                     const char *arg) {
    switch (flag->key) {
    case 'x': append_argument(&flags->data, self, arg); break;
    case 'w': flags->weights = arg; break;
    case 'n': flags->steps = parse_number(self, flag->name, arg, 1); break;
    case 's': flags->seed = parse_number(self, flag->name, arg, 0); break;
    case 'c': flags->checkpoint = arg; break;
    case 'e': flags->every = parse_number(self, flag->name, arg, 1); break;
    case 'k': flags->keep = parse_number(self, flag->name, arg, 1); break;
    case 'r': flags->resume = true; break;
    case 'N': flags->allow_nonfinite = true; break;
    case 'D': flags->new_data = true; break;
    case 'd': flags->deadline = parse_seconds(self, arg); break;
    case 'f': flags->flight = arg; break;
    case 't': flags->timeline = arg; break;
    case 'l': flags->losses = arg; break;
    case 'M': flags->metrics = arg; break;
    case 'T': flags->tensorboard = arg; break;
    case 'v': append_argument(&flags->held_out, self, arg); break;
    case 'V': flags->val_every = parse_number(self, flag->name, arg, 1); break;
    case 'j': flags->json = true; break;
    case 'g': flags->eager = true; break;
    case 'a': flags->algorithms = arg; break;
    case 'o': flags->ordered = ordered(self, arg); break;
    case 'm': flags->messages = parse_messages(self, arg); break;
    case 'R': flags->launch.rank = (int)parse_number(self, flag->name, arg, 0); break;
    case 'W': flags->launch.size = (int)parse_number(self, flag->name, arg, 1); break;
    case 'A': flags->launch.addr = arg; break;
    case 'P': flags->launch.port = arg; break;
    case 'h': help(self);
    }
}

void rank_parse(struct rank_flags *f, int argc, char **argv, const struct rt_program *self) {
    struct option longs[NFLAGS + 1] = {{0}};
    char why[256];
    for (int i = 0; i < NFLAGS; i++)
        longs[i] = (struct option){flags[i].name, flags[i].arg ? required_argument : no_argument, NULL, flags[i].key};
    *f = (struct rank_flags){
        .steps = 100, .every = 100, .val_every = 100, .keep = 3, .seed = 1, .deadline = 600, .flight = "."};
    f->launch = (struct launch){.rank = -1, .size = -1, .local = -1};
    opterr = 0;
    for (int key, at = 0; (key = getopt_long(argc, argv, ":h", longs, &at)) != -1;) {
        if (key == '?' || key == ':') {
            snprintf(why, sizeof why, key == '?' ? "unknown flag %.64s; see --help" : "%.64s needs a value; see --help",
                     argv[optind - 1]);
            rank_error(self, why);
        }
        const struct flag *flag = flags;
        while (flag->key != key)
            flag++;
        set_flag(f, self, flag, optarg);
    }
    if (f->val_every > f->steps && f->steps > 0)
        f->val_every = f->steps; /* otherwise nothing would be validated */
    if (optind < argc) {
        snprintf(why, sizeof why, "'%.64s' is not a flag; see --help", argv[optind]);
        rank_error(self, why);
    }
    if (f->resume && !f->checkpoint)
        rank_error(self, "--resume needs --checkpoint DIR, the folder to continue from");
    if (!launch_find(&f->launch, why, sizeof why))
        rank_error(self, why);
}
