"""Run tests of CPython in here and tell of each as it goes, so that what was told outlives a crash."""

import io
import json
import os
import sys
import tarfile
import unittest

OUT = sys.stdout
HOME = "/workspace/cpython"
# Every module's helpers and data; the rest belongs to one module each.
COMMON = "support data archivetestdata audiodata cjkencodings mathdata tokenizedata typinganndata xmltestdata".split()


def tell(**facts):
    OUT.write("\n\x1e%s\n" % json.dumps(facts))


def unpack(archive, names):
    """The package `test` with what `names` need of it."""
    wanted = {"test_" + name.partition(".")[0][5:] for name in names}
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        for member in tar:
            top = member.name.removeprefix("./").partition("/")[0]
            stem = top.partition(".")[0]
            folder = member.isdir() or "/" in member.name.removeprefix("./")
            if stem.startswith("test_"):
                keep = stem in wanted
            elif top == "decimaltestdata":
                keep = "test_decimal" in wanted
            else:
                keep = not folder or top in COMMON
            if keep:
                tar.extract(member, HOME + "/test", filter="data")
    sys.path.insert(0, HOME)
    os.makedirs("/tmp/tests", exist_ok=True)
    os.chdir("/tmp/tests")


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
        self._end(test, "failed", "%s: %s" % (error[0].__name__, error[1]))

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
    from test import support

    # Nothing that takes long, much memory or a network.
    support.use_resources = ["decimal", "tzdata"]
    support.verbose = 0
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
