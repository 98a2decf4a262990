"""The host's functions, called through the contract's imports."""

from __future__ import annotations

import functools
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, ParamSpec, TypeVar

from componentize_py_types import Err
from wit_world.imports import agents, artifacts, config, log, memory, models, session, tools
from wit_world.imports import types as wit

from ..content import Content, Event, Json, Level, LlmRequest, LlmResponse, MemoryEntry, Part, RunInfo, ToolConfirmation
from ..errors import Error, FatalError, ToolError
from . import convert

P = ParamSpec("P")
T = TypeVar("T")


def to_exception(failure: Any) -> Error:
    """Converts an error of the host."""
    match failure:
        case wit.ToolError_Recoverable(message):
            return ToolError(message)
        case wit.ToolError_Fatal(error):
            return FatalError(error.code, error.message)
    return Error(failure.code, failure.message)


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
        return RunInfo(
            info.app, info.user, info.session, info.invocation_id, info.agent, info.branch, info.function_call_id
        )

    @_raising
    def user_content(self) -> Content:
        return convert.content_from_wit(session.user_content())

    @_raising
    def get_state(self, key: str) -> tuple[bool, Json]:
        return _parse_optional(session.get_state(key))

    @_raising
    def all_state(self) -> dict[str, Json]:
        return {key: json.loads(value) for key, value in session.get_all_state()}

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
    def confirmation(self) -> ToolConfirmation | None:
        confirmation = session.confirmation()
        return None if confirmation is None else convert.confirmation_from_wit(confirmation)

    @_raising
    def request_confirmation(self, hint: str, payload: Json) -> None:
        session.request_confirmation(hint, None if payload is None else convert.to_json(payload))

    @_raising
    def config(self, key: str) -> tuple[bool, Json]:
        return _parse_optional(config.get(key))

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
    def skip_summarization(self) -> None:
        agents.skip_summarization()

    async def save_artifact(self, name: str, part: Part) -> int:
        return await _wait(artifacts.save(name, convert.part_to_wit(part)))

    async def load_artifact(self, name: str, version: int | None) -> Part | None:
        part = await _wait(artifacts.load(name, version))
        return None if part is None else convert.part_from_wit(part)

    async def list_artifacts(self) -> list[str]:
        return await _wait(artifacts.list())

    async def artifact_versions(self, name: str) -> list[int]:
        return await _wait(artifacts.versions(name))

    async def delete_artifact(self, name: str) -> None:
        await _wait(artifacts.delete(name))

    async def search_memory(self, query: str) -> list[MemoryEntry]:
        entries = await _wait(memory.search(query))
        return [MemoryEntry(convert.content_from_wit(entry.content), entry.author, entry.timestamp) for entry in entries]

    async def call_tool(self, name: str, args: dict[str, Json]) -> Json:
        return json.loads(await _wait(tools.call(name, convert.to_json(args))))

    async def generate(self, request: LlmRequest, streaming: bool) -> AsyncIterator[LlmResponse]:
        responses = await _wait(models.generate(convert.request_to_wit(request), streaming))
        async for response in _items(responses):
            yield convert.response_from_wit(response)

    async def run_sub_agent(self, name: str) -> AsyncIterator[Event]:
        async for event in _items(await _wait(agents.run(name))):
            yield convert.event_from_wit(event)


def _parse_optional(text: str | None) -> tuple[bool, Json]:
    return (False, None) if text is None else (True, json.loads(text))


async def _items(stream: Any) -> AsyncIterator[Any]:
    """Reads a stream item by item: reading ahead would drop events of a sub-agent."""
    with stream:
        while not stream.writer_dropped:
            for item in await stream.read(1):
                yield item
