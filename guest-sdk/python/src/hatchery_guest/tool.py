"""``@tool``: what makes a tool of a function."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from typing import Any, Callable, overload

from . import schema
from .content import FunctionDeclaration, Json
from .context import ToolContext
from .signature import Signature, signature


@dataclass
class Tool:
    """A function that models can call. Calling it calls the function."""

    name: str
    function: Callable[..., Any]
    signature: Signature
    declaration: FunctionDeclaration
    confirm: bool = False
    long_running: bool = False
    __wrapped__: Callable[..., Any] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.__wrapped__ = self.function
        self.__doc__ = self.function.__doc__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    async def call(self, args: dict[str, Json], cx: ToolContext) -> Json:
        """Calls it as a host does, with JSON.

        Raises ``schema.BadValue`` for arguments that do not fit, and whatever the function raises.
        """
        given = self._read(args)
        if self.signature.context:
            given[self.signature.context] = cx
        result = self.function(**given)
        return schema.dump(await result if inspect.isawaitable(result) else result)

    def _read(self, args: dict[str, Json]) -> dict[str, Any]:
        known = {parameter.name: parameter for parameter in self.signature.parameters}
        unknown = [name for name in args if name not in known]
        if unknown:
            raise schema.BadValue(f"`{self.name}` has no argument `{unknown[0]}`; it has {', '.join(known) or 'none'}")
        given = {}
        for name, parameter in known.items():
            value = args.get(name)
            if name not in args or (value is None and not parameter.required):
                if parameter.required:
                    raise schema.BadValue(f"argument `{name}` is missing")
                continue
            given[name] = schema.read(parameter.hint, value, f"argument `{name}`")
        return given


@overload
def tool(function: Callable[..., Any]) -> Tool: ...
@overload
def tool(*, name: str | None = None, confirm: bool = False, long_running: bool = False) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(function: Any = None, *, name: str | None = None, confirm: bool = False, long_running: bool = False) -> Any:
    """Makes a tool of a function, async or not.

    Type hints become its JSON Schema, the docstring its description, the lines below ``Args:`` those of its arguments. A parameter
    annotated with a context gets it. What the function raises is told to the model; ``FatalError`` ends the run.

    Args:
        name: What models call it by; the function's name by default.
        confirm: A person has to agree to each call.
        long_running: Its result comes later.
    """

    def make(function: Callable[..., Any]) -> Tool:
        read = signature(function)
        own_name = name or function.__name__
        declaration = FunctionDeclaration(own_name, read.description, _parameters(read), _result(read))
        return Tool(own_name, function, read, declaration, confirm, long_running)

    return make if function is None else make(function)


def _parameters(read: Signature) -> Json:
    properties = {}
    for parameter in read.parameters:
        # Models leave out what need not be given; that it may be null, too, is no news to them.
        hint = parameter.hint if parameter.required else schema.without_null(parameter.hint)
        each = schema.schema_of(hint)
        if parameter.description:
            each["description"] = parameter.description
        if not parameter.required and parameter.default is not None:
            each["default"] = schema.dump(parameter.default)
        properties[parameter.name] = (each, parameter.required)
    return schema.object_schema(properties)


def _result(read: Signature) -> Json:
    """The schema of the result, when its hint says more than that there is one."""
    try:
        described = schema.schema_of(read.returns)
    except schema.BadHint:
        return None
    return described if described.get("properties") else None
