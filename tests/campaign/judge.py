"""One seed from beginning to end: made, played, judged. A failure says all that is needed to see it again."""

from __future__ import annotations

import json
from dataclasses import asdict

from campaign.cases import Case, make_case
from campaign.play import HangsError, Player, case_folder
from campaign.verdict import problems_of


def judge(seed: int, *, keep: bool = False) -> str | None:
    """None when all is well; else what is wrong, and how to see it again."""
    case = make_case(seed)
    with case_folder(keep=keep) as folder:
        player = Player(case, folder)
        try:
            problems = problems_of(player.play())
        except HangsError as error:
            problems = [str(error)]
        if not problems:
            return None
        outputs = [
            f"--- round {this.number}, driver {number}, exit code {ended.code}\n{_shortened(ended.output)}"
            for this in player.played.rounds
            for number, ended in enumerate(this.drivers)
        ]
        return "\n".join(
            [
                f"seed {seed}: {len(problems)} problem(s)",
                *(f"  * {problem}" for problem in problems),
                f"again: python tests/campaign --seed {seed} --keep",
                describe(case),
                *outputs,
                *([f"kept: {folder}"] if keep else []),
            ]
        )


def describe(case: Case) -> str:
    """The case in a few lines."""
    facts = asdict(case)
    steps = [json.dumps(step, ensure_ascii=False) for step in facts.pop("steps")]
    facts["umask"] = f"{case.umask:03o}"
    if case.disturbance is not None:
        facts["disturbance"]["number"] = case.disturbance.number.name
    return "\n".join([json.dumps(facts, ensure_ascii=False), *(f"  {step}" for step in steps)])


def _shortened(output: str) -> str:
    lines = [line if len(line) < 400 else f"{line[:400]}..." for line in output.splitlines()]
    if len(lines) > 120:
        lines = [*lines[:60], f"[{len(lines) - 120} lines]", *lines[-60:]]
    return "\n".join(lines)
