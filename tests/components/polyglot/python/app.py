"""The same items in each guest language: Python. See `../rust`, `../js` and `../plain`."""

import asyncio
import random
import re
from typing import Literal

from hatchery_guest import (
    AgentContext, Blob, CallbackContext, CodeInput, CodeOutput, CodeRunner, Context, DynamicTool, Error, Event, EventWindow, Example,
    FatalError, LiveConnection, LiveMessage, LiveRunRequest, LiveSignal, LlmAgent, LlmRequest, RunRequest, ToolCall, ToolContext, ToolUse,
    Transcription, agent, callback, code_executor, examples, export, live_model, model, plugin, summarizer, tool, toolset,
)  # fmt: skip

from web import give_up, open_page, visit, visit_all, wait_in_turn


@tool
async def scale(number: float, by: int = 2, style: Literal["plain", "text"] = "plain") -> dict:
    """Multiplies a number.

    Args:
        number: The number.
        by: How often it is taken.
    """
    result = number * by
    return {"result": f"{result:g}" if style == "text" else result}


@tool
async def refuse(reason: str) -> None:
    """Fails with an error for the model."""
    raise ValueError(reason)


@tool
async def break_off(reason: str) -> None:
    """Fails with an error that ends the run."""
    raise FatalError(reason, "BROKEN")


@tool
async def remember(key: str, value: dict, cx: ToolContext) -> dict:
    """Sets a state key and returns the old and the new value."""
    before = cx.state.get(key)
    cx.state[key] = value
    return {"before": before, "now": cx.state[key]}


@tool
async def setting(key: str, cx: ToolContext) -> object:
    """Returns one of the component's own settings."""
    return cx.config(key)


@tool
async def note(text: str, cx: ToolContext) -> bool:
    """Writes a line to the log."""
    cx.log.info(text, language="python")
    return True


@tool
async def keep(name: str, text: str, cx: ToolContext) -> dict:
    """Saves an artifact and loads it again."""
    version = await cx.artifacts.save(name, text, custom_metadata={"letters": len(text)})
    part, known = await cx.artifacts.load(name), await cx.artifacts.version(name)
    assert known is not None
    about = {"version": known.version, "size": known.size, "hasTime": known.created_micros is not None, "custom": known.custom_metadata}
    photo = await cx.artifacts.save("photo", b"png", "image/png")
    about["photo"] = getattr(await cx.artifacts.version("photo", photo), "mime_type")
    missing = await cx.artifacts.version("missing")
    names = await cx.artifacts.list()
    return {"version": version, "text": part and part.text, "about": about, "missing": missing, "names": names}


@tool
async def both(cx: ToolContext) -> list:
    """Calls another tool twice at the same time."""
    scaled = await asyncio.gather(cx.call_tool("scale", number=1), cx.call_tool("scale", number=2))
    return [each["result"] for each in scaled]


@tool
async def chance() -> int:
    """Returns a random number."""
    return random.getrandbits(48)


@agent(model="any")
async def storyteller(cx: AgentContext):
    """Emits two lines and the response of a model; fails if the message asks for it."""
    yield "one"
    cx.state["told"] = 2
    yield "two"
    if cx.user_content.text == "fail":
        raise Error("the story is lost", "STORY_LOST")
    answer = await cx.generate(LlmRequest.from_prompt("Go on.", instruction="Be brief."))
    yield answer.text


@agent
def echo(cx: AgentContext):
    """Emits the events of the session once more."""
    yield from cx.events()


@callback("before_tool")
async def veto(call: ToolCall, cx: CallbackContext):
    """Answers for calls with the number 13, and takes 99 for 1."""
    if call.args.get("number") == 13:
        cx.state["vetoed"] = call.tool
        return {"vetoed": True}
    if call.args.get("number") == 99:
        call.args["number"] = 1
    return None


@callback("after_tool")
async def stamp(call: ToolCall, response: dict):
    """Marks the answers of a tool."""
    if call.tool == "note":
        response["stamped"] = True


async def manner(cx: ToolContext) -> str:
    return f"Speak to {cx.info.user}."


clerk = LlmAgent(
    name="clerk", description="Calculates.", model="any", instruction=manner, tools=[scale, note], before_tool=[veto], after_tool=[stamp]
)


@tool
async def delegate(app: str, text: str, cx: ToolContext) -> dict:
    """Runs an app in a session `errand`, and returns its last words; after `live: ` in a live run, in a session `talk`."""
    apps = cx.runner.list_apps()
    if text.startswith("live: "):
        live = await cx.runner.run_live(LiveRunRequest(app, session="talk"))
        await live.send(text.removeprefix("live: "))
        texts = [event.text for event in await live.turn() if not event.partial and event.content]
        live.close()
        return {"apps": apps, "session": live.session, "text": texts[-1], "rest": len([event async for event in live])}
    run = await cx.runner.run(RunRequest(app, text, session="errand", state_delta={"lamp": 1}))
    return {"apps": apps, "session": run.session, "text": await run.text()}


@tool
async def keep_diary(cx: ToolContext) -> dict:
    """Creates, extends, reads and deletes a session."""
    diary = cx.sessions("storyteller")
    created = await diary.create("today", {"mood": "good"})
    events = [await diary.append("today", text) for text in ("Dear diary.", "Goodbye.")]
    newest = await diary.events("today", EventWindow(recent=1))
    ids = [session.id for session in await diary.list()]
    session = await diary.get("today")
    await diary.delete("today")
    return {
        "state": created.state,
        "author": events[-1].author,
        "newest": [event.text for event in newest],
        "ids": ids,
        "count": session and session.event_count,
        "is_gone": await diary.get("today") is None,
    }


@tool
async def learn(text: str, cx: ToolContext) -> list:
    """Adds a text and the session to the memory, and returns what is found there."""
    note = Event.from_text(text)
    note.id, note.author = "note-1", "clerk"
    await cx.memory.add_session()
    await cx.memory.add_events([note, note])
    return [entry.content.text for entry in await cx.memory.search(text)]


@tool
async def compare(one: str, other: str, cx: ToolContext) -> dict:
    """Compares two texts by their embeddings: 1 for the same spelling."""
    first, second = await cx.embed("local:hashed-ngrams", [one, other])
    return {"models": cx.models(), "same": sum(x * y for x, y in zip(first, second)) > 0.99}


@tool
async def look(cx: ToolContext) -> dict:
    """Describes the run."""
    info, found = cx.info, cx.plugin("answerer")
    return {
        "streams": info.streaming_mode == "sse",
        "resumable": info.is_resumable,
        "depth": info.depth,
        "calls": info.remaining.model_calls,
        "bytes": info.remaining.bytes,
        "plugins": [plugin.name for plugin in cx.plugins()],
        "component": found and found.component,
        "nobody": cx.plugin("nobody") is None,
        "arguments": cx.arguments,
        "key": len(cx.idempotency_key or ""),
    }


@tool
async def bake(loaves: int, cx: ToolContext) -> dict:
    """Reports progress for each loaf, and returns the metadata of the run."""
    for loaf in range(1, loaves + 1):
        await cx.report_progress(loaf, total=loaves, message=f"loaf {loaf}")
    return cx.run_metadata


@tool
async def stop(cx: ToolContext) -> str:
    """Ends the run."""
    cx.end_invocation()
    return "stopped"


@agent
def helper():
    """Says one line."""
    return "I help"


@agent(sub_agents=[helper])
async def foreman(cx: AgentContext):
    """Relays the events of its sub-agent, and has the last word."""
    async for event in cx.sub_agent("helper"):
        yield event
    yield "that was all"


@toolset
async def keys(cx: Context) -> list:
    """One tool, which is named after the user."""
    user = cx.info.user

    def greet(args: dict, cx: ToolContext) -> dict:
        cx.state["greeted"] = user
        return {"greeted": user, "args": args}

    return [DynamicTool(f"greet_{user}", "Greets the user.", greet)]


@plugin
class Answerer:
    """Changes messages, requests and events, and writes what happens to the log."""

    async def on_user_message(self, message):
        return message.text.upper()

    def before_model(self, request: LlmRequest, cx: CallbackContext):
        request.system_instructions.append((cx.arguments or {}).get("text", "no advice"))

    def on_event(self, event: Event):
        event.extra["customMetadata"] = {"seen": True}

    def after_run(self, cx: CallbackContext):
        cx.log.info("a run has ended")

    def on_run_error(self, error: Error, cx: CallbackContext):
        cx.log.info(f"a run has failed: {error.code}")

    async def close(self, cx: CallbackContext):
        cx.log.info("the plugin is closed")


@code_executor
async def reverse(input: CodeInput) -> CodeOutput:
    """Writes the code backwards."""
    if not input.code:
        raise ValueError("there is no code")
    return CodeOutput(input.code[::-1], output_files=input.input_files)


@summarizer
def count(events: list):
    """Counts the events."""
    return f"{len(events)} events" if events else None


@examples(name="echo")
def echo_examples(query: str) -> list:
    """Says yes to the user's message."""
    return [Example(query, "Yes.")]


@live_model
async def starling(request: LlmRequest, connection: LiveConnection):
    async for heard in connection:
        match heard:
            case LiveMessage(message) if message.text == "stop":
                raise Error("it stopped", "MODEL_RATE_LIMITED")
            case LiveMessage(message):
                yield message.text
            case Blob():
                yield Transcription(f"{len(heard.data)} bytes", True)
        yield LiveSignal.TURN_COMPLETE


@model
async def parrot(request: LlmRequest):
    """Repeats the last message."""
    message = request.contents[-1].text
    if message == "nothing":
        raise Error("there is nothing to say", "MODEL_BAD_REQUEST")
    for word in re.findall(r"\S+ ?", message):
        if word == "stop":
            raise Error("it stopped", "MODEL_UNAVAILABLE")
        yield word


def meddle(cx: Context) -> str:
    """Tries to change the session, and returns the code of the error."""
    try:
        cx.state["meddled"] = True
    except Error as error:
        return error.code
    return "changed"


chief = LlmAgent(
    name="chief",
    description="Has every kind of tool.",
    model="any",
    instruction=meddle,
    tools=[
        ToolUse("scale", confirm=True), ToolUse("look", {"limit": 3}), ToolUse.agent(clerk), delegate, keep_diary, learn, compare, bake,
        stop,
    ],
    toolsets=[keys],
    examples_from=echo_examples,
    planner="plan_re_act",
    run_code=CodeRunner(reverse, code_delimiters=[("<<", ">>")], result_delimiters=("[[", "]]")),
    include_contents="none",
)

export(
    storyteller, scale, refuse, break_off, remember, setting, note, keep, both, chance, delegate, keep_diary, learn, compare, look, bake, stop,
    foreman, echo, clerk, chief, keys, veto, stamp, Answerer, reverse, count, echo_examples, parrot, starling,
    visit, visit_all, wait_in_turn, give_up, open_page,
)  # fmt: skip
