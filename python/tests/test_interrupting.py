"""Interrupts: they reach every way of being busy, and nobody else."""

from __future__ import annotations

import os
import time
import unittest

from tests.host import Host, joined


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

    def test_a_handler_of_the_cells_own_that_raises_loses_no_message(self):
        code = (
            "for _ in range(300):\n"
            "    signal.setitimer(signal.ITIMER_REAL, 0.0001 + _ % 30 * 0.00001)\n"
            "    try:\n"
            "        await klbr.runtime.inspect()\n"
            "    except (Late, asyncio.CancelledError):\n"
            "        hits += 1\n"
            "    finally:\n"
            "        signal.setitimer(signal.ITIMER_REAL, 0)\n"
        )
        with Host() as host:
            host.run(
                "import asyncio, signal, klbr\n"
                "hits = 0\n"
                "class Late(Exception): pass\n"
                "def late(*_): raise Late\n"
                "old = signal.signal(signal.SIGALRM, late)"
            )
            for _ in range(5):
                result = host.run(code)
                # A handler may raise in the `finally` too.
                self.assertIn(result["status"], ("ok", "error"), result)
            host.run("signal.setitimer(signal.ITIMER_REAL, 0); signal.signal(signal.SIGALRM, signal.SIG_DFL)")
            for n in range(20):
                self.assertEqual(joined(host.run(f"{n} + 1"), "result"), str(n + 1))
            self.assertEqual(host.run("await klbr.runtime.inspect(); assert hits")["status"], "ok")

    def test_a_handler_of_the_cells_own_ends_what_waits_and_what_computes(self):
        start = (
            "import signal\n"
            "def late(*_): raise TimeoutError('late')\n"
            "signal.signal(signal.SIGALRM, late)\n"
            "assert signal.getsignal(signal.SIGALRM) is late\n"
            "signal.setitimer(signal.ITIMER_REAL, 0.1)\n"
        )
        with Host() as host:
            for busy in (
                "while True: pass",
                "import time; time.sleep(60)",
                "import asyncio; await asyncio.sleep(60)",
            ):
                result = host.run(start + busy)
                with self.subTest(busy):
                    self.assertEqual(result["status"], "error")
                    self.assertIn("TimeoutError: late", result["error"])
            self.assertEqual(
                joined(host.run("signal.signal(signal.SIGALRM, signal.SIG_DFL) is late"), "result"), "True"
            )


if __name__ == "__main__":
    unittest.main()
