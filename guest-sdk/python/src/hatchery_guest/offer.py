"""``export``: what a component offers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Union

from .agent import Agent
from .callback import Callback
from .tool import Tool

Item = Union[Agent, Tool, Callback]


@dataclass
class Offer:
    """Everything that a component offers, each kind by name."""

    agents: dict[str, Agent] = field(default_factory=dict)
    tools: dict[str, Tool] = field(default_factory=dict)
    callbacks: dict[str, Callback] = field(default_factory=dict)

    def kinds(self) -> list[str]:
        """The kinds of which there is something."""
        return [kind for kind in ("agents", "tools", "callbacks") if getattr(self, kind)]

    def add(self, item: Item) -> None:
        """Adds an item, an agent with those below it."""
        if isinstance(item, Agent):
            for each in _with_those_below(item):
                _put(self.agents, each, "agents")
        elif isinstance(item, Tool):
            _put(self.tools, item, "tools")
        elif isinstance(item, Callback):
            _put(self.callbacks, item, "callbacks")
        else:
            raise TypeError(
                f"a component cannot export {item!r}; export agents, and functions marked with @tool, @callback or @agent"
            )


def _with_those_below(agent: Agent) -> Iterator[Agent]:
    yield agent
    for below in agent.sub_agents:
        if isinstance(below, Agent):
            yield from _with_those_below(below)


def _put(items: dict, item: Item, kind: str) -> None:
    if items.setdefault(item.name, item) is not item:
        raise ValueError(f"two {kind} are named `{item.name}`; a component's {kind} have different names")


OFFER = Offer()
"""What the program has exported so far."""


def export(*items: Item) -> None:
    """Says what the component offers: agents, tools and callbacks. It offers nothing else; what an agent of it uses must be here, too."""
    for item in items:
        OFFER.add(item)
