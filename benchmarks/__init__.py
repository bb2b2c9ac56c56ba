"""What the project costs, as ratios against peers in one run: `python -m benchmarks` (see README.md)."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
"""The checkout."""
