"""Errors as S3 words them: botocore and s3fs choose their exception by the code in the body."""

from __future__ import annotations

from support.emulators.common.messages import Answer

_CODES = {
    401: ("InvalidToken", "The provided token is malformed or otherwise not valid."),
    403: ("AccessDenied", "Access Denied"),
    404: ("NoSuchKey", "The specified key does not exist."),
    409: ("ConditionalRequestConflict", "A conflicting operation occurred during the execution of this request."),
    412: ("PreconditionFailed", "At least one of the pre-conditions you specified did not hold"),
    429: ("TooManyRequests", "Please reduce your request rate."),
    500: ("InternalError", "We encountered an internal error. Please try again."),
    503: ("SlowDown", "Please reduce your request rate."),
}


def error(status: int, condition: str | None = None) -> Answer:
    code, message = _CODES.get(status, ("InternalError" if status >= 500 else "InvalidRequest", "Emulated error"))
    named = f"<Condition>{condition}</Condition>" if condition else ""
    body = (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f"<Error><Code>{code}</Code><Message>{message}</Message>{named}"
        "<RequestId>EMULATED</RequestId><HostId>emulated</HostId></Error>"
    )
    return Answer(status, body.encode(), {"Content-Type": "application/xml", "x-amz-request-id": "EMULATED"})
