"""Errors as gRPC carries them: clients choose their exception by the code."""

from __future__ import annotations

import grpc


class RpcError(Exception):
    """Ends a call with this code."""

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        self.code = code
        self.message = message
        super().__init__(message)


def invalid(message: str) -> RpcError:
    return RpcError(grpc.StatusCode.INVALID_ARGUMENT, message)


def not_found(name: str) -> RpcError:
    return RpcError(grpc.StatusCode.NOT_FOUND, f"Resource '{name}' was not found")


def already_exists(name: str) -> RpcError:
    return RpcError(grpc.StatusCode.ALREADY_EXISTS, f"Resource '{name}' already exists")


def failed_precondition(message: str) -> RpcError:
    return RpcError(grpc.StatusCode.FAILED_PRECONDITION, message)


_USUAL = {
    "PERMISSION_DENIED": "Permission denied on resource project emulated, or it does not exist.",
    "RESOURCE_EXHAUSTED": "Quota exceeded for quota metric 'Requests' and limit 'Requests per minute per region'.",
    "UNAUTHENTICATED": "Request had invalid authentication credentials.",
    "UNAVAILABLE": "The service is currently unavailable.",
}


def usual(code: str) -> RpcError:
    """An error that a test has asked for, as Google words it."""
    return RpcError(grpc.StatusCode[code], _USUAL.get(code, "An error that was asked for."))
