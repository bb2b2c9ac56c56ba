"""`gcloud compute tpus queued-resources delete ID --zone=Z --project=P --force --quiet`, as hosts use it."""

from __future__ import annotations

import argparse
import os

import grpc
from google.cloud import tpu_v2
from google.cloud.tpu_v2.services.tpu.transports import TpuGrpcTransport

parser = argparse.ArgumentParser()
parser.add_argument("action", choices=["delete"])
parser.add_argument("id")
for option in ("--zone", "--project"):
    parser.add_argument(option, required=True)
for option in ("--force", "--quiet"):
    parser.add_argument(option, action="store_true", required=True)
found = parser.parse_args()
channel = grpc.insecure_channel(os.environ["TPU_EMULATOR_HOST"])
name = f"projects/{found.project}/locations/{found.zone}/queuedResources/{found.id}"
request = tpu_v2.DeleteQueuedResourceRequest(name=name, force=found.force)
tpu_v2.TpuClient(transport=TpuGrpcTransport(channel=channel)).delete_queued_resource(request=request, timeout=10)
