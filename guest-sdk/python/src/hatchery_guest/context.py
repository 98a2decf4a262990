"""What code is given: the session and the services of the host.

A context holds nothing of a session: every method asks the host. A parameter annotated with ``Context`` (or with a class below it) gets
it; code that needs none takes none.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, MutableMapping
from typing import Any, Protocol

from . import schema
from .content import Blob, Content, Event, Json, Level, LlmRequest, LlmResponse, MemoryEntry, Part, RunInfo, ToolConfirmation
from .errors import Error


class Host(Protocol):
    """What a context asks: the real host in a component, a stand-in (``hatchery_guest.testing``) in unit tests."""

    def info(self) -> RunInfo: ...
    def user_content(self) -> Content: ...
    def get_state(self, key: str) -> tuple[bool, Json]: ...
    def all_state(self) -> dict[str, Json]: ...
    def set_state(self, key: str, value: Json) -> None: ...
    def event_count(self) -> int: ...
    def events(self, offset: int, limit: int) -> list[Event]: ...
    def confirmation(self) -> ToolConfirmation | None: ...
    def request_confirmation(self, hint: str, payload: Json) -> None: ...
    def config(self, key: str) -> tuple[bool, Json]: ...
    def log(self, level: Level, message: str, fields: dict[str, str]) -> None: ...
    def transfer(self, agent: str) -> None: ...
    def escalate(self) -> None: ...
    def skip_summarization(self) -> None: ...
    async def save_artifact(self, name: str, part: Part) -> int: ...
    async def load_artifact(self, name: str, version: int | None) -> Part | None: ...
    async def list_artifacts(self) -> list[str]: ...
    async def artifact_versions(self, name: str) -> list[int]: ...
    async def delete_artifact(self, name: str) -> None: ...
    async def search_memory(self, query: str) -> list[MemoryEntry]: ...
    async def call_tool(self, name: str, args: dict[str, Json]) -> Json: ...
    def generate(self, request: LlmRequest, streamed: bool) -> AsyncIterator[LlmResponse]: ...
    def run_agent(self, name: str) -> AsyncIterator[Event]: ...


class State(MutableMapping[str, Json]):
    """The session's state, as a dict; what this code has set is in it already.

    Keys ``app:…`` are shared by all users of the app, ``user:…`` by the user's sessions, ``temp:…`` last only for this run. A value that
    is changed in place is not noticed: set its key again.
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

    def __iter__(self) -> Iterator[str]:
        return iter(self._host.all_state())

    def __len__(self) -> int:
        return len(self._host.all_state())

    def __repr__(self) -> str:
        return f"State({self._host.all_state()!r})"


class Artifacts:
    """Named, versioned files of the session; of the user, when the name starts with ``user:``."""

    def __init__(self, host: Host) -> None:
        self._host = host

    async def save(self, name: str, content: str | bytes | Blob | Part, mime_type: str | None = None) -> int:
        """Saves a new version and gives its number, from 0. Bytes need a media type."""
        if isinstance(content, bytes):
            content = Blob(mime_type or "application/octet-stream", content)
        part = content if isinstance(content, Part) else Part(content)
        return await self._host.save_artifact(name, part)

    async def load(self, name: str, version: int | None = None) -> Part | None:
        """A version, or the newest; ``None`` when there is none."""
        return await self._host.load_artifact(name, version)

    async def list(self) -> list[str]:
        """The names, sorted."""
        return await self._host.list_artifacts()

    async def versions(self, name: str) -> list[int]:
        """The versions of one, ascending."""
        return await self._host.artifact_versions(name)

    async def delete(self, name: str) -> None:
        """Deletes all versions of one."""
        await self._host.delete_artifact(name)


class Memory:
    """What was said in the user's earlier sessions."""

    def __init__(self, host: Host) -> None:
        self._host = host

    async def search(self, query: str) -> list[MemoryEntry]:
        """What fits the query best, best first."""
        return await self._host.search_memory(query)


class Log:
    """The host's log; it adds the component, the session and the run to each line."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def error(self, message: str, **fields: Any) -> None:
        """Something went wrong."""
        self._write("error", message, fields)

    def warn(self, message: str, **fields: Any) -> None:
        """Something may go wrong."""
        self._write("warn", message, fields)

    def info(self, message: str, **fields: Any) -> None:
        """Something happened."""
        self._write("info", message, fields)

    def debug(self, message: str, **fields: Any) -> None:
        """A detail."""
        self._write("debug", message, fields)

    def _write(self, level: Level, message: str, fields: dict[str, Any]) -> None:
        self._host.log(level, message, {name: str(value) for name, value in fields.items()})


class Context:
    """The session and the services, as all code of a component sees them. Whatever the host refuses raises ``Error``."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.state = State(host)
        self.artifacts = Artifacts(host)
        self.memory = Memory(host)
        self.log = Log(host)

    @property
    def info(self) -> RunInfo:
        """Where the code runs."""
        return self._host.info()

    @property
    def user_content(self) -> Content:
        """What the user said to start this run."""
        return self._host.user_content()

    @property
    def event_count(self) -> int:
        """How many events the session has."""
        return self._host.event_count()

    def events(self, offset: int = 0, limit: int = 100) -> list[Event]:
        """Up to ``limit`` events from number ``offset`` on, oldest first. Fewer come when they are long."""
        return self._host.events(offset, limit)

    def config(self, key: str, default: Json = None) -> Json:
        """The component's own setting, from the operator's ``hatchery.yaml``."""
        is_set, value = self._host.config(key)
        return value if is_set else default

    async def call_tool(self, name: str, **args: Any) -> Json:
        """Calls a tool that the agent was given. Raises ``ToolFailed`` with what the tool says, or ``FatalError``."""
        return await self._host.call_tool(name, {key: schema.dump(value) for key, value in args.items()})

    async def generate(
        self, prompt: str | Content | LlmRequest, *, instruction: str | None = None, model: str = ""
    ) -> LlmResponse:
        """Asks a model, by default the agent's own, and waits for the whole answer."""
        last = None
        async for last in self._responses(LlmRequest.of(prompt, instruction=instruction, model=model), False):
            pass
        if last is None:
            raise Error("MODEL_BAD_RESPONSE", "the model gave no answer")
        return last

    def stream(
        self, prompt: str | Content | LlmRequest, *, instruction: str | None = None, model: str = ""
    ) -> AsyncIterator[LlmResponse]:
        """Asks a model for its answer as it comes: pieces, each with what is new, and at last the whole."""
        return self._responses(LlmRequest.of(prompt, instruction=instruction, model=model), True)

    async def _responses(self, request: LlmRequest, streamed: bool) -> AsyncIterator[LlmResponse]:
        async for response in self._host.generate(request, streamed):
            if response.error_code:
                raise Error(response.error_code, response.error_message or "")
            yield response


class SteeringContext(Context):
    """What a callback is given: it can also say how the run goes on."""

    def transfer_to(self, agent: str) -> None:
        """Hands the conversation over to another agent after this call."""
        self._host.transfer(agent)

    def escalate(self) -> None:
        """Ends the nearest loop around the agent, and the parallel agents in between, after this call."""
        self._host.escalate()

    def skip_summarization(self) -> None:
        """Makes the tool's result the answer, without a summary by the model."""
        self._host.skip_summarization()


class CallbackContext(SteeringContext):
    """What a callback is given."""


class ToolContext(SteeringContext):
    """What a tool is given."""

    @property
    def confirmation(self) -> ToolConfirmation | None:
        """What a person has decided about this call; ``None`` when they have not been asked."""
        return self._host.confirmation()

    def request_confirmation(self, hint: str, payload: Any = None) -> None:
        """Asks a person about this call. Its result should say that it waits: it is called again once they have decided."""
        self._host.request_confirmation(hint, schema.dump(payload))


class AgentContext(Context):
    """What a custom agent is given."""

    def run(self, agent: str) -> AsyncIterator[Event]:
        """Runs an agent below this one, step by step as its events are read. Yield an event to make it part of the session; read on to
        drop it. A failure comes as an event with an ``error_code``: yield it to fail too."""
        return self._host.run_agent(agent)
