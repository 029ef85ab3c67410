# What tests/gpu/check.sh and bench.sh run. build/gpu-check is for a machine with a GPU and CUDA's libraries but none of
# ours: Lua and BLAS are linked in, and programs find each other in their own folder. build/standin-check is the same
# sources against tests/standin/.
G := build/gpu-check
O := build/gpu-check-obj
S := build/standin-check
LAYER_TESTS := kernels attention linear moe fused
TRAVELS := $(addprefix $(G)/,pianola libpianola-cuda.so layer_times.so layers nccl put/ranks)
STAYS := $(addprefix $(S)/,pianola libpianola-cuda.so layer_times.so layers nccl put/ranks)
NVHOST := -std=c++17 -O2 -Xcompiler -fPIC -Iruntime -MMD -MP # these have no kernels of their own
WITHOUT_TRAINING = $(call cuda_objects,$(1),layers device) build/$(1)/process/comm_loopback.o build/pic/shared.a

# The part of OpenBLAS that is used, by libxsmm too, once for all programs.
$(G)/libpianola-blas.so: Makefile
	@mkdir -p $(@D)
	$(CC) -shared -s -o $@ -Wl,-u,cblas_sgemm,-u,cblas_sgemv,-u,openblas_get_corename,-u,openblas_set_num_threads \
	    -Wl,-u,gotoblas_dynamic_init,-u,gotoblas_dynamic_quit,-u,sgemm_,-u,dgemm_,-u,sgemv_,-u,dgemv_ \
	    "$$(pkg-config --variable=libdir openblas)/libopenblas.a" -lm -pthread
$(G)/pianola: build/obj/compiler/cli/main.o build/libpianola.a $(G)/libpianola-blas.so
	$(CC) $(FLAGS) -s -o $@ $(filter-out %.so,$^) -l:liblua5.4.a -l:libpcre2-8.a -l:libutf8proc.a $(if $(findstring xsmm,$(BLAS)),-l:libxsmm.a) -L$(G) -lpianola-blas -Wl,-rpath,'$$ORIGIN' -lm -pthread
$(G)/libpianola-cuda.so: build/libpianola-cuda.so
	@mkdir -p $(@D)
	strip -o $@ $<
$(O)/%.o: tests/kernels/%.cpp Makefile tests/gpu/gpu.mk
	@mkdir -p $(@D)
	$(NVCC) $(NVHOST) -x cu -c -o $@ $<
	objcopy --redefine-sym main=test_$* $@
$(O)/layers.o $(S)/obj/layers.o: tests/gpu/layers.c
	@mkdir -p $(@D)
	$(CC) $(FLAGS) -c -o $@ $<
$(O)/%.o: tests/gpu/%.cu Makefile tests/gpu/gpu.mk
	@mkdir -p $(@D)
	$(NVCC) $(NVHOST) -c -o $@ $<
$(G)/layers: $(LAYER_TESTS:%=$(O)/%.o) $(O)/layers.o $(call WITHOUT_TRAINING,cuda) build/libpianola.a $(G)/libpianola-blas.so
	$(NVCC) -o $@ $(filter-out %.so,$^) $(if $(findstring xsmm,$(BLAS)),-l:libxsmm.a) -L$(G) -lpianola-blas -lcublasLt -cudart shared -Xlinker -s,-rpath,'$$ORIGIN'
$(G)/layer_times.so: $(O)/layer_times.o $(call WITHOUT_TRAINING,cuda)
	$(NVCC) -shared -o $@ $^ -lcublasLt -cudart shared -Xlinker -s
$(G)/nccl: $(O)/nccl.o
	$(NVCC) -o $@ $^ -lnccl -cudart shared
gpu-check-build: gpu $(TRAVELS)
	git describe --always --dirty >$(G)/commit
# For a machine that takes no more than 64 MiB.
gpu-check-pack: gpu-check-build
	tar -czf $(G).tar.gz $(G)
	@du -m $(G).tar.gz | awk '{ print $$1 " MiB in " $$2; exit $$1 > 64 }'

$(S)/obj/%.o: tests/kernels/%.cpp Makefile tests/gpu/gpu.mk
	@mkdir -p $(@D)
	$(CXX) -std=c++17 -O1 -g -ffp-contract=off -Itests/standin -Iruntime -MMD -MP -c -o $@ $<
	objcopy --redefine-sym main=test_$* $@
$(S)/obj/%.o: tests/gpu/%.cu Makefile tests/gpu/gpu.mk
	@mkdir -p $(@D)
	$(CXX) -std=c++17 -O1 -g -fPIC -Itests/standin -Iruntime -MMD -MP -x c++ -c -o $@ $<
$(S)/layers: $(LAYER_TESTS:%=$(S)/obj/%.o) $(S)/obj/layers.o $(call WITHOUT_TRAINING,standin) $(STANDIN) build/libpianola.a
	$(CXX) -o $@ $^ $$(pkg-config --libs $(BLAS)) -lm -pthread
$(S)/layer_times.so: $(S)/obj/layer_times.o $(call WITHOUT_TRAINING,standin) $(STANDIN)
	$(CXX) -shared -o $@ $^ -pthread
$(S)/nccl: $(S)/obj/nccl.o $(STANDIN)
	$(CXX) -o $@ $^ -pthread
$(S)/pianola $(S)/libpianola-cuda.so: $(S)/%: standin
	@mkdir -p $(@D)
	ln -sf $(if $(filter %.so,$@),../standin/libpianola-cuda.so,../pianola) $@
standin-check: $(STAYS)

# make gpu-check [GPU=standin]; make gpu-bench [GPU=standin]. Builds if it can; otherwise uses the files that came
# along.
BUILT = pkg-config --exists lua5.4 $(BLAS) 2>/dev/null && [ -x $(NVCC) ]
gpu-check gpu-bench:
ifeq ($(GPU),standin)
	@$(MAKE_ALL) standin-check
	@tests/gpu/$(@:gpu-%=%).sh $(S)
else
	@if $(BUILT); then $(MAKE_ALL) gpu-check-build; fi
	@tests/gpu/$(@:gpu-%=%).sh $(G)
endif
# make roofline [DEVICE=]: what a step takes at least.
roofline:
	@$(MAKE_ALL) $(S)/pianola $(S)/libpianola-cuda.so $(S)/layer_times.so
	@tests/gpu/roofline.sh $(S)
-include $(wildcard $(O)/*.d $(S)/obj/*.d)
.PHONY: gpu-check-build gpu-check-pack standin-check gpu-check gpu-bench roofline
