# The live page: the compiler as WebAssembly, in one HTML file. Needs Emscripten and Lua's sources, since
# Debian packages only the compiled Lua. LUA_SRC names their folder; otherwise they come with lupa's source distribution.

EMCC ?= emcc
LUA_SRC ?= build/lua
# Leaves out training and everything else that needs a machine: page/absent.c reports that instead. page/compile.c
# replaces cmd_compile.c. Of the runtime it has only the rows of kinds.h.
PAGE_WITHOUT := $(wildcard compiler/search/tune/*.c compiler/models/*.c) compiler/search/partition/cmd_profile.c \
    $(patsubst %,compiler/cli/%.c,cmd_check_unit cmd_compile cmd_run redraw run_record training unit_file unit_library weights_model)
PAGE := $(patsubst %.c,build/page/%.o,runtime/layers/kinds.c runtime/layers/parameters.c $(filter-out $(PAGE_WITHOUT),$(wildcard compiler/*/*.c compiler/*/*/*.c)))
# Lets Emscripten's node programs find Debian's modules, whichever node runs them.
build/page/% build/pianola.html: export NODE_PATH := $(NODE_PATH):/usr/share/nodejs
# Implements longjmp with WebAssembly exceptions, so that calls it may jump out of cost nothing extra.
PAGE_FLAGS := -O3 -mbulk-memory -sSUPPORT_LONGJMP=wasm

# pip runs lupa's setup.py to learn its version. LUPA_NO_BUNDLE keeps it from compiling Lua for that, which takes minutes.
build/lua/lua.h:
	@rm -rf build/lua build/lupa && mkdir -p build/lupa
	LUPA_NO_BUNDLE=true python3 -m pip download -q --no-binary lupa --no-deps -d build/lupa lupa
	tar -xzf build/lupa/lupa-*.tar.gz -C build/lupa
	mv build/lupa/lupa-*/third-party/lua54 build/lua
	@rm -r build/lupa
build/page/liblua.bc: $(LUA_SRC)/lua.h
	@mkdir -p $(@D)
	cd $(LUA_SRC) && $(EMCC) $(PAGE_FLAGS) -r -o $(CURDIR)/$@ $$(ls l*.c | grep -vxE 'lua.c|luac.c|ltests.c')
# Calls the compiler itself, with the flags that Emscripten prints: emcc takes twice as long.
build/page/clang: compiler/page/page.mk
	@mkdir -p $(@D)
	echo "$$(em-config LLVM_ROOT)/clang $$($(EMCC) --cflags $(PAGE_FLAGS))" >$@
build/page/%.o: %.c Makefile compiler/page/page.mk build/page/clang | $(LUA_SRC)/lua.h build/prelude.h build/page.h
	@mkdir -p $(@D)
	$$(cat build/page/clang) -std=c11 -D_GNU_SOURCE -Wall -Wextra -Wpedantic -Werror -fno-math-errno -MMD -MP \
	    -Ibuild -Iruntime -Icompiler -I$(LUA_SRC) -c -o $@ $<
# Each run instantiates the module anew, so a run ends like a process and leaves nothing behind.
build/page/pianola.js: $(PAGE) build/page/liblua.bc
	$(EMCC) $(PAGE_FLAGS) -o $@ $^ -sMODULARIZE -sEXPORT_NAME=createPianola -sINVOKE_RUN=0 -sEXIT_RUNTIME=1 \
	    -sALLOW_MEMORY_GROWTH -sMAXIMUM_MEMORY=2GB -sTOTAL_STACK=1MB -sEXPORTED_RUNTIME_METHODS=FS,callMain \
	    -sNODEJS_CATCH_EXIT=0 -sNODEJS_CATCH_REJECTION=0
build/pianola.html: build/page/pianola.js build/viewer-parts.js compiler/draw/viewer/viewer.css compiler/page/join.py $(wildcard $(addprefix compiler/page/*.,html css js) schedules/*.lua schedules/*/*.lua)
	python3 compiler/page/join.py $@
page: PACKAGES += $(PAGE_PACKAGES)
page: VIEWERS :=
page: deps
	@$(MAKE_ALL) build/pianola.html
# Uses the page in a browser, as a person does.
test-page: page
	@$(MAKE) -s --no-print-directory VIEWERS=chromium-headless-shell PACKAGES=python3 deps
	@$(MAKE_ALL) build/pianola
	@tests/pictures/live_page/test.sh
.PHONY: page test-page
