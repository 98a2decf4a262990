"""Closing the events of an agent, or the responses of a model, closes the generator of its author."""

import asyncio
import unittest

from hatchery_guest import AgentContext, Context, LiveConnection, LlmRequest, agent, live_model, model
from hatchery_guest.testing import MockHost, run

CLOSED: list[str] = []


async def clean_up(name: str) -> None:
    await asyncio.sleep(0)
    CLOSED.append(name)


@agent
async def poet(cx: AgentContext):
    try:
        yield "one"
    finally:
        await clean_up("agent")


@model
async def parrot(request: LlmRequest, cx: Context):
    try:
        yield "one"
    finally:
        await clean_up("model")


@live_model
async def talker(request: LlmRequest, connection: LiveConnection):
    try:
        yield "one"
    finally:
        await clean_up("live model")


async def requests():
    return
    yield


class Closing(unittest.TestCase):
    def test_a_generator_has_ended_when_what_it_yields_is_closed(self) -> None:
        host, request = MockHost(), LlmRequest.from_prompt("go")

        async def stop_early() -> None:
            for name, output in [
                ("agent", poet.events(host.agent_context())),
                ("model", parrot.responses(request, host.context())),
                ("live model", talker.responses(request, LiveConnection(requests()), host.context())),
            ]:
                await anext(output)
                await output.aclose()
                self.assertEqual(CLOSED, [name])
                CLOSED.clear()

        run(stop_early())
