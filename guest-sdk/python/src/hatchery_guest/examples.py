"""Examples for models, and ``@examples``: turns a function into a provider that selects them."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any, Callable, overload

from .content import Content
from .context import Context
from .signature import Signature, call_handler, handler_signature, items_of


@dataclass(init=False)
class Example:
    """A user's message and the reply to it: texts, function calls and their responses. A string becomes a content."""

    input: Content
    output: list[Content]

    def __init__(self, input: str | Content, output: str | Content | list[Content]) -> None:
        self.input = Content.user(input) if isinstance(input, str) else input
        output = Content.model(output) if isinstance(output, str) else output
        self.output = [output] if isinstance(output, Content) else output


@dataclass
class ExampleProvider:
    """A function that selects examples."""

    name: str
    function: Callable[..., Any]
    signature: Signature

    async def examples(self, query: str, cx: Context) -> list[Example]:
        """Returns the examples that fit the user's message."""
        found = call_handler(self.function, self.signature, cx, query)
        found = await found if inspect.isawaitable(found) else found
        return items_of(f"example provider `{self.name}`", found, Example)


@overload
def examples(function: Callable[..., Any]) -> ExampleProvider: ...
@overload
def examples(*, name: str | None = None) -> Callable[[Callable[..., Any]], ExampleProvider]: ...
def examples(function: Any = None, *, name: str | None = None) -> Any:
    """Turns a function, async or not, into an example provider: it takes the user's message, a string, and returns examples."""

    def decorate(function: Callable[..., Any]) -> ExampleProvider:
        return ExampleProvider(name or function.__name__, function, handler_signature("example provider", function, 1))

    return decorate if function is None else decorate(function)
