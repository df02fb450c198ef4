"""The page's files, read once into memory: a name that is not among them does not exist, whatever dots it has."""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Final

from batchline.web.look import theme_css

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

__all__ = ["StaticFile", "static_files"]

_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "json": "application/json",
    "txt": "text/plain; charset=utf-8",
}


@dataclass(frozen=True)
class StaticFile:
    """A file of the page.

    Parameters
    ----------
    body, packed : bytes
        As it is, and with gzip.
    media_type : str
        What it is.
    tag : str
        Changes when the content does.
    """

    body: bytes
    packed: bytes
    media_type: str
    tag: str


def _walk(folder: Traversable, prefix: str = "") -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for entry in folder.iterdir():
        if entry.is_dir():
            found |= _walk(entry, f"{prefix}{entry.name}/")
        elif entry.name.rsplit(".", 1)[-1] in _TYPES:
            found[prefix + entry.name] = entry.read_bytes()
    return found


@cache
def static_files() -> dict[str, StaticFile]:
    """All files of the page by their address below its root.

    Returns
    -------
    dict
        Name -> file.
    """
    found = _walk(resources.files("batchline.web").joinpath("static"))
    found["theme.css"] = theme_css().encode()
    return {
        name: StaticFile(
            body=body,
            packed=gzip.compress(body, 6, mtime=0),
            media_type=_TYPES[name.rsplit(".", 1)[-1]],
            tag=f'"{hashlib.sha256(body).hexdigest()[:20]}"',
        )
        for name, body in found.items()
    }
