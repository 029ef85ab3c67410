#!/usr/bin/env bash
# Checks the links in the documents. Every relative link in a *.md file names an existing file and, after #, one of its
# headings; every path in backquotes that begins with a folder of the project exists. Then proves that this check can
# fail.
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/lib.sh

# Prints a heading's GitHub anchor: lower case, dashes for spaces, without most other characters.
anchors() { sed -nE 's/^#+ +//p' "$1" | tr 'A-Z ' 'a-z-' | tr -cd 'a-z0-9_\n-'; }

# broken ROOT: prints one line for each broken link and path.
broken() {
    cd "$1" || exit 2
    find . -name '*.md' ! -path './build/*' | LC_ALL=C sort | while read -r document; do
        # Skips text between ``` lines and indented commands.
        text=$(awk '/^```/ { inside = !inside; next } !inside && !/^    /' "$document")
        grep -oE '\]\([^)]*\)' <<<"$text" | sed 's/^](//; s/)$//' | while read -r link; do
            case $link in http://* | https://* | mailto:*) continue ;; esac
            file=${link%%#*} target=$document
            [ -z "$file" ] || target=$(dirname "$document")/$file
            if [ ! -e "$target" ]; then
                echo "$document: $link: no such file"
            elif [[ $link == *#* ]] && ! anchors "$target" | grep -qxF -- "${link#*#}"; then
                echo "$document: $link: no such heading"
            fi
        done
        grep -oE '`(compiler|runtime|schedules|generated|tests)/[A-Za-z0-9_./-]*`' <<<"$text" | tr -d '`' | while read -r path; do
            [ -e "$path" ] || echo "$document: \`$path\`: no such file"
        done
    done
}

expect "links and paths in documents" "" "$(broken .)"

room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
mkdir "$room/runtime"
printf '# A\n## Two words, and `code`\n[a](runtime/b.md) [b](#two-words-and-code) [c](http://x/y) `runtime/b.md`\n' >"$room/a.md"
printf '# B\n[a](../a.md#a) [](../a.md)\n' >"$room/runtime/b.md"
expect "valid links" "" "$(broken "$room")"
breaks() { # LINE COMPLAINT
    printf '# B\n%s\n' "$1" >"$room/runtime/b.md"
    expect "$1" "./runtime/b.md: $2" "$(broken "$room")"
}
breaks '[a](a.md)' 'a.md: no such file'
breaks 'text [a](../a.md#b) text' '../a.md#b: no such heading'
breaks '[a](#a)' '#a: no such heading'
breaks 'in `runtime/c.c`' '`runtime/c.c`: no such file'
expect "tests/README.md lists every suite once" "$(for suite in tests/*/*/; do [ ! -e "${suite}test.sh" ] || echo "${suite#tests/}"; done | grep -vx gpu/ptx/)" \
    "$(sed -nE 's/^\| \[[a-z0-9_]+\]\(([a-z0-9_/]+)\).*/\1/p' tests/README.md | LC_ALL=C sort)"
finish
