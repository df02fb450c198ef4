"""Time to make an architecture of each config.json of a folder, and of each row of the catalogue.

    python benchmarks/parse_configs.py ../shared/catalog/configs

Goal: more than 100 configs in under 0.5 s in all. Reading a file and decoding its JSON is measured apart.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from batchline import architecture
from batchline.architecture import Architecture

if TYPE_CHECKING:
    from collections.abc import Callable


def main() -> None:
    """Print one line for each stage, the best of five runs."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    if folder:
        files = [path for path in sorted(folder.glob("*.json")) if path.name != "PROVENANCE.json"]
        files = [path for path in files if not path.name.endswith(".hf_quant_config.json")]
        report("read and decode JSON", len(files), lambda: [json.loads(path.read_text("utf-8")) for path in files])
        pairs = [(json.loads(path.read_text("utf-8")), quant(path)) for path in files]
        report("make architectures", len(pairs), lambda: [Architecture.from_config(*pair) for pair in pairs])
        times = [
            (best(lambda pair=pair: Architecture.from_config(*pair)), path.stem)
            for pair, path in zip(pairs, files, strict=True)
        ]
        for seconds, name in sorted(times, reverse=True)[:3]:
            print(f"  slowest: {seconds * 1e3:6.1f} ms  {name}")
    names = architecture.names()
    report("catalogue, all rows", len(names), lambda: [Architecture.load(name) for name in names])
    report("catalogue, one row", 1, lambda: Architecture.load("llama-3.1-70b"))


def quant(path: Path) -> dict[str, object] | None:
    """The hf_quant_config.json of a config.json, if it has one."""
    file = path.with_name(f"{path.stem}.hf_quant_config.json")
    return json.loads(file.read_text("utf-8")) if file.is_file() else None


def best(action: Callable[[], object]) -> float:
    """Shortest of five runs [s]."""
    times = []
    for _ in range(5):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return min(times)


def report(what: str, count: int, action: Callable[[], object]) -> None:
    """Print the time of a stage."""
    seconds = best(action)
    print(f"{what:24} {count:4}  {seconds * 1e3:8.1f} ms  {seconds / count * 1e3:7.2f} ms each")


if __name__ == "__main__":
    main()
