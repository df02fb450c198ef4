"""`batchline validate`: predicted against measured."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from batchline.cli import _options, _output
from batchline.cli._language import current, say
from batchline.cli._spoken import Spoken
from batchline.errors import InputError
from batchline.strings import Sentence, text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from batchline.validate import Outcome

_RIVAL = "aiconfigurator_predictions.csv"
_SHOWN = 8  # groups of a kind, and reasons
_NAME = 34
_WIDE = 110  # columns of a terminal that the whole table needs


def _short(cell: str, column: int) -> str:
    """Names that leave room for the numbers."""
    return cell if column or len(cell) <= _NAME else cell[: _NAME - 1] + "\N{HORIZONTAL ELLIPSIS}"


@click.command("validate", cls=Spoken)
@click.argument("files", nargs=-1, type=click.Path(exists=True))
@_options.profile_option
@click.option("--plot", "plots", multiple=True, type=_options.FILE, help=text("help.validate_plots"))
@_options.theme_option
@click.option("--report", type=_options.FILE, help=text("help.validate_report"))
@click.option("--json", "as_json", is_flag=True, help=text("help.validate_as_json"))
@click.option("--csv", "as_csv", is_flag=True, help=text("help.validate_as_csv"))
def command(files: tuple[str, ...], profile: str | None, as_json: bool, as_csv: bool, **drawn: Any) -> None:
    """Predict every row of a table of measurements and say how far off the predictions are.

    \b
    batchline validate
    batchline validate served.csv --plot served.html
    batchline validate served.csv --json
    """
    if not files:
        _published(drawn, as_json=as_json)
        return
    from batchline import served_point, validate

    tables = list(_tables(files))
    priors = _options.priors_of(profile)
    outcomes: list[Outcome] = []
    files_of: list[str] = []
    for table in tables:
        outcomes += validate.predict(served_point.read(table), priors)
        files_of += [table.name] * (len(outcomes) - len(files_of))
        for column, near in served_point.unread_columns(table).items():
            key = "validate.unread_near" if near else "validate.unread"
            click.echo(say(key, file=table.name, column=column, near=near), err=True)
    summary = validate.summary(outcomes) | {"beside": validate.beside(outcomes, _rivals(tables))}
    rows = [{"file": name} | outcome.to_dict() for name, outcome in zip(files_of, outcomes, strict=True)]
    if as_json:
        _output.print_json({"rows": rows, "summary": summary})
    elif as_csv:
        _output.print_csv([row for row in rows if "refused" not in row])
    else:
        _print(summary)
    if fast := [i for i, outcome in enumerate(outcomes) if outcome.below_bound]:
        several = len(tables) > 1
        named = [f"{files_of[i]} {outcomes[i].row:,}" if several else f"{outcomes[i].row:,}" for i in fast[:_SHOWN]]
        lines = ", ".join(named) + (", ..." if len(fast) > _SHOWN else "")
        _output.warn(say("validate.below_bound", count=f"{len(fast):,}", lines=lines))
    if drawn["report"]:
        from batchline import published

        _write(drawn["report"], published.own_page(", ".join(table.name for table in tables), summary))
    if drawn["plots"]:
        from batchline import chart, chart_validation

        spec = chart_validation.against_measured(outcomes, theme=drawn["theme"], language=current())
        for path in drawn["plots"]:
            chart.save(spec, path)
            click.echo(say("validate.drawn", path=path), err=True)


def _tables(files: Iterable[str]) -> Iterable[Path]:
    for name in files:
        path = Path(name)
        found = sorted(one for one in path.glob("*.csv") if one.name != _RIVAL) if path.is_dir() else [path]
        if not found:
            raise InputError(Sentence("error.no_csv", path=f"{path}"), "", Sentence("error.give_table"))
        yield from found


def _rivals(tables: Iterable[Path]) -> dict[str, dict[str, tuple[float, float]]]:
    """What aiconfigurator predicts for rows, where its table lies beside ours."""
    theirs: dict[str, tuple[float, float]] = {}
    for folder in {table.parent for table in tables}:
        if (folder / _RIVAL).is_file():
            with (folder / _RIVAL).open(encoding="utf-8", newline="") as file:
                for row in csv.DictReader(file):
                    if row["tpot_ms"] and row["ttft_ms"]:
                        theirs[row["id"]] = float(row["tpot_ms"]) / 1e3, float(row["ttft_ms"]) / 1e3
    return {"aiconfigurator": theirs} if theirs else {}


def _write(path: str, text: str) -> None:
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(Sentence("error.not_written", given=repr(path), reason=f"{error.strerror}")) from error
    click.echo(say("validate.written", path=path), err=True)


def _published(drawn: Mapping[str, Any], *, as_json: bool) -> None:
    from batchline import published

    if drawn["plots"]:
        raise InputError(Sentence("error.no_rows_to_draw"), "", Sentence("error.give_csv"))
    data = published.load()
    if drawn["report"]:
        _write(drawn["report"], published.page(data))
    if as_json:
        _output.print_json(data)
        return
    console = _output.console()
    count = f"{data['rows']:,}"
    console.print(f"\n{say('validate.published', date=data['date'], rows=count)}", style="bold")
    console.print(f"{say('validate.errors')}\n")
    columns = [(say("validate.left_out"), "left"), ("TPOT", "right"), ("TTFT", "right")]
    lines = [
        (say(f"validate.split_{line['left_out']}"), *(published.three(line[of]) for of in ("tpot", "ttft")))
        for line in data["splits"]
    ]
    console.print(_output.table(columns, lines))
    rivals = data["beside"]
    console.print()
    rows = [(line["who"], published.three(line["tpot"]), published.three(line["ttft"])) for line in rivals["lines"]]
    columns = [(f"{say('validate.beside')} ({rivals['rows']:,})", "left"), ("TPOT", "right"), ("TTFT", "right")]
    console.print(_output.table(columns, rows))
    console.print()
    held = [
        (say(f"validate.split_{line['new']}"), f"{line['tpot']['held'][1]:.0%}", f"{line['ttft']['held'][1]:.0%}")
        for line in data["coverage"]
    ]
    columns = [
        (f"{say('validate.kind_novelty')}: {say('validate.held')}", "left"),
        ("TPOT", "right"),
        ("TTFT", "right"),
    ]
    console.print(_output.table(columns, held))
    console.print(f"\n{say('validate.hint')}")


def _cells(found: dict[str, float] | None) -> tuple[str, ...]:
    from batchline.published import three

    if found is None:
        return ("-", "-", "-")
    return three(found), f"{found['bias']:+.1%}", f"{found['coverage']:.0%}" if "coverage" in found else ""


def _lines(summary: dict[str, Any]) -> Iterable[tuple[str, tuple[str, ...]]]:
    """Style and cells of each line: name, rows, and error, bias and coverage of TPOT and TTFT."""
    from batchline import published

    def heading(text: str) -> Iterable[tuple[str, tuple[str, ...]]]:
        yield "", ("",) * 8
        yield "bold", (text, *[""] * 7)

    count = f"{summary['predicted']:,}"
    yield "bold", (say("validate.all_rows"), count, *_cells(summary["tpot"]), *_cells(summary["ttft"]))
    data = published.load()
    for line in data["splits"]:
        name = say("validate.published_split", split=say(f"validate.split_{line['left_out']}"))
        tpot, ttft = (published.three(line[of]) for of in ("tpot_all", "ttft_all"))
        yield "dim", (name, f"{data['rows']:,}", tpot, "", "", ttft, "", "")
    for kind, groups in summary["by"].items() if summary["predicted"] else ():
        yield from heading(say("validate.by", kind=say(f"validate.kind_{kind}")))
        worst = sorted(groups.items(), key=lambda item: -((item[1]["tpot"] or {}).get("mape", 0.0)))
        for name, found in worst[:_SHOWN]:
            known = int((found["tpot"] or found["ttft"] or {"n": 0})["n"])
            shown = say(f"validate.split_{name}") if kind == "novelty" else name
            yield "", (f"  {shown}", f"{known:,}", *_cells(found["tpot"]), *_cells(found["ttft"]))
    if summary["beside"]:
        yield from heading(say("validate.beside"))
    for line in summary["beside"]:
        yield "", (f"  {line['who']}", f"{line['rows']:,}", *_cells(line["tpot"]), *_cells(line["ttft"]))


def _print(summary: dict[str, Any]) -> None:
    from batchline import validate

    console = _output.console()
    numbers = {"predicted": f"{summary['predicted']:,}", "rows": f"{summary['n']:,}"}
    console.print(f"\n{say('validate.predicted', **numbers)}", style="bold")
    console.print(say("validate.errors"))
    console.print(f"{say('validate.of_published')}\n")
    held = [(say("validate.bias"), "right"), (say("validate.held"), "right")]
    columns = [("", "left"), (say("validate.rows"), "right"), ("TPOT", "right"), *held, ("TTFT", "right"), *held]
    kept = range(8) if console.width >= _WIDE else (0, 1, 2, 4, 5)
    lines = list(_lines(summary))
    cells = [[_short(line[i], i) for i in kept] for _, line in lines]
    console.print(_output.table([columns[i] for i in kept], cells, [style for style, _ in lines]))
    reasons = list(validate.kinds_of_reasons(summary["refused"]).items())
    if reasons:
        console.print(f"\n{say('validate.refused', count=f'{sum(count for _, count in reasons):,}')}")
        for reason, times in reasons[:_SHOWN]:
            console.print(f"  {times:,}  {reason}", markup=False)
        if rest := sum(times for _, times in reasons[_SHOWN:]):
            console.print(f"  {say('validate.more', count=f'{rest:,}')}")
