"""Measure a live endpoint: decode steps against batch and context, in bursts, within a time limit.

A burst sends B prompts of one length at once. When the last of them has its first token, all B decode together and no
prompt is prefilled: the gaps from there on are clean decode steps at batch B. Bursts are repeated, their spread is
kept, and each point is written to the result file as soon as it is known, so that an interrupted run goes on later.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import math
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, median, pstdev
from typing import TYPE_CHECKING, Final

import numpy as np

from batchline.errors import InputError, MeasurementError
from batchline.measure import own_csv, prompts, streams
from batchline.measure.endpoint import Answer, Endpoint, EndpointError, Served
from batchline.measure.point import MeasuredPoint
from batchline.measure.recognise import read
from batchline.strings import Sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["BATCHES", "CONTEXTS", "Outcome", "Progress", "probe"]

BATCHES: Final = (1, 2, 4, 8, 16, 32, 64)
CONTEXTS: Final = (128, 1024, 4096)
TOOL: Final = "batchline measure"

_STEPS: Final = 32  # clean steps wanted of each burst
_ENOUGH: Final = 16  # with fewer a burst is sent again with a longer answer
_LONGEST_ANSWER: Final = 4096
_SPREAD: Final = 0.05  # beyond it bursts are repeated twice more
_WARM_TOKENS: Final = 8
_BUSY_CLIENT: Final = 0.8  # share of a core beyond which the client may hold tokens up
_SKIPPED_LEVELS: Final = 3  # so many in a row that fail, and the server is taken for dead


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a run stands.

    Parameters
    ----------
    done, total : int
        Points [-].
    left_s : float
        Estimate of the time left [s].
    text : str
        What is measured now.
    """

    done: int
    total: int
    left_s: float
    text: str


@dataclass
class Outcome:
    """What a run gave.

    Parameters
    ----------
    points : list of MeasuredPoint
        All points, those of an earlier, interrupted run included.
    stopped : EndpointError or None
        Why the run ended before its end; None when it did not, or when only the time was over.
    notes : list of str
        What was left out, and why.
    """

    points: list[MeasuredPoint] = field(default_factory=list)
    stopped: EndpointError | None = None
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Level:
    batch: int
    context: int

    @property
    def label(self) -> str:
        return f"batch {self.batch}, context {self.context}"

    @property
    def cost(self) -> float:
        """Relative cost: prompts to prefill, and the steps."""
        return self.batch * self.context + 16 * self.batch + 512


def probe(
    url: str,
    *,
    model: str | None = None,
    batches: Sequence[int] = BATCHES,
    contexts: Sequence[int] = CONTEXTS,
    max_seconds: float = 300.0,
    repeats: int = 3,
    quantile: float = 0.5,
    api: str = "auto",
    key: str | None = None,
    out: str | Path | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> Outcome:
    """Measure decode steps of a live endpoint.

    Parameters
    ----------
    url : str
        Address of an OpenAI-compatible server, like http://localhost:8000/v1.
    model : str, optional
        Name of the model; may be left out where only one is served.
    batches : sequence of int
        Batches to measure [sequence].
    contexts : sequence of int
        Prompt lengths to measure [token].
    max_seconds : float
        The run ends by itself within this time [s].
    repeats : int
        Bursts of each point; two more where they differ by over 5% [-].
    quantile : float
        Which of the gaps of a burst, and of the bursts, is the step: 0.5 is the median; 0.1 on a machine that does
        other work too [-].
    api : str
        `auto`, `completions` or `chat`.
    key : str, optional
        Bearer key; it is neither printed nor written.
    out : str or Path, optional
        Result file, written as the run goes on; points that it already holds are not measured again.
    on_progress : callable, optional
        Is called with a `Progress` before each point.

    Returns
    -------
    Outcome
        Points, cheapest first, and what was left out.

    Raises
    ------
    InputError
        No batch or context, or a limit that is not more than 0.
    MeasurementError
        The endpoint cannot be measured at all: it says why; or `out` belongs to another run.
    """
    if not batches or not contexts or min(*batches, *contexts, repeats) < 1:
        raise InputError(Sentence("error.probe_needs"))
    if not (math.isfinite(max_seconds) and max_seconds > 0):
        raise InputError(Sentence("error.limit_above_0", given=f"{max_seconds:g}"))
    levels = [_Level(batch, context) for batch in dict.fromkeys(batches) for context in dict.fromkeys(contexts)]
    levels.sort(key=lambda level: level.cost)
    run = _Run(levels, max_seconds, repeats, quantile, on_progress)
    return asyncio.run(run.all(url, model, api, key, None if out is None else Path(out)))


_Burst = tuple[streams.Steps, list[Answer]]


@dataclass
class _Run:
    levels: list[_Level]
    max_seconds: float
    repeats: int
    quantile: float
    on_progress: Callable[[Progress], None] | None
    outcome: Outcome = field(default_factory=Outcome)

    def __post_init__(self) -> None:
        self._end = time.monotonic() + self.max_seconds
        self._random = np.random.default_rng()  # new every time: no run replays the prompts of another
        self._shapes: dict[int, prompts.Shape] = {}
        self._answer_tokens: dict[_Level, int] = {}
        self._most: dict[int, int] = {}  # context -> batch that the server runs together at most
        self._spent: tuple[float, float] | None = None  # seconds and cost of the last level

    @property
    def _left(self) -> float:
        return self._end - time.monotonic()

    async def all(self, url: str, model: str | None, api: str, key: str | None, out: Path | None) -> Outcome:
        async with Endpoint(url, api, key) as endpoint:
            try:
                async with asyncio.timeout(self._left):
                    served = await endpoint.served(model)
                    # The first request shows every fault that no later one would mend.
                    await endpoint.ask(served.model, prompts.Shape(8).text(self._random), _WARM_TOKENS)
            except TimeoutError:
                raise EndpointError(
                    "server",
                    Sentence("error.no_answer_within", url=f"{endpoint.url}", limit=f"{self.max_seconds:g}"),
                    "",
                    Sentence("error.allow_more"),
                ) from None
            known = _resume(out, served.model)
            self.outcome.points = list(known.values())
            await self._levels(endpoint, served, out, set(known))
        return self.outcome

    async def _levels(self, endpoint: Endpoint, served: Served, out: Path | None, known: set[str]) -> None:
        todo = [level for level in self.levels if level.label not in known]
        failed, last = 0, None
        for number, level in enumerate(todo):
            if not self._possible(level, served):
                continue
            self._tell(len(known) + number, todo[number:], level)
            if self._expected(level) > self._left:
                self._note(f"time was over before {level.label}; points not measured: {len(todo) - number}")
                return
            bursts: list[_Burst] = []
            try:
                async with asyncio.timeout(self._left):
                    began = time.monotonic()
                    await self._level(endpoint, served, level, bursts)
                    self._spent = (time.monotonic() - began, level.cost)
            except TimeoutError:
                self._keep(served, level, bursts, out)
                self._note(f"time was over in {level.label}; points not measured: {len(todo) - number - 1}")
                return
            except EndpointError as error:
                failed, last = failed + 1, error
                if self._gives_up(error, level, failed):
                    self.outcome.stopped = error
                    return
                continue
            failed = 0
            self._keep(served, level, bursts, out)
        self.outcome.stopped = last if last and not self.outcome.points else None
        self._tell(len(self.levels), [], None)

    def _possible(self, level: _Level, served: Served) -> bool:
        if served.max_context and level.context + _WARM_TOKENS > served.max_context:
            self._note(f"context {level.context:,} is beyond the server's {served.max_context:,}")
            return False
        return all(level.batch <= most for context, most in self._most.items() if level.context >= context)

    def _gives_up(self, error: EndpointError, level: _Level, failed: int) -> bool:
        if error.kind == "context":
            self._most[level.context] = 0
            self._note(f"context {level.context:,}: {error.problem}")
            return False
        self._note(f"{level.label}: {error.problem}")
        if error.kind == "rate":
            self._most[level.context] = min(level.batch - 1, self._most.get(level.context, level.batch))
            return failed >= _SKIPPED_LEVELS or not self.outcome.points
        return error.kind in ("refused", "key", "usage", "stream", "model", "path") or failed >= _SKIPPED_LEVELS

    def _note(self, text: str) -> None:
        if text not in self.outcome.notes:
            self.outcome.notes.append(text)

    def _expected(self, level: _Level) -> float:
        return 0.0 if self._spent is None else 0.7 * self._spent[0] * level.cost / self._spent[1]

    def _tell(self, done: int, rest: Sequence[_Level], level: _Level | None) -> None:
        if self.on_progress:
            left = min(sum(self._expected(one) for one in rest) if self._spent else self._left, self._left)
            self.on_progress(Progress(done, len(self.levels), max(0.0, left), level.label if level else "done"))

    def _keep(self, served: Served, level: _Level, bursts: Sequence[_Burst], out: Path | None) -> None:
        if bursts:
            point = _point(served, level, bursts, self.quantile)
            self.outcome.points.append(point)
            _append(out, point)

    async def _level(self, endpoint: Endpoint, served: Served, level: _Level, bursts: list[_Burst]) -> None:
        """Measure a level; bursts are added as they come, so that those of an interrupted level are not lost."""
        shape = await self._shape(endpoint, served, level.context)
        await self._burst(endpoint, served, prompts.Shape(min(16, shape.letters)), level.batch, _WARM_TOKENS)
        goal = self.repeats
        while len(bursts) < goal:
            began = time.perf_counter(), time.process_time()
            steps, answers = await self._measured(endpoint, served, shape, level)
            if steps is None:
                return
            bursts.append((steps, answers))
            self._watch_client(level, *began)
            found = [one.t_step_s for one, _ in bursts]
            if len(bursts) == goal == self.repeats > 1 and pstdev(found) > _SPREAD * mean(found):
                goal = self.repeats + 2

    def _watch_client(self, level: _Level, began: float, used: float) -> None:
        busy = (time.process_time() - used) / max(1e-9, time.perf_counter() - began)
        if busy > _BUSY_CLIENT:
            self._note(f"{level.label}: this client was busy {busy:.0%} of the time, so gaps may be its own")

    async def _shape(self, endpoint: Endpoint, served: Served, context: int) -> prompts.Shape:
        if context not in self._shapes:

            async def count(shape: prompts.Shape) -> int:
                (answer,) = await self._burst(endpoint, served, shape, 1, 1)
                return round(answer.stream.prompt_tokens)

            near = min(self._shapes.values(), key=lambda shape: abs(shape.tokens - context), default=None)
            self._shapes[context] = await prompts.fit(context, count, near)
        return self._shapes[context]

    async def _measured(
        self, endpoint: Endpoint, served: Served, shape: prompts.Shape, level: _Level
    ) -> tuple[streams.Steps | None, list[Answer]]:
        """Send a burst, again with a longer answer while too few steps were clean; None when the server runs fewer."""
        tokens = self._answer_tokens.get(level, _STEPS + _WARM_TOKENS)
        while True:
            answers = await self._burst(endpoint, served, shape, level.batch, tokens)
            seen = [answer.stream for answer in answers]
            found = {steps.batch: steps for steps in streams.clean_steps(seen, self.quantile)}
            own = found.get(level.batch)
            if not own and all(stream.output_tokens < tokens for stream in seen):
                return self._too_short(level, seen)
            last_first = max(float(stream.arrivals_s[0]) for stream in seen)
            if own and (own.count >= _ENOUGH or tokens >= _LONGEST_ANSWER):
                self._answer_tokens[level] = tokens
                return own, answers
            if min(stream.end_s for stream in seen) <= last_first and tokens > _STEPS + _WARM_TOKENS:
                self._limit(level, seen)
                return None, answers
            # Tokens that the first stream had when the last one got its first: that many more are needed.
            ahead = max(int(np.sum(stream.arrivals_s <= last_first)) for stream in seen)
            longer = min(_LONGEST_ANSWER, max(2 * tokens, ahead + _STEPS + _WARM_TOKENS))
            if longer <= tokens:
                return self._too_short(level, seen)
            tokens = longer

    def _too_short(self, level: _Level, seen: Sequence[streams.Stream]) -> tuple[None, list[Answer]]:
        shortest = min(stream.output_tokens for stream in seen)
        self._note(f"{level.label}: answers of {shortest:g} tokens were too short to see {level.batch} decode together")
        return None, []

    def _limit(self, level: _Level, seen: Sequence[streams.Stream]) -> None:
        first = np.array([stream.arrivals_s[0] for stream in seen])
        last = np.array([stream.end_s for stream in seen])
        most = max(int(np.sum((first <= when) & (last > when))) for when in first)
        self._most[level.context] = min(most, level.batch - 1)
        self._note(f"context {level.context:,}: the server decodes at most {most} together, the others wait")

    async def _burst(
        self, endpoint: Endpoint, served: Served, shape: prompts.Shape, batch: int, tokens: int
    ) -> list[Answer]:
        """Send a batch at once; once more when the server failed or asked to wait."""
        try:
            return await self._together(endpoint, served, shape, batch, tokens)
        except EndpointError as error:
            if error.kind not in ("server", "rate"):
                raise
            await asyncio.sleep(min(error.wait_s or 0.2, max(0.0, self._left)))
        return await self._together(endpoint, served, shape, batch, tokens)

    async def _together(
        self, endpoint: Endpoint, served: Served, shape: prompts.Shape, batch: int, tokens: int
    ) -> list[Answer]:
        texts = [shape.text(self._random) for _ in range(batch)]
        tasks = [asyncio.create_task(endpoint.ask(served.model, text, tokens)) for text in texts]
        try:
            return list(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def _point(served: Served, level: _Level, bursts: Sequence[_Burst], quantile: float) -> MeasuredPoint:
    statistic = "median" if quantile == 0.5 else f"quantile {quantile:g}"
    steps = [one for one, _ in bursts]
    answers = [answer for _, group in bursts for answer in group]
    seen = [answer.stream for answer in answers]
    times = [one.t_step_s for one in steps]
    ttfts = [float(stream.arrivals_s[0]) - stream.start_s for stream in seen]
    tpots = [
        (stream.end_s - float(stream.arrivals_s[0])) / (stream.output_tokens - 1)
        for stream in seen
        if stream.output_tokens > 1
    ]
    prompt = mean(stream.prompt_tokens for stream in seen)
    output = mean(stream.output_tokens for stream in seen)
    return MeasuredPoint(
        regime="decode",
        batch=level.batch,
        context=mean(one.context for one in steps),
        t_step_s=float(np.quantile(times, quantile)),
        tpot_s=median(tpots),
        tpot_mean_s=mean(tpots),
        ttft_s=median(ttfts),
        ttft_mean_s=mean(ttfts),
        concurrency=level.batch,
        isl=prompt,
        osl=output,
        completed=len(answers),
        samples=sum(one.count for one in steps),
        spread=pstdev(times) / mean(times) if len(times) > 1 else steps[0].spread,
        tokens_per_chunk=streams.tokens_per_chunk(seen),
        server_output_tokens=output,
        cached_share=mean(answer.cached_tokens for answer in answers) / prompt,
        statistic=statistic,
        arrival="burst",
        engine=served.engine,
        model=served.model,
        tool=TOOL,
        label=level.label,
        date=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        converted=(
            f"t_step = {statistic} of the gaps between tokens while all of the burst decoded, and of the bursts",
        ),
    )


def _resume(out: Path | None, model: str) -> dict[str, MeasuredPoint]:
    """Points of an interrupted run, by label."""
    if out is None or not out.exists() or not out.stat().st_size:
        return {}
    text = out.read_text(encoding="utf-8")
    if not text.endswith("\n"):
        # The run was killed while it wrote a line.
        out.write_text(text[: text.rfind("\n") + 1], encoding="utf-8")
    if len(out.read_text(encoding="utf-8").splitlines()) < 2:
        out.write_text("", encoding="utf-8")
        return {}
    points = read(out)
    other = next((point for point in points if point.tool != TOOL or point.model != model), None)
    if other:
        raise MeasurementError(
            Sentence("error.points_of_other", file=f"{out}", other=repr(other.model or other.tool), model=repr(model)),
            "",
            Sentence("error.other_out"),
        )
    return {point.label: point for point in points}


def _append(out: Path | None, point: MeasuredPoint) -> None:
    if out is None:
        return
    fresh = not out.exists() or not out.stat().st_size
    with out.open("a", encoding="utf-8", newline="") as file:
        writer = own_csv.start(file) if fresh else own_csv.more(file)
        writer.writerow(own_csv.row_of(point))
