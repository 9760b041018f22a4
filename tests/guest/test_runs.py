"""What one run gives back: values, errors, exits, and what stays for the next."""

import sys
import unittest

from harness import GuestCase


class Values(GuestCase):
    def test_the_last_expression_is_the_value(self):
        self.assertEqual(self.run_ok("1 + 1").result, "2")
        self.assertEqual(self.run_ok("print('x')\n'y'").result, "'y'")
        self.assertIsNone(self.run_ok("None").result)
        self.assertIsNone(self.run_ok("x = 3").result)
        self.assertIsNone(self.run_ok("").result)
        self.assertIsNone(self.run_ok("# only a comment\n").result)

    def test_an_awaitable_value_is_awaited(self):
        define = "import asyncio\nasync def five():\n    return 5\n"
        self.assertEqual(self.run_ok(define + "five()").result, "5")
        self.assertEqual(self.run_ok("asyncio.gather(five(), five())").result, "[5, 5]")
        self.assertEqual(self.run_ok("await asyncio.sleep(0)\nfive()").result, "5")
        self.assertEqual(self.run_ok("[await five() for _ in range(2)]").result, "[5, 5]")

    def test_a_huge_value_is_cut_and_says_so(self):
        result = self.run_ok("'x' * 3_000_000").result
        self.assertLess(len(result), 2_200_000)
        self.assertTrue(result.endswith("… (3000002 characters in all)"), result[-60:])

    def test_a_repr_that_fails_is_the_error(self):
        run = self.host.run("class Odd:\n    def __repr__(self):\n        return 1 / 0\nOdd()")
        self.assertEqual((run.status, run.error["type"]), ("error", "ZeroDivisionError"))
        self.assertIn("line 3, in __repr__", run.error["traceback"])

    def test_a_value_with_a_lone_surrogate_arrives(self):
        self.assertEqual(
            self.run_ok("class S:\n    __repr__ = lambda s: '\\ud800'\nS()").result, "\\ud800"
        )

    def test_source_may_have_a_bom_crlf_and_a_coding_line(self):
        self.assertEqual(
            self.run_ok("\ufeff# -*- coding: latin-1 -*-\r\nx = 'é'\r\nx\r\n").result, "'é'"
        )

    def test_a_future_import_reaches_the_last_expression(self):
        code = "from __future__ import annotations\ndef f(x: NoSuchName): pass\n(lambda: 1)()"
        self.assertEqual(self.run_ok(code).result, "1")

    def test_source_of_a_megabyte_runs(self):
        self.assertEqual(self.run_ok("s = '" + "c" * 1_000_000 + "'\nlen(s)").result, "1000000")


class Namespace(GuestCase):
    servers = ["github"]

    def test_variables_imports_and_functions_stay(self):
        self.run_ok("x = 41\nimport math\ndef f():\n    return x + 1")
        self.assertEqual(self.run_ok("f(), math.floor(2.5)").result, "(42, 2)")

    def test_the_code_is_the_module_main(self):
        self.run_ok(
            "from dataclasses import dataclass\nimport pickle, sys\n"
            "@dataclass\nclass Point:\n    x: int\n"
            "assert __name__ == '__main__' and sys.modules['__main__'].Point is Point\n"
            "assert pickle.loads(pickle.dumps(Point(3))) == Point(3)"
        )

    def test_inspect_finds_the_source_of_earlier_runs(self):
        self.run_ok("def shown(a):\n    return a  # here")
        run = self.run_ok("import inspect\nprint(inspect.getsource(shown), end='')")
        self.assertEqual(run.stdout, "def shown(a):\n    return a  # here\n")

    def test_old_sources_are_dropped(self):
        self.run_ok("def early():\n    return 1")
        for _ in range(70):
            self.run_ok("0")
        run = self.run_ok(
            "import linecache\nlen([n for n in linecache.cache if n.startswith('<run')])"
        )
        self.assertEqual(run.result, "64")

    def test_bare_names_are_there(self):
        names = (
            "mcp runtime mcp_servers mcp_github display save_tool list_saved_tools "
            "delete_saved_tool save_memory load_memory update_memory delete_memory list_memories "
            "memory_exists get_memory_info asyncio LOADED_MCP_SERVERS"
        )
        run = self.run_ok("[n for n in %r.split() if n not in globals()]" % names)
        self.assertEqual(run.result, "[]")
        self.assertEqual(self.run_ok("LOADED_MCP_SERVERS").result, "('github',)")

    def test_a_server_that_goes_away_takes_its_name_along(self):
        self.run_ok("1", servers=["github", "slack"])
        self.assertEqual(self.run_ok("'mcp_slack' in globals()").result, "False")

    def test_a_name_that_user_code_took_stays_its_own(self):
        self.run_ok(
            "mcp_slack = 'mine'\ndef display(x):\n    return 'shown'", servers=["github", "slack"]
        )
        self.assertEqual(self.run_ok("mcp_slack, display(1)").result, "('mine', 'shown')")
        self.run_ok("del mcp_slack, display")
        self.assertEqual(self.run_ok("callable(display)").result, "True")

    def test_modules_in_the_working_folder_can_be_imported(self):
        self.addCleanup(self.run_ok, "os.unlink(path)")
        self.run_ok(
            "import os\npath = os.path.abspath('runbridge_own_module.py')\n"
            "open(path, 'w').write('value = 8')\n"
            "import runbridge_own_module\nassert runbridge_own_module.value == 8"
        )

    def test_the_environment_is_small(self):
        run = self.run_ok("import os\nsorted(n for n in os.environ if not n.startswith('PYTHON'))")
        self.assertEqual(run.result, "['HOME', 'LANG', 'MPLBACKEND', 'PATH', 'TMPDIR']")


class Errors(GuestCase):
    def error(self, code):
        run = self.host.run(code)
        self.assertEqual(run.status, "error")
        self.assertNotIn("<guest", run.error["traceback"])
        return run.error

    def test_a_traceback_shows_the_users_frames_and_lines(self):
        error = self.error("def g():\n    y = 0\n    return 1 / y\n\ng()")
        self.assertEqual(
            (error["type"], error["message"]), ("ZeroDivisionError", "division by zero")
        )
        lines = [line for line in error["traceback"].splitlines() if set(line) - set(" ~^")]
        self.assertEqual(lines[0], "Traceback (most recent call last):")
        self.assertRegex(lines[1], r'^  File "<run \d+>", line 5, in <module>$')
        self.assertEqual(lines[2], "    g()")
        self.assertRegex(lines[3], r'^  File "<run \d+>", line 3, in g$')
        self.assertEqual(lines[4:], ["    return 1 / y", "ZeroDivisionError: division by zero"])

    def test_causes_and_contexts_are_shown(self):
        text = self.error(
            "try:\n    {}['k']\nexcept KeyError as e:\n    raise ValueError('bad') from e"
        )["traceback"]
        self.assertIn("KeyError: 'k'\n\nThe above exception was the direct cause", text)
        text = self.error("try:\n    {}['k']\nexcept KeyError:\n    1 / 0")["traceback"]
        self.assertIn("KeyError: 'k'\n\nDuring handling of the above exception, another", text)

    def test_library_frames_are_left_out(self):
        text = self.error("import json\njson.loads('{')")["traceback"]
        self.assertIn("json.loads('{')", text)
        self.assertNotIn("decoder.py", text)
        self.assertIn("json.decoder.JSONDecodeError: Expecting property name", text)

    def test_frames_of_the_users_own_modules_stay(self):
        text = self.error(
            "import os, sys, tempfile\n"
            "folder = tempfile.mkdtemp()\n"
            "open(os.path.join(folder, 'mine.py'), 'w').write('def f():\\n    return 1 / 0')\n"
            "sys.path.insert(0, folder)\n"
            "import mine\n"
            "mine.f()"
        )["traceback"]
        self.assertRegex(text, r"mine\.py\", line 2, in f\n    return 1 / 0\n")

    def test_a_syntax_error_has_line_and_caret_and_no_empty_header(self):
        error = self.error("y = 1\nx = = 1")
        self.assertEqual(error["type"], "SyntaxError")
        self.assertRegex(error["traceback"], r'^  File "<run \d+>", line 2\n    x = = 1\n +\^\n')

    def test_recursion_is_shortened(self):
        error = self.error("def r():\n    return r()\nr()")
        self.assertEqual(error["type"], "RecursionError")
        self.assertIn("[Previous line repeated", error["traceback"])

    # Exception groups came with 3.11.
    if sys.version_info >= (3, 11):

        def test_exception_groups_are_shown(self):
            text = self.error("raise ExceptionGroup('g', [ValueError(1), KeyError(2)])")["traceback"]
            self.assertIn("ExceptionGroup: g (2 sub-exceptions)", text)
            self.assertIn("| ValueError: 1", text)

    def test_a_long_traceback_is_cut_with_its_end_kept(self):
        error = self.error("raise ValueError('m' * 100_000 + 'END')")
        self.assertLessEqual(len(error["traceback"]), 20_000)
        self.assertLessEqual(len(error["message"]), 20_000)
        self.assertIn("characters left out", error["traceback"])
        self.assertTrue(error["traceback"].endswith("END\n"))

    def test_an_exception_whose_text_fails_is_reported(self):
        error = self.error(
            "class E(Exception):\n    def __str__(self):\n        return 1 / 0\nraise E"
        )
        self.assertEqual(error["type"], "E")
        self.assertIn("ZeroDivisionError", error["message"])

    def test_a_surrogate_in_an_error_arrives(self):
        self.assertEqual(self.error("raise ValueError('\\udc80')")["message"], "\\udc80")

    def test_errors_in_awaiting_code_show_no_event_loop(self):
        text = self.error("import asyncio\nasync def f():\n    raise OSError('no')\nawait f()")[
            "traceback"
        ]
        self.assertNotIn("asyncio", text.replace("import asyncio", ""))
        self.assertIn("await f()", text)


class Exits(GuestCase):
    def test_sys_exit_is_an_exit_code_and_variables_stay(self):
        for code, expected in (("3", 3), ("", 0), ("None", 0), ("True", 1), ("2**70", 2**63 - 1)):
            run = self.host.run("keep = 1\nimport sys\nsys.exit(%s)" % code)
            self.assertEqual((run.status, run.exit_code, run.error), ("exit", expected, None))
        run = self.host.run("raise SystemExit('so long')")
        self.assertEqual((run.exit_code, run.stderr), (1, "so long\n"))
        self.assertEqual(self.run_ok("keep").result, "1")

    def test_sys_exit_in_awaiting_code(self):
        run = self.host.run("import asyncio, sys\nawait asyncio.sleep(0)\nsys.exit(4)")
        self.assertEqual((run.status, run.exit_code), ("exit", 4))

    def test_a_keyboard_interrupt_of_ones_own_is_an_error(self):
        run = self.host.run("raise KeyboardInterrupt")
        self.assertEqual((run.status, run.error["type"]), ("error", "KeyboardInterrupt"))


class Sabotage(GuestCase):
    """Whatever a run breaks, the next one finds Python in order."""

    def setUp(self):
        self.host = self.own_host()

    def afterwards(self, code):
        self.host.run(code)
        run = self.host.run(
            "import asyncio\nawait asyncio.sleep(0)\nprint(len('abc'), runtime.__name__)"
        )
        self.assertEqual((run.status, run.stdout), ("ok", "3 mcp.runtime\n"), code)

    def test_builtins(self):
        self.afterwards(
            "import builtins\ndel builtins.len\nbuiltins.print = None\nbuiltins.__import__ = 3"
        )

    def test_modules(self):
        self.afterwards("import sys\nsys.modules.clear()")
        self.afterwards("import sys\nsys.modules = {}")
        self.afterwards("import asyncio, json\njson.loads = json.dumps = None\ndel runtime, mcp")

    def test_streams(self):
        self.afterwards(
            "import sys\nsys.stdout.close()\nsys.stdout = sys.stderr = sys.stdin = None"
        )
        self.afterwards("import os\nos.close(1); os.close(2)")

    def test_tracing_and_limits(self):
        self.afterwards("import sys\nsys.settrace(lambda *a: 1 / 0)")
        self.afterwards("import sys\nsys.setprofile(lambda *a: 1 / 0)")
        self.afterwards("import sys\nsys.setrecursionlimit(50)")
        self.afterwards("import gc\ngc.disable()")

    def test_the_event_loop(self):
        self.afterwards("import asyncio\nasyncio.get_event_loop().close()")
        self.afterwards("import asyncio\nasyncio.set_event_loop(None)")
        self.afterwards("import asyncio\nasyncio.get_event_loop().stop()")
        self.afterwards("import asyncio\nasyncio.get_event_loop().run_until_complete = None")
        self.afterwards("import asyncio\nasyncio.create_task = asyncio.run = None")
        self.afterwards("import asyncio\nasyncio.get_event_loop().call_soon(lambda: 1 / 0)")
        self.afterwards(
            "import asyncio, sys\nasync def leave():\n    sys.exit(1)\nasyncio.create_task(leave())"
        )

    def test_signals(self):
        self.afterwards("import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)")
        self.afterwards(
            "import signal\nsignal.signal(signal.SIGALRM, lambda *a: 1 / 0)\n"
            "signal.setitimer(signal.ITIMER_REAL, 0.0001, 0.0001)"
        )

    def test_objects_that_resist_their_end(self):
        self.afterwards(
            "class D:\n    def __del__(self):\n        raise SystemExit\nd = D()\ndel d"
        )
        self.afterwards("import atexit\natexit.register(lambda: 1 / 0)")
        self.afterwards("import threading\nthreading.Thread.start = None")


if __name__ == "__main__":
    unittest.main()
