"""The ways in which people and models write asyncio."""

import sys
import unittest

from harness import SILENT, GuestCase, text

MAIN = "import asyncio\nasync def main():\n    return await mcp_a.ok()\n"


class Patterns(GuestCase):
    handlers = {"tool.call": lambda params: text("fine")}
    servers = ["a"]

    def prints_fine(self, code):
        self.assertEqual(self.run_ok(code).stdout, "fine\n", code)

    def test_top_level_await(self):
        self.prints_fine("print(await mcp_a.ok())")
        self.prints_fine("if True:\n    for _ in range(1):\n        print(await mcp_a.ok())")
        self.prints_fine("x = [await mcp_a.ok() for _ in range(2)]\nprint(x[0])")
        self.prints_fine(MAIN + "print(await main())")

    def test_async_with_and_async_for(self):
        self.prints_fine(
            "import contextlib\n@contextlib.asynccontextmanager\nasync def opened():\n    yield await mcp_a.ok()\n"
            "async with opened() as x:\n    print(x)"
        )
        self.prints_fine(
            "async def each():\n    yield await mcp_a.ok()\nasync for x in each():\n    print(x)"
        )

    def test_asyncio_run(self):
        self.prints_fine(MAIN + "print(asyncio.run(main()))")
        self.prints_fine("import asyncio\nprint(asyncio.run(mcp_a.ok()))")
        self.prints_fine("if __name__ == '__main__':\n    print(asyncio.run(main()))")
        self.prints_fine(
            "asyncio.run(main())\nprint(asyncio.get_event_loop().run_until_complete(main()))"
        )

    def test_asyncio_run_in_awaiting_code_says_what_to_write(self):
        run = self.host.run(MAIN + "await main()\nasyncio.run(main())")
        self.assertEqual(run.error["type"], "RuntimeError")
        self.assertIn("write `await", run.error["message"])
        self.assertEqual(run.stderr, "")
        run = self.host.run("await main()\nasyncio.get_event_loop().run_until_complete(main())")
        self.assertIn("write `await", run.error["message"])

    def test_run_until_complete(self):
        self.prints_fine(
            MAIN + "loop = asyncio.get_event_loop()\nprint(loop.run_until_complete(main()))"
        )
        self.prints_fine(
            "loop = asyncio.new_event_loop()\nprint(loop.run_until_complete(main()))\nloop.close()"
        )

    def test_create_task_without_a_loop(self):
        self.prints_fine("import asyncio\nt = asyncio.create_task(mcp_a.ok())\nprint(await t)")
        self.run_ok("t = asyncio.create_task(mcp_a.ok(), name='named')")
        self.assertEqual(self.run_ok("(await t, t.get_name())").result, "('fine', 'named')")
        self.run_ok(
            "t = asyncio.ensure_future(mcp_a.ok())\nu = asyncio.gather(mcp_a.ok(), mcp_a.ok())"
        )
        self.assertEqual(self.run_ok("(await t, await u)").result, "('fine', ['fine', 'fine'])")

    def test_a_task_has_its_turn_though_runs_follow_at_once(self):
        made = self.host.start("async def tell():\n    global told\n    told = 'x'\ntold = ''\nt = asyncio.create_task(tell())")
        following = [self.host.start("told") for _ in range(20)]
        self.host.finish(made)
        self.assertEqual([self.host.finish(run).result for run in following], ["'x'"] * 20)

    def test_gather_wait_for_and_as_completed(self):
        self.assertEqual(
            self.run_ok(
                "await asyncio.gather(*[mcp_a.ok() for _ in range(100)]) == ['fine'] * 100"
            ).result,
            "True",
        )
        self.prints_fine("print(await asyncio.wait_for(mcp_a.ok(), 5))")
        self.prints_fine("for x in asyncio.as_completed([mcp_a.ok()]):\n    print(await x)")

    # TaskGroup came with 3.11.
    if sys.version_info >= (3, 11):

        def test_task_group(self):
            self.prints_fine(
                "async with asyncio.TaskGroup() as g:\n    t = g.create_task(mcp_a.ok())\nprint(t.result())"
            )

    def test_threads(self):
        self.prints_fine(
            "import asyncio, threading\nbox = []\n"
            "t = threading.Thread(target=lambda: box.append(asyncio.run(mcp_a.ok())))\nt.start(); t.join()\nprint(box[0])"
        )
        self.prints_fine("print(await asyncio.to_thread(lambda: asyncio.run(mcp_a.ok())))")
        self.prints_fine(
            "from concurrent.futures import ThreadPoolExecutor\n"
            "with ThreadPoolExecutor(4) as pool:\n"
            "    r = list(pool.map(lambda i: asyncio.run(mcp_a.ok()), range(8)))\nprint(r[7])"
        )

    def test_runs_of_asyncio_leave_the_loop_of_the_session(self):
        self.run_ok(
            "import asyncio\nasync def wait():\n    await go.wait()\n    return 'done'\ngo = asyncio.Event()\nt = asyncio.create_task(wait())"
        )
        self.run_ok("asyncio.run(asyncio.sleep(0))")
        self.assertEqual(self.run_ok("go.set()\nawait t").result, "'done'")

    def test_subprocesses_of_asyncio(self):
        self.prints_fine(
            "import asyncio\np = await asyncio.create_subprocess_exec('echo', 'fine', stdout=-1)\n"
            "print((await p.communicate())[0].decode(), end='')"
        )


class NeverAwaited(GuestCase):
    handlers = {"tool.call": lambda params: text("fine")}
    servers = ["a"]

    def notes(self, code):
        run = self.run_ok(code)
        self.assertEqual(run.stderr, "")
        return run.notes

    def test_it_is_noted_with_its_line(self):
        self.assertEqual(
            self.notes("x = 1\nmcp_a.ok()\nprint('on')"),
            ["`mcp_a.ok(...)` made on line 2 was never awaited; write `await`"],
        )
        self.assertEqual(
            self.notes("r = mcp_a.ok(b=1)\nprint(type(r).__name__)"),
            ["`mcp_a.ok(...)` made on line 1 was never awaited; write `await`"],
        )
        self.assertEqual(
            self.notes("runtime.call_tool('a', 'ok')\n1"),
            ["`runtime.call_tool(...)` made on line 1 was never awaited; write `await`"],
        )

    def test_what_is_or_will_be_awaited_is_not(self):
        self.assertEqual(self.notes("await mcp_a.ok()"), [])
        self.assertEqual(self.notes("mcp_a.ok()"), [])
        self.assertEqual(self.notes("import asyncio\nt = asyncio.create_task(mcp_a.ok())"), [])
        self.assertEqual(
            self.notes("t = asyncio.gather(mcp_a.ok(), runtime.gather(mcp_a.ok()))"), []
        )

    def test_a_kept_coroutine_can_be_awaited_later(self):
        self.run_ok("kept = mcp_a.ok()\n1")
        self.assertEqual(self.run_ok("await kept").result, "'fine'")


class Cancelling(GuestCase):
    servers = ["a"]

    def test_a_cancelled_task_cancels_its_call(self):
        self.host.handlers["tool.call"] = lambda params: SILENT
        run = self.run_ok(
            "import asyncio\ntry:\n    await asyncio.wait_for(mcp_a.slow(), 0.05)\nexcept asyncio.TimeoutError:\n    print('late')"
        )
        self.assertEqual(run.stdout, "late\n")
        self.host.wait(lambda: self.host.cancelled, "the cancellation")
        self.assertEqual(self.host.cancelled, [self.host.calls[0][0]])


if __name__ == "__main__":
    unittest.main()
