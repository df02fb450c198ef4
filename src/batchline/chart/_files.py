"""A chart as a file: PNG, SVG, a web page that needs no network, or the Vega-Lite specification itself."""

from __future__ import annotations

import html
import json
import re
import struct
import zlib
from pathlib import Path
from typing import Any

from batchline.chart import theme as looks
from batchline.errors import InputError, MissingFactError
from batchline.strings import Sentence

__all__ = ["compiled", "save"]

_SUFFIXES = (".png", ".svg", ".html", ".json")


def _still(spec: Any) -> Any:
    """Leave out what only a pointer finds."""
    if isinstance(spec, dict):
        return {key: _still(value) for key, value in spec.items() if key != "hover"}
    if isinstance(spec, list):
        layers = [item for item in spec if not (isinstance(item, dict) and item.get("data") == {"name": "hover"})]
        return [_still(item) for item in layers]
    return spec


def compiled(chart: Any) -> dict[str, Any]:
    """Turn a chart into Vega, for a page that draws it with Vega alone and reads the pointer itself.

    A browser takes longer to translate six plots than to draw them.

    Parameters
    ----------
    chart : altair.Chart or dict
        What to draw.

    Returns
    -------
    dict
        A Vega specification without what only a pointer finds. Datasets and signals have the names of the chart's; the
        picture is described as one, not point by point.

    Examples
    --------
    >>> chart = {"data": {"name": "points"}, "datasets": {"points": []}, "mark": "line", "encoding": {}}
    >>> [data["name"] for data in compiled(chart)["data"]]
    ['points']
    """
    import vl_convert  # noqa: PLC0415  (30 MB, only for drawing)

    spec = _still(chart if isinstance(chart, dict) else chart.to_dict())
    vega: dict[str, Any] = vl_convert.vegalite_to_vega({**spec, "config": {**spec.get("config", {}), "aria": False}})
    return vega


def _check_hangul() -> None:
    """Refuse to draw Korean as empty boxes."""
    import vl_convert  # noqa: PLC0415  (30 MB, only for drawing)

    def drawn(letter: str) -> bytes:
        letters = f'<text x="2" y="24" font-size="24" font-family="sans-serif">{letter}</text>'
        svg = f'<svg xmlns="http://www.w3.org/2000/svg" width="30" height="30">{letters}</svg>'
        return bytes(vl_convert.svg_to_png(svg))

    if drawn("가") == drawn("힣"):
        raise MissingFactError(
            Sentence("error.no_korean_font"),
            "",
            Sentence("error.install_font"),
        )


def _page(spec: dict[str, Any]) -> str:
    import vl_convert  # noqa: PLC0415  (30 MB, only for drawing)

    meta = spec.get("usermeta", {})
    palette = looks.palette(meta.get("theme", "light"))
    script = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    title = next((p["value"] for p in spec.get("params", []) if p["name"] == "figure_title"), "Batchline")
    # A name with "</script>" in it must not end the script.
    body = json.dumps(spec, ensure_ascii=False).replace("<", "\\u003c")
    return f"""<!doctype html>
<html lang="{meta.get("language", "en")}">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html.escape(str(title))}</title>
<style>
body {{ margin: 0; overflow-x: auto; font-family: sans-serif }}
body {{ background: {palette["background"]}; color: {palette["text"]} }}
</style>
</head>
<body>
<div id="chart" role="img" aria-label="{html.escape(str(title), quote=True)}"></div>
<script type="module">
{script}
</script>
<script type="module">
const spec = {body};
const actions = {{ export: true, source: false, compiled: false, editor: false }};
window.vegaEmbed("#chart", spec, {{ renderer: "svg", actions }});
</script>
</body>
</html>
"""


def _own_ids(svg: str) -> str:
    """The same ids for the same picture, and others for another: the converter counts on from file to file."""
    found = dict.fromkeys(re.findall(r'(?<=id=")clip\d+(?=")', svg))
    own = zlib.crc32(re.sub(r"clip\d+", "clip", svg).encode())
    names = {name: f"clip{own:08x}-{i}" for i, name in enumerate(found)}
    return re.sub(r"clip\d+(?=[\")])", lambda match: names.get(match[0], match[0]), svg)


def _packed(png: bytes) -> bytes:
    """The same picture in a quarter of the bytes: the converter packs for speed."""
    chunks, at = [], 8
    while at < len(png):
        (length,) = struct.unpack(">I", png[at : at + 4])
        chunks.append((png[at + 4 : at + 8], png[at + 8 : at + 8 + length]))
        at += 12 + length
    pixels = zlib.compress(zlib.decompress(b"".join(body for kind, body in chunks if kind == b"IDAT")), 9)
    before = [chunk for chunk in chunks if chunk[0] not in (b"IDAT", b"IEND")]
    out = png[:8]
    for kind, body in [*before, (b"IDAT", pixels), (b"IEND", b"")]:
        out += struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    return out


def save(chart: Any, path: str | Path, *, scale: float = 2.0) -> Path:
    """Write a chart into a file.

    Parameters
    ----------
    chart : altair chart or dict
        What `six_plots`, `plot` or `breakdown` gave.
    path : str or Path
        Ends in .png, .svg, .html (a page that opens without a network) or .json (the Vega-Lite specification).
    scale : float
        Pixels of a PNG per pixel of the chart [-].

    Returns
    -------
    Path
        The file.

    Raises
    ------
    InputError
        The name ends in something else, or the file cannot be written.
    MissingFactError
        A PNG of a Korean chart on a machine without Korean letters.
    """
    target = Path(path)
    suffix = target.suffix.casefold()
    if suffix not in _SUFFIXES:
        raise InputError(
            Sentence("error.no_picture", given=repr(target.name)),
            Sentence("error.picture_ends", suffixes=", ".join(_SUFFIXES)),
        )
    spec = chart if isinstance(chart, dict) else chart.to_dict()
    korean = spec.get("usermeta", {}).get("language") == "ko"
    try:
        if suffix == ".json":
            target.write_text(json.dumps(spec, ensure_ascii=False) + "\n", encoding="utf-8")
        elif suffix == ".html":
            target.write_text(_page(spec), encoding="utf-8")
        else:
            import vl_convert  # noqa: PLC0415  (30 MB, only for drawing)

            still = _still(spec)
            if suffix == ".svg":
                target.write_text(_own_ids(vl_convert.vegalite_to_svg(still)), encoding="utf-8")
            else:
                if korean:
                    _check_hangul()
                target.write_bytes(_packed(vl_convert.vegalite_to_png(still, scale=scale)))
    except OSError as error:
        raise InputError(Sentence("error.not_written", given=repr(str(target)), reason=str(error.strerror))) from error
    return target
