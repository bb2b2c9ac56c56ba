"""Calls to Google's services: each with a deadline, retried for a while, and with an error that says what to do.

Google's own clients wait forever or give up at once, each method in its own way; here all behave alike. A call that is
repeated must be safe to repeat: those that create something carry an id that makes them so.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from marin_rules.clusters.protocol import BusyError, ClusterError, RefusedError

CALL_SECONDS = 20.0
"""How long one call may take."""

RETRY_SECONDS = 30.0
"""How long a call is retried; the caller retries after that, and says so."""

_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.5, 8.0

EMULATOR_VARIABLE = "BATCH_EMULATOR_HOST"
"""Where Batch is emulated, as `host:port`; named as Google names those of its other services."""

LOGIN = "gcloud auth application-default login"
"""What a person without credentials types."""

_NO_CLIENTS = "jobs on Google Cloud need Google's client libraries: pip install 'marin-rules[gcp]'"


class NotFoundError(RefusedError):
    """The requested object does not exist."""


class ExistsError(RefusedError):
    """The object to be created exists already."""


@dataclass(frozen=True)
class Calls:
    """Makes calls."""

    retry_seconds: float = RETRY_SECONDS
    call_seconds: float = CALL_SECONDS
    roles: str = (
        "batch.jobsEditor (for TPU slices tpu.admin, too, as their jobs do), and iam.serviceAccountUser for the account"
        " that jobs act as"
    )
    """The roles that the caller needs."""

    def __call__(
        self,
        what: str,
        call: Callable[..., Any],
        request: Any,
        before_another: Callable[[], None] = lambda: None,
        **options: Any,
    ) -> Any:
        """The answer to a request. Raises the errors of `clusters.protocol`, and the two above.

        `what` says what was to be done: "create job x". Before the call is repeated, `before_another` is called: by
        then the request may have been served already.
        """
        from google.api_core import exceptions, retry
        from google.auth.exceptions import GoogleAuthError

        passing = (
            exceptions.ServiceUnavailable,
            exceptions.TooManyRequests,
            exceptions.GatewayTimeout,
            exceptions.InternalServerError,
            exceptions.Aborted,
            # The connection was cut in the middle: whether the request was served is unknown.
            exceptions.Unknown,
            exceptions.Cancelled,
        )
        again = retry.Retry(
            predicate=retry.if_exception_type(*passing),
            initial=_FIRST_PAUSE_SECONDS,
            maximum=_LONGEST_PAUSE_SECONDS,
            timeout=self.retry_seconds,
            on_error=lambda error: before_another(),
        )
        try:
            return call(request=request, retry=again, timeout=self.call_seconds, **options)
        except exceptions.RetryError as error:
            raise BusyError(f"could not {what}: {_reason(error.cause)}") from error
        except passing as error:
            raise BusyError(f"could not {what}: {_reason(error)}") from error
        except exceptions.AlreadyExists as error:
            raise ExistsError(f"could not {what}: {_reason(error)}") from error
        except exceptions.NotFound as error:
            raise NotFoundError(f"could not {what}: {_reason(error)}") from error
        except (exceptions.Unauthenticated, GoogleAuthError) as error:
            raise RefusedError(
                f"could not {what}: Google does not recognize the caller ({_reason(error)}). Run `{LOGIN}`, or"
                " start the run on a machine with a service account"
            ) from error
        except exceptions.PermissionDenied as error:
            raise RefusedError(
                f"could not {what}: {_reason(error)} Whoever runs this needs the roles {self.roles}"
            ) from error
        except exceptions.ClientError as error:
            raise RefusedError(f"could not {what}: {_reason(error)}") from error
        except exceptions.GoogleAPICallError as error:
            raise ClusterError(f"could not {what}: {_reason(error)}") from error

    def pages(self, what: str, call: Callable[..., Any], request: Any, **options: Any) -> Iterator[Any]:
        """The pages of a list, each with a deadline and retries of its own."""
        while True:
            page = next(iter(self(what, call, request, **options).pages))
            yield page
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token


def _reason(error: BaseException | None) -> str:
    return str(getattr(error, "message", None) or error or "no answer").strip()


def open_batch_client() -> Any:
    """Google's client for Batch, over gRPC. Imported here, because it takes half a second."""

    def make() -> Any:
        from google.cloud import batch_v1

        address = os.environ.get(EMULATOR_VARIABLE)
        if not address:
            return batch_v1.BatchServiceClient()
        import grpc
        from google.cloud.batch_v1.services.batch_service.transports import BatchServiceGrpcTransport

        options = [("grpc.max_receive_message_length", -1)]  # As in Google's own channels.
        channel = grpc.insecure_channel(address, options=options)
        return batch_v1.BatchServiceClient(transport=BatchServiceGrpcTransport(channel=channel))

    return open_client(make)


def open_client(make: Callable[[], Any]) -> Any:
    """One of Google's clients, or an error that says what it lacks."""
    try:
        from google.auth.exceptions import DefaultCredentialsError
    except ImportError as error:
        raise RefusedError(_NO_CLIENTS) from error
    try:
        return make()
    except ImportError as error:
        raise RefusedError(_NO_CLIENTS) from error
    except DefaultCredentialsError as error:
        raise RefusedError(
            f"there are no credentials for Google Cloud here: run `{LOGIN}`, or start the run on a"
            " machine with a service account"
        ) from error
