"""Load the event loop compiled by numba, or as it stands.

The loop (`_loop`) is plain Python on flat sequences and records. numba compiles it over NumPy arrays and structured
records; without numba the same source runs over lists and small objects, which Python indexes faster than arrays. Both
do the same operations on the same 64-bit numbers in the same order, so their results are equal to the last bit.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

_F = TypeVar("_F", bound="Callable[..., Any]")

_FOLDER = Path(__file__).with_name("_loop")

_loading_compiled = False


def has_numba() -> bool:
    """Whether the extra `fast` is installed; numba itself is not imported."""
    return importlib.util.find_spec("numba") is not None


def jit(function: _F) -> _F:
    """Compile a function of the loop, or leave it as it is: whichever `load` is loading."""
    return _compiled(function) if _loading_compiled else function


def inlined(function: _F) -> _F:
    """Compile a function into those that call it: its arguments, a dozen arrays, are then not passed at all."""
    return _compiled(function, forceinline=True) if _loading_compiled else function


def entry(function: _F) -> _F:
    """Compile a function that is called from outside, and keep the result, which holds all that it calls, on disk."""
    return _compiled(function, cache=True) if _loading_compiled else function


def _compiled(function: _F, **options: bool) -> _F:
    numba = importlib.import_module("numba")  # a second to import, and an extra
    # The loop allocates nothing, so it needs no reference counting; that is a third of its time.
    compiled: _F = numba.njit(nogil=True, error_model="numpy", _nrt=False, **options)(function)
    return compiled


@functools.cache
def load(*, compiled: bool) -> ModuleType:
    """Load the loop once for each way of running it.

    Parameters
    ----------
    compiled : bool
        Whether numba compiles it.

    Returns
    -------
    module
        `_loop`, compiled under a name of its own so that both can live in one process.
    """
    return _load_compiled() if compiled else importlib.import_module(f"{__package__}._loop")


def _load_compiled() -> ModuleType:
    global _loading_compiled  # noqa: PLW0603  (decorators run while modules are executed)
    name = f"{__package__}._loop_compiled"
    spec = importlib.util.spec_from_file_location(
        name, _FOLDER / "__init__.py", submodule_search_locations=[str(_FOLDER)]
    )
    if spec is None or spec.loader is None:
        raise ImportError(f"{name} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    config = importlib.import_module("numba").config
    kept = config.CACHE_DIR
    # numba compiles a function again when its own file has changed. It holds functions of other files, so what is
    # kept is filed under the content of all. Where nothing can be written numba takes a folder of the user.
    config.CACHE_DIR = str(Path(kept or _FOLDER / "__pycache__") / _digest())
    _loading_compiled = True
    try:
        spec.loader.exec_module(module)
    finally:
        _loading_compiled = False
        config.CACHE_DIR = kept
    return module


def _digest() -> str:
    sources = b"".join(path.read_bytes() for path in [Path(__file__), *sorted(_FOLDER.glob("*.py"))])
    return f"numba-{hashlib.sha256(sources).hexdigest()[:16]}"
