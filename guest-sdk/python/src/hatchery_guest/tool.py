"""``@tool``: turns a function into a tool."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from typing import Any, Callable, Generic, overload

from . import schema
from .content import FunctionDeclaration, Json
from .context import ToolContext
from .signature import CONTEXT_NAMES, P, Parameter, R, Signature, signature


@dataclass
class Tool(Generic[P, R]):
    """A function that models can call. Calling it calls the function."""

    name: str
    function: Callable[P, R]
    signature: Signature
    declaration: FunctionDeclaration
    confirm: bool = False
    long_running: bool = False
    __wrapped__: Callable[..., Any] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.__wrapped__ = self.function
        self.__doc__ = self.function.__doc__

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    async def call(self, args: dict[str, Json], cx: ToolContext) -> Json:
        """Calls it as a host does, with JSON.

        Raises ``schema.BadValue`` if an argument does not match its type, ``TypeError`` if the result is not JSON, and the exceptions of the
        function.
        """
        values = self._parse(args)
        if self.signature.context:
            values[self.signature.context] = cx
        function: Callable[..., Any] = self.function
        result = function(**values)
        return to_result(self.name, await result if inspect.isawaitable(result) else result)

    def _parse(self, args: dict[str, Json]) -> dict[str, Any]:
        known = {parameter.name: parameter for parameter in self.signature.parameters}
        unknown = [name for name in args if name not in known]
        if unknown:
            raise schema.BadValue(f"`{self.name}` has no argument `{unknown[0]}`; it has {', '.join(known) or 'none'}")
        values = {}
        for name, parameter in known.items():
            value = args.get(name)
            if name not in args or (value is None and not parameter.required):
                if parameter.required:
                    raise schema.BadValue(f"argument `{name}` is missing")
                continue
            values[name] = schema.parse(parameter.hint, value, f"argument `{name}`")
        return values


@overload
def tool(function: Callable[P, R]) -> Tool[P, R]: ...
@overload
def tool(*, name: str | None = None, confirm: bool = False, long_running: bool = False) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
def tool(function: Any = None, *, name: str | None = None, confirm: bool = False, long_running: bool = False) -> Any:
    """Turns a function, async or not, into a tool.

    Type hints become its JSON Schema, the docstring its description, the lines below ``Args:`` its arguments' descriptions. A parameter
    annotated with a context gets it. The model gets the message of an exception as the tool's result; ``FatalError`` ends the run.

    Args:
        name: The name for models; by default the name of the function.
        confirm: Whether a person has to confirm each call.
        long_running: Whether the result arrives later.
    """

    def decorate(function: Callable[..., Any]) -> Tool:
        described = signature(function)
        _check_context(function)
        tool_name = name or function.__name__
        declaration = FunctionDeclaration(tool_name, described.description, _parameters(described), _response(described))
        return Tool(tool_name, function, described, declaration, confirm, long_running)

    return decorate if function is None else decorate(function)


def _check_context(function: Callable[..., Any]) -> None:
    """Raises ``TypeError`` for a context without a type hint: a model would have to send it."""
    for name, parameter in inspect.signature(function).parameters.items():
        if name in CONTEXT_NAMES and parameter.annotation is parameter.empty and parameter.default is parameter.empty:
            raise TypeError(f"parameter `{name}` of `{function.__name__}` has no type hint; write `{name}: ToolContext` if it is the context")


def to_result(tool: str, value: Any) -> Json:
    """Returns the result of a tool as JSON.

    Raises ``TypeError`` if JSON has no form for it, as this is a mistake in the tool.
    """
    try:
        return schema.dump(value)
    except schema.BadValue as error:
        raise TypeError(f"the result of `{tool}`: {error}") from None


def _parameters(signature: Signature) -> Json:
    properties = {}
    for parameter in signature.parameters:
        # Models omit optional arguments, so `null` would only make the schema longer.
        hint = parameter.hint if parameter.required else schema.without_null(parameter.hint)
        try:
            described = schema.schema_of(hint)
        except schema.BadHint as error:
            raise schema.BadHint(f"parameter `{parameter.name}`: {error}") from None
        if parameter.description:
            described["description"] = parameter.description
        if not parameter.required and parameter.default is not None:
            described["default"] = _default(parameter)
        properties[parameter.name] = (described, parameter.required)
    return schema.object_schema(properties)


def _default(parameter: Parameter) -> Json:
    try:
        return schema.dump(parameter.default)
    except schema.BadValue as error:
        raise TypeError(f"the default of parameter `{parameter.name}`: {error}") from None


def _response(signature: Signature) -> Json:
    """Returns the schema of the result if it is an object with known properties."""
    try:
        described = schema.schema_of(signature.returns)
    except schema.BadHint:
        return None
    return described if described.get("properties") else None
