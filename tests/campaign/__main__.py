"""`python tests/campaign --seed N`: play one case, or several, outside pytest."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from campaign.cases import make_case
from campaign.judge import describe, judge


def main() -> int:
    parser = argparse.ArgumentParser(prog="python tests/campaign", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="the first case")
    parser.add_argument("--count", type=int, default=1, help="how many cases, one seed after the other")
    parser.add_argument("--keep", action="store_true", help="leave the folders of the cases")
    parser.add_argument("--show", action="store_true", help="only say what the cases are")
    options = parser.parse_args()
    failed = 0
    for seed in range(options.seed, options.seed + options.count):
        if options.show:
            print(describe(make_case(seed)))
            continue
        began = time.monotonic()
        wrong = judge(seed, keep=options.keep)
        failed += wrong is not None
        print(wrong or f"seed {seed}: right, {time.monotonic() - began:.1f} s", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
