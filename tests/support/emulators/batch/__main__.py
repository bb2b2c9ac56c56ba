"""`python -m support.emulators.batch FOLDER`: prints its port, serves until its standard input ends."""

from support.emulators.batch.service import BatchService
from support.emulators.rpc.server import run

run(BatchService)
