"""Contexts: access to the session and the services of the host.

A context has no data of its own: every method calls the host. A parameter that is annotated with ``Context`` or one of its subclasses
gets it; it can be left out.
"""

from __future__ import annotations

import builtins
from collections.abc import AsyncIterator, ItemsView, Iterable, Iterator, MutableMapping, ValuesView
from typing import TYPE_CHECKING, Any, Protocol

from . import schema
from .content import ArtifactVersion, Blob, Content, Event, Json, Level, LlmRequest, LlmResponse, MemoryEntry, Part, ToolConfirmation
from .errors import Error
from .run_info import PluginInfo, RunInfo
from .runner import Run, Runner, RunRequest
from .sessions import EventWindow, SessionInfo, Sessions, check_range

if TYPE_CHECKING:
    from .live import LiveRun, LiveRunRequest


class Host(Protocol):
    """The host's functions: the real host's in a component, a mock host's (``hatchery_guest.testing``) in unit tests."""

    def info(self) -> RunInfo: ...
    def user_content(self) -> Content: ...
    def run_metadata(self) -> dict[str, Json]: ...
    def get_state(self, key: str) -> tuple[bool, Json]: ...
    def all_state(self) -> dict[str, Json]: ...
    def set_state(self, key: str, value: Json) -> None: ...
    def event_count(self) -> int: ...
    def events(self, offset: int, limit: int) -> list[Event]: ...
    def idempotency_key(self) -> str | None: ...
    def confirmation(self) -> ToolConfirmation | None: ...
    def request_confirmation(self, hint: str, payload: Json) -> None: ...
    def report_progress(self, progress: float, total: float | None, message: str | None) -> None: ...
    async def credential(self, config: dict[str, Json]) -> dict[str, Json] | None: ...
    async def refuse_credential(self, config: dict[str, Json], credential: dict[str, Json]) -> None: ...
    def config(self, key: str) -> tuple[bool, Json]: ...
    def arguments(self) -> Json: ...
    def plugins(self) -> list[PluginInfo]: ...
    def plugin(self, name: str) -> PluginInfo | None: ...
    def models(self) -> list[str]: ...
    def log(self, level: Level, message: str, fields: dict[str, str]) -> None: ...
    def transfer(self, agent: str) -> None: ...
    def escalate(self) -> None: ...
    def end_invocation(self) -> None: ...
    def skip_summarization(self) -> None: ...
    async def save_artifact(self, name: str, part: Part, custom_metadata: dict[str, Json] | None) -> int: ...
    async def load_artifact(self, name: str, version: int | None) -> Part | None: ...
    async def list_artifacts(self) -> list[str]: ...
    async def artifact_versions(self, name: str) -> list[int]: ...
    async def artifact_version(self, name: str, version: int | None) -> ArtifactVersion | None: ...
    async def delete_artifact(self, name: str) -> None: ...
    async def search_memory(self, query: str) -> list[MemoryEntry]: ...
    async def add_session_to_memory(self, id: str | None) -> None: ...
    async def add_events_to_memory(self, events: list[Event]) -> None: ...
    async def embed(self, model: str, texts: list[str]) -> list[list[float]]: ...
    def list_apps(self) -> list[str]: ...
    async def run_app(self, request: RunRequest) -> Run: ...
    async def run_app_live(self, request: LiveRunRequest) -> LiveRun: ...
    def cancel_run(self, invocation_id: str) -> None: ...
    async def create_session(self, app: str, id: str | None, state: dict[str, Json]) -> SessionInfo: ...
    async def get_session(self, app: str, id: str) -> SessionInfo | None: ...
    async def list_sessions(self, app: str, offset: int, limit: int) -> list[SessionInfo]: ...
    async def session_events(self, app: str, id: str, window: EventWindow, offset: int, limit: int) -> list[Event]: ...
    async def append_event(self, app: str, id: str, event: Event) -> Event: ...
    async def delete_session(self, app: str, id: str) -> None: ...
    async def call_tool(self, name: str, args: dict[str, Json]) -> Json: ...
    def generate(self, request: LlmRequest, streaming: bool) -> AsyncIterator[LlmResponse]: ...
    def run_sub_agent(self, name: str) -> AsyncIterator[Event]: ...


class State(MutableMapping[str, Json]):
    """The session's state as a dict, including the code's own changes.

    Keys ``app:…`` are shared by all users of the app, ``user:…`` by the user's sessions. ``temp:…`` keys only exist during this run.
    A value that is changed in place must be assigned again.
    """

    def __init__(self, host: Host) -> None:
        self._host = host

    def __getitem__(self, key: str) -> Json:
        is_set, value = self._host.get_state(key)
        if not is_set:
            raise KeyError(key)
        return value

    def __setitem__(self, key: str, value: Any) -> None:
        self._host.set_state(key, schema.dump(value))

    def __delitem__(self, key: str) -> None:
        self[key]
        self._host.set_state(key, None)

    def clear(self) -> None:
        """Deletes all keys, in one pass instead of one for each key."""
        for key in self._host.all_state():
            self._host.set_state(key, None)

    def __iter__(self) -> Iterator[str]:
        return iter(self._host.all_state())

    def __len__(self) -> int:
        return len(self._host.all_state())

    def items(self) -> ItemsView[str, Json]:
        """Returns all keys with their values, in one pass instead of one for each key."""
        return self._host.all_state().items()

    def values(self) -> ValuesView[Json]:
        """Returns all values, in one pass instead of one for each key."""
        return self._host.all_state().values()

    def __repr__(self) -> str:
        return f"State({self._host.all_state()!r})"


class Artifacts:
    """Named, versioned files of the session, or of the user if the name starts with ``user:``."""

    def __init__(self, host: Host) -> None:
        self._host = host

    async def save(
        self,
        name: str,
        content: str | bytes | bytearray | memoryview | Blob | Part,
        mime_type: str | None = None,
        custom_metadata: dict[str, Json] | None = None,
    ) -> int:
        """Saves a new version and returns its number, starting at 0. ``mime_type`` is the type of bytes, ``custom_metadata`` is for other
        programs, up to 64 KiB of JSON."""
        if isinstance(content, (bytes, bytearray, memoryview)):
            content = Blob(mime_type or "application/octet-stream", bytes(content))
        if not isinstance(content, (str, Blob, Part)):
            kind = type(content).__name__
            raise TypeError(f"an artifact is a str, bytes, a Blob or a Part, not a {kind}; write other values as text, as with json.dumps")
        part = content if isinstance(content, Part) else Part(content)
        return await self._host.save_artifact(name, part, custom_metadata)

    async def load(self, name: str, version: int | None = None) -> Part | None:
        """Returns a version, by default the newest, or ``None`` if there is none."""
        return await self._host.load_artifact(name, version)

    async def list(self) -> builtins.list[str]:
        """Returns the names, sorted."""
        return await self._host.list_artifacts()

    async def versions(self, name: str) -> builtins.list[int]:
        """Returns the version numbers of an artifact, ascending."""
        return await self._host.artifact_versions(name)

    async def version(self, name: str, version: int | None = None) -> ArtifactVersion | None:
        """Returns what is known about a version, by default the newest, without its content; ``None`` if there is none."""
        return await self._host.artifact_version(name, version)

    async def delete(self, name: str) -> None:
        """Deletes all versions of an artifact."""
        await self._host.delete_artifact(name)


class Memory:
    """The user's memory of earlier sessions."""

    def __init__(self, host: Host) -> None:
        self._host = host

    async def search(self, query: str) -> list[MemoryEntry]:
        """Returns the entries that match the query, best first."""
        return await self._host.search_memory(query)

    async def add_session(self, id: str | None = None) -> None:
        """Adds a session of the user in the current app, by default the current one. Replaces its earlier entries."""
        await self._host.add_session_to_memory(id)

    async def add_events(self, events: Iterable[Event | Content | str]) -> None:
        """Adds events to the current session's events that were added before. Events with the id of one of them are skipped."""
        await self._host.add_events_to_memory([Event.of(event) for event in events])


class Log:
    """The host's log, which adds the component, the session and the run to each line."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def error(self, message: str, /, **fields: Any) -> None:
        """Logs an error."""
        self._write("error", message, fields)

    def warn(self, message: str, /, **fields: Any) -> None:
        """Logs a warning."""
        self._write("warn", message, fields)

    def info(self, message: str, /, **fields: Any) -> None:
        """Logs a message."""
        self._write("info", message, fields)

    def debug(self, message: str, /, **fields: Any) -> None:
        """Logs a detail for debugging."""
        self._write("debug", message, fields)

    def _write(self, level: Level, message: str, fields: dict[str, Any]) -> None:
        self._host.log(level, message, {name: str(value) for name, value in fields.items()})


class Context:
    """Access to the session and the services. Methods raise ``Error`` if the host refuses an operation."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.state = State(host)
        self.artifacts = Artifacts(host)
        self.memory = Memory(host)
        self.runner = Runner(host)
        self.log = Log(host)

    @property
    def info(self) -> RunInfo:
        """The call in which the code runs."""
        return self._host.info()

    @property
    def user_content(self) -> Content:
        """The user message that started this run."""
        return self._host.user_content()

    @property
    def run_metadata(self) -> dict[str, Json]:
        """The custom metadata that the request for the run has, such as ids of traces or of tenants; empty if it has none."""
        return self._host.run_metadata()

    @property
    def event_count(self) -> int:
        """The number of events in the session."""
        return self._host.event_count()

    def events(self, offset: int = 0, limit: int = 100) -> list[Event]:
        """Returns up to ``limit`` events starting at index ``offset``, oldest first; fewer if they are large."""
        check_range(offset, limit)
        return self._host.events(offset, limit)

    def config(self, key: str, default: Json = None) -> Json:
        """Returns a setting of the component from ``hatchery.yaml``."""
        is_set, value = self._host.config(key)
        return value if is_set else default

    @property
    def arguments(self) -> Json:
        """The arguments with which the configuration uses the tool or plugin that is called: ``args`` of a tool in an agent definition,
        or of a plugin in ``hatchery.yaml``. ``None`` if there are none."""
        return self._host.arguments()

    def sessions(self, app: str) -> Sessions:
        """Returns access to the sessions of the user in an app."""
        return Sessions(self._host, app)

    def plugins(self) -> list[PluginInfo]:
        """Returns the plugins of the run, in the order in which they run."""
        return self._host.plugins()

    def plugin(self, name: str) -> PluginInfo | None:
        """Returns a plugin of the run, or ``None`` if no plugin has this name."""
        return self._host.plugin(name)

    def models(self) -> list[str]:
        """Returns the names and patterns of the models that the component is granted. Its own models need no grant."""
        return self._host.models()

    async def embed(self, model: str, texts: Iterable[str]) -> list[list[float]]:
        """Returns one vector per text, all of the same length. ``local:hashed-ngrams`` compares texts by their spelling, without a
        model."""
        return await self._host.embed(model, list(texts))

    async def call_tool(self, name: str, /, **args: Any) -> Json:
        """Calls a tool of the agent. Raises ``ToolError`` or ``FatalError`` if it fails."""
        return await self._host.call_tool(name, {key: schema.dump(value) for key, value in args.items()})

    async def generate(
        self, prompt: str | Content | LlmRequest, *, instruction: str | None = None, model: str = ""
    ) -> LlmResponse:
        """Calls a model, by default the agent's own, and waits for the complete response."""
        last = None
        async for last in self._responses(LlmRequest.from_prompt(prompt, instruction=instruction, model=model), False):
            pass
        if last is None:
            raise Error("the model gave no answer", "MODEL_BAD_RESPONSE")
        return last

    def stream(
        self, prompt: str | Content | LlmRequest, *, instruction: str | None = None, model: str = ""
    ) -> AsyncIterator[LlmResponse]:
        """Calls a model and streams its response: partial responses with new text, then the complete one."""
        return self._responses(LlmRequest.from_prompt(prompt, instruction=instruction, model=model), True)

    async def _responses(self, request: LlmRequest, streaming: bool) -> AsyncIterator[LlmResponse]:
        async for response in self._host.generate(request, streaming):
            if response.error_code:
                raise Error(response.error_message or "", response.error_code)
            yield response


class _ControlContext(Context):
    """A context that can control the run."""

    def transfer_to(self, agent: str) -> None:
        """Transfers the conversation to another agent after this call."""
        self._host.transfer(agent)

    def escalate(self) -> None:
        """Ends the nearest loop around the agent, and the parallel agents in between, after this call."""
        self._host.escalate()

    def end_invocation(self) -> None:
        """Ends the run after this call: the event that reports the call is its last one, and no further agent runs. In an agent that is
        called as a tool, ends the run of that agent."""
        self._host.end_invocation()

    def skip_summarization(self) -> None:
        """Makes the tool's result the final answer, without a summary by the model."""
        self._host.skip_summarization()


class CallbackContext(_ControlContext):
    """The context of a callback."""


class ToolContext(_ControlContext):
    """The context of a tool call."""

    @property
    def idempotency_key(self) -> str | None:
        """The idempotency key of this call: the same when the call is made again because its host died, and different for any other call.
        For services that ignore repeated requests."""
        return self._host.idempotency_key()

    @property
    def confirmation(self) -> ToolConfirmation | None:
        """A person's decision about this call, or ``None`` if no one was asked."""
        return self._host.confirmation()

    def request_confirmation(self, hint: str, payload: Any = None) -> None:
        """Requests confirmation of this call by a person. The tool's result should say that it is waiting. Once the person has decided,
        the tool is called again with the same arguments, and ``confirmation`` returns the decision."""
        self._host.request_confirmation(hint, schema.dump(payload))

    async def report_progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Reports the progress of this call to the clients of a run with streaming, in a unit of the tool's choice; ``total`` is ``None`` if
        it is not known. Reports that follow each other quickly replace each other, and the last one always arrives."""
        self._host.report_progress(progress, total, message)

    async def credential(self, config: dict[str, Json]) -> dict[str, Json] | None:
        """Returns the user's credential for a service, an ``AuthCredential`` of ADK in JSON. ``None`` if the user has been asked for it: the
        tool's result should say that it is waiting, and the tool is called again with the same arguments after the answer.

        ``config`` is an ``AuthConfig`` of ADK: ``authScheme``, the client of an OAuth server in ``rawAuthCredential``, and a ``credentialKey``
        if the component asks for several. The host keeps the credential encrypted for this component, and refreshes tokens. Needs the grant
        ``network``.
        """
        return await self._host.credential(config)

    async def refuse_credential(self, config: dict[str, Json], credential: dict[str, Json]) -> None:
        """Reports that the service has refused a credential. The next ``credential`` refreshes a token, and asks the user again for anything
        else."""
        await self._host.refuse_credential(config, credential)


class AgentContext(Context):
    """The context of a custom agent's run."""

    def escalate(self) -> None:
        """Ends the nearest loop around this agent, and the parallel agents in between, with the next event that it yields, or at its
        end."""
        self._host.escalate()

    def end_invocation(self) -> None:
        """Ends the run with the next event that this agent yields, or at its end: no further agent runs. In an agent that is called as a
        tool, ends the run of that agent."""
        self._host.end_invocation()

    def sub_agent(self, name: str) -> AsyncIterator[Event]:
        """Starts a sub-agent and returns its events. It advances as its events are read. An event becomes part of the session when the
        agent yields it, and is dropped if the next one is read first. A failure is an event with an ``error_code``: yield it to fail,
        too."""
        return self._host.run_sub_agent(name)
