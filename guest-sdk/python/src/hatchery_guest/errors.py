"""Errors that mean something to the host. Every other exception is a failure of the code, told by its message."""

from __future__ import annotations


class Error(Exception):
    """A failure with a stable code, such as ``DENIED``, ``LIMIT_REACHED`` or ``NOT_FOUND``.

    The context raises it for what the host refuses. Raised by an agent or a callback, it ends the run with its code; raised by a tool,
    the model is told its message.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class FatalError(Error):
    """Raised by a tool, it ends the run: nothing that the model could do would help."""


class ToolFailed(Error):
    """Another tool has failed, in words for a model."""

    def __init__(self, message: str) -> None:
        super().__init__("TOOL_FAILED", message)


def describe(error: BaseException) -> str:
    """What an exception says, in words that stand alone."""
    text = str(error)
    if not text:
        return type(error).__name__
    # The text of a KeyError is the key and nothing else.
    return f"{type(error).__name__}: {text}" if isinstance(error, LookupError) else text
