"""Pack Python sources as bytecode into one zip: `pack.py OUT FOLDER...`.

Run by a native Python of the very version that will read it. The result depends on the sources
alone: entries are sorted, times fixed, the recorded file names those inside the sandbox. Bytecode is
unchecked (there are no sources beside it to compare it with) and stored, so that an import reads it
without decompressing.
"""

import importlib.util
import marshal
import os
import sys
import zipfile

# Needs a screen, a terminal, a compiler, other processes or a package index; or is for testing
# CPython itself.
LEFT_OUT = {
    "__pycache__", "site-packages", "test", "tests", "idlelib", "tkinter", "turtledemo", "ensurepip",
    "venv", "curses", "pydoc_data", "lib2to3",
}
TOP_LEFT_OUT = {"turtle.py", "_aix_support.py", "_android_support.py", "_apple_support.py",
                "_ios_support.py", "_osx_support.py"}
# Read by importlib.resources and others as data.
DATA = (".txt", ".json", ".toml", ".xml", ".xsd", ".html", ".css", ".zi")
UNCHECKED = (1).to_bytes(4, "little")


def entries(folder, place):
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in LEFT_OUT)
        for name in sorted(files):
            path = os.path.join(parent, name)
            inside = os.path.relpath(path, folder)
            if inside in TOP_LEFT_OUT:
                continue
            with open(path, "rb") as file:
                data = file.read()
            if name.endswith(".py"):
                code = compile(data, place + inside, "exec", dont_inherit=True)
                header = importlib.util.MAGIC_NUMBER + UNCHECKED + bytes(8)
                yield inside + "c", header + marshal.dumps(code)
            elif name.endswith(DATA) or "zoneinfo" in inside or ".dist-info" in inside:
                yield inside, data


def main(out, *folders):
    count = 0
    place = "/lib/%s/" % os.path.basename(out)
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as pack:
        for folder in folders:
            for name, data in entries(folder, place):
                pack.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data)
                count += 1
    print("%s: %d entries, %d bytes" % (os.path.basename(out), count, os.path.getsize(out)))


main(*sys.argv[1:])
