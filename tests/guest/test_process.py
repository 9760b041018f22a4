"""The guest as a process: its ends, its limits, its supervisor."""

import os
import subprocess
import sys
import time
import unittest

from harness import BOOT, PATIENCE_S, GuestCase, Host


def gone(pid):
    """Whether a process has ended (a zombie has)."""
    try:
        with open("/proc/%d/stat" % pid) as file:
            return file.read().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


class Ends(unittest.TestCase):
    def setUp(self):
        self.host = Host()
        self.addCleanup(self.host.close)

    def wait_gone(self, *pids):
        deadline = time.monotonic() + PATIENCE_S
        while not all(gone(pid) for pid in pids):
            self.assertLess(time.monotonic(), deadline, "still there: %r" % (pids,))
            # Processes of others offer no event to wait for.
            time.sleep(0.01)

    def children(self, code):
        run = self.host.run(code)
        self.assertEqual((run.status, run.error), ("ok", None))
        return [int(pid) for pid in run.stdout.split()]

    def test_hello(self):
        self.assertEqual(self.host.hello["python"], "%d.%d.%d" % sys.version_info[:3])
        self.assertEqual(self.host.hello["uid"], os.geteuid())
        self.assertEqual(self.host.hello["rlimits"], {})

    def test_a_host_that_hangs_up_ends_it(self):
        self.host.close()
        self.assertEqual(self.host.process.returncode, 0)

    def test_a_host_that_hangs_up_ends_busy_code_and_all_children(self):
        pids = self.children(
            "import os, subprocess\nprint(os.getpid(), os.getppid())\n"
            "for options in ({}, {'start_new_session': True}):\n"
            "    print(subprocess.Popen(['sleep', '300'], **options).pid)\n"
        )
        run = self.host.start("print('busy', flush=True)\nx = 10\nx ** x ** 8")
        self.host.wait_for_output(run, "busy")
        self.host.close()
        self.wait_gone(*pids)

    def test_os_exit_ends_it_with_that_status_and_its_output(self):
        run = self.host.start("import os\nprint('before')\nos._exit(7)")
        self.assertEqual(self.host.exit_code(), 7)
        self.assertEqual(run.stdout, "before\n")
        self.assertIsNone(run.done)

    def test_a_crash_is_128_and_the_signal(self):
        self.host.start("import ctypes\nctypes.string_at(0)")
        self.assertEqual(self.host.exit_code(), 139)

    def test_a_kill_is_128_and_the_signal(self):
        self.host.start("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)")
        self.assertEqual(self.host.exit_code(), 137)

    def test_what_a_crash_leaves_is_ended(self):
        pids = self.children("import subprocess\nprint(subprocess.Popen(['sleep', '300']).pid)")
        self.host.start("import os\nos.abort()")
        self.assertEqual(self.host.exit_code(), 134)
        self.wait_gone(*pids)

    def test_sigterm_ends_it_at_once(self):
        self.host.start("import time\ntime.sleep(300)")
        self.host.process.terminate()
        self.assertEqual(self.host.exit_code(), 143)

    def test_the_supervisor_does_not_turn_while_it_waits(self):
        run = self.host.run(
            "import os, time\ntime.sleep(0.3)\nopen('/proc/%d/stat' % os.getppid()).read().split()[13:15]"
        )
        user, system = map(int, eval(run.result))
        self.assertLess(user + system, 20)

    def test_a_host_that_never_sends_a_program_is_not_waited_for(self):
        boot = BOOT.replace("MESSAGE_WITHIN_S = 10.0", "MESSAGE_WITHIN_S = 0.1")
        self.assertNotEqual(boot, BOOT)
        process = subprocess.Popen(
            [sys.executable, "-I", "-B", "-u", "-c", boot],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        # Its stdin stays open, as an engine leaves it that has lost nobody yet.
        with process:
            said = process.stderr.read()
            self.assertEqual(process.wait(PATIENCE_S), 1)
        self.assertIn(b"no boot message came", said)

    def test_a_broken_boot_message_ends_with_a_word(self):
        done = subprocess.run(
            [sys.executable, "-I", "-B", "-u", "-c", BOOT],
            input=b"\xff\xff\xff\xff",
            capture_output=True,
            timeout=PATIENCE_S,
        )
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"the boot message claims", done.stderr)


class AsProcessOne(unittest.TestCase):
    """As in a container: process 1 of a namespace of its own."""

    def setUp(self):
        probe = subprocess.run(
            ["unshare", "--pid", "--fork", "--mount-proc", "true"], capture_output=True
        )
        if probe.returncode != 0:
            self.skipTest("no right to make a process namespace")
        self.host = Host(wrap=["unshare", "--pid", "--fork", "--mount-proc"])
        self.addCleanup(self.host.close)

    def test_orphans_are_reaped(self):
        run = self.host.run(
            "import os, subprocess, time\nassert os.getppid() == 1\n"
            "for _ in range(5):\n    subprocess.run(['sh', '-c', '(sleep 0.01; exit 3) & exit 0'])\n"
            "def zombies():\n"
            "    found = 0\n"
            "    for pid in os.listdir('/proc'):\n"
            "        if pid.isdigit():\n"
            "            try:\n"
            "                found += open(f'/proc/{pid}/stat').read().rsplit(')', 1)[1].split()[0] == 'Z'\n"
            "            except OSError:\n"
            "                pass\n"
            "    return found\n"
            "def others():\n"
            "    return [p for p in os.listdir('/proc') if p.isdigit() and int(p) not in (1, os.getpid())]\n"
            "while others():\n    time.sleep(0.01)\n"
            "zombies()"
        )
        self.assertEqual((run.status, run.result), ("ok", "0"))

    def test_statuses_and_hang_up(self):
        run = self.host.start("import os\nprint('before')\nos._exit(7)")
        self.assertEqual(self.host.exit_code(), 7)
        self.assertEqual(run.stdout, "before\n")


class Limits(GuestCase):
    config = {"rlimits": {"as": 400 << 20, "nofile": 200, "core": 0}}

    def test_hello_tells_what_took_effect(self):
        self.assertEqual(self.host.hello["rlimits"], {"as": 400 << 20, "nofile": 200, "core": 0})

    def test_out_of_memory_is_an_error_and_variables_stay(self):
        for _ in range(3):
            run = self.host.run(
                "kept = 7\nb = []\nwhile True:\n    b.append(bytearray(10_000_000))"
            )
            self.assertEqual((run.status, run.error["type"]), ("error", "MemoryError"))
            # Most of the limit is user code's.
            self.assertEqual(self.run_ok("n = len(b)\ndel b\nn > 25, kept").result, "(True, 7)")

    # Older Pythons abort when not a byte is left.
    if sys.version_info >= (3, 11):

        def test_not_a_byte_left_is_an_error_too(self):
            self.run_ok("ballast = bytearray(250_000_000)\nkept = 7")
            run = self.host.run("l = []\nwhile True:\n    l.append(str(len(l)))")
            self.assertEqual((run.status, run.error["type"]), ("error", "MemoryError"))
            self.assertEqual(self.run_ok("del l, ballast\nkept").result, "7")

    def test_large_output_fits(self):
        self.assertEqual(len(self.run_ok("print('z' * 50_000_000)").stdout_bytes), 50_000_001)

    def test_files_are_limited(self):
        run = self.host.run("f = []\nwhile True:\n    f.append(open('/dev/null'))")
        self.assertEqual(run.error["type"], "OSError")
        self.run_ok("del f\nimport subprocess\nsubprocess.run(['true'], check=True)")


if __name__ == "__main__":
    unittest.main()
