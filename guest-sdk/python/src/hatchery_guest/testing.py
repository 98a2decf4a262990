"""A mock host for unit tests in plain Python.

    from hatchery_guest.testing import MockHost, run

    def test_roll():
        host = MockHost(state={"sides": 6})
        assert run(roll.call({}, host.tool_context())) <= 6
        assert host.state["last_roll"] <= 6
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any, TypeVar, Union

from .content import Content, Event, Json, Level, LlmRequest, LlmResponse, MemoryEntry, Part, RunInfo, ToolConfirmation
from .context import AgentContext, CallbackContext, ToolContext
from .errors import Error, ToolError
from .tool import Tool

T = TypeVar("T")
ModelResponse = Union[str, LlmResponse, Exception]


async def _collect(items: AsyncIterator[T]) -> list[T]:
    return [item async for item in items]


def run(work: Awaitable[T] | AsyncIterator[Any]) -> Any:
    """Runs a coroutine and returns its result, or returns the items of an async generator as a list."""

    async def wait() -> Any:
        return await (_collect(work) if isinstance(work, AsyncIterator) else work)

    return asyncio.run(wait())


class MockHost:
    """A host that keeps everything in memory. Its attributes can be set before a test and checked after it.

    Args:
        state: The session's state.
        config: The component's settings.
        user_message: The user message that started the run.
        events: The events of the session.
        responses: The responses of models, in order: texts, responses or exceptions.
        tools: Tools that the code can call.
        sub_agents: The events of sub-agents.
        memory: The result of every memory search.
        confirmation: A person's decision about the tool call.
    """

    def __init__(
        self,
        *,
        state: dict[str, Json] | None = None,
        config: dict[str, Json] | None = None,
        user_message: str = "",
        events: Iterable[Event] = (),
        responses: Iterable[ModelResponse] = (),
        tools: Iterable[Tool] | dict[str, Callable[..., Any]] = (),
        sub_agents: dict[str, list[Event]] | None = None,
        memory: list[MemoryEntry] | None = None,
        confirmation: ToolConfirmation | None = None,
    ) -> None:
        self.state: dict[str, Json] = dict(state or {})
        self.artifacts: dict[str, list[Part]] = {}
        """The versions of each artifact."""
        self.requests: list[LlmRequest] = []
        """The requests to models."""
        self.log_lines: list[tuple[Level, str, dict[str, str]]] = []
        """Level, message and fields of log lines."""
        self.requested_confirmation: ToolConfirmation | None = None
        """The confirmation that was requested for the tool call."""
        self.transferred_to: str | None = None
        """The agent that the conversation was transferred to."""
        self.escalated = False
        self.skipped_summarization = False
        self._config = config or {}
        self._user_message = Content.user(user_message)
        self._events = list(events)
        self._responses = list(responses)
        self._tools = tools if isinstance(tools, dict) else {tool.name: tool for tool in tools}
        self._sub_agents = sub_agents or {}
        self._memory = memory or []
        self._confirmation = confirmation

    def tool_context(self) -> ToolContext:
        """Returns a context for a tool."""
        return ToolContext(self)

    def callback_context(self) -> CallbackContext:
        """Returns a context for a callback."""
        return CallbackContext(self)

    def agent_context(self) -> AgentContext:
        """Returns a context for a custom agent."""
        return AgentContext(self)

    def info(self) -> RunInfo:
        return RunInfo("app", "user", "session", "e-test", "agent")

    def user_content(self) -> Content:
        return self._user_message

    def get_state(self, key: str) -> tuple[bool, Json]:
        return key in self.state, copy.deepcopy(self.state.get(key))

    def all_state(self) -> dict[str, Json]:
        return copy.deepcopy(self.state)

    def set_state(self, key: str, value: Json) -> None:
        if value is None:
            self.state.pop(key, None)
        else:
            self.state[key] = value

    def event_count(self) -> int:
        return len(self._events)

    def events(self, offset: int, limit: int) -> list[Event]:
        return self._events[offset : offset + limit]

    def confirmation(self) -> ToolConfirmation | None:
        return self._confirmation

    def request_confirmation(self, hint: str, payload: Json) -> None:
        self.requested_confirmation = ToolConfirmation(hint, False, payload)

    def config(self, key: str) -> tuple[bool, Json]:
        return key in self._config, self._config.get(key)

    def log(self, level: Level, message: str, fields: dict[str, str]) -> None:
        self.log_lines.append((level, message, fields))

    def transfer(self, agent: str) -> None:
        self.transferred_to = agent

    def escalate(self) -> None:
        self.escalated = True

    def skip_summarization(self) -> None:
        self.skipped_summarization = True

    async def save_artifact(self, name: str, part: Part) -> int:
        versions = self.artifacts.setdefault(name, [])
        versions.append(part)
        return len(versions) - 1

    async def load_artifact(self, name: str, version: int | None) -> Part | None:
        versions = self.artifacts.get(name, [])
        index = len(versions) - 1 if version is None else version
        return versions[index] if 0 <= index < len(versions) else None

    async def list_artifacts(self) -> list[str]:
        return sorted(self.artifacts)

    async def artifact_versions(self, name: str) -> list[int]:
        return list(range(len(self.artifacts.get(name, []))))

    async def delete_artifact(self, name: str) -> None:
        self.artifacts.pop(name, None)

    async def search_memory(self, query: str) -> list[MemoryEntry]:
        return self._memory

    async def call_tool(self, name: str, args: dict[str, Json]) -> Json:
        if name not in self._tools:
            raise ToolError(f"tool `{name}` not found; give it to MockHost in `tools`")
        tool = self._tools[name]
        if isinstance(tool, Tool):
            return await tool.call(args, self.tool_context())
        result = tool(**args)
        return await result if isinstance(result, Awaitable) else result

    async def generate(self, request: LlmRequest, streaming: bool) -> AsyncIterator[LlmResponse]:
        self.requests.append(request)
        if not self._responses:
            raise Error("MODEL_SCRIPT_ENDED", "no response is left; give MockHost more `responses`")
        response = self._responses.pop(0)
        if isinstance(response, Exception):
            raise response
        complete = LlmResponse.from_text(response) if isinstance(response, str) else response
        if streaming:
            for word in complete.text.split():
                yield LlmResponse(Content.model(word + " "), partial=True)
        yield complete

    async def run_sub_agent(self, name: str) -> AsyncIterator[Event]:
        if name not in self._sub_agents:
            raise Error("NOT_FOUND", f"agent `{name}` not found; give it to MockHost in `sub_agents`")
        for event in self._sub_agents[name]:
            yield event
