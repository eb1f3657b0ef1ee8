"""Event loops of cells."""

from __future__ import annotations

import time
import unittest

from tests.host import Host, joined


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
