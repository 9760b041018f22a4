"""The first Python of an embedded guest: import everything, then wait for turns.

Executed once, when the embedded Python is built. What is in memory at its end is frozen, and every
guest begins there; the files that it reads are not there any more then. `boot` does the same for a
guest that is a process.
"""

import gc
import importlib.metadata
import site
import sys
import types

# What programs commonly import is ready in every guest.
COMMON = """
abc argparse array ast asyncio base64 bisect bz2 calendar codecs collections collections.abc
concurrent.futures configparser contextlib copy csv dataclasses datetime decimal difflib email.message
enum fnmatch fractions functools glob graphlib gzip hashlib heapq hmac html html.parser importlib.resources
inspect io itertools json keyword linecache locale logging lzma math mimetypes numbers operator os
pathlib pickle platform pprint queue random re reprlib secrets shlex shutil sqlite3 stat statistics
string struct tarfile tempfile textwrap threading time timeit tokenize traceback types typing
unicodedata unittest urllib.parse uuid warnings weakref xml.etree.ElementTree zipfile zlib zoneinfo
""".split()


def load(folder):
    """Make the package `_runbridge` out of the files there."""
    from importlib.machinery import ModuleSpec

    # The copy of the builtins is ours alone: what user code does to the real ones cannot reach
    # the guest's own modules.
    own_builtins = dict(vars(__import__("builtins")))

    class Loader:
        def find_spec(self, name, path=None, target=None):
            if name.startswith("_runbridge."):
                return ModuleSpec(name, self)
            return None

        def create_module(self, spec):
            return None

        def exec_module(self, module):
            name = module.__name__[11:]
            with open("%s/%s.py" % (folder, name), encoding="utf-8") as file:
                source = file.read()
            module.__dict__["__builtins__"] = own_builtins
            exec(compile(source, "<guest %s>" % name, "exec"), module.__dict__)

    package = types.ModuleType("_runbridge")
    package.__path__ = []
    sys.modules["_runbridge"] = package
    loader = Loader()
    sys.meta_path.insert(0, loader)
    try:
        # First, so that the others are made from what it puts in place.
        __import__("_runbridge.embedded")
        sys.modules["_runbridge.embedded"].start()
    finally:
        sys.meta_path.remove(loader)


# The bundled packages that take long to import.
BUNDLED = "bs4 dateutil.parser dateutil.tz jinja2 openpyxl tabulate yaml".split()

for name in COMMON + BUNDLED:
    __import__(name)
# `exit`, `help` and their kin: without folders of packages, nothing else of `site` is of use.
site.setquit()
site.setcopyright()
site.sethelper()
load("/guest")
# It keeps the archive of packages open, which no guest finds open.
importlib.metadata.MetadataPathFinder.invalidate_caches()
# Collections need not look at what is there for good, nor touch its pages.
gc.collect()
gc.freeze()
