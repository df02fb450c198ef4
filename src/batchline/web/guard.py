"""What every request passes: its host, its size, its time, the headers of the answer and a line in the log."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["HEADERS", "Guard", "Limits", "problem_body"]

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


def problem_body(problem: str, allowed: str = "", hint: str = "", **more: Any) -> bytes:
    """Body of an answer that is an error, like the command line's: what was given, what is allowed, what to do next."""
    return json.dumps({"problem": problem, "allowed": allowed, "hint": hint, **more}, ensure_ascii=False).encode()


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
                await _refuse(answer, *refused)
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
                await _refuse(answer, 413, *self._too_large())
        except TimeoutError:
            if not sent["status"]:
                limit = f"An answer may take {self._limits.seconds:g} s."
                await _refuse(answer, 503, "The question takes too long.", limit, "Ask for fewer points at a time.")

    def _refused(self, scope: Scope) -> tuple[int, str, str, str] | None:
        headers = dict(scope["headers"])
        host = headers.get(b"host", b"").decode("latin-1")
        name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
        hosts = self._limits.hosts
        if hosts and name.casefold() not in hosts:
            known = ", ".join(sorted(hosts))
            return 421, f"This server is not called {name!r}.", f"It is asked as {known}.", "Name it with --host."
        if len(scope["raw_path"]) + len(scope["query_string"]) > self._limits.address_bytes:
            return 414, "The address is too long.", f"Up to {self._limits.address_bytes:,} bytes.", "Send it as a body."
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or len(length) > 18:
            return 400, "The length of the request is no number.", "", ""
        if int(length) > self._limits.body_bytes:
            return (413, *self._too_large())
        return None

    def _too_large(self) -> tuple[str, str, str]:
        return (
            "The request is too large.",
            f"Up to {self._limits.body_bytes // 2**20} MiB.",
            "A config.json has a few kilobytes; split a long result file.",
        )

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


async def _refuse(send: Send, status: int, problem: str, allowed: str, hint: str) -> None:
    body = problem_body(problem, allowed, hint)
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if status == 413:
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def standard_error() -> TextIO:
    """Where the access log goes by default."""
    return sys.stderr
