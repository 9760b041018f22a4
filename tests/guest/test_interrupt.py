"""An interrupt stops exactly the run it is for, and variables live on."""

import unittest

from harness import SILENT, GuestCase


class Interrupts(GuestCase):
    handlers = {
        "memory.load": lambda params: SILENT,
        "tool.call": lambda params: SILENT,
    }
    servers = ["github"]

    def interrupted(self, code):
        run = self.host.start(code)
        self.host.wait_for_output(run, "ready")
        self.host.interrupt(run)
        # As long as the real host waits before it kills.
        self.host.finish(run, within=2)
        self.assertEqual(run.status, "interrupted", run.error)
        return run

    def tearDown(self):
        run = self.host.run("import asyncio\nawait asyncio.sleep(0)\nprint('alive')")
        self.assertEqual((run.status, run.stdout), ("ok", "alive\n"))

    def test_in_a_sleep(self):
        run = self.interrupted("import time\nkept = 42\nprint('ready')\ntime.sleep(60)")
        self.assertIn("time.sleep(60)", run.error["traceback"])
        self.assertEqual(self.run_ok("kept").result, "42")

    def test_in_a_loop(self):
        self.interrupted("print('ready')\nwhile True:\n    pass")

    def test_in_a_loop_of_prints(self):
        self.interrupted("while True:\n    print('ready')")
        self.interrupted("import sys\nprint('ready')\nwhile True:\n    sys.stderr.write('')")

    def test_in_an_await(self):
        run = self.interrupted("import asyncio\nprint('ready')\nawait asyncio.sleep(60)")
        self.assertEqual(run.error["type"], "CancelledError")

    def test_in_a_loop_of_awaits(self):
        self.interrupted("import asyncio\nprint('ready')\nwhile True:\n    await asyncio.sleep(0)")

    def test_in_code_between_awaits(self):
        self.interrupted(
            "import asyncio, time\nawait asyncio.sleep(0)\nprint('ready')\ntime.sleep(60)"
        )

    def test_in_asyncio_run(self):
        self.interrupted(
            "import asyncio\nasync def main():\n    print('ready')\n    await asyncio.sleep(60)\n"
            "asyncio.run(main())"
        )

    def test_in_run_until_complete(self):
        self.interrupted(
            "import asyncio\nasync def main():\n    print('ready')\n    await asyncio.sleep(60)\n"
            "asyncio.get_event_loop().run_until_complete(main())"
        )

    def test_in_a_lock(self):
        self.interrupted("import threading\nprint('ready')\nthreading.Event().wait()")

    def test_in_a_child_process(self):
        self.interrupted("import subprocess\nprint('ready')\nsubprocess.run(['sleep', '60'])")

    def test_in_a_repr(self):
        self.interrupted(
            "import time\nclass Slow:\n    def __repr__(self):\n        print('ready')\n        time.sleep(60)\nSlow()"
        )

    def test_in_a_sync_call_also_cancels_the_call(self):
        calls, cancelled = len(self.host.calls), len(self.host.cancelled)
        run = self.interrupted("print('ready')\nload_memory('k')")
        self.host.wait(lambda: len(self.host.calls) > calls, "the call")
        self.host.wait(lambda: len(self.host.cancelled) > cancelled, "its cancellation")
        self.assertEqual(self.host.cancelled[-1], self.host.calls[-1][0])
        self.assertTrue(
            run.error["traceback"].endswith("load_memory('k')\nKeyboardInterrupt\n")
            or "^^^" in run.error["traceback"]
        )

    def test_calls_of_the_run_are_cancelled(self):
        calls, cancelled = len(self.host.calls), len(self.host.cancelled)
        self.interrupted(
            "import asyncio\nother = asyncio.create_task(mcp_github.a())\nawait asyncio.sleep(0)\n"
            "print('ready')\nawait mcp_github.b()"
        )
        self.host.wait(lambda: len(self.host.cancelled) == cancelled + 2, "two cancellations")
        self.assertEqual(
            sorted(self.host.cancelled[cancelled:]), [ident for ident, _ in self.host.calls[calls:]]
        )
        self.assertEqual(self.run_ok("await asyncio.sleep(0)\nother.cancelled()").result, "True")

    def test_tasks_of_earlier_runs_live(self):
        self.run_ok(
            "import asyncio\ngo = asyncio.Event()\nasync def earlier():\n    await go.wait()\n    return 'lived'\n"
            "task = asyncio.create_task(earlier())"
        )
        self.interrupted("import asyncio\nprint('ready')\nawait asyncio.sleep(60)")
        self.assertEqual(self.run_ok("go.set()\nawait task").result, "'lived'")

    def test_cleanup_runs(self):
        run = self.interrupted(
            "import time\ntry:\n    print('ready')\n    time.sleep(60)\nfinally:\n    print('cleaned')"
        )
        self.assertIn("cleaned", run.stdout)
        run = self.interrupted(
            "import asyncio\ntry:\n    print('ready')\n    await asyncio.sleep(60)\nfinally:\n    print('cleaned')"
        )
        self.assertIn("cleaned", run.stdout)

    def test_code_that_catches_it_goes_on(self):
        run = self.host.start(
            "import time\ntry:\n    print('ready')\n    time.sleep(60)\nexcept KeyboardInterrupt:\n    pass\n'went on'"
        )
        self.host.wait_for_output(run, "ready")
        self.host.interrupt(run)
        self.host.finish(run)
        self.assertEqual((run.status, run.result), ("ok", "'went on'"))

    def test_user_code_may_handle_the_signal_itself(self):
        run = self.host.start(
            "import signal, time\nseen = []\nsignal.signal(signal.SIGINT, lambda *a: seen.append(1))\n"
            "print('ready')\nwhile not seen:\n    time.sleep(0.01)\nseen"
        )
        self.host.wait_for_output(run, "ready")
        self.host.interrupt(run)
        self.assertEqual(self.host.finish(run).result, "[1]")

    def test_a_late_one_never_reaches_the_next_run(self):
        for _ in range(50):
            first = self.host.start("1")
            self.host.interrupt(first)
            second = self.host.start("sum(range(20_000))")
            self.host.interrupt(first)
            self.host.finish(second)
            self.assertEqual((second.status, second.result), ("ok", "199990000"), second.error)

    def test_one_for_a_waiting_run_keeps_it_from_starting(self):
        first = self.host.start(
            "import time\nfor i in range(10_000):\n    print('tick', i)\n    time.sleep(0.01)"
        )
        self.host.wait_for_output(first, "tick 0")
        second = self.host.start("print('never')")
        self.host.interrupt(second)
        # It is none of the first one's business.
        self.host.wait_for_output(first, "tick 30")
        self.assertIsNone(first.done)
        self.host.interrupt(first)
        self.host.finish(first)
        self.host.finish(second)
        self.assertEqual(
            (first.status, second.status, second.stdout), ("interrupted", "interrupted", "")
        )

    def test_a_late_task_that_blocks_the_next_run_is_interrupted_for_it(self):
        first = self.host.run(
            "import asyncio, time\nasync def block():\n    await asyncio.sleep(0)\n    print('ready')\n"
            "    time.sleep(60)\nt = asyncio.create_task(block())"
        )
        self.host.wait_for_output(first, "ready")
        second = self.host.start("print('never')")
        self.host.interrupt(second)
        self.host.finish(second)
        self.assertEqual((second.status, second.stdout), ("interrupted", ""))


if __name__ == "__main__":
    unittest.main()
