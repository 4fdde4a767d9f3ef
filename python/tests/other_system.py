"""The package as it is on systems other than Linux, on Linux."""

from __future__ import annotations

import asyncio
import os
import sys
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import Any

# The extension module has these on Linux only.
LINUX_ONLY = (
    "access",
    "entries",
    "link",
    "mkdir",
    "readlink",
    "remove",
    "rename",
    "sendfile",
    "stat",
    "statvfs",
    "symlink",
)


class Loop(asyncio.SelectorEventLoop):
    """A loop that waits for no descriptors, as that of Windows and some others."""

    def add_reader(self, *_: object) -> None:  # type: ignore[override]
        raise NotImplementedError

    def _add_reader(self, *arguments: Any) -> Any:
        return super()._add_reader(*arguments)  # type: ignore[misc]


def load() -> None:
    """Load the extension module without what only Linux has, before the package is imported; its
    engines use threads, and have no descriptors."""
    assert "ringway" not in sys.modules
    os.environ["RINGWAY_BACKEND"] = "threads"
    package = find_spec("ringway")
    assert package is not None
    spec = PathFinder.find_spec("ringway._ringway", package.submodule_search_locations)
    assert spec is not None and spec.loader is not None
    extension: Any = module_from_spec(spec)
    spec.loader.exec_module(extension)
    sys.modules[spec.name] = extension
    for name in LINUX_ONLY:
        delattr(extension, name)
    build = extension.Engine

    def engine(loop: asyncio.AbstractEventLoop, manual: bool) -> Any:
        if manual:
            raise NotImplementedError
        return build(loop, manual)

    extension.Engine = engine
