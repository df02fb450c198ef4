"""`batchline validate`: predicted against measured."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from batchline.cli import _options, _output

if TYPE_CHECKING:
    from batchline.validate import Outcome


@click.command("validate")
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False))
@_options.profile_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON: every row, and a summary.")
@click.option("--csv", "as_csv", is_flag=True, help="Print every row as comma-separated values.")
def command(files: tuple[str, ...], profile: str | None, as_json: bool, as_csv: bool) -> None:
    """Predict every row of a table of measurements and say how far off the predictions are.

    The columns are those of docs/validation.md, where the published errors stand.

    \b
    batchline validate served.csv
    batchline validate served.csv --json
    """
    from batchline import served_point, validate

    priors = _options.priors_of(profile)
    outcomes: list[Outcome] = []
    for file in files:
        outcomes += validate.predict(served_point.read(file), priors)
    summary = validate.summary(outcomes)
    if as_json:
        _output.print_json({"rows": [outcome.to_dict() for outcome in outcomes], "summary": summary})
    elif as_csv:
        _output.print_csv([row for outcome in outcomes if "refused" not in (row := outcome.to_dict())])
    else:
        _print(summary)


def _cells(found: dict[str, float] | None) -> tuple[str, ...]:
    if found is None:
        return ("-",) * 5
    shown = tuple(f"{found[key]:.1%}" for key in ("mape", "median", "p90"))
    return (*shown, f"{found['bias']:+.1%}", f"{found['coverage']:.0%}")


def _print(summary: dict[str, Any]) -> None:
    console = _output.console()
    console.print(f"\n{summary['predicted']:,} of {summary['n']:,} rows predicted\n", style="bold")
    columns = [("", "left"), ("rows", "right"), ("", "left"), ("mean", "right"), ("median", "right"), ("p90", "right")]
    columns += [("bias", "right"), ("in 90% interval", "right")]
    count_all = f"{summary['predicted']:,}"
    cells = [("all", count_all, of.upper(), *_cells(summary[of])) for of in ("tpot", "ttft")]
    for kind, groups in summary["by"].items():
        worst = sorted(groups.items(), key=lambda item: -((item[1]["tpot"] or {}).get("mape", 0.0)))
        for name, found in worst:
            count = int((found["tpot"] or found["ttft"] or {"n": 0})["n"])
            cells.append((f"{kind} {name}", f"{count:,}", "TPOT", *_cells(found["tpot"])))
    console.print(_output.table(columns, cells))
    refused = Counter(summary["refused"])
    if refused:
        console.print(f"\n{sum(refused.values()):,} refused:")
        for reason, count in refused.most_common(8):
            console.print(f"  {count:,}  {reason}", markup=False)
