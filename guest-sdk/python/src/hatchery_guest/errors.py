"""Errors with a code. The host reports any other exception by its message, with the code ``COMPONENT_FAILED``."""

from __future__ import annotations


COMPONENT_FAILED = "COMPONENT_FAILED"
"""The code of errors without a specific code."""


class Error(Exception):
    """An error with a stable code, such as ``DENIED``, ``LIMIT_REACHED`` or ``NOT_FOUND``.

    Methods of a context raise it if the host refuses an operation. An agent or a callback that raises it ends the run with its code.
    The model gets its message as the result of a tool that raises it.
    """

    def __init__(self, message: str, code: str = COMPONENT_FAILED) -> None:
        super().__init__(message)
        self.message = message
        self.code = code


class FatalError(Error):
    """Raised by a tool to end the run, because the model can do nothing about it."""

    def __init__(self, message: str, code: str = "TOOL_FAILED") -> None:
        super().__init__(message, code)


class ToolError(Error):
    """The error of a tool that was called with ``call_tool``, as a model would get it."""

    def __init__(self, message: str) -> None:
        super().__init__(message, "TOOL_FAILED")


def describe(error: BaseException) -> str:
    """Returns the message of an exception, with its type if the message does not stand alone."""
    text = str(error)
    if not text:
        return type(error).__name__
    # The text of a KeyError is only the key.
    return f"{type(error).__name__}: {text}" if isinstance(error, LookupError) else text
