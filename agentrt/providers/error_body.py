"""Where the body of a refusal says what is wrong: codes, words, and how long to wait.

Pure. Beneath `errors`, which judges what is found here. Every vendor has a form of its
own, and proxies answer with pages, so nothing is taken for granted.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC
from email.utils import parsedate_to_datetime
from math import isfinite
from typing import Any, Final

__all__ = ["codes_of", "loaded", "message_of", "retry_after_of", "text_of_json"]

RETRY_PHRASE: Final = re.compile(
    r"(?:try again|retry) in (?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+(?:\.\d+)?)(ms|s))?",
    re.I,
)


def loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def text_of_json(payload: Any) -> str:
    try:
        return json.dumps(payload, ensure_ascii=False, default=str)
    except RecursionError:  # writing goes a little deeper than reading
        return ""


def _first(payload: Any) -> Any:
    """Gemini's chat endpoint wraps an error in an array."""
    return payload[0] if isinstance(payload, list) and payload else payload


def _get(payload: Any, *path: str) -> Any:
    for key in path:
        payload = payload.get(key) if isinstance(payload, Mapping) else None
    return payload


def codes_of(payload: Any) -> Sequence[str]:
    """All codes of a body, in lower case, the most telling first."""
    payload = _first(payload)
    error = _get(payload, "error")
    details = _get(error, "details")
    upstream = _upstream(error)
    places = [
        error,
        *(details if isinstance(details, list) else ()),
        _get(error, "innererror"),
        payload,
        _get(upstream, "error"),
        upstream,
    ]
    values = [
        _get(place, key)
        for place in places
        for key in ("code", "type", "status", "reason")
    ]
    return [
        str(value).lower()
        for value in values
        if isinstance(value, str | int) and not isinstance(value, bool)
    ]


def _upstream(error: Any) -> Any:
    """What the vendor behind OpenRouter said: JSON, text, or None."""
    raw = _get(error, "metadata", "raw")
    parsed = loaded(raw) if isinstance(raw, str) else raw
    return raw if parsed is None else parsed


def message_of(payload: Any, text: str) -> str:
    """The words of a body; "" if it has none."""
    words = _words(_first(payload))
    nested = loaded(words) if words.startswith("{") else None
    words = _words(nested) or words
    upstream = _upstream(_get(_first(payload), "error"))
    if upstream is not None:
        more = upstream if isinstance(upstream, str) else _words(upstream)
        words = f"{words}: {more}" if words and more else words or more
    return words or _words_of_text(text)


def _words(payload: Any) -> str:
    if isinstance(payload, str):
        return payload.strip()
    errors = _get(payload, "errors")
    candidates = (
        _get(payload, "error", "message"),
        _get(payload, "error") if isinstance(_get(payload, "error"), str) else None,
        _get(payload, "message"),
        _words_of_detail(_get(payload, "detail")),
        _words_of_detail(errors),
        _get(payload, "msg"),
    )
    for found in candidates:
        words = (
            found if isinstance(found, str) else text_of_json(found) if found else ""
        )
        if words.strip():
            return words.strip()
    return ""


def _words_of_detail(detail: Any) -> Any:
    """A list of validation errors in a line: where, and what."""
    if not isinstance(detail, list):
        return detail
    lines = []
    for entry in detail:
        where = _get(entry, "loc")
        path = ".".join(map(str, where)) if isinstance(where, list) else ""
        what = _get(entry, "msg") or _get(entry, "message") or entry
        said = what if isinstance(what, str) else text_of_json(what)
        lines.append(f"{path}: {said}" if path else said)
    return "; ".join(lines)


def _words_of_text(text: str) -> str:
    title = re.search(r"<title[^>]*>(.*?)</title>", text, re.I | re.S)
    if title is not None:
        return title[1].strip()
    return "" if text.lstrip().startswith("<") else text.strip()[:200]


def retry_after_of(
    headers: Mapping[str, str], payload: Any, message: str, now: Callable[[], float]
) -> float | None:
    """Seconds to wait: the larger of the headers, else what the body says."""
    upstream = _get(_first(payload), "error", "metadata", "headers")
    found = _from_headers(headers, now)
    if found is None and isinstance(upstream, Mapping):
        lower = {str(key).lower(): str(value) for key, value in upstream.items()}
        found = _from_headers(lower, now)
    if found is None:
        found = _from_details(payload)
    return _from_phrase(message) if found is None else found


def _from_headers(headers: Mapping[str, str], now: Callable[[], float]) -> float | None:
    milliseconds = _number(headers.get("retry-after-ms", ""))
    after = headers.get("retry-after", "")
    seconds = _number(after)
    if seconds is None and after:
        seconds = _from_date(after, now)
    found = [
        None if milliseconds is None else milliseconds / 1000,
        seconds,
    ]
    known = [max(0.0, value) for value in found if value is not None]
    return max(known) if known else None


def _number(text: str) -> float | None:
    if not re.fullmatch(r"-?\d+(\.\d+)?", text.strip(), re.A):
        return None
    value = float(text)
    return value if isfinite(value) else None


def _from_date(text: str, now: Callable[[], float]) -> float | None:
    try:
        date = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    if date.tzinfo is None:
        date = date.replace(tzinfo=UTC)
    return date.timestamp() - now()


def _from_details(payload: Any) -> float | None:
    """Google's `RetryInfo`."""
    details = _get(_first(payload), "error", "details")
    for entry in details if isinstance(details, list) else ():
        delay = _get(entry, "retryDelay")
        if isinstance(delay, str) and delay.endswith("s"):
            return _number(delay[:-1])
    return None


def _from_phrase(message: str) -> float | None:
    """`try again in 1.5s`, `20ms` or `6m0s`."""
    match = RETRY_PHRASE.search(message)
    if match is None or not any(match.groups()):
        return None
    hours, minutes, amount, unit = match.groups()
    seconds = float(amount or 0) / (1000 if unit == "ms" else 1)
    return int(hours or 0) * 3600 + int(minutes or 0) * 60 + seconds
