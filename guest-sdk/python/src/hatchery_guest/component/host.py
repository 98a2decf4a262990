"""The host's functions, called through the contract's imports."""

from __future__ import annotations

import functools
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, ParamSpec, TypeVar

import wit_world
from componentize_py_types import Err
from wit_world.imports import agents, artifacts, config, credentials, log, memory, models, plugins, runner, session, sessions, tools
from wit_world.imports import types as wit

from ..content import ArtifactVersion, Content, Event, Json, Level, LlmRequest, LlmResponse, MemoryEntry, Part, ToolConfirmation
from ..errors import Error, FatalError, ToolError
from ..live import LiveRequest, LiveRun, LiveRunRequest
from ..run_info import PluginInfo, RemainingLimits, RunInfo
from ..runner import Run, RunRequest
from ..sessions import EventWindow, SessionInfo
from . import convert, live

P = ParamSpec("P")
T = TypeVar("T")


def to_exception(failure: Any) -> Error:
    """Converts an error of the host."""
    match failure:
        case wit.ToolError_Recoverable(message):
            return ToolError(message)
        case wit.ToolError_Fatal(error):
            return FatalError(error.message, error.code)
    return Error(failure.message, failure.code)


def _raising(function: Callable[P, T]) -> Callable[P, T]:
    """Converts errors of the host to exceptions."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except Err as error:
            raise to_exception(error.value) from None

    return call


async def _wait(result: Awaitable[T]) -> T:
    """Awaits a result, and converts an error of the host to an exception."""
    try:
        return await result
    except Err as error:
        raise to_exception(error.value) from None


class ImportedHost:
    """Implements ``context.Host`` by the imports of the component."""

    @_raising
    def info(self) -> RunInfo:
        info = session.current()
        left = info.remaining
        return RunInfo(
            info.app,
            info.user,
            info.session,
            info.invocation_id,
            info.agent,
            info.branch,
            info.function_call_id,
            _STREAMING_MODES[info.streaming_mode],
            info.is_resumable,
            info.depth,
            RemainingLimits(left.model_calls, left.tokens, left.events, left.bytes),
        )

    @_raising
    def user_content(self) -> Content:
        return convert.content_from_wit(session.user_content())

    @_raising
    def run_metadata(self) -> dict[str, Json]:
        return convert.parse_object(session.run_metadata())

    @_raising
    def get_state(self, key: str) -> tuple[bool, Json]:
        return _parse_optional(session.get_state(key))

    @_raising
    def all_state(self) -> dict[str, Json]:
        return convert.state_from_wit(session.get_all_state())

    @_raising
    def set_state(self, key: str, value: Json) -> None:
        session.set_state(key, convert.to_json(value))

    @_raising
    def event_count(self) -> int:
        return session.event_count()

    @_raising
    def events(self, offset: int, limit: int) -> list[Event]:
        return [convert.event_from_wit(event) for event in session.events(offset, limit)]

    @_raising
    def idempotency_key(self) -> str | None:
        return session.idempotency_key()

    @_raising
    def confirmation(self) -> ToolConfirmation | None:
        confirmation = session.confirmation()
        return None if confirmation is None else convert.confirmation_from_wit(confirmation)

    @_raising
    def request_confirmation(self, hint: str, payload: Json) -> None:
        session.request_confirmation(hint, None if payload is None else convert.to_json(payload))

    @_raising
    def report_progress(self, progress: float, total: float | None, message: str | None) -> None:
        session.report_progress(float(progress), None if total is None else float(total), message)

    async def credential(self, config: dict[str, Json]) -> dict[str, Json] | None:
        return _parse_optional(await _wait(credentials.get(convert.to_json(config))))[1]

    async def refuse_credential(self, config: dict[str, Json], credential: dict[str, Json]) -> None:
        await _wait(credentials.refuse(convert.to_json(config), convert.to_json(credential)))

    @_raising
    def config(self, key: str) -> tuple[bool, Json]:
        return _parse_optional(config.get(key))

    @_raising
    def arguments(self) -> Json:
        return _parse_optional(config.arguments())[1]

    @_raising
    def plugins(self) -> list[PluginInfo]:
        return [convert.plugin_from_wit(plugin) for plugin in plugins.list()]

    @_raising
    def plugin(self, name: str) -> PluginInfo | None:
        plugin = plugins.get(name)
        return None if plugin is None else convert.plugin_from_wit(plugin)

    @_raising
    def models(self) -> list[str]:
        return models.list()

    @_raising
    def log(self, level: Level, message: str, fields: dict[str, str]) -> None:
        log.write(level, message, list(fields.items()))

    @_raising
    def transfer(self, agent: str) -> None:
        agents.transfer(agent)

    @_raising
    def escalate(self) -> None:
        agents.escalate()

    @_raising
    def end_invocation(self) -> None:
        agents.end_invocation()

    @_raising
    def skip_summarization(self) -> None:
        agents.skip_summarization()

    async def save_artifact(self, name: str, part: Part, custom_metadata: dict[str, Json] | None) -> int:
        if custom_metadata is None:
            return await _wait(artifacts.save(name, convert.part_to_wit(part)))
        return await _wait(artifacts.save_with(name, convert.part_to_wit(part), convert.to_json(custom_metadata)))

    async def load_artifact(self, name: str, version: int | None) -> Part | None:
        part = await _wait(artifacts.load(name, version))
        return None if part is None else convert.part_from_wit(part)

    async def list_artifacts(self) -> list[str]:
        return await _wait(artifacts.list())

    async def artifact_versions(self, name: str) -> list[int]:
        return await _wait(artifacts.versions(name))

    async def artifact_version(self, name: str, version: int | None) -> ArtifactVersion | None:
        found = await _wait(artifacts.get_version(name, version))
        if found is None:
            return None
        return ArtifactVersion(found.version, found.mime_type, found.size, found.created, convert.parse_object(found.custom_metadata))

    async def delete_artifact(self, name: str) -> None:
        await _wait(artifacts.delete(name))

    async def search_memory(self, query: str) -> list[MemoryEntry]:
        entries = await _wait(memory.search(query))
        return [MemoryEntry(convert.content_from_wit(entry.content), entry.author, entry.timestamp) for entry in entries]

    async def add_session_to_memory(self, id: str | None) -> None:
        await _wait(memory.add_session(id))

    async def add_events_to_memory(self, events: list[Event]) -> None:
        await _wait(memory.add_events([convert.event_to_wit(event) for event in events]))

    async def embed(self, model: str, texts: list[str]) -> list[list[float]]:
        return await _wait(models.embed(model, texts))

    @_raising
    def list_apps(self) -> list[str]:
        return runner.list_apps()

    async def run_app(self, request: RunRequest) -> Run:
        info, events = await _wait(runner.run(convert.run_request_to_wit(request)))
        return Run(self, info.invocation_id, info.session, _events(events))

    async def run_app_live(self, request: LiveRunRequest) -> LiveRun:
        writer, reader = wit_world.types_live_request_stream()
        session, events = await _wait(runner.run_live(live.run_request_to_wit(request), reader))
        return LiveRun(session, _Requests(writer), _events(events))

    @_raising
    def cancel_run(self, invocation_id: str) -> None:
        runner.cancel(invocation_id)

    async def create_session(self, app: str, id: str | None, state: dict[str, Json]) -> SessionInfo:
        return convert.session_from_wit(await _wait(sessions.create(app, id, convert.state_to_wit(state))))

    async def get_session(self, app: str, id: str) -> SessionInfo | None:
        info = await _wait(sessions.get(app, id))
        return None if info is None else convert.session_from_wit(info)

    async def list_sessions(self, app: str, offset: int, limit: int) -> list[SessionInfo]:
        return [convert.session_from_wit(info) for info in await _wait(sessions.list(app, offset, limit))]

    async def session_events(self, app: str, id: str, window: EventWindow, offset: int, limit: int) -> list[Event]:
        events = await _wait(sessions.events(app, id, convert.window_to_wit(window), offset, limit))
        return [convert.event_from_wit(event) for event in events]

    async def append_event(self, app: str, id: str, event: Event) -> Event:
        return convert.event_from_wit(await _wait(sessions.append(app, id, convert.event_to_wit(event))))

    async def delete_session(self, app: str, id: str) -> None:
        await _wait(sessions.delete(app, id))

    async def call_tool(self, name: str, args: dict[str, Json]) -> Json:
        return json.loads(await _wait(tools.call(name, convert.to_json(args))))

    async def generate(self, request: LlmRequest, streaming: bool) -> AsyncIterator[LlmResponse]:
        responses = await _wait(models.generate(convert.request_to_wit(request), streaming))
        async for response in _items(responses):
            yield convert.response_from_wit(response)

    async def run_sub_agent(self, name: str) -> AsyncIterator[Event]:
        async for event in _events(await _wait(agents.run(name))):
            yield event


class _Requests:
    """Implements ``live.LiveRequests`` by a stream."""

    def __init__(self, writer: Any) -> None:
        self._writer: Any = writer

    async def send(self, request: LiveRequest) -> bool:
        if self._writer is None or self._writer.reader_dropped:
            return False
        return await self._writer.write_all([live.request_to_wit(request)]) == 1

    def close(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.__exit__(None, None, None)


_STREAMING_MODES = {
    session.StreamingMode.NONE: "none", session.StreamingMode.SSE: "sse", session.StreamingMode.BIDI: "bidi",
}  # fmt: skip


def _parse_optional(text: str | None) -> tuple[bool, Json]:
    return (False, None) if text is None else (True, json.loads(text))


async def _items(stream: Any) -> AsyncIterator[Any]:
    """Reads a stream item by item: reading ahead would drop events of a sub-agent."""
    with stream:
        while not stream.writer_dropped:
            for item in await stream.read(1):
                yield item


async def _events(stream: Any) -> AsyncIterator[Event]:
    async for event in _items(stream):
        yield convert.event_from_wit(event)
