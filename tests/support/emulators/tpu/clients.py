"""Google's own client, as tests need it."""

from __future__ import annotations

from google.cloud.tpu_v2 import TpuClient
from google.cloud.tpu_v2.services.tpu.transports import TpuGrpcTransport

from support.emulators.tpu.emulator import TpuEmulator


def tpu_client(emulator: TpuEmulator) -> TpuClient:
    return TpuClient(transport=TpuGrpcTransport(channel=emulator.open_channel()))
