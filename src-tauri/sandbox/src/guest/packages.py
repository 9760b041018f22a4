"""Packages that the host installed: where they lie, and how Python comes to look there.

Each is one wheel, read in place as any zip on `sys.path` is; nothing of it is executed but by an
import. Which there are is the host's to say, with each run and with each installation.
"""

import importlib
import os
import sys

FOLDER = "/packages/"

# What an import that fails can be told: None while packages are off, else how to install one.
allowed = None


# What was last wanted, and where Python looked then.
_used = None


def use(files):
    """Have Python look into these files of the folder, and into no others there."""
    global _used
    wanted = [FOLDER + name for name in files]
    if not isinstance(sys.path, list) or _used == (wanted, sys.path):
        return
    kept = [place for place in sys.path if place in wanted or not _is_ours(place)]
    new = [place for place in wanted if place not in kept]
    if len(kept) != len(sys.path) or new:
        at = _before_others(kept)
        sys.path[:] = kept[:at] + new + kept[at:]
        importlib.invalidate_caches()
    _used = (wanted, list(sys.path))


def _is_ours(place):
    return isinstance(place, str) and place.startswith(FOLDER)


def _before_others(places):
    """Behind Python's own library and before what came with the sandbox: an installed version is
    there because another one did not do."""
    for at, place in enumerate(places):
        if place == "" or _is_ours(place):
            return at
        if isinstance(place, str) and place.endswith(
            ("site-packages", "dist-packages", "/packages.zip")
        ):
            return at
    return len(places)


def unseen(files):
    """Those of the files that are not here: the engine may run on a machine without the folder."""
    return [name for name in files if not os.path.exists(FOLDER + name)]


def present():
    """Name and version of what came with a container's image. What the built-in sandbox has, the host
    knows."""
    if sys.platform == "wasi":
        return {}
    from importlib import metadata

    found = {}
    for distribution in metadata.distributions(path=[p for p in sys.path if not _is_ours(p)]):
        try:
            found.setdefault(str(distribution.metadata["Name"]), str(distribution.version))
        except Exception:
            # A broken one is as good as none.
            continue
    return found


def stale(installed):
    """Of what was installed just now, the names that were imported before, from elsewhere."""
    found = []
    for package in installed:
        module = sys.modules.get(package["name"].replace("-", "_"))
        place = getattr(module, "__file__", None)
        if isinstance(place, str) and not place.startswith(FOLDER + package["file"]):
            found.append(package["name"])
    return found
