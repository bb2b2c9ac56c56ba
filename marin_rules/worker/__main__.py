"""`python -m marin_rules.worker --plan PLAN --step NAME-HASH`: run one step of a frozen plan."""

import sys

from marin_rules.worker.main import main, parse

if __name__ == "__main__":
    sys.exit(main(parse(sys.argv[1:])))
