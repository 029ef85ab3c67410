/* How to build and start the ranks' programs: a Makefile, a script that starts whichever rank a process is, mpirun's
 * application file, srun's multi-prog file. */
#include "pass.h"

void emit_makefile(struct text *t, const struct program *p) {
    put(t,
        "# The %d ranks of %s, for CPUs with MPI: make, then mpirun -n %d ./rank\n"
        "# The runtime is what pkg-config finds as pianola-host: in the build/ of a source tree above this\n"
        "# folder, beside the pianola that is called by that name, or where the system keeps it.\n",
        p->workers, tame(p->name), p->workers);
    put(t, "MPICC ?= mpicc\n"
           "up := $(CURDIR)/..\n"
           "own := $(shell dirname \"$$(command -v pianola)\")/../lib/pkgconfig\n"
           "path := $(PKG_CONFIG_PATH):$(up)/build:$(up)/../build:$(up)/../../build:$(own)\n"
           "ask = $(shell PKG_CONFIG_PATH=\"$(path)\" pkg-config $(1) pianola-host 2>/dev/null)\n"
           "flags := $(call ask,--cflags --libs)\n"
           "runtime := $(call ask,--variable=libdir)/libpianola-host.a\n"
           "ranks :=");
    for (int r = 0; r < p->workers; r++)
        put(t, " rank%d", r);
    put(t, "\n\nifneq ($(MAKECMDGOALS),clean)\n"
           "ifeq ($(shell command -v $(MPICC) 2>/dev/null),)\n"
           "$(error $(MPICC) not found: install MPI (on Debian: libopenmpi-dev), or name its compiler with MPICC)\n"
           "endif\n"
           "ifeq ($(shell test -f $(runtime) && echo yes),)\n"
           "$(error pianola-host not found: make install, or make runtime in the source tree)\n"
           "endif\n"
           "endif\n\n");
    put(t, "all: $(ranks)\n"
           "rank%%: rank%%.cu $(runtime)\n"
           "\t$(MPICC) -std=c11 -x c $< -x none -o $@ $(flags)\n"
           "clean:\n\trm -f $(ranks)\n"
           ".PHONY: all clean\n");
}

void emit_starter(struct text *t, const struct program *p) {
    put(t,
        "#!/bin/sh\n"
        "# Starts the rank of %s that this process is, with all arguments: mpirun -n %d rank --steps 300\n"
        "# Who says which rank: --rank K, then RANK, then Open MPI, PMIx, PMI and Slurm.\n"
        "here=$(dirname -- \"$0\") said='' last=''\n"
        "for word; do\n"
        "    [ \"$last\" != --rank ] || said=$word\n"
        "    case $word in --rank=*) said=${word#--rank=} ;; esac\n"
        "    last=$word\n"
        "done\n",
        tame(p->name), p->workers);
    put(t,
        "for k in \"$said\" \"$RANK\" \"$OMPI_COMM_WORLD_RANK\" \"$PMIX_RANK\" \"$PMI_RANK\" \\\n"
        "    \"$SLURM_PROCID\"%s; do\n"
        "    [ -z \"$k\" ] || break\n"
        "done\n"
        "fail() { echo \"pianola: error: $1\" >&2 && exit 2; }\n"
        "case $k in\n"
        "'') fail \"nothing says which rank this is: start it with mpirun or srun, give --rank K, or set RANK\" ;;\n"
        "*[!0-9]*) fail \"rank $k: expected a whole number\" ;;\n"
        "esac\n",
        p->workers == 1 ? " 0" : "");
    put(t,
        "[ -x \"$here/rank$k\" ] ||\n"
        "    fail \"$here/rank$k: not there; the ranks are 0 to %d, and make -C '$here' builds them\"\n"
        "exec \"$here/rank$k\" \"$@\"\n",
        p->workers - 1);
}

/* Paths as mpirun sees them: from where it is started. */
void emit_app(struct text *t, const struct program *p, const char *dir) {
    for (int r = 0; r < p->workers; r++)
        put(t, "-np 1 %s/rank%d\n", dir, r);
}

/* Slurm's documented format: task numbers, then the program (srun, MULTIPLE PROGRAM CONFIGURATION). */
void emit_slurm(struct text *t, const struct program *p, const char *dir) {
    for (int r = 0; r < p->workers; r++)
        put(t, "%d %s/rank%d\n", r, dir, r);
}
