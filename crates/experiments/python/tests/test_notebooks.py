"""The notebooks run from end to end."""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from common import ROOT, SAMPLE
from test_fleet import write_trace

NOTEBOOKS = ROOT / "crates/experiments/python/notebooks"


def code(notebook):
    """Its cells, one after the other; the last line of each is shown, as Jupyter does."""
    cells = json.loads((NOTEBOOKS / notebook).read_text(encoding="ascii"))["cells"]
    sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    return (
        "import ast, sys\n"
        f"cells, names = {sources!r}, {{'__name__': '__main__'}}\n"
        "for cell in cells:\n"
        "    tree = ast.parse(cell)\n"
        "    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None\n"
        "    exec(compile(tree, 'cell', 'exec'), names)\n"
        "    if last is not None:\n"
        "        print(eval(compile(ast.Expression(last.value), 'cell', 'eval'), names))\n"
    )


class Notebooks(unittest.TestCase):
    def run_all(self, notebook, folder):
        done = subprocess.run(
            [sys.executable, "-c", code(notebook)], cwd=folder, capture_output=True, text=True,
            check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_own_trace(self):
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(SAMPLE, pathlib.Path(folder) / "server.trace.zst")
            told = self.run_all("own-trace.ipynb", folder)
            self.assertIn("durable mean", told)
            self.assertIn("threshold=128K", told)

    def test_own_policy(self):
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(SAMPLE, pathlib.Path(folder) / "server.trace.zst")
            told = self.run_all("own-policy.ipynb", folder)
            self.assertIn("begun-400G", told)
            self.assertTrue(told.rstrip().endswith("True"), told)

    def test_a_figure_of_reproduce(self):
        with tempfile.TemporaryDirectory() as folder:
            told = self.run_all("reproduce.ipynb", folder)
            found = re.search(r"mean of the percentiles: ([\d.]+)", told)[1]
        text = (ROOT / "docs/results/manylogs-smallest.md").read_text(encoding="utf-8")
        figure = text.split("## Table I, Fig. 6b")[1].split("\n## ")[0]
        row = next(line for line in figure.splitlines() if line.startswith("| mlb-256 |"))
        self.assertEqual(found, row.split("|")[3].strip(), "as `manylogs reproduce` has it")

    def test_fleet(self):
        with tempfile.TemporaryDirectory() as folder:
            for nth in range(3):
                write_trace(pathlib.Path(folder) / f"traces/host{nth}/sda.csv", nth, requests=600)
            (pathlib.Path(folder) / "traces/junk").write_bytes(b"no trace")
            told = self.run_all("fleet.ipynb", folder)
            self.assertIn("exos-x20", told)
            self.assertIn("unknown trace format", told)

    def test_each_is_run(self):
        found = {path.name for path in NOTEBOOKS.iterdir()}
        self.assertEqual(found, {"own-trace.ipynb", "own-policy.ipynb", "reproduce.ipynb", "fleet.ipynb"})


if __name__ == "__main__":
    unittest.main()
