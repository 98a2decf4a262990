"""The analysis of programs by builds. ``hatchery build`` itself is tested with the command."""

import contextlib
import io
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from hatchery_guest.build import NewerSyntaxError, explain_missing, generate_interpreter, import_program, is_newer_syntax, shorten_error
from hatchery_guest.development import ImportedModules, modules_of

CONTRACT = Path(__file__).parents[3] / "wit"


class Programs(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        known = set(sys.modules)
        self.addCleanup(lambda: [sys.modules.pop(name) for name in set(sys.modules) - known])

    def write(self, name: str, text: str) -> None:
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def test_a_program_is_its_own_modules_and_the_names_of_others_that_they_import(self) -> None:
        self.write("program/main_of_test.py", "import json\nimport colorsys\nfrom wsgiref import util\nfrom menu_of_test.soups import SOUP\n")
        self.write("program/menu_of_test/soups.py", "import hatchery_guest\nSOUP = 'borschtsch'\ndef cook():\n    import quopri\n")
        self.write("packages/spice_of_test.py", "import chunk_that_is_not_there\n")
        paths = [str(self.folder / "program")]
        with ImportedModules(paths) as imported:
            sys.path[:0] = paths
            self.addCleanup(sys.path.remove, paths[0])
            __import__("main_of_test")
        self.assertEqual(imported.names, {"colorsys", "wsgiref", "wsgiref.util"}, "each component has json and the SDK")
        modules = modules_of(paths)
        self.assertEqual(sorted(modules), ["main_of_test", "menu_of_test", "menu_of_test.soups"])
        self.assertEqual(modules["menu_of_test"], {"file": "/0/menu_of_test", "is_package": True, "source": ""})
        soups = modules["menu_of_test.soups"]
        self.assertEqual((soups["file"], soups["is_package"]), ("/0/menu_of_test/soups.py", False))
        self.assertIn("SOUP = 'borschtsch'", soups["source"])

    def test_an_interpreter_exports_every_kind_of_item_and_reads_its_program(self) -> None:
        generate_interpreter(["spices"], CONTRACT, self.folder)
        world = (self.folder / "wit/app.wit").read_text()
        self.assertEqual(world.count("  export hatchery:agent/guest-"), 10)
        self.assertIn("  import hatchery:development/program@0.1.0;\n", world)
        self.assertIn("try:\n    import spices\nexcept Exception:\n    pass\n", (self.folder / "hatchery_entry.py").read_text())

    @unittest.skipIf(sys.version_info >= (3, 12), "this Python knows type aliases")
    def test_newer_syntax_is_left_to_the_python_in_components_and_mistakes_are_not(self) -> None:
        self.write("newer_of_test.py", "type Pots = int\n")
        with self.assertRaises(NewerSyntaxError):
            import_program("newer_of_test", [str(self.folder)])
        for line, is_newer in [
            ("class Pot[T]:", True), ("    async def cook[T](pot: T) -> T:", True), ("except ValueError, TypeError:", True),
            ("const pots = 1", False), ("class Pot", False), ("def cook(pot:", False), ("types = = 1", False),
        ]:
            self.assertEqual(is_newer_syntax(SyntaxError("invalid syntax", ("soup.py", 1, 1, line))), is_newer, line)

    def test_a_program_without_exports_is_rejected(self) -> None:
        self.write("empty_of_test.py", "")
        self.assertIsNone(import_program("empty_of_test", [str(self.folder)]))

    def test_a_missing_package_is_named_with_the_next_step(self) -> None:
        self.write("lost_of_test.py", "import no_such_package\n")
        stderr = io.StringIO()
        with contextlib.redirect_stderr(stderr):
            self.assertIsNone(import_program("lost_of_test", [str(self.folder)]))
        advice = "which is not installed; add it to requirements.txt beside pyproject.toml"
        self.assertEqual(stderr.getvalue(), f"error: `lost_of_test` imports `no_such_package`, {advice}\n")
        sockets = "which needs sockets, and components have none; send HTTP requests with `hatchery_guest.http`"
        self.assertEqual([explain_missing(name) for name in ["requests", "httpx.aio", "slugify"]], [sockets, sockets, advice])

    def test_an_error_of_the_sdk_has_the_lines_of_the_program_only(self) -> None:
        self.write("undecorated_of_test.py", "from hatchery_guest import export\n\n\ndef roll(): ...\n\n\nexport(roll)\n")
        stderr = io.StringIO()
        with contextlib.redirect_stderr(stderr):
            import_program("undecorated_of_test", [str(self.folder)])
        self.assertIn('File "undecorated_of_test.py", line 7, in <module>', stderr.getvalue())
        self.assertNotIn("hatchery_guest/", stderr.getvalue())

    def test_an_error_at_import_has_the_lines_of_the_program_only(self) -> None:
        self.write("cold_of_test.py", "from warm_of_test import soup\n")
        self.write("warm_of_test.py", "\nsoup = 1 / 0\n")
        stderr = io.StringIO()
        with contextlib.redirect_stderr(stderr):
            import_program("cold_of_test", [str(self.folder)])
        places = [line.strip() for line in stderr.getvalue().splitlines() if line.strip().startswith("File")]
        self.assertEqual([place for place in places if "importlib" not in place], [
            'File "cold_of_test.py", line 1, in <module>', 'File "warm_of_test.py", line 2, in <module>',
        ])  # fmt: skip
        self.assertTrue(stderr.getvalue().endswith("ZeroDivisionError: division by zero\nerror: `cold_of_test` cannot be imported\n"))
        self.assertNotIn(str(self.folder), stderr.getvalue())


    def test_a_loop_at_import_ends_the_build_and_is_named_with_its_line(self) -> None:
        self.write("endless_of_test.py", "import warm_of_test\n")
        self.write("warm_of_test.py", "\nwhile True:\n    pass\n")
        code = "import sys; from hatchery_guest import build; build.IMPORT_TIMEOUT = 0.2; build.import_program('endless_of_test', sys.argv[1:])"
        ended = subprocess.run([sys.executable, "-c", code, str(self.folder)], capture_output=True, text=True, check=False)
        self.assertEqual(ended.returncode, 1)
        advice = "look for a loop or a wait at the top level of a module\n"
        self.assertRegex(ended.stderr, rf"^error: importing `endless_of_test` has not ended after 0\.2 s at warm_of_test\.py:[23]; {advice}$")


class Errors(unittest.TestCase):
    def test_the_traceback_of_the_program_is_shown_once_and_with_its_own_paths(self) -> None:
        traceback = [
            "Traceback (most recent call last):", '  File "/0/hatchery_entry.py", line 1, in <module>', "    import app",
            '  File "/2/lib/soup.py", line 2, in <module>', "    import bz2", "ModuleNotFoundError: No module named '_bz2'",
        ]
        head = "Traceback (most recent call last):\n  File \"/bin/componentize-py\", line 8, in <module>\nAssertionError: "
        stderr = head + "\n".join(traceback) + "\n\n\nCaused by:\n    ModuleNotFoundError: No module named '_bz2'\n"
        shown = [traceback[0], '  File "lib/soup.py", line 2, in <module>', *traceback[4:]]
        self.assertEqual(shorten_error(stderr).splitlines(), shown)
        self.assertEqual(shorten_error("killed\n"), "killed")


if __name__ == "__main__":
    unittest.main()
