/* Writes files that build and start the ranks' programs, for CPUs and for GPUs (suffix ".gpu"): a Makefile, a script
 * that starts the process's own rank, mpirun's application file, srun's multi-prog file. */
#include "base/path.h"
#include "formats.h"
#include "ir/model_spec.h"

/* mpicc links MPI. Where it is missing, a C compiler links a stub for the runtime's MPI part, so the ranks can only
 * communicate over TCP. A runtime built without MPI has no such library, and needs none. */
static void put_compiler(struct text *t) {
    put(t, "compiler := $(or $(MPICC),$(shell command -v mpicc >/dev/null 2>&1 && echo mpicc))\n"
           "ifneq ($(goals),)\n"
           "ifeq ($(compiler),)\n"
           "compiler := $(CC)\n"
           "without := $(shell test -f $(lib-nompi) && echo yes)\n"
           "without := $(if $(without),-Wl$(comma)-u$(comma)mpi_open $(lib-nompi))\n"
           "$(info mpicc not found: the ranks will meet over TCP alone)\n"
           "else ifeq ($(shell command -v $(compiler) 2>/dev/null),)\n"
           "$(error $(compiler) not found: install MPI (on Debian: libopenmpi-dev), name its compiler with MPICC, or "
           "leave "
           "MPICC out)\n"
           "endif\n"
           "endif\n");
}

/* A C compiler builds rank<k>.cu for CPUs and for GPUs, since the file is only a table and the kernels are in the
 * library. units: objects of the model's own units, which differ for CPUs and GPUs. */
static void put_build(struct text *t, const char *suffix, const char *runtime, const char *units, const char *flags) {
    put(t,
        "$(ranks:=%s): rank%%%s: rank%%.cu $(lib-%s)%s\n"
        "\t$(compiler) -std=c11 -g%s -x c $< -x none -o $@%s%s $(without) $(call ask,%s,--cflags --libs)\n",
        suffix, suffix, runtime, units, flags, units, *units ? " $(unit-libs)" : "", runtime);
}

/* ---- units: their objects for CPUs and for GPUs, and their libraries ---- */

/* Returns the path of a source, or of its object, in the folder. */
static const char *unit_path(const struct unit_files *files, int i, const char *suffix) {
    return format(UNITS_FOLDER "/%s/%s%s", files->unit->name, last_part(files->file[i]), suffix);
}

static void put_unit_objects(struct text *t, const struct model *m, const char *name, bool cuda) {
    put(t, "%s :=", name);
    for (int u = 0; u < m->nfiles; u++)
        for (int i = 0; i < m->files[u].nsources; i++)
            if (cuda || !has_ending(m->files[u].file[i], ".cu"))
                put(t, " %s", unit_path(&m->files[u], i, ".o"));
    put_word(t, "\n");
}

/* Writes a library: an archive's path, or how the linker and the ranks' loader find a shared one, by its name. */
static void put_unit_library(struct text *t, const struct unit_files *files, int i) {
    if (has_ending(files->file[i], ".a"))
        put(t, " %s", unit_path(files, i, ""));
    else
        put(t, " -Wl,--no-as-needed,-rpath,'$$ORIGIN/" UNITS_FOLDER "/%s' -L" UNITS_FOLDER "/%s -l:%s",
            files->unit->name, files->unit->name, last_part(files->file[i]));
}

static void put_units(struct text *t, const struct model *m) {
    put_unit_objects(t, m, "units", false);
    put_unit_objects(t, m, "units-gpu", true);
    put_word(t, "unit-libs :=");
    for (int u = 0; u < m->nfiles; u++)
        for (int i = m->files[u].nsources; i < m->files[u].n; i++)
            put_unit_library(t, &m->files[u], i);
    put(t, "\nNVCC ?= $(or $(CUDA_HOME),/usr/local/cuda)/bin/nvcc\n"
           "%%: %%.o\n" /* else make would build x.cu from x.cu.o */
           "$(filter %%.c.o,$(units-gpu)): %%.c.o: %%.c\n\t$(CC) " UNIT_CFLAGS
           " $(UNIT_CFLAGS) $(call ask,pianola-host,--cflags) -c -o $@ $<\n"
           "$(filter %%.cu.o,$(units-gpu)): %%.cu.o: %%.cu\n\t$(NVCC) " UNIT_NVFLAGS
           " $(call ask,pianola-cuda,--cflags) -c -o $@ $<\n");
}

static void put_need(struct text *t, const char *goals, const char *runtime, const char *hint) {
    put(t,
        "ifneq ($(%s),)\n"
        "ifeq ($(shell test -f $(lib-%s) && echo yes),)\n"
        "$(error %s not found: %s)\n"
        "endif\n"
        "endif\n",
        goals, runtime, runtime, hint);
}

void emit_makefile(struct text *t, const struct program *p, const struct model *m) {
    const bool units = m->nfiles > 0;
    put(t,
        "# The %s of %s. For CPUs: make, then mpirun -n %d ./rank. For GPUs with NCCL: make gpu, ./rank.gpu\n"
        "# The runtimes are what pkg-config finds as pianola-host and pianola-cuda: in the build/ of a source tree\n"
        "# above this folder, beside the pianola that is called by that name, or where the system keeps them.\n",
        counted(p->workers, "rank"), tame(p->name), p->workers);
    put(t, "up := $(CURDIR)/..\n"
           "own := $(shell dirname \"$$(command -v pianola)\")\n"
           "path := $(PKG_CONFIG_PATH):$(up)/build:$(up)/../build:$(up)/../../build:$(own)/../lib/pkgconfig:$(own)\n"
           "ask = $(shell PKG_CONFIG_PATH=\"$(path)\" pkg-config $(2) $(1) 2>/dev/null)\n"
           "lib-pianola-host := $(call ask,pianola-host,--variable=libdir)/libpianola-host.a\n"
           "lib-nompi := $(call ask,pianola-host,--variable=libdir)/libpianola-nompi.a\n"
           "comma := ,\n"
           "lib-pianola-cuda := $(call ask,pianola-cuda,--variable=libdir)/libpianola-cuda.a\n"
           "ranks :=");
    for (int r = 0; r < p->workers; r++)
        put(t, " rank%d", r);
    put(t, "\n\ngoals := $(filter-out clean,$(or $(MAKECMDGOALS),all))\n");
    put_compiler(t);
    put_need(t, "filter-out gpu %.gpu,$(goals)", "pianola-host", "make install, or make runtime in the source tree");
    put_need(t, "filter gpu %.gpu,$(goals)", "pianola-cuda",
             "it needs nvcc and NCCL; make gpu in the source tree, and make install if it is to be installed");
    put(t, "\nall: $(ranks)\ngpu: $(ranks:=.gpu)\n");
    if (units)
        put_units(t, m);
    put_build(t, "", "pianola-host", units ? " $(units)" : "", "");
    put_build(t, ".gpu", "pianola-cuda", units ? " $(units-gpu)" : "", units ? " -DPIANOLA_GPU" : "");
    put(t,
        "clean:\n\trm -f $(ranks) $(ranks:=.gpu)%s\n"
        ".PHONY: all gpu clean\n",
        units ? " $(units) $(units-gpu)" : "");
}

void emit_starter(struct text *t, const struct program *p, const char *suffix) {
    put(t,
        "#!/bin/sh\n"
        "# Starts the rank of %s that this process is, with all arguments: mpirun -n %d rank%s --steps 300\n"
        "# Who says which rank: --rank K, then RANK, then Open MPI, PMIx, PMI and Slurm.\n"
        "here=$(dirname -- \"$0\") said='' last='' help=''\n"
        "for word; do\n"
        "    [ \"$last\" != --rank ] || said=$word\n"
        "    case $word in --rank=*) said=${word#--rank=} ;; --help | -h) help=0 ;; esac\n"
        "    last=$word\n"
        "done\n",
        tame(p->name), p->workers, suffix);
    put(t,
        "for k in \"$said\" \"$RANK\" \"$OMPI_COMM_WORLD_RANK\" \"$PMIX_RANK\" \"$PMI_RANK\" \\\n"
        "    \"$SLURM_PROCID\" \"$help\"%s; do\n"
        "    [ -z \"$k\" ] || break\n"
        "done\n"
        "fail() { echo \"pianola: error: $1\" >&2 && exit 2; }\n"
        "case $k in\n"
        "'') fail \"nothing says which rank this is: start it with mpirun or srun, give --rank K, or set RANK\" ;;\n"
        "*[!0-9]*) fail \"rank $k: expected a whole number\" ;;\n"
        "esac\n",
        p->workers == 1 ? " 0" : "");
    put(t,
        "[ -x \"$here/rank$k%s\" ] ||\n"
        "    fail \"$here/rank$k%s: not there; the ranks are 0 to %d, and make -C '$here'%s builds them\"\n"
        "exec \"$here/rank$k%s\" \"$@\"\n",
        suffix, suffix, p->workers - 1, *suffix ? " gpu" : "", suffix);
}

/* mpirun resolves a relative path from the folder it is started in. */
void emit_app(struct text *t, const struct program *p, const char *dir, const char *suffix) {
    for (int r = 0; r < p->workers; r++)
        put(t, "-np 1 %s/rank%d%s\n", dir, r, suffix);
}

/* Writes Slurm's documented format: task numbers, then the program (srun, MULTIPLE PROGRAM CONFIGURATION). */
void emit_slurm(struct text *t, const struct program *p, const char *dir) {
    for (int r = 0; r < p->workers; r++)
        put(t, "%d %s/rank%d\n", r, dir, r);
}
