"""What a cell writes: bounds, order, and whose it is."""

from __future__ import annotations

import unittest
from pathlib import Path

from tests.host import Host, joined


def resident_kib(host):
    status = Path(f"/proc/{host.process.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0])


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


if __name__ == "__main__":
    unittest.main()
