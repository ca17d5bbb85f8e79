"""What docstrings and documents say is so, and types are complete."""

import doctest
import importlib
import pathlib
import pkgutil
import subprocess
import sys
import tempfile
import unittest

import manylogs
from common import ROOT, SAMPLE


class Documented(unittest.TestCase):
    def test_docstrings(self):
        tried = 0
        for module in pkgutil.iter_modules(manylogs.__path__):
            if module.name != "_manylogs":
                found = importlib.import_module(f"manylogs.{module.name}")
                result = doctest.testmod(found)
                self.assertEqual(result.failed, 0, module.name)
                tried += result.attempted
        self.assertGreater(tried, 10)

    def test_the_page_says_calls_that_work(self):
        text = (ROOT / "docs/python.md").read_text(encoding="utf-8")
        code = "".join(block.split("```")[0] for block in text.split("```python\n")[1:])
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            short = manylogs.read_trace(SAMPLE, limit=2000)
            import polars

            polars.DataFrame(short).write_csv(folder / "server.trace")
            (folder / "my.toml").write_text(manylogs.Drive("cheetah-15k5").toml())
            code = code.replace("Drive(\"my.toml\"))", "Drive(\"my.toml\"), fit=True)")
            code = code.replace("seeds=5)", "seeds=1, fit=True)")
            done = subprocess.run(
                [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True,
                check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("durable mean", done.stdout)

    def test_types_are_complete(self):
        with tempfile.TemporaryDirectory() as folder:
            used = pathlib.Path(folder) / "used.py"
            used.write_text(
                "import manylogs\n"
                "trace: manylogs.Trace = manylogs.read_trace('x', limit=3)\n"
                "result: manylogs.Replay = manylogs.replay(trace, policies=['mlb'])\n"
                "text: str = result.json()\n"
                "both = manylogs.replay([trace, 'y'], manylogs.Drive('z'))\n"
                "rows: manylogs.Table = result['mlb'].requests\n"
                "again: manylogs.Trace = manylogs.read_trace(trace)\n"
                "decision: str = manylogs.advise(trace).decision\n"
                "class Own(manylogs.Policy):\n"
                "    def logs(self, request: manylogs.Write) -> bool:\n"
                "        return request.fua and request.sectors < 9\n"
                "    def place(self, head: int, logs: manylogs.Logs) -> int | None:\n"
                "        return min(logs, key=logs.tail, default=logs.around(head)[0])\n"
                "both = manylogs.replay(trace, policies=['mlb', Own()])\n"
                "one = manylogs.replay(trace, policies=Own())\n")
            mypy = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", folder]
            for what in [["-p", "manylogs"], [str(used)]]:
                done = subprocess.run(
                    [*mypy, *what], cwd=folder, capture_output=True, text=True, check=False)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            used.write_text("import manylogs\nmanylogs.replay(3, drive=4).jsn()\n")
            done = subprocess.run(
                [*mypy, str(used)], cwd=folder, capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 1, "mistakes are found")


if __name__ == "__main__":
    unittest.main()
