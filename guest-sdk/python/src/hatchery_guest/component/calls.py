"""Functions that all exports use: access to the host, the start of a call, and the conversion of errors."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

from componentize_py_types import Err
from wit_world.imports import types as wit

from ..errors import COMPONENT_FAILED, Error, FatalError, describe
from ..schema import BadValue
from ..trace import format_traceback
from .host import ImportedHost

HOST = ImportedHost()

_is_seeded = False


def begin() -> None:
    """Begins a call. Seeds the random numbers of an instance, which would be the same in all instances: they start from one snapshot."""
    global _is_seeded
    if not _is_seeded and "random" in sys.modules:
        sys.modules["random"].seed()
    _is_seeded = True


def find(items: dict[str, Any], kind: str, name: str) -> Any:
    """Begins a call of an item, and returns the item."""
    begin()
    if name not in items:
        raise Err(wit.Error("NOT_FOUND", f"this component has no {kind} `{name}`"))
    return items[name]


def find_for_tool(items: dict[str, Any], kind: str, name: str) -> Any:
    """As ``find``, in a function with tool errors."""
    begin()
    if name not in items:
        raise FatalError(f"this component has no {kind} `{name}`", "NOT_FOUND")
    return items[name]


def to_wit_error(error: BaseException) -> wit.Error:
    """Converts an exception. One without a code is also written to the host's log, with its traceback."""
    if isinstance(error, Error):
        return wit.Error(error.code, error.message)
    with contextlib.suppress(Error):  # A full log is no error of the component.
        HOST.log("error", format_traceback(error), {})
    return wit.Error(COMPONENT_FAILED, describe(error))


def to_wit_tool_error(error: BaseException) -> Any:
    """Converts an exception of a tool: only a ``FatalError`` ends the run."""
    if isinstance(error, FatalError):
        return wit.ToolError_Fatal(wit.Error(error.code, error.message))
    if isinstance(error, BadValue):
        return wit.ToolError_Recoverable(str(error))
    return wit.ToolError_Recoverable(to_wit_error(error).message)
