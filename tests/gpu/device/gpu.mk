# Builds what the scripts here run. build/gpu-check is for a machine with a GPU and CUDA's libraries but none of ours:
# Lua and BLAS are linked in, programs find each other in their own folder, and kernels are compiled for only one kind
# of GPU, CODE; with CODE=all, build/gpu-check-all has those of `make gpu`, which need not be compiled again.
# build/standin-check is the same sources against tests/gpu/standin/.
CODE ?= sm_90
G := build/gpu-check$(if $(filter all,$(CODE)),-all)
O := build/gpu-check-$(CODE)
S := build/standin-check
LAYER_TESTS := kernels attention linear moe fused
TRAVELS := $(addprefix $(G)/,pianola libpianola-cuda.so layer_times.so layers nccl ceilings host_calls.so ranks/made ranks/units/scale/made)
STAYS := $(addprefix $(S)/,pianola libpianola-cuda.so layer_times.so layers nccl ceilings ranks/made ranks/units/scale/made)
NVCODE = $(subst $(ARCHS),-gencode arch=compute_80$(comma)code=$(CODE),$(NVFLAGS))
NVHOST := -std=c++17 -O2 -Xcompiler -fPIC -Iruntime -MMD -MP # these have no kernels of their own
WITHOUT_TRAINING = $(call cuda_objects,$(1),layers device) build/$(1)/process/comm_loopback.o build/pic/shared.a
OF_CODE := $(if $(filter all,$(CODE)),cuda,gpu-check-$(CODE))

$(O)/%.o: runtime/%.cu Makefile tests/gpu/device/gpu.mk
	@mkdir -p $(@D)
	$(NVCC) $(NVCODE) -c -o $@ $<
# The part of OpenBLAS that is used, by libxsmm too, linked once for all programs.
$(G)/libpianola-blas.so: Makefile
	@mkdir -p $(@D)
	$(CC) -shared -s -o $@ -Wl,-u,cblas_sgemm,-u,cblas_sgemv,-u,openblas_get_corename,-u,openblas_set_num_threads \
	    -Wl,-u,gotoblas_dynamic_init,-u,gotoblas_dynamic_quit,-u,sgemm_,-u,dgemm_,-u,sgemv_,-u,dgemv_ \
	    "$$(pkg-config --variable=libdir openblas)/libopenblas.a" -lm -pthread
$(G)/pianola: build/obj/compiler/cli/main.o build/libpianola.a $(G)/libpianola-blas.so
	$(CC) $(FLAGS) $(AOTI) -s -o $@ $(filter-out %.so,$^) -l:liblua5.4.a -l:libpcre2-8.a -l:libutf8proc.a $(if $(findstring xsmm,$(BLAS)),-l:libxsmm.a) -L$(G) -lpianola-blas -Wl,-rpath,'$$ORIGIN' -lm -pthread
$(G)/libpianola-cuda.so: $(call IN_PROCESS,$(OF_CODE)) build/pic/shared.a
	@mkdir -p $(@D)
	$(NVCC) -shared -o $@ $^ -lcublasLt -cudart shared -Xlinker -s
$(O)/%.o: tests/gpu/kernels/%.cpp Makefile tests/gpu/device/gpu.mk
	@mkdir -p $(@D)
	$(NVCC) $(NVHOST) -x cu -c -o $@ $<
	objcopy --redefine-sym main=test_$* $@
$(O)/layers.o $(S)/obj/layers.o: tests/gpu/device/layers.c
	@mkdir -p $(@D)
	$(CC) $(FLAGS) -c -o $@ $<
$(O)/%.o: tests/gpu/device/%.cu Makefile tests/gpu/device/gpu.mk
	@mkdir -p $(@D)
	$(NVCC) $(NVHOST) -c -o $@ $<
$(G)/layers: $(LAYER_TESTS:%=$(O)/%.o) $(O)/layers.o $(call WITHOUT_TRAINING,$(OF_CODE)) build/libpianola.a $(G)/libpianola-blas.so
	$(NVCC) -o $@ $(filter-out %.so,$^) $(if $(findstring xsmm,$(BLAS)),-l:libxsmm.a) -L$(G) -lpianola-blas -lcublasLt -cudart shared -Xlinker -s,-rpath,'$$ORIGIN'
$(G)/layer_times.so: $(O)/layer_times.o $(call WITHOUT_TRAINING,$(OF_CODE))
	$(NVCC) -shared -o $@ $^ -lcublasLt -cudart shared -Xlinker -s
$(G)/nccl: $(O)/nccl.o
	$(NVCC) -o $@ $^ -lnccl -cudart shared
$(G)/ceilings: $(O)/ceilings.o
	$(NVCC) -o $@ $^ -lcublasLt -cudart shared
$(G)/host_calls.so: tests/gpu/device/host_calls.c Makefile tests/gpu/device/gpu.mk
	@mkdir -p $(@D)
	$(CC) $(FLAGS) -shared -fPIC -o $@ $< -ldl
gpu-check-build: $(TRAVELS)
	$(if $(CUDNN),,@echo "$(WITHOUT_CUDNN)")
	git describe --always --dirty >$(G)/commit
# For a machine that accepts at most 64 MiB, half of which a comparison needs.
gpu-check-pack: gpu-check-build
	tar -czf $(G).tar.gz $(G)
	@du -m $(G).tar.gz | awk '{ print $$1 " MiB in " $$2; exit $$1 > 30 }'

$(S)/obj/%.o: tests/gpu/kernels/%.cpp Makefile tests/gpu/device/gpu.mk
	@mkdir -p $(@D)
	$(CXX) -std=c++17 -O1 -g -ffp-contract=off -Itests/gpu/standin -Iruntime -MMD -MP -c -o $@ $<
	objcopy --redefine-sym main=test_$* $@
$(S)/obj/%.o: tests/gpu/device/%.cu Makefile tests/gpu/device/gpu.mk
	@mkdir -p $(@D)
	$(CXX) -std=c++17 -O1 -g -fPIC -Itests/gpu/standin -Iruntime -MMD -MP -x c++ -c -o $@ $<
$(S)/layers: $(LAYER_TESTS:%=$(S)/obj/%.o) $(S)/obj/layers.o $(call WITHOUT_TRAINING,standin) $(STANDIN) build/libpianola.a
	$(CXX) -o $@ $^ $$(pkg-config --libs $(BLAS)) -lm -pthread
$(S)/layer_times.so: $(S)/obj/layer_times.o $(call WITHOUT_TRAINING,standin) $(STANDIN)
	$(CXX) -shared -o $@ $^ -pthread
$(S)/nccl $(S)/ceilings: $(S)/%: $(S)/obj/%.o $(STANDIN)
	$(CXX) -o $@ $^ -pthread
$(S)/pianola $(S)/libpianola-cuda.so: $(S)/%: standin
	@mkdir -p $(@D)
	ln -sf $(if $(filter %.so,$@),../standin/libpianola-cuda.so,../pianola) $@
standin-check: $(STAYS)

# Ranks as processes, for ranks.sh. Their runtime is a library, since it is most of each program. There are two: one
# without NCCL, for put on a machine that lacks it, and one with it in ranks/nccl. Neither has MPI.
RANKS := serial 1f1b fslpp ddp
RANKS_FLAGS := --model schedules/models/integers.lua -D width=64 -D rows=8
RANKS_4 := -D workers=4
RANKS_OBJECTS = $(call cuda_objects,$(1),layers device units comm rank) $(filter-out %/comm_mpi.o,$(PIC)) build/pic/no_mpi.o
OF_PUT = $(filter-out %/comm_nccl.o %/comm_nccl_open.o,$(call RANKS_OBJECTS,$(1)))
build/pic/no_mpi.o: runtime/comm/comm_mpi.c Makefile
	@mkdir -p $(@D)
	$(CC) $(FLAGS) -DNO_MPI -fPIC -c -o $@ $<
$(G)/ranks/libpianola-ranks.so: $(call OF_PUT,$(OF_CODE)) $(O)/no_nccl.o
	@mkdir -p $(@D)
	$(NVCC) -shared -o $@ $^ -lcublasLt -cudart shared -Xlinker -s
$(G)/ranks/nccl/libpianola-ranks.so: $(call RANKS_OBJECTS,$(OF_CODE))
	@mkdir -p $(@D)
	$(NVCC) -shared -o $@ $^ -lcublasLt -lnccl -cudart shared -Xlinker -s
$(S)/ranks/libpianola-ranks.so: $(call OF_PUT,standin) $(S)/obj/no_nccl.o $(STANDIN)
$(S)/ranks/nccl/libpianola-ranks.so: $(call RANKS_OBJECTS,standin) $(STANDIN)
$(S)/ranks/libpianola-ranks.so $(S)/ranks/nccl/libpianola-ranks.so:
	@mkdir -p $(@D)
	$(CXX) -shared -o $@ $^ -pthread
# LD_LIBRARY_PATH takes precedence over RUNPATH, which linkers with the new tags write for -rpath.
%/ranks/made: %/ranks/libpianola-ranks.so %/ranks/nccl/libpianola-ranks.so build/pianola build/pianola-host.pc tests/gpu/device/gpu.mk
	for s in $(RANKS); do \
	    flags=; [ $$s = serial ] || flags='$(RANKS_4)'; \
	    build/pianola compile schedules/$$s.lua $(RANKS_FLAGS) $$flags -o $(@D)/$$s || exit 1; \
	    for r in $(@D)/$$s/rank*.cu; do \
	        $(CC) -O2 -s -x c -Ibuild/include/pianola -Ibuild/include -o $${r%.cu} $$r -x none -Wl,--allow-shlib-undefined \
	            -L$(@D) -lpianola-ranks -Wl,--enable-new-dtags,-rpath,'$$ORIGIN/..' || exit 1; \
	    done; \
	done
	touch $@

# Units that call PyTorch's functions, for units.sh: a program of one rank, its flags, and the losses that it must have.
# Units for GPUs are host code in C++, except for their kernels, which are compiled already.
UNITS_RUN := schedules/serial.lua -D stages=1
UNITS_FLAGS := --data README.md --steps 20
# $(1): the folder, with model/model.lua.
made_of_units = build/pianola compile $(UNITS_RUN) --model $(1)/model/model.lua -o $(1)/out && \
    for u in $(1)/out/units/*/*.cu; do $(CXX) -std=c++17 -O2 -fPIC -Ibuild/include -x c++ -c -o $$u.o $$u || exit 1; done && \
    mkdir -p $(1)/out/all && cp $(1)/out/units/*/*.so $(1)/out/all/ && \
    $(CC) -O2 -s -DPIANOLA_GPU -x c -Ibuild/include/pianola -Ibuild/include -o $(1)/rank0 $(1)/out/rank0.cu -x none \
        $(1)/out/units/*/*.cu.o -Wl,--no-as-needed -L$(1)/out/all $$(cd $(1)/out/all && for l in *.so; do echo -l:$$l; done) \
        -Wl,--allow-shlib-undefined -L$(1)/../.. -lpianola-ranks -Wl,--enable-new-dtags,-rpath,'$$ORIGIN/../..:$$ORIGIN/out/all'
%/ranks/units/scale/made: %/ranks/libpianola-ranks.so build/pianola build/pianola-host.pc tests/gpu/device/gpu.mk $(wildcard tests/gpu/units/scale.* tests/gpu/units/*.ptx)
	rm -rf $(@D) && mkdir -p $(@D)/model
	cp tests/gpu/units/scale.c tests/gpu/units/scale.cu $(@D)/model/ && cp tests/gpu/units/scale.lua $(@D)/model/model.lua
	$(CXX) -std=c++17 -O1 -fPIC -shared -Iruntime -DKERNELS='"$(CURDIR)/tests/gpu/units/kernels.ptx"' -o $(@D)/model/libscale.so tests/gpu/units/scale.cpp
	$(call made_of_units,$(@D))
	echo "--messages put $(UNITS_FLAGS)" >$(@D)/flags
	build/pianola run $(UNITS_RUN) --model $(@D)/model/model.lua -D gpu=false $(UNITS_FLAGS) --losses $(@D)/expected.tsv >/dev/null 2>&1
	touch $@
# The small GPT of PyTorch, exported here for an H100; expected: PyTorch's losses. Needs PyTorch, so gpu-check-pack does
# not make it: make it before that.
%/ranks/units/small_gpt/made: %/ranks/libpianola-ranks.so build/pianola build/pianola-host.pc tests/gpu/device/gpu.mk
	@$(MAKE_ALL) build/pianola standin $(PYTHON)
	rm -rf $(@D) && mkdir -p $(@D)
	OMP_NUM_THREADS=1 $(PYTHON) tests/formats/torch/exported_cuda.py build/pianola README.md --keep $(@D)
	$(call made_of_units,$(@D))
	echo "--messages put $(UNITS_FLAGS) --weights $(@D)/model/model.safetensors" >$(@D)/flags
	touch $@
gpu-check-export: $(G)/ranks/units/small_gpt/made

# make gpu-check [GPU=standin]; make gpu-bench [GPU=standin]. Builds if it can; otherwise uses the files that came
# along.
BUILT = pkg-config --exists lua5.4 $(BLAS) 2>/dev/null && [ -x $(NVCC) ]
gpu-check gpu-bench:
ifeq ($(GPU),standin)
	@$(MAKE_ALL) standin-check
	@tests/gpu/device/$(@:gpu-%=%).sh $(S)
else
	@if $(BUILT); then $(MAKE_ALL) gpu-check-build; fi
	@tests/gpu/device/$(@:gpu-%=%).sh $(G)
endif
# make roofline [DEVICE=]: a lower bound on a step's time.
roofline:
	@$(MAKE_ALL) $(S)/pianola $(S)/libpianola-cuda.so $(S)/layer_times.so
	@tests/gpu/device/roofline.sh $(S)
-include $(wildcard $(O)/*.d $(S)/obj/*.d)
.PHONY: gpu-check-build gpu-check-export gpu-check-pack standin-check gpu-check gpu-bench roofline
