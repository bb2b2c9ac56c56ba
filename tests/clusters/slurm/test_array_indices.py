"""The indices of arrays in Slurm's writing, and how tasks are dealt out to arrays."""

import random

import pytest

from marin_rules.clusters.slurm.array_indices import deal, indices_text, parse_indices

LONGEST_TEXT = 4095
"""What slurmctld takes of `--array`, the throttle included: measured on 22.05, where 4,099 were refused."""


@pytest.mark.parametrize(
    ("text", "indices"),
    [
        ("0", [0]),
        ("3-5", [3, 4, 5]),
        ("0-63,70", [*range(64), 70]),
        ("3-4,9,20-21", [3, 4, 9, 20, 21]),
    ],
)
def test_ranges_are_written_and_read(text: str, indices: list[int]) -> None:
    assert indices_text(indices) == text
    assert parse_indices(text) == indices


@pytest.mark.parametrize(
    ("text", "indices"),
    [
        ("3-9%2", [3, 4, 5, 6, 7, 8, 9]),
        ("3-9:3,20%5", [3, 6, 9, 20]),
        ("1-999:2%5", [*range(1, 1000, 2)]),
        ("7%1", [7]),
    ],
)
def test_slurm_writes_steps_and_throttles_too(text: str, indices: list[int]) -> None:
    assert parse_indices(text) == indices


@pytest.mark.parametrize("text", ["", "N/A", "1-3,5,8...%5", "1-3,...", "a-b", "1,,2", "3-", "-3", "1:2", "1-5:0"])
def test_what_was_cut_is_not_taken_for_the_whole(text: str) -> None:
    with pytest.raises(ValueError, match="not the indices of an array"):
        parse_indices(text)


@pytest.mark.parametrize(
    ("tasks", "span", "count", "arrays"),
    [
        ([], 8, 8, []),
        ([5], 8, 8, [[5]]),
        ([*range(8)], 8, 8, [[*range(8)]]),
        ([*range(9)], 8, 8, [[*range(8)], [8]]),
        ([0, 7, 8, 15, 16], 8, 8, [[0, 7], [8, 15], [16]]),
        ([3, 4, 11, 12], 9, 9, [[3, 4, 11], [12]]),
        ([0, 2, 4, 6], 100, 3, [[0, 2, 4], [6]]),
    ],
)
def test_tasks_are_dealt_to_as_few_arrays_as_the_site_takes(
    tasks: list[int], span: int, count: int, arrays: list[list[int]]
) -> None:
    assert deal(tasks, most_span=span, most_count=count) == arrays


def test_ten_thousand_tasks_in_a_row_are_one_array_where_the_site_takes_it() -> None:
    assert len(deal(range(10_000), most_span=10_001, most_count=10_001)) == 1
    assert [len(array) for array in deal(range(10_000), most_span=1001, most_count=1001)] == [1001] * 9 + [991]


@pytest.mark.parametrize("seed", range(20))
def test_however_scattered_tasks_are_no_array_is_too_long_to_be_said(seed: int) -> None:
    chance = random.Random(seed)
    tasks = sorted(chance.sample(range(30_000), chance.choice([100, 5_000, 20_000])))
    arrays = deal(tasks, most_span=20_001, most_count=20_001)
    assert [task for array in arrays for task in array] == tasks
    texts = [indices_text(task - array[0] for task in array) for array in arrays]
    assert max(len(f"{text}%20001") for text in texts) <= LONGEST_TEXT
    # Nor is one much shorter than it could be, but for the last and those that the site's limit ends.
    ends = [array[-1] - array[0] for array in arrays]
    assert all(len(text) > 3_900 or end > 19_000 for text, end in zip(texts[:-1], ends[:-1], strict=True))


def test_the_worst_that_a_default_site_can_be_asked_for_is_one_array() -> None:
    """Pairs make the longest text."""
    pairs = [index for index in range(1001) if index % 3]
    assert len(deal(pairs, most_span=1001, most_count=1001)) == 1
