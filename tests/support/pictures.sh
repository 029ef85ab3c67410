# For tests of pictures: source it after tests/support/lib.sh. Checks pictures with xmllint, rsvg-convert and a browser,
# all installed by `make deps`. If one is missing, the test fails: an unchecked picture has not passed.
browser=$(command -v chromium-headless-shell || command -v chromium)
for tool in xmllint rsvg-convert "${browser:-chromium-headless-shell}"; do
    command -v "$tool" >/dev/null || expect "$tool, which make deps installs" there missing
done

# well_formed WHAT FILE: checks the XML, and that a title is the first child. Otherwise Chromium searches for the
# document's title at each <title>, in time quadratic in the number of shapes.
well_formed() {
    expect "$1: well-formed" "" "$(xmllint --noout --huge "$2" 2>&1 | head -n 3)"
    expect "$1: begins with its title" title "$(xmllint --huge --xpath 'name(/*/*[1])' "$2" 2>&1)"
}

# as_png WHAT FILE [OPTION...]: renders the picture in its own size, or in another with options.
as_png() {
    expect "$1: as PNG" "" "$(timeout 120 rsvg-convert "${@:3}" "$2" -o "$2.png" 2>&1)"
    [ $# = 2 ] || return
    expect "$1: the PNG's size" "$(sed -nE '1s/.* width="([0-9.]+)" height="([0-9.]+)".*/\1 \2/p' "$2" | awk '
        function up(x) { return int(x) + (x > int(x)) } { print up($1), up($2) }')" \
        "$(od -An -tu1 -j16 -N8 "$2.png" | awk '{ print ($2 * 256 + $3) * 256 + $4, ($6 * 256 + $7) * 256 + $8 }')"
}

# ask PAGE [OPTION...]: prints the DOM of a page from a browser started with these options, after the page's script and
# the script on stdin have run. No sandbox, because it may run as root.
ask() {
    { echo '<script>' && cat && echo '</script>'; } >>"$1"
    timeout -k 5 120 "$browser" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage \
        --user-data-dir="$room/browser" "${@:2}" --dump-dom "file://$1" 2>"$room/browser.log"
}

# page_text PAGE: prints what a script on stdin gives, a list of lines, for the page's timeline t.
page_text() {
    cp "$1" "$room/lines.html"
    { echo '{ const t = view.frame.timeline, lines = [];' && cat && echo "document.body.append(Object.assign(document.createElement('pre'), { id: 'lines', textContent: lines.join('\n') + '\n' })); }"; } |
        ask "$room/lines.html" | sed -n '/<pre id="lines">/,/<\/pre>/p' | sed 's/.*<pre id="lines">//; s/<\/pre>.*//'
}

# page_lines PAGE: prints the titles of a page's operations, then each row's largest memory and plan.
page_lines() {
    page_text "$1" <<'J'
for (let i = 0; i < t.n; i++) lines.push(titleOf(t, i));
for (const row of t.rows) if (row.plan >= 0) lines.push(`${ranksText(row)}: at most ${amountOf(Math.max(0, ...row.memory.bytes))} in use, of a plan of ${amountOf(row.plan)}`);
J
}

# page_messages PAGE: prints the titles of the messages that operations need.
page_messages() {
    page_text "$1" <<'J'
needsOf(t).tensor.forEach((tensor, j) => { if (tensor >= 0) lines.push(messageTitle(t, j)); });
J
}

# Prints browsers started by ask that still run after a moment; there must be none.
browsers_left() {
    local i left
    for ((i = 0; i < 50; i++)); do
        left=$(grep -lsaF -f <(echo "$room/browser") /proc/[0-9]*/cmdline)
        [ -n "$left" ] || break
        sleep 0.1
    done
    echo "$left"
}
