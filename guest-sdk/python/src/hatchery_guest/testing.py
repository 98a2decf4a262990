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
import math
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Any, TypeVar, Union, overload

from .content import ArtifactVersion, Blob, Content, Event, FileData, Json, Level, LlmRequest, LlmResponse, MemoryEntry, Part, ToolConfirmation
from .context import AgentContext, CallbackContext, Context, ToolContext
from .errors import Error, FatalError, ToolError, describe
from .http import Request, Response, use
from .live import LiveMessage, LiveRequest, LiveRun, LiveRunRequest
from .run_info import PluginInfo, RunInfo
from .runner import Run, RunRequest
from .sessions import EventWindow, SessionInfo
from .tool import Tool, to_result

T = TypeVar("T")
ModelResponse = Union[str, LlmResponse, Exception]
C = TypeVar("C", bound=Context)
App = Callable[[RunRequest], "Iterable[Event | Content | str]"]


async def _collect(items: AsyncIterator[T]) -> list[T]:
    return [item async for item in items]


@overload
def run(work: Awaitable[T]) -> T: ...
@overload
def run(work: AsyncIterator[T]) -> list[T]: ...
def run(work: Awaitable[Any] | AsyncIterator[Any]) -> Any:
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
        responses: The responses of models, in order: strings, responses or exceptions.
        tools: Tools that the code can call.
        sub_agents: The events of sub-agents.
        memory: Entries of earlier sessions. A search finds those that contain words of the query.
        confirmation: A person's decision about the tool call.
        idempotency_key: The key of the tool call.
        info: The call in which the code runs.
        run_metadata: The custom metadata that the request for the run has.
        arguments: The arguments with which the configuration uses the tool or plugin that is called.
        plugins: The plugins of the run.
        models: The names and patterns of the models that the component is granted.
        embed: Embeds a text.
        apps: Apps that the code can run: functions from the request to the events. An event with an error code is a failure.
        sessions: The events of other sessions of the user, by app and id.
        http: Answers requests to web servers: ``lambda request: Response.of({"degrees": 21})``.
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
        credential: dict[str, Json] | None = None,
        idempotency_key: str | None = "key-of-call",
        info: RunInfo | None = None,
        run_metadata: dict[str, Json] | None = None,
        arguments: Json = None,
        plugins: Iterable[PluginInfo] = (),
        models: Iterable[str] = (),
        embed: Callable[[str], list[float]] | None = None,
        apps: dict[str, App] | None = None,
        sessions: dict[tuple[str, str], Iterable[Event | Content | str]] | None = None,
        http: Callable[[Request], Response] | None = None,
    ) -> None:
        self.state: dict[str, Json] = dict(state or {})
        self.artifacts: dict[str, list[Part]] = {}
        """The versions of each artifact."""
        self.artifact_metadata: dict[str, list[dict[str, Json]]] = {}
        """The custom metadata of the versions of each artifact."""
        self.requests: list[LlmRequest] = []
        """The requests to models."""
        self.log_lines: list[tuple[Level, str, dict[str, str]]] = []
        """Level, message and fields of log lines."""
        self.progress: list[tuple[float, float | None, str | None]] = []
        """Progress, total and message of the reports of tools. A real host sends at most ten reports of a call per second."""
        self.requested_confirmation: ToolConfirmation | None = None
        """The confirmation that was requested for the tool call."""
        self.requested_credential: dict[str, Json] | None = None
        """The configuration of the credential that was requested for the tool call."""
        self.credential_of_user = credential
        """The credential of the user, or ``None`` after it was refused."""
        self.transferred_to: str | None = None
        """The agent that the conversation was transferred to."""
        self.has_escalated = False
        self.has_ended_invocation = False
        self.has_skipped_summarization = False
        self.run_requests: list[RunRequest] = []
        """The runs of apps that the code has started."""
        self.cancelled_runs: list[str] = []
        """The ids of the runs that the code has cancelled."""
        self.http_requests: list[Request] = []
        """The requests to web servers. Each redirect is a separate request."""
        self.memory: list[MemoryEntry] = list(memory or [])
        """The entries of the memory."""
        self.sessions: dict[tuple[str, str], list[Event]] = {
            key: [Event.of(event) for event in events] for key, events in (sessions or {}).items()
        }
        """The events of the user's other sessions, by app and id."""
        self._session_states: dict[tuple[str, str], dict[str, Json]] = {}
        self._info = info or RunInfo("app", "user", "session", "e-test", "agent")
        self._run_metadata = run_metadata or {}
        self._arguments = arguments
        self._plugins = list(plugins)
        self._models = list(models)
        self._embed = embed
        self._apps = apps or {}
        self._http = http
        self._config = config or {}
        self._user_message = Content.user(user_message)
        self._events = list(events)
        self._responses = list(responses)
        self._tools = tools if isinstance(tools, dict) else {tool.name: tool for tool in tools}
        self._sub_agents = sub_agents or {}
        self._confirmation = confirmation
        self._idempotency_key = idempotency_key

    def tool_context(self) -> ToolContext:
        """Returns a context for a tool."""
        return self._opened(ToolContext(self))

    def callback_context(self) -> CallbackContext:
        """Returns a context for a callback."""
        return self._opened(CallbackContext(self))

    def agent_context(self) -> AgentContext:
        """Returns a context for a custom agent."""
        return self._opened(AgentContext(self))

    def context(self) -> Context:
        """Returns a context for a model, a code executor, a summarizer or an example provider."""
        return self._opened(Context(self))

    def read_only_context(self) -> Context:
        """Returns a context for the function of an instruction or of a toolset, where changes raise an ``Error`` with the code
        ``READ_ONLY``."""
        return self._opened(Context(_ReadOnlyHost(self)))

    def _opened(self, context: C) -> C:
        """Answers the requests of the code that gets a context."""
        use(self)
        if "urllib.request" in sys.modules:
            from .urllib_opener import install

            install(self.answer)
        return context

    def answer(self, request: Request) -> Response:
        """Answers a request to a web server."""
        self.http_requests.append(request)
        if self._http is None:
            raise Error(f"no response to `{request.method} {request.url}`; give MockHost a function in `http`", "HTTP_FAILED")
        return self._http(request)

    async def send(self, request: Request) -> Response:
        return self.answer(request)

    def info(self) -> RunInfo:
        return self._info

    def user_content(self) -> Content:
        return self._user_message

    def run_metadata(self) -> dict[str, Json]:
        return copy.deepcopy(self._run_metadata)

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

    def idempotency_key(self) -> str | None:
        return self._idempotency_key

    def confirmation(self) -> ToolConfirmation | None:
        return self._confirmation

    def request_confirmation(self, hint: str, payload: Json) -> None:
        self.requested_confirmation = ToolConfirmation(hint, False, payload)

    def report_progress(self, progress: float, total: float | None, message: str | None) -> None:
        if not all(math.isfinite(number) for number in (progress, total) if number is not None):
            raise Error("progress and its total must be finite numbers; leave an unknown total out", "BAD_INPUT")
        self.progress.append((progress, total, message))

    async def credential(self, config: dict[str, Json]) -> dict[str, Json] | None:
        if self.credential_of_user is None:
            self.requested_credential = copy.deepcopy(config)
        return copy.deepcopy(self.credential_of_user)

    async def refuse_credential(self, config: dict[str, Json], credential: dict[str, Json]) -> None:
        if credential == self.credential_of_user:
            self.credential_of_user = None

    def config(self, key: str) -> tuple[bool, Json]:
        return key in self._config, self._config.get(key)

    def arguments(self) -> Json:
        return copy.deepcopy(self._arguments)

    def plugins(self) -> list[PluginInfo]:
        return self._plugins

    def plugin(self, name: str) -> PluginInfo | None:
        return next((plugin for plugin in self._plugins if plugin.name == name), None)

    def models(self) -> list[str]:
        return self._models

    async def embed(self, model: str, texts: list[str]) -> list[list[float]]:
        if self._embed is None:
            raise Error(f"model `{model}` not found; give MockHost a function in `embed`", "MODEL_UNKNOWN")
        return [self._embed(text) for text in texts]

    def log(self, level: Level, message: str, fields: dict[str, str]) -> None:
        self.log_lines.append((level, message, fields))

    def transfer(self, agent: str) -> None:
        self.transferred_to = agent

    def escalate(self) -> None:
        self.has_escalated = True

    def end_invocation(self) -> None:
        self.has_ended_invocation = True

    def skip_summarization(self) -> None:
        self.has_skipped_summarization = True

    async def save_artifact(self, name: str, part: Part, custom_metadata: dict[str, Json] | None = None) -> int:
        versions = self.artifacts.setdefault(name, [])
        versions.append(part)
        # A test may have set versions without metadata.
        metadata = self.artifact_metadata.setdefault(name, [])
        metadata += [{} for _ in range(len(versions) - 1 - len(metadata))]
        metadata.append(copy.deepcopy(custom_metadata or {}))
        return len(versions) - 1

    async def load_artifact(self, name: str, version: int | None) -> Part | None:
        versions = self.artifacts.get(name, [])
        index = len(versions) - 1 if version is None else version
        return versions[index] if 0 <= index < len(versions) else None

    async def list_artifacts(self) -> list[str]:
        return sorted(self.artifacts)

    async def artifact_versions(self, name: str) -> list[int]:
        return list(range(len(self.artifacts.get(name, []))))

    async def artifact_version(self, name: str, version: int | None) -> ArtifactVersion | None:
        part = await self.load_artifact(name, version)
        if part is None:
            return None
        number = len(self.artifacts[name]) - 1 if version is None else version
        data = part.data
        mime_type = data.mime_type if isinstance(data, (Blob, FileData)) else None
        size = len(data.data) if isinstance(data, Blob) else len(data.encode()) if isinstance(data, str) else 0
        metadata = dict(enumerate(self.artifact_metadata.get(name, []))).get(number, {})
        return ArtifactVersion(number, mime_type, size, number * 1_000_000, copy.deepcopy(metadata))

    async def delete_artifact(self, name: str) -> None:
        self.artifacts.pop(name, None)
        self.artifact_metadata.pop(name, None)

    async def search_memory(self, query: str) -> list[MemoryEntry]:
        words = _words(query)
        found = [(len(words & _words(entry.content.text)), entry) for entry in self.memory]
        return [entry for count, entry in sorted(found, key=lambda each: -each[0]) if count]

    async def add_session_to_memory(self, id: str | None) -> None:
        if id is None:
            self._remember([Event(self._user_message, author="user"), *self._events])
        else:
            self._remember(self._session(self._info.app, id))

    async def add_events_to_memory(self, events: list[Event]) -> None:
        self._remember(events)

    def _remember(self, events: Iterable[Event]) -> None:
        for event in events:
            if event.content and event.content.text:
                entry = MemoryEntry(event.content, event.author or None, event.timestamp_micros)
                if entry not in self.memory:
                    self.memory.append(entry)

    def list_apps(self) -> list[str]:
        return sorted(self._apps)

    async def run_app(self, request: RunRequest) -> Run:
        self.run_requests.append(request)
        if request.app not in self._apps:
            raise Error(f"app `{request.app}` not found; give it to MockHost in `apps`", "NOT_FOUND")
        number = len(self.run_requests)
        session = request.session or f"session-{number}"
        return Run(self, f"e-run-{number}", session, self._app_events(request))

    async def run_app_live(self, request: LiveRunRequest) -> LiveRun:
        if request.app not in self._apps:
            raise Error(f"app `{request.app}` not found; give it to MockHost in `apps`", "NOT_FOUND")
        session = request.session or "live-session"
        requests = _LiveRequests()
        return LiveRun(session, requests, self._live_events(request.app, session, requests))

    async def _live_events(self, app: str, session: str, requests: "_LiveRequests") -> AsyncIterator[Event]:
        """Answers each message as a run of the mock app, whose last event ends the turn."""
        while requests.waiting:
            request = requests.waiting.pop(0)
            if not isinstance(request, LiveMessage) or request.partial:
                yield Event(error_code="BAD_INPUT", error_message="MockHost answers complete messages only")
                return
            async for event in (await self.run_app(RunRequest(app, request.content, session=session, streaming=True)))._events:
                yield event
            yield Event(partial=True, turn_complete=True)

    async def _app_events(self, request: RunRequest) -> AsyncIterator[Event]:
        for event in self._apps[request.app](request):
            yield Event.of(event)

    def cancel_run(self, invocation_id: str) -> None:
        self.cancelled_runs.append(invocation_id)

    async def create_session(self, app: str, id: str | None, state: dict[str, Json]) -> SessionInfo:
        key = (app, id or f"session-{len(self.sessions) + 1}")
        if key in self.sessions:
            raise Error(f"session `{key[1]}` exists already", "SESSION_EXISTS")
        self.sessions[key], self._session_states[key] = [], dict(state)
        return self._session_info(key)

    async def get_session(self, app: str, id: str) -> SessionInfo | None:
        return self._session_info((app, id)) if (app, id) in self.sessions else None

    async def list_sessions(self, app: str, offset: int, limit: int) -> list[SessionInfo]:
        found = [self._session_info(key) for key in reversed(self.sessions) if key[0] == app]
        return found[offset : offset + limit]

    async def session_events(self, app: str, id: str, window: EventWindow, offset: int, limit: int) -> list[Event]:
        after = window.after_micros
        events = [event for event in self._session(app, id) if after is None or event.timestamp_micros >= after]
        if window.recent is not None:
            events = events[max(len(events) - window.recent, 0) :]
        return events[offset : offset + limit]

    async def append_event(self, app: str, id: str, event: Event) -> Event:
        self._check_not_running(app, id)
        events = self._session(app, id)
        number = sum(map(len, self.sessions.values())) + 1
        stored = replace(event, id=f"event-{number}", author=event.author or self._info.agent, timestamp_micros=number)
        state = self._session_states.setdefault((app, id), {})
        for key, value in event.actions.state_delta.items():
            if value is None:
                state.pop(key, None)
            else:
                state[key] = value
        events.append(stored)
        return stored

    async def delete_session(self, app: str, id: str) -> None:
        self._check_not_running(app, id)
        self.sessions.pop((app, id), None)

    def _session(self, app: str, id: str) -> list[Event]:
        if (app, id) not in self.sessions:
            raise Error(f"session `{id}` of app `{app}` not found; give it to MockHost in `sessions`", "SESSION_NOT_FOUND")
        return self.sessions[app, id]

    def _session_info(self, key: tuple[str, str]) -> SessionInfo:
        return SessionInfo(key[0], key[1], self._session_states.get(key, {}), len(self.sessions[key]))

    def _check_not_running(self, app: str, id: str) -> None:
        if (app, id) == (self._info.app, self._info.session):
            raise Error("this is the session of the current run: its agents emit events instead", "SESSION_IN_USE")

    async def call_tool(self, name: str, args: dict[str, Json]) -> Json:
        if name not in self._tools:
            raise ToolError(f"tool `{name}` not found; give it to MockHost in `tools`")
        try:
            return await self._result_of(name, self._tools[name], args)
        except FatalError:
            raise
        except Exception as error:
            raise ToolError(describe(error)) from error

    async def _result_of(self, name: str, tool: Tool | Callable[..., Any], args: dict[str, Json]) -> Json:
        if isinstance(tool, Tool):
            return await tool.call(args, self.tool_context())
        result = tool(**args)
        return to_result(name, await result if isinstance(result, Awaitable) else result)

    async def generate(self, request: LlmRequest, streaming: bool) -> AsyncIterator[LlmResponse]:
        self.requests.append(request)
        if not self._responses:
            raise Error("no response is left; give MockHost more `responses`", "MODEL_SCRIPT_ENDED")
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
            raise Error(f"agent `{name}` not found; give it to MockHost in `sub_agents`", "NOT_FOUND")
        for event in self._sub_agents[name]:
            yield event


class _LiveRequests:
    """The requests of a live run that were not answered yet."""

    def __init__(self) -> None:
        self.waiting: list[LiveRequest] = []
        self._is_closed = False

    async def send(self, request: LiveRequest) -> bool:
        if not self._is_closed:
            self.waiting.append(request)
        return not self._is_closed

    def close(self) -> None:
        self._is_closed = True


_CHANGES = {
    "set_state", "request_confirmation", "report_progress", "credential", "refuse_credential", "transfer", "escalate", "end_invocation",
    "skip_summarization", "save_artifact", "delete_artifact", "add_session_to_memory", "add_events_to_memory", "run_app",
    "run_app_live", "cancel_run", "create_session", "append_event", "delete_session",
}  # fmt: skip
"""The functions that change something."""


class _ReadOnlyHost:
    """A host that refuses changes."""

    def __init__(self, host: MockHost) -> None:
        self._host = host

    def __getattr__(self, name: str) -> Any:
        if name in _CHANGES:
            return self._refuse
        return getattr(self._host, name)

    def _refuse(self, *_: Any) -> Any:
        raise Error("the code of an instruction or a toolset only reads", "READ_ONLY")


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower()))
