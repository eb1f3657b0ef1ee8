"""What a containment costs: a new generation, and the hard stop of 500 processes, in each.

Runs itself inside of tests/systemd/testbed, as root of a container with a systemd of its own. Peers of the
same run: a plain `systemd-run --user` that starts the same interpreter, and a bare `cgroup.kill` of as many.
Prints medians and ratios, no verdict: the machine is noisy.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROUNDS = 15
STOPS = 5
PROCESSES = 500
FILL = (
    "import os, signal, time\n"
    f"for _ in range({PROCESSES}):\n"
    "    if os.fork() == 0:\n"
    "        os.setsid(); signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "        while True: time.sleep(600)\n"
)


def median(rounds: int, measure: Callable[[], float]) -> float:
    return statistics.median(measure() for _ in range(rounds)) * 1000


def outside() -> int:
    subprocess.run(["cargo", "build", "--locked", "--release"], cwd=ROOT, check=True)
    with tempfile.TemporaryDirectory() as stage:
        command = ["make", "-s", "install-built", "PREFIX=/usr", f"DESTDIR={stage}"]
        subprocess.run(command, cwd=ROOT, check=True)
        binds = [f"{stage}:/stage", f"{ROOT}/tests/systemd:/suite", f"{ROOT}/benches:/benches"]
        bed = [str(ROOT / "tests/systemd/testbed"), "run", *(f"--bind={bind}" for bind in binds)]
        inside = ["--", "python3", "-B", "/benches/containment.py", "--inside"]
        return subprocess.run([*bed, *inside], check=False).returncode


def inside() -> None:
    sys.path.insert(0, "/suite")
    from machine import MANUAL, UserMachine, members, until

    class Bench(UserMachine):
        def runTest(self) -> None:
            pass

    def timed(deed: Callable[[], object]) -> float:
        began = time.perf_counter()
        deed()
        return time.perf_counter() - began

    bench = Bench()
    bench.setUp()
    bench.up()
    bench.cell("1")
    plain = ["systemd-run", "--user", "--quiet", "--wait", "--pipe", "python3", "-P", "-S", "-c", "pass"]
    peer = median(ROUNDS, lambda: timed(lambda: bench.as_user(*plain)))
    print(f"systemd-run --wait of an empty interpreter            {peer:8.1f} ms  1.00")

    def renew() -> float:
        """An empty generation ended, and a new one up to its hello: a reset starts it at once."""
        return timed(lambda: bench.klbr("reset"))

    def stop(find: Callable[[], set[int]]) -> float:
        # The hook worker stays.
        others = find()
        bench.cell(FILL)
        until("they are there", lambda: len(find() - others) >= PROCESSES)
        before = find() - others
        return timed(lambda: (bench.klbr("reset"), until("none is left", lambda: not before & find())))

    def by_group() -> set[int]:
        return set(bench.workers())

    def by_user() -> set[int]:
        """Of a host without a slice for its workers: all interpreters of this user."""
        found = subprocess.run(
            ["pgrep", "-u", str(bench.who.pw_uid), "python3"], capture_output=True, check=False
        )
        return {int(line) for line in found.stdout.split()}

    # A floor that does the same, and nothing else.
    def bare() -> float:
        group = Path("/sys/fs/cgroup/bench")
        group.mkdir(exist_ok=True)
        code = f"open('{group}/cgroup.procs', 'w').write('0')\n" + FILL + "time.sleep(600)"
        child = subprocess.Popen([sys.executable, "-c", code])
        until("they are there", lambda: len(list(members(group))) > PROCESSES)

        def kill() -> None:
            (group / "cgroup.kill").write_text("1")
            until("none is left", lambda: not list(members(group)))

        took = timed(kill)
        child.wait()
        return took

    floor = median(STOPS, bare)
    # What the verb itself takes, here as the ordinary user: nothing to do with containment.
    verb = median(ROUNDS, lambda: timed(lambda: bench.klbr("status")))
    print(f"a verb of the command line                           {verb:8.1f} ms")
    print(f"bare cgroup.kill of {PROCESSES}                              {floor:8.1f} ms  1.00")

    def both(name: str, find: Callable[[], set[int]]) -> None:
        began, stopped = median(ROUNDS, renew), median(STOPS, lambda: stop(find))
        print(f"{name}: reset, from asked to the new hello    {began:8.1f} ms  {began / peer:.2f}")
        print(f"{name}: stop {PROCESSES}, and a new generation  {stopped:8.1f} ms  {stopped / floor:.2f}")

    both("systemd", by_group)
    bench.systemctl("stop", "klbr.socket", "klbr.service")
    bench.configure('containment = "process"\n' + MANUAL)
    host = bench.start_as_user("klbr", "serve")
    until("it answers", lambda: bench.klbr("status", check=False).returncode == 0 and bench.cell("1") == "1")
    both("process", by_user)
    host.terminate()
    host.wait()
    # The bed ends with this process, and everything inside of it.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    if sys.argv[1:] == ["--inside"]:
        inside()
    else:
        sys.exit(outside())
