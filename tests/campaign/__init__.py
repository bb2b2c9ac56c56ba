"""The random campaign: whole experiments, made from a seed, run through the public doors and judged by what they left.

experiment.py    the experiment file of every case: steps that behave, misbehave, wait and end in many ways
behaviours.py    what each of these ways must come to, judged as plain Python would be
names.py         names of steps and prefixes
cases.py         a case from a seed
play.py          runs a case: processes, signals, users, rounds
verdict.py       what must hold afterwards
test_campaign.py the short form, and the long one (`make test-faults`)

    python tests/campaign --seed 17          # one case again; --keep leaves its folder
    python tests/campaign --seed 0 --count 50

The judge shares no code with the project. It knows the experiment's own witness (what the steps' code did, noted
outside the prefix), the bytes that each step must write, and the formats that are Marin's: `.executor_status`,
`.executor_info`.
"""
