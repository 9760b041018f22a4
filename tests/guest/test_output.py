"""What user code, its children and its late tasks print."""

import unittest

from harness import GuestCase


class Text(GuestCase):
    def test_text_arrives_byte_for_byte(self):
        run = self.run_ok("print('a')\nprint()\nprint('   ')\nprint('b\\r\\nc', end='')")
        self.assertEqual(run.stdout_bytes, b"a\n\n   \nb\r\nc")

    def test_stdout_and_stderr_are_apart(self):
        run = self.run_ok("import sys\nprint('out')\nprint('err', file=sys.stderr)")
        self.assertEqual((run.stdout, run.stderr), ("out\n", "err\n"))

    def test_lone_surrogates_nul_and_escape_pass(self):
        run = self.run_ok("print('\\ud800 \\x00 \\x1b[31m 你好 \\U0001F600')")
        self.assertEqual(run.stdout, "\\ud800 \x00 \x1b[31m 你好 \U0001f600\n")

    def test_bytes_pass(self):
        run = self.run_ok(
            "import sys\nn = sys.stdout.buffer.write(bytes(range(256)))\nassert n == 256"
        )
        self.assertEqual(run.stdout_bytes, bytes(range(256)))

    def test_the_streams_look_like_files(self):
        self.run_ok(
            "import sys, io, contextlib\n"
            "assert isinstance(sys.stdout, io.TextIOBase) and sys.stdout.encoding == 'utf-8'\n"
            "assert sys.stdout.fileno() == 1 and not sys.stdout.isatty() and sys.stdout.writable()\n"
            "assert not sys.stdout.closed and sys.stdout.write('ab') == 2\n"
            "sys.stdout.reconfigure(line_buffering=True)\n"
            "with contextlib.redirect_stdout(io.StringIO()) as held:\n    print('caught')\n"
            "assert held.getvalue() == 'caught\\n'\n"
        )
        run = self.host.run("import sys\nsys.stdout.write(b'x')")
        self.assertEqual(run.error["type"], "TypeError")

    def test_there_is_no_input(self):
        run = self.host.run("input('name? ')")
        self.assertEqual((run.error["type"], run.stdout), ("EOFError", "name? "))
        self.assertEqual(self.run_ok("import sys\nsys.stdin.read()").result, "''")

    def test_a_long_line_is_whole(self):
        self.assertEqual(self.run_ok("print('x' * 70000)").stdout, "x" * 70000 + "\n")

    def test_output_shows_while_the_run_goes_on(self):
        run = self.host.start("import time\nprint('early')\nwhile True:\n    time.sleep(0.01)")
        self.host.wait_for_output(run, "early")
        self.assertIsNone(run.done)
        self.host.interrupt(run)
        self.host.finish(run)

    def test_fifty_megabytes_in_one_write(self):
        run = self.run_ok(PEAK % "print('z' * 50_000_000)")
        self.assertEqual(len(run.stdout_bytes), 50_000_001)
        self.assertLessEqual(max(run.frame_sizes), 1 << 20)
        self.assertLess(int(run.result), 120_000)

    def test_fifty_megabytes_in_lines(self):
        run = self.run_ok(PEAK % "for _ in range(50_000):\n    print('z' * 999)")
        self.assertEqual(len(run.stdout_bytes), 50_000_000)
        self.assertLess(len(run.frame_sizes), 5000)
        self.assertLess(int(run.result), 60_000)

    def test_wide_characters_in_large_writes_are_whole(self):
        run = self.run_ok("print('é€\\U0001F600' * 400_000)")
        self.assertEqual(run.stdout, "é€\U0001f600" * 400_000 + "\n")


# The growth of peak memory in KiB while something prints.
PEAK = (
    "import resource\nbefore = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n%s\n"
    "resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before"
)


class Children(GuestCase):
    def test_output_of_a_child_comes_in_order(self):
        run = self.run_ok(
            "import subprocess\n"
            "for i in range(20):\n"
            "    print('before', i)\n"
            "    subprocess.run(['echo', 'child %d' % i])\n"
            "    print('after', i)\n"
        )
        lines = [f"{word} {i}" for i in range(20) for word in ("before", "child", "after")]
        self.assertEqual(run.stdout.splitlines(), lines)

    def test_raw_writes_are_output_and_never_frames(self):
        run = self.run_ok(
            "import os, struct\n"
            "forged = struct.pack('>BBHIQ', 1, 22, 0, 2, %d) + b'{}'\n"
            "os.write(1, forged)\nos.write(2, b'e' * 200_000)\nprint('done')" % ((1 << 63) + 1)
        )
        self.assertTrue(run.stdout_bytes.endswith(b"{}done\n"))
        self.assertEqual(len(run.stdout_bytes), 16 + 2 + 5)
        self.assertEqual(len(run.stderr_bytes), 200_000)

    def test_a_forked_child_prints_once_and_has_no_frames(self):
        run = self.run_ok(
            "import os\nprint('parent first')\n"
            "child = os.fork()\n"
            "if child == 0:\n"
            "    print('in the child')\n"
            "    high = [int(n) for n in os.listdir('/proc/self/fd') if int(n) > 100]\n"
            "    print('high descriptors', high)\n"
            "    os._exit(5)\n"
            "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
        )
        self.assertEqual(run.stdout, "parent first\nin the child\nhigh descriptors []\n5\n")

    def test_a_forked_child_that_runs_off_the_end_ends(self):
        run = self.run_ok(
            "import os\nchild = os.fork()\nif child == 0:\n    1 / 0\nstatus = os.waitpid(child, 0)[1]\n"
            "os.waitstatus_to_exitcode(status)"
        )
        self.assertEqual(run.result, "1")
        self.assertIn("ZeroDivisionError", run.stderr)

    def test_a_forked_child_cannot_call_the_bridge(self):
        run = self.run_ok(
            "import os\nchild = os.fork()\nif child == 0:\n"
            "    try:\n        load_memory('k')\n    except RuntimeError as e:\n        print(e)\n"
            "    os._exit(0)\nos.waitpid(child, 0)[1]"
        )
        self.assertIn("a forked process cannot call the bridge", run.stdout)

    def test_a_pool_of_processes_works(self):
        run = self.run_ok(
            "import multiprocessing\ndef square(x):\n    print('square of', x)\n    return x * x\n"
            "with multiprocessing.Pool(2) as pool:\n    r = pool.map(square, [1, 2, 3])\nr"
        )
        self.assertEqual(run.result, "[1, 4, 9]")
        self.assertEqual(
            sorted(run.stdout.splitlines()), ["square of 1", "square of 2", "square of 3"]
        )

    def test_a_child_that_outlives_its_run_still_reaches_the_host(self):
        self.run_ok(
            "import subprocess\nchild = subprocess.Popen(['sh', '-c', 'read x; echo late'], stdin=-1)"
        )
        run = self.run_ok("print(child.communicate(b'x'))")
        self.assertEqual(run.stdout, "late\n(None, None)\n")


class LatePrints(GuestCase):
    """Tasks and threads print under the run that started them."""

    def test_a_task(self):
        first = self.run_ok(
            "import asyncio\ngo = asyncio.Event()\n"
            "async def late():\n    await go.wait()\n    print('LATE')\n"
            "t = asyncio.create_task(late())\nprint('first')"
        )
        second = self.run_ok("go.set()\nawait t\nprint('second')")
        self.assertEqual((first.stdout, second.stdout), ("first\nLATE\n", "second\n"))

    def test_a_task_between_runs(self):
        run = self.run_ok(
            "import asyncio\nasync def tick():\n    for i in range(3):\n"
            "        await asyncio.sleep(0.01)\n        print('tick', i)\nt = asyncio.create_task(tick())"
        )
        self.host.wait_for_output(run, "tick 2")

    def test_a_thread(self):
        first = self.run_ok(
            "import threading\ngo = threading.Event()\n"
            "def late():\n    go.wait()\n    print('LATE')\n"
            "t = threading.Thread(target=late)\nt.start()\nprint('first')"
        )
        second = self.run_ok("go.set()\nt.join()\nprint('second')")
        self.assertEqual((first.stdout, second.stdout), ("first\nLATE\n", "second\n"))

    def test_a_pool_of_threads_prints_for_who_gave_the_work(self):
        first = self.run_ok(
            "from concurrent.futures import ThreadPoolExecutor\npool = ThreadPoolExecutor(1)\n"
            "pool.submit(print, 'one').result()"
        )
        second = self.run_ok("pool.submit(print, 'two').result()")
        third = self.run_ok(
            "import asyncio\nawait asyncio.get_running_loop().run_in_executor(pool, print, 'three')"
        )
        self.assertEqual([r.stdout for r in (first, second, third)], ["one\n", "two\n", "three\n"])

    def test_a_task_whose_error_nobody_awaits_is_told(self):
        run = self.run_ok(
            "import asyncio, gc\nasync def bad():\n    raise ValueError('unseen')\n"
            "t = asyncio.create_task(bad())\nawait asyncio.sleep(0)\nawait asyncio.sleep(0)\n"
            "del t\ngc.collect()\nawait asyncio.sleep(0)"
        )
        self.assertIn("Task exception was never retrieved", run.stderr)
        self.assertIn("ValueError: unseen", run.stderr)

    def test_standard_descriptors_come_back_with_the_next_run(self):
        self.run_ok("import os\nfor fd in (0, 1, 2):\n    os.close(fd)")
        run = self.run_ok("import os\nos.write(1, b'raw\\n')\nprint('printed')\nos.read(0, 1)")
        self.assertEqual((run.stdout, run.result), ("raw\nprinted\n", "b''"))
        self.run_ok("other = os.open('/dev/null', os.O_WRONLY)\nos.dup2(other, 1)")
        self.assertEqual(self.run_ok("os.write(1, b'back')").stdout, "back")


if __name__ == "__main__":
    unittest.main()
