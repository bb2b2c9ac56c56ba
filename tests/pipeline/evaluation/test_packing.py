"""Every token is scored once, in its own context, however sequences are packed and texts are cut."""

from __future__ import annotations

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marin_rules.pipeline.evaluation.packing import PADDING_SEGMENT, Scored, pack, row_length, windows

TOKENS = st.lists(st.integers(3, 200), min_size=1, max_size=12)


@settings(deadline=None)
@given(st.lists(st.builds(Scored, TOKENS, TOKENS), min_size=1, max_size=30))
def test_packed_rows_hold_each_sequence_whole_and_alone(sequences: list[Scored]) -> None:
    length = row_length(sequences, 1000)
    rows = pack(sequences, length)
    assert sorted(place.sequence for place in rows.places) == list(range(len(sequences)))
    taken = numpy.zeros(rows.tokens.shape, bool)
    for place in rows.places:
        whole = [*sequences[place.sequence].context, *sequences[place.sequence].continuation]
        span = slice(place.start, place.start + len(whole) - 1)
        assert not taken[place.row, span].any(), "two sequences overlap"
        taken[place.row, span] = True
        assert rows.tokens[place.row, span].tolist() == whole[:-1]
        assert rows.targets[place.row, span].tolist() == whole[1:]
        assert rows.positions[place.row, span].tolist() == list(range(len(whole) - 1))
        segment = rows.segments[place.row, place.start]
        assert (numpy.flatnonzero(rows.segments[place.row] == segment) == numpy.arange(length)[span]).all()
    assert (rows.segments[~taken] == PADDING_SEGMENT).all()


def test_rows_are_filled() -> None:
    sequences = [Scored([1], [2] * size) for size in range(1, 33)] * 4
    rows = pack(sequences, 64)
    assert (rows.segments != PADDING_SEGMENT).mean() > 0.9


def test_a_sequence_that_fits_no_row_is_an_error() -> None:
    with pytest.raises(ValueError, match="sequence 0 has 20 tokens, a row 16"):
        pack([Scored([1], [2] * 20)], 16)


@settings(deadline=None)
@given(st.lists(st.integers(3, 200), max_size=80), st.integers(1, 20), st.data())
def test_windows_score_every_token_once_in_order(tokens: list[int], longest: int, data: st.DataObject) -> None:
    overlap = data.draw(st.integers(0, longest - 1))
    found = windows(tokens, 1, longest, overlap)
    assert [token for window in found for token in window.continuation] == tokens
    done = 0
    for number, window in enumerate(found):
        assert 1 <= len(window.context) + len(window.continuation) - 1 <= longest
        before = [1, *tokens][: done + 1]
        assert list(window.context) == before[-len(window.context) :], "context is what stands before"
        if number:
            assert len(window.context) == min(overlap + 1, done)
        done += len(window.continuation)


def test_an_overlap_that_leaves_no_room_is_an_error() -> None:
    with pytest.raises(ValueError, match="an overlap of 8 leaves nothing"):
        windows([3] * 20, 1, 8, 8)
