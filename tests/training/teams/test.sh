#!/usr/bin/env bash
# Teams train as one rank does: each rank of a schedule becomes a team (-D tensor=2), whose members divide the layers.
# On integers the weights match one rank bit for bit; a GPT's losses match within 1e-5. In one process, over MPI and
# TCP, and on the CUDA stand-in. Checkpoints move between team sizes.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
. tests/support/ranks.sh
built=$PWD/build
integers=(--model schedules/models/integers.lua)
gpt=(--model schedules/models/gpt.lua --data /usr/share/common-licenses/GPL-3)
export OPENBLAS_NUM_THREADS=1

in_process() { timeout 120 "$PIANOLA" run "$@" --json 2>"$room/said" | field weights; }
near() { awk -v d="$1" 'BEGIN { print d != "" && d <= 1e-5 ? "yes" : "no" }'; }

# ---- homes of members: each list of ranks is one home, however many there are and in whatever order they come ----

expect "128 replicas, in teams of 2" "proved" "$(timeout 60 "$PIANOLA" check schedules/hsdp.lua -D workers=512 \
    -D batches=1024 -D tensor=2 2>&1 | grep -o 'proved')"

# ---- in one process ----

one=$(in_process schedules/serial.lua -D batches=8 "${integers[@]}" --steps 3)
for schedule in schedules/*.lua; do
    case $schedule in
    schedules/pianola.d.lua) continue ;;
    *) several_updates "$schedule" && continue ;;
    esac
    expect "$schedule in teams of 2: the weights of one rank" "$one" \
        "$(in_process "$schedule" -D batches=8 -D tensor=2 "${integers[@]}" --steps 3)"
done
for set in split=true "split=true zero=2" "split=true data=1" "split=true data=4 zero=1"; do
    read -ra more <<<"$set"
    expect "3D with $set: the weights of one rank" "$one" \
        "$(in_process schedules/dp_tp_pp.lua -D batches=8 "${more[@]/#/-D}" "${integers[@]}" --steps 3)"
done
for tensor in 4 8; do
    expect "teams of $tensor" "$one" "$(in_process schedules/1f1b.lua -D batches=8 -D tensor=$tensor "${integers[@]}" --steps 3)"
done
for sizes in "4 2" "4 1" "1 4" "2 4"; do # includes cuts between columns and rows
    read -r a b <<<"$sizes"
    expect "teams of $a and $b" "$one" "$(in_process tests/training/teams/sizes.lua -D "a=$a" -D "b=$b" "${integers[@]}" --steps 3)"
    expect "teams of $a and $b, of 6 layers" "$(in_process schedules/serial.lua "${integers[@]}" -D layers=6 --steps 3)" \
        "$(in_process tests/training/teams/sizes.lua -D "a=$a" -D "b=$b" "${integers[@]}" -D layers=6 --steps 3)"
done
# A script lists the dependencies of its stages, whatever their teams. Several members may read the gradient of one.
sed 's/^  n = .*/&\n  pred = function(s, b, d)\n    if d == "F" then return s > 0 and { { s - 1, b, "F" } } or {} end\n\
    return { { s, b, "F" }, s < 3 and { s + 1, b, "B" } or nil }\n  end,/' tests/training/teams/sizes.lua >"$room/listed.lua"
for sizes in "4 2" "4 1" "1 4" "2 4"; do
    read -r a b <<<"$sizes"
    expect "teams of $a and $b, dependencies listed" "$one" "$(in_process "$room/listed.lua" -D "a=$a" -D "b=$b" "${integers[@]}" --steps 3)"
done
for set in recompute=true "workers=2 stages=6" stages=8; do
    read -ra more <<<"$set"
    expect "$set in teams of 2" "$(in_process schedules/1f1b.lua "${more[@]/#/-D}" "${integers[@]}" --steps 3)" \
        "$(in_process schedules/1f1b.lua "${more[@]/#/-D}" -D tensor=2 "${integers[@]}" --steps 3)"
done
got=$(timeout 120 "$PIANOLA" run schedules/1f1b.lua -D tensor=2 "${integers[@]}" --steps 3 --compare --json 2>/dev/null)
expect "--compare is with one rank, and whole layers" "0 true" \
    "$(field one_rank_largest_difference <<<"$got") $(field one_rank_same_weights <<<"$got")"
for schedule in 1f1b zb_h1 fsdp; do
    far=$(timeout 120 "$PIANOLA" run schedules/$schedule.lua -D tensor=2 "${gpt[@]}" --steps 5 --compare --json 2>/dev/null |
        field one_rank_largest_difference)
    expect "$schedule, GPT in teams of 2: losses within 1e-5 ($far)" yes "$(near "$far")"
done

tied=("${gpt[@]}" -D tied=true) # members divide the table by tokens
for set in "1f1b tensor=2" "1f1b tensor=4" "zb_h1 tensor=2" "fsdp tensor=2" "lpp tensor=2" "fsdp_whole tensor=2" \
    "serial tensor=4 stages=1" "zero2 tensor=2" "tp_1f1b tensor=1"; do
    read -r schedule how more <<<"$set"
    far=$(timeout 120 "$PIANOLA" run "schedules/$schedule.lua" -D "$how" ${more:+-D "$more"} "${tied[@]}" --steps 4 --compare --json \
        2>/dev/null | field one_rank_largest_difference)
    expect "$set, tied GPT: losses within 1e-5 ($far)" yes "$(near "$far")"
done

# Cuts between columns and their rows: queries, keys and values are divided by heads though attention is in the next
# stage. A team of another size after a stage without a split layer makes all three stages whole.
cat >"$room/sizes.lua" <<'EOF'
local p, teams = params { sizes = { 2, 2, 2 } }, { { 0 }, { 0, 1 }, [4] = { 0, 1, 2, 3 } }
return schedule { workers = 4, stages = #p.sizes, batches = 2,
  w = function(s, b, d) local team = teams[p.sizes[s + 1]] return team, team end }
EOF
cat >"$room/parted.lua" <<'EOF'
local p = params { cut = { 3, 4 } }
return model {
  input = tokens { vocab = 256, context = 8, rows = 2 },
  layers = { embedding { width = 16 }, linear { width = 48, split = "columns" }, attention { heads = 4 },
    linear { width = 16, split = "rows" }, linear { width = 48, split = "columns" }, relu {}, swiglu {},
    linear { width = 256, split = "rows" }, cross_entropy {} },
  optimizer = adamw { lr = 3e-3 },
  cut = p.cut,
}
EOF
for set in "2,2,2 3,4" "2,2,2 6,7" "2,2,2 7,8" "4,4,4 3,7" "2,2,4 3,4" "2,2,1 3,4" "4,4,2 6,8" "4,2,2 3,4"; do
    far=$(timeout 120 "$PIANOLA" run "$room/sizes.lua" -D sizes=${set% *} -D cut=${set#* } --model "$room/parted.lua" \
        "${gpt[@]:2}" --steps 2 --compare --json 2>/dev/null | field one_rank_largest_difference)
    expect "teams of ${set% *}, cut at ${set#* }: losses within 1e-5 ($far)" yes "$(near "$far")"
done

# Norms of each head's queries and keys. Members that divide the heads sum the gradients of the shared scales, wherever
# the cuts are and however the weights are sharded or sent. If the stage is whole, each member has the whole gradient.
heads=(--model schedules/models/llama.lua -D qk_norm=true -D kv_heads=4 "${gpt[@]:2}")
for set in "1f1b tensor=2" "1f1b tensor=4" "zb_h1 tensor=2" "fsdp tensor=2" "fsdp_tp tensor=2" "zero2 tensor=2" "weipipe tensor=2" \
    "seq1f1b tensor=2" "zbv tensor=2 clip=0.1" "1f1b tensor=2 clip=0.1 post_validation=true" "1f1b tensor=2 tied=true"; do
    read -ra more <<<"${set#* }"
    far=$(timeout 120 "$PIANOLA" run "schedules/${set%% *}.lua" "${more[@]/#/-D}" "${heads[@]}" --steps 4 --compare --json 2>/dev/null |
        field one_rank_largest_difference)
    expect "$set, norms of heads: losses within 1e-5 ($far)" yes "$(near "$far")"
done
sed 's/attention {/headnorm { eps = 0.1 }, &/' "$room/parted.lua" >"$room/normed.lua"
for set in "2,2,2 3,4" "2,2,2 3,5" "2,2,2 4,5" "4,4,4 3,4" "2,2,4 3,4" "2,2,1 3,4" "4,4,2 6,8" "4,2,2 3,4" "4,2,2 4,5"; do
    far=$(timeout 120 "$PIANOLA" run "$room/sizes.lua" -D sizes=${set% *} -D cut=${set#* } --model "$room/normed.lua" \
        "${gpt[@]:2}" --steps 4 --compare --json 2>/dev/null | field one_rank_largest_difference)
    expect "norms of heads, teams of ${set% *}, cut at ${set#* }: losses within 1e-5 ($far)" yes "$(near "$far")"
done

# The proof requires the gradient to be the sum over both members.
"$PIANOLA" show schedules/1f1b.lua -D workers=2 -D stages=2 -D batches=2 -D tensor=2 "${heads[@]:0:6}" --format streams >"$room/streams"
expect "norms of heads: the text is proved" 0 "$("$PIANOLA" verify "$room/streams" >/dev/null 2>&1; echo $?)"
sed '/^B 0\.1 1/s/ du+=wgrad(0)//' "$room/streams" >"$room/without"
expect "without a member's last part it is refuted" \
    "U 0: its gradient has 3 of 4 contributions; it must be the sum over all 2 microbatches of all members, each once" \
    "$("$PIANOLA" verify "$room/without" 2>&1 | sed -n '2s/.*: U/U/p')"

# ---- between processes ----

wanted=$(in_process schedules/1f1b.lua -D workers=2 -D stages=2 "${integers[@]}" --steps 4)
compiled integers 1f1b -D workers=2 -D stages=2 -D tensor=2 "${integers[@]}"
for how in tcp mpi; do
    $how integers 4 --steps 4 --deadline 60
    ended 90
    expect "1f1b in teams over $how" "$wanted" "$(weights)$(said 'error:')"
done
# Sums whose bits depend on the order.
small=(-D workers=2 -D stages=2 -D batches=4 -D width=32 -D layers=2)
compiled gpt 1f1b "${small[@]}" -D tensor=2 --model schedules/models/gpt.lua
wanted=$(in_process schedules/1f1b.lua "${small[@]}" -D tensor=2 "${gpt[@]}" --steps 3)
for how in tcp mpi; do
    $how gpt 4 --steps 3 --data "${gpt[3]}" --deadline 60
    ended 90
    expect "a GPT in teams over $how: the bits of one process" "$wanted" "$(weights)$(said 'error:')"
done
compiled tied 1f1b "${small[@]}" -D tensor=2 --model schedules/models/gpt.lua -D tied=true
wanted=$(in_process schedules/1f1b.lua "${small[@]}" -D tensor=2 "${tied[@]}" --steps 3)
for how in tcp mpi; do
    $how tied 4 --steps 3 --data "${gpt[3]}" --deadline 60
    ended 90
    expect "a tied GPT in teams over $how: the bits of one process" "$wanted" "$(weights)$(said 'error:')"
done
compiled heads 1f1b "${small[@]}" -D tensor=2 --model schedules/models/llama.lua -D qk_norm=true
wanted=$(in_process schedules/1f1b.lua "${small[@]}" -D tensor=2 "${heads[@]:0:4}" "${gpt[@]:2}" --steps 3)
for how in tcp mpi; do
    $how heads 4 --steps 3 --data "${gpt[3]}" --deadline 60
    ended 90
    expect "norms of heads in teams over $how: the bits of one process" "$wanted" "$(weights)$(said 'error:')"
done
grep -qE 'LAYER_linear.*SPLIT_COLUMNS, \.member = 1, \.members = 2, \.group = \{32, 32, 32\}' "$room/gpt/rank1.cu"
expect "queries, keys and values are each divided" 0 $?

# ---- checkpoints hold whole layers: teams of 2, no team, a team of 4, sharded teams of 2 ----

leg() { # NAME RANKS STEPS ARGS...
    tcp "$1" "$2" --steps "$3" --checkpoint "$saved" --every 100 --resume --deadline 60 "${@:4}"
    ended 90
    expect "$1 goes on to step $3" "" "$(said 'error:')"
}
pipeline=(-D workers=2 -D stages=2 "${integers[@]}")
compiled one serial -D batches=8 "${integers[@]}"
compiled four serial -D batches=8 -D tensor=4 "${integers[@]}"
compiled shards fsdp -D workers=2 -D batches=8 -D tensor=2 "${integers[@]}"
wanted=$(in_process schedules/1f1b.lua "${pipeline[@]}" -D batches=8 --steps 12)
step=0
for next in "integers 4" "one 1" "four 4" "shards 4" "integers 4" "shards 4"; do
    # shellcheck disable=SC2086
    leg $next $((step += 2))
done
expect "one after the other, two steps each: the weights of twelve of one" "$wanted" "$(weights)"
expect "whole layers" "16 x 16" "$("$PIANOLA" export-weights "$saved" -o "$room/all.safetensors" >/dev/null &&
    grep -aoE '"layer.0.weight":\{[^}]*"shape":\[[0-9,]*\]' "$room/all.safetensors" | sed -E 's/.*\[([0-9]+),([0-9]+)\]/\1 x \2/')"
# With AdamW's moments, and with biases and scales that each member has whole.
rm -r "$saved"
data=(--data "${gpt[3]}")
compiled alone serial -D stages=2 -D batches=4 -D width=32 -D layers=2 --model schedules/models/gpt.lua
leg gpt 4 2 "${data[@]}"
was=$(weights)
leg alone 1 2 "${data[@]}"
expect "one rank reads what teams have learned" "$was" "$(weights)"
leg gpt 4 5 "${data[@]}"
expect "teams go on as if they had never stopped" "$(in_process schedules/1f1b.lua "${small[@]}" -D tensor=2 "${gpt[@]}" --steps 5)" \
    "$(weights)"
# A token table in two parts, on one rank, and in four.
rm -r "$saved"
more=("${small[@]:4}" --model schedules/models/gpt.lua -D tied=true)
compiled tied_one serial -D stages=2 "${more[@]}"
compiled tied_four serial -D stages=2 -D tensor=4 "${more[@]}"
leg tied 4 2 "${data[@]}"
was=$(weights)
leg tied_one 1 2 "${data[@]}"
expect "one rank reads the table that two members divided" "$was" "$(weights)"
leg tied_four 4 2 "${data[@]}"
expect "four members read it" "$was" "$(weights)"
leg tied 4 5 "${data[@]}"
expect "two members go on as if they had never stopped" \
    "$(in_process schedules/1f1b.lua "${small[@]}" -D tensor=2 "${tied[@]}" --steps 5)" "$(weights)"
expect "the whole table is exported" "256 x 32" "$("$PIANOLA" export-weights "$saved" -o "$room/all.safetensors" >/dev/null &&
    grep -aoE '"layer.0.token":\{[^}]*"shape":\[[0-9,]*\]' "$room/all.safetensors" | sed -E 's/.*\[([0-9]+),([0-9]+)\]/\1 x \2/')"
# Scales shared by the members, by all heads, and on a single rank.
rm -r "$saved"
compiled heads_one serial -D stages=2 "${small[@]:4}" --model schedules/models/llama.lua -D qk_norm=true
leg heads 4 2 "${data[@]}"
was=$(weights)
leg heads_one 1 2 "${data[@]}"
expect "one rank reads the scales that two members share" "$was" "$(weights)"
leg heads 4 5 "${data[@]}"
expect "members go on as if they had never stopped" \
    "$(in_process schedules/1f1b.lua "${small[@]}" -D tensor=2 "${heads[@]:0:4}" "${gpt[@]:2}" --steps 5)" "$(weights)"
rm -r "$saved"
leg gpt 4 5 "${data[@]}" # for the following checks
# An error names the whole layer that does not fit.
compiled wide 1f1b -D workers=2 -D stages=2 -D batches=4 -D width=64 -D layers=2 -D tensor=2 --model schedules/models/gpt.lua
tcp wide 4 --steps 6 --checkpoint "$saved" --resume "${data[@]}" --deadline 60
ended 90
expect "a model of another width is refused" yes \
    "$(grep -qhE 'step-0*5/stage-0000.safetensors: layer.0.token is [0-9]+ x 32, but this model.s is [0-9]+ x 64' "$room"/err* && echo yes)"

# ---- on GPUs, with the stand-in ----

[ -f "$built/standin/libpianola-cuda.a" ] || { echo "libpianola-cuda.a is not in build/standin: make standin"; exit 1; }
export PKG_CONFIG_PATH=$built/standin:$PKG_CONFIG_PATH PIANOLA_CUDA=$built/standin/libpianola-cuda.so
suffix=.gpu
rm -r "$saved"
over_nccl() { # NAME N ARGS...
    timeout 120 mpirun --oversubscribe -n "$2" "$room/$1/rank.gpu" --flight "$room" "${@:3}" >"$room/out0" 2>"$room/err0"
    weights | grep . || grep -m 3 -E 'standin|error|pianola: rank' "$room/err0"
}
wanted=$(in_process schedules/1f1b.lua "${pipeline[@]}" --steps 4)
expect "1f1b in teams, all in one process" "$wanted" \
    "$(in_process schedules/1f1b.lua "${pipeline[@]}" -D tensor=2 --steps 4 --device cuda)"
compiled integers 1f1b "${pipeline[@]}" -D tensor=2
for flags in "" "--messages put" "--reduce ordered" "--no-graph"; do
    # shellcheck disable=SC2086
    expect "1f1b in teams, a GPU each, $flags" "$wanted" "$(over_nccl integers 4 --steps 4 $flags)"
done
# Sums of bf16 in fp32, in the members' order, rounded once: the same bits over every transport that promises an order.
for precision in fp32 bf16 "bf16 -D tied=true" "bf16 -D qk_norm=true -D kv_heads=4"; do
    # shellcheck disable=SC2206
    set=(-D precision=$precision --model schedules/models/gpt.lua)
    [[ $precision != *qk_norm* ]] || set[${#set[@]}-1]=schedules/models/llama.lua
    precision=${precision// /_}
    compiled $precision serial -D tensor=4 "${small[@]:4}" "${set[@]}"
    wanted=$(in_process schedules/serial.lua -D tensor=4 "${small[@]:4}" "${set[@]}" --steps 3 --device cuda)
    for flags in "--messages put" "--reduce ordered"; do
        # shellcheck disable=SC2086
        expect "a GPT of $precision in a team of 4, $flags" "$wanted" "$(over_nccl $precision 4 --steps 3 $flags)"
    done
done
finish
