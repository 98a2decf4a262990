"""An agent with a tool. Build it with `hatchery build`."""

from hatchery_guest import LlmAgent, ToolContext, export, tool


@tool
async def count_words(text: str, cx: ToolContext) -> int:
    """Counts the words of a text.

    Args:
        text: The text whose words are counted.
    """
    words = len(text.split())
    cx.state["last_count"] = words
    return words


# The scripted model needs no network and no API key. To use a real model, set its name, such as
# "gemini-2.5-flash", build, allow it with `hatchery grant @NAME@`, and put its key into a file `.env` beside
# pyproject.toml: GOOGLE_API_KEY=… `hatchery models` lists the models and their variables.
root = LlmAgent(
    name="@NAME@",
    description="Counts words.",
    model="scripted:@NAME@/answers.yaml",
    instruction="Count words when asked to.",
    tools=[count_words],
)

export(root, count_words)
