"""The scenarios of ``renamed``, with a name or a module renamed in TensorFlow or Keras itself.

To rename in tfckpt is quick, and the same for an attribute. Not for what tfckpt has a name of its
own for, for the variables of ``fit``, and for a module that has moved: these need a process each.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import json
import re
import sys
from typing import Any

from zoo.renamed import SourceLoader, in_child


class RenamedPackage(importlib.abc.MetaPathFinder):
    """Loads the modules of a package with another name in all of their sources and paths."""

    def __init__(self, package: str, name: str) -> None:
        self._package, self._name = package, name
        self._word = re.compile(rf"(?<!\w){re.escape(name)}(?!\w)")

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        if not f"{fullname}.".startswith(f"{self._package}."):
            return None
        above, _, last = fullname.rpartition(".")
        if last == self._name:
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)
        file = last.replace(f"{self._name}_renamed", self._name)
        spec = importlib.machinery.PathFinder.find_spec(f"{above}.{file}".lstrip("."), path)
        if spec is None or not isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            return spec
        return importlib.util.spec_from_file_location(
            fullname,
            loader=SourceLoader(fullname, spec.loader.path, self),
            submodule_search_locations=spec.submodule_search_locations,
        )

    def other(self, path: str, source: str) -> str:
        return self._word.sub(f"{self._name}_renamed", source)


def main(package: str, name: str, *scenarios: str) -> None:
    """``python -m zoo.renamed_packages PACKAGE NAME SCENARIO …``: each one's outcome, in JSON."""
    if name:
        sys.meta_path.insert(0, RenamedPackage(package, name))
    import keras  # noqa: F401
    import tensorflow  # noqa: F401
    import tf_keras  # noqa: F401

    print(json.dumps(in_child("", scenarios)))


if __name__ == "__main__":
    main(*sys.argv[1:])
