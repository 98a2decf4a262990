"""Finds the modules of a program, for development components: its own, and those that its interpreter must contain."""

from __future__ import annotations

import builtins
import sys
import tokenize
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any


SDK = "hatchery_guest"
"""The package that each interpreter contains."""

STANDARD_MODULES = (
    "abc", "argparse", "base64", "bisect", "calendar", "collections.abc", "contextlib", "copy", "csv", "datetime", "decimal", "difflib",
    "email.utils", "encodings.ascii", "encodings.cp1252", "encodings.idna", "encodings.latin_1", "encodings.utf_16",
    "encodings.utf_8_sig", "enum", "fractions", "functools", "hashlib", "heapq", "hmac", "html", "html.parser", "io", "itertools",
    "json", "logging", "math", "operator", "os", "pathlib", "pprint", "random", "re", "secrets", "statistics", "string", "struct",
    "textwrap", "time", "traceback", "typing", "unicodedata", "urllib.parse", "urllib.request", "uuid", "xml.etree.ElementTree", "zlib",
)  # fmt: skip
"""Modules of the standard library that each component contains, whether its program imports them or not. They can be imported during a
call, too."""


class ImportedModules:
    """While it is entered, collects the names of the modules that modules below some folders import from elsewhere."""

    def __init__(self, folders: Sequence[str]) -> None:
        self.names: set[str] = set()
        self._folders = folders
        self._import = builtins.__import__

    def __enter__(self) -> ImportedModules:
        builtins.__import__ = self._record
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        builtins.__import__ = self._import

    def _record(
        self,
        name: str,
        globals: Mapping[str, object] | None = None,
        locals: Mapping[str, object] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        module = self._import(name, globals, locals, fromlist or (), level)
        file = (globals or {}).get("__file__")
        if level == 0 and isinstance(file, str) and _is_below(file, self._folders):
            self._add(name)
            for each in fromlist or ():
                self._add(f"{name}.{each}")
        return module

    def _add(self, name: str) -> None:
        module = sys.modules.get(name)
        if module is not None and name.partition(".")[0] != SDK and name not in STANDARD_MODULES and not _is_own(module, self._folders):
            self.names.add(name)


def modules_of(folders: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Returns the imported modules below some folders, with their code."""
    found = {}
    for name, module in list(sys.modules.items()):
        if name == "__main__" or not _is_own(module, folders):
            continue
        file = getattr(module, "__file__", None)
        found[name] = {
            "file": _relative(file or next(iter(module.__path__)), folders),
            "is_package": hasattr(module, "__path__"),
            "source": _read(file) if file else "",
        }
    return found


def _is_own(module: ModuleType, folders: Sequence[str]) -> bool:
    """Returns true for a module or a package below some folders. A package without code has folders, but no file."""
    file = getattr(module, "__file__", None)
    places = [file] if isinstance(file, str) else list(getattr(module, "__path__", []))
    return any(_is_below(place, folders) for place in places)


def _is_below(file: str, folders: Sequence[str]) -> bool:
    return any(Path(file).is_relative_to(folder) for folder in folders)


def _relative(file: str, folders: Sequence[str]) -> str:
    """Returns the path of a file as in a component, where folders of modules have numbers. Folders come before those that contain them."""
    folder = next(folder for folder in folders if Path(file).is_relative_to(folder))
    return f"/0/{Path(file).relative_to(folder)}"


def _read(file: str) -> str:
    with tokenize.open(file) as code:
        return code.read()
