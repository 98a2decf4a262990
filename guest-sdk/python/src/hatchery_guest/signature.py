"""Descriptions of functions from their signatures and docstrings."""

from __future__ import annotations

import functools
import inspect
import re
import typing
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Callable

from .context import Context
from .schema import without_null

if typing.TYPE_CHECKING:
    # Type checkers know the defaults, which `typing` has from Python 3.13 on.
    from typing_extensions import ParamSpec, TypeVar

    P = ParamSpec("P", default=...)
    R = TypeVar("R", default=Any)
else:
    P = typing.ParamSpec("P")
    R = typing.TypeVar("R")

_SECTION = re.compile(r"^(Args|Arguments|Parameters|Returns|Raises|Yields|Examples?|Notes?):\s*$")
_ARGUMENT = re.compile(r"^\s*\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)$")


CONTEXT_NAMES = ("cx", "ctx", "context", "tool_context")
"""The usual names of a parameter that gets the context."""


@dataclass
class Parameter:
    """A parameter with a value from the caller."""

    name: str
    hint: Any
    default: Any
    description: str

    @property
    def required(self) -> bool:
        """True if it has no default."""
        return self.default is inspect.Parameter.empty


@dataclass
class Signature:
    """A function as callers see it."""

    description: str
    parameters: list[Parameter]
    returns: Any
    context: str | None
    """The name of the parameter that is annotated with a context."""


@functools.cache
def signature(function: Callable[..., Any]) -> Signature:
    """Returns the description of a function from its type hints and docstring. It is kept, so that calls need not compute it again."""
    if not inspect.isroutine(function):
        raise TypeError(f"{function!r} is not a function; options have names, as in `@tool(name=\"…\")`")
    hints = _hints(function)
    doc = docstring(inspect.getdoc(function) or "")
    parameters, context = [], None
    for index, parameter in enumerate(inspect.signature(function).parameters.values()):
        if index == 0 and parameter.name in ("self", "cls") and parameter.name not in hints:
            raise TypeError(f"`{function.__qualname__}` is a method, which no caller has an object for; move it out of its class")
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise TypeError(f"`{function.__name__}` has *args or **kwargs, which have no schema; name its parameters")
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise TypeError(f"parameter `{parameter.name}` of `{function.__name__}` has no name for callers; remove the `/` after it")
        hint = hints.get(parameter.name, Any)
        if _is_context(hint):
            if context:
                raise TypeError(f"parameters `{context}` and `{parameter.name}` of `{function.__name__}` are both the context; remove one")
            context = parameter.name
        else:
            described = doc.arguments.get(parameter.name, "")
            parameters.append(Parameter(parameter.name, hint, parameter.default, described))
    return Signature(doc.description, parameters, hints.get("return", Any), context)


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function, include_extras=True)
    except NameError as error:
        reason = f"{error}; types that are imported below `if TYPE_CHECKING` do not exist when the module runs"
        raise TypeError(f"the type hints of `{function.__name__}`: {reason}") from None


def _is_context(hint: Any) -> bool:
    """Returns true for a context, also if it is optional."""
    hint = without_null(hint)
    return isinstance(hint, type) and issubclass(hint, Context)


def handler_signature(kind: str, function: Callable[..., Any], count: int) -> Signature:
    """Returns the description of a function that the host calls with up to ``count`` values and a context.

    Raises ``TypeError`` if a parameter would get no value.
    """
    described = signature(function)
    required = [parameter.name for parameter in described.parameters if parameter.required]
    if len(required) > count:
        raise TypeError(
            f"{kind} `{function.__name__}`: no value for parameter `{required[count]}`; annotate it with Context or one of its "
            "subclasses if it is the context"
        )
    return described


def call_handler(function: Callable[..., Any], signature: Signature, cx: Context, *values: Any) -> Any:
    """Calls a function with a context and values. It may take fewer values than there are."""
    args = dict(zip([parameter.name for parameter in signature.parameters], values))
    if signature.context:
        args[signature.context] = cx
    return function(**args)


def items_of(caller: str, result: Any, *types: type) -> list[Any]:
    """Returns the items that a function has returned. Raises ``TypeError`` if there is one of another type."""
    expected = " or ".join(each.__name__ for each in types)
    if not isinstance(result, Iterable) or isinstance(result, (str, dict)):
        raise TypeError(f"{caller} returns a list of {expected}, not `{type(result).__name__}`")
    items = list(result)
    for item in items:
        if not isinstance(item, types):
            raise TypeError(f"{caller} returns a list of {expected}; it has {item!r}")
    return items


@dataclass
class Docstring:
    """The description and the arguments of a docstring."""

    description: str
    arguments: dict[str, str] = field(default_factory=dict)


def docstring(text: str) -> Docstring:
    """Parses a docstring: the text before the first section, and the lines of ``Args:``."""
    before: list[str] = []
    arguments: dict[str, str] = {}
    section, last = None, None
    for line in text.splitlines():
        heading = _SECTION.match(line)
        if heading:
            section, last = heading.group(1), None
        elif section is None:
            before.append(line)
        elif section in ("Args", "Arguments", "Parameters"):
            last = _parse_argument(line, last, arguments)
    return Docstring("\n".join(before).strip(), {name: text.strip() for name, text in arguments.items()})


def _parse_argument(line: str, last: tuple[str, int] | None, arguments: dict[str, str]) -> tuple[str, int] | None:
    indent = len(line) - len(line.lstrip())
    if last and line.strip() and indent > last[1]:
        arguments[last[0]] += " " + line.strip()
        return last
    match = _ARGUMENT.match(line)
    if not match:
        return None
    arguments[match.group(1)] = match.group(2)
    return match.group(1), indent
