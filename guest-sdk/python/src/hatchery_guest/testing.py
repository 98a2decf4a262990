"""A stand-in for the host, for unit tests in plain Python.

    from hatchery_guest.testing import FakeHost, run

    def test_roll():
        host = FakeHost(state={"sides": 6})
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
from .errors import Error, ToolFailed
from .tool import Tool

T = TypeVar("T")
Answer = Union[str, LlmResponse, Exception]


async def _all(events: AsyncIterator[T]) -> list[T]:
    return [event async for event in events]


def run(work: Awaitable[T] | AsyncIterator[Any]) -> Any:
    """Waits for a coroutine, or collects all that an async generator yields."""

    async def wait() -> Any:
        return await (_all(work) if isinstance(work, AsyncIterator) else work)

    return asyncio.run(wait())


class FakeHost:
    """A host that keeps everything in memory. Its fields can be set before a test and looked at after it.

    Args:
        state: The session's state.
        config: The component's settings.
        user: What the user said to start the run.
        answers: What models answer, one after the other: texts, responses, or exceptions.
        tools: Tools that the code can call.
        agents: The events of agents below this one.
        memories: What the memory finds, whatever is asked.
        confirmation: What a person has decided about the tool call.
    """

    def __init__(
        self,
        *,
        state: dict[str, Json] | None = None,
        config: dict[str, Json] | None = None,
        user: str = "",
        answers: Iterable[Answer] = (),
        tools: Iterable[Tool] | dict[str, Callable[..., Any]] = (),
        agents: dict[str, list[Event]] | None = None,
        memories: list[MemoryEntry] | None = None,
        confirmation: ToolConfirmation | None = None,
    ) -> None:
        self.state: dict[str, Json] = dict(state or {})
        self.settings: dict[str, Json] = dict(config or {})
        self.user = Content.user(user)
        self.answers = list(answers)
        self.tools = tools if isinstance(tools, dict) else {tool.name: tool for tool in tools}
        self.agents = agents or {}
        self.memories = memories or []
        self.decided = confirmation
        self.history: list[Event] = []
        self.files: dict[str, list[Part]] = {}
        self.requests: list[LlmRequest] = []
        """What models were asked."""
        self.lines: list[tuple[Level, str, dict[str, str]]] = []
        """What was logged."""
        self.steps: list[tuple[str, Any]] = []
        """How the run was steered, such as ``("transfer", "helper")``."""

    def tool_context(self) -> ToolContext:
        """A context for a tool."""
        return ToolContext(self)

    def callback_context(self) -> CallbackContext:
        """A context for a callback."""
        return CallbackContext(self)

    def agent_context(self) -> AgentContext:
        """A context for a custom agent."""
        return AgentContext(self)

    def info(self) -> RunInfo:
        return RunInfo("app", "user", "session", "e-test", "agent")

    def user_content(self) -> Content:
        return self.user

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
        return len(self.history)

    def events(self, offset: int, limit: int) -> list[Event]:
        return self.history[offset : offset + limit]

    def confirmation(self) -> ToolConfirmation | None:
        return self.decided

    def request_confirmation(self, hint: str, payload: Json) -> None:
        self.steps.append(("request_confirmation", (hint, payload)))

    def config(self, key: str) -> tuple[bool, Json]:
        return key in self.settings, self.settings.get(key)

    def log(self, level: Level, message: str, fields: dict[str, str]) -> None:
        self.lines.append((level, message, fields))

    def transfer(self, agent: str) -> None:
        self.steps.append(("transfer", agent))

    def escalate(self) -> None:
        self.steps.append(("escalate", None))

    def skip_summarization(self) -> None:
        self.steps.append(("skip_summarization", None))

    async def save_artifact(self, name: str, part: Part) -> int:
        versions = self.files.setdefault(name, [])
        versions.append(part)
        return len(versions) - 1

    async def load_artifact(self, name: str, version: int | None) -> Part | None:
        versions = self.files.get(name, [])
        at = len(versions) - 1 if version is None else version
        return versions[at] if 0 <= at < len(versions) else None

    async def list_artifacts(self) -> list[str]:
        return sorted(self.files)

    async def artifact_versions(self, name: str) -> list[int]:
        return list(range(len(self.files.get(name, []))))

    async def delete_artifact(self, name: str) -> None:
        self.files.pop(name, None)

    async def search_memory(self, query: str) -> list[MemoryEntry]:
        return self.memories

    async def call_tool(self, name: str, args: dict[str, Json]) -> Json:
        if name not in self.tools:
            raise ToolFailed(f"tool `{name}` not found")
        tool = self.tools[name]
        if isinstance(tool, Tool):
            return await tool.call(args, self.tool_context())
        result = tool(**args)
        return await result if isinstance(result, Awaitable) else result

    async def generate(self, request: LlmRequest, streamed: bool) -> AsyncIterator[LlmResponse]:
        self.requests.append(request)
        if not self.answers:
            raise Error("MODEL_SCRIPT_ENDED", "the test has no answer left; give FakeHost more `answers`")
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        whole = LlmResponse.say(answer) if isinstance(answer, str) else answer
        if streamed:
            for word in whole.text.split():
                yield LlmResponse(Content.model(word + " "), partial=True)
        yield whole

    async def run_agent(self, name: str) -> AsyncIterator[Event]:
        if name not in self.agents:
            raise Error("NOT_FOUND", f"agent `{name}` not found")
        for event in self.agents[name]:
            yield event
