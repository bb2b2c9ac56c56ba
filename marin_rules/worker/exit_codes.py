"""What the exit code of a worker says. A stop signal is 128 and its number, as everywhere."""

import os

EXIT_DONE = 0
"""There is nothing left to do: this worker or somebody else has done it."""

EXIT_FAILED = 1
EXIT_LEASE_LOST = os.EX_TEMPFAIL
"""Somebody else has the step now."""

EXIT_HELD = os.EX_PROTOCOL
"""Somebody else has it, and this worker was told not to wait."""
