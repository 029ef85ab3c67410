#!/usr/bin/env bash
# rank<k>.cu holds exactly the compiled program. Every rank of every schedule, and of random ones, is built by its own
# Makefile as a shared library. Its struct rt_program must equal the one that the compiler makes in memory, member by
# member (tests/passes/readback/readback.c).
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
built=$(cd "$(dirname "$PIANOLA")" && pwd)

# Makes pkg-config find an empty pianola-host.
mkdir "$room/include"
ln -s "$PWD/runtime" "$room/include/pianola"
ar rcs "$room/libpianola-host.a"
printf '%s\n' "libdir=$room" 'Name: pianola-host' 'Description: headers alone' 'Version: 0' "Cflags: -I$room/include" \
    'Libs:' >"$room/pianola-host.pc"
library=(-Wall -Wextra -Werror -shared -fPIC)
make_ranks() { make -s -j2 -C "$1" PKG_CONFIG_PATH="$room" MPICC="${CC:-cc} ${library[*]}"; }

# differences DIR: prints the differences between the ranks' structs and the compiler's.
differences() {
    local arguments
    mapfile -t arguments <"$1/arguments"
    "$built/readback" "$1" "${arguments[@]}"
}

# reads_back NAME SCHEDULE MODEL [KEY=VALUE]...: returns 1 if the schedule does not compile, as random ones may not.
reads_back() {
    local dir="$room/$1" set=("${@:4}")
    "$PIANOLA" compile "$2" --model "$3" "${set[@]/#/-D}" -o "$dir" 2>/dev/null || return 1
    printf '%s\n' "${@:2}" >"$dir/arguments"
    make_ranks "$dir"
    expect "$1: make" 0 $?
    expect "$1: the ranks hold the compiled program" "" "$(differences "$dir" 2>&1)"
}

for model in integers gpt; do
    for schedule in schedules/*.lua; do
        [ "$schedule $model" = "schedules/helixpipe.lua gpt" ] && continue # has more stages than gpt.lua has layers
        reads_back "$(basename "$schedule" .lua)_$model" "$schedule" schedules/models/$model.lua ||
            expect "$schedule compiles" yes no
    done
done
reads_back helixpipe_gpt schedules/helixpipe.lua schedules/models/gpt_stages.lua layers=4 || expect "helixpipe compiles" yes no
reads_back fslpp_tied schedules/fslpp.lua schedules/models/gpt.lua tied=true || expect "fslpp of a tied model compiles" yes no
expect "the table and its gradient are operands" yes "$(grep -q '\.v = &weight_4_n0,' "$room"/fslpp_tied/rank*.cu && grep -q '\.dv = &wgrad_4}, .*\.vfirst = true' "$room"/fslpp_tied/rank*.cu && echo yes)"
random=0
for ((seed = 1; random < ${CASES:-8} && seed < 200; seed++)); do
    reads_back "random_$seed" tests/papers/formulas/random.lua schedules/models/integers.lua seed=$seed costs=false && random=$((random + 1))
done
reads_back elsewhere tests/passes/sharded/elsewhere.lua schedules/models/integers.lua chunks=2 ||
    expect "shards one by one" yes no
reads_back offload tests/training/host_memory/chain.lua tests/training/host_memory/adam.lua which=some || expect "offload compiles" yes no
reads_back slices tests/training/slices/any.lua schedules/models/gpt.lua hop=1 context=24 ||
    expect "slices whose keys are sent between ranks compile" yes no
reads_back team_rows schedules/1f1b.lua schedules/models/gpt.lua tensor=2 parallel=sequence || expect "teams by rows compile" yes no
reads_back team_tied schedules/1f1b.lua schedules/models/gpt.lua tensor=2 tied=true || expect "teams of a tied model compile" yes no
reads_back context schedules/context.lua schedules/models/llama.lua parallel=context || expect "teams over the sequence compile" yes no
reads_back scaled schedules/1f1b.lua schedules/models/llama.lua eps=0.0001 dim=8 rope_factor=8 rope_low=1 rope_high=4.5 \
    rope_context=32 || expect "a scaled rope compiles" yes no
reads_back heads schedules/1f1b.lua schedules/models/llama.lua tensor=2 qk_norm=true eps=0.01 || expect "norms of heads compile" yes no
reads_back clip schedules/1f1b.lua schedules/models/gpt.lua clip=1 || expect "clipping compiles" yes no
reads_back experts schedules/experts.lua schedules/models/moe.lua parallel=experts || expect "teams of experts compile" yes no
reads_back units schedules/1f1b.lua schedules/models/gated_mlp.lua || expect "units compile" yes no
reads_back frozen schedules/1f1b.lua tests/models/units/small.lua frozen=true workers=2 || expect "frozen units compile" yes no
reads_back inputs schedules/1f1b.lua tests/models/units/where.lua workers=2 || expect "units with inputs compile" yes no
# The instruction that no lowering produces yet.
expect "operations that never occurred" "REDUCE" \
    "$(comm -23 <(sed -nE 's/^ *X\(([A-Z_]+), (COMPUTE|SEND|RECV|GATHER|GROUP|TEAM|OFFLOAD|RELOAD),.*/\1/p' runtime/ops.h | sort) \
        <(sed -nE 's/^ *\{\.op = OP_([A-Z_]+),.*/\1/p' "$room"/*/*.cu | sort -u) | paste -sd' ')"
# A rank without jobs.
echo 'return schedule { workers = 3, stages = 2, batches = 2, w = function(s) return s, s end }' >"$room/idle.lua"
reads_back idle "$room/idle.lua" schedules/models/integers.lua || expect "a rank may have nothing to do" yes no
# Floats in any decimal form.
for lr in 0.1 0.3333333333333333 1.17549421e-38 16777217 1e-45 123456789e20; do
    reads_back "lr_$lr" schedules/serial.lua schedules/models/integers.lua lr=$lr || expect "lr=$lr compiles" yes no
done
hash_of() { sed -n 's/^    \.hash = //p' "$1/rank0.cu"; }
expect "another learning rate gives another program" no \
    "$([ "$(hash_of "$room/lr_0.1")" = "$(hash_of "$room/lr_16777217")" ] && echo yes || echo no)"

# The comparison detects each wrong number. Makes one edit, in the first matching line of a rank's file.
falsified() { # WHAT LINE EDIT [PROGRAM RANK]
    local dir="$room/falsified" rank="${5:-rank5}"
    rm -rf "$dir" && cp -R "$room/${4:-fslpp_gpt}" "$dir" && rm "$dir/$rank"
    sed -i -E "0,/$2/{/$2/$3}" "$dir/$rank.cu"
    make_ranks "$dir"
    expect "$1: still compiles, and the difference is reported" \
        "0 yes" "$? $(differences "$dir" | grep -q differs && echo yes)"
}
falsified "an offset" '^    act_0_1 ' 's/[0-9]+,/4096,/'
falsified "a size" '^    act_0_1 ' 's/[0-9]+\}/1&/'
falsified "another buffer" '\.y = &act_1_1' 's/y = &act_1_1/y = \&act_1_3/'
falsified "a wait left out" '\.after = \{RECV_F_0_1_from_4\}' 's/ \.after = \{RECV_F_0_1_from_4\},//'
falsified "another wait" '\.after = \{RECV_F_0_1_from_4' 's/RECV_F_0_1_from_4/B_1_1/'
falsified "a name" '\.name = F_1_1' 's/, \.name = F_1_1//'
falsified "an operation" '^    \{\.op = OP_SEND_F' 's/SEND_F/SEND_B/'
falsified "a peer" '\.peer = 4' 's/peer = 4/peer = 3/'
falsified "a message" '\.peer = 6, \.msg = ' 's/msg = /msg = 1/'
falsified "bytes" '\.peer = 6, .*\.bytes = ' 's/bytes = /bytes = 1/'
falsified "a microbatch" '^    \{\.op = OP_F, ' 's/batch = +1/batch = 2/'
falsified "a lane" '\.lane = recv_4' 's/recv_4/recv_6/'
falsified "the first contribution added instead of written" '\.first = true' 's/ \.first = true,//'
falsified "the size of a layer" 'LAYER_linear, ' 's/in = 64/in = 65/'
falsified "the place of a layer's tensor" 'LAYER_gelu' 's/SP_EXT, /&8/'
falsified "the size of a stage" '^    \{\.layer = layers_1, ' 's/act = [0-9]+/&1/'
falsified "the stash of a unit" '\.stash = 131072,$' 's/131072/131073/' units rank0
falsified "the shape of a unit's parameter" '"gate_up", 2, ' 's/64, 256/256, 64/' units rank0
falsified "the columns of an input" '^ *\{"gain", ' 's/"gain", 1/"gain", 2/' inputs rank0
falsified "the name of an input" '^ *\{"gain", ' 's/gain/pain/' inputs rank0
falsified "where frozen parameters lie" '^    \{0, [0-9]+\},$' 's/0, /0, 1/' frozen rank0
falsified "a norm's eps" 'LAYER_rmsnorm' 's/0\.0001/0.0002/' scaled rank0
falsified "the heads of a norm" 'LAYER_headnorm' 's/kv_heads = 1/kv_heads = 2/' heads rank0
falsified "a rope's scaling" 'LAYER_attention' 's/4\.5/4.25/' scaled rank0
falsified "a learning rate" '\.lr = 0\.003' 's/0\.003/0.0030001/'
falsified "the home of a stage" '^    \{\.stage = 1, \.weight = 0' 's/weight = 0/weight = 8/'
falsified "the memory of a stage's state" '^    \{\.stage = 1, \.weight = 0' 's/1,/1, .memory = MEMORY_HOST,/'
falsified "the arena" '^    \.arena' 's/[0-9]+/1&/'
falsified "the arena in host memory" '^    \.arena' 's/$/ .host = 1,/'
falsified "the workspace" '^    \.work = ' 's/&work/sizeof work ? \&weight_1 : NULL/'

# A diff of ranks shows content, not layout.
expect "ranks 0 and 1 of DDP differ in digits only" "" \
    "$(diff <(tr 0-9 N <"$room/ddp_gpt/rank0.cu") <(tr 0-9 N <"$room/ddp_gpt/rank1.cu"))"

# The file is also C++, as nvcc requires; compiles it with nvcc if installed.
if command -v g++ >/dev/null; then
    for program in fslpp_gpt/rank5 fsdp_gpt/rank1 idle/rank2; do
        rm "$room/$program"
        g++ -std=c++20 "${library[@]}" -Wno-missing-field-initializers -I"$room/include" -x c++ "$room/$program.cu" -o "$room/$program"
        expect "$program as C++ holds the same" "0 " "$? $(differences "${room}/${program%/*}" 2>&1)"
    done
fi
if command -v nvcc >/dev/null; then
    nvcc -std=c++20 -I"$room/include" -c "$room/fslpp_gpt/rank5.cu" -o "$room/nvcc.o" >"$room/nvcc" 2>&1
    expect "rank5.cu compiles with nvcc, without a warning" "0 " "$? $(cat "$room/nvcc")"
fi
finish
