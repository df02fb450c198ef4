"""Metrics in Prometheus text, from a server's /metrics, from a file, or from a Prometheus server's query API."""

from __future__ import annotations

import math
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit, urlunsplit

from batchline.errors import MeasurementError
from batchline.strings import Sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

__all__ = ["Snapshot", "is_metrics", "load", "parse", "query", "series_names", "watch"]

_SAMPLE: Final = re.compile(r"([a-zA-Z_:][\w:]*)\s*(?:\{(.*)\})?\s+(\S+)(?:\s+-?\d+)?\s*")
_LABEL: Final = re.compile(r'\s*([a-zA-Z_]\w*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)')
# Some collectors write the colon of vLLM, SGLang and llama.cpp as an underscore.
_COLON: Final = re.compile(r"^(vllm|sglang|llamacpp)_")
# One engine counts once, whatever the number of ranks that repeat its figures.
_RANKS: Final = frozenset({"tp_rank", "pp_rank", "moe_ep_rank", "ep_rank", "pid", "worker_rank"})
_TIMEOUT_S: Final = 10.0
_LOST: Final = 3

Series = tuple[tuple[tuple[str, str], ...], float]


@dataclass(frozen=True)
class Snapshot:
    """All metrics at one moment.

    Parameters
    ----------
    at_s : float
        When, on any clock [s].
    series : mapping
        Metric name to its series: labels and value.
    """

    at_s: float
    series: Mapping[str, tuple[Series, ...]]

    def values(self, name: str, label: str = "", value: str = "", model: str | None = None) -> list[float]:
        """Values of a metric, one for each engine.

        Parameters
        ----------
        name : str
            Metric.
        label, value : str
            Only series with this label.
        model : str, optional
            Only series of this model; series that name no model count too.

        Returns
        -------
        list of float
            Empty when there is none.
        """
        found: dict[tuple[tuple[str, str], ...], float] = {}
        for labels, number in self.series.get(name, ()):
            named = dict(labels)
            if label and named.get(label) != value:
                continue
            if model is not None and named.get("model_name", named.get("model", model)) != model:
                continue
            engine = tuple(pair for pair in labels if pair[0] not in _RANKS)
            found[engine] = max(found.get(engine, -math.inf), number)
        return list(found.values())

    def label(self, name: str, label: str) -> list[str]:
        """Values of a label over the series of a metric."""
        return [dict(labels)[label] for labels, _ in self.series.get(name, ()) if label in dict(labels)]


def is_metrics(text: str) -> bool:
    r"""Whether a text holds metrics in Prometheus' format.

    Parameters
    ----------
    text : str
        Beginning of a file.

    Returns
    -------
    bool
        True when its first lines are comments or samples of it.

    Examples
    --------
    >>> is_metrics("# TYPE a counter\na 1\n"), is_metrics("hello there\n")
    (True, False)
    """
    lines = [line for line in text.splitlines()[:20] if line.strip()]
    return bool(lines) and all(
        re.match(r"#\s*(HELP|TYPE|UNIT|EOF)", line) or (_SAMPLE.fullmatch(line) and _is_number(line)) for line in lines
    )


def _is_number(line: str) -> bool:
    match = _SAMPLE.fullmatch(line)
    try:
        return match is not None and not math.isinf(float(match[3]) * 0)
    except ValueError:
        return False


def parse(text: str, at_s: float = 0.0, source: str = "metrics") -> Snapshot:
    """Read metrics in Prometheus text.

    Parameters
    ----------
    text : str
        What /metrics answers.
    at_s : float
        When it was taken [s].
    source : str
        Name for messages.

    Returns
    -------
    Snapshot
        Every series.

    Raises
    ------
    MeasurementError
        A line is no sample; it is named.

    Examples
    --------
    >>> parse('vllm:num_requests_running{engine="0"} 3').values("vllm:num_requests_running")
    [3.0]
    """
    found: dict[str, list[Series]] = {}
    for number, line in enumerate(text.split("\n"), 1):
        line = line.strip()  # noqa: PLW2901
        if not line or line.startswith("#"):
            continue
        match = _SAMPLE.fullmatch(line)
        try:
            value = float(match[3]) if match else math.nan
        except ValueError:
            match = None
        if match is None:
            raise MeasurementError(
                Sentence("error.no_metric", source=source, number=f"{number}", given=repr(line[:60])),
                Sentence("error.prometheus_text"),
            )
        labels = _labels(match[2] or "", source, number)
        found.setdefault(_COLON.sub(r"\1:", match[1]), []).append((labels, value))
    return Snapshot(at_s, {name: tuple(series) for name, series in found.items()})


def _labels(text: str, source: str, number: int) -> tuple[tuple[str, str], ...]:
    pairs, place = [], 0
    while place < len(text.rstrip().rstrip(",")):
        match = _LABEL.match(text, place)
        if match is None:
            raise MeasurementError(
                Sentence("error.no_labels", source=source, number=f"{number}", given=repr(text[:60]))
            )
        pairs.append((match[1], match[2].replace('\\"', '"').replace("\\n", "\n").replace("\\\\", "\\")))
        place = match.end()
    return tuple(sorted(pairs))


def load(path: str | Path, at_s: float = 0.0) -> Snapshot:
    """Read a saved scrape.

    Parameters
    ----------
    path : str or Path
        File with what /metrics answered.
    at_s : float
        When it was taken, on the clock of the other files [s].

    Returns
    -------
    Snapshot
        Every series.

    Raises
    ------
    MeasurementError
        It cannot be read or is no Prometheus text.
    """
    path = Path(path)
    try:
        return parse(path.read_text(encoding="utf-8"), at_s, path.name)
    except OSError as error:
        raise MeasurementError(Sentence("error.unreadable", path=f"{path}", reason=f"{error.strerror}")) from None
    except UnicodeDecodeError:
        raise MeasurementError(Sentence("error.no_text", path=f"{path}")) from None


def watch(
    url: str,
    seconds: float,
    *,
    every_s: float = 1.0,
    key: str | None = None,
    on_snapshot: Callable[[int, float], None] | None = None,
) -> list[Snapshot]:
    """Scrape /metrics again and again.

    Parameters
    ----------
    url : str
        Address of the metrics.
    seconds : float
        How long [s].
    every_s : float
        Time between two scrapes [s].
    key : str, optional
        Bearer key.
    on_snapshot : callable, optional
        Is called with the number of scrapes and the time left [s].

    Returns
    -------
    list of Snapshot
        At least two.

    Raises
    ------
    MeasurementError
        Nobody answers, there are no metrics, or the server went away before the second scrape.
    """
    import httpx  # noqa: PLC0415 - only this command needs it

    found: list[Snapshot] = []
    lost = 0
    with httpx.Client(timeout=_TIMEOUT_S, headers={"Authorization": f"Bearer {key}"} if key else {}) as client:
        end = time.monotonic() + seconds
        while True:
            began = time.monotonic()
            try:
                found.append(_scrape(client, url))
                lost = 0
            except (httpx.HTTPError, MeasurementError) as error:
                lost += 1
                if not found or lost >= _LOST:
                    if len(found) > 1:
                        return found
                    raise _unreachable(url, error) from None
            if on_snapshot:
                on_snapshot(len(found), max(0.0, end - time.monotonic()))
            if time.monotonic() >= end and len(found) > 1:
                return found
            time.sleep(max(0.0, min(every_s - (time.monotonic() - began), max(end - time.monotonic(), 0.05))))


def _scrape(client: Any, url: str) -> Snapshot:
    response = client.get(url)
    if response.status_code != 200:
        hints = {
            404: Sentence("error.enable_metrics"),
            401: Sentence("error.set_key", names="BATCHLINE_API_KEY"),
        }
        raise MeasurementError(
            Sentence("error.answered", url=url, status=f"{response.status_code}"),
            "",
            hints.get(response.status_code, ""),
        )
    if not is_metrics(response.text):
        raise MeasurementError(Sentence("error.no_metrics_text", url=url), "", Sentence("error.ends_in_metrics"))
    return parse(response.text, time.monotonic(), url)


def _unreachable(url: str, error: Exception) -> MeasurementError:
    if isinstance(error, MeasurementError):
        return error
    return MeasurementError(
        Sentence("error.nobody_answers", url=url, reason=f"{error}"), "", Sentence("error.server_up")
    )


def query(
    url: str, names: Iterable[str], seconds: float, *, every_s: float = 5.0, key: str | None = None
) -> list[Snapshot]:
    """Take the last minutes of metrics from a Prometheus server.

    Parameters
    ----------
    url : str
        Address of the Prometheus server, with or without /api/v1/query.
    names : iterable of str
        Metrics to ask for.
    seconds : float
        How far back [s].
    every_s : float
        Time between two points [s].
    key : str, optional
        Bearer key.

    Returns
    -------
    list of Snapshot
        By time.

    Raises
    ------
    MeasurementError
        Nobody answers, it is no Prometheus, or it has none of these metrics.
    """
    import httpx  # noqa: PLC0415 - only this command needs it

    parts = urlsplit(url)
    path = re.sub(r"/(?:api/v1(?:/query(?:_range)?)?)?/?$", "", parts.path)
    base = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], f"{path}/api/v1/query_range", "", ""))
    now = time.time()
    wanted = "|".join(sorted({re.sub("^(vllm|sglang|llamacpp):", r"\1[:_]", name) for name in names}))
    asked = {
        "query": f'{{__name__=~"({wanted})(_sum|_count|_bucket)?"}}',
        "start": f"{now - seconds:.3f}",
        "end": f"{now:.3f}",
        "step": f"{every_s:g}",
    }
    try:
        with httpx.Client(timeout=_TIMEOUT_S, headers={"Authorization": f"Bearer {key}"} if key else {}) as client:
            response = client.post(base, data=asked)
            answer = response.json()
    except httpx.HTTPError as error:
        raise _unreachable(base, error) from None
    except ValueError:
        raise MeasurementError(
            Sentence("error.answered_no_json", url=base, status=f"{response.status_code}"),
            "",
            Sentence("error.is_prometheus"),
        ) from None
    if not isinstance(answer, dict) or answer.get("status") != "success":
        said = answer.get("error", "") if isinstance(answer, dict) else ""
        raise MeasurementError(
            Sentence("error.answered_saying", url=base, status=f"{response.status_code}", said=str(said)[:200] or "?"),
            "",
            Sentence("error.is_prometheus"),
        )
    return _matrix(answer, base)


def _matrix(answer: Mapping[str, Any], source: str) -> list[Snapshot]:
    moments: dict[float, dict[str, list[Series]]] = {}
    try:
        for series in answer["data"]["result"]:
            labels = tuple(
                sorted((str(key), str(value)) for key, value in series["metric"].items() if key != "__name__")
            )
            name = _COLON.sub(r"\1:", series["metric"]["__name__"])
            for at, value in series["values"]:
                moments.setdefault(float(at), {}).setdefault(name, []).append((labels, float(value)))
    except (KeyError, TypeError, ValueError) as error:
        raise MeasurementError(
            Sentence("error.prometheus_unreadable", source=source, reason=repr(error)),
            Sentence("error.matrix_expected"),
        ) from None
    if not moments:
        raise MeasurementError(
            Sentence("error.no_engine_metrics", source=source),
            "",
            Sentence("error.scrape_longer"),
        )
    return [Snapshot(at, {name: tuple(found) for name, found in moments[at].items()}) for at in sorted(moments)]


def series_names(snapshots: Sequence[Snapshot]) -> set[str]:
    """Names of all metrics that were seen."""
    return {name for snapshot in snapshots for name in snapshot.series}
