"""Measures pages of 10^6 operations: speed.py FOLDER [--strict]. Prints, for each page, its size, the time until the
first picture, and for each phase of a person's use (zooming in, panning, zooming out, panning over everything) the
times between frames and the processor time that the page takes for a frame. Prints `N passed, M failed`.

A page may have 5 MB. While every pixel has many operations, no operation may be visited for a frame; and after a pan,
none outside the columns that came into sight. The limits of times allow for a busy machine. --strict sets those that a
quiet one must keep: 2 s to open, and 20 ms between frames and of processor time for a frame, for nine of ten."""
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "live_page"))
from browser import Browser  # noqa: E402

folder, strict = os.path.abspath(sys.argv[1]), "--strict" in sys.argv
native = os.environ.get("PIANOLA", "build/pianola")
here = os.path.dirname(os.path.relpath(__file__))
OPEN, GAP, FRAME = (2000, 20, 20) if strict else (20000, 1000, 200)  # milliseconds
failed = passed = 0
b = Browser()

# Schedules of 10^6 operations.
PAGES = {
    "250 ranks": ["schedules/1f1b.lua", "-D", "workers=250", "-D", "batches=2000"],
    "irregular costs": [os.path.join(here, "irregular.lua")],
    "8 ranks": ["schedules/1f1b.lua", "-D", "workers=8", "-D", "batches=62500"],
    "1000 ranks": ["schedules/gpipe.lua", "-D", "workers=1000", "-D", "batches=500"],
}

# Notes when the first picture has been shown.
OPENED = """new MutationObserver((_, own) => { own.disconnect(); requestAnimationFrame(() => setTimeout(() => { window.opened = performance.now(); })); })
  .observe(document, { subtree: true, attributes: true, attributeFilter: ['data-frame'] });"""

# Turns the wheel once, and returns the most pixels of a line for which the next frame visits operations.
VISITED = """(deltaX, deltaY) => new Promise(done => {
  const el = view.parts.rows, r = el.getBoundingClientRect(), mixer = view.frame.mixers[0], { draw, mix } = mixer;
  let most = 0;
  const counting = visit => (...all) => {
    const [x0, x1] = visit === draw ? all.slice(6) : all.slice(5);
    most = Math.max(most, x1 - x0);
    visit(...all);
  };
  Object.assign(mixer, { draw: counting(draw), mix: counting(mix) });
  el.dispatchEvent(new WheelEvent('wheel', { deltaX, deltaY, clientX: r.left + 600, clientY: r.top + 200, bubbles: true, cancelable: true }));
  requestAnimationFrame(() => requestAnimationFrame(() => done(Object.assign(mixer, { draw, mix }) && most)));
})"""

# Turns the wheel once before each of n frames, and returns the times between frames.
WHEEL = """(n, deltaX, deltaY) => new Promise(done => {
  const el = view.parts.rows, r = el.getBoundingClientRect(), gaps = [];
  let last = 0;
  const tick = now => {
    if (last > 0) gaps.push(now - last);
    last = now;
    if (gaps.length === n) return done(gaps);
    el.dispatchEvent(new WheelEvent('wheel', { deltaX, deltaY, clientX: r.left + 600, clientY: r.top + 200, bubbles: true, cancelable: true }));
    requestAnimationFrame(tick);
  };
  requestAnimationFrame(tick);
})"""
PHASES = {"zoom in": (60, 0, -80), "pan": (60, 40, 0), "zoom out": (60, 0, 80), "pan all": (60, -40, 0)}


def expect(what, most, got):
    global passed, failed
    if got <= most:
        passed += 1
    else:
        failed += 1
        print(f"{what}: {got:.0f}, but at most {most:.0f} is allowed", flush=True)


def nine_of_ten(times):
    return sorted(times)[len(times) * 9 // 10]


def frame_times(events):
    """Returns the page's processor time for each frame, in milliseconds: scripts, layout and painting."""
    return [e["tdur"] / 1000 for e in events if e.get("name") == "ProxyMain::BeginMainFrame" and "tdur" in e]


def use(name):
    expect(f"{name}: pixels whose operations are visited in a frame of sums", 0, b.value(f"({VISITED})(0, -40)"))
    for phase, wheel in PHASES.items():
        if phase == "pan":
            expect(f"{name}: pixels painted after a pan", wheel[1] * b.value("view.frame.dpr"), b.value(f"({VISITED})({wheel[1]}, 0)"))
        gaps, events = b.trace("cc,devtools.timeline", f"({WHEEL})({wheel[0]}, {wheel[1]}, {wheel[2]})")
        spent = frame_times(events)
        expect(f"{name}, {phase}: frames that the trace lacks", 0, len(gaps) - len(spent) - 2)
        print(f"  {phase}: nine of ten frames take {nine_of_ten(spent):.1f} ms of processor time (worst {max(spent):.1f}) and follow "
              f"{nine_of_ten(gaps):.1f} ms after the one before (worst {max(gaps):.1f})", flush=True)
        expect(f"{name}, {phase}: ms of processor time for nine of ten frames", FRAME, nine_of_ten(spent))
        expect(f"{name}, {phase}: ms between frames, for nine of ten", GAP, nine_of_ten(gaps))


def measure(name, args):
    path = os.path.join(folder, f"speed-{name.replace(' ', '-')}.html")
    subprocess.run([native, "show", *args, "--format", "html", "-o", path], check=True)
    size = os.path.getsize(path)
    b.open("file://" + path)
    b.wait("window.opened", 120)
    opened = b.value("opened")
    print(f"{name}: {size / 1e6:.2f} MB, open after {opened:.0f} ms", flush=True)
    expect(f"{name}: operations short of a million", 0, 1000000 - b.value("view.frame.timeline.n"))
    expect(f"{name}: bytes", 5e6, size)
    expect(f"{name}: ms to open", OPEN, opened)
    b.value("new Promise(done => setTimeout(done, 1000))")
    use(name)


try:
    b.size(1440, 900)
    b.call("Page.addScriptToEvaluateOnNewDocument", source=OPENED)
    for page in PAGES:
        measure(page, PAGES[page])
    expect("problems in the console", 0, len(b.problems))
finally:
    b.close()
print(f"{passed} passed, {failed} failed")
sys.exit(failed > 0)
