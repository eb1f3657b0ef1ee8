"""How long a worker takes from its start to its first result, and what memory it holds then.

    python3 benches/worker_start.py [ROUNDS]

Prints one JSON object: medians in milliseconds, ratios against `python -I -S -c pass` of the same interpreter
in the same run, resident memory in MiB. The package is byte-compiled into a temporary copy first; `no_pyc` is
the same without byte code, as on a read-only installation that nobody compiled. `ipykernel` is the kernel of
notebooks on the same interpreter, where it is installed.
"""

from __future__ import annotations

import compileall
import importlib.util
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PACKAGES = Path(__file__).resolve().parent.parent / "python"
FLAGS = ["-P", "-S"]
TARGET = 3.0
"""Starts of a bare interpreter that a worker's start to its first result may take."""
PEER_ROUNDS = 5


def receive(stream):
    size = int.from_bytes(stream.read(4), "big")
    return json.loads(stream.read(size))["message"]


def send(connection, **message):
    payload = json.dumps(
        {"version": 1, "session_id": "root", "generation": "g-1", "message": message}
    ).encode()
    connection.sendall(len(payload).to_bytes(4, "big") + payload)


def worker_round(python, packages, flags, folder):
    """Milliseconds to the first result, and the resident memory after it."""
    path = f"{folder}/control.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        Path(f"{folder}/token").write_text("t")
        arguments = ["--role", "workbench", "--session", "root", "--generation", "g-1"]
        arguments += ["--socket", path, "--token-file", f"{folder}/token"]
        environment = dict(os.environ, PYTHONPATH=packages)
        started = time.perf_counter()
        process = subprocess.Popen(
            [python, *flags, "-m", "klbr.worker", *arguments], env=environment, stdin=subprocess.DEVNULL
        )
        connection, _ = listener.accept()
    with connection, connection.makefile("rb") as stream:
        receive(stream)
        send(connection, kind="execute", id="e-1", code="1+1")
        result = receive(stream)["result"]
        taken = (time.perf_counter() - started) * 1e3
        assert result["output"] == [{"stream": "result", "text": "2"}], result
        status = Path(f"/proc/{process.pid}/status").read_text()
        resident = int(status.partition("VmRSS:")[2].split()[0]) / 1024
        send(connection, kind="shutdown")
        assert process.wait(30) == 0
    os.unlink(path)
    return taken, resident


def bare_round(python):
    started = time.perf_counter()
    subprocess.run([python, "-I", "-S", "-c", "pass"], check=True)
    return (time.perf_counter() - started) * 1e3


def ipykernel_round():
    """Milliseconds from the start of an ipykernel to its first result, and the resident memory after it."""
    from jupyter_client.manager import KernelManager

    manager = KernelManager()
    started = time.perf_counter()
    manager.start_kernel(stderr=subprocess.DEVNULL)
    client = manager.blocking_client()
    client.start_channels()
    try:
        client.execute("1+1")
        reply = client.get_shell_msg(timeout=60)
        taken = (time.perf_counter() - started) * 1e3
        assert reply["content"]["status"] == "ok", reply
        status = Path(f"/proc/{manager.provisioner.pid}/status").read_text()
        return taken, int(status.partition("VmRSS:")[2].split()[0]) / 1024
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 30
    python = sys.executable
    with tempfile.TemporaryDirectory() as folder:
        compiled, plain = f"{folder}/compiled", f"{folder}/plain"
        for target in (compiled, plain):
            shutil.copytree(PACKAGES / "klbr", f"{target}/klbr", ignore=shutil.ignore_patterns("__pycache__"))
        compileall.compile_dir(compiled, quiet=1)
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
        times = {"bare": [], "worker": [], "with_site": [], "no_pyc": []}
        resident, kernel_resident = [], []
        peers = PEER_ROUNDS if importlib.util.find_spec("ipykernel") else 0
        if peers:
            times["ipykernel"] = []
        else:
            print("ipykernel is not installed for this interpreter: it is not compared", file=sys.stderr)
        for number in range(rounds):
            times["bare"].append(bare_round(python))
            taken, memory = worker_round(python, compiled, FLAGS, folder)
            times["worker"].append(taken)
            resident.append(memory)
            times["with_site"].append(worker_round(python, compiled, ["-P"], folder)[0])
            times["no_pyc"].append(worker_round(python, plain, FLAGS, folder)[0])
            if number < peers:
                taken, memory = ipykernel_round()
                times["ipykernel"].append(taken)
                kernel_resident.append(memory)
    medians = {name: statistics.median(values) for name, values in times.items()}
    report = {
        "python": sys.version.split()[0],
        "rounds": rounds,
        "ms": {name: round(value, 1) for name, value in medians.items()},
        "ratio": {name: round(value / medians["bare"], 2) for name, value in medians.items()},
        "target": {"worker": TARGET, "met": medians["worker"] <= TARGET * medians["bare"]},
        "resident_mib": {"worker": round(statistics.median(resident), 1)},
    }
    if kernel_resident:
        report["worker_of_ipykernel"] = round(medians["worker"] / medians["ipykernel"], 3)
        report["resident_mib"]["ipykernel"] = round(statistics.median(kernel_resident), 1)
    print(json.dumps(report))


if __name__ == "__main__":
    main()
