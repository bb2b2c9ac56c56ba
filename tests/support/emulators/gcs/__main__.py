"""`python -m emulators.gcs`: prints its port, serves until its standard input ends."""

from support.emulators.common.server import run
from support.emulators.gcs.backend import GcsBackend

run(GcsBackend())
