# For tests of launchers: . tests/support/small_job.sh, after lib.sh. Compiles a small model into $room/job. Sets small,
# book, and wanted, the weights after 300 steps.
weights() { sed -nE 's/^weights +([0-9a-f]{16}).*/\1/p' "$@"; }
book=/usr/share/common-licenses/GPL-3
small=(schedules/1f1b.lua --model schedules/models/gpt.lua -D width=32 -D rows=1)
mkdir "$room/job"
cp $book "$room/job/book.txt"
PKG_CONFIG_PATH=$PWD/build:$PKG_CONFIG_PATH
export PKG_CONFIG_PATH
"$PIANOLA" compile "${small[@]}" -o "$room/job/out" && make -s -C "$room/job/out" || exit 2
wanted=$("$PIANOLA" run "${small[@]}" --steps 300 --data $book 2>/dev/null | weights)
