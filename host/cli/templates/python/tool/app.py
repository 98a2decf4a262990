"""A tool. Build it with `hatchery build`; agents in the same served folder use it as `@FUNCTION@`."""

from hatchery_guest import export, tool


@tool(name="@FUNCTION@")
async def count_words(text: str) -> int:
    """Counts the words of a text.

    Args:
        text: The text whose words are counted.
    """
    return len(text.split())


export(count_words)
