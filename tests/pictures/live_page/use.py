"""Uses the page as a person does, in a real browser: use.py PAGE FOLDER [PART...]. Screenshots go to FOLDER. Compares
what the page shows with the native program, PIANOLA. Prints `N passed, M failed`."""
import json
import os
import re
import struct
import subprocess
import sys
import time

from browser import Browser

page, folder = os.path.abspath(sys.argv[1]), sys.argv[2]
native = os.environ.get("PIANOLA", "build/pianola")
passed = failed = 0
b = Browser()


def expect(what, wanted, got):
    global passed, failed
    if wanted == got:
        passed += 1
    else:
        failed += 1
        if isinstance(wanted, list) and isinstance(got, list):  # prints from the first difference on
            same = next((i for i, pair in enumerate(zip(wanted, got)) if pair[0] != pair[1]), min(len(wanted), len(got)))
            wanted, got = [len(wanted), *wanted[same:same + 4]], [len(got), *got[same:same + 4]]
        print(f"{what}: expected {wanted!r:.400}, got {got!r:.400}", flush=True)


def run(*args, code=0):
    done = subprocess.run([native, *args], capture_output=True, text=True)
    assert done.returncode == code, (args, done.stderr)
    return done.stdout


def text(name):
    return b.value(f"document.getElementById('{name}').textContent")


def count(what="whole"):
    return int(b.value(f"document.body.dataset.{what} || 0"))


def after(act, what="whole", seconds=20):
    """Returns whether the page shows something new after an act (with `failed`, an error), and nothing runs any more."""
    before = count(what)
    act()
    came = b.wait(f"Number(document.body.dataset.{what} || 0) > {before}", seconds)
    time.sleep(0.25)  # allows for a later answer to the same act
    return came


def choose(name, value):
    b.value(f"(s => {{ s.value = '{value}'; for (const e of ['input', 'change']) s.dispatchEvent(new Event(e, {{ bubbles: true }})); }})(document.getElementById('{name}'))")


def script(kind="schedule"):
    return b.value(f"document.querySelector('#script-{kind} textarea').value")


def open_page(link=""):
    b.open("file://" + page + link)
    return b.wait("document.body.dataset.whole")


def share_it():
    b.value("document.getElementById('share').click()")
    return b.wait("location.hash.length > 20 && document.getElementById('share').textContent.startsWith('Link')")


def tab(name):
    b.value(f"document.getElementById('tab-{name}').click()")


picture = "document.getElementById('picture').viewer"


def ops():
    """Returns the titles of the operations in the picture, in order."""
    return b.value(f"(t => Array.from({{ length: t.n }}, (_, i) => titleOf(t, i)).sort())({picture}.frame.timeline)")


def titles(*args):
    return sorted(re.findall(r'<rect class="o[^>]*><title>([^<]*)', run("show", *args, "--format", "svg")))


def marked():
    """Returns the titles of the operations that are framed in red, and the texts of the flags."""
    return b.value(f"(p => [p.bad.map(i => titleOf({picture}.frame.timeline, i)), p.flags.map(flag => flag.name).sort()])({picture}.frame.place)")


def wait_marked(test, seconds=10):
    until = time.monotonic() + seconds
    while not test(*marked()) and time.monotonic() < until:
        time.sleep(0.05)
    return test(*marked())


def centre(name, of="picture"):
    """Returns the middle of an operation, in the window."""
    return b.value(f"""(view => {{ const t = view.frame.timeline; let i = 0; while (i < t.n && nameOf(t, i) !== '{name}') i++;
        const o = view.boxes(i)[0], r = view.parts.rows.getBoundingClientRect(); return [r.left + o.x + o.w / 2, r.top + o.y + o.h / 2]; }})(document.getElementById('{of}').viewer)""")


def info():
    return b.value(f"{picture}.parts.info.textContent")


def pick_look(name, value):
    b.value(f"(s => {{ s.value = '{value}'; s.dispatchEvent(new Event('change')); }})({picture}.parts.{name})")


def start():
    expect("the page starts", True, open_page())
    expect("the verdict", True, text("verdict").startswith("Proved"))
    expect("the picture equals the native one", titles("schedules/1f1b.lua"), ops())
    expect("the report", True, text("report-text").strip() in run("show", "schedules/1f1b.lua", "--ascii", "--width", "120"))


def pick():
    expect("a schedule from the list is shown", True, after(lambda: choose("schedule", "schedules/zbv.lua")))
    expect("its picture is shown", titles("schedules/zbv.lua"), ops())
    with open("schedules/zbv.lua") as file:
        expect("its script is shown", file.read(), script())
    expect("all schedules are in the list", len(json.loads(run("compare", "schedules/1f1b.lua", "--json"))["schedules"]) > 0 and
           len([f for f in os.listdir("schedules") if f.endswith(".lua") and not f.endswith(".d.lua")]),
           b.value("document.getElementById('schedule').options.length"))


def drag():
    after(lambda: choose("schedule", "schedules/zbv.lua"))
    x, y, w, h = b.box("document.querySelector('#controls [aria-label=batches]')")
    shown = count("shown")
    b.drag(x + 12, y + h / 2, x + w * 0.6, y + h / 2, 12)
    b.wait(f"Number(document.body.dataset.shown) > {shown}")
    b.wait("document.getElementById('caption').textContent.includes(document.getElementById('p-batches').value + ' microbatches')")
    b.wait("document.body.dataset.whole === document.body.dataset.shown && document.getElementById('running').hidden")
    batches = b.value("document.getElementById('p-batches').value")
    expect("a dragged slider changes the number", True, batches != "8" and batches.isdigit())
    expect("and the picture follows", titles("schedules/zbv.lua", "-D", "batches=" + batches), ops())
    expect("and the command line follows", f"pianola show schedules/zbv.lua -D batches={batches}", text("command"))

    b.value("document.querySelector('#controls [aria-label=batches]').focus()")
    expect("arrow keys change the slider", True, after(lambda: [b.press("ArrowRight") for _ in range(3)]))
    expect("by one each time", str(int(batches) + 3), b.value("document.getElementById('p-batches').value"))


def machines():
    after(lambda: choose("schedule", "schedules/zbv.lua"))
    expect("choosing a model", True, after(lambda: choose("model", "schedules/models/gpt.lua")))
    expect("choosing a cluster", True, after(lambda: choose("cluster", "schedules/clusters/nodes.lua")))
    b.value("document.getElementById('p-devices').focus(); document.getElementById('p-devices').select()")
    expect("typing a cluster's parameter", True, after(lambda: b.type("2")))
    batches = b.value("document.getElementById('p-batches').value")
    expect("the picture equals the command line's", titles("schedules/zbv.lua", "-D", f"batches={batches}", "-D", "devices=2", "--model",
                                              "schedules/models/gpt.lua", "--cluster", "schedules/clusters/nodes.lua"), ops())
    after(lambda: choose("model", ""))
    after(lambda: choose("cluster", "schedules/clusters/latency.lua"))
    b.value("document.getElementById('p-memory').focus(); document.getElementById('p-memory').select()")
    expect("too little memory", True, after(lambda: b.type("6"), "failed"))
    expect("the verdict names the shortage", True, re.fullmatch(r"Error: rank \d needs \d+ bytes, \d+ more than the cluster's memory of 6", text("verdict")) is not None)
    after(lambda: choose("cluster", ""))

    # Links have seconds, but jobs have no speed: one click sets the parameter that the error asks for.
    after(lambda: choose("model", "schedules/models/gpt.lua"))
    after(lambda: choose("cluster", "schedules/clusters/latency.lua"))
    expect("large figures have a readable unit", True, " GFLOP" in text("figures"))
    b.value("document.getElementById('p-latency').focus(); document.getElementById('p-latency').select()")
    expect("latency without flops is an error", True, after(lambda: b.type("1e-5"), "failed"))
    expect("the error's line is one click away", "Go to line 8", text("go"))
    tab("schedule")
    b.value("document.getElementById('go').click()")
    expect("the click opens its tab", True, b.value("document.activeElement === document.querySelector('#script-cluster textarea')"))
    expect("at the error's line", script("cluster").split("\n")[7], b.value("(a => a.value.slice(a.selectionStart).split('\\n')[0])(document.activeElement)"))
    expect("the fix is one click too", (True, "Set flops = 1e14"), (after(lambda: b.value("document.getElementById('mend').click()")), text("mend")))
    expect("the fix is on the command line", True, "-D latency=1e-5 -D flops=1e14" in text("command"))
    expect("latency and flops have sliders", 2, b.value("document.querySelectorAll('#controls [aria-label=latency], #controls [aria-label=flops]').length"))
    expect("and short numbers", "1e14", b.value("document.getElementById('p-flops').value"))
    tab("compare")
    expect("a plot's axis shows its unit", True, b.wait("[...document.querySelectorAll('#plot .end')].length > 1 && [...document.querySelectorAll('#plot .end')].every(t => / [mu]?s$/.test(t.textContent))"))
    tab("report")
    after(lambda: choose("cluster", ""))
    after(lambda: choose("model", ""))

    open_page()  # a default that depends on another parameter follows, in the same field, since the user may be in it
    b.value("window.field = document.getElementById('p-stages'); document.getElementById('p-workers').focus(); document.getElementById('p-workers').select()")
    after(lambda: b.type("12"))
    expect("a dependent default follows", "12", b.value("document.getElementById('p-stages').value"))
    expect("in the same input field", True, b.value("document.getElementById('p-stages') === window.field"))


def others():
    """The model and the cluster can be edited as text too, and the compiler's options are controls."""
    open_page()
    expect("without a model its tab is disabled", True, b.value("document.getElementById('tab-model').disabled"))
    after(lambda: choose("model", "schedules/models/gpt.lua"))
    after(lambda: choose("cluster", "schedules/clusters/nodes.lua"))
    tab("cluster")
    with open("schedules/clusters/nodes.lua") as file:
        expect("the cluster's script is shown", file.read(), script("cluster"))
    at = script("cluster").index("devices = 8,")
    b.value(f"(a => {{ a.focus(); a.setSelectionRange({at}, {at + 12}); }})(document.querySelector('#script-cluster textarea'))")
    expect("the cluster's script is edited", True, after(lambda: b.type("devices = 2,")))
    expect("the command names the downloaded file", "pianola show schedules/1f1b.lua --model schedules/models/gpt.lua --cluster nodes.lua  # with the edited cluster: Download saves it", text("command"))
    choose("download", "Cluster (Lua)")
    expect("the download is the edited script", script("cluster").encode(), b.downloaded("nodes.lua"))
    machine = ["schedules/1f1b.lua", "--model", "schedules/models/gpt.lua", "--cluster", "schedules/clusters/nodes.lua"]
    expect("the picture equals the parameter's", titles(*machine, "-D", "devices=2"), ops())
    expect("its tab shows that it was edited", [False, False, True], b.value("['schedule', 'model', 'cluster'].map(k => document.getElementById('tab-' + k).classList.contains('edited'))"))
    tab("model")
    b.value("(a => { a.focus(); a.setSelectionRange(0, 0); })(document.querySelector('#script-model textarea'))")
    expect("an error in the model's script", True, after(lambda: b.type("oops()\n"), "failed"))
    expect("the verdict places it in the model", "Error in line 1 of the model", text("verdict"))
    expect("the editor marks it", ["1"], b.value("[...document.querySelectorAll('#script-model .lines b')].map(e => e.textContent)"))
    tab("schedule")
    expect("its tab is marked", [False, True, False], b.value("['schedule', 'model', 'cluster'].map(k => document.getElementById('tab-' + k).classList.contains('bad'))"))
    tab("model")
    b.value("document.querySelector('#script-model textarea').focus()")
    expect("undo repairs it", True, after(lambda: b.press("z", ctrl=True)))
    expect("undo restores every byte", [False, False], b.value("['edited', 'bad'].map(c => document.getElementById('tab-model').classList.contains(c))"))

    expect("rarely used options are folded", True, b.value("!document.getElementById('p---lanes').closest('details').open"))
    b.value("document.getElementById('p---lanes').closest('details').querySelector('summary').click()")
    choose("p---lanes", "peer")
    choose("p---recompute", "true")
    b.value("document.getElementById('p---memory').focus(); document.getElementById('p---memory').select()")
    expect("setting options", True, after(lambda: b.type("least")))
    options = ["--lanes", "peer", "--recompute", "--memory", "least"]
    expect("they are on the command line", "pianola show schedules/1f1b.lua --lanes peer --recompute --memory least --model schedules/models/gpt.lua --cluster nodes.lua  # with the edited cluster: Download saves it", text("command"))
    expect("and in the picture", titles(*machine, "-D", "devices=2", *options), ops())
    expect("options have descriptions", True, "per edge" in b.value("document.getElementById('p---lanes').closest('.param').title"))
    shown, line = ops(), text("command")
    share_it()
    expect("a link keeps the whole state", True, open_page(b.value("location.hash")))
    expect("the link's picture", shown, ops())
    expect("the link's command line", line, text("command"))
    after(lambda: choose("cluster", ""))
    expect("removing the cluster closes its tab", ["true", True], b.value("[document.getElementById('tab-schedule').getAttribute('aria-selected'), document.getElementById('tab-cluster').disabled]"))


def edit():
    open_page()
    whole = script()
    at = whole.index("batches = p.batches")
    b.value(f"(a => {{ a.focus(); a.setSelectionRange({at}, {at + 7}); }})(document.querySelector('#script-schedule textarea'))")
    expect("a misspelt field is an error", True, after(lambda: b.type("batchs"), "failed"))
    line = whole[:at].count("\n") + 1
    expect("the error names its line", f"Error in line {line}", text("verdict"))
    expect("with the compiler's suggestion", True, "did you mean 'batches'?" in text("error"))
    expect("the editor marks the line", [str(line)], b.value("[...document.querySelectorAll('#script-schedule .lines b')].map(e => e.textContent)"))
    expect("and shows the error in it", True, "did you mean" in b.value("(e => e ? e.textContent : '')(document.querySelector('#script-schedule .marked b'))"))
    expect("the last picture stays, faded", True, b.value("document.body.classList.contains('stale')"))
    expect("undo repairs the script", True, after(lambda: b.press("z", ctrl=True)))
    expect("undo restores every byte of it", whole, script())
    expect("and the error is gone", False, b.value("!document.getElementById('error').hidden"))

    b.value("(a => { a.focus(); a.setSelectionRange(0, 0); })(document.querySelector('#script-schedule textarea'))")
    b.type("oldest_")
    expect("names are completed", True, b.value("document.querySelector('#script-schedule .names').textContent.includes('oldest_batch_first')"))
    b.press("Enter")
    expect("Enter accepts the completion", True, script().startswith("oldest_batch_first"))
    for _ in range(8):
        if script() == whole:
            break
        b.press("z", ctrl=True)
    expect("undo takes the completion back", whole, script())
    b.press("Tab")
    expect("Tab indents", "  " + whole, script())
    b.press("z", ctrl=True)
    b.press("Escape")
    b.press("Tab")
    expect("Escape, then Tab, leaves the editor", False, b.value("document.activeElement.tagName === 'TEXTAREA'"))
    expect("and does not indent", whole, script())
    b.wait("!document.body.classList.contains('stale')")


def keys():
    """Every control can be reached with Tab, and shows that it has the focus."""
    b.value("document.body.tabIndex = -1; document.body.focus(); document.body.removeAttribute('tabindex')")
    seen, unseen = [], []
    for _ in range(60):
        b.press("Tab")
        if b.value("document.activeElement.tagName === 'TEXTAREA'"):
            b.press("Escape")
        name = b.value("(e => e.id || e.className || e.getAttribute('aria-label') || e.tagName)(document.activeElement)")
        if seen and name == seen[0]:
            break
        seen.append(name)
        if not b.value("(e => { const s = getComputedStyle(e), p = e.closest('.editor'); return e === document.body || s.outlineStyle !== 'none' || p !== null; })(document.activeElement)"):
            unseen.append(name)
    wanted = ["split", "schedule", "model", "cluster", "pin", "share", "download", "theme", "p-batches", "v-find", "v-by", "v-stage", "tab-report"]
    expect("Tab reaches every control", [], [name for name in wanted if name not in seen])
    expect("focus is visible", [], unseen)
    b.value(f"{picture}.parts.stage.focus()")
    b.press(".")
    b.press(".")
    expect("the keyboard reaches operations", True, "forward of stage" in info())
    expect("every field has a label", [], b.value("[...document.querySelectorAll('input, select, textarea, button')].filter(e => !(e.labels && e.labels.length || e.getAttribute('aria-label') || e.textContent.trim())).map(e => e.outerHTML)"))


def drawn():
    """The picture's colours, lanes and messages, as `show` draws them."""
    open_page()
    after(lambda: choose("schedule", "schedules/zbv.lua"))
    after(lambda: choose("cluster", "schedules/clusters/latency.lua"))
    b.value("document.getElementById('p-bandwidth').focus(); document.getElementById('p-bandwidth').select()")
    after(lambda: b.type("4"))
    pick_look("by", "stage")
    line = ["schedules/zbv.lua", "-D", "bandwidth=4", "--cluster", "schedules/clusters/latency.lua", "--color-by", "stage"]
    fills = {(name, fill) for fill, name in re.findall(r'<rect class="o[^>]*? fill="([^"]*)".*?<title>([^:]*):', run("show", *line, "--format", "svg"))}
    expect("colours by stage", sorted(map(list, fills)), b.value(f"""(view => {{ const t = view.frame.timeline, {{ paint, colours }} = view.frame.mixers[0].palette;
        return [...new Set(Array.from({{ length: t.n }}, (_, i) => JSON.stringify([nameOf(t, i), '#' + colours[paint[i]].map(v => v.toString(16).padStart(2, '0')).join('')])))].map(JSON.parse).sort(); }})({picture})"""))
    expect("the colours are on the command line", "pianola show " + " ".join(line), text("command"))
    b.value(f"{picture}.parts.sends.click()")
    after(lambda: b.value(f"{picture}.parts.lanes.click()"))
    line += ["--with", "lanes,sends"]
    expect("lanes are drawn", titles(*line), ops())
    expect("messages are drawn", True, b.value(f"{picture}.frame.look.sends"))
    choose("download", "Picture (SVG)")
    expect("downloads have them", run("show", *line, "--format", "svg").encode(), b.downloaded("zbv.svg"))
    choose("download", "Timeline (TSV)")
    expect("downloaded pictures have them", run("show", *line[:5], "--format", "tsv").encode(), b.downloaded("zbv.tsv"))
    share_it()
    open_page(b.value("location.hash"))
    expect("a link keeps them", ("pianola show " + " ".join(line), "stage", True), (text("command"), b.value(f"{picture}.parts.by.value"), b.value(f"{picture}.parts.lanes.checked")))


def split():
    open_page()
    x, y, w, h = b.box("document.getElementById('split')")
    wide = b.box("document.getElementById('script-schedule')")[2]
    b.drag(x + w / 2, y + 300, x + w / 2 + 200, y + 300)
    expect("the divider beside the editor can be dragged", True, abs(b.box("document.getElementById('script-schedule')")[2] - wide - 200) < 3)
    b.press("ArrowLeft")
    expect("and moved with keys", True, 160 < b.box("document.getElementById('script-schedule')")[2] - wide < 190)
    b.press("Home")
    expect("and reset", wide, b.box("document.getElementById('script-schedule')")[2])


def hover():
    open_page()
    x, y = centre("1F3")
    b.mouse("mouseMoved", x, y)
    expect("an operation shows its needs and their messages", True, info().startswith("1F3:") and "needs 0F3: " in info() and ", by act(0,3), " in info())
    rx, ry, rw, rh = b.box(f"{picture}.parts.rows")
    b.mouse("mouseMoved", x, ry + 12)
    expect("the ruler shows no operation", False, ":" in info())
    b.mouse("mouseMoved", rx + rw - 2, ry + rh - 2)
    expect("blank space shows no operation", True, info().startswith("Point at an operation"))
    b.mouse("mouseWheel", x, y, deltaX=0, deltaY=-300)
    expect("the wheel zooms", True, b.wait(f"{picture}.frame.to - {picture}.frame.from < .8 * {picture}.frame.timeline.end", 5))
    b.value(f"{picture}.parts.stage.focus()")
    b.press("0")
    expect("0 shows the whole step", True, b.value(f"{picture}.frame.from === 0 && {picture}.frame.to === {picture}.frame.timeline.end"))


def streams():
    tab("streams")
    expect("streams equal the native ones", run("show", "schedules/1f1b.lua", "--format", "streams").strip(),
           b.value("document.querySelector('#program textarea').value").strip())
    expect("the streams are proved", True, b.wait("document.getElementById('claim').textContent.startsWith('Proved')"))
    with open("tests/proof/verify/refuted_serial_two_ranks.txt") as file:
        wrong = file.read()
    b.value("(a => { a.focus(); a.select(); })(document.querySelector('#program textarea'))")
    b.type(wrong)
    expect("a broken order is refuted", True, b.wait("document.getElementById('claim').textContent === 'Refuted: serial deadlock'"))
    why = json.loads(run("verify", "tests/proof/verify/refuted_serial_two_ranks.txt", "--json", code=1))["why"]
    expect("with the counterexample", why, text("why"))
    expect("the counterexample's lines are marked", ["11", "33"], b.value("[...document.querySelectorAll('#program .lines b')].map(e => e.textContent)"))
    b.value("document.getElementById('restore').click()")
    expect("restoring the streams", True, b.wait("document.getElementById('claim').textContent.startsWith('Proved')"))

    # A missing wait: two accesses that nothing orders. The picture marks both.
    whole = b.value("document.querySelector('#program textarea').value")
    lines = whole.split("\n")
    at = next(i for i, l in enumerate(lines) if l.startswith("B 0 0") and "wait(RECV_B 1 0 from 1)" in l)
    begin = sum(len(l) + 1 for l in lines[:at]) + lines[at].index(" wait(")
    b.value(f"(a => {{ a.focus(); a.setSelectionRange({begin}, {begin + len(' wait(RECV_B 1 0 from 1)')}); }})(document.querySelector('#program textarea'))")
    b.press("Backspace")
    expect("a missing wait is refuted", True, b.wait("document.getElementById('claim').textContent.startsWith('Refuted')"))
    expect("it is marked in the picture", True, wait_marked(lambda bad, flags: any(t.startswith("0B0:") for t in bad)))
    expect("the page's verdict reports it", "Edited streams refuted: races", text("verdict"))
    choose("download", "Streams")
    wrong = b.value("document.querySelector('#program textarea').value")
    expect("streams are downloaded as edited", wrong.encode(), b.downloaded("1f1b.streams.txt"))
    expect("other costs, the same streams: edits stay", True, after(lambda: choose("cluster", "schedules/clusters/latency.lua")))
    expect("and so does their verdict", True, b.wait("document.getElementById('verdict').textContent === 'Edited streams refuted: races'"))
    expect("edited streams stay the same, byte for byte", wrong, b.value("document.querySelector('#program textarea').value"))
    after(lambda: choose("cluster", ""))
    b.value("document.getElementById('restore').click()")
    expect("the marks are gone", True, wait_marked(lambda bad, flags: not bad and not flags))

    # A collective is not in the picture, but a flag at the job before it is. What is out of sight is scrolled into
    # view.
    after(lambda: choose("schedule", "schedules/fsdp.lua"))
    b.wait("document.getElementById('claim').textContent.startsWith('Proved')")
    whole = b.value("document.querySelector('#program textarea').value")
    at = whole.index(" wait(B 2 0)", whole.index("REDUCE_SCATTER 2"))
    b.value(f"{picture}.parts.stage.focus()")
    for key in "wwwwwwwwwdddddddddddddddddddddddddddddd":
        b.press(key)
    expect("the end of the step is in sight", False, b.value(f"{picture}.frame.from < {picture}.frame.timeline.end / 2"))
    b.value(f"(a => {{ a.focus(); a.setSelectionRange({at}, {at + len(' wait(B 2 0)')}); }})(document.querySelector('#program textarea'))")
    b.press("Backspace")
    expect("a race with a collective", True, b.wait("document.getElementById('claim').textContent.startsWith('Refuted: races')"))
    expect("the race is flagged", True, wait_marked(lambda bad, flags: flags and flags[0].startswith(("ALL_GATHER", "REDUCE_SCATTER")) and f": {flags[0]} " in text("why")))
    expect("the flag is in sight", True, b.wait(f"(f => [...f.place.bad, ...f.place.flags.map(flag => flag.op)].some(i => f.timeline.ops.start[i] >= f.from && f.timeline.ops.start[i] < f.to))({picture}.frame)", 3))

    # Two collectives in another order than in the rest of the group: both flags.
    after(lambda: choose("schedule", "schedules/gpipe.lua"))
    after(lambda: choose("schedule", "schedules/fsdp.lua"))
    b.wait("document.getElementById('claim').textContent.startsWith('Proved')")
    lines = b.value("document.querySelector('#program textarea').value").split("\n")
    first, second = [i for i, line in enumerate(lines) if line.startswith("REDUCE_SCATTER")][:2]
    lines[first], lines[second] = lines[second], lines[first]
    b.value("(a => { a.focus(); a.select(); })(document.querySelector('#program textarea'))")
    b.type("\n".join(lines))
    expect("a deadlock of collectives", True, b.wait("document.getElementById('claim').textContent === 'Refuted: serial deadlock'"))
    expect("each collective has a flag", ["REDUCE_SCATTER 2", "REDUCE_SCATTER 3"], wait_marked(lambda bad, flags: len(flags) > 1) and marked()[1])

    # A job of a team, named as in the streams.
    after(lambda: choose("schedule", "schedules/dp_tp_pp.lua"))
    b.wait("document.getElementById('claim').textContent.startsWith('Proved')")
    whole = b.value("document.querySelector('#program textarea').value")
    at = whole.index(" wait(RECV_B 1.0 0 from 2)")
    b.value(f"(a => {{ a.focus(); a.setSelectionRange({at}, {at + len(' wait(RECV_B 1.0 0 from 2)')}); }})(document.querySelector('#program textarea'))")
    b.press("Backspace")
    expect("a race with a team's job is marked", True, wait_marked(lambda bad, flags: any(t.startswith("0.0B0:") for t in bad)))
    tab("report")
    after(lambda: choose("schedule", "schedules/1f1b.lua"))
    tab("streams")


def share():
    open_page()
    edited = "-- mine: ü → ✓\n" + script()
    b.value("(a => { a.focus(); a.setSelectionRange(0, 0); })(document.querySelector('#script-schedule textarea'))")
    after(lambda: b.type("-- mine: ü → ✓\n"))
    b.value("document.getElementById('p-workers').focus(); document.getElementById('p-workers').select()")
    after(lambda: b.type("6"))
    b.value("document.getElementById('p-stages').focus(); document.getElementById('p-stages').select()")
    after(lambda: b.type("6"))
    after(lambda: choose("cluster", "schedules/clusters/latency.lua"))
    b.value("document.getElementById('p-latency').focus(); document.getElementById('p-latency').select()")
    after(lambda: b.type("0.5"))
    expect("sharing makes a link", True, share_it())
    link, picture, line = b.value("location.hash"), ops(), text("command")
    expect("the link has URL-safe characters only", True, all(c.isalnum() or c in "-_" for c in link[1:]))
    expect("the link opens", True, open_page(link))
    expect("the link's script", edited, script())
    expect("the link's command line", line, text("command"))
    expect("the link's picture", picture, ops())
    expect("a broken link opens", True, open_page("#AAAA"))
    expect("and is reported", (True, "This link holds no schedule"), (text("verdict").startswith("Proved"), text("note")[:27]))
    open_page(link[:len(link) // 2])
    expect("a link that was cut is reported", "This link holds no schedule", text("note")[:27])
    after(lambda: choose("schedule", "schedules/gpipe.lua"))
    expect("the note stays until the next change", True, b.value("document.getElementById('note').hidden"))

    # A link comes from somebody else: everything in it is treated as plain text.
    name = '<img src=x onerror=window.harm=1>'
    with open("schedules/1f1b.lua") as file:
        given = f'local q = params {{ ["{name}"] = 3 }}\n' + file.read()
    open_page(b.value(f"linkOf({{ path: {{ schedule: {json.dumps(f'schedules/{name}.lua')} }}, text: {{ schedule: {json.dumps(given)} }}, set: {{}} }})"))
    for part in ("streams", "compare", "report"):
        tab(part)
        time.sleep(0.3)
    expect("a name in a link is shown as text", (0, True), (b.value("document.images.length"), name in text("controls") and name in text("caption")))
    expect("inline handlers do not run", True, b.value("""new Promise(done => { const e = document.createElement('div'); e.innerHTML = '<p onclick="window.harm = 1">'; e.firstChild.click(); setTimeout(() => done(window.harm === undefined), 50); })"""))
    b.problems = [p for p in b.problems if "inline event handler" not in p]

    # The address follows every change, so that a reload loses nothing.
    open_page()
    expect("an unchanged page has no state in its address", "", b.value("location.hash"))
    b.value("(a => { a.focus(); a.setSelectionRange(0, 0); })(document.querySelector('#script-schedule textarea'))")
    after(lambda: b.type("-- mine\n"))
    expect("the address keeps an edit", True, b.wait("location.hash.length > 20"))
    b.value("window.old = true")
    b.call("Page.reload")
    b.wait("!window.old && document.body && document.body.dataset.whole")
    expect("a reload keeps the edit", True, script().startswith("-- mine\n"))
    b.value("(a => { a.focus(); a.setSelectionRange(0, 8); })(document.querySelector('#script-schedule textarea'))")
    after(lambda: b.press("Backspace"))
    expect("undo removes it from the address", True, b.wait("location.hash === ''"))


def pinned():
    open_page()
    after(lambda: choose("schedule", "schedules/gpipe.lua"))
    b.value("document.getElementById('pin').click()")
    after(lambda: choose("schedule", "schedules/1f1b.lua"))
    expect("A and B differ", True, b.wait("document.getElementById('diff-text').textContent.includes('22 reordered')"))
    mine, theirs = text("diff-text").strip().split("\n"), run("diff", "schedules/gpipe.lua", "schedules/1f1b.lua", "--ascii", code=1).strip().split("\n")
    named = 3  # the sentence is the same; the lines after it name the two sides
    expect("the sentence equals the native one", theirs[:1] + theirs[named:], mine[:1] + mine[named:len(theirs)])
    expect("A and B share one time axis", True, b.wait("document.getElementById('diff-picture').viewer.frame?.timeline.n === 128"))
    b.value("(a => { a.focus(); a.setSelectionRange(0, 0); })(document.querySelector('#script-schedule textarea'))")
    after(lambda: b.type("oops()\n"), "failed")
    expect("if a script is broken, all old output fades", [0.42] * 3, b.value("['picture', 'diff-picture', 'diff-text'].map(name => Number(getComputedStyle(document.getElementById(name)).opacity))"))
    b.press("z", ctrl=True)
    b.wait("!document.body.classList.contains('stale')")
    b.picture(os.path.join(folder, "diff.png"))
    b.value("document.getElementById('pin').click()")
    expect("A can be removed", "Pin A", text("pin"))


def compare():
    open_page()
    tab("compare")
    expect("schedules are compared", True, b.wait("document.querySelectorAll('#table tbody tr').length > 5"))
    rows = dict(b.value("[...document.querySelectorAll('#table tbody tr')].map(r => [r.cells[0].textContent, r.cells[2].textContent])"))
    real = json.loads(run("compare", "schedules/1f1b.lua", *["schedules/" + n + ".lua" for n in rows if n != "1f1b"], "--json"))
    expect("with the native figures", {s["schedule"]: f"{100 * s['bubble']:.1f} %" for s in real["schedules"]}, rows)
    expect("and plotted", len(rows), b.value("document.querySelectorAll('#plot circle').length"))
    b.picture(os.path.join(folder, "compare.png"))
    b.value("document.querySelector('#choose [data-all=\"\"]').click()")
    expect("no schedule but this one", True, b.wait("document.querySelectorAll('#table tbody tr').length === 1"))
    b.value("document.querySelector('#choices input[value=\"schedules/zbv.lua\"]').click()")
    expect("one more is added at once", True, b.wait("document.querySelectorAll('#table tbody tr').length === 2"))
    expect("clicking a row opens its schedule", True, after(lambda: b.value("document.querySelector('#table [data-open=zbv]').click()")))
    expect("which is then the current one", ("zbv", "zbv"), (b.value("document.title.split(' ')[0]"), b.value("(r => r ? r.cells[0].textContent : '')(document.querySelector('#table tr.now'))")))
    tab("compare")
    b.value("document.querySelector('#choose [data-all=\"1\"]').click()")
    expect("all schedules, with the reason for each one left out", True, b.wait("document.querySelectorAll('#table tbody tr').length > 20 && document.querySelectorAll('#table .hint').length > 0"))
    tab("report")


def heavy():
    open_page()
    whole = script()
    b.value("(a => { a.focus(); a.setSelectionRange(0, 0); })(document.querySelector('#script-schedule textarea'))")
    expect("an endless script is stopped", True, after(lambda: b.type("while true do end\n"), "failed", 60))
    expect("by the compiler's limits", True, "does this loop end?" in text("error"))
    b.press("z", ctrl=True)
    b.wait("!document.body.classList.contains('stale')")
    expect("the edit is undone", whole, script())

    b.type("while true do end\n")
    expect("a long compile shows that it runs", True, b.wait("!document.getElementById('running').hidden", 5))
    b.value("document.getElementById('cancel').click()")
    expect("the button cancels it", "Cancelled", text("verdict"))
    expect("at once", True, b.value("document.getElementById('running').hidden"))
    expect("and it does not come back", False, b.wait(f"Number(document.body.dataset.failed) > {count('failed')}", 4))
    b.press("z", ctrl=True)
    b.wait("document.getElementById('verdict').textContent.startsWith('Proved')")
    b.type("while true do end\n")
    b.wait("!document.getElementById('running').hidden", 5)
    shown, stopped, begin = count("shown"), count("failed"), time.monotonic()
    b.press("z", ctrl=True)
    expect("an edit cancels it too", True, b.wait(f"Number(document.body.dataset.shown) > {shown}"))
    print(f"a heavy script gives way to an edit in {time.monotonic() - begin:.2f} s")
    expect("without waiting for its end", stopped, count("failed"))


def download():
    open_page()
    for name, end, format in (("Picture (SVG)", "1f1b.svg", "svg"), ("Streams", "1f1b.streams.txt", "streams"), ("Timeline (TSV)", "1f1b.tsv", "tsv"),
                              ("Trace for Chrome, Perfetto", "1f1b.trace.json", "chrome"), ("PyTorch’s schedule (CSV)", "1f1b.csv", "torch-csv")):
        choose("download", name)
        expect(f"download: {name}", run("show", "schedules/1f1b.lua", "--format", format).encode(), b.downloaded(end))
    choose("download", "Picture (PNG)")
    png, svg = b.downloaded("1f1b.png"), run("show", "schedules/1f1b.lua", "--format", "svg")
    width = float(svg.split('width="')[1].split('"')[0])
    expect("download: PNG at twice the size", (b"\x89PNG", int(2 * width)), (png[:4], struct.unpack(">I", png[16:20])[0] if png else 0))


from_change_to_frame = """new Promise(resolve => {
  const field = document.getElementById('p-batches'), begin = performance.now();
  new MutationObserver((changes, observer) => {
    observer.disconnect();
    requestAnimationFrame(() => setTimeout(() => { resolve(performance.now() - begin); }));
  }).observe(document.body, { attributeFilter: ['data-shown'] });
  field.value = %d;
  field.dispatchEvent(new Event('input', { bubbles: true }));
})"""


def large():
    """Checks 10^4 jobs: all of them are in sight at once, and the page stays responsive."""
    open_page()
    b.value("document.getElementById('p-workers').focus(); document.getElementById('p-workers').select()")
    b.type("8")
    b.value("document.getElementById('p-stages').focus(); document.getElementById('p-stages').select()")
    after(lambda: b.type("8"))
    time.sleep(1)
    took = []
    for i in range(9):
        took.append(b.value(from_change_to_frame % (620 + i)))
        b.wait("document.body.dataset.whole === document.body.dataset.shown")
        time.sleep(0.5)
    took.sort()
    print(f"10^4 jobs: from a change to the frame that shows it {took[4]:.0f} ms, the fastest of 9 {took[0]:.0f} ms, the slowest {took[8]:.0f} ms")
    expect("all jobs are drawn", 2 * 8 * 628, b.value(f"{picture}.frame.timeline.n"))
    expect("and are in sight", True, b.value(f"(f => f.from === 0 && f.to === f.timeline.end)({picture}.frame)"))
    seen = b.value(f"""(f => {{ const e = f.layout.entries[0], d = {picture}.parts.rows.getContext('2d').getImageData(Math.round(xAt(f, f.to / 2)), Math.round(RULER + e.y + e.h / 2), 40, 1).data;
        return [0, 1, 2].map(k => {{ let sum = 0; for (let i = 0; i < 40; i++) sum += d[4 * i + k] / 40; return Math.round(sum); }}); }})({picture}.frame)""")
    expect("a pixel mixes its jobs: a third forwards, two thirds backwards", True, all(abs(x - y) <= 6 for x, y in zip((0, 143, 136), seen)))


def looks():
    open_page()
    b.value("document.getElementById('p-workers').focus(); document.getElementById('p-workers').select()")
    after(lambda: b.type("40"))
    expect("all rows of many ranks are in sight", True, b.value(f"(f => f.layout.bottom <= f.layout.height)({picture}.frame)"))
    b.value(f"{picture}.parts.tall.click()")
    expect("or are tall and scroll", True, b.wait(f"(f => f.layout.bottom > f.layout.height)({picture}.frame)", 3))
    x, y, w, h = b.box(f"{picture}.parts.rows")
    there = f"(h => h.entry && h.entry.who)({picture}.hit({w * 0.6}, {h * 0.7}))"
    row = b.value(there)
    b.mouse("mouseWheel", x + w * 0.6, y + h * 0.7, deltaX=0, deltaY=-200)
    time.sleep(0.3)
    expect("the wheel zooms around the mouse", (True, row), (row is not None, b.value(there)))
    open_page()
    tab('report')
    for width, height in ((400, 850), (1000, 800), (1800, 1000)):
        for dark in (False, True):
            b.size(width, height, dark)
            time.sleep(0.3)
            expect(f"nothing overflows at {width}", True, b.value(f"document.documentElement.scrollWidth <= {width}"))
            b.picture(os.path.join(folder, f"{width}{'-dark' if dark else ''}.png"))
    b.size(400, 850)
    b.value("(a => { a.focus(); a.setSelectionRange(0, 0); })(document.querySelector('#script-schedule textarea'))")
    after(lambda: b.type("oops()\n"), "failed")
    b.value("scrollTo(0, 0); document.getElementById('go').click()")
    expect("on a phone, an error's line is one tap away too", True, b.wait("(r => r.top > 0 && r.bottom < 850)(document.querySelector('#script-schedule textarea').getBoundingClientRect())", 3))
    open_page()
    b.size(900, 900)
    expect("no line of the script is cut off", True, b.value("(e => e.scrollWidth <= e.clientWidth)(document.querySelector('#script-schedule textarea'))"))
    expect("and lines stay next to their numbers", True, b.value("""(e => [...e.querySelectorAll('.layer > div')].every((line, i) => line.offsetHeight === e.querySelectorAll('.lines > i')[i].offsetHeight))(document.getElementById('script-schedule'))"""))
    b.size(1400, 900)
    # WCAG 2.1, 1.4.3: text has a contrast of at least 4.5; computed from the colours that the browser resolves.
    contrast = """(theme => { document.documentElement.dataset.theme = theme; const s = getComputedStyle(document.documentElement);
      const lum = name => { const h = s.getPropertyValue(name).trim().slice(1), f = h.length === 3 ? [...h].map(c => c + c) : h.match(/../g);
        const [r, g, b] = f.map(c => parseInt(c, 16) / 255).map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
      const ratio = (a, b) => { const [x, y] = [lum(a), lum(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
      return [['--ink', '--paper'], ['--faint', '--back'], ['--faint', '--paper'], ['--good', '--goodback'], ['--alarm', '--badback'], ['--word', '--paper'],
        ['--string', '--paper'], ['--number', '--paper'], ['--comment', '--paper'], ['--known', '--paper']].filter(p => ratio(...p) < 4.5).map(p => p.join(' on ')); })"""
    expect("contrast, light", [], b.value(contrast + "('light')"))
    expect("contrast, dark", [], b.value(contrast + "('dark')"))
    choose("theme", "dark")
    b.call("Page.reload")
    time.sleep(0.3)
    b.wait("document.body && document.body.dataset.whole")
    expect("the chosen theme is remembered", "dark", b.value("document.documentElement.dataset.theme"))
    choose("theme", "")
    expect("until it is reset", "", b.value("document.documentElement.dataset.theme"))
    b.printed(os.path.join(folder, "print.pdf"))
    after(lambda: choose("schedule", "schedules/gpipe.lua"))
    b.value("document.getElementById('p-workers').focus(); document.getElementById('p-workers').select()")
    after(lambda: b.type("64"))
    b.printed(os.path.join(folder, "print64.pdf"))
    with open(os.path.join(folder, "print64.pdf"), "rb") as file:
        expect("64 ranks print on one page", 1, len(re.findall(rb"/Type\s*/Page\b", file.read())))
    open_page()
    b.call("Emulation.setEmulatedMedia", media="print")
    b.value("dispatchEvent(new Event('beforeprint'))")
    b.picture(os.path.join(folder, "print.png"))
    expect("only the picture and its caption are printed", ["picture", "caption"], b.value("['picture', 'caption', 'script-schedule', 'controls', 'schedule', 'verdict', 'report-text', 'tabs'].filter(name => document.getElementById(name).getBoundingClientRect().height > 0)"))
    b.value("dispatchEvent(new Event('afterprint'))")
    b.call("Emulation.setEmulatedMedia", media="")


parts = (start, pick, drag, machines, others, edit, keys, drawn, split, hover, streams, share, pinned, compare, heavy, download, large, looks)
try:
    b.size(1400, 900)
    open_page()
    for part in parts:
        if len(sys.argv) == 3 or part.__name__ in sys.argv[3:]:
            part()
    expect("the console has no errors", [], b.problems)
    expect("no request leaves the page", [], [url for url in b.requests if not url.startswith("file://" + page)])
    expect("the page's policy forbids requests", True, b.value("""new Promise(done => {
      addEventListener('securitypolicyviolation', () => done(true));
      fetch('http://127.0.0.1:9/').catch(() => setTimeout(() => done(false), 500)); })"""))
finally:
    b.close()
print(f"{passed} passed, {failed} failed")
sys.exit(failed > 0)
