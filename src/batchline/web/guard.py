"""What every request passes: its host, its size, its time, the headers of the answer and a line in the log."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TextIO

from batchline.errors import InputError
from batchline.strings import Sentence
from batchline.web.problem import language_of, problem_body

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["HEADERS", "Guard", "Limits"]

HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
        "font-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
"""Headers of every answer. Nothing is fetched from elsewhere, no script or style stands in the page itself."""


@dataclass(frozen=True)
class Limits:
    """Bounds of a request.

    Parameters
    ----------
    body_bytes : int
        Largest body [B].
    address_bytes : int
        Longest path and query [B].
    seconds : float
        Longest time for an answer [s].
    hosts : frozenset of str
        Names under which the server may be asked; empty for any. A page elsewhere that has its name point to this
        machine asks under its own name and is refused.
    """

    body_bytes: int = 8 * 2**20
    address_bytes: int = 16 * 2**10
    seconds: float = 30.0
    hosts: frozenset[str] = frozenset()


class _TooLargeError(Exception):
    """The body grew beyond its bound while it arrived."""


class Guard:
    """ASGI middleware around the whole application.

    Parameters
    ----------
    app : ASGI application
        What is guarded.
    limits : Limits
        Bounds.
    log : text stream or None
        Where a JSON line for each request goes; None for nowhere.
    """

    def __init__(self, app: ASGIApp, limits: Limits, log: TextIO | None = None) -> None:
        self._app = app
        self._limits = limits
        self._log = log
        self._headers = [(name.encode(), value.encode()) for name, value in HEADERS.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer why not."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, sent = time.perf_counter(), {"status": 0, "bytes": 0}

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                sent["status"] = message["status"]
                present = {name for name, _ in message.get("headers", [])}
                extra = [(name, value) for name, value in self._headers if name not in present]
                message = {**message, "headers": [*message.get("headers", []), *extra]}
            else:
                sent["bytes"] += len(message.get("body", b""))
            await send(message)

        try:
            refused = self._refused(scope)
            if refused:
                await _refuse(answer, scope, *refused)
            else:
                await self._pass(scope, receive, answer, sent)
        finally:
            self._note(scope, sent, time.perf_counter() - started)

    async def _pass(self, scope: Scope, receive: Receive, answer: Send, sent: dict[str, int]) -> None:
        most, seen = self._limits.body_bytes, 0

        async def bounded() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > most:
                raise _TooLargeError
            return message

        try:
            async with asyncio.timeout(self._limits.seconds):
                await self._app(scope, bounded, answer)
        except _TooLargeError:
            if not sent["status"]:
                await _refuse(answer, scope, 413, self._too_large())
        except TimeoutError:
            if not sent["status"]:
                limit = Sentence("serve.most_seconds", seconds=f"{self._limits.seconds:g}")
                slow = InputError(Sentence("serve.too_slow"), limit, Sentence("serve.ask_less"))
                await _refuse(answer, scope, 503, slow)

    def _refused(self, scope: Scope) -> tuple[int, InputError] | None:
        headers = dict(scope["headers"])
        host = headers.get(b"host", b"").decode("latin-1")
        name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
        hosts, most = self._limits.hosts, self._limits.address_bytes
        if hosts and name.casefold() not in hosts:
            known = Sentence("serve.known_hosts", names=", ".join(sorted(hosts)))
            return 421, InputError(Sentence("serve.other_host", name=repr(name)), known, Sentence("serve.name_host"))
        if len(scope["raw_path"]) + len(scope["query_string"]) > most:
            longest = Sentence("serve.most_bytes", bytes=f"{most:,}")
            return 414, InputError(Sentence("serve.long_address"), longest, Sentence("serve.send_body"))
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or len(length) > 18:
            return 400, InputError(Sentence("serve.no_length"))
        if int(length) > self._limits.body_bytes:
            return 413, self._too_large()
        return None

    def _too_large(self) -> InputError:
        most = Sentence("serve.most_mib", mib=f"{self._limits.body_bytes // 2**20}")
        return InputError(Sentence("serve.too_large"), most, Sentence("serve.split_file"))

    def _note(self, scope: Scope, sent: dict[str, int], seconds: float) -> None:
        if self._log is None:
            return
        client = scope.get("client")
        line = {
            "time": datetime.now(tz=UTC).isoformat(timespec="milliseconds"),
            "client": client[0] if client else None,
            "method": scope["method"],
            "path": scope["path"],
            "query": scope["query_string"].decode("latin-1"),
            "status": sent["status"],
            "bytes": sent["bytes"],
            "ms": round(seconds * 1e3, 2),
        }
        print(json.dumps(line), file=self._log, flush=True)


async def _refuse(send: Send, scope: Scope, status: int, error: InputError) -> None:
    body = problem_body(error, language_of(scope))
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if status == 413:
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def standard_error() -> TextIO:
    """Where the access log goes by default."""
    return sys.stderr
