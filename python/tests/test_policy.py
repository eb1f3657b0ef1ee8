"""The hook worker: releases, handlers, answers."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
import time
import unittest
from pathlib import Path

from klbr.worker.release import ReleaseError, entry_points, identity
from tests.host import FIXTURES, PACKAGES, Dead, Host

DEFAULT = str(PACKAGES / "klbr_hooks")
MANIFEST = {"version": 1, "hooks": {"attention.plan": "rules:attention", "delivery.review": "rules:delivery"}}
INPUTS = {
    "attention.plan": {"event_id": 7, "source": "operator", "received_at_ms": 0},
    "delivery.review": {"effect_id": "f-1", "destination": "operator", "text": "hello"},
}


class Release:
    """A folder of hook source that is removed at the end."""

    def __init__(self, files):
        self.folder = tempfile.mkdtemp(prefix="klbr-release-")
        for name, content in files.items():
            path = Path(self.folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content if isinstance(content, str) else json.dumps(content))

    def __enter__(self):
        return self.folder

    def __exit__(self, *_):
        shutil.rmtree(self.folder)


def rules(source):
    return Release({"manifest.json": MANIFEST, "rules.py": "from klbr.policy import *\n" + source})


def invoke(host, slot, fields=None, operation=None):
    host.cells += 1
    operation = operation or f"i-{host.cells}"
    host.send(kind="invoke", id=operation, slot=slot, input=INPUTS[slot] if fields is None else fields)
    return operation


def ask(host, slot, fields=None):
    return host.wait_for(invoke(host, slot, fields))


class DefaultPolicy(unittest.TestCase):
    def test_it_answers_both_slots(self):
        with Host("hooks", release=DEFAULT) as host:
            self.assertEqual(host.hello["revision"], identity(DEFAULT))
            self.assertEqual(host.hello["slots"], ["attention.plan", "delivery.review"])
            self.assertEqual(host.hello["role"], "hooks")
            wake = ask(host, "attention.plan")
            ambient = ask(host, "attention.plan", {**INPUTS["attention.plan"], "source": "discord.ambient"})
            allow = ask(host, "delivery.review")
            empty = ask(host, "delivery.review", {**INPUTS["delivery.review"], "text": " "})
            key = "-----BEGIN RSA PRIVATE KEY-----"
            secret = ask(host, "delivery.review", {**INPUTS["delivery.review"], "text": key})

            self.assertEqual(wake, {"kind": "hook", "value": {"action": "wake", "priority": 100}})
            self.assertEqual(ambient, {"kind": "hook", "value": {"action": "defer", "seconds": 60}})
            self.assertEqual(allow, {"kind": "hook", "value": {"action": "allow"}})
            self.assertEqual(empty["value"]["action"], "hold")
            self.assertEqual(secret["value"]["action"], "hold")
            self.assertEqual(host.shutdown(), 0)

    def test_a_copy_of_it_is_what_runs_and_not_the_installed_one(self):
        with tempfile.TemporaryDirectory() as folder:
            copy = shutil.copytree(
                DEFAULT, f"{folder}/release", ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True
            )
            source = Path(copy, "klbr_hooks", "defaults.py")
            source.write_text(source.read_text().replace('"operator": 100', '"operator": 99'))
            with Host("hooks", release=copy) as host:
                answer = ask(host, "attention.plan")

            self.assertEqual(answer["value"], {"action": "wake", "priority": 99})
            self.assertEqual(list(Path(copy).rglob("__pycache__")), [])


class Handlers(unittest.TestCase):
    def test_async_handlers_run_side_by_side(self):
        source = """
import asyncio
gate = asyncio.Event()
async def attention(request, context):
    await gate.wait()
    return Wake(request.event_id)
async def delivery(request, context):
    gate.set()
    return Allow()
"""
        with rules(source) as release, Host("hooks", release=release) as host:
            waiting = invoke(host, "attention.plan")
            ask(host, "delivery.review")

            self.assertEqual(host.wait_for(waiting)["value"], {"action": "wake", "priority": 7})

    def test_plain_handlers_run_in_the_order_of_their_calls(self):
        source = """
calls = []
def attention(request, context):
    calls.append(request.event_id)
    return Ignore(str(calls))
def delivery(request, context): return Allow()
"""
        with rules(source) as release, Host("hooks", release=release) as host:
            calls = [
                invoke(host, "attention.plan", {**INPUTS["attention.plan"], "event_id": number})
                for number in range(1, 31)
            ]
            last = host.wait_for(calls[-1])

            self.assertEqual(last["value"], {"action": "ignore", "reason": str(list(range(1, 31)))})

    def test_faults_of_handlers_fail_their_call_and_no_other(self):
        source = """
def attention(request, context):
    what = request.source
    if what == "raise": raise ValueError("no " * 10_000)
    if what == "exit": raise SystemExit(3)
    if what == "interrupt": raise KeyboardInterrupt
    if what == "wrong": return Allow()
    if what == "none": return None
    if what == "dict": return {"action": "wake", "priority": 1}
    if what == "nan": return Defer(float("nan"))
    if what == "long": return Defer(601)
    if what == "bool": return Wake(True)
    if what == "surrogate": return Ignore("\\ud800")
    if what == "change": request.source = "x"
    return Wake(1)
async def delivery(request, context):
    if request.text == "raise": raise LookupError("async")
    return "allow"
"""
        with rules(source) as release, Host("hooks", release=release) as host:
            for what in (
                *("raise", "exit", "interrupt", "wrong", "none", "dict"),
                *("nan", "long", "bool", "surrogate", "change"),
            ):
                answer = ask(host, "attention.plan", {**INPUTS["attention.plan"], "source": what})
                with self.subTest(what):
                    self.assertEqual(answer["kind"], "failed", answer)
                    self.assertLessEqual(len(answer["error"].encode()), 8_192)
            raised = ask(host, "delivery.review", {**INPUTS["delivery.review"], "text": "raise"})
            self.assertIn("LookupError: async", raised["error"])
            self.assertIn("TypeError", ask(host, "delivery.review")["error"])
            self.assertEqual(ask(host, "attention.plan")["value"], {"action": "wake", "priority": 1})

    def test_inputs_are_checked(self):
        with Host("hooks", release=DEFAULT) as host:
            good = INPUTS["attention.plan"]
            for fields in (
                *({}, [], None, {**good, "extra": 1}, {**good, "event_id": 0}, {**good, "event_id": True}),
                *({**good, "received_at_ms": -1}, {**good, "source": 1}, {**good, "event_id": 1.0}),
            ):
                host.cells += 1
                host.send(kind="invoke", id=f"x-{host.cells}", slot="attention.plan", input=fields)
                self.assertEqual(host.wait_for(f"x-{host.cells}")["kind"], "failed", fields)

    def test_a_handler_has_no_host(self):
        source = """
import klbr
def attention(request, context): return Wake()
async def delivery(request, context):
    try:
        await klbr.local.send("psst")
    except klbr.HostError as error:
        return Hold(error.code)
"""
        with rules(source) as release, Host("hooks", release=release) as host:
            self.assertEqual(ask(host, "delivery.review")["value"], {"action": "hold", "reason": "refused"})
            self.assertEqual(host.requests, [])

    def test_the_context_says_who_asks(self):
        source = """
def attention(request, context):
    return Ignore(f"{context.session_id} {context.generation} {context.operation_id} {context.slot}")
def delivery(request, context): return Hold(context.revision)
"""
        with rules(source) as release, Host("hooks", release=release) as host:
            operation = invoke(host, "attention.plan", operation="op.1")

            reason = host.wait_for(operation)["value"]["reason"]
            self.assertEqual(reason, "root g-1 op.1 attention.plan")
            self.assertEqual(ask(host, "delivery.review")["value"]["reason"], host.hello["revision"])

    def test_an_interrupt_cancels_a_waiting_handler(self):
        source = """
import asyncio
async def attention(request, context): await asyncio.sleep(600)
def delivery(request, context): return Allow()
"""
        with rules(source) as release, Host("hooks", release=release) as host:
            waiting = invoke(host, "attention.plan")
            ask(host, "delivery.review")
            host.interrupt(waiting)

            self.assertIn("CancelledError", host.wait_for(waiting)["error"])

    def test_execute_is_not_for_a_hook_worker(self):
        with Host("hooks", release=DEFAULT) as host:
            host.start_cell("1")

            self.assertEqual(host.process.wait(30), 70)

    def test_shutdown_ends_a_hung_handler_too(self):
        source = """
import time
def attention(request, context): time.sleep(600)
def delivery(request, context): return Allow()
"""
        with rules(source) as release, Host("hooks", release=release) as host:
            invoke(host, "attention.plan")
            time.sleep(0.2)

            self.assertEqual(host.shutdown(), 0)


class Releases(unittest.TestCase):
    def test_the_identity_is_that_of_the_shared_fixture(self):
        fixture = json.loads((FIXTURES / "behavior.json").read_text())
        with Release(fixture["files"]) as folder:
            Path(folder, "__pycache__").mkdir()
            Path(folder, "__pycache__", "x.pyc").write_bytes(b"x")

            self.assertEqual(identity(folder), fixture["digest"])

    def test_the_identity_is_sorted_names_and_contents_with_their_lengths(self):
        with Release({"b.py": "1", "a/c.md": "22", "a.json": ""}) as folder:
            expected = hashlib.sha256()
            for name, content in (("a.json", b""), ("a/c.md", b"22"), ("b.py", b"1")):
                expected.update(len(name).to_bytes(8, "big") + name.encode())
                expected.update(len(content).to_bytes(8, "big") + content)

            self.assertEqual(identity(folder), expected.hexdigest())

    def test_what_does_not_belong_into_a_release(self):
        for files, link in (
            ({"a.txt": ""}, None),
            ({"a.pyc": ""}, None),
            ({f"{n}.py": "" for n in range(129)}, None),
            ({"a.py": "x" * 2 * 1024 * 1024, "b.py": "y"}, None),
            ({"a.py": ""}, "b.py"),
            ({"a.py": ""}, "folder"),
        ):
            with Release(files) as folder:
                if link:
                    Path(folder, link).symlink_to("/tmp" if link == "folder" else "a.py")
                with self.assertRaises(ReleaseError):
                    identity(folder)
        with Release({f"{n}.py": "" for n in range(128)}) as folder:
            self.assertEqual(len(identity(folder)), 64)

    def test_manifests_are_strict(self):
        hooks = MANIFEST["hooks"]
        for manifest in (
            "",
            "[]",
            '{"version":1,"version":1,"hooks":{}}',
            {**MANIFEST, "version": 2},
            {**MANIFEST, "version": True},
            {**MANIFEST, "extra": 1},
            {"hooks": hooks},
            {"version": 1, "hooks": {"attention.plan": "a:b"}},
            {"version": 1, "hooks": {**hooks, "other": "a:b"}},
            *(
                {"version": 1, "hooks": {**hooks, "attention.plan": e}}
                for e in ("a", "a:b:c", ":b", "a:", 1, "a b:c")
            ),
        ):
            with Release({"manifest.json": manifest}) as folder, self.assertRaises(ReleaseError):
                entry_points(folder)

    def test_a_worker_does_not_start_with_handlers_that_it_could_not_call(self):
        two = "def delivery(request, context): ...\n"
        for source, reason in (
            ("def attention(request): ...\n" + two, "TypeError"),
            ("def attention(request, context, *, more): ...\n" + two, "TypeError"),
            ("attention = 3\n" + two, "TypeError"),
            (two, "AttributeError"),
            ("1 +\n", "SyntaxError"),
            ("import no_such_module\n", "ModuleNotFoundError"),
            ("raise SystemExit(0)\n", "SystemExit"),
        ):
            with rules(source) as release, self.subTest(source), self.assertRaises(Dead) as raised:
                Host("hooks", release=release)
            self.assertIn(reason, str(raised.exception))
            self.assertIn("rules:", str(raised.exception))

    def test_a_handler_from_outside_of_the_release_is_refused(self):
        manifest = {"version": 1, "hooks": dict.fromkeys(MANIFEST["hooks"], "shutil:copyfile")}
        with Release({"manifest.json": manifest}) as release, self.assertRaises(Dead) as raised:
            Host("hooks", release=release)
        self.assertIn("not in the release", str(raised.exception))

    def test_an_unusable_release_ends_with_70(self):
        with Release({"manifest.json": "{}"}) as release:
            import os
            import subprocess
            import sys

            token = Path(tempfile.mkdtemp(), "token")
            token.write_text("t")
            command = [sys.executable, "-P", "-S", "-m", "klbr.worker", "--role", "hooks", "--session", "s"]
            command += ["--generation", "g", "--socket", "/nowhere", "--token-file", str(token)]
            environment = dict(os.environ, PYTHONPATH=str(PACKAGES))
            done = subprocess.run([*command, "--release", release], env=environment, capture_output=True)

            # The socket is not there either: the token is gone whatever failed.
            self.assertEqual(done.returncode, 70)
            self.assertFalse(token.exists())


if __name__ == "__main__":
    unittest.main()
