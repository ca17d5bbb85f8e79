"""What the tests of the package share."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[4]
SAMPLE = ROOT / "traces/pgbench-beside-reader.trace.zst"
#: The program, whose output is compared.
PROGRAM = os.environ.get("MANYLOGS", str(ROOT / "target/release/manylogs"))
SHARED = pathlib.Path(os.environ.get("MANYLOGS_SHARED", ROOT / "../shared")) / "data/traces"
FIVE = ["nologging", "single-log", "mlb", "mlb-paper", "mlb:threshold=32K"]


def skip(test: unittest.TestCase, reason: str) -> None:
    """Skips the test, or what is left of it, and has it counted."""
    counted = os.environ.get("MANYLOGS_SKIPPED")
    if counted:
        with open(counted, "a", encoding="utf-8") as file:
            file.write(f"python\t{test.id()}\t{reason}\n")
    test.skipTest(reason)


def shared_traces(test: unittest.TestCase) -> list:
    """The ten public traces."""
    traces = sorted(path for path in SHARED.glob("*") if path.suffix in (".zst", ".gz"))
    if len(traces) < 10:
        skip(test, f"{SHARED} is not here (set MANYLOGS_SHARED)")
    return traces


def program(*args: object, code: int = 0) -> str:
    """Runs the program and returns what it prints."""
    done = subprocess.run(
        [PROGRAM, *map(str, args)], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.returncode == code, (done.returncode, done.stderr)
    return done.stdout if code == 0 else done.stderr


def json_of(command: str, *args: object) -> str:
    """The file that the program writes with --json."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "out.json"
        program(command, *args, "--json", out)
        return out.read_text(encoding="utf-8")


def without_command(text: str) -> str:
    """The same bytes, save what says how it was asked for."""
    command = json.dumps(json.loads(text).get("command"), ensure_ascii=False)
    before, after = text.split(f'"command":{command}')
    return before + after
