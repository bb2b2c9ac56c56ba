"""Why a job that may wait forever is waiting, and what a person can do: pure, by the reason that squeue shows.

A job that waits for its turn or for machines (Priority, Resources) is fine, and nothing is said about it; nor about
unknown reasons.
"""

from __future__ import annotations

import re

_ADVICE = (
    (r"JobHeldUser", "it is held; `scontrol release {job}` releases it"),
    (
        r"JobHeldAdmin|JobHoldMaxRequeue|.*[ _]held(?:[ _].*)?",
        "it is held; try `scontrol release {job}`, or ask an administrator",
    ),
    (r"DependencyNeverSatisfied", "what it depends on has failed; stop it with `scancel {job}` and run again"),
    (r"PartitionTimeLimit", "it asks for more time than the partition gives; ask for less, or name another partition"),
    (r"PartitionNodeLimit", "it asks for more or other machines than the partition has; change what it asks for"),
    (r"PartitionDown|PartitionInactive", "the partition takes no jobs now; name another one, or ask an administrator"),
    (r"BadConstraints|NodeConfigUnavail.*", "no machine has what it asks for; change what it asks for"),
    (
        r"(?:Account|QOS)NotAllowed|Invalid(?:Account|QOS)",
        "this account or QOS may not use the partition; name another one",
    ),
    (r"ReqNodeNotAvail|NodeDown", "machines that it needs are down, drained or reserved; wait, or ask for others"),
    (r"Reservation.*", "its reservation has not begun, or is gone; see `scontrol show reservation`"),
    (
        r".*Max.*PerJob.*|.*Min(?:Cpu|TRES|GRES).*|QOSTimeLimit|AssociationTimeLimit",
        "a limit lets no job have what it asks for; ask for less, or use another account or QOS",
    ),
    (
        r"(?:Assoc|QOS).*",
        "a limit of your account or QOS holds it back; it starts once other jobs have ended, or never if it alone asks"
        " for more",
    ),
)


def advice_about(reason: str, job: str) -> str | None:
    """What to do about a job that waits for this reason; `None` if nothing has to be done."""
    word = reason.split(",")[0].strip(" ()")
    for pattern, advice in _ADVICE:
        if re.fullmatch(pattern, word, re.IGNORECASE):
            return advice.format(job=job)
    return None
