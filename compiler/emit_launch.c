/* How to build and start the ranks' programs: a Makefile, mpirun's application file, srun's multi-prog file. */
#include "pass.h"

void emit_makefile(struct text *t, const struct program *p) {
    put(t, "# The %d ranks of %s, for CPUs with MPI: make, then mpirun --app app.mpi\n", p->workers, p->name);
    put(t, "# The runtime is what pkg-config finds as pianola-host, or a build/ folder above this one.\n"
           "HERE := $(dir $(lastword $(MAKEFILE_LIST)))\n"
           "export PKG_CONFIG_PATH := $(PKG_CONFIG_PATH):$(HERE)../build:$(HERE)../../build:$(HERE)../../../build\n"
           "MPICC ?= mpicc\n"
           "ranks :=");
    for (int r = 0; r < p->workers; r++)
        put(t, " rank%d", r);
    put(t, "\nall: $(ranks)\n"
           "rank%%: rank%%.cu\n"
           "\t$(MPICC) -std=c11 -x c $< -x none -o $@ $$(pkg-config --cflags --libs pianola-host)\n"
           "clean:\n\trm -f $(ranks)\n"
           ".PHONY: all clean\n");
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
