"""The worker from outside: start and end, output, requests, interrupts, children."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

from tests.host import HANG_S, PACKAGES, Dead, Host, joined


def resident_kib(host):
    status = Path(f"/proc/{host.process.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0])


class Starting(unittest.TestCase):
    def test_hello_says_what_the_worker_is(self):
        with Host() as host:
            self.assertEqual(
                host.hello,
                {
                    "kind": "hello",
                    "token": "token-1",
                    "role": "workbench",
                    "revision": None,
                    "slots": [],
                    "skills_revision": None,
                },
            )

    def test_the_token_file_is_gone_and_the_token_is_nowhere_to_be_seen(self):
        with Host() as host:
            process = Path(f"/proc/{host.process.pid}")

            self.assertFalse(Path(host.token_path).exists())
            self.assertNotIn(b"token-1", (process / "cmdline").read_bytes())
            self.assertNotIn(b"token-1", (process / "environ").read_bytes())

    def test_an_inherited_connection_serves_the_same(self):
        with Host(inherited=True) as host:
            self.assertEqual(host.hello["token"], "token-1")
            self.assertEqual(joined(host.run("1 + 1"), "result"), "2")
            self.assertEqual(
                joined(host.run("import os; os.readlink('/proc/self/fd/0')"), "result"), "'/dev/null'"
            )
            self.assertIn("EOFError", host.run("input()")["error"])
            self.assertEqual(host.shutdown(), 0)

    def test_an_inherited_hook_worker(self):
        release = str(PACKAGES / "klbr_hooks")
        with Host("hooks", release=release, inherited=True) as host:
            self.assertEqual(len(host.hello["revision"]), 64)

    def test_the_revision_of_the_skills_is_echoed(self):
        with tempfile.TemporaryDirectory() as folder:
            with Host(skills=folder) as host:
                self.assertIsNone(host.hello["skills_revision"])
            Path(folder, "revision").write_text("abc\n")
            with Host(skills=folder) as host:
                self.assertEqual(host.hello["skills_revision"], "abc")

    def test_heavy_modules_are_not_imported_at_the_start(self):
        with Host() as host:
            names = joined(host.run("import sys; ' '.join(sys.modules)"), "result").strip("'").split()
            heavy = {"asyncio", "json", "re", "argparse", "threading", "traceback", "inspect", "dataclasses"}

            self.assertEqual(heavy.union({"typing", "socket", "enum", "logging"}).intersection(names), set())

    def test_bad_arguments_end_with_64(self):
        good = [
            "--role",
            "workbench",
            "--session",
            "s",
            "--generation",
            "g",
            "--socket",
            "/x",
            "--token-file",
            "/x",
        ]
        for arguments in (
            [],
            ["--inherited", "--role", "workbench"],
            good[2:],
            [*good, "--role", "hooks"],
            [*good, "--surprise", "1"],
            [*good, "--skills"],
            [*good[:1], "operator", *good[2:]],
            [*good[:3], "a b", *good[4:]],
            [*good[:1], "hooks", *good[2:]],
            ["workbench"],
        ):
            self.assertEqual(self.start(arguments).returncode, 64, arguments)

    def test_an_unusable_first_line_ends_with_64(self):
        for line in (b"\n", b"{}\n", b"[]\n", b'{"role":"workbench"}\n', b"x" * 70_000):
            done = self.start(["--inherited"], line)
            self.assertEqual(done.returncode, 64, line[:50])
        self.assertEqual(self.start(["--inherited"], b"{").returncode, 70)

    def test_no_host_ends_with_70(self):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "token").write_text("t")
            arguments = ["--role", "workbench", "--session", "s", "--generation", "g"]
            arguments += ["--socket", f"{folder}/none", "--token-file", f"{folder}/token"]
            done = self.start(arguments)

            self.assertEqual(done.returncode, 70)
            self.assertIn(b"cannot connect", done.stderr)

    def start(self, arguments, data=b""):
        return subprocess.run(
            [sys.executable, "-P", "-S", "-m", "klbr.worker", *arguments],
            env=dict(os.environ, PYTHONPATH=str(PACKAGES)),
            input=data,
            capture_output=True,
            timeout=HANG_S,
        )

    def test_it_works_with_site_and_without_safe_path(self):
        with Host(flags=()) as host:
            self.assertEqual(joined(host.run("import sys; sys.path[0], sys.argv"), "result"), "('', [''])")


class Ending(unittest.TestCase):
    def test_shutdown_runs_the_exit_functions(self):
        with Host() as host:
            host.run("import atexit, os; atexit.register(os.write, 1, b'bye')")

            self.assertEqual(host.shutdown(), 0)
            host.ended.wait(HANG_S)
            host.close()
            self.assertIn("bye", host.text(1))

    def test_shutdown_in_mid_cell_interrupts_it_and_exits_with_0(self):
        for code in (
            "while True: pass",
            "import time; time.sleep(600)",
            "import asyncio; await asyncio.sleep(600)",
        ):
            with self.subTest(code), Host() as host:
                host.start_cell(code)
                time.sleep(0.3)

                self.assertEqual(host.shutdown(), 0)

    def test_shutdown_is_not_stopped_by_a_cell_that_ignores_it(self):
        with Host() as host:
            host.start_cell("while True:\n try:\n  while True: pass\n except BaseException: pass")
            time.sleep(0.3)
            started = time.monotonic()

            self.assertEqual(host.shutdown(), 0)
            self.assertLess(time.monotonic() - started, 5.0)

    def test_shutdown_is_not_stopped_by_threads_and_exit_functions(self):
        with Host() as host:
            host.run("import atexit, time, threading; atexit.register(time.sleep, 600)")
            host.run("threading.Thread(target=time.sleep, args=(600,)).start()")
            started = time.monotonic()

            self.assertEqual(host.shutdown(), 0)
            self.assertLess(time.monotonic() - started, 5.0)

    def test_a_host_that_is_gone_ends_the_worker_with_70(self):
        for code in (None, "while True: pass", "import asyncio; await asyncio.sleep(600)"):
            with self.subTest(code), Host() as host:
                if code:
                    host.start_cell(code)
                    time.sleep(0.3)
                host.socket.shutdown(socket.SHUT_RDWR)

                self.assertEqual(host.process.wait(HANG_S), 70)
                host.close()
                self.assertIn("klbr.worker:", host.text(2))

    def test_a_refused_frame_ends_the_worker_with_70(self):
        for data in (
            b"\0\0\0\0",
            b"\0\x10\0\x01",
            b"\0\0\0\x02[]",
            b'\0\0\0\x07{"a":1}',
            b"\xff" * 8,
        ):
            with self.subTest(data), Host() as host:
                host.socket.sendall(data)
                self.assertEqual(host.process.wait(HANG_S), 70)
        for message in (
            {"kind": "invoke", "id": "i", "slot": "delivery.review", "input": {}},
            {"kind": "no"},
        ):
            with self.subTest(message), Host() as host:
                host.send(**message)
                self.assertEqual(host.process.wait(HANG_S), 70)

    def test_exit_in_a_background_task_does_not_end_the_worker(self):
        with Host() as host:
            host.run(
                "import asyncio\nasync def leave(): raise SystemExit(9)\nt = asyncio.create_task(leave())"
            )
            time.sleep(0.2)

            self.assertEqual(joined(host.run("1 + 1"), "result"), "2")


class Namespace(unittest.TestCase):
    def test_the_worker_leaves_no_names_of_its_own(self):
        with Host() as host:
            names = joined(host.run("sorted(n for n in globals() if not n.startswith('__'))"), "result")
            modules = "agents behavior evidence frontier hooks klbr local maintenance orientation peer remote"

            self.assertEqual(eval(names), [*modules.split(), "runtime", "skills", "workspace"])
            self.assertEqual(
                joined(host.run("__name__, __spec__, '__file__' in globals()"), "result")[:18],
                "('__main__', None,",
            )

    def test_classes_of_cells_can_be_pickled_and_inspected(self):
        with Host() as host:
            host.run("class K:\n    def m(self):\n        return 1\n    class Inner:\n        x = 2")
            text = joined(host.run("import pickle; pickle.loads(pickle.dumps(K())).m()"), "result")
            host.run("class Other: pass")
            source = joined(
                host.run("import inspect; print(inspect.getsource(K.Inner), inspect.getsource(K))"), "stdout"
            )

            self.assertEqual(text, "1")
            self.assertIn("class Inner:\n        x = 2", source)
            self.assertIn("class K:\n    def m", source)

    def test_future_statements_persist(self):
        with Host() as host:
            host.run("from __future__ import annotations")

            text = joined(host.run("def f(x: no_such_name): pass\nf.__annotations__"), "result")
            self.assertEqual(text, "{'x': 'no_such_name'}")

    def test_top_level_async_for_and_with(self):
        code = """
class A:
    async def __aenter__(self): return 'in'
    async def __aexit__(self, *_): pass
async def g():
    yield 1
    yield 2
async with A() as a:
    print(a)
async for n in g(): print(n)
[x async for x in g()]
"""
        with Host() as host:
            result = host.run(code)

            self.assertEqual((joined(result, "stdout"), joined(result, "result")), ("in\n1\n2\n", "[1, 2]"))

    def test_tracebacks_show_cells_and_no_worker(self):
        with Host() as host:
            host.run("def f():\n    return 1/0  # in the first cell")
            sync = host.run("f()")["error"]
            waiting = host.run("import asyncio\nawait asyncio.sleep(0)\nf()")["error"]
            refused = host.run("await local.send(b'')")["error"]

            for error in (sync, waiting, refused):
                self.assertNotIn("klbr/", error)
                self.assertTrue(error.startswith('Traceback (most recent call last):\n  File "<cell '), error)
            self.assertIn('File "<cell 1>", line 2, in f\n    return 1/0  # in the first cell', sync)
            self.assertIn('File "<cell 1>", line 2, in f', waiting)

    def test_long_errors_keep_their_beginning_and_their_end(self):
        with Host() as host:
            error = host.run("raise ValueError('x' * 1_000_000 + 'the end')")["error"]

            self.assertLessEqual(len(error.encode()), 65_536)
            self.assertTrue(error.startswith("Traceback"))
            self.assertTrue(error.endswith("the end\n"))

    def test_odd_errors_are_errors(self):
        with Host() as host:
            for code, word in (
                ("class E(Exception):\n def __str__(self): raise E\nraise E", "E"),
                ("class E(Exception):\n def __str__(self): return 3\nraise E", "E"),
                ("raise ExceptionGroup('g', [ValueError('\\ud800'), KeyError(1)])", "KeyError: 1"),
                ("def f(): f()\nf()", "RecursionError"),
                ("e = ValueError(); e.add_note('a note'); raise e", "a note"),
                ("a\0b", "null bytes"),
                ("import asyncio; raise asyncio.CancelledError", "CancelledError"),
                ("raise BaseException('base')", "base"),
                ("raise klbr.TurnYielded", "TurnYielded"),
                ("x = '" + "y" * 262_144 + "'", "262144"),
                ("(" * 3_000, "Error"),
            ):
                result = host.run(code)
                with self.subTest(code[:60]):
                    self.assertEqual(result["status"], "error")
                    self.assertIn(word, result["error"])

    def test_exit_with_a_text_or_a_number_is_an_error_and_else_fine(self):
        with Host() as host:
            statuses = [
                host.run(code)["status"]
                for code in ("exit()", "exit(0)", "quit(None)", "exit(1)", "exit('no')")
            ]

            self.assertEqual(statuses, ["ok", "ok", "ok", "error", "error"])

    def test_the_working_folder_is_imported_from_and_followed(self):
        with Host() as host:
            Path(host.folder, "here.py").write_text("x = 1")
            Path(host.folder, "sub").mkdir()
            Path(host.folder, "sub", "there.py").write_text("x = 2")

            text = joined(
                host.run("import here, os\nos.chdir('sub')\nimport there\nhere.x, there.x"), "result"
            )
            self.assertEqual(text, "(1, 2)")

    def test_site_packages_are_there_when_something_needs_them(self):
        with Host() as host:
            before = host.run("import sys; any('site-packages' in p for p in sys.path)")
            missing = host.run("import no_such_module_at_all")
            after = host.run(
                "any(p.endswith(('site-packages', 'dist-packages')) for p in sys.path), sys.path[0], exit"
            )

            self.assertEqual(joined(before, "result"), "False")
            self.assertIn("ModuleNotFoundError: No module named 'no_such_module_at_all'", missing["error"])
            self.assertEqual(joined(after, "result")[:11], "(True, '', ")
            self.assertIn("ends the cell", joined(after, "result"))

    def test_help_and_the_guide(self):
        with Host() as host:
            guide = joined(host.run("klbr.help()"), "stdout")
            page = joined(host.run("help(workspace)"), "stdout")
            doc = joined(host.run("print(local.__doc__)"), "stdout")

            self.assertIn("local.send", guide)
            self.assertIn("timeout_ms", page)
            self.assertIn("Speech", doc)


class Writing(unittest.TestCase):
    def test_records_keep_the_order_of_the_streams(self):
        code = "import sys\nfor i in range(3): print(i); print('e', file=sys.stderr)\n'v'"
        with Host() as host:
            streams = [record["stream"] for record in host.run(code)["output"]]

            self.assertEqual(streams, ["stdout", "stderr"] * 3 + ["result"])

    def test_more_than_256_records_are_cut_and_counted(self):
        code = "import sys\nfor i in range(500): print('o'); print('e', file=sys.stderr)"
        with Host() as host:
            result = host.run(code)
            shown = sum(len(record["text"]) for record in result["output"])

            self.assertEqual(len(result["output"]), 256)
            self.assertEqual(shown + result["truncated_bytes"], 2_000)

    def test_the_cut_is_exact_at_every_offset(self):
        with Host() as host:
            for start in range(65_530, 65_538):
                for text in ("a", "é", "€", "🙂"):
                    result = host.run(f"print('x' * {start} + {text!r} * 3, end='')")
                    shown = len(joined(result, "stdout").encode())
                    total = start + 3 * len(text.encode())
                    self.assertEqual(shown + result["truncated_bytes"], total)
                    self.assertLessEqual(shown, 65_536)
                    self.assertGreater(shown, min(total, 65_536) - len(text.encode()))

    def test_fifty_megabytes_do_not_grow_the_worker(self):
        with Host() as host:
            host.run("print('warm')")
            before = resident_kib(host)
            result = host.run("for i in range(50_000): print('€' * 333)")
            total = 50_000 * 1_000

            self.assertEqual(len(joined(result, "stdout").encode()) + result["truncated_bytes"], total)
            self.assertLess(resident_kib(host) - before, 8 * 1024)

    def test_text_from_threads_pools_and_tasks_belongs_to_the_cell_that_started_them(self):
        code = """
import asyncio, threading
from concurrent.futures import ThreadPoolExecutor
t = threading.Thread(target=print, args=('thread',)); t.start(); t.join()
with ThreadPoolExecutor(1) as pool: pool.submit(print, 'pool').result()
await asyncio.to_thread(print, 'to_thread')
await asyncio.get_running_loop().run_in_executor(None, print, 'executor')
await asyncio.create_task(asyncio.to_thread(print, 'task'))
"""
        with Host() as host:
            self.assertEqual(joined(host.run(code), "stdout"), "thread\npool\nto_thread\nexecutor\ntask\n")

    def test_a_pool_of_an_earlier_cell_writes_for_the_cell_that_uses_it(self):
        with Host() as host:
            host.run("from concurrent.futures import ThreadPoolExecutor\npool = ThreadPoolExecutor(1)")
            host.run("pool.submit(print, 'one').result()")

            self.assertEqual(joined(host.run("pool.submit(print, 'two').result()"), "stdout"), "two\n")

    def test_a_task_that_outlives_its_cell_writes_to_the_raw_tail(self):
        with Host() as host:
            host.run(
                "import asyncio\nasync def f():\n    await asyncio.sleep(0.3); print('late')\nt = asyncio.create_task(f())"
            )
            second = host.run("await asyncio.sleep(0.6); print('second')")

            self.assertEqual(joined(second, "stdout"), "second\n")
            self.assertIn("late", host.text(1))

    def test_bytes_cut_inside_a_character(self):
        code = "import sys\nfor b in '🙂'.encode(): sys.stdout.buffer.write(bytes([b]))\nsys.stdout.buffer.write(b'\\xff.')\n0"
        with Host() as host:
            self.assertEqual(joined(host.run(code), "stdout"), "🙂\\xff.")

    def test_a_finalizer_that_prints_while_printing(self):
        code = """
import gc
class Loud:
    def __init__(self): self.me = self
    def __del__(self): print('x' * 10)
gc.set_threshold(1)
for i in range(200): Loud(); print('y')
gc.set_threshold(700, 10, 10)
"""
        with Host() as host:
            self.assertEqual(host.run(code)["status"], "ok")


class Requests(unittest.TestCase):
    def test_every_module_is_importable_and_every_request_goes_out_as_the_protocol_has_it(self):
        calls = {
            "local.send": ("'hello'", {"text": "hello"}),
            "runtime.inspect": ("", {}),
            "runtime.instructions": ("", {}),
            "hooks.list": ("", {}),
            "hooks.describe": ("'delivery.review'", {"slot": "delivery.review"}),
            "skills.index": ("", {}),
            "skills.load": ("'w'", {"id": "w"}),
            "workspace.info": ("", {}),
            "workspace.run": (
                "['ls']",
                {"argv": ["ls"], "cwd": ".", "env": {}, "timeout_ms": 120_000, "max_output_bytes": 750_000},
            ),
            "evidence.resolve": ("('event:1',)", {"refs": ["event:1"]}),
            "behavior.activate": ("'/p', 3", {"path": "/p", "expected_epoch": 3}),
            "maintenance.originate": ("'p', 'r'", {"purpose": "p", "reason": "r", "evidence_refs": []}),
            "maintenance.assess": ("'w', outcome='o'", {"work_item_id": "w", "outcome": "o"}),
            "orientation.stage": (
                "'c', 't', 'g'",
                {"candidate_id": "c", "text": "t", "target": "g", "scope": {"kind": "global"}},
            ),
            "orientation.current": ("{'kind': 'session'}", {"scope": {"kind": "session"}}),
            "orientation.adopt": ("'c', 'o'", {"candidate_id": "c", "operation_id": "o"}),
            "frontier.select": ("", {}),
            "peer.open": ("", {"mode": "independent", "evidence": []}),
            "agents.open": ("", {"mode": "independent", "evidence": []}),
            "peer.send": (
                "'p', 'r', 'c'",
                {"peer_id": "p", "request_id": "r", "content": "c", "evidence": []},
            ),
            "peer.message": (
                "'p', 'r', 'c', ['event:2']",
                {"peer_id": "p", "request_id": "r", "content": "c", "evidence": ["event:2"]},
            ),
            "peer.result": ("'r', wait_ms=5000", {"request_id": "r", "wait_ms": 5000}),
            "peer.submit_result": ("'r', {'a': (1, None)}", {"request_id": "r", "result": {"a": [1, None]}}),
            "peer.cancel": ("'r'", {"request_id": "r"}),
            "peer.get": ("'p'", {"peer_id": "p"}),
            "peer.list": ("", {}),
            "peer.stop": ("'p'", {"peer_id": "p", "drain": True}),
            "remote.ensure": ("'t'", {"target": "t"}),
            "remote.call": (
                "'t', 'n', 'g', 'o'",
                {
                    "target": "t",
                    "namespace_id": "n",
                    "namespace_generation": "g",
                    "operation_id": "o",
                    "operation": "execute",
                    "payload": {},
                },
            ),
            "remote.cancel": (
                "'n', 'g', 'o'",
                {"namespace_id": "n", "namespace_generation": "g", "operation_id": "o"},
            ),
            "remote.close": ("'n', 'g'", {"namespace_id": "n", "namespace_generation": "g"}),
            "runtime.wait": ("30", {"seconds": 30, "reason": "waiting for input"}),
        }
        from klbr.vocabulary import REQUESTS

        self.assertEqual(set(calls), set(REQUESTS))
        with Host() as host:
            for method, (arguments, fields) in calls.items():
                module = method.partition(".")[0]
                result = host.run(f"from klbr import {module} as m\nawait klbr.{method}({arguments})")
                with self.subTest(method):
                    self.assertEqual(
                        result["status"], "yielded" if method == "runtime.wait" else "ok", result
                    )
                    self.assertEqual(host.requests[-1]["request"], {"method": method, **fields})

    def test_faulty_arguments_are_refused_here_and_nothing_is_sent(self):
        with Host() as host:
            for call, error in (
                ("local.send(3)", "TypeError"),
                ("local.send()", "TypeError"),
                ("local.send('a', other=1)", "TypeError"),
                ("local.send('\\ud800')", "UnicodeEncodeError"),
                ("runtime.wait(True)", "TypeError"),
                ("runtime.wait(0)", "ValueError"),
                ("runtime.wait(601)", "ValueError"),
                ("runtime.wait(float('nan'))", "ValueError"),
                ("workspace.run('ls')", "TypeError"),
                ("workspace.run([])", "ValueError"),
                ("workspace.run([1])", "TypeError"),
                ("workspace.run(['ls'], env={'A': 1})", "TypeError"),
                ("workspace.run(['ls'], timeout_ms=1.5)", "TypeError"),
                ("workspace.run(['ls'], timeout_ms=-1)", "TypeError"),
                ("behavior.activate('/p', True)", "TypeError"),
                ("evidence.resolve('event:1')", "TypeError"),
                ("peer.stop('p', drain=1)", "TypeError"),
                ("peer.submit_result('r', {1: 2})", "TypeError"),
                ("peer.submit_result('r', {1, 2})", "TypeError"),
                ("peer.submit_result('r', float('inf'))", "ValueError"),
                ("peer.submit_result('r', 2**63)", "ValueError"),
                ("orientation.current({'kind': 'all'})", "TypeError"),
            ):
                result = host.run(f"await {call}")
                with self.subTest(call):
                    self.assertIn(f"{error}: ", result["error"] or "")
            deep = host.run("v = []\nfor _ in range(500): v = [v]\nawait peer.submit_result('r', v)")
            circle = host.run("v = []; v.append(v)\nawait peer.submit_result('r', v)")
            self.assertIn("ValueError", deep["error"])
            self.assertIn("ValueError", circle["error"])
            self.assertEqual(host.requests, [])

    def test_what_does_not_fit_into_a_frame_is_too_large(self):
        code = "try:\n    await local.send('x' * 1_048_576)\nexcept klbr.HostError as e: r = e.code\nr"
        with Host() as host:
            self.assertEqual(joined(host.run(code), "result"), "'too_large'")
            self.assertEqual(joined(host.run("await local.send('y'); 1"), "result"), "1")

    def test_a_refused_request_raises_with_code_and_message(self):
        error = {"kind": "error", "code": "not_found", "message": "no such skill"}
        with Host(reply=lambda request: error) as host:
            code = "try: await skills.load('x')\nexcept klbr.HostError as e: print(e.code, '|', e.message, '|', e)"

            self.assertEqual(
                joined(host.run(code), "stdout"), "not_found | no such skill | not_found: no such skill\n"
            )
            self.assertIn("HostError: not_found: no such skill", host.run("await skills.index()")["error"])

    def test_identities_count_from_one_in_every_cell(self):
        with Host() as host:
            for _ in range(2):
                host.run("import asyncio\nawait asyncio.gather(*(local.send(str(i)) for i in range(3)))")

            identities = [(r["execution_id"], r["id"], r["request"]["text"]) for r in host.requests]
            self.assertEqual(
                identities, [(f"e-{c}", f"r-{n}", str(n - 1)) for c in (1, 2) for n in (1, 2, 3)]
            )

    def test_replies_out_of_order_find_their_requests(self):
        with Host(reply=lambda request: None) as host:
            operation = host.start_cell(
                "import asyncio\nawait asyncio.gather(local.send('a'), local.send('b'))"
            )
            while len(host.requests) < 2:
                time.sleep(0.01)
            for request in reversed(host.requests):
                host.answer(request, {"kind": "ok", "value": request["request"]["text"]})

            self.assertEqual(joined(host.wait_for(operation), "result"), "['a', 'b']")

    def test_late_and_foreign_replies_are_discarded(self):
        with Host(reply=lambda request: None) as host:
            first = host.start_cell(
                "import asyncio\ntry: await asyncio.wait_for(local.send('a'), 0.1)\nexcept TimeoutError: print('gave up')"
            )
            self.assertEqual(joined(host.wait_for(first), "stdout"), "gave up\n")
            second = host.start_cell("await local.send('b')")
            while len(host.requests) < 2:
                time.sleep(0.01)
            late, live = host.requests
            host.answer(late, {"kind": "ok", "value": "late"})
            host.answer({**live, "id": "r-99"}, {"kind": "ok", "value": "unknown"})
            host.answer(live, {"kind": "ok", "value": "live"})
            host.answer(live, {"kind": "ok", "value": "twice"})

            self.assertEqual(joined(host.wait_for(second), "result"), "'live'")

    def test_a_task_of_an_ended_cell_has_no_scope(self):
        code = """
import asyncio
codes = []
async def later(pause):
    try:
        await asyncio.sleep(pause)
        await local.send('late')
    except klbr.HostError as e: codes.append(e.code)
t = asyncio.create_task(later(0.2))
"""
        with Host() as host:
            host.run(code)
            result = host.run("await asyncio.sleep(0.4)\ncodes")

            self.assertEqual(joined(result, "result"), "['scope_expired']")
            self.assertEqual(host.requests, [])

    def test_a_request_in_flight_at_the_end_of_its_cell_is_told_so(self):
        code = """
import asyncio
codes = []
async def ask():
    try: await local.send('x')
    except klbr.HostError as e: codes.append(e.code)
t = asyncio.create_task(ask())
await asyncio.sleep(0.1)
"""
        with Host(reply=lambda request: None) as host:
            host.run(code)

            self.assertEqual(joined(host.run("await t\ncodes"), "result"), "['scope_expired']")

    def test_nothing_runs_below_an_accepted_wait(self):
        with Host() as host:
            result = host.run("print('above')\nawait runtime.wait(3)\nprint('below')")

            self.assertEqual((result["status"], result["error"]), ("yielded", None))
            self.assertEqual(joined(result, "stdout"), "above\n")

    def test_a_cell_that_catches_the_end_of_its_turn_gets_no_scope_back(self):
        code = """
try: await runtime.wait()
except BaseException as e: print(type(e).__name__)
try: await local.send('more')
except klbr.HostError as e: print(e.code)
"""
        with Host() as host:
            result = host.run(code)

            self.assertEqual(result["status"], "yielded")
            self.assertEqual(joined(result, "stdout"), "TurnYielded\nscope_expired\n")
            self.assertEqual(len(host.requests), 1)

    def test_an_error_behind_an_accepted_wait_is_still_seen(self):
        code = "try: await runtime.wait()\nexcept BaseException: 1/0"
        with Host() as host:
            result = host.run(code)

            self.assertEqual((result["status"], result["error"]), ("yielded", None))
            self.assertIn("ZeroDivisionError", joined(result, "stderr"))

    def test_a_refused_wait_does_not_end_the_cell(self):
        error = {"kind": "error", "code": "invalid_request", "message": "no"}
        with Host(reply=lambda request: error) as host:
            code = "try: await runtime.wait()\nexcept klbr.HostError: pass\n'on'"

            self.assertEqual(joined(host.run(code), "result"), "'on'")

    def test_an_accepted_wait_ends_the_turn_though_nobody_waits_for_it_any_more(self):
        code = "import asyncio\ntry: await asyncio.wait_for(runtime.wait(), 0.2)\nexcept TimeoutError: await asyncio.sleep(1)"
        with Host(reply=lambda request: None) as host:
            operation = host.start_cell(code)
            time.sleep(0.5)
            host.answer(host.requests[0], {"kind": "ok", "value": {"status": "waiting"}})

            self.assertEqual(host.wait_for(operation)["status"], "yielded")

    def test_requests_work_inside_of_another_loop(self):
        code = "import asyncio\nasync def m(): return await local.send('nested')\nasyncio.run(m())['text']"
        with Host() as host:
            self.assertEqual(joined(host.run(code), "result"), "'nested'")
            self.assertEqual(joined(host.run("(await local.send('again'))['text']"), "result"), "'again'")


class Interrupting(unittest.TestCase):
    def interrupted(self, host, code, pause=0.4):
        operation = host.start_cell(code)
        time.sleep(pause)
        host.interrupt(operation)
        return host.wait_for(operation)

    def test_it_reaches_every_way_of_being_busy(self):
        with Host() as host:
            for code in (
                "while True: pass",
                "import time; time.sleep(600)",
                "import asyncio; await asyncio.sleep(600)",
                "import time; await asyncio.sleep(0); time.sleep(600)",
                "while True: await asyncio.sleep(0)",
                "await asyncio.gather(*(asyncio.sleep(600) for _ in range(9)))",
                "import os; r, w = os.pipe(); os.read(r, 1)",
                "import subprocess; subprocess.run(['sleep', '600'])",
                "import threading; threading.Event().wait()",
                "threading.Lock().acquire() and threading.Semaphore(0).acquire()",
                "t = threading.Thread(target=time.sleep, args=(2,)); t.start(); t.join()",
                "import select; select.select([], [], [], 600)",
                "import socket; a, b = socket.socketpair(); a.recv(1)",
                "sum(x for x in iter(int, 1))",
                "while True: print('x' * 100)",
                "async def spin():\n    while True: pass\nawait asyncio.create_task(spin())",
                "asyncio.run(asyncio.sleep(600))",
                "async def spin():\n    while True: pass\nasyncio.run(spin())",
                "await asyncio.to_thread(time.sleep, 1)",
                "class R:\n    def __repr__(self):\n        while True: pass\nR()",
                "class E(Exception):\n    def __str__(self):\n        while True: pass\nraise E",
                "import functools; functools.reduce(lambda a, b: time.sleep(0.01), range(10**6))",
            ):
                started = time.monotonic()
                result = self.interrupted(host, code)
                with self.subTest(code):
                    # An error whose text could not be made stays an error.
                    wanted = "error" if "__str__" in code else "interrupted"
                    self.assertEqual(result["status"], wanted, result)
                    self.assertLess(time.monotonic() - started, 10.0)
                    self.assertEqual(joined(host.run("6 * 7"), "result"), "42")

    def test_it_shows_where_the_cell_was(self):
        with Host() as host:
            error = self.interrupted(host, "def busy():\n    while True: pass\nbusy()")["error"]

            self.assertIn("in busy", error)
            self.assertIn("KeyboardInterrupt", error)

    def test_a_request_in_flight_is_left_alone_and_its_reply_discarded(self):
        with Host(reply=lambda request: None) as host:
            result = self.interrupted(host, "await local.send('x')")
            host.answer(host.requests[0], {"kind": "ok", "value": 1})

            self.assertEqual(result["status"], "interrupted")
            self.assertEqual(joined(host.run("1 + 1"), "result"), "2")

    def test_what_a_cell_catches_is_its_own_affair(self):
        with Host() as host:
            result = self.interrupted(
                host, "import time\ntry: time.sleep(600)\nexcept KeyboardInterrupt: print('caught')"
            )
            waiting = self.interrupted(
                host,
                "import asyncio\ntry: await asyncio.sleep(600)\nexcept asyncio.CancelledError: print('caught')",
            )

            self.assertEqual((result["status"], joined(result, "stdout")), ("ok", "caught\n"))
            self.assertEqual((waiting["status"], joined(waiting, "stdout")), ("ok", "caught\n"))

    def test_a_swallowed_interrupt_can_be_sent_again(self):
        for code in (
            "import time\nfor _ in range(2):\n try: time.sleep(600)\n except KeyboardInterrupt: pass\ntime.sleep(600)",
            "import asyncio\nfor _ in range(2):\n try: await asyncio.sleep(600)\n except asyncio.CancelledError: pass\nawait asyncio.sleep(600)",
        ):
            with Host() as host:
                operation = host.start_cell(code)
                for _ in range(3):
                    time.sleep(0.4)
                    host.interrupt(operation)

                self.assertEqual(host.wait_for(operation)["status"], "interrupted")

    def test_a_waiting_cell_is_interrupted_before_it_runs(self):
        with Host() as host:
            first = host.start_cell("import time; time.sleep(1)")
            second = host.start_cell("print('ran')")
            host.interrupt(second)

            self.assertEqual(host.wait_for(first)["status"], "ok")
            result = host.wait_for(second)
            self.assertEqual((result["status"], result["output"]), ("interrupted", []))

    def test_a_third_cell_is_refused_by_name(self):
        with Host() as host:
            first = host.start_cell("import time; time.sleep(1)")
            second = host.start_cell("2")
            third = host.start_cell("3")

            self.assertEqual(host.wait_for(third)["kind"], "failed")
            self.assertEqual(host.wait_for(first)["status"], "ok")
            self.assertEqual(joined(host.wait_for(second), "result"), "2")

    def test_an_interrupt_never_hits_the_next_cell(self):
        with Host() as host:
            for setup in ("pass", "import asyncio"):
                host.run(setup)
                for number in range(300):
                    first = host.start_cell("sum(range(3000))" if number % 2 else "0")
                    if number % 3:
                        time.sleep(number % 7 / 5e3)
                    host.interrupt(first)
                    second = host.start_cell("s = 0\nfor i in range(3000): s += i\ns")
                    self.assertIn(host.wait_for(first)["status"], ("ok", "interrupted"))
                    result = host.wait_for(second)
                    self.assertEqual((result["status"], joined(result, "result")), ("ok", "4498500"))
            self.assertEqual(host.text(), "")

    def test_printing_cells_lose_no_count_when_they_are_interrupted(self):
        code = "import itertools\nn = 0\ntry:\n    while True:\n        n += 1; print('12345678')\nexcept KeyboardInterrupt: pass"
        with Host() as host:
            for _ in range(10):
                result = self.interrupted(host, code, 0.1)
                written = int(joined(host.run("n"), "result")) * 9
                total = len(joined(result, "stdout")) + result["truncated_bytes"]

                self.assertIn(total, (written, written - 1, written - 9))

    def test_a_handler_that_a_cell_installed_lasts_for_that_cell(self):
        with Host() as host:
            host.run("import signal, time; _ = signal.signal(signal.SIGINT, signal.SIG_IGN)")

            self.assertEqual(self.interrupted(host, "time.sleep(600)")["status"], "interrupted")

    def test_a_cell_that_signals_itself_is_its_own_affair(self):
        code = "import os, signal\ntry:\n    os.kill(os.getpid(), signal.SIGINT)\n    for _ in range(10**6): pass\nexcept KeyboardInterrupt: print('mine')"
        with Host() as host:
            self.assertEqual(joined(host.run(code), "stdout"), "mine\n")
            os.kill(host.process.pid, 2)
            time.sleep(0.1)
            self.assertEqual(joined(host.run("1 + 1"), "result"), "2")

    def test_a_signal_handler_of_a_cell_that_raises_between_cells_is_survived(self):
        code = "import signal\ndef bang(*_): raise TimeoutError('bang')\n_ = signal.signal(signal.SIGALRM, bang)\n_ = signal.setitimer(signal.ITIMER_REAL, 0.1)"
        with Host() as host:
            for setup in ("pass", "import asyncio"):
                host.run(setup)
                host.run(code)
                time.sleep(0.4)
                self.assertEqual(joined(host.run("1 + 1"), "result"), "2")
            self.assertIn("bang", host.text(2))


class Children(unittest.TestCase):
    def test_a_forked_child_ends_with_its_cell_and_says_nothing(self):
        for setup in ("pass", "import asyncio"):
            with self.subTest(setup), Host() as host:
                host.run(setup)
                result = host.run(
                    "import os\npid = os.fork()\nprint('child' if pid == 0 else 'parent')\n"
                    "if pid == 0: raise SystemExit(7)\nos.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])"
                )
                self.assertEqual((joined(result, "stdout"), joined(result, "result")), ("parent\n", "7"))
                self.assertIn("child", host.text(1))
                self.assertEqual(joined(host.run("1 + 1"), "result"), "2")

    def test_a_forked_child_of_a_coroutine_cell(self):
        code = (
            "import os, asyncio\nawait asyncio.sleep(0)\npid = os.fork()\n"
            "if pid == 0: 1/0\nos.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])"
        )
        with Host() as host:
            self.assertEqual(joined(host.run(code), "result"), "1")
            self.assertIn("ZeroDivisionError", host.text(2))

    def test_a_forked_child_has_no_host(self):
        code = (
            "import os, asyncio\npid = os.fork()\nif pid == 0:\n"
            "    try: asyncio.run(local.send('x'))\n"
            "    except klbr.HostError as e: os.write(1, e.code.encode())\n"
            "    os._exit(0)\n_ = os.waitpid(pid, 0)"
        )
        with Host() as host:
            host.run(code)
            deadline = time.monotonic() + HANG_S
            while "scope_expired" not in host.text(1) and time.monotonic() < deadline:
                time.sleep(0.01)

            self.assertIn("scope_expired", host.text())
            self.assertEqual(host.requests, [])

    def test_a_fork_in_a_background_task_leaves_no_second_worker(self):
        code = "import os, asyncio\nasync def f():\n    await asyncio.sleep(0.2); os.fork()\nt = asyncio.create_task(f())"
        with Host() as host:
            host.run(code)
            time.sleep(0.6)

            self.assertEqual(joined(host.run("1 + 1"), "result"), "2")
            self.assertEqual(host.descendants(), set())

    def test_descriptors_0_to_2_are_filled_again(self):
        with Host() as host:
            host.run("import os\nfor fd in (0, 1, 2): os.close(fd)")
            result = host.run(
                "import subprocess\nsubprocess.run(['cat'], capture_output=True).returncode, open('/dev/null').fileno()"
            )

            self.assertEqual(joined(result, "result")[:4], "(0, ")
            self.assertGreater(eval(joined(result, "result"))[1], 2)

    def test_a_fork_without_threads_of_the_cell_warns_of_none(self):
        with Host() as host:
            result = host.run("import os\npid = os.fork()\nif pid: _ = os.waitpid(pid, 0)")

            self.assertEqual(result["output"], [])

    def test_a_spawned_pool_works(self):
        code = "import multiprocessing as mp, math\nwith mp.get_context('spawn').Pool(1) as p: r = p.map(math.factorial, [5])\nr"
        with Host() as host:
            self.assertEqual(joined(host.run(code), "result"), "[120]")

    def test_a_cell_that_kills_the_worker_completes_never(self):
        for code in ("import os; os._exit(3)", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"):
            with Host() as host, self.assertRaises(Dead):
                host.run(code)


class Loops(unittest.TestCase):
    def test_a_closed_or_stopped_loop_is_replaced(self):
        with Host() as host:
            for code in (
                "import asyncio\nasyncio.get_event_loop().close()",
                "asyncio.get_running_loop().stop()",
                "asyncio.get_running_loop().call_soon(asyncio.get_running_loop().stop)",
                "asyncio.set_event_loop(None)",
                "asyncio.set_event_loop(asyncio.new_event_loop())",
            ):
                host.run(code)
                with self.subTest(code):
                    self.assertEqual(joined(host.run("await asyncio.sleep(0)\n'alive'"), "result"), "'alive'")

    def test_asyncio_imported_by_a_thread_between_cells(self):
        with Host() as host:
            host.run(
                "import threading, time\ndef f():\n    time.sleep(0.2); import asyncio\nthreading.Thread(target=f).start()"
            )
            time.sleep(0.8)

            self.assertEqual(
                joined(host.run("import asyncio\nt = asyncio.create_task(asyncio.sleep(0, 5))"), "result"), ""
            )
            self.assertEqual(joined(host.run("await t"), "result"), "5")

    def test_context_variables_persist_over_both_kinds_of_cells(self):
        with Host() as host:
            host.run("import contextvars\nv = contextvars.ContextVar('v')\n_ = v.set(1)")
            first = host.run("import asyncio\nawait asyncio.sleep(0)\nold = v.get()\n_ = v.set(2)\nold")

            self.assertEqual(joined(first, "result"), "1")
            self.assertEqual(joined(host.run("v.get()"), "result"), "2")

    def test_timeouts_and_task_groups_of_a_cell(self):
        code = "import asyncio\nasync with asyncio.timeout(5), asyncio.TaskGroup() as g:\n    t = g.create_task(asyncio.sleep(0, 'v'))\nt.result()"
        with Host() as host:
            self.assertEqual(joined(host.run(code), "result"), "'v'")

    def test_subprocesses_of_asyncio(self):
        code = "import asyncio\np = await asyncio.create_subprocess_exec('echo', 'hi', stdout=-1)\n(await p.communicate())[0]"
        with Host() as host:
            self.assertEqual(joined(host.run(code), "result"), "b'hi\\n'")


if __name__ == "__main__":
    unittest.main()
