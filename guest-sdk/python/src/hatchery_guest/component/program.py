"""The program of a development component: an interpreter with this SDK, whose file ends with the modules of the program.

They are imported at the first call of each instance. A component of a release is a snapshot of its program instead.
"""

from __future__ import annotations

import importlib
import inspect
import json
import sys
import traceback
from collections.abc import Callable, Mapping
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from wit_world.imports import program

_is_loaded = False


class _Importer:
    """Finds and runs the modules of the program."""

    def __init__(self, modules: Mapping[str, Mapping[str, Any]]) -> None:
        self._modules = modules

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        module = self._modules.get(name)
        if module is None:
            return None
        spec = ModuleSpec(name, self, origin=module["file"], is_package=module["is_package"])
        spec.has_location = True
        return spec

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        code = compile(self.get_source(module.__name__), module.__file__ or "", "exec", dont_inherit=True)
        exec(code, module.__dict__)

    def get_source(self, name: str) -> str:
        """Returns the code of a module; tracebacks show its lines."""
        return self._modules[name]["source"]


def _load() -> None:
    """Imports the program, unless it is imported already."""
    global _is_loaded
    if _is_loaded:
        return
    _is_loaded = True
    content = json.loads(bytes(program.read()))
    for name in content["modules"]:
        # A module of the program comes before one of the interpreter.
        sys.modules.pop(name, None)
    sys.meta_path.insert(0, _Importer(content["modules"]))
    try:
        importlib.import_module(content["main"])
    except BaseException:
        traceback.print_exc()
        raise


def _load_first(function: Callable[..., Any]) -> Callable[..., Any]:
    if inspect.iscoroutinefunction(function):

        async def call_later(*args: Any) -> Any:
            _load()
            return await function(*args)

        return call_later

    def call(*args: Any) -> Any:
        _load()
        return function(*args)

    return call


def load_first(implementation: type) -> type:
    """Returns a class whose methods import the program before they do what the methods of ``implementation`` do."""
    names = [name for name in dir(implementation) if not name.startswith("_")]
    return type(implementation.__name__, (implementation,), {name: _load_first(getattr(implementation, name)) for name in names})
