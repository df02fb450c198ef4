"""Errors as the API says them: in the language that was asked for, with fields where the command line has options."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from batchline.errors import InputError
from batchline.strings import LANGUAGES, Sentence, said_parts

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from batchline.errors import BatchlineError

__all__ = ["fields_of", "language_of", "problem_body", "validation_error", "with_fields"]

_OPTION: Final = re.compile(r"(?<![\w-])--([a-z][a-z0-9-]*)")


def fields_of(words: str) -> list[str]:
    """Fields that a sentence of the command line speaks of.

    Parameters
    ----------
    words : str
        With options in it.

    Returns
    -------
    list of str
        Their names.

    Examples
    --------
    >>> fields_of("Use a smaller format (--weights, --kv).")
    ['weights', 'kv']
    """
    return [name.replace("-", "_") for name in _OPTION.findall(words)]


def with_fields(words: str, fields: Collection[str]) -> str:
    """Name fields in place of options.

    Parameters
    ----------
    words : str
        A sentence of the command line.
    fields : collection of str
        Names of fields; options of other programs stay.

    Returns
    -------
    str
        The same with fields between backticks, where the page puts its labels.

    Examples
    --------
    >>> with_fields("Use a longer --step-limit, or run AIPerf with --streaming.", {"step_limit"})
    'Use a longer `step_limit`, or run AIPerf with --streaming.'
    """

    def named(option: re.Match[str]) -> str:
        field = option[1].replace("-", "_")
        return f"`{field}`" if field in fields else option[0]

    return _OPTION.sub(named, words)


def language_of(scope: Mapping[str, Any]) -> str:
    """Language that a request asks for: `language` in its address, else Accept-Language, else English.

    Parameters
    ----------
    scope : mapping
        As of ASGI.

    Returns
    -------
    str
        "en" or "ko".

    Examples
    --------
    >>> language_of({"query_string": b"", "headers": [(b"accept-language", b"fr, ko-KR;q=0.8, en;q=0.5")]})
    'ko'
    """
    asked = re.search(rb"(?:^|&)language=([a-z]+)", scope["query_string"])
    if asked and asked[1].decode() in LANGUAGES:
        return asked[1].decode()
    header = dict(scope["headers"]).get(b"accept-language", b"").decode("latin-1").casefold()
    wanted = []
    for part in header.split(","):
        tag, _, quality = part.partition(";q=")
        name = tag.strip().partition("-")[0]
        if name in LANGUAGES:
            wanted.append((-float(quality) if re.fullmatch(r"[01](\.\d{1,3})?", quality.strip()) else -1.0, name))
    return min(wanted, key=lambda one: one[0])[1] if wanted else LANGUAGES[0]


def problem_body(error: BatchlineError, language: str, fields: Collection[str] = (), **more: Any) -> bytes:
    """Body of an answer that is an error, like the command line's: what was given, what is allowed, what to do next.

    Parameters
    ----------
    error : BatchlineError
        What was raised.
    language : str
        "en" or "ko".
    fields : collection of str
        Names of fields, which stand in place of options.
    **more
        Further keys.

    Returns
    -------
    bytes
        JSON.
    """
    problem, allowed, hint = (with_fields(part, fields) for part in said_parts(error, language))
    record = {"problem": problem, "allowed": allowed, "hint": hint, **more}
    return json.dumps(record, ensure_ascii=False).encode()


_LIMITS: Final = {
    "greater_than_equal": ("field_at_least", "from_limit", "ge"),
    "greater_than": ("field_at_least", "above_limit", "gt"),
    "less_than_equal": ("field_at_most", "to_limit", "le"),
    "less_than": ("field_at_most", "below_limit", "lt"),
    "string_too_long": ("field_too_long", "to_limit", "max_length"),
    "string_too_short": ("field_too_short", "from_limit", "min_length"),
    "too_short": ("field_too_short", "from_limit", "min_length"),
    "too_long": ("field_too_long", "to_limit", "max_length"),
}
_KINDS: Final = {
    "missing": "field_missing",
    "extra_forbidden": "field_unknown",
    "int_parsing": "field_no_whole",
    "int_type": "field_no_whole",
    "int_from_float": "field_no_whole",
    "float_parsing": "field_no_number",
    "float_type": "field_no_number",
    "finite_number": "field_no_number",
    "string_type": "field_no_text",
    "literal_error": "field_no_choice",
}
_LONGEST = 60
"""Characters of a value that are shown again."""


def validation_error(found: Mapping[str, Any]) -> tuple[InputError, str]:
    """Say what pydantic found as one of our errors.

    Parameters
    ----------
    found : mapping
        One of its errors.

    Returns
    -------
    tuple of InputError and str
        The error, and the field at fault.

    Examples
    --------
    >>> found = {"type": "less_than", "loc": ("body", "question", "margin"), "input": 2, "ctx": {"lt": 1.0}, "msg": ""}
    >>> error, field = validation_error(found)
    >>> print(error)
    margin: 2 is more than allowed. Less than 1.
    """
    field = ".".join(str(part) for part in found["loc"] if part not in ("body", "query", "question"))[:100]
    kind, message = str(found["type"]), str(found["msg"])
    hint = Sentence("serve.see_fields")
    if not field:
        return InputError(Sentence("serve.no_request", message=message), "", hint), field
    given = str(found.get("input"))
    shown = {"field": field, "given": given if len(given) <= _LONGEST else f"{given[:_LONGEST]}..."}
    if kind in _LIMITS:
        problem, limit, name = _LIMITS[kind]
        allowed = Sentence(f"serve.{limit}", limit=f"{found['ctx'][name]:,}".removesuffix(".0"))
        return InputError(Sentence(f"serve.{problem}", **shown), allowed), field
    if kind == "literal_error":
        names = ", ".join(re.findall(r"'([^']*)'", str(found["ctx"]["expected"])))
        allowed = Sentence("error.known", names=names)
        return InputError(Sentence("serve.field_no_choice", **shown), allowed), field
    if kind in _KINDS:
        return InputError(Sentence(f"serve.{_KINDS[kind]}", **shown), "", hint), field
    return InputError(Sentence("serve.field_other", field=field, message=message), "", hint), field
