"""Every sentence and name that people read, in English and Korean, from one catalogue.

`data/strings/` holds a file per group (charts, the page, the report, each command) and a key per text; each key has
every language, with the same fields in braces. A group is read when it is first asked for.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Final, Self

from batchline.errors import BatchlineError, UnknownNameError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["LANGUAGES", "Sentence", "group", "keys", "renamed", "said", "said_parts", "text", "together", "told"]

LANGUAGES: Final = ("en", "ko")
"""Languages of the catalogue: English and Korean."""

_FOLDER = resources.files("batchline").joinpath("data/strings")


@cache
def _groups() -> list[str]:
    return sorted(file.name.removesuffix(".toml") for file in _FOLDER.iterdir())


@cache
def _group(name: str) -> dict[str, dict[str, str]]:
    import tomllib  # noqa: PLC0415  (who says nothing reads no catalogue)

    return tomllib.loads(_FOLDER.joinpath(f"{name}.toml").read_text(encoding="utf-8"))


def keys() -> list[str]:
    """Names of all texts.

    Returns
    -------
    list of str
        Like "chart.batch_axis", by group, in the order of its file.

    Examples
    --------
    >>> "chart.batch_axis" in keys()
    True
    """
    return [f"{group}.{name}" for group in _groups() for name in _group(group)]


def text(key: str, language: str = "en", **fields: str | float) -> str:
    """Look up a text and fill its fields.

    Parameters
    ----------
    key : str
        Group and name.
    language : str
        "en" or "ko".
    **fields : str or float
        What stands in the braces of the text.

    Returns
    -------
    str
        The text in that language.

    Raises
    ------
    UnknownNameError
        No such key, or no such language.

    Examples
    --------
    >>> text("chart.full_at", batch="267")
    'KV cache full at 267'
    >>> text("chart.full_at", "ko", batch="267")
    'KV 캐시 한도 267'
    """
    group, _, name = key.partition(".")
    if group not in _groups() or name not in _group(group):
        raise UnknownNameError("text", key, keys())
    if language not in LANGUAGES:
        raise UnknownNameError("language", language, LANGUAGES)
    return _group(group)[name][language].format(**fields)


def group(name: str, language: str) -> dict[str, str]:
    """Give all texts of a group, for a program of another language that fills them itself.

    Parameters
    ----------
    name : str
        File of the catalogue.
    language : str
        "en" or "ko".

    Returns
    -------
    dict
        Name -> text, with its fields still in braces.

    Examples
    --------
    >>> group("page", "en")["ui_listed"]
    '{count} of {all}'
    """
    return {key: entry[language] for key, entry in _group(name).items()}


class Sentence(str):
    """A text of the catalogue with its fields filled: an English string that can be told in another language too.

    Parameters
    ----------
    key : str
        Group and name.
    **fields : str
        What stands in the braces of the text; a sentence among them is told in the same language.

    Examples
    --------
    >>> full = Sentence("chart.full_at", batch="267")
    >>> full, full.told("ko")
    ('KV cache full at 267', 'KV 캐시 한도 267')
    """

    __slots__ = ("fields", "key")
    key: str
    fields: dict[str, str]

    def __new__(cls, key: str, **fields: str) -> Self:
        """Fill the English text."""
        made = super().__new__(cls, text(key, **fields))
        made.key, made.fields = key, fields
        return made

    def __getnewargs_ex__(self) -> tuple[tuple[str], dict[str, str]]:
        """Say how a copy is made."""
        return (self.key,), self.fields

    def told(self, language: str) -> str:
        """Say it in a language.

        Parameters
        ----------
        language : str
            "en" or "ko".

        Returns
        -------
        str
            The text.
        """
        return text(self.key, language, **{name: told(field, language) for name, field in self.fields.items()})


def renamed(words: str, old: str, new: str) -> str:
    """Put a name in place of another.

    Parameters
    ----------
    words : str
        A `Sentence`, whose fields are looked through, or other words.
    old, new : str
        The names.

    Returns
    -------
    str
        The same kind of words.

    Examples
    --------
    >>> renamed(Sentence("error.empty_file", name="/tmp/upload"), "/tmp/upload", "mine.csv").told("ko")
    'mine.csv: 비어 있습니다.'
    """
    if isinstance(words, Sentence):
        return Sentence(words.key, **{name: renamed(field, old, new) for name, field in words.fields.items()})
    return words.replace(old, new)


def together(words: Iterable[str], between: str = " ") -> str:
    """Put sentences one after the other into one.

    Parameters
    ----------
    words : iterable of str
        At least one `Sentence`, or other words.
    between : str
        What stands between two.

    Returns
    -------
    str
        All of them, to be told in any language.

    Examples
    --------
    >>> together([Sentence("error.one_or_more"), Sentence("error.whole_number")]).told("ko")
    '1 이상이어야 합니다. 정수여야 합니다.'
    """
    first, *rest = words
    for other in rest:
        first = Sentence("error.one_and_other", one=first, between=between, other=other)
    return first


def told(words: str, language: str) -> str:
    """Say a sentence in a language; other words stay as they are.

    Parameters
    ----------
    words : str
        A `Sentence`, or a name or number that is the same in every language.
    language : str
        "en" or "ko".

    Returns
    -------
    str
        The text.

    Examples
    --------
    >>> told(Sentence("chart.full_at", batch="267"), "ko"), told("fp8", "ko")
    ('KV 캐시 한도 267', 'fp8')
    """
    return words.told(language) if isinstance(words, Sentence) else words


def said_parts(error: BatchlineError, language: str) -> tuple[str, str, str]:
    """Say the three parts of an error: what was given, what is allowed, what to do next.

    Parameters
    ----------
    error : BatchlineError
        What was raised.
    language : str
        "en" or "ko"; parts that the catalogue does not have stay English.

    Returns
    -------
    tuple of str
        The parts; empty where there is none.

    Examples
    --------
    >>> said_parts(UnknownNameError("accelerator", "h10", ["h100", "l4"]), "ko")
    ("'h10': 그런 가속기 없음.", '비슷한 이름: h100.', '')
    """
    parts = [error.problem, error.allowed, error.hint]
    if isinstance(error, UnknownNameError):
        kind = f"kind_{re.sub('[^a-z]+', '_', error.kind.casefold())}"
        what = Sentence(f"error.{kind}") if kind in _group("error") else error.kind
        parts[0] = Sentence("error.unknown", kind=what, given=repr(error.given))
        if error.closest or error.known:
            names = ", ".join(error.closest or error.known)
            parts[1] = Sentence("error.closest" if error.closest else "error.known", names=names)
    problem, allowed, hint = (told(part, language) for part in parts)
    return problem, allowed, hint


def said(error: BatchlineError, language: str) -> str:
    """Say an error: what was given, what is allowed, what to do next.

    Parameters
    ----------
    error : BatchlineError
        What was raised.
    language : str
        As of `said_parts`.

    Returns
    -------
    str
        A paragraph.

    Examples
    --------
    >>> said(UnknownNameError("accelerator", "h10", ["h100", "l4"]), "ko")
    "'h10': 그런 가속기 없음. 비슷한 이름: h100."
    """
    return " ".join(part for part in said_parts(error, language) if part)
