"""Run tests of CPython in here and tell of each as it goes, so that what was told outlives a crash."""

import io
import json
import os
import re
import sys
import tarfile
import types
import unittest

OUT = sys.stdout
HOME = "/workspace/cpython"
# Modules that import parts of another one.
IMPORTED = re.compile(r"\btest\.(test_\w+)|\bfrom test import .*\b(test_\w+)")


def tell(**facts):
    OUT.write("\n\x1e%s\n" % json.dumps(facts))


def unpack(archive, name):
    """The package `test` with what its module `name` needs of it."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        members = {member.name.removeprefix("./"): member for member in tar if member.name != "."}
        wanted = {name.partition(".")[0]}
        looked_at = set()
        while wanted - looked_at:
            one = (wanted - looked_at).pop()
            looked_at.add(one)
            for path in (one + ".py", one + "/__init__.py"):
                if path in members:
                    text = tar.extractfile(members[path]).read().decode(errors="replace")
                    wanted.update(filter(None, (n for found in IMPORTED.findall(text) for n in found)))
        for path, member in members.items():
            top = path.partition("/")[0]
            if top.startswith("test_"):
                stem = top.partition(".")[0]
                keep = stem in wanted or not top.endswith(".py") and top.startswith(tuple(wanted))
            elif top == "decimaltestdata":
                keep = "test_decimal" in wanted
            else:
                keep = True
            if keep:
                tar.extract(member, HOME + "/test", filter="data")
    sys.path.insert(0, HOME)
    os.makedirs("/tmp/tests", exist_ok=True)
    os.chdir("/tmp/tests")
    prepare(name)


def prepare(name):
    """What the tests may expect of this Python, beyond what they can see."""
    from test import support

    # Nothing that takes long, much memory or a network.
    support.use_resources = ["decimal", "tzdata"]
    support.verbose = 0
    # They think that asyncio cannot work where no socket does; ours can.
    needs_socket = support.requires_working_socket
    support.requires_working_socket = (
        lambda *, module=False: None if module else needs_socket(module=False)
    )
    # Programs of the source tree and C code of CPython's own, neither of which is here.
    tools = types.ModuleType("test.test_tools")
    tools.toolsdir = tools.scriptsdir = "/nowhere"
    tools.skip_if_missing = skips("it tests a program of CPython's source tree")
    sys.modules["test.test_tools"] = tools
    if name in ("test_class", "test_compile"):
        internal = types.ModuleType("_testinternalcapi")
        internal.get_config = lambda: {"code_debug_ranges": True}
        internal.suppress_immortalization = lambda suppress: None
        internal.__getattr__ = skips_by_name
        sys.modules["_testinternalcapi"] = internal


def skips_by_name(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return skips("it tests C code of CPython from C")


def skips(why):
    def skip(*_, **__):
        raise unittest.SkipTest(why)

    return skip


class Result(unittest.TestResult):
    def startTest(self, test):
        super().startTest(test)
        tell(test=test.id(), end="started")

    def _end(self, test, end, why=""):
        tell(test=test.id(), end=end, why=str(why)[:300])

    def addSuccess(self, test):
        self._end(test, "passed")

    def addSkip(self, test, reason):
        self._end(test, "skipped", reason)

    def addExpectedFailure(self, test, error):
        self._end(test, "passed")

    def addUnexpectedSuccess(self, test):
        self._end(test, "failed", "it was expected to fail")

    def addError(self, test, error):
        text = str(error[1]).strip()
        if "Failed to import test module" in text:
            text = text.splitlines()[-1]
        self._end(test, "failed", "%s: %s" % (error[0].__name__, text))

    addFailure = addError

    def addSubTest(self, test, subtest, error):
        if error is not None:
            end = "skipped" if issubclass(error[0], unittest.SkipTest) else "failed"
            self._end(test, end, "%s: %s" % (error[0].__name__, error[1]))


def flat(suite):
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from flat(item)
        else:
            yield item


def run(name, done):
    """The tests of `test.<name>` that are not `done`."""
    done = set(done)
    try:
        suite = unittest.defaultTestLoader.loadTestsFromName("test." + name)
    except unittest.SkipTest as reason:
        tell(test="test." + name, end="skipped", why=str(reason))
    else:
        left = [test for test in flat(suite) if test.id() not in done]
        del suite
        unittest.TestSuite(left).run(Result())
    tell(end="finished")
