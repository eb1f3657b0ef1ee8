"""How a worker begins and how it ends."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

from tests.host import HANG_S, PACKAGES, Host, joined


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


if __name__ == "__main__":
    unittest.main()
