"""``export``: the items that a component exports."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Union

from .agent import Agent, check_definition, references
from .callback import Callback
from .code_executor import CodeExecutor
from .examples import ExampleProvider
from .live import LiveModel
from .model import Model
from .plugin import Plugin
from .summarizer import Summarizer
from .tool import Tool
from .toolset import ToolsetExport

Item = Union[Agent, Tool, ToolsetExport, Callback, Plugin, CodeExecutor, Summarizer, ExampleProvider, Model, LiveModel]


@dataclass
class Exports:
    """The exported items of each kind, by name."""

    agents: dict[str, Agent] = field(default_factory=dict)
    tools: dict[str, Tool] = field(default_factory=dict)
    toolsets: dict[str, ToolsetExport] = field(default_factory=dict)
    callbacks: dict[str, Callback] = field(default_factory=dict)
    plugins: dict[str, Plugin] = field(default_factory=dict)
    code_executors: dict[str, CodeExecutor] = field(default_factory=dict)
    summarizers: dict[str, Summarizer] = field(default_factory=dict)
    examples: dict[str, ExampleProvider] = field(default_factory=dict)
    models: dict[str, Model] = field(default_factory=dict)
    live_models: dict[str, LiveModel] = field(default_factory=dict)

    def kinds(self) -> list[str]:
        """Returns the kinds that have items."""
        return [kind for kind in KINDS if getattr(self, kind)]

    def check_references(self) -> None:
        """Raises ``TypeError`` if an agent refers to an item that is not exported, which no host would find."""
        for agent in self.agents.values():
            for item in references(agent):
                kind = next((kind for kind, cls in KINDS.items() if isinstance(item, cls)), None)
                if kind and getattr(self, kind).get(item.name) is not item:
                    raise TypeError(f"agent `{agent.name}` uses `{item.name}`, which is not exported; add it to `export(…)`")

    def add(self, item: Item | type[Any]) -> None:
        """Adds an item. An agent is added with its sub-agents."""
        for kind, cls in KINDS.items():
            if isinstance(item, cls):
                for each in _agent_tree(item) if isinstance(item, Agent) else [item]:
                    _insert(getattr(self, kind), each, kind)
                return
        raise TypeError(
            f"a component cannot export {item!r}; export agents, and functions and classes marked with @tool, @callback, @agent, @plugin, "
            "@model or another decorator of hatchery_guest"
        )


KINDS: dict[str, type] = {
    "agents": Agent, "tools": Tool, "toolsets": ToolsetExport, "callbacks": Callback, "plugins": Plugin,
    "code_executors": CodeExecutor, "summarizers": Summarizer, "examples": ExampleProvider, "models": Model,
    "live_models": LiveModel,
}  # fmt: skip
"""The kinds of items, with their classes."""


def _agent_tree(agent: Agent) -> Iterator[Agent]:
    check_definition(agent)
    yield agent
    for sub_agent in agent.sub_agents:
        if isinstance(sub_agent, Agent):
            yield from _agent_tree(sub_agent)


def _insert(items: dict[str, Any], item: Any, kind: str) -> None:
    if items.setdefault(item.name, item) is not item:
        raise ValueError(f"two {kind.replace('_', ' ')} are named `{item.name}`; rename one of them")


EXPORTS = Exports()
"""The exports of the program."""


def export(*items: Item | type[Any]) -> None:
    """Exports agents, tools and other items. Items that an agent refers to must be exported as well.

    Type checkers take a plugin for the class that ``@plugin`` marks, so a class is allowed here; one that is not marked raises ``TypeError``.
    """
    for item in items:
        EXPORTS.add(item)
