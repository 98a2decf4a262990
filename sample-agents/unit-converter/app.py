"""An LLM agent with a tool, in Python.

The host runs the conversation, and calls this component for the tool only.
"""

from typing import Literal

from hatchery_guest import LlmAgent, ToolContext, export, tool

Unit = Literal["mm", "cm", "m", "km", "in", "ft", "mi", "g", "kg", "oz", "lb", "C", "F", "K"]

METRES = {"mm": 0.001, "cm": 0.01, "m": 1.0, "km": 1000.0, "in": 0.0254, "ft": 0.3048, "mi": 1609.344}
GRAMS = {"g": 1.0, "kg": 1000.0, "oz": 28.349523125, "lb": 453.59237}
# To kelvins: an offset that is added first, and a factor.
KELVINS = {"K": (0.0, 1.0), "C": (273.15, 1.0), "F": (459.67, 5 / 9)}


def convert_value(value: float, unit: Unit, to: Unit) -> float:
    """Returns a value in another unit of the same kind."""
    for factors in (METRES, GRAMS):
        if unit in factors and to in factors:
            return value * factors[unit] / factors[to]
    if unit in KELVINS and to in KELVINS:
        (before, by), (after, per) = KELVINS[unit], KELVINS[to]
        return (value + before) * by / per - after
    raise ValueError(f"{unit} and {to} do not measure the same thing")


@tool
async def convert(value: float, unit: Unit, to: Unit, cx: ToolContext) -> str:
    """Converts lengths, weights and temperatures.

    Args:
        value: The number.
        unit: The unit of the number.
        to: The unit of the result.
    """
    result = f"{convert_value(value, unit, to):.6g} {to}"
    cx.state["conversions"] = cx.state.get("conversions", 0) + 1
    return result


unit_converter = LlmAgent(
    name="unit-converter",
    description="Converts lengths, weights and temperatures.",
    model="scripted:unit-converter/answers.yaml",
    instruction="Convert with `convert`; never do the sum yourself.",
    tools=[convert],
)

export(unit_converter, convert)
