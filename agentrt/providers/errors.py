"""What a vendor's refusal means: an error of ours, out of a reply or an event.

Pure: no I/O. A provider hands in what it got and raises what it gets back. It is
decided in this order: a code that means one thing, a wording, the HTTP status. Vague
codes never override a status, since vendors send `api_error` with a 401; only where
there is no status, inside of a stream, do they decide.

What each vendor says is data, in `ERROR_BY_CODE` and `WORDINGS`. Where it says so is
the business of `error_body`, which lies beneath.
"""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from attrs import field, frozen

from agentrt.core.errors import (
    AuthenticationError,
    ContextOverflowError,
    InvalidRequestError,
    ModelError,
    ModelTimeoutError,
    QuotaExceededError,
    RateLimitError,
    ServerError,
)
from agentrt.providers.error_body import (
    codes_of,
    loaded,
    message_of,
    retry_after_of,
    text_of_json,
)

__all__ = ["FailedReply", "error_from_event", "error_from_reply", "masked"]

MESSAGE_CHARACTERS: Final = 400

ERROR_BY_STATUS: Final[Mapping[int, type[ModelError]]] = {
    401: AuthenticationError,
    402: QuotaExceededError,
    403: AuthenticationError,
    408: ModelTimeoutError,
    409: ServerError,
    425: ServerError,
    429: RateLimitError,
}
"""The rest: 5xx is a `ServerError`, all else an `InvalidRequestError`."""

ERROR_BY_CODE: Final[Mapping[str, type[ModelError]]] = {
    code: error
    for error, codes in {
        AuthenticationError: (
            # OpenAI, Anthropic, Gemini, DashScope; Zhipu by number
            "invalid_api_key account_deactivated authentication_error permission_error "
            "api_key_invalid unauthenticated permission_denied invalidapikey "
            "1000 1001 1002 1003 1004 1311 1313 1314 1315"
        ),
        QuotaExceededError: (
            # Zhipu's numbers: balance, daily limit, plan, windows of time
            "insufficient_quota billing_hard_limit_reached billing_error "
            "exceeded_current_quota_error 30001 arrearage "
            "1113 1304 1308 1309 1310 1316 1317 1318 1319 1320 1321"
        ),
        RateLimitError: (
            "rate_limit_exceeded rate_limit_error resource_exhausted throttling "
            "ratelimitreached 1302 1303 1305"
        ),
        ContextOverflowError: "context_length_exceeded too_many_prompt_tokens "
        "too_many_tokens 1261",
        InvalidRequestError: (
            "model_not_found invalid_prompt content_policy_violation content_filter "
            "not_found_error failed_precondition not_found datainspectionfailed "
            "data_inspection_failed tool_use_failed "
            "1210 1211 1212 1213 1214 1215 1301"
        ),
        ModelTimeoutError: "timeout_error deadline_exceeded",
        ServerError: "overloaded_error unavailable internal 1200 1230 1234",
    }.items()
    for code in codes.split()
}
"""Codes that mean one thing wherever they stand. In lower case."""

ERROR_BY_VAGUE_CODE: Final[Mapping[str, type[ModelError]]] = {
    "invalid_request_error": InvalidRequestError,
    "invalid_argument": InvalidRequestError,
    "invalid-argument": InvalidRequestError,
    "request_too_large": InvalidRequestError,
    "badrequesterror": InvalidRequestError,
    "api_error": ServerError,
    "server_error": ServerError,
}
"""Used where no status says more."""

IN_STREAM: Final = 0
"""Stands for the status of an error that came inside of a 200."""

OVERFLOW: Final = (
    r"max(imum)? context length|context length exceeded|prompt (is )?too long"
    r"|context window.*(exceed|too)|(exceed|too).*context window|input is too long"
    r"|input token count.*exceeds the maximum|input length and .?max_tokens.? exceed"
    r"|length of all messages is too long|too many tokens: size limit"
    r"|reduce the length of the messages"
)

WORDINGS: Final[Sequence[tuple[Sequence[int], str, type[ModelError]]]] = (
    ((400, IN_STREAM), r"(incorrect|invalid) api key|api key not", AuthenticationError),
    ((400, 403, 429, IN_STREAM), r"credit balance is too low", QuotaExceededError),
    ((400, 422), r"max_(completion_)?tokens\W+must be at most", InvalidRequestError),
    ((400, 413, 422, IN_STREAM), OVERFLOW, ContextOverflowError),
    ((413,), r"\btokens?\b", ContextOverflowError),
    ((403,), r"moderation|flagged", InvalidRequestError),
    ((403,), r"quota|arrears|overdue|balance|欠费|余额", QuotaExceededError),
)  # fmt: skip
"""Statuses, a pattern in any case, and what it means. The first that fits is taken."""

DAILY_QUOTA: Final = re.compile(r"PerDay|free_tier[^\n]*?limit: 0\b", re.I)
"""Gemini says RESOURCE_EXHAUSTED for a minute's limit as for a day's."""

KEY_LIKE: Final = re.compile(
    r"\b(?:sk|gsk|xai|pplx)[-_][\w*.-]{6,}|\bAIza[\w*-]{10,}"
    r"|(?<=Bearer )[\w*.~+/=-]{6,}"
)


@frozen(kw_only=True)
class FailedReply:
    """A reply with a status that is no success."""

    status: int
    headers: Mapping[str, str] = field(factory=dict)
    """Names in lower case."""

    body: bytes = b""
    """As much of it as was read."""


def error_from_reply(
    reply: FailedReply,
    *,
    provider: str,
    secret: str = "",
    now: Callable[[], float] = time.time,
) -> ModelError:
    """The error that a reply means. `secret` is masked wherever it is echoed.

    `now` gives seconds since 1970; a `Retry-After` that is a date is counted from it.
    """
    text = reply.body.decode("utf-8", "replace")
    payload = loaded(text)
    message = message_of(payload, text) or "no word of explanation"
    request_id = reply.headers.get("x-request-id") or reply.headers.get("request-id")
    tail = f", request {request_id}" if request_id else ""
    error = _error_class(payload, message, reply.status)(
        f"{masked(message, secret)} (HTTP {reply.status} from {provider}{tail})",
        retry_after=retry_after_of(reply.headers, payload, message, now),
        status=reply.status,
        provider=provider,
    )
    wish = reply.headers.get("x-should-retry")
    if wish == "false" or (wish == "true" and type(error) is InvalidRequestError):
        # The class says what is usual; this vendor knows better for this one reply.
        error.retryable = wish == "true"
    return error


def error_from_event(payload: Any, *, provider: str, secret: str = "") -> ModelError:
    """The error that came inside of a 200: in a stream, or as a whole body.

    `payload` is parsed JSON, or text where it is no JSON.
    """
    text = payload if isinstance(payload, str) else ""
    payload = loaded(text) if text else payload
    message = message_of(payload, text) or "no word of explanation"
    return _error_class(payload, message, IN_STREAM)(
        f"{masked(message, secret)} (within the reply of {provider})",
        retry_after=retry_after_of({}, payload, message, time.time),
        provider=provider,
    )


def masked(text: str, secret: str = "") -> str:
    """One short line without the secret, nor what looks like a key."""
    if secret:
        text = text.replace(secret, "***")
    line = " ".join(KEY_LIKE.sub("***", text).split())
    if len(line) <= MESSAGE_CHARACTERS:
        return line
    return f"{line[:MESSAGE_CHARACTERS]}..."


def _error_class(payload: Any, message: str, status: int) -> type[ModelError]:
    codes = codes_of(payload)
    for code in codes:
        known = ERROR_BY_CODE.get(code) or ERROR_BY_CODE.get(code.partition(".")[0])
        if known is RateLimitError and DAILY_QUOTA.search(text_of_json(payload)):
            return QuotaExceededError
        if known is not None:
            return known
    status = status or _status_among(codes)
    for statuses, pattern, error in WORDINGS:
        if status in statuses and re.search(pattern, message, re.I | re.S):
            return error
    if status == IN_STREAM:
        vague = (ERROR_BY_VAGUE_CODE.get(code) for code in codes)
        return next((error for error in vague if error is not None), ServerError)
    usual = ServerError if status >= 500 else InvalidRequestError
    return ERROR_BY_STATUS.get(status, usual)


def _status_among(codes: Sequence[str]) -> int:
    """The HTTP status that a body names, as OpenRouter's do."""
    found = (int(code) for code in codes if re.fullmatch(r"[3-5]\d\d", code, re.A))
    return next(found, IN_STREAM)
