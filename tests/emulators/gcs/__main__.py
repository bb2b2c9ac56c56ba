"""`python -m emulators.gcs`: prints its port, serves until its standard input ends."""

from emulators.common.server import run
from emulators.gcs.backend import GcsBackend

run(GcsBackend())
