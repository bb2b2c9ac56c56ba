"""`python -m support.emulators.tpu`: prints its port, serves until its standard input ends."""

from support.emulators.rpc.server import run
from support.emulators.tpu.service import TpuService

run(TpuService)
