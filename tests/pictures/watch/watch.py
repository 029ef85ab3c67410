"""Uses `show --watch` in a pseudo-terminal as a person does: watch.py PIANOLA ROOM.

What it writes goes through a small terminal of our own, which knows the few sequences of ECMA-48 and xterm that it needs, and
refuses others. What is then on the screen is compared with what `show` prints. Nothing sleeps: each step waits until the
screen says what it should, or fails after half a minute."""
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time

pianola, room = sys.argv[1:3]
passed = failed = 0


def expect(what, wanted, got):
    global passed, failed
    if wanted == got:
        passed += 1
    else:
        failed += 1
        if isinstance(wanted, str) and isinstance(got, str):  # the first line that differs
            wanted, got = next(((a, b) for a, b in zip(wanted.split("\n"), got.split("\n")) if a != b), (wanted, got))
        print(f"{what}: expected {wanted!r}, got {got!r}")


class Terminal:
    def __init__(self, rows, columns):
        self.bytes = b""
        self.frames = 0
        self.hidden = self.other = self.colored = False
        self.wrap = True
        self.main = None
        self.resize(rows, columns)

    def resize(self, rows, columns):
        self.rows, self.columns = rows, columns
        self.clear()

    def clear(self):
        self.screen = [[" "] * self.columns for _ in range(self.rows)]
        self.y = self.x = 0

    def put(self, c):
        if c == "\n":
            self.y += 1
            if self.y == self.rows:
                self.screen = self.screen[1:] + [[" "] * self.columns]
                self.y -= 1
        elif c == "\r":
            self.x = 0
        else:
            if self.x == self.columns:
                if not self.wrap:
                    return
                self.put("\r")
                self.put("\n")
            self.screen[self.y][self.x] = c
            self.x += 1

    def act(self, what, letter):
        if letter == "H" and not what:
            self.y = self.x = 0
            self.frames += 1
        elif letter in "JK" and not what:
            self.screen[self.y][self.x:] = [" "] * (self.columns - self.x)
            for y in range(self.y + 1, self.rows) if letter == "J" else []:
                self.screen[y] = [" "] * self.columns
        elif letter == "m":
            self.colored = what not in ("", "0")
        elif letter in "hl" and what in ("?1049", "?25", "?7"):
            on = letter == "h"
            if what == "?25":
                self.hidden = not on
            elif what == "?7":
                self.wrap = on
            elif on and not self.other:
                self.main = (self.screen, self.y, self.x)
                self.clear()
                self.other = True
            elif not on and self.other:
                self.screen, self.y, self.x = self.main
                self.other = False
        else:
            raise ValueError(f"a sequence that no terminal of ours knows: {what}{letter}")

    def feed(self, data):
        self.bytes += data
        text = self.bytes.decode(errors="ignore")
        at = 0
        while at < len(text):
            sequence = re.compile(r"\033\[([?0-9;]*)([A-Za-z])").match(text, at)
            if sequence:
                self.act(sequence[1], sequence[2])
                at = sequence.end()
            elif re.compile(r"\033(\[[?0-9;]*)?$").match(text, at):
                break
            elif text[at] == "\033":  # the escape of a sequence that was cut short; the next one begins here
                at += 1
            else:
                self.put(text[at])
                at += 1
        rest = len(text[at:].encode())
        broken = len(self.bytes) - len(text.encode())
        self.bytes = self.bytes[len(self.bytes) - rest - broken:] if rest + broken else b""

    def text(self):
        return "\n".join("".join(row).rstrip() for row in self.screen).rstrip("\n")

    def clean(self):
        return (self.other, self.hidden, self.colored, self.wrap) == (False, False, False, True)


class Watch:
    """pianola as the foreground job of a shell: a parent starts it, and reports and continues it when it stops."""

    def __init__(self, *args, rows=40, columns=130):
        self.terminal = Terminal(rows, columns)
        shell, self.fd = pty.fork()
        if shell == 0:
            signal.signal(signal.SIGTTOU, signal.SIG_IGN)
            job = os.fork()
            if job == 0:
                os.setpgid(0, 0)
                os.tcsetpgrp(0, os.getpgid(0))
                signal.signal(signal.SIGTTOU, signal.SIG_DFL)
                fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
                os.environ.update(LC_ALL="C.UTF-8", TERM="xterm-256color")
                os.execv(pianola, [pianola, "show", *args, "--watch"])
            print(f"job {job}", flush=True)
            while True:
                status = os.waitpid(job, os.WUNTRACED)[1]
                if not os.WIFSTOPPED(status):
                    break
                os.tcsetpgrp(0, os.getpgid(0))
                print("stopped", flush=True)
                sys.stdin.readline()
                os.tcsetpgrp(0, job)
                os.kill(job, signal.SIGCONT)
            print("ended by", os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status), flush=True)
            os.tcsetpgrp(0, os.getpgid(0))
            sys.stdin.readline()  # keeps the terminal open, and with it anything still running there
            os._exit(0)
        self.shell = shell
        self.wait(lambda t: t.other)
        self.job = int(re.search(r"job (\d+)", "\n".join("".join(row) for row in self.terminal.main[0]))[1])

    def wait(self, seen, seconds=30):
        """Reads until seen(terminal) is true. On a timeout prints the screen and returns False."""
        end = time.monotonic() + seconds
        while not seen(self.terminal):
            ready = select.select([self.fd], [], [], max(0, end - time.monotonic()))[0]
            try:
                data = os.read(self.fd, 65536) if ready else b""
            except OSError:  # it has ended
                data = b""
            if not data:
                print("the screen is\n" + self.terminal.text())
                return False
            self.terminal.feed(data)
        return True

    def says(self, line):
        """Waits until the screen's last line is `line`."""
        return self.wait(lambda t: t.text().split("\n")[-1] == line)

    def size(self, rows, columns):
        self.terminal.resize(rows, columns)
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def key(self, key):
        os.write(self.fd, key)

    def end(self):
        self.key(b"\x03")
        self.wait(lambda t: re.search(r"ended by \d", t.text()))
        self.key(b"\n")
        os.waitpid(self.shell, 0)
        os.close(self.fd)
        return self.terminal


def show(*args, width=130):  # without colours and trailing blanks, as on the screen
    text = subprocess.run([pianola, "show", *args, "--width", str(width), "--color", "always"], capture_output=True, text=True, env={"LC_ALL": "C.UTF-8"}).stdout
    return re.sub(r" +$", "", re.sub(r"\033\[[0-9;]*m", "", text), flags=re.M).rstrip("\n")


def script(**change):
    values = {"batches": 8, "n": "one_forward_one_backward(b, d, 4 - s)", "split": "false"} | change
    return f"""return schedule {{ workers = 4, stages = 4, batches = {values['batches']}, order = "strict", split_backward = {values['split']},
  w = function(s, b, d) return s, s end, n = function(s, b, d) return {values['n']} end }}
"""


def write(path, text):
    with open(path, "w") as file:
        file.write(text)


def replace(path, text):  # by renaming, as many editors do
    write(path + "~", text)
    os.rename(path + "~", path)


mine, model, cluster = (f"{room}/{name}.lua" for name in ("mine", "model", "cluster"))


def figures(*args):
    import json
    report = json.loads(subprocess.run([pianola, "show", *args, "--json"], capture_output=True, text=True, check=True).stdout)
    return report["makespan"], max(r["peak_bytes"] for r in report["ranks"])


# ---- what is on the screen, and what changed ----

write(mine, script())
w = Watch(mine)
expect("the first picture", True, w.says(f"watching {mine}: 33 units, 8 B"))
expect("the first picture is show's", show(mine), "\n".join(w.terminal.text().split("\n")[:-2]))
expect("it uses the alternate screen, without a cursor", (True, True, False), (w.terminal.other, w.terminal.hidden, w.terminal.wrap))

write(mine, script(batches=6))
expect("the script is written again", True, w.says(f"{mine}: 33 -> 27 units, 8 B"))
expect("and its picture is shown", show(mine), "\n".join(w.terminal.text().split("\n")[:-2]))
replace(mine, script(n="b + 100 * (d == 'F' and 0 or 1)"))
span, bytes_ = figures(mine)
expect("the script is replaced", True, w.says(f"{mine}: 27 -> {span} units, 8 B -> {bytes_} B"))
expect("and its picture is shown after replacing", show(mine), "\n".join(w.terminal.text().split("\n")[:-2]))
os.unlink(mine)
expect("the script is removed", True, w.wait(lambda t: f"pianola: error: {mine}: No such file or directory" in t.text()))
write(mine, script(batches=7))
expect("the script is back", True, w.says(f"{mine}: {span} -> 30 units, {bytes_} B -> 8 B"))
expect("and the error is gone", show(mine), "\n".join(w.terminal.text().split("\n")[:-2]))

# Other files in the folder do not matter: one more change gives one more frame.
before = w.terminal.frames
for n in range(5):
    write(f"{room}/other{n}.lua", "x")
write(mine, script(batches=6))
w.says(f"{mine}: 30 -> 27 units, 8 B")
expect("frames are drawn only for changes", before + 1, w.terminal.frames)

# ---- errors ----

good = "\n".join(w.terminal.text().split("\n")[:-2])
write(mine, script(n="nobody(b)"))
expect("an error is shown", True, w.wait(lambda t: f"{mine}:2: error:" in t.text()))
lines = w.terminal.text().split("\n")
said = subprocess.run([pianola, "show", mine], capture_output=True, text=True).stderr.rstrip("\n")
expect("the compiler's error is below the last good picture", f"{good}\n\n{said}\n{mine}: 30 -> 27 units, 8 B".split("\n"), lines)
w.size(40, 90)
expect("the picture stays if the window gets narrow", True, w.wait(lambda t: "error:" in t.text() and t.text().startswith(good[:60])))
expect("and is cut to the width", good.split("\n")[1][:90].rstrip(), w.terminal.text().split("\n")[1])
w.size(10, 130)
below = ["", *said.split("\n"), f"{mine}: 30 -> 27 units, 8 B"]
shown = 10 - len(below) - 1
expect("in a low window the error keeps its room", True, w.wait(lambda t: t.text().split("\n") ==
    good.split("\n")[:shown] + [f"... {len(good.split(chr(10))) - shown} more lines"] + below))
w.size(40, 130)
write(mine, "while true do end\n")
expect("an endless script is stopped", True, w.wait(lambda t: "million instructions" in t.text()))
expect("the picture is still there", good.split("\n")[:8], w.terminal.text().split("\n")[:8])
write(mine, script())
expect("the script works again", True, w.says(f"{mine}: 27 -> 33 units, 8 B"))

# ---- the window ----

w.size(40, 100)
expect("a narrower window redraws", True, w.wait(lambda t: t.text().startswith(show(mine, width=100))))
w.size(9, 130)
wanted = show(mine).split("\n")
expect("a low window cuts the picture", True, w.wait(lambda t: t.text().split("\n") == wanted[:6] + [f"... {len(wanted) - 6} more lines", "", f"{mine}: 27 -> 33 units, 8 B"]))
w.size(2, 130)
expect("a very low window shows the last line", True, w.wait(lambda t: t.text().strip() == f"{mine}: 27 -> 33 units, 8 B"))
w.size(40, 130)
expect("the full window is back", True, w.wait(lambda t: t.text().startswith(show(mine)) and t.text().endswith("8 B")))

# ---- waiting ----


def until(true, seconds=30):
    end = time.monotonic() + seconds
    while not true() and time.monotonic() < end:
        pass


def switches():  # returns how often the first thread gave up the processor
    return int(re.search(r"\nvoluntary_ctxt_switches:\s+(\d+)", open(f"/proc/{w.job}/task/{w.job}/status").read())[1])


def children():
    return open(f"/proc/{w.job}/task/{w.job}/children").read().split()


def asleep():
    return open(f"/proc/{w.job}/stat").read().rsplit(")", 1)[1].split()[0] == "S"


until(lambda: asleep() and not children())  # it may be about to draw the last frame again
end = time.monotonic() + 30
while True:  # reads everything, because Ctrl-Z below makes the kernel discard unread output
    before = switches()
    if not select.select([w.fd], [], [], 1)[0] or time.monotonic() > end:
        break
    w.terminal.feed(os.read(w.fd, 65536))
expect("a waiting command does not use the processor", before, switches())

# ---- leaving ----

w.key(b"\x1a")
expect("Ctrl-Z stops it", True, w.wait(lambda t: "stopped" in t.text()))
expect("and leaves a clean terminal", True, w.terminal.clean())
w.key(b"\n")
expect("it draws again after it continues", True, w.wait(lambda t: t.other and t.text().startswith(show(mine)) and t.text().endswith("8 B")))
write(mine, script(batches=6))
expect("and keeps watching", True, w.says(f"{mine}: 33 -> 27 units, 8 B"))
t = w.end()
expect("Ctrl-C ends it", "ended by 2", t.text().split("\n")[-1])
expect("and leaves the terminal clean", True, t.clean())
expect("and the earlier screen is back", f"job {w.job}", t.text().split("\n")[0])

for what, number in (("terminated", signal.SIGTERM), ("hung up", signal.SIGHUP)):
    w = Watch(mine)
    w.says(f"watching {mine}: 27 units, 8 B")
    os.kill(w.job, number)
    expect(f"{what}: it ends", True, w.wait(lambda t: f"ended by {number.value}" in t.text()))
    expect(f"{what}: it leaves a clean terminal", True, w.terminal.clean())

# Ctrl-C also ends it while a long script runs. If only the parent gets a signal, its child ends too.
write(mine, "local t = {} for i = 1, 1e9 do t[i % 1000] = i end\n")
w = Watch(mine)
until(children)
t = w.end()
expect("Ctrl-C during a compile", ("ended by 2", True), (t.text().split("\n")[-1], t.clean()))
w = Watch(mine)
until(children)
child = children()[0]
began = time.monotonic()
os.kill(w.job, signal.SIGTERM)
w.wait(lambda t: "ended by 15" in t.text())


def lives():
    try:
        return "\nState:\tZ" not in open(f"/proc/{child}/status").read()
    except FileNotFoundError:
        return False


until(lambda: not lives())
spent = time.monotonic() - began
whole = time.monotonic()
subprocess.run([pianola, "show", mine], capture_output=True)
whole = time.monotonic() - whole
expect("the child ends with its parent", True, spent < whole / 2)
# If the script changes during a compile, that compile is ended and a new one starts.
w = Watch(mine)
until(children)
child = children()[0]
write(mine, script())
expect("a change during a compile", True, w.says(f"watching {mine}: 33 units, 8 B"))
expect("ends the old compile", False, child in children())
w.end()

# ---- model, cluster, and drawing options ----

write(cluster, "return cluster { memory = 1e9 }\n")
write(model, open("schedules/models/integers.lua").read())
args = (mine, "--model", model, "--cluster", cluster, "--with", "memory,path", "--ascii")
w = Watch(*args, rows=80)
expect("a model and a cluster", True, w.wait(lambda t: t.text().startswith(show(*args))))
expect("the picture is ASCII", True, w.terminal.text().isascii())
replace(cluster, "return cluster { memory = 1e9, flops = 1e6 }\n")
expect("the cluster changes, and so does the unit", True, w.wait(lambda t: re.search(rf"^{cluster}: \S+ [kMG]?FLOP -> \S+ \S*s, ", t.text().split("\n")[-1])))
replace(model, open(model).read().replace("return", "-- changed\nreturn", 1))
expect("the model changes", True, w.wait(lambda t: t.text().split("\n")[-1].startswith(f"{model}: ")))
expect("but no figure changes", False, "->" in w.terminal.text().split("\n")[-1])
w.end()

# A long name makes a long last line, which is cut to the width.
deep = f"{room}/{'a' * 250}/{'b' * 250}"
os.makedirs(deep)
write(f"{deep}/long.lua", script())
w = Watch(f"{deep}/long.lua")
expect("a long name is cut", True, w.wait(lambda t: t.text().split("\n")[-1] == f"watching {deep}"[:130]))
expect("the picture of a script with a long name", True, w.terminal.text().startswith(show(mine).split("\n")[0][:40]))
w.end()

# A link to a file in another folder: the file changes there, then the link itself changes.
os.mkdir(f"{room}/far")
write(f"{room}/far/real.lua", script())
write(f"{room}/far/next.lua", script(batches=6))
os.symlink("far/real.lua", f"{room}/link.lua")
w = Watch(f"{room}/link.lua")
w.says(f"watching {room}/link.lua: 33 units, 8 B")
write(f"{room}/far/real.lua", script(batches=7))
expect("the link's target changes", True, w.says(f"{room}/link.lua: 33 -> 30 units, 8 B"))
os.symlink("far/next.lua", f"{room}/link~")
os.rename(f"{room}/link~", f"{room}/link.lua")
expect("the link changes", True, w.says(f"{room}/link.lua: 30 -> 27 units, 8 B"))
os.rename(f"{room}/far", f"{room}/further")
expect("the script's folder is removed", True, w.wait(lambda t: f"error: {room}/link.lua: its folder is gone" in t.text()))
expect("the message is on the terminal's main screen", True, w.wait(lambda t: "ended by 2" in t.text() and t.clean()))

print(f"{passed} passed, {failed} failed")
sys.exit(failed > 0)
