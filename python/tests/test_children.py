"""Forked children, closed descriptors, the end of the process."""

from __future__ import annotations

import time
import unittest

from tests.host import HANG_S, Dead, Host, joined


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


if __name__ == "__main__":
    unittest.main()
