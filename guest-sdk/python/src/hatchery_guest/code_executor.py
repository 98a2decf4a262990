"""``@code_executor``: turns a function into a code executor, which runs the code that models write."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from typing import Any, Callable, overload

from .context import Context
from .signature import Signature, call_handler, handler_signature


@dataclass
class CodeFile:
    """An input or output file of code."""

    name: str
    """The name, without a folder."""
    content: bytes
    mime_type: str = "text/plain"


@dataclass
class CodeInput:
    """Code to run."""

    code: str
    input_files: list[CodeFile] = field(default_factory=list)
    """Files that the code can read by name."""
    execution_id: str | None = None
    """The id of the environment that the code shares with earlier code of the session; ``None`` for a new environment."""


@dataclass
class CodeOutput:
    """The result of running code. A failure of the code is reported in ``stderr``, which is empty if the code succeeded."""

    stdout: str = ""
    stderr: str = ""
    output_files: list[CodeFile] = field(default_factory=list)


@dataclass
class CodeExecutor:
    """A function that runs code."""

    name: str
    function: Callable[..., Any]
    signature: Signature

    async def execute(self, input: CodeInput, cx: Context) -> CodeOutput:
        """Runs code. A text is the standard output."""
        output = call_handler(self.function, self.signature, cx, input)
        output = await output if inspect.isawaitable(output) else output
        output = CodeOutput(stdout=output) if isinstance(output, str) else output
        if not isinstance(output, CodeOutput):
            raise TypeError(f"code executor `{self.name}` returns a CodeOutput or a string, not `{type(output).__name__}`")
        return output


@overload
def code_executor(function: Callable[..., Any]) -> CodeExecutor: ...
@overload
def code_executor(*, name: str | None = None) -> Callable[[Callable[..., Any]], CodeExecutor]: ...
def code_executor(function: Any = None, *, name: str | None = None) -> Any:
    """Turns a function, async or not, into a code executor: it takes a ``CodeInput`` and returns a ``CodeOutput``, or a string."""

    def decorate(function: Callable[..., Any]) -> CodeExecutor:
        return CodeExecutor(name or function.__name__, function, handler_signature("code executor", function, 1))

    return decorate if function is None else decorate(function)
