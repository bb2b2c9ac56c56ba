"""`python -m emulators.s3`: prints its port, serves until its standard input ends."""

from support.emulators.common.server import run
from support.emulators.s3.backend import S3Backend

run(S3Backend())
