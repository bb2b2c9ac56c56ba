"""Google's own clients, as tests need them."""

from __future__ import annotations

from google.cloud.batch_v1 import BatchServiceClient
from google.cloud.batch_v1.services.batch_service.transports import BatchServiceGrpcTransport
from google.cloud.logging_v2.services.logging_service_v2 import LoggingServiceV2Client
from google.cloud.logging_v2.services.logging_service_v2.transports import LoggingServiceV2GrpcTransport

from support.emulators.batch.emulator import BatchEmulator


def batch_client(emulator: BatchEmulator) -> BatchServiceClient:
    return BatchServiceClient(transport=BatchServiceGrpcTransport(channel=emulator.open_channel()))


def logging_client(emulator: BatchEmulator) -> LoggingServiceV2Client:
    return LoggingServiceV2Client(transport=LoggingServiceV2GrpcTransport(channel=emulator.open_channel()))
