# What tests/gpu/put.sh runs: ranks as processes over put, linked with neither MPI nor NCCL, which a GPU machine may
# lack.
PUT := serial 1f1b fslpp ddp
PUT_FLAGS := --model schedules/models/integers.lua -D width=64 -D rows=8
PUT_4 := -D workers=4
# The runtime of ranks ($(1): cuda or standin), as a library: it is most of each program.
PUT_RANKS = $(filter-out %/comm_nccl.o %/comm_nccl_open.o,$(call cuda_objects,$(1),layers device comm rank)) build/$(1)/no_nccl.o \
    $(filter-out %/comm_mpi.o,$(PIC)) build/pic/no_mpi.o
build/pic/no_mpi.o: runtime/comm/comm_mpi.c Makefile
	@mkdir -p $(@D)
	$(CC) $(FLAGS) -DNO_MPI -fPIC -c -o $@ $<
build/cuda/no_nccl.o: tests/gpu/no_nccl.cu
	@mkdir -p $(@D)
	$(NVCC) $(NVFLAGS) -c -o $@ $<
build/standin/no_nccl.o: tests/gpu/no_nccl.cu
	@mkdir -p $(@D)
	$(CXX) -std=c++17 -fPIC -Itests/standin -Iruntime -MMD -MP -x c++ -c -o $@ $<
$(G)/put/libpianola-ranks.so: $(call PUT_RANKS,cuda)
	@mkdir -p $(@D)
	$(NVCC) -shared -o $@ $^ -lcublasLt -cudart shared -Xlinker -s
$(S)/put/libpianola-ranks.so: $(call PUT_RANKS,standin) $(STANDIN)
	@mkdir -p $(@D)
	$(CXX) -shared -o $@ $^ -pthread
%/put/ranks: %/put/libpianola-ranks.so build/pianola build/pianola-host.pc tests/gpu/put.mk
	for s in $(PUT); do \
	    flags=; [ $$s = serial ] || flags='$(PUT_4)'; \
	    build/pianola compile schedules/$$s.lua $(PUT_FLAGS) $$flags -o $(@D)/$$s || exit 1; \
	    for r in $(@D)/$$s/rank*.cu; do \
	        $(CC) -O2 -x c -Ibuild/include/pianola -Ibuild/include -o $${r%.cu} $$r -x none -Wl,--allow-shlib-undefined \
	            -L$(@D) -lpianola-ranks -Wl,-rpath,'$$ORIGIN/..' || exit 1; \
	    done; \
	done
	touch $@
