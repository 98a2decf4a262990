"""``export``: the items that a component exports."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Union

from .agent import Agent
from .callback import Callback
from .tool import Tool

Item = Union[Agent, Tool, Callback]


@dataclass
class Exports:
    """The exported items of each kind, by name."""

    agents: dict[str, Agent] = field(default_factory=dict)
    tools: dict[str, Tool] = field(default_factory=dict)
    callbacks: dict[str, Callback] = field(default_factory=dict)

    def kinds(self) -> list[str]:
        """Returns the kinds that have items."""
        return [kind for kind in ("agents", "tools", "callbacks") if getattr(self, kind)]

    def add(self, item: Item) -> None:
        """Adds an item. An agent is added with its sub-agents."""
        if isinstance(item, Agent):
            for agent in _agent_tree(item):
                _insert(self.agents, agent, "agents")
        elif isinstance(item, Tool):
            _insert(self.tools, item, "tools")
        elif isinstance(item, Callback):
            _insert(self.callbacks, item, "callbacks")
        else:
            raise TypeError(
                f"a component cannot export {item!r}; export agents, and functions marked with @tool, @callback or @agent"
            )


def _agent_tree(agent: Agent) -> Iterator[Agent]:
    yield agent
    for sub_agent in agent.sub_agents:
        if isinstance(sub_agent, Agent):
            yield from _agent_tree(sub_agent)


def _insert(items: dict, item: Item, kind: str) -> None:
    if items.setdefault(item.name, item) is not item:
        raise ValueError(f"two {kind} are named `{item.name}`; rename one of them")


EXPORTS = Exports()
"""The exports of the program."""


def export(*items: Item) -> None:
    """Exports agents, tools and callbacks. Items that an agent refers to must be exported, too."""
    for item in items:
        EXPORTS.add(item)
