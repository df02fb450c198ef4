"""Simulations over HTTP: the questions of `batchline simulate`, in numbers of requests that take seconds."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from batchline.errors import InputError
from batchline.strings import told
from batchline.web.planning import Promised  # noqa: TC001  (pydantic reads them)
from batchline.web.question import (
    Brought,
    DeploymentQuestion,
    Duration,
    Length,
    Load,
    RefusedFieldError,
    deployment_of,
    priors_of,
)

if TYPE_CHECKING:
    from batchline.simulate.question import Question

__all__ = ["SimulateQuestion", "simulated"]

_PROMISES = ("ttft", "tpot", "itl", "e2e")
_MOST = 20_000
_LONGEST_TRACE = 6 * 2**20


class SimulateQuestion(DeploymentQuestion, Brought):
    """What `batchline simulate` is asked."""

    rate: Load | None = Field(default=None, description="Requests that arrive [1/s]; a trace is scaled to it.")
    arrivals: Annotated[str, Field(max_length=40, examples=["gamma:2"])] = Field(
        default="poisson", description="poisson, metronome, gamma:CV, burst:SIZE or diurnal:PEAK."
    )
    users: Annotated[int, Field(ge=1, le=10_000)] | None = Field(
        default=None, description="People who wait for an answer and then think, instead of a rate."
    )
    think_s: Duration | None = Field(default=None, description="How long they think, mean.")
    isl: Length | None = Field(default=None, description="Tokens of a prompt, mean.")
    osl: Length | None = Field(default=None, description="Tokens of an answer, mean.")
    spread: Annotated[float, Field(ge=0, le=3)] = Field(default=0.0, description="Log-normal spread of both lengths.")
    shared_prefix: Annotated[str, Field(max_length=40, examples=["20:1k"])] | None = Field(
        default=None, description="Every prompt begins with one of N system prompts of so many tokens."
    )
    trace: Annotated[str, Field(max_length=_LONGEST_TRACE)] | None = Field(
        default=None, description="Requests in place of a pattern: the text of a CSV or JSON-lines trace."
    )
    columns: Annotated[str, Field(max_length=400, examples=["arrival=when,isl=in,osl=out"])] | None = Field(
        default=None, description="Names of the trace's columns, where they are not known."
    )
    time_unit: Literal["s", "ms", "us", "ns", "datetime"] | None = Field(
        default=None, description="Unit of the trace's arrivals."
    )
    requests: Annotated[int, Field(ge=1, le=_MOST)] | None = Field(default=None, description="How many; else 2,000.")
    seed: Annotated[int, Field(ge=0, le=2**31)] = Field(default=0, description="The same seed makes the same requests.")
    max_num_seqs: Annotated[int, Field(ge=1, le=65536)] | None = Field(
        default=None, description="Most requests that run together; the engine's default if absent."
    )
    max_num_batched_tokens: Annotated[int, Field(ge=1, le=2**20)] | None = Field(
        default=None, description="Token budget of a step."
    )
    prefix_caching: bool = Field(default=True, description="Keep blocks findable that were freed.")
    replicas: Annotated[int, Field(ge=1, le=64)] = Field(default=1, description="Copies of the deployment.")
    router: Literal["round_robin", "least_loaded", "prefix_aware"] = "round_robin"
    ttft: Promised | None = Field(default=None, description="Promise on the first token.")
    tpot: Promised | None = Field(default=None, description="Promise on the time per output token.")
    itl: Promised | None = Field(default=None, description="Promise on the gap between tokens.")
    e2e: Promised | None = Field(default=None, description="Promise on the whole request.")


def _columns(words: str | None) -> dict[str, str] | None:
    from batchline.simulate.load import parse_columns  # noqa: PLC0415

    try:
        return parse_columns(words) if words else None
    except InputError as error:
        raise RefusedFieldError("columns", error) from None


def _question(asked: SimulateQuestion, trace: Path | None) -> Question:
    """Make the question of `batchline simulate`."""
    from batchline.goodput import Promise  # noqa: PLC0415
    from batchline.simulate.load import Load as Requests  # noqa: PLC0415
    from batchline.simulate.question import Question  # noqa: PLC0415

    return Question(
        deployment=deployment_of(asked),
        load=Requests(
            trace=trace,
            columns=_columns(asked.columns),
            time_unit=asked.time_unit,
            repair=True,
            rate=asked.rate,
            arrivals=asked.arrivals,
            users=asked.users,
            think_s=asked.think_s or 0.0,
            isl=None if asked.isl is None else int(asked.isl),
            osl=None if asked.osl is None else int(asked.osl),
            spread=asked.spread,
            shared_prefix=asked.shared_prefix,
            count=asked.requests or (_MOST if trace else None),
            seed=asked.seed,
        ),
        promises={name: Promise.parse(text) for name in _PROMISES if (text := getattr(asked, name))},
        priors=priors_of(asked),
        max_num_seqs=asked.max_num_seqs,
        max_num_batched_tokens=asked.max_num_batched_tokens,
        prefix_caching=asked.prefix_caching,
        replicas=asked.replicas,
        router=asked.router,
    )


def simulated(asked: SimulateQuestion, language: str, theme: str, *, narrow: bool = False) -> dict[str, Any]:
    """Serve the traffic: `batchline simulate --json`, told and drawn.

    Parameters
    ----------
    asked : SimulateQuestion
        What was asked.
    language, theme : str
        "en" or "ko"; "light" or "dark".
    narrow : bool
        Charts for a phone.

    Returns
    -------
    dict
        `simulation` with the keys of the command line, `answer`, `charts` (over time, and how long requests took).
    """
    with tempfile.TemporaryDirectory(prefix="batchline-") as folder:
        trace = None
        if asked.trace is not None:
            trace = Path(folder) / ("trace.jsonl" if asked.trace.lstrip().startswith("{") else "trace.csv")
            trace.write_text(asked.trace, encoding="utf-8")
        return _told(_question(asked, trace), language, theme, narrow=narrow)


def _told(asked: Question, language: str, theme: str, *, narrow: bool) -> dict[str, Any]:
    from batchline import chart_simulation, report  # noqa: PLC0415

    # Compiling would take longer than so few requests do, and the first who asks would wait for it.
    result = asked.answer(compiled=False)
    return {
        "simulation": {**asked.to_dict(), **result.to_dict()},
        "answer": {
            "deployment": asked.deployment.titled(language),
            "title": f"{asked.deployment.titled(language)}, {told(asked.traffic.name, language)}",
            "headline": result.sentence(language),
            "tiles": report.simulation_tiles(result, language),
            "promises": [
                {"name": name, "promise": str(result.promises[name]), "kept": kept}
                for name, kept in result.keeps().items()
            ],
            "warnings": result.mended(language),
        },
        "charts": {
            "over_time": chart_simulation.over_time(result, theme=theme, language=language, narrow=narrow),
            "times": chart_simulation.times(result, theme=theme, language=language, narrow=narrow),
        },
    }
