"""The examples of the guides and of the README run, and their exports can be described."""

import re
import sys
import unittest
from pathlib import Path
from types import ModuleType

from hatchery_guest.export import EXPORTS, Exports
from test_convert import contract_types, import_convert

REPOSITORY = Path(__file__).parents[3]

GUIDES = [REPOSITORY / name for name in ("docs/components.md", "docs/cookbook.md", "docs/agents.md", "guest-sdk/python/README.md")]


def blocks(text: str) -> list[tuple[int, str]]:
    """Returns the blocks of Python with their lines."""
    found = re.finditer(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [(text.count("\n", 0, block.start()) + 1, block.group(1)) for block in found]


def is_test(code: str) -> bool:
    """True for an example of a test of another module."""
    return "from app import" in code


class Guides(unittest.TestCase):
    def test_every_example_runs_and_its_exports_are_described(self) -> None:
        specs, count = import_specs(), 0
        for guide in GUIDES:
            for line, code in blocks(guide.read_text()):
                if is_test(code):
                    continue
                with self.subTest(f"{guide.name}:{line}"):
                    EXPORTS.__init__()
                    exec(compile(code, f"{guide.name}:{line}", "exec"), {"__name__": "guide"})
                    describe_all(specs, EXPORTS)
                    count += 1
        self.assertGreaterEqual(count, 5)


def import_specs() -> ModuleType:
    """Imports the descriptions as in a component."""
    import_convert()
    sys.modules["wit_world.imports"].specs = contract_types("exports.wit")
    from hatchery_guest.component import specs

    return specs


def describe_all(specs: ModuleType, exports: Exports) -> None:
    for agent in exports.agents.values():
        specs.agent(agent)
    for tool in exports.tools.values():
        specs.tool(tool)
    for callback in exports.callbacks.values():
        specs.callback(callback)
    for plugin in exports.plugins.values():
        specs.plugin(plugin)


if __name__ == "__main__":
    unittest.main()
