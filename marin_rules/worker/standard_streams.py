"""Standard streams that are closed (`>&-`, some daemons): /dev/null takes their place.

Otherwise the next pipe or file would get the number of a standard stream, and receive whatever is printed.
"""

from __future__ import annotations

import os


def open_standard_streams() -> None:
    """Let the descriptors 0, 1 and 2 be open, here and in programs that are started from here."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            null = os.open(os.devnull, os.O_RDWR)
            if null != number:
                os.dup2(null, number)
                os.close(null)
            os.set_inheritable(number, True)
