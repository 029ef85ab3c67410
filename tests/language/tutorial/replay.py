"""Follows a tutorial in an empty folder, and prints each place where the page differs from the result.

    replay.py PAGE PROGRAM      PROGRAM is `pianola` for the commands of the page

In the page:
- A ```lua or ```python block is a file. The line before the block ends with its name: Write `gpipe.lua`:
  Python must compile; it is not run, since it may need PyTorch.
- A ```console block is a session. A line that begins with `$ ` is a command, for bash; the lines up to the next command
  are all that it prints, on stdout and stderr. A command must exit with 0, unless the next one is `echo $?`.
  `pianola diff` may exit with 1, because its inputs may differ.
- `…` stands for any text within a line, and a line of `…` alone for any number of lines.
- `<!-- figures vary -->` before a session: numbers, their units of time, and spaces depend on the machine. Only the
  words must agree.
All other blocks are left alone.
"""
import os
import re
import subprocess
import sys
import tempfile

VARY = "<!-- figures vary -->"
NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?(?: (?:ns|us|µs|ms|s)\b)?")
ANY_NUMBER = NUMBER.pattern.replace(r"\d+(?:\.\d+)?", r"[\d.]+", 1)


def blocks(text):
    """Yields each fenced block: the number of its first line, its language, its lines, and the last text before it."""
    lines, at = text.split("\n"), 0
    while at < len(lines):
        if lines[at].startswith("```"):
            end = lines.index("```", at + 1)
            before = [line for line in lines[:at] if line][-1:]
            yield at + 2, lines[at][3:], lines[at + 1:end], "".join(before)
            at = end
        at += 1


def pattern(line, vary):
    """Returns a regular expression for one shown line."""
    if line == "…":
        return r"(?:.*\n)*?"
    parts = []
    for part in re.split("(…)", line):
        if part == "…":
            parts.append(".*")
        elif vary:
            words = [r" +".join(map(re.escape, re.split(" +", text))) for text in NUMBER.split(part)]
            parts.append(ANY_NUMBER.join(words))
        else:
            parts.append(re.escape(part))
    return "".join(parts) + r"\n"


def lines_of(text):
    """Returns the lines of a text without spaces at their ends, and without empty lines at its end."""
    return [line.rstrip() for line in text.rstrip().split("\n")] if text.strip() else []


def difference(shown, printed, vary):
    """Returns None if the shown lines match the output; else the first that does not, and the output there."""
    shown, printed = lines_of("\n".join(shown)), lines_of(printed)
    parts, whole = [pattern(line, vary) for line in shown], "".join(line + "\n" for line in printed)
    if re.fullmatch("".join(parts), whole):
        return None
    agreed = [m for n in range(len(parts) + 1) if (m := re.match("".join(parts[:n]), whole))]
    rest = whole[agreed[-1].end():].split("\n")[0]
    return (shown + ["nothing more"])[len(agreed) - 1], rest or "nothing more"


def sessions(lines, first):
    """Yields each command of a session with its line number and the lines shown below it."""
    starts = [i for i, line in enumerate(lines) if line.startswith("$ ")]
    if starts[:1] != [0]:
        sys.exit(f"line {first}: a console block begins with a command")
    for start, end in zip(starts, starts[1:] + [len(lines)]):
        yield first + start, lines[start][2:], lines[start + 1:end]


def replay(text, room, environment):
    """Yields a complaint for each command that fails or prints something else."""
    commands = []
    for first, language, lines, before in blocks(text):
        if language in ("lua", "python"):
            name = re.search(r"`([\w.]+)`:$", before)
            if not name:
                sys.exit(f"line {first}: the line before a {language} block ends with the name of its file")
            commands.append((first, None, name[1], lines, False))
        elif language == "console":
            commands += [(at, command, None, shown, before == VARY) for at, command, shown in sessions(lines, first)]
    status = 0
    for i, (at, command, name, lines, vary) in enumerate(commands):
        if name:
            with open(os.path.join(room, name), "w", encoding="utf-8") as f:
                f.write("\n".join(lines) + "\n")
            if name.endswith(".py"):
                try:
                    compile("\n".join(lines), name, "exec")
                except SyntaxError as error:
                    yield f"{at}: {name}: line {error.lineno}: {error.msg}"
            continue
        ran = subprocess.run(["bash", "-c", f"(exit {status}); {command}"], cwd=room, env=environment, timeout=300,
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             encoding="utf-8", errors="replace")
        status = ran.returncode
        expected = status == 0 or status == 1 and command.startswith("pianola diff ")
        if not expected and [c[1] for c in commands[i + 1:i + 2]] != ["echo $?"]:
            yield f"{at}: $ {command}: exits with {status}: {ran.stdout.strip()[:500]}"
        elif wrong := difference(lines, ran.stdout, vary):
            yield f"{at}: $ {command}: shown: {wrong[0]}; printed: {wrong[1]}"
    if not any(command for _, command, *_ in commands):
        yield "no commands"


def main(page, program):
    with open(page, encoding="utf-8") as f:
        text = f.read()
    with tempfile.TemporaryDirectory() as place:
        bin, room = os.path.join(place, "bin"), os.path.join(place, "room")
        os.mkdir(bin)
        os.mkdir(room)
        os.symlink(os.path.abspath(program), os.path.join(bin, "pianola"))
        for complaint in replay(text, room, dict(os.environ, PATH=f"{bin}:{os.environ['PATH']}")):
            print(complaint, flush=True)


main(*sys.argv[1:])
