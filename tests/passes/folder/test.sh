#!/usr/bin/env bash
# Checks compiling into a folder that was used before: which files stay, which go, and that no user's changes are lost.
# A compile that ends early leaves the folder as it was, or in a state from which the next one recovers.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
shopt -s extglob
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
out=$room/out

compile() { "$PIANOLA" compile "schedules/$1.lua" "${@:2}" -o "$out" 2>&1; }
model="--model schedules/models/integers.lua"
texts="report.json streams.txt timeline.tsv timeline.txt"
programs() { # prints the file names of n ranks' programs, sorted as ls -A sorts them
    local r
    echo .compiled Makefile app.gpu app.mpi multi-prog.slurm rank rank.gpu
    for ((r = 0; r < $1; r++)); do echo rank$r.cu; done
    echo "$texts"
}
# holds WHAT NAMES...: the folder holds exactly these.
holds() { expect "$1" "$(printf '%s\n' ${@:2} | LC_ALL=C sort | paste -sd' ')" "$(ls -A "$out" | LC_ALL=C sort | paste -sd' ')"; }
# refused WHAT WANTED ARGS...: exit 2, the message, and the folder byte for byte as before.
refused() {
    local got
    cp -a "$out" "$room/before"
    got=$(compile "${@:3}")
    expect "$1: exit code and message" "2 pianola: error: $2" "$? $got"
    expect "$1: nothing was written or removed" "" "$(diff -r "$room/before" "$out" 2>&1)$(ls -A "$out" | grep '^\.pianola')"
    rm -rf "$room/before"
}
changed="this file was changed after \`compile\` wrote it, and the change would be lost; move it away, or give another folder with -o"
foreign="\`compile\` did not write this file, and would replace it; move it away, or give another folder with -o"
removed() { echo "pianola: $out: removed $1 files of an earlier compile that this one does not write"; }

compile gpipe $model
mv "$out" "$room/fresh"

# ---- fewer ranks, another schedule, no model: only the earlier compile's files go, everything else stays ----

compile 1f1b $model -D workers=8
holds "eight ranks" $(programs 8)
built() { for file; do printf '\177ELF' >"$out/$file" && chmod +x "$out/$file"; done; }
built rank0 rank3.gpu rank7 rank7.gpu
mkdir "$out/checkpoints" "$out/rank5"
echo mine >"$out/rank6"
echo mine >"$out/rank40.cu"
echo mine >"$out/measured.tsv"
expect "fewer ranks" "$(removed 4)" "$(compile gpipe $model)"
holds "programs of removed ranks and all builds are gone; a folder, a file that is not executable, and others' files stay" \
    $(programs 4) checkpoints rank5 rank6 rank40.cu measured.tsv
rm -r "$out"/{checkpoints,rank5,rank6,rank40.cu,measured.tsv}
expect "the same as in a new folder" "" "$(diff -r "$room/fresh" "$out")"
built rank0
compile gpipe $model
expect "the build of an unchanged program stays" yes "$([ -x "$out/rank0" ] && echo yes)"
rm "$out/rank2.cu"
expect "a removed program is written again" "" "$(compile gpipe $model)"
expect "without a model" "$(removed 10)" "$(compile gpipe)"
holds "without a model no program stays" $texts
expect "a file without a record belongs to the user" "" "$(echo '/* Rank 9 */' >"$out/rank9.cu" && compile gpipe $model)"
holds "it stays" $(programs 4) rank9.cu
rm "$out/rank9.cu"

# ---- files that a user changed or added are never lost ----

compile 1f1b $model -D workers=8
echo "// mine" >>"$out/rank7.cu"
refused "a program to be removed was changed" "$out/rank7.cu: $changed" 1f1b $model
refused "without a model too" "$out/rank7.cu: $changed" 1f1b
refused "a program to be written was changed" "$out/rank7.cu: $changed" 1f1b $model -D workers=8
mv "$out/rank7.cu" "$room/mine.cu"
expect "once it is moved away, compiling works" "$(removed 3)" "$(compile 1f1b $model)"
sed -i 's/^-np 1 /-np 1 -host gpu7 /' "$out/app.mpi"
refused "the launch file was changed" "$out/app.mpi: $changed" 1f1b $model
rm -r "$out" && mkdir "$out"
echo 'all: ; cc my.c' >"$out/Makefile"
refused "the Makefile of another project" "$out/Makefile: $foreign" 1f1b $model
expect "without a model it does not interfere" "" "$(compile 1f1b)"
printf 'step\trank\tlane\tstart\n' >"$out/timeline.tsv"
refused "a measured timeline" "$out/timeline.tsv: $foreign" 1f1b
rm -r "$out" && mkdir -p "$out/rank1.cu"
refused "a folder" "$out/rank1.cu: this must be a regular file to be overwritten, and it is not; move it away, or give another folder with -o" 1f1b $model
rm -r "$out"

# A record that names other files, as only a forged one can: those files stay.
compile 1f1b $model
echo mine >"$room/mine"
hash=0000000000000000
printf '%s\n' "$hash ../mine" "$hash mine" 'no hash' '' "$hash" "zz rank0.cu.cu" >>"$out/.compiled"
cp "$room/mine" "$out/mine"
expect "only program names in a record are trusted" "$(removed 10)" "$(compile 1f1b)"
expect "other files stay" "mine mine" "$(cat "$room/mine" "$out/mine" | paste -sd' ')"
rm -r "$out"

# ---- places that cannot hold a folder ----

cannot() {
    local got
    got=$("$PIANOLA" compile schedules/1f1b.lua -o "$2" 2>&1)
    expect "$1" "2 pianola: error: $3" "$? $got"
}
none="this is not a folder, but several files are written: -o takes a folder, existing or new"
echo mine >"$room/file"
ln -s nowhere "$room/dangling"
cannot "a file" "$room/file" "$room/file: $none"
cannot "a device" /dev/full "/dev/full: $none"
cannot "in a file" "$room/file/out" "$room/file/out: Not a directory"
cannot "a link that leads nowhere" "$room/dangling" \
    "$room/dangling: this link is broken; make the folder that it names, or remove it"
mkdir "$room/locked" && chmod a-w "$room/locked"
if [ ! -w "$room/locked" ]; then # root may still write there
    cannot "a folder without write permission" "$room/locked" "$room/locked: Permission denied"
    cannot "a folder inside such a folder" "$room/locked/out" "$room/locked/out: Permission denied"
fi
cannot "a file system that holds no regular files" /proc "/proc: No such file or directory"
expect "a schedule that does not compile makes no folder" no \
    "$("$PIANOLA" compile tests/language/bad/nothing.lua -o "$room/new" 2>/dev/null; [ -e "$room/new" ] && echo yes || echo no)"
mkdir "$room/behind" && ln -s behind "$room/link"
"$PIANOLA" compile schedules/1f1b.lua $model -o "$room/link//"
expect "a link to a folder, and slashes at its end" "-np 1 $room/link/rank0" "$(head -n 1 "$room/behind/app.mpi")"

# ---- a compile that ends early ----

# untouched WHAT: the folder is byte for byte as in $room/before, and holds nothing else.
untouched() { expect "$1: the folder is as it was" "" "$(diff -r "$room/before" "$out" 2>&1; ls -A "$out" | grep '^\.pianola')"; }
compile 1f1b $model -D workers=8
cp -a "$out" "$room/before"
for kib in 0 4 16; do # a file size limit acts like a disk that is full at that size
    got=$(trap '' XFSZ && ulimit -f $kib && compile gpipe $model -D batches=64)
    expect "a full disk at $kib KiB" "2 pianola: error: $out/: File too large" "$? ${got/"$out"\/+([a-z0-9.])/"$out/"}"
    untouched "a full disk at $kib KiB"
done
for signal in TERM HUP; do # a shell's jobs ignore SIGINT
    "$PIANOLA" compile schedules/1f1b.lua $model -D layers=32 -D workers=32 -D batches=512 -o "$out" &
    while kill -0 $! 2>/dev/null && [ -z "$(ls -A "$out" | grep '^\.pianola')" ]; do sleep 0.01; done
    kill -$signal $!
    wait $! 2>/dev/null
    expect "SIG$signal while it writes" SIG$signal "SIG$(kill -l $?)"
    untouched "SIG$signal while it writes"
done

# Ends at every file that gains or loses its name, as kill -9 would. The next compile, of any schedule, must give the
# same folder as without the interruption. (The first name lost is the probe that shows that the folder is writable.)
${CC:-cc} -shared -fPIC -o "$room/cut.so" tests/passes/folder/cut.c -ldl || exit 2
whole() {
    expect "$1: exit code" 0 "$2"
    expect "$1: the folder" "" "$(diff -r "$3" "$out" 2>&1 | head -n 5)"
}
cuts=0
for ((cut = 1; cut < 60; cut++)); do
    rm -rf "$out" && cp -a "$room/before" "$out"
    CUT=$cut LD_PRELOAD=$room/cut.so compile gpipe $model >/dev/null
    [ $? = 9 ] || break
    cuts=$((cuts + 1))
    rm -rf "$room/torn" && cp -a "$out" "$room/torn"
    compile gpipe $model >/dev/null
    whole "cut off at $cut, then the same schedule again" $? "$room/fresh"
    rm -rf "$out" && cp -a "$room/torn" "$out"
    compile 1f1b $model -D workers=8 >/dev/null
    whole "cut off at $cut, then the previous schedule" $? "$room/before"
done
expect "places where it was cut off: a probe, 14 new files, 4 old ones, the record twice" 21 $cuts

# kill -9 during a write: the next command that writes there removes leftovers, except from processes that still run.
left() { ls -A "$out" | grep '^\.pianola' | sed "s/-$$-/-mine-/" | LC_ALL=C sort | paste -sd' '; }
"$PIANOLA" compile schedules/1f1b.lua $model -D layers=32 -D workers=32 -D batches=512 -o "$out" &
while kill -0 $! 2>/dev/null && [ "$(ls -A "$out" | grep -c '^\.pianola')" -lt 3 ]; do sleep 0.01; done
kill -9 $! && wait $! 2>/dev/null
expect "a killed compile leaves temporary files" yes "$([ -n "$(left)" ] && echo yes)"
touch "$out/.pianola-$$-0" "$out/.pianola-999999999-x"
compile 1f1b $model -D workers=8 >/dev/null
expect "a compile removes them" ".pianola-999999999-x .pianola-mine-0" "$(left)"
rm "$out/.pianola-$$-0" "$out/.pianola-999999999-x"
touch "$out/.pianola-999999999-0"
"$PIANOLA" show schedules/1f1b.lua -o "$out/timeline.txt"
expect "so does any other command that writes there" "" "$(left)"

# Two compiles at once take turns, and the folder holds the result of one of them.
rm -rf "$out" && cp -a "$room/before" "$out"
exec 9<"$out"
flock 9
compile gpipe $model >"$room/waiting" 9<&- &
while ! [ -s "$room/waiting" ]; do sleep 0.01; done
expect "the second compile reports that it waits" "pianola: $out: another compile is writing there; waiting for it" "$(cat "$room/waiting")"
expect "the waiting compile has not written anything" "" "$(diff -r "$room/before" "$out" 2>&1)"
exec 9<&-
wait $!
expect "after the first compile it writes" "" "$(diff -r "$room/fresh" "$out" 2>&1)"
for ((i = 0; i < 8; i++)); do
    rm -rf "$out"
    compile gpipe $model >/dev/null &
    compile 1f1b $model -D workers=8 >/dev/null
    wait $!
    diff -r "$room/fresh" "$out" >/dev/null 2>&1 || diff -r "$room/before" "$out" >/dev/null 2>&1 || expect "two compiles at once, $i" one "$(ls -A "$out" | paste -sd' ')"
done

# ---- folders that do not exist yet, and paths to the ranks ----

"$PIANOLA" compile schedules/1f1b.lua $model -o "$room/a/b/c"
expect "all folders of a path are made, with the files in the last" "b c yes" "$(ls -A "$room/a") $(ls -A "$room/a/b") $([ -s "$room/a/b/c/rank3.cu" ] && echo yes)"
expect "a schedule that does not compile makes no folders" no \
    "$("$PIANOLA" compile tests/language/bad/nothing.lua -o "$room/d/e" 2>/dev/null; [ -e "$room/d" ] && echo yes || echo no)"
cannot "a path through a file" "$room/file/b/c" "$room/file/b/c: Not a directory"
pianola=$(realpath "$PIANOLA") schedule=$(realpath schedules/1f1b.lua) integers=$(realpath schedules/models/integers.lua)
mkdir "$room/here" "$room/a blank"
(cd "$room/here" && "$pianola" compile "$schedule" --model "$integers" -o ./out/deep)
for file in app.mpi app.gpu multi-prog.slurm; do
    expect "$file: from any folder" 4 "$(grep -c "^\(-np 1\|[0-3]\) $room/here/out/deep/rank[0-3]\(.gpu\)\?\$" "$room/here/out/deep/$file")"
done
(cd "$room/a blank" && "$pianola" compile "$schedule" --model "$integers" -o out)
expect "a path that mpirun cannot be given" "-np 1 out/rank0" "$(head -n 1 "$room/a blank/out/app.mpi")"
finish
