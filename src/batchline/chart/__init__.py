"""The article's six plots of a curve, and where the time of a step goes, as Vega-Lite.

`six_plots`, `plot` and `breakdown` give a Vega-Lite specification, a plain dictionary made through Altair
(`altair.Chart.from_dict` takes it); `save` writes it as PNG, SVG, offline HTML or JSON. All that changes from one
curve to another stands in named datasets and signals, which `data` gives alone: a page that has a chart on screen puts
another curve into it without drawing it anew.

    six, _breakdown   what is shown: the six plots, and the parts of a step
    story, _sample    what the plots of a curve share; its points on a grid
    scene, axis       a plot in numbers before it is drawn
    placement, _text  where labels go; how wide they will be
    vega              scenes as Vega-Lite
    theme             colours and fonts
    _files            a chart as a file
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from batchline.chart import _breakdown, six
from batchline.chart import theme as looks
from batchline.chart._files import compiled, save
from batchline.chart._text import wrapped
from batchline.chart.six import PLOTS
from batchline.chart.story import answer
from batchline.chart.theme import THEMES
from batchline.errors import UnknownNameError
from batchline.strings import LANGUAGES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from batchline.chart._sample import CurveLike
    from batchline.chart.story import Story

__all__ = ["BATCH_AXES", "PLOTS", "THEMES", "breakdown", "compiled", "data", "plot", "save", "six_plots"]

BATCH_AXES: Final = ("log", "linear")
"""Kinds of batch axis."""

_FIGURE_WIDTH = 3 * 420


def _check(kind: str, given: str, known: Iterable[str]) -> None:
    known = list(known)
    if given not in known:
        raise UnknownNameError(kind, given, known)


def _told(
    curve: CurveLike,
    batch_axis: str,
    language: str,
    batches: tuple[float, float] | None,
    measured: Sequence[Mapping[str, Any]],
    width: float = six.WIDTH,
) -> Story:
    _check("batch axis", batch_axis, BATCH_AXES)
    _check("language", language, LANGUAGES)
    return six.story_of(
        curve, batch_axis=batch_axis, language=language, batches=batches, measured=measured, width=width
    )


def _filled(story: Story, names: Iterable[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    datasets: dict[str, Any] = {"hover": six.hover(story)}
    signals: dict[str, Any] = {"figure_title": answer(story.curve, story.language)[0]}
    for scene in six.scenes(story, names):
        datasets |= scene.datasets()
        signals |= scene.signals()
    return datasets, signals


def six_plots(
    curve: CurveLike,
    *,
    batch_axis: str = "log",
    theme: str = "light",
    language: str = "en",
    batches: tuple[float, float] | None = None,
    measured: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Draw the article's six plots: latency above, cost below.

    Parameters
    ----------
    curve : CurveLike
        What `batchline.sweep.curve` gives; best over `batchline.sweep.plot_batches`.
    batch_axis : str
        "log" or "linear"; on a linear one the cost axis is linear too, as in the article.
    theme : str
        "light" or "dark".
    language : str
        "en" or "ko".
    batches : tuple of float, optional
        Ends of the batch axis; by default somewhat beyond the last batch that matters [sequence].
    measured : sequence of mapping
        Measured points to show: `batch` [sequence] and `t_step_s` [s].

    Returns
    -------
    dict
        A Vega-Lite specification.

    Raises
    ------
    UnknownNameError
        No such axis, theme or language.

    Examples
    --------
    >>> from batchline import sweep
    >>> from batchline.deployment import Deployment
    >>> spec = six_plots(sweep.curve(Deployment.of("llama-3.1-8b", "h100"), context=2048))
    >>> len(spec["concat"]), "p13_lines" in spec["datasets"]
    (6, True)
    """
    from batchline.chart import vega  # noqa: PLC0415  (Altair)

    _check("theme", theme, THEMES)
    story = _told(curve, batch_axis, language, batches, measured)
    datasets, signals = _filled(story, PLOTS)
    plots = [vega.drawing(scene, theme=theme, language=language) for scene in six.scenes(story)]
    lines = [line for text in answer(curve, language)[1] for line in wrapped(text, 15, _FIGURE_WIDTH)]
    drawn = vega.figure(plots, 3, lines)
    return vega.finished(drawn, datasets=datasets, signals=signals, theme=theme, language=language)


def plot(
    curve: CurveLike,
    name: str,
    *,
    batch_axis: str = "log",
    theme: str = "light",
    language: str = "en",
    batches: tuple[float, float] | None = None,
    measured: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Draw one of the six plots.

    Parameters
    ----------
    curve : CurveLike
        What `batchline.sweep.curve` gives.
    name : str
        The article's number: "1.1", "1.2", "1.3", "2.1", "2.2" or "2.3".
    batch_axis, theme, language, batches, measured
        As in `six_plots`.

    Returns
    -------
    dict
        A Vega-Lite specification.

    Raises
    ------
    UnknownNameError
        No such plot, axis, theme or language.

    Examples
    --------
    >>> from batchline import sweep
    >>> from batchline.deployment import Deployment
    >>> spec = plot(sweep.curve(Deployment.of("llama-3.1-8b", "h100"), context=2048), "2.3")
    >>> spec["width"], spec["height"]
    (330.0, 240.0)
    """
    from batchline.chart import vega  # noqa: PLC0415  (Altair)

    _check("plot", name, PLOTS)
    _check("theme", theme, THEMES)
    story = _told(curve, batch_axis, language, batches, measured)
    datasets, signals = _filled(story, [name])
    (scene,) = six.scenes(story, [name])
    drawn = vega.drawing(scene, theme=theme, language=language)
    return vega.finished(drawn, datasets=datasets, signals=signals, theme=theme, language=language)


def breakdown(
    curve: CurveLike,
    *,
    batch_axis: str = "log",
    theme: str = "light",
    language: str = "en",
    batches: tuple[float, float] | None = None,
    narrow: bool = False,
) -> dict[str, Any]:
    """Draw where the time of a step goes: the share of each part over the batch.

    A prediction has parts that add up. In the bound weights and KV fill the step, and where compute is longer, what it
    takes beyond them.

    Parameters
    ----------
    curve : CurveLike
        What `batchline.sweep.curve` gives.
    batch_axis, theme, language, batches
        As in `six_plots`.
    narrow : bool
        For a phone.

    Returns
    -------
    dict
        A Vega-Lite specification.

    Raises
    ------
    UnknownNameError
        No such axis, theme or language.

    Examples
    --------
    >>> from batchline import sweep
    >>> from batchline.deployment import Deployment
    >>> spec = breakdown(sweep.curve(Deployment.of("llama-3.1-8b", "h100"), context=2048))
    >>> sorted({row["role"] for row in spec["datasets"]["breakdown_parts"]})
    ['kv', 'weights']
    """
    from batchline.chart import vega  # noqa: PLC0415  (Altair)

    _check("theme", theme, THEMES)
    width = _breakdown.NARROW if narrow else _breakdown.WIDTH
    story = _told(curve, batch_axis, language, batches, (), width)
    found = _breakdown.breakdown(story, looks.palette(theme))
    drawn = vega.stack(found, story.x, theme=theme, language=language)
    return vega.finished(drawn, datasets=found.datasets, signals=found.signals, theme=theme, language=language)


def data(
    curve: CurveLike,
    names: Iterable[str] = PLOTS,
    *,
    batch_axis: str = "log",
    language: str = "en",
    batches: tuple[float, float] | None = None,
    measured: Sequence[Mapping[str, Any]] = (),
) -> dict[str, dict[str, Any]]:
    """Give the datasets and signals alone that put a curve into a chart that is already drawn.

    Parameters
    ----------
    curve : CurveLike
        Of the same reading, and with a price if the drawn one has a price.
    names : iterable of str
        Plots that are drawn.
    batch_axis, language, batches, measured
        As in `six_plots`.

    Returns
    -------
    dict
        `datasets` for `view.data(name, rows)` and `signals` for `view.signal(name, value)`.

    Raises
    ------
    UnknownNameError
        No such plot, axis or language.

    Examples
    --------
    >>> from batchline import sweep
    >>> from batchline.deployment import Deployment
    >>> found = data(sweep.curve(Deployment.of("llama-3.1-8b", "h100"), context=2048), ["1.3"])
    >>> sorted(found), found["signals"]["p13_y_low"]
    (['datasets', 'signals'], 0.0)
    """
    names = list(names)
    for name in names:
        _check("plot", name, PLOTS)
    datasets, signals = _filled(_told(curve, batch_axis, language, batches, measured), names)
    return {"datasets": datasets, "signals": signals}
