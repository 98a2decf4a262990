"""``@toolset``: turns a function into a toolset, whose tools are computed before each model call."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from typing import Any, Callable, Union, overload

from .content import FunctionDeclaration, Json
from .context import Context, ToolContext
from .errors import ToolError
from .signature import Signature, call_handler, handler_signature, items_of
from .tool import Tool, to_result


@dataclass
class DynamicTool:
    """A tool of a toolset whose name or schema is computed. ``run`` gets the arguments, a dict, and the context."""

    name: str
    description: str
    run: Callable[[dict[str, Json], ToolContext], Any]
    parameters: Json = None
    """The JSON Schema of the arguments."""
    confirm: bool = False
    long_running: bool = False

    @property
    def declaration(self) -> FunctionDeclaration:
        """The tool as a model sees it."""
        return FunctionDeclaration(self.name, self.description, self.parameters)

    async def call(self, args: dict[str, Json], cx: ToolContext) -> Json:
        """Calls it as a host does, with JSON."""
        result = self.run(args, cx)
        return to_result(self.name, await result if inspect.isawaitable(result) else result)


ToolsetTool = Union[Tool, DynamicTool]


@dataclass
class ToolsetExport:
    """A function that computes the tools for a model call."""

    name: str
    function: Callable[..., Union[Sequence[ToolsetTool], Awaitable[Sequence[ToolsetTool]]]]
    signature: Signature = field(repr=False)

    async def tools(self, cx: Context) -> list[ToolsetTool]:
        """Returns its tools."""
        tools = call_handler(self.function, self.signature, cx)
        tools = await tools if inspect.isawaitable(tools) else tools
        return items_of(f"toolset `{self.name}`", tools, Tool, DynamicTool)

    async def call(self, tool: str, args: dict[str, Json], cx: ToolContext) -> Json:
        """Calls one of its tools."""
        found = next((found for found in await self.tools(cx) if found.name == tool), None)
        if found is None:
            raise ToolError(f"toolset `{self.name}` has no tool `{tool}` now")
        return await found.call(args, cx)


@overload
def toolset(function: Callable[..., Any]) -> ToolsetExport: ...
@overload
def toolset(*, name: str | None = None) -> Callable[[Callable[..., Any]], ToolsetExport]: ...
def toolset(function: Any = None, *, name: str | None = None) -> Any:
    """Turns a function, async or not, into a toolset: it returns tools, which are functions marked with ``@tool`` or ``DynamicTool``s.

    It is called before each model call, where changes of the session raise an ``Error`` with the code ``READ_ONLY``, and once more for
    each call of one of its tools.
    """

    def decorate(function: Callable[..., Any]) -> ToolsetExport:
        return ToolsetExport(name or function.__name__, function, handler_signature("toolset", function, 0))

    return decorate if function is None else decorate(function)
