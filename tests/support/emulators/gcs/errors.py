"""Errors as Google words them: clients choose their exception by the status, some by the reason or message too."""

from __future__ import annotations

from support.emulators.common.messages import Answer, json_answer

_USUAL = {
    401: ("authError", "Invalid Credentials"),
    403: ("forbidden", "Anonymous caller does not have storage.objects.get access to the Google Cloud Storage object."),
    404: ("notFound", "Not Found"),
    409: ("conflict", "The request could not be completed due to a conflict."),
    412: ("conditionNotMet", "At least one of the pre-conditions you specified did not hold."),
    416: ("requestedRangeNotSatisfiable", "The requested range cannot be satisfied."),
    429: ("rateLimitExceeded", "The object exceeded the rate limit for object mutation operations."),
    500: ("backendError", "We encountered an internal error. Please try again."),
    503: ("backendError", "Backend Error"),
}


class GcsError(Exception):
    """Ends a request with this status."""

    def __init__(self, status: int, message: str | None = None, reason: str | None = None) -> None:
        usual_reason, usual_message = _USUAL.get(status, ("invalid", "Bad Request"))
        self.status = status
        self.reason = reason or usual_reason
        self.message = message or usual_message
        super().__init__(self.message)

    def answer(self) -> Answer:
        if self.status == 304:
            return Answer(304)
        detail = {"message": self.message, "domain": "global", "reason": self.reason}
        return json_answer({"error": {"code": self.status, "message": self.message, "errors": [detail]}}, self.status)


def no_such_bucket() -> GcsError:
    return GcsError(404, "The specified bucket does not exist.")


def no_such_object(bucket: str, name: str) -> GcsError:
    # gcsfs looks for exactly these words when it deletes.
    return GcsError(404, f"No such object: {bucket}/{name}")


def not_emulated(what: str) -> GcsError:
    # Not 501: clients would try again for half a minute before they show it.
    return GcsError(400, f"the emulator lacks {what}", "notImplemented")
