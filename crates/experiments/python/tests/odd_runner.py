"""A runner that does what traces' names say: it aborts, takes its time, or the trace changes."""

import os
import time

from manylogs.fleet import _runner


def odd(question):
    name = os.path.basename(question["trace"])
    time.sleep(float(os.environ.get("ODD_RUNNER_S", "0")))
    if question["ask"] == "runs" and name.startswith("aborts"):
        os.abort()
    if question["ask"] == "runs" and name.startswith("changes"):
        with open(question["trace"], "a", encoding="ascii") as file:
            file.write("999999999999,W,8,8\n")
    if name.startswith("locked"):
        # Root may read everything.
        return {"bad": f"cannot open {question['trace']}: Permission denied", "exit_code": 6}
    if question["ask"] == "runs" and name.startswith("hoards"):
        try:
            bytearray(4 << 30)
        except MemoryError:
            os._exit(9)
    return answer(question)


answer = _runner.answer
_runner.answer = odd
if __name__ == "__main__":
    _runner.main()
