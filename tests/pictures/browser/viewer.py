"""Uses the pages of `show`, `diff` and `frontier` as a person does, in a real browser: viewer.py FOLDER [PART...]. Pages and
screenshots go to FOLDER. Prints `N passed, M failed`. Expected places and figures come from timeline.tsv and from
arithmetic, not from the viewer."""
import json
import os
import re
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "live_page"))
from browser import Browser  # noqa: E402

folder = os.path.abspath(sys.argv[1])
native = os.environ.get("PIANOLA", "build/pianola")
passed = failed = 0
b = Browser()
CURVE = ["schedules/zbv.lua", "schedules/v_half.lua", "schedules/1f1b.lua"]
LATENCY = ["--cluster", "schedules/clusters/latency.lua", "-D", "latency=1"]


def expect(what, wanted, got):
    global passed, failed
    if wanted == got:
        passed += 1
    else:
        failed += 1
        print(f"{what}: expected {wanted!r:.600}, got {got!r:.600}", flush=True)


def run(*args):
    done = subprocess.run([native, *args], capture_output=True, text=True)
    assert done.returncode < 2, (args, done.stderr)
    return done.stdout


def page(name, *args, command="show"):
    """Makes a page and opens it; returns its path."""
    path = os.path.join(folder, name + ".html")
    run(command, *args, *(["--html", path] if command != "show" else ["--format", "html", "-o", path]))
    open_page(path)
    return path


def open_page(path):
    b.open("file://" + path)
    b.wait("typeof view === 'object' && view.parts.stage.parentElement.dataset.frame")


def painted():
    """Waits until the viewer has drawn its next frames and settled."""
    b.value("new Promise(done => requestAnimationFrame(() => setTimeout(done, 0)))")


def sight():
    return b.value("[view.frame.from, view.frame.to].map(t => t * view.frame.timeline.tick)")


def near(wanted, got):
    return all(abs(x - y) < 0.02 for x, y in zip(wanted, got))


def info():
    return b.value("view.parts.info.textContent")


def centre(name):
    """Returns the middle of an operation, in the window, and scrolls nothing."""
    return b.value(f"""(() => {{ const t = view.frame.timeline; let i = 0; while (i < t.n && nameOf(t, i) !== '{name}') i++;
        const o = view.boxes(i)[0], r = view.parts.rows.getBoundingClientRect(); return [r.left + o.x + o.w / 2, r.top + o.y + o.h / 2]; }})()""")


def at_time(t, y):
    """Returns the place of a time, in units, at a height in the canvas."""
    return b.value(f"(r => [r.left + xAt(view.frame, {t} / view.frame.timeline.tick), r.top + {y}])(view.parts.rows.getBoundingClientRect())")


def colour(t, rank):
    """Returns the colour at a time in a rank's row, averaged over 60 pixels beside it."""
    return b.value(f"""(() => {{ const f = view.frame, e = f.layout.entries.find(e => e.row.ranks.some(([a, z]) => a <= {rank} && {rank} <= z)), sum = [0, 0, 0];
        const x = Math.round(xAt(f, {t} / f.timeline.tick) * f.dpr) - 30, y = Math.round((RULER + e.y + e.h / 2 - f.y) * f.dpr);
        const d = view.parts.rows.getContext('2d').getImageData(x, y, 60, 1).data;
        for (let i = 0; i < 60; i++) for (let k = 0; k < 3; k++) sum[k] += d[4 * i + k] / 60;
        return sum.map(Math.round); }})()""")


def close(wanted, got, by=3):
    return all(abs(x - y) <= by for x, y in zip(wanted, got))


F, B, IDLE = (0x00, 0x72, 0xb2), (0x00, 0x9e, 0x73), (0xe9, 0xec, 0xef)


def opens():
    page("show", "schedules/1f1b.lua", *LATENCY)
    end = float(json.loads(run("show", "schedules/1f1b.lua", *LATENCY, "--format", "json"))["makespan"])
    expect("all of the time is in sight at first", True, near([0, end], sight()))
    expect("every rank is in sight", 4, b.value("sightedEntries(view.frame).filter(e => topOf(view.frame, e) + e.h <= view.frame.layout.height).length"))
    x, y, w, h = b.box("view.parts.rows")
    expect("ranks lie below one another in the window", True, y + h < 900)
    rows = [line.split("\t") for line in run("show", "schedules/1f1b.lua", *LATENCY, "--format", "tsv").split("\n")]
    jobs = {f"{r[5]}{r[4]}{r[6]}": (int(r[0]), float(r[2]), float(r[3])) for r in rows if len(r) > 6 and r[1] == "compute" and r[4] in "FB"}
    wrong = [name for name, (rank, start, stop) in jobs.items() if not b.value(f"""(() => {{ const t = view.frame.timeline; let i = 0; while (i < t.n && nameOf(t, i) !== '{name}') i++;
        const o = view.boxes(i)[0], x = s => xAt(view.frame, s / t.tick); return i < t.n && Math.abs(o.x - x({start})) < .01 && Math.abs(o.x + o.w - x({stop})) < .01 && t.rows[{rank}] === rowOf(t, i); }})()""")]
    expect("every job lies at the timeline's times", (64, []), (len(jobs), wrong))
    for name in ("0F0", "2B5", "3F7", "0B7"):
        b.mouse("mouseMoved", *centre(name))
        expect(f"pointing at {name} explains it", True, info().startswith(name + ":"))


def pointing():
    page("show", "schedules/1f1b.lua", *LATENCY)
    b.mouse("mouseMoved", *at_time(7, 12))
    expect("the ruler shows the time", True, info().endswith(" units") and abs(float(info().split()[0]) - 7) < 0.1)
    x, y, w, h = b.box("view.parts.rows")
    b.mouse("mouseMoved", x + w - 2, y + h - 2)
    expect("blank space shows no job", False, ":" in info().split(" ")[0])
    b.mouse("mouseMoved", *at_time(10, 40))
    expect("idle time shows until when, and what the rank waits for", True, info().startswith("rank 0 idle, 4 to ") and "then 0B0, which needs 1B0" in info())
    b.mouse("mouseMoved", x + 20, y + 40)
    expect("a rank's name shows how busy it is", True, info().startswith("rank 0: busy "))
    b.mouse("mouseMoved", *centre("1F3"))
    expect("an operation shows its needs and their messages", True, "needs 0F3: forward of stage 0, microbatch 3; " in info() and
           ", by act(0,3), 1 B, from rank 0 to rank 1; " in info())


def moves():
    page("show", "schedules/1f1b.lua", *LATENCY)
    x, y, w, h = b.box("view.parts.rows")
    end = sight()[1]
    rows = b.value("JSON.stringify(view.frame.layout.entries.map(e => [e.y, e.h]))")
    there = b.value(f"timeAt(view.frame, {w / 2})")
    b.mouse("mouseWheel", x + w / 2, y + 80, deltaX=0, deltaY=-500)
    b.wait(f"view.frame.to - view.frame.from < {end} * .9 / view.frame.timeline.tick")
    expect("the wheel zooms time", True, sight()[1] - sight()[0] < end / 2)
    expect("the wheel zooms to the mouse's position", True, abs(b.value(f"timeAt(view.frame, {w / 2})") - there) < 0.01 * end / b.value("view.frame.timeline.tick"))
    expect("the wheel zooms time only", (rows, 0), (b.value("JSON.stringify(view.frame.layout.entries.map(e => [e.y, e.h]))"), b.value("view.frame.y")))
    share = b.value("view.parts.view.offsetWidth / view.parts.map.offsetWidth")
    expect("the map shows the part in sight", True, abs(share - (sight()[1] - sight()[0]) / end) < 0.02)
    b.mouse("mouseMoved", x + 20, y + 40)
    expect("names stay in sight", True, info().startswith("rank 0: busy"))
    before = sight()
    b.drag(x + w / 2, y + 80, x + w / 2 - 120, y + 84)
    moved = 120 * (before[1] - before[0]) / b.value("plotWidth(view.frame)")
    expect("dragging pans", True, near([before[0] + moved, before[1] + moved], sight()))
    mx, my, mw, mh = b.box("view.parts.map")
    b.drag(mx + mw / 2, my + 10, mx + mw * 0.25, my + 10)
    expect("dragging on the map moves there", True, abs(sum(sight()) / 2 - end / 4) < 0.2)
    b.value("document.body.focus()")
    b.press("0")
    expect("0 shows the whole step", True, near([0, end], sight()))
    b.press("w")
    expect("w zooms in", True, near([end * 0.1, end * 0.9], sight()))
    b.press("d")
    expect("d pans right", True, near([end * 0.2, end * 1.0], sight()))
    b.press("a")
    b.press("s")
    expect("a pans left, s zooms out", True, near([0, end], sight()))
    b.value("view.parts.find.focus()")
    b.type("w")
    expect("keys in the search field are typed", True, near([0, end], sight()))


def finds():
    page("show", "schedules/1f1b.lua", *LATENCY)
    b.value("view.parts.find.focus()")
    b.type("2b5")
    b.press("Enter")
    expect("a job is found by name", True, info().startswith("2B5: full backward of stage 2, microbatch 5; rank 2"))
    expect("and is in sight", True, b.value("(o => o.x >= view.frame.layout.left && o.x + o.w <= view.frame.width && o.w > 10)(view.boxes(view.frame.place.op)[0])"))
    b.value("view.parts.find.select()")
    b.type("9Z9")
    b.press("Enter")
    expect("a missing job is reported", "no 9Z9", b.value("view.parts.said.textContent"))
    b.value("view.parts.stage.focus()")
    b.press("ArrowLeft")
    expect("left goes to the operation it waited for", "3B5", info().split(":")[0])
    b.press("ArrowRight")
    expect("right goes to an operation that needs it", "2B5", info().split(":")[0])
    b.press("ArrowUp")
    expect("up goes to the rank above", True, "; rank 1; " in info().split("\n")[0])
    b.press(".")
    expect("a full stop goes to the next one", True, "; rank 1; " in info().split("\n")[0])
    b.press("f")
    f, t = sight()
    start, stop = b.value("(t => [t.ops.start, t.ops.end].map(a => a[view.frame.place.op] * t.tick))(view.frame.timeline)")
    expect("f goes to the selection", True, f < start and t > stop and t - f < 8 * (stop - start))
    b.press("Escape")
    expect("Escape clears the selection", -1, b.value("view.frame.place.op"))
    b.press("0")
    names = []
    for _ in range(18):
        b.press(".")
        names.append(info().split(":")[0])
    expect("step by step along the rank, then to the next rank", "0F0 0F1 0F2 0F3 0B0 0F4 0B1 0F5 0B2 0F6 0B3 0F7 0B4 0B5 0B6 0B7 1F0 1F1".split(), names)
    b.press("Escape")
    b.mouse("mousePressed", *centre("1F3"), button="left", clickCount=1, buttons=1)
    b.mouse("mouseReleased", *centre("1F3"), button="left", clickCount=1)
    b.mouse("mouseMoved", *centre("0B7"))
    expect("a click selects an operation", "1F3", info().split(":")[0])
    expect("the selection has arrows to and from its needs and users", ["0F3", "1B3", "2F3"], b.value("""(p => [...p.needs.map(([, j]) => needsOf(view.frame.timeline).op[j]), ...p.users.map(([i]) => i)]
        .map(i => nameOf(view.frame.timeline, i)).sort())(view.frame.place)"""))


def measures():
    """From 4 to 10 units, rank 0 idles for 6, rank 1 for 4, rank 2 for 2 of 6 units, each until the next stage's backward."""
    page("show", "schedules/1f1b.lua")
    wanted = "6 units: 4 to 10 units\nranks are busy 50.0 %; they wait 50.0 % for full backward elsewhere"
    x0, y = at_time(4, 12)
    x1, _ = at_time(10, 12)
    b.drag(x0, y, x1, y)
    b.value("view.frame.range = view.frame.range.map(Math.round)")
    expect("dragging on the ruler measures a range", wanted, b.value("rangeText(view.frame.timeline, ...view.frame.range)"))
    expect("and the panel shows the result", wanted.split("\n")[1][:30], info().split("\n")[1][:30])
    b.press("f")
    expect("f zooms to the range", True, near([4, 10], sight()))
    b.press("Escape")
    expect("Escape clears the range", None, b.value("view.frame.range"))
    b.press("0")
    b.mouse("mousePressed", x0, y + 60, button="left", clickCount=1, buttons=1, modifiers=8)
    for i in range(1, 5):
        b.mouse("mouseMoved", x0 + (x1 - x0) * i / 4, y + 60, button="left", buttons=1, modifiers=8)
    b.mouse("mouseReleased", x1, y + 60, button="left", clickCount=1, modifiers=8)
    expect("dragging with Shift also measures", [4, 10], b.value("view.frame.range.map(Math.round)"))
    # With free links and a latency, some of the wait is for messages.
    page("show", "schedules/1f1b.lua", *LATENCY)
    expect("time for messages on the way is listed apart", True, "for messages: grad" in b.value("rangeText(view.frame.timeline, 0, view.frame.timeline.end)"))
    b.value("view.parts.table.open = true")
    expect("a table lists the ranks", True, b.wait("view.parts.table.querySelectorAll('table')[0]?.rows.length === 5"))
    expect("and the operations in sight", 65, b.value("view.parts.table.querySelectorAll('table')[1].rows.length"))
    expect("with their needs", "0F3", b.value("[...view.parts.table.querySelectorAll('table')[1].rows].find(r => r.cells[0].textContent === '1F3').cells[4].textContent"))


def mixes():
    path = page("large", "schedules/1f1b.lua", "-D", "workers=64", "-D", "batches=256")
    expect("a page of 64 ranks and 256 microbatches is small", True, os.path.getsize(path) < 300000)
    expect("the whole step is in sight", True, near([0, 957], sight()))
    expect("warm-up: only forwards", True, close(F, colour(30, 0)))
    mixed = [F[k] / 3 + 2 * B[k] / 3 for k in range(3)]
    expect("steady state: a third forwards, two thirds backwards", True, close(mixed, colour(500, 0), 6))
    expect("idle time stays visible", True, close(IDLE, colour(120, 0)))
    half = [IDLE[k] / 3 + 2 * B[k] / 3 for k in range(3)]
    expect("drain: backwards with idle time between them", True, close(half, colour(900, 0), 8))
    b.picture(os.path.join(folder, "large.png"))
    b.value("for (let i = 0; i < 17; i++) dispatchEvent(new KeyboardEvent('keydown', { key: 'w' }))")
    b.value("view.parts.tall.click()")
    painted()
    expect("tall rows scroll", True, b.value("view.frame.layout.bottom > view.frame.layout.height && view.frame.layout.job === 22"))
    x, y, w, h = b.box("view.parts.rows")
    b.drag(x + w / 2, y + h - 30, x + w / 2, y + 60)
    expect("dragging scrolls them", True, b.value("view.frame.y") > 100)
    b.mouse("mouseMoved", x + 20, y + 80)
    expect("and shows other ranks", False, info().startswith("rank 0:"))
    # More operations in one row than a window has pixels, drawn as averages.
    page("long", "schedules/1f1b.lua", "-D", "workers=2", "-D", "batches=8000")
    expect("8,000 microbatches: the mixed colour", True, close(mixed, colour(12000, 0), 3))
    b.value("new Promise(done => setTimeout(done, 1000))")
    b.press("w")
    painted()
    expect("the same once sums are ready", (True, True), (b.value("view.frame.mixers[0].sums.size > 0"), close(mixed, colour(12000, 0), 3)))


def pans():
    """After pans, which reuse the pixels of the frame before, the picture is the one that a new frame gives."""
    pixels = "[...view.parts.rows.getContext('2d').getImageData(0, 0, view.parts.rows.width, view.parts.rows.height).data]"
    for name, *args in (("pan", "schedules/1f1b.lua", "-D", "workers=24", "-D", "batches=48"), ("pan-diff", "schedules/gpipe.lua", "schedules/1f1b.lua")):
        page(name, *args, command="diff" if "diff" in name else "show")
        for _ in range(4):
            b.press("w")
        x, y, w, h = b.box("view.parts.rows")
        for dx in (37, 211, -90, -300, 64):
            b.mouse("mouseWheel", x + w / 2, y + 80, deltaX=dx, deltaY=0)
            painted()
        b.value(f"window.panned = {pixels}")
        b.value("view.parts.by.dispatchEvent(new Event('change'))")
        painted()
        off = b.value(f"(now => panned.filter((v, i) => Math.abs(v - now[i]) > 8).length)({pixels})")
        expect(f"{name}: values of pixels that differ after pans", 0, off)


def folds():
    page("shared", "schedules/1f1b.lua", "-D", "workers=8", "-D", "batches=4", "-D", "tensor=8")
    expect("equal ranks share a row", 8, b.value("view.frame.layout.entries.length"))
    expect("with the number of ranks", [8] * 8, b.value("view.frame.layout.entries.map(e => e.count)"))
    b.value("view.parts.fold.click()")
    expect("folded ranks unfold", 64, b.value("view.frame.layout.entries.length"))
    b.value("view.parts.fold.click()")
    page("lanes", "schedules/1f1b.lua", *LATENCY, "--with", "lanes")
    sent = run("show", "schedules/1f1b.lua", *LATENCY, "--format", "tsv")
    lanes = {tuple(line.split("\t")[:2]) for line in sent.split("\n") if line.split("\t")[1:2] != ["compute"] and line[:1].isdigit() and line.split("\t")[2] != line.split("\t")[3]}
    expect("only lanes with a message are drawn", len(lanes), b.value("view.frame.layout.entries.reduce((sum, e) => sum + e.lanes.length, 0)"))
    expect("no drawn lane is empty", 0, b.value("view.frame.timeline.rows.flatMap(r => r.lanes.slice(1)).filter(l => l.first === l.end).length"))


def needs():
    """Needs of 1F1B, by its definition: F of the stage before; own F and B of the stage after."""
    page("needs", "schedules/1f1b.lua", "-D", "workers=24", "-D", "batches=48")
    wrong = b.value("""(() => { const t = view.frame.timeline, needs = needsOf(t), wrong = [];
        for (let i = 0; i < t.n; i++) {
          const [, s, op, m] = nameOf(t, i).match(/^(\\d+)([FB])(\\d+)$/), wanted = op === 'F' ? (s > 0 ? [`${s - 1}F${m}`] : []) : [`${s}F${m}`, ...(s < 23 ? [`${+s + 1}B${m}`] : [])];
          const got = []; for (let j = needs.at[i]; j < needs.at[i + 1]; j++) got.push(nameOf(t, needs.op[j]));
          if (String([...new Set(got)].sort()) !== String(wanted.sort())) wrong.push(nameOf(t, i) + ' ' + got);
          for (let j = needs.at[i]; j < needs.at[i + 1]; j++) if (needs.tensor[j] >= 0 && needs.from[j] === needs.to[j]) wrong.push(nameOf(t, i));
        } return wrong.slice(0, 3); })()""")
    expect("every job's needs", [], wrong)


def circles():
    """The same circle as in tests/unit/test_view_times.c: two operations that need each other."""
    page("circles", "schedules/1f1b.lua")
    expect("a circle of needs ends", [0, 1, 2, 3], b.value("""(() => { const t = { at: [0, 1, 2], op: [1, 0], tensor: [-1, -1], sent: [0, 0], arrived: [0, 0], start: [0, 0], end: [0, 0],
        gap: [0, -1], length: [2, 2] }; settleAll(t, [{ first: 0, end: 1 }, { first: 1, end: 2 }]); return [...t.start, ...t.end]; })()"""))


def labels():
    page("labels", "schedules/zbv.lua", "-D", "workers=8", "-D", "batches=16")
    b.value("""(() => { window.fonts = new Set(); const draw = CanvasRenderingContext2D.prototype.fillText;
        CanvasRenderingContext2D.prototype.fillText = function (...a) { fonts.add(parseFloat(this.font.match(/([\\d.]+)px/)[1])); return draw.apply(this, a); }; })()""")
    for width in (1440, 390):
        b.size(width, 800)
        for _ in range(6):
            b.value("view.paint()")
            b.press("w")
    expect("text has at least 10 pixels", True, min(b.value("[...fonts]")) >= 10)
    b.size(1440, 900)


def words():
    gpt = ["schedules/1f1b.lua", "--model", "schedules/models/gpt.lua", "--cluster", "schedules/clusters/nodes.lua"]
    page("words", *gpt)
    text = b.value("document.body.innerText")
    expect("bytes have one unit style", (True, False), ("MiB" in text, " MB" in text))
    for x in (0, 1.25e-8, 5e-5, 9.99996e-5, 0.5625, 0.03125, 10.125, 999.96, 12345, 1.5e15):
        expect(f"{x} with four digits, as the compiler writes it", "%.4g" % x, b.value(f"significant({x!r})"))
    for x in (10.25, 10.75, 1023.9):
        expect(f"{x} with a decimal", ["%.1f KiB" % x, "%.1f %%" % x], b.value(f"[amountOf({x!r} * 1024), percentOf({x!r} / 100)]"))
    expect("a million billion units", "1e+15 units", b.value("timeWithUnit({ tick: 1, unit: 'units' }, 1e15)"))
    report = run("show", *gpt)
    line = next(l for l in report.split("\n") if l.startswith("bubble"))
    rows = [r.split("\t") for r in run("show", *gpt, "--format", "tsv").split("\n")]
    expect("the report names the bubble's share that links cause", True, "; links take " in line and " % of the critical path" in line)
    expect("the page shows the same note", line.split("; ")[-1].lower(), b.value("document.getElementById('note').textContent").lower())
    expect("with free links there is no note", False, "links take" in run("show", "schedules/1f1b.lua"))
    expect("there are times", True, len(rows) > 64)


def without():
    """Without scripts, there is a picture, if it is small, and the report."""
    small, large = page("small", "schedules/1f1b.lua"), page("large", "schedules/1f1b.lua", "-D", "workers=64", "-D", "batches=256")
    curve = page("curve", *CURVE, command="frontier")
    b.call("Emulation.setScriptExecutionDisabled", value=True)
    for path, picture in ((small, True), (large, False), (curve, True)):
        b.open("file://" + path)
        expect("without scripts: a picture", picture, b.value("(e => Boolean(e) && e.getBoundingClientRect().height > 100)(document.querySelector('svg'))"))
        expect("without scripts: the report", True, b.value("document.querySelector('#report pre').textContent.includes('makespan')"))
    b.call("Emulation.setScriptExecutionDisabled", value=False)


def prints():
    page("print", "schedules/1f1b.lua", "-D", "workers=64", "-D", "batches=64")
    b.press("w")
    before = sight()
    b.value("dispatchEvent(new Event('beforeprint'))")
    expect("the whole step is printed", True, near([0, b.value("view.frame.timeline.end")], sight()))
    b.value("dispatchEvent(new Event('afterprint'))")
    expect("after printing, the earlier view returns", True, near(before, sight()))
    b.printed(os.path.join(folder, "print.pdf"))


def looks():
    contrast = """(() => { const light = c => { const [r, g, b] = c.match(/[\\d.]+/g).map(Number).map(v => v / 255).map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
      return 0.2126 * r + 0.7152 * g + 0.0722 * b; }, ground = e => { const c = getComputedStyle(e).backgroundColor; return /, 0\\)$/.test(c) ? ground(e.parentElement) : c; };
      const ratio = (a, b) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);
      return [...document.querySelectorAll('h1, p, figcaption, code, dt, dd, pre, button, label, .v-legend span, summary')].filter(e => e.offsetParent && ratio(getComputedStyle(e).color, ground(e)) < 4.5).map(e => e.className || e.tagName); })()"""
    for name, *args in (("show", "schedules/1f1b.lua", *LATENCY), ("diff", "schedules/1f1b.lua", "schedules/zb_h1.lua"),
                        ("frontier", *CURVE)):
        for width in (390, 1000, 1440):
            for dark in (False, True):
                b.size(width, 900, dark)
                page(name, *args, command=name)
                what = f"{name}, {width} px{', by night' if dark else ''}: "
                expect(what + "nothing sticks out", True, b.value(f"document.documentElement.scrollWidth <= {width}"))
                expect(what + "nothing is hard to read", [], b.value(contrast))
                expect(what + "the picture fills its place", True, b.value("view.parts.rows.getBoundingClientRect().width") > width - 40)
                expect(what + "night", dark, sum(b.value("[...view.parts.rows.getContext('2d').getImageData(2, 2, 1, 1).data].slice(0, 3)")) < 200)
                b.picture(os.path.join(folder, f"{name}-{width}{'-dark' if dark else ''}.png"))
    b.size(1440, 900)


def joined():
    """A diff: one time axis and zoom for both sides, what moved or was reordered, causes."""
    page("diff", "schedules/gpipe.lua", "schedules/1f1b.lua", command="diff")
    expect("three panels", [4, 4, 4], b.value("[0, 1, 2].map(p => view.frame.layout.entries.filter(e => e.panel === p).length)"))
    b.press("w")
    x = b.value("(t => [0, 1].map(side => { let i = t.sides[side].first; while (nameOf(t, i) !== '0F0') i++; return view.boxes(i).map(o => o.x); }).flat())(view.frame.timeline)")
    expect("all panels share one axis", 1, len(set(x)))
    b.press("0")
    b.mouse("mouseMoved", *centre("0B0"))
    lines = info().split("\n")
    expect("pointing explains the shift", True, "ends -7 units; pushed by 3F7 of rank 3" in lines[0])
    expect("and names its root", "root: 3F7", lines[-1].split(":")[0] + ":" + lines[-1].split(":")[1])
    pair = ["schedules/1f1b.lua", "schedules/interleaved.lua", "-D", "batches=16"]
    page("diff", *pair, command="diff")
    titles = b.value("Array.from({ length: view.frame.timeline.n }, (_, i) => titleOf(view.frame.timeline, i))")
    run("diff", *pair, "--svg", os.path.join(folder, "titles.svg"))
    with open(os.path.join(folder, "titles.svg")) as svg:
        drawn = set(re.findall(r"<title>(\d+[FRBIW]\d+: [^<]*)", svg.read()))
    expect("every job has the title that the static picture gives it", (set(), True), (drawn - set(titles), len(drawn) > 100))


def chooses():
    """The page of a curve: steps and circles show their timelines, by mouse and by keys."""
    page("curve", *CURVE, command="frontier")
    end, pressed, line = "view.frame.timeline.end * view.frame.timeline.tick", "[...document.querySelectorAll('[aria-pressed=true]')].map(e => e.id)", "document.getElementById('shown').textContent"
    points = json.loads(run("frontier", *CURVE, "--json"))["points"]
    own = {k["schedule"]: k["makespan"] for p in points for k in p["known"]}
    expect("at first, the first script's timeline", (own["zbv"], ["mark-0"]), (b.value(end), b.value(pressed)))
    for i, point in enumerate(points):
        if point["makespan"] is None:
            expect("no step without an order", None, b.value(f"document.getElementById('step-{i}')"))
            continue
        x, y, w, h = b.box(f"document.getElementById('step-{i}')")
        b.drag(x + w * 0.6, y + h / 2, x + w * 0.6, y + h / 2, steps=0)
        painted()
        expect(f"a click on the step at cap {point['cap']}: its timeline", (point["makespan"], [f"step-{i}"]), (b.value(end), b.value(pressed)))
        expect("and its line", True, b.value(line).startswith(f"cap {point['cap']}: makespan {point['makespan']} units, optimal; bubble "))
        expect("and its name for screen readers", f"cap {point['cap']}: makespan {point['makespan']} units, optimal", b.value(f"document.getElementById('step-{i}').getAttribute('aria-label')"))
    b.value("document.body.focus()")
    before = sight()
    b.press("w")
    expect("the viewer's keys work", True, sight()[1] - sight()[0] < before[1] - before[0])
    x, y, w, h = b.box("document.querySelector('#mark-2 circle')")
    b.drag(x + w / 2, y + h / 2, x + w / 2, y + h / 2, steps=0)
    painted()
    expect("a click on a circle: its timeline, in its own units", (own["1f1b"] / 2, ["mark-2"]), (b.value(end), b.value(pressed)))
    b.press("Tab", shift=True)
    expect("Tab goes from one to the next", "mark-1", b.value("document.activeElement.id"))
    for key, what in (("Enter", "mark-1"), (" ", "mark-0")):
        b.value(f"document.getElementById('{what}').focus()")
        b.press(key)
        expect(f"{key!r} selects", ([what], own[{"mark-1": "v_half", "mark-0": "zbv"}[what]]), (b.value(pressed), b.value(end)))
    painted()
    expect("Space does not scroll", 0, b.value("scrollY"))
    b.size(390, 900)
    open_page(os.path.join(folder, "curve.html"))
    x, y, w, h = b.box("document.querySelector('#mark-0 circle')")
    expect("in a narrow window, what is shown is in sight", True, 0 < x and x + w < 390)
    b.size(1440, 900)


def keeps():
    """Another timeline of a curve keeps the look that the user chose."""
    page("curve", *CURVE, command="frontier")
    b.value("view.parts.by.value = 'mb'; view.parts.by.dispatchEvent(new Event('change'))")
    b.value("document.getElementById('step-2').focus()")
    b.press("Enter")
    expect("the chosen colours stay", "mb", b.value("view.parts.by.value + (view.frame.look.by === 'mb' ? '' : ', but not in the picture')"))


parts = (opens, pointing, moves, finds, measures, mixes, pans, folds, needs, circles, labels, words, without, prints, looks, joined, chooses, keeps)
try:
    b.size(1440, 900)
    for part in parts:
        if len(sys.argv) == 2 or part.__name__ in sys.argv[2:]:
            part()
    expect("the console has no errors", [], b.problems)
    expect("no request leaves the page", [], [url for url in b.requests if not url.startswith("file://" + folder)])
finally:
    b.close()
print(f"{passed} passed, {failed} failed")
sys.exit(failed > 0)
