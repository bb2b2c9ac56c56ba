"""`python -m support.emulators.tpu FOLDER`: prints its port, serves until its standard input ends."""

from support.emulators.rpc.server import run
from support.emulators.tpu.service import TpuService

run(TpuService)
