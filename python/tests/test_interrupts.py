"""Which code an interrupt may hit, decided on a stack that a test has built."""

from __future__ import annotations

import sys
import unittest

from klbr.worker import interrupts
from klbr.worker.cell import Cell
from klbr.worker.interrupts import Interrupts

WORKER = interrupts._WORKER_FOLDER + "worker/made_by_a_test.py"


def worker_function(line):
    """A function that calls its argument, and whose code claims to be on a line of a worker's file."""
    names = {}
    # Code objects of the same text on the same line are equal, whatever their files.
    exec(compile("\n" * line + "def f(call): return call()", WORKER, "exec"), names)
    return names["f"]


class OnSignal(unittest.TestCase):
    def setUp(self):
        self.interrupts = Interrupts()
        self.first, self.second = Cell("e-1", "", 1), Cell("e-2", "", 2)
        self.entry = worker_function(1)
        self.runner = worker_function(2)
        interrupts.entry_points.add(self.entry.__code__)
        interrupts.loop_runners.add(self.runner.__code__)
        self.addCleanup(interrupts.entry_points.discard, self.entry.__code__)
        self.addCleanup(interrupts.loop_runners.discard, self.runner.__code__)

    def signal(self, asked, active):
        asked.interrupts_asked = 1
        self.interrupts._asked = asked
        self.interrupts.active = active
        self.interrupts._on_signal(2, sys._getframe())

    def test_code_of_the_asked_cell_is_hit(self):
        with self.assertRaises(KeyboardInterrupt):
            self.entry(lambda: self.signal(self.first, self.first))
        self.assertEqual(self.first.interrupts_delivered, 1)

    def test_the_next_cell_is_not_hit(self):
        self.entry(lambda: self.signal(self.first, self.second))

        self.assertEqual(self.second.interrupts_delivered, 0)
        self.assertEqual(self.first.interrupts_delivered, 0)

    def test_nothing_is_hit_between_cells(self):
        self.entry(lambda: self.signal(self.first, None))

        self.assertEqual(self.first.interrupts_delivered, 0)

    def test_the_worker_is_not_hit_while_it_serves_a_cell(self):
        write = worker_function(3)
        self.entry(lambda: write(lambda: self.signal(self.first, self.first)))

        self.assertEqual(self.first.interrupts_delivered, 0)

    def test_a_loop_that_waits_is_asked_to_cancel_once(self):
        cancelled = []
        self.first.queue_cancel = lambda: cancelled.append(1)
        for _ in range(2):
            self.runner(lambda: self.signal(self.first, self.first))

        self.assertEqual(cancelled, [1])
        self.assertEqual(self.first.interrupts_delivered, 0)


if __name__ == "__main__":
    unittest.main()
