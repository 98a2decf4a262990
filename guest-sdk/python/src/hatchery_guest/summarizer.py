"""``@summarizer``: turns a function into a summarizer, which writes the summaries that replace older events in prompts."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any, Callable, overload

from .content import Content, Event
from .context import Context
from .signature import Signature, call_handler, handler_signature


@dataclass
class Summarizer:
    """A function that summarizes events."""

    name: str
    function: Callable[..., Any]
    signature: Signature

    async def summarize(self, events: list[Event], cx: Context) -> Content | None:
        """Returns a summary of the events, or ``None`` if there is nothing to summarize."""
        summary = call_handler(self.function, self.signature, cx, events)
        summary = await summary if inspect.isawaitable(summary) else summary
        summary = Content.model(summary) if isinstance(summary, str) else summary
        if summary is None or isinstance(summary, Content):
            return summary
        raise TypeError(f"summarizer `{self.name}` returns a string, a Content or None, not `{type(summary).__name__}`")


@overload
def summarizer(function: Callable[..., Any]) -> Summarizer: ...
@overload
def summarizer(*, name: str | None = None) -> Callable[[Callable[..., Any]], Summarizer]: ...
def summarizer(function: Any = None, *, name: str | None = None) -> Any:
    """Turns a function, async or not, into a summarizer: it takes a list of events and returns a string, a ``Content`` or ``None``."""

    def decorate(function: Callable[..., Any]) -> Summarizer:
        return Summarizer(name or function.__name__, function, handler_signature("summarizer", function, 1))

    return decorate if function is None else decorate(function)
