# Part of test.sh: malformed certificates, each error once, with its line.
whole() { echo "expected $1: a whole number from $2 to $3"; }
class_form='class NUMBER NAME rank RANK time TICKS items N take UNITS give UNITS'
state_form='at TIME: STARTED … | CLASS START START … | …'
most=576460752303423488

unreadable links 1d 1 'expected "pianola bound 1", the first line of a certificate of a lower bound'
unreadable links 's/ bound 1$/ bound 2/' 1 'expected "pianola bound 1", the first line of a certificate of a lower bound'
unreadable links '/^schedule/d' 2 'expected "schedule ": the line is `schedule TEXT`'
unreadable links '/^tick/d' 3 'expected "tick ": the line is `tick TIME`'
for tick in 0 -1 nan inf 1e999 1e ''; do
    unreadable links "s/^tick .*/tick $tick/" 3 'expected the length of a tick: a number above 0'
done
unreadable links 's/^tick .*/tick 1,5/' 3 'expected the end of the line'
for limit in x -1 01 -0 +1 9999999999999999999999 $((most + 1)); do
    unreadable links "s/^limit .*/limit $limit/" 4 "$(whole 'limit ' 0 $most)"
done
unreadable links 's/^ranks 2/ranks 0/' 5 "$(whole 'ranks ' 1 4096)"
unreadable links 's/^ranks 2/ranks 2 /' 5 'expected the end of the line'
unreadable links 's/^room 0/room 2/' 6 "$(whole 'room ' 0 1)"
unreadable links 's/^room.*/&\n&/' 7 'rank 0 already has a room: keep one line for it'
unreadable links '/^class/d' 7 'expected `class 0 …`, or `room RANK UNITS` before it'
unreadable links '/^class 0/d' 7 'expected class 0: classes are numbered from 0, in order'
unreadable links 's/^class 1 F1/class 1 /' 8 "expected the class's name: 1 to 64 characters of ASCII"
unreadable links 's/^(class 1 F1) rank/\1  rank/' 8 "expected \" rank \": the line is \`$class_form\`"
unreadable links 's/F1 rank 1/F1 rank 2/' 8 "$(whole ' rank ' 0 1)"
unreadable links 's/(class 1 .*) items 2/\1 items 0/' 8 "$(whole ' items ' 1 1000000)"
unreadable links 's/(class 1 .*) time 1/\1 time 0/' 8 'a cover needs times of at least 1: F1 takes none, so a rank could start several items at once'
unreadable links "s/(class 1 .*) time 1/\1 time $most/" 8 'the sum of all times and lags is more than 2^59: use a larger tick or unit'
unreadable links "s/(class 1 .*) take 0/\1 take $most/" 8 'the sum of all units taken is more than 2^59: use a larger tick or unit'
unreadable links "s/(class 1 .*) give 0/\1 give $most/" 8 'the sum of all units given back is more than 2^59: use a larger tick or unit'
unreadable links "s/^after 1.*/after 1: 0+$most/" 11 'the sum of all times and lags is more than 2^59: use a larger tick or unit'
unreadable links 's/^after 1: 0\+2/after 4: 0+2/' 11 "$(whole 'a class' 0 3)"
unreadable links 's/^after 1:/after 1/' 11 'expected ":": the line is `after CLASS: CLASS+LAG CLASS+LAG …`'
unreadable links 's/^after 1:.*/after 1:/' 11 'expected " ": the line is `after CLASS: CLASS+LAG CLASS+LAG …`'
unreadable links 's/^after 1: 0\+2/after 1: 0-2/' 11 'expected "+": the line is `after CLASS: CLASS+LAG CLASS+LAG …`'
unreadable links 's/^after 1: 0\+2/after 1: 0+0/' 11 "$(whole 'the lag, at least the time of the class named' 1 $most)"
unreadable links 's/^after 1: 0\+2/after 1: 0+2 0+3/' 11 'class 0 is named twice: keep the larger lag'
unreadable links 's/^after 1: 0\+2/&\n&/' 12 'class F1 already has a line (11): name all classes in that one'
unreadable links 's/(class 1 .*) items 2/\1 items 3/' 11 'F1 has 3 items, but F0 before it has 2: both need equally many'
unreadable pool 's/(class 2 .*) items 2/\1 items 3/' 9 'pool P has 3 items, but the classes before it have 2 together: both need equally many'
unreadable pool 's/^class 2.*/&\nclass 3 Q rank 0 time 1 items 2 take 0 give 0/; s/^pool.*/&\nafter 3: 2+2/' 11 'P is a pool: nothing can come after its items'
unreadable links 's/^after 1: 0\+2/after 0: 3+2\n&/' 11 'F0 comes after itself: leave out one of the `after` lines of the cycle'
unreadable links 's/^after 3: 2\+3/after 3: 3+2/' 13 'B0 comes after itself: leave out one of the `after` lines of the cycle'
unreadable links 's/^proof cover/prove cover/' 14 'expected "proof ": the line is `proof work | path | memory | cover N, after all classes, after and pool lines`'
unreadable links 's/^proof cover/proof covers/' 14 'expected a proof: work, path, memory or cover N'
unreadable pool 's/^proof work/proof work 3/' 10 'expected the end of the line'
unreadable links 's/^proof cover 6/proof cover 0/' 14 "$(whole ' ' 1 10000000)"
unreadable links 's/^proof cover 6/proof cover 600/' 14 '600 states are more than the file holds: it was cut off'
unreadable links 's/^proof cover 6/proof cover 5/' 20 'expected "end": the line is `end, after as many states as `proof cover N` says`'
unreadable links 's/^proof cover 6/proof cover 7/; s/^end$/&&&&&&&&&&&&&&&/' 21 "expected \"at \": the line is \`$state_form\`"
unreadable links 's/^at 0:/at 1:/' 15 "$(whole 'at ' 0 0)"
unreadable links 's/^at 0: 0/at 0: 1/' 15 "$(whole 'how many items of each class have started (none in the first state)' 0 0)"
unreadable links 's/^at 3:/at 1:/' 18 "$(whole 'at ' 2 $most)"
unreadable links 's/^at 3: 1 1 0 0/at 3: 1 1 0/' 18 "expected \" \": the line is \`$state_form\`"
unreadable links 's/^at 3: 1/at 3: 3/' 18 "$(whole 'how many items of each class have started (none in the first state)' 0 2)"
unreadable links 's/\| 2 -2/| 4 -2/' 19 "$(whole ' | ' 0 3)"
unreadable links 's/\| 2 -2/& | 1 -1/' 19 "$(whole ' | ' 3 3)"
unreadable links 's/\| 2 -2/| 2/' 19 'expected the starts of class 2 after its number'
unreadable links 's/\| 2 -2/| 2 -2 -1/' 19 'more starts of B1 than its items that have started'
for start in -3 0 x; do
    unreadable links "s/\| 2 -2/| 2 $start/" 19 \
        "$(whole "a start, ascending, before the state's time and recent enough to matter" -2 -1)"
done
unreadable links 's/^at 5:.*/at 5: 1 1 2 0 | 2 -1 -2/' 19 \
    "$(whole "a start, ascending, before the state's time and recent enough to matter" 0 -1)"
unreadable links 's/^end/&s/' 21 'expected the end of the line'
unreadable links 's/^end/&\nend/' 22 'expected nothing after `end`'
expect "cut short" "2 -:1: error: the file ends within a line: write the certificate again" \
    "$(head -c -1 pool.bound | timeout 60 "$PIANOLA" check-bound - 2>&1 | sed -n 's/^-:11/2 -:1/p')"

# Sizes, each just beyond the limit.
many() { # CLASSES ARCS: prints CLASSES classes, with ARCS classes before each of the later half
    awk -v n="$1" -v arcs="$2" 'BEGIN {
        print "pianola bound 1\nschedule many\ntick 1\nlimit 1\nranks 1"
        for (c = 0; c < n; c++) print "class " c " X rank 0 time 1 items 1 take 0 give 0"
        for (c = n / 2; c < n && arcs; c++) {
            printf "after %d:", c
            for (i = 0; i < arcs; i++) printf " %d+1", i
            print ""
        }
        print "proof work\nend"
    }' | timeout 60 "$PIANOLA" check-bound - 2>&1 | head -n 1
}
expect "the maximum number of classes" "many: no schedule ends before 1 (work of rank 0)" "$(many 4096 32)"
expect "one class too many" "-:4102: error: more than 4096 classes: too many to check" "$(many 4097 0)"
expect "too many classes named" "-:6087: error: more than 65536 classes are named: too many to check" "$(many 4096 33)"
expect "no text" "pianola: error: -: byte 1 is zero: this is not text" \
    "$(printf 'p\0' | timeout 60 "$PIANOLA" check-bound - 2>&1)"

# 16 ranks that may each start one of three classes, or nothing, have 4^16 choices.
unreadable branching '' 55 'the ranks have more than 1049600 choices from this state and those before it, and a cover of 1 state may leave no more to check; ranks that start one after another leave fewer'
