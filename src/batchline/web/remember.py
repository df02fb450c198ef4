"""Answers that were given before: the same question costs nothing the second time."""

from __future__ import annotations

import threading
from collections import OrderedDict

__all__ = ["Remembered"]


class Remembered:
    """The answers used last, up to a number of bytes.

    Parameters
    ----------
    most_bytes : int
        Bytes kept; the answer that was not used for longest goes first [B].

    Examples
    --------
    >>> kept = Remembered(most_bytes=10)
    >>> kept.put(b"a", b"12345678"); kept.put(b"b", b"1234")
    >>> kept.get(b"a"), kept.get(b"b")
    (None, b'1234')
    """

    def __init__(self, most_bytes: int = 64 * 2**20) -> None:
        self._most = most_bytes
        self._held = 0
        self._lock = threading.Lock()
        self._answers: OrderedDict[bytes, bytes] = OrderedDict()

    def get(self, question: bytes) -> bytes | None:
        """Answer to a question, if it is still known."""
        with self._lock:
            answer = self._answers.get(question)
            if answer is not None:
                self._answers.move_to_end(question)
            return answer

    def put(self, question: bytes, answer: bytes) -> None:
        """Keep an answer."""
        if len(answer) > self._most:
            return
        with self._lock:
            self._held += len(answer) - len(self._answers.pop(question, b""))
            self._answers[question] = answer
            while self._held > self._most:
                self._held -= len(self._answers.popitem(last=False)[1])
