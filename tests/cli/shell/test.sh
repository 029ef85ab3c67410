#!/usr/bin/env bash
# Checks completion and the manual page: both must match the commands' own help, and completion must work.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
for shell in bash zsh fish; do
    "$PIANOLA" help completion-$shell >"$room/$shell"
    expect "help completion-$shell" 0 $?
done
sorted() { tr ' ' '\n' | sed '/^$/d' | LC_ALL=C sort | paste -sd' '; }
commands=$("$PIANOLA" help | sed -n '/^Commands:/,/^$/s/^  \([a-z-]*\) .*/\1/p')
topics=$("$PIANOLA" help | sed -n '/TOPIC/,$s/^  \([a-z-]*\) .*/\1/p')
options() { "$PIANOLA" help "$1" | sed -n '/^Options:/,$s/^  \(    \|-., \)--\([a-z-]*\) .*/--\2/p' | sort; }
expect "the help lists commands and topics" "7 or more, 8 or more" \
    "$([ "$(wc -w <<<"$commands")" -ge 7 ] && echo 7 or more), $([ "$(wc -w <<<"$topics")" -ge 8 ] && echo 8 or more)"

bash_offers() {
    # shellcheck disable=SC2016
    bash -c '. "$0"; COMP_WORDS=(pianola "$@"); COMP_CWORD=$#; _pianola; printf "%s\n" "${COMPREPLY[@]}"' "$room/bash" "$@" | sorted
}
# completes WANTED WORD...: checks what bash offers for the last word.
completes() { expect "bash: pianola ${*:2}" "$(sorted <<<"$1")" "$(bash_offers "${@:2}")"; }

completes "$commands help --help --version" ""
completes "$commands $topics" help ""
completes "" help ops ""
completes "show" sh
for command in $commands; do
    completes "$(options "$command")" "$command" -
done

# The values of an option are the words that its error message lists.
for option in lanes format color device sort; do
    case $option in
    device) command=run ;;
    sort) command=compare ;;
    *) command=show ;;
    esac
    words=$("$PIANOLA" $command schedules/1f1b.lua --$option no-such 2>&1 | sed 's/.*: expected //; s/.*; use //; s/,//g; s/ or / /')
    expect "--$option has words" yes "$([ "$(wc -w <<<"$words")" -ge 2 ] && echo yes)"
    completes "$words" $command --$option ""
    completes "$words" $command --$option =
    completes "${words%% *}" $command --$option = "${words%% *}"
done
# --memory means one thing to partition and another to the other commands.
completes "spare least" show --memory ""
completes "" partition --memory ""
completes "" tune --memory ""
completes "server ring" partition --sync ""
completes "" show -D ""
completes "" run --steps ""

mkdir -p "$room/files/a folder" && touch "$room/files"/{a.lua,a.txt,"a folder/b.lua"}
completes "$room/files/a.lua $room/files/a folder" check "$room/files/a"
completes "$room/files/a.lua $room/files/a folder" run x.lua --model "$room/files/a"
completes "$room/files/a.lua $room/files/a.txt $room/files/a folder" verify "$room/files/a"
completes "$room/files/a folder" export-weights "$room/files/"
completes "$room/files/a.txt" run x.lua --data "$room/files/a.t"

# Completion by keyboard: types a command at a prompt, completes it and runs a pianola that prints its arguments. A dumb
# terminal echoes no escape sequences.
typed() { # SHELL COMMAND WANTED KEYS
    command -v "${2%% *}" >/dev/null && command -v script >/dev/null || return
    # shellcheck disable=SC2016
    got=$({
        [ "$1" != zsh ] || echo 'autoload -Uz compinit; compinit -u -D'
        printf '%s\n' ". $room/$1" 'pianola() { printf "<%s>" "$@"; echo; }'
        printf '%b\nexit\n' "pianola $4"
    } | TERM=dumb timeout 60 script -qec "$2" /dev/null | tr -d '\r' | grep -a '^<')
    expect "$1, typed: pianola $4" "$3" "$got"
}
typed bash "bash --norc --noprofile -i" "<show><schedules/gpipe.lua><--format><grid>" 'sh\tschedules/gp\t--fo\tgr\t'
typed bash "bash --norc --noprofile -i" "<verify><$room/files/a folder/b.lua>" "ver\t$room/files/a\\\\ f\tb\t"
typed zsh "zsh -f -i" "<show><schedules/gpipe.lua><--format=grid>" 'sh\tschedules/gp\t--fo\tgr\t'
typed zsh "zsh -f -i" "<run><x.lua><--device=cuda>" 'ru\tx.lua --dev\tc\t'
if command -v zsh >/dev/null; then
    expect "zsh reads it" "" "$(zsh -n "$room/zsh" 2>&1)"
fi
if command -v fish >/dev/null; then
    fish_offers() { HOME=$room fish -N -c "source $room/fish; complete -C 'pianola $1'" | cut -f 1 | sorted; }
    expect "fish: commands" "$(sorted <<<"$commands help")" "$(fish_offers "")"
    expect "fish: help" "$(sorted <<<"$commands $topics")" "$(fish_offers "help ")"
    for command in $commands; do
        expect "fish: $command" "$(sorted <<<"$(options "$command")")" "$(fish_offers "$command x.lua --")"
    done
    expect "fish: --format" "$(bash_offers show --format "")" "$(fish_offers "show --format ")"
    expect "fish: schedules" "schedules/gpipe.lua" "$(fish_offers "check schedules/gp")"
fi
if command -v shellcheck >/dev/null; then
    expect "shellcheck" "" "$(shellcheck -s bash "$room/bash")"
fi
for command in $commands; do # checked even if these shells are not installed
    for option in $(options "$command"); do
        expect "zsh has $option" yes "$(grep -q -e "$option[]'=}]" "$room/zsh" && echo yes)"
        expect "fish has $option" yes "$(grep -q "from[ a-z-]* $command[ '].* -l ${option#--} " "$room/fish" && echo yes)"
    done
done

# The manual page.
"$PIANOLA" help man >"$room/pianola.1"
expect "help man" "0 0" "$? $(LC_ALL=C grep -c '[^ -~]' "$room/pianola.1")"
if command -v groff >/dev/null; then
    expect "groff prints no warning" "" "$(groff -man -ww -z -Tutf8 "$room/pianola.1" 2>&1)"
fi
if command -v man >/dev/null; then
    page=$(LC_ALL=C.UTF-8 MANWIDTH=200 man --warnings -l "$room/pianola.1" 2>"$room/err" | col -bx)
    expect "man prints no warning" "" "$(cat "$room/err")"
    for command in $commands; do
        expect "man: $command" 1 "$(grep -c "^   pianola $command " <<<"$page")"
        for option in $(options "$command"); do
            expect "man: $option of $command" yes "$(grep -A 2 -e "^       \(-., \)\?$option\( \|$\)" <<<"$page" | grep -q '' && echo yes)"
        done
    done
fi

expect "a nearby topic" "pianola: error: unknown topic 'oops'; did you mean 'ops'?" "$("$PIANOLA" help oops 2>&1)"
finish
