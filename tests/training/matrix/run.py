#!/usr/bin/python3
"""Runs rows of the matrix: tests/training/matrix/run.py [--only FEATURE...] [--transport T...] [--schedule S] [--list]

README.md explains the tables. Each run happens once, however many checks need it, and each program is compiled once.
The last line is `N passed, M failed`.
"""
import argparse, glob, itertools, json, os, re, shlex, subprocess, sys, tempfile, threading
from concurrent.futures import ThreadPoolExecutor

HERE = os.path.dirname(os.path.abspath(__file__))
PIANOLA = os.environ.get("PIANOLA", "build/pianola")
BUILD = os.path.abspath("build")

# Each transport: how the ranks run, the flags and the environment that it adds.
CUDA = {"PIANOLA_CUDA": BUILD + "/standin/libpianola-cuda.so"}
LATER = {"STANDIN_START": "launch"}  # asserts that nothing is allocated after the first graph
TRANSPORTS = {
    "one": ("one", [], {}),
    "tcp": ("tcp", [], {}),
    "mpi": ("mpi", [], {}),
    "cuda": ("one", ["--device", "cuda"], CUDA),
    "cuda-eager": ("one", ["--device", "cuda", "--no-graph"], CUDA),
    "threads": ("one", ["--device", "cuda"],
                {"PIANOLA_CUDA": BUILD + "/standin/libpianola-put.so", "STANDIN_PAGES": "1", **LATER}),
    "nccl": ("tcp.gpu", [], LATER),
    "nccl-mpi": ("mpi.gpu", [], LATER),
    "nccl-eager": ("tcp.gpu", ["--no-graph"], LATER),
    "ordered": ("tcp.gpu", ["--reduce", "ordered"], LATER),
    "put": ("tcp.gpu", ["--messages", "put"], LATER),
    "put-eager": ("tcp.gpu", ["--messages", "put", "--no-graph"], LATER),
}
HOST = {"one", "tcp", "mpi"}
OWN_SUMS = {"nccl", "nccl-mpi", "nccl-eager"}  # NCCL sums in an order of its own
# Options of the compiler that take a value; ranks take all others themselves.
COMPILER = {"-D", "--model", "--lanes", "--prefetch", "--memory", "--cluster"}


def schedule_file(name):
    return name if "/" in name else f"schedules/{name}.lua"


class Schedules:
    """The shipped schedules: `each` updates every stage once a step, `several` more often."""

    def __init__(self):
        names = sorted(os.path.basename(f)[:-4] for f in glob.glob("schedules/*.lua") if not f.endswith(".d.lua"))
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            texts = pool.map(lambda n: subprocess.run([PIANOLA, "show", schedule_file(n), "--format", "streams"],
                                                      capture_output=True, text=True).stdout, names)
        several = {n for n, t in zip(names, texts) if re.search("^updates ", t, re.M)}
        self.of = {"each": [n for n in names if n not in several], "several": sorted(several)}

    def named(self, column):
        words = column.split()
        without = {w[1:] for w in words if w[0] == "-"}
        found = [n for w in words if w[0] != "-" for n in self.of.get(w, [w])]
        if without - set(found):
            sys.exit(f"no such schedule to leave out: {' '.join(sorted(without - set(found)))}")
        return [n for n in found if n not in without]


def alternatives(column):
    """Yields a column's alternatives: two for `-D a=1 | -D a=2`, three for `-D seed=3..5`."""
    for part in column.split("|"):
        words = shlex.split(part)
        spans = [re.fullmatch(r"(.*=)(\d+)\.\.(\d+)", w) for w in words]
        yield from (list(c) for c in itertools.product(*(
            [m[1] + str(i) for i in range(int(m[2]), int(m[3]) + 1)] if m else [w] for w, m in zip(words, spans))))


def read_tables():
    models = {}
    for line in open(f"{HERE}/models.tsv"):
        if line.strip() and line[0] != "#":
            name, options = line.rstrip("\n").split("\t")
            models[name] = shlex.split(options)
    rows = []
    for path in sorted(glob.glob(f"{HERE}/*.tsv")):
        table = os.path.basename(path)
        for number, line in enumerate(open(path), 1):
            if table == "models.tsv" or not line.strip() or line[0] == "#":
                continue
            columns = [c.strip() for c in line.rstrip("\n").split("\t")]
            if len(columns) != 8:
                sys.exit(f"{table}:{number}: {len(columns)} columns instead of 8; tabs separate them")
            rows.append((table[:-4], f"{table}:{number}", columns))
    return models, rows


def run_options(words):
    """Returns the options of `pianola compile`, and the ones that a rank takes at run time."""
    compile_time, run_time, it = [], [], iter(words)
    for w in it:
        if w in COMPILER:
            compile_time += [w, next(it)]
        else:
            (compile_time if w == "--recompute" else run_time).append(w)
    return compile_time, run_time


class Runner:
    def __init__(self, room, verbose):
        self.room, self.verbose = room, verbose
        self.lock, self.done, self.meetings = threading.Lock(), {}, 0

    def once(self, key, make):
        """Returns make()'s result, which is made once; other threads wait for it."""
        with self.lock:
            mine = key not in self.done
            if mine:
                self.done[key] = [threading.Event(), None]
            event, _ = slot = self.done[key]
            if mine:
                number = len(self.done)
        if mine:
            try:
                slot[1] = make(f"{self.room}/{number}")
            finally:
                event.set()
        event.wait()
        return slot[1]

    def call(self, command, env, out=None, wait=True):
        if self.verbose:
            print(" ".join([f"{k}={v}" for k, v in env.items()] + [shlex.quote(c) for c in command]), flush=True)
        start = ["timeout", "-k", "5", "200", *command]
        child = subprocess.Popen(start, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                 text=True, env={**os.environ, **env}, errors="replace")
        return child.communicate()[0] if wait else child

    def compiled(self, schedule, options):
        """Returns the folder with a program's ranks: each rank<k>.cu as a shared object for build/any-rank."""
        def make(folder):
            said = self.call([PIANOLA, "compile", schedule_file(schedule), *options, "-o", folder], {})
            ranks = sorted(glob.glob(folder + "/rank*.cu"))
            if not ranks:
                return said
            script = 'for k; do ${CC:-cc} -std=c11 -shared -fPIC -Ibuild/include -x c "$k" -o "${k%.cu}.so" || exit; done'
            return self.call(["bash", "-c", script, "-", *ranks], {}) or (folder, len(ranks))
        return self.once(("compiled", schedule, *options), make)

    def train(self, transport, schedule, options):
        """What a run printed, as a dictionary; or its error, as a string."""
        name, _, seed = transport.partition("@")
        way, flags, env = TRANSPORTS[name]
        env = {**env, **({"STANDIN_SEED": seed} if seed else {})}
        return self.once((transport, schedule, *options), lambda at: result(
            self.in_one_process(at, schedule, options + flags, env) if way == "one" else
            self.as_processes(at, way, schedule, options, flags, env), at))

    def in_one_process(self, at, schedule, options, env):
        command = [PIANOLA, "run", schedule_file(schedule), *options, "--json", *recorded(at, options)]
        return self.call(command, {"OPENBLAS_NUM_THREADS": "1", **env})

    def as_processes(self, at, way, schedule, options, flags, env):
        compile_time, run_time = run_options(options)
        program = self.compiled(schedule, compile_time)
        if isinstance(program, str):
            return program
        folder, n = program
        os.mkdir(at)
        for k in range(n):
            os.symlink(f"{folder}/rank{k}.so", f"{at}/rank{k}.so")
            os.symlink(BUILD + ("/standin" if ".gpu" in way else "") + "/any-rank", f"{at}/rank{k}")
        flags = [*run_time, *flags, "--json", *recorded(at, options), "--flight", at, "--deadline", "100"]
        if way.startswith("mpi"):
            os.symlink(f"{folder}/rank", f"{at}/rank")
            return self.call(["mpirun", "--oversubscribe", "-n", str(n), f"{at}/rank", *flags], env)
        with self.lock:
            self.meetings += 1
            here = self.meetings
        pid = os.getpid()
        env = {**env, "WORLD_SIZE": str(n), "MASTER_PORT": "29500",
               "MASTER_ADDR": f"127.{1 + pid // 250 % 250}.{pid % 250}.{1 + here % 250}"}
        started = [self.call([f"{at}/rank{k}", *flags], {**env, "RANK": str(k)}, wait=False) for k in range(n)]
        with ThreadPoolExecutor(n) as pool:
            return "".join(pool.map(lambda child: child.communicate()[0], started))


def recorded(at, options):
    """Returns flags that record each step. They settle its update, so post-validation would have nothing to do."""
    return [] if "post_validation=true" in options else ["--losses", at + ".losses", "--metrics", at + ".metrics"]


def result(said, at):
    """Returns what a run printed and recorded, as a dictionary, or its error, as a string."""
    found = re.search(r"^{\n.*?^}", said, re.M | re.S)
    try:
        figures = json.loads(found[0])
    except (TypeError, ValueError):
        wrong = [line for line in said.splitlines() if re.search("error|standin|pianola: rank", line)]
        return (wrong or said.splitlines()[-1:] or ["it printed nothing"])[0]
    got = {"weights": figures.get("weights"), "routed": figures.get("routed_pairs"), "dropped": figures.get("dropped_pairs"),
           "norm": figures.get("gradient_norm_last"), "losses": [figures["loss_first"], figures["loss_last"]], "updates": None}
    if os.path.exists(at + ".losses"):
        lines = [line.split("\t") for line in open(at + ".losses").read().splitlines()[1:]]
        got["updates"], got["losses"] = [line[:2] for line in lines], [float(line[2]) for line in lines]
        steps = [json.loads(line) for line in open(at + ".metrics")]
        got["norm"] = [s["gradient_norm"] for s in steps if "gradient_norm" in s][-1]
    return got


def differ(got, wanted, holds):
    """Returns what differs, or None. `holds`: bits, or a limit on the relative differences of losses."""
    for r in (wanted, got):
        if isinstance(r, str):
            return r if r is got else "the reference: " + r
    routing = ["routed", "dropped"] if holds in ("bits", "1e-5") else []  # bf16 routes some tokens to other experts
    if holds == "bits" and None in (got["weights"], wanted["weights"]):
        return "no weights were printed"
    for what in ["updates", *routing] + (["weights", "norm"] if holds == "bits" else []):
        if got[what] != wanted[what] and None not in (got[what], wanted[what]):
            return f"{what} {got[what]} instead of {wanted[what]}"
    limit = 1e-6 if holds == "bits" else float(holds)  # ranks may sum the parts of a loss in another order
    both = [got["losses"], wanted["losses"]]
    if got["updates"] is None or wanted["updates"] is None:
        both = [losses[-1:] for losses in both]
    far = max((abs(a - b) / abs(b) for a, b in zip(*both)), default=1)
    return None if far <= limit else f"losses differ by up to {far:.2g}, and may by {limit}"


class Check:
    def __init__(self, feature, table, place, model, steps, reference, schedule, options, transport, holds):
        self.table, self.feature, self.place, self.transport, self.schedule = table, feature, place, transport, schedule
        self.model, self.steps, self.reference = model, ["--steps", steps], reference
        self.options, self.holds = options, holds
        self.label = " ".join([place, feature, ":", schedule, *model, *options, "over", transport])

    def wanted(self, runner):
        """Returns the run to compare with, and what must hold."""
        here = self.transport.partition("@")[0]
        mine = self.model + self.options + self.steps
        device, reference = "one", self.reference
        if reference.startswith("cuda: "):
            device, reference = "cuda", reference[6:]
        elif self.holds != "bits" and here not in OWN_SUMS | {"one", "cuda"}:
            # These keep the ranks' order of sums, so they have the bits of the same program in one process.
            return runner.train("one" if here in HOST else "cuda", self.schedule, mine), "bits"
        if reference in ("itself", "plain", "same"):
            options = mine if reference == "itself" else self.model + self.steps
            return runner.train(self.transport if reference == "same" else device, self.schedule, options), self.holds
        name, *words = shlex.split(reference)
        return runner.train(device, name, self.model + words + self.steps), self.holds

    def run(self, runner):
        got = runner.train(self.transport, self.schedule, self.model + self.options + self.steps)
        if isinstance(got, str) and "deadlock" in got and any(o.startswith("seed=") for o in self.options):
            return "deadlock"
        wanted, holds = self.wanted(runner)
        return differ(got, wanted, holds)


def checks_of(models, rows, schedules):
    for table, place, (feature, model, steps, reference, names, options, transports, holds) in rows:
        for words in alternatives(model):
            of = [v for w in words for v in models.get(w, [w])]
            for schedule in schedules.named(names):
                for chosen in alternatives(options):
                    for transport in transports.split():
                        yield Check(feature, table, place, of, steps, reference, schedule, chosen, transport, holds)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--only", nargs="+", default=[], help="a feature, a table, or a row such as teams.tsv:7")
    arguments.add_argument("--transport", nargs="+", help=" ".join(TRANSPORTS))
    arguments.add_argument("--schedule")
    arguments.add_argument("--list", action="store_true", help="print the checks, and run none")
    arguments.add_argument("--verbose", action="store_true", help="print each command; one check at a time")
    chosen = arguments.parse_args()
    checks = [c for c in checks_of(*read_tables(), Schedules())
              if (not chosen.only or {c.feature, c.table, c.place} & set(chosen.only))
              and (not chosen.transport or c.transport.partition("@")[0] in chosen.transport)
              and (not chosen.schedule or c.schedule == chosen.schedule)]
    if chosen.list:
        print(*(c.label for c in checks), f"{len(checks)} checks", sep="\n")
        return 0
    failed, stuck = 0, {}
    os.environ.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    with tempfile.TemporaryDirectory() as room, ThreadPoolExecutor(1 if chosen.verbose else os.cpu_count()) as pool:
        os.environ.update(TMPDIR=room, OMPI_MCA_btl_vader_backing_directory=room)
        runner = Runner(room, chosen.verbose)
        for check, wrong in zip(checks, pool.map(lambda c: c.run(runner), checks)):
            if wrong == "deadlock":
                stuck[check.place] = stuck.get(check.place, 0) + 1
            elif wrong:
                failed += 1
                print(f"{check.label}: {wrong}\n    again: {os.path.relpath(__file__)} --verbose --only {check.place} "
                      f"--schedule {check.schedule} --transport {check.transport.partition('@')[0]}", flush=True)
    for place, n in stuck.items():  # random schedules whose caps deadlock are refused; they must be few
        if n > sum(c.place == place for c in checks) / 4:
            failed += 1
            print(f"{place}: {n} of its random schedules deadlock")
    print(f"{len(checks) - sum(stuck.values()) - failed} passed, {failed} failed")
    return 1 if failed or not checks else 0


if __name__ == "__main__":
    sys.exit(main())
