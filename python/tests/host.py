"""A small host for tests: starts a real worker on a real socket, and can stop it with all its descendants."""

from __future__ import annotations

import ctypes
import json
import os
import queue
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

PACKAGES = Path(__file__).resolve().parent.parent
FIXTURES = PACKAGES.parent / "tests" / "runtime-fixtures"
FLAGS = ("-P", "-S")
HANG_S = 30.0
"""A bound against hangs, not an expectation."""
_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Makes this process the parent of every descendant that loses its own, as the real shim is."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def parents():
    """Process to its parent and state, for all processes."""
    table = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                fields = Path(f"/proc/{name}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
            except OSError:
                continue
            table[int(name)] = (int(fields[1]), fields[0])
    return table


class Dead(Exception):
    """The worker ended without an answer."""


class Host:
    """One worker and its connection."""

    def __init__(self, role="workbench", release=None, skills=None, inherited=False, flags=FLAGS, reply=None):
        adopt_orphans()
        self.before = {pid for pid, (parent, _) in parents().items() if parent == os.getpid()}
        self.folder = tempfile.mkdtemp(prefix="klbr-test-")
        self.token_path = f"{self.folder}/token"
        self.reply = reply or (lambda request: {"kind": "ok", "value": request})
        self.requests = []
        self.native = {1: bytearray(), 2: bytearray()}
        self.messages = queue.Queue()
        self.completions = {}
        self.cells = 0
        self.ended = threading.Event()
        self._start(role, release, skills, inherited, flags)
        reader = threading.Thread(target=self._read, daemon=True)
        reader.start()
        self.hello = self.messages.get(timeout=HANG_S)
        if self.hello is None:
            self._fail()

    def _start(self, role, release, skills, inherited, flags):
        environment = dict(os.environ, PYTHONPATH=str(PACKAGES))
        command = [sys.executable, *flags, "-m", "klbr.worker"]
        Path(self.token_path).write_text("token-1")
        listener = None
        if inherited:
            ours, theirs = socket.socketpair()
            command += ["--inherited"]
        else:
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(f"{self.folder}/control.sock")
            listener.listen()
            listener.settimeout(HANG_S)
            theirs = None
            command += ["--role", role, "--session", "root", "--generation", "g-1"]
            command += ["--socket", f"{self.folder}/control.sock", "--token-file", self.token_path]
            command += ["--release", release] if release else []
            command += ["--skills", skills] if skills else []
        self.process = subprocess.Popen(
            command,
            stdin=theirs if inherited else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            cwd=self.folder,
            start_new_session=True,
        )
        self.drains = [
            threading.Thread(target=self._drain, args=(descriptor, pipe), daemon=True)
            for descriptor, pipe in ((1, self.process.stdout), (2, self.process.stderr))
        ]
        for thread in self.drains:
            thread.start()
        if inherited:
            theirs.close()
            self.socket = ours
            line = {"role": role, "session": "root", "generation": "g-1", "token": "token-1"}
            line.update(skills=skills, release=release)
            ours.sendall(json.dumps(line).encode() + b"\n")
            return
        # A worker that ends before it connects must not cost the whole timeout.
        deadline = time.monotonic() + HANG_S
        listener.settimeout(0.05)
        while True:
            try:
                self.socket, _ = listener.accept()
                break
            except TimeoutError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    self.socket = listener
                    self.ended.set()
                    self._fail()
        listener.close()

    def _fail(self):
        """The worker did not begin."""
        self.close()
        raise Dead(self.text(2))

    def _drain(self, descriptor, pipe):
        while data := os.read(pipe.fileno(), 65_536):
            self.native[descriptor] = (self.native[descriptor] + data)[-1_000_000:]

    def _read(self):
        try:
            with self.socket.makefile("rb") as stream:
                while len(head := stream.read(4)) == 4:
                    envelope = json.loads(stream.read(int.from_bytes(head, "big")))
                    self._take(envelope["message"])
        except (OSError, ValueError):
            pass
        self.ended.set()
        self.messages.put(None)

    def _take(self, message):
        if message["kind"] == "host_request":
            self.requests.append(message)
            result = self.reply(message["request"])
            if result is not None:
                self.answer(message, result)
        elif message["kind"] == "completed":
            self.completions[message["id"]] = (time.monotonic(), message["result"])
            self.messages.put(message)
        else:
            self.messages.put(message)

    def answer(self, request, result):
        self.send(kind="host_reply", id=request["id"], execution_id=request["execution_id"], result=result)

    def send(self, **message):
        envelope = {"version": 1, "session_id": "root", "generation": "g-1", "message": message}
        self.send_payload(json.dumps(envelope).encode())

    def send_payload(self, payload):
        self.socket.sendall(len(payload).to_bytes(4, "big") + payload)

    def start_cell(self, code):
        """Sends a cell and gives its operation id."""
        self.cells += 1
        operation = f"e-{self.cells}"
        self.send(kind="execute", id=operation, code=code)
        return operation

    def wait_for(self, operation, timeout=HANG_S):
        """The result of an operation. Raises `Dead`, or `TimeoutError`."""
        deadline = time.monotonic() + timeout
        while operation not in self.completions:
            if self.ended.is_set() and operation not in self.completions:
                raise Dead(f"no completion of {operation}; {self.text(2)}")
            if time.monotonic() > deadline:
                raise TimeoutError(operation)
            time.sleep(0.001)
        return self.completions[operation][1]

    def run(self, code, timeout=HANG_S):
        """Runs a cell and gives its result."""
        return self.wait_for(self.start_cell(code), timeout)

    def interrupt(self, operation):
        self.send(kind="interrupt", id=operation)

    def text(self, *descriptors):
        """What was written to the raw descriptors."""
        return b"".join(bytes(self.native[d]) for d in descriptors or (1, 2)).decode("utf-8", "replace")

    def descendants(self):
        """Processes that the worker started, at any distance and whoever their parent is now."""
        table = parents()
        mine = {self.process.pid}
        found = set()
        roots = {pid for pid, (parent, _) in table.items() if parent == os.getpid()}
        found |= roots - self.before - mine
        grown = True
        while grown:
            more = {pid for pid, (parent, _) in table.items() if parent in found | mine} - found - mine
            grown = bool(more)
            found |= more
        return {pid for pid in found if table[pid][1] != "Z"}

    def reap(self):
        """Collects adopted orphans that have ended; gives how many zombies are left."""
        for pid, (parent, state) in parents().items():
            if parent == os.getpid() and state == "Z" and pid not in self.before | {self.process.pid}:
                os.waitpid(pid, os.WNOHANG)
        table = parents()
        ours = {os.getpid(), self.process.pid}
        return sum(1 for pid, (p, s) in table.items() if s == "Z" and p in ours and pid not in self.before)

    def hard_stop(self):
        """Kills the worker and every descendant, until none is left."""
        deadline = time.monotonic() + HANG_S
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(HANG_S)
        while (left := self.descendants()) and time.monotonic() < deadline:
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            self.reap()
            time.sleep(0.005)

    def shutdown(self):
        """Asks for the end and gives the exit status."""
        self.send(kind="shutdown")
        return self.process.wait(HANG_S)

    def close(self):
        self.hard_stop()
        self.reap()
        self.socket.close()
        self.ended.wait(HANG_S)
        for thread in self.drains:
            thread.join(HANG_S)
        for pipe in (self.process.stdout, self.process.stderr):
            pipe.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def joined(result, stream):
    """The text of all records of one stream."""
    return "".join(record["text"] for record in result["output"] if record["stream"] == stream)
