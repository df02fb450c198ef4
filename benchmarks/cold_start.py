"""Time from pressing enter to the first answer, as whole processes.

    python benchmarks/cold_start.py

Beside `python -c pass`, the least that any Python program takes, in the same run.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

COMMANDS = {
    "python -c pass (the least)": [sys.executable, "-c", "pass"],
    "python -c 'import numpy'": [sys.executable, "-c", "import numpy"],
    "batchline --help": [sys.executable, "-m", "batchline", "--help"],
    "batchline curve (the demo)": [
        sys.executable,
        "-m",
        "batchline",
        "curve",
        "llama-3.1-70b",
        "--on",
        "4xh100",
        "--context",
        "8k",
    ],
    "batchline show": [sys.executable, "-m", "batchline", "show", "deepseek-v3"],
}


def main() -> None:
    print(f"{'':32}{'least':>9}{'median':>9}{'most':>9}  seconds, 9 runs each, in turn")
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(9):
        for name, command in COMMANDS.items():
            start = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True)
            times[name].append(time.perf_counter() - start)
    for name, taken in times.items():
        print(f"{name:32}{min(taken):9.3f}{statistics.median(taken):9.3f}{max(taken):9.3f}")


if __name__ == "__main__":
    main()
