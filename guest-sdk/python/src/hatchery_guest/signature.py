"""What a function's signature and docstring say."""

from __future__ import annotations

import inspect
import re
import typing
from dataclasses import dataclass, field
from typing import Any, Callable

from .context import Context

_SECTION = re.compile(r"^(Args|Arguments|Parameters|Returns|Raises|Yields|Examples?|Notes?):\s*$")
_ARGUMENT = re.compile(r"^\s*\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)$")


@dataclass
class Parameter:
    """A parameter that callers fill in."""

    name: str
    hint: Any
    default: Any
    description: str

    @property
    def required(self) -> bool:
        """True when it has no default."""
        return self.default is inspect.Parameter.empty


@dataclass
class Signature:
    """A function as callers see it."""

    description: str
    parameters: list[Parameter]
    returns: Any
    context: str | None
    """The name of the parameter that gets the context, if one is annotated with it."""


def signature(function: Callable[..., Any]) -> Signature:
    """Reads the hints and the docstring of a function."""
    hints = typing.get_type_hints(function, include_extras=True)
    doc = docstring(inspect.getdoc(function) or "")
    parameters, context = [], None
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise TypeError(f"`{function.__name__}` takes *args or **kwargs, which nobody can describe; name its parameters")
        hint = hints.get(parameter.name, Any)
        if isinstance(hint, type) and issubclass(hint, Context):
            context = parameter.name
        else:
            described = doc.arguments.get(parameter.name, "")
            parameters.append(Parameter(parameter.name, hint, parameter.default, described))
    return Signature(doc.description, parameters, hints.get("return", Any), context)


@dataclass
class Docstring:
    """A docstring, taken apart."""

    description: str
    arguments: dict[str, str] = field(default_factory=dict)


def docstring(text: str) -> Docstring:
    """What stands before the first section, and the lines of ``Args:``."""
    before, arguments = [], {}
    section, last = None, None
    for line in text.splitlines():
        heading = _SECTION.match(line)
        if heading:
            section, last = heading.group(1), None
        elif section is None:
            before.append(line)
        elif section in ("Args", "Arguments", "Parameters"):
            last = _read_argument(line, last, arguments)
    return Docstring("\n".join(before).strip(), {name: text.strip() for name, text in arguments.items()})


def _read_argument(line: str, last: tuple[str, int] | None, arguments: dict[str, str]) -> tuple[str, int] | None:
    indent = len(line) - len(line.lstrip())
    if last and line.strip() and indent > last[1]:
        arguments[last[0]] += " " + line.strip()
        return last
    found = _ARGUMENT.match(line)
    if not found:
        return None
    arguments[found.group(1)] = found.group(2)
    return found.group(1), indent
