"""How a table is cut and in which order the segments are walked."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bulkexec.errors import BadArgument
from bulkexec.segments import MAX_SEGMENTS, SEGMENT_BYTES, order_of_visit, total_segments

GIB = 1024**3


@pytest.mark.parametrize(("size_bytes", "slots", "expected"), [(0, 8, 32), (1, 1, 4), (0, 0, 4)])
def test_unknown_or_small_size_still_gives_every_slot_several_segments(size_bytes, slots, expected):
    # case C046: a fresh or emulated table reports size 0
    assert total_segments(size_bytes, slots) == expected


def test_requested_segments_are_honoured_when_the_size_is_unknown():
    # case C046
    assert total_segments(0, 8, requested=200) == 200


def test_large_tables_get_about_one_segment_per_256_mib():
    assert total_segments(500 * GIB, 80) == 2000
    assert total_segments(500 * GIB + 1, 80) == 2001


def test_never_more_segments_than_dynamodb_allows():
    assert total_segments(SEGMENT_BYTES * 2_000_000, 4) == MAX_SEGMENTS


@pytest.mark.parametrize("requested", [0, -1, 1_000_001])
def test_refuses_what_scan_would_refuse(requested):
    with pytest.raises(BadArgument, match="1 to 1,000,000"):
        total_segments(0, 4, requested)


@pytest.mark.parametrize("requested", [1, 1_000_000])
def test_accepts_both_ends_of_the_range(requested):
    assert total_segments(0, 4, requested) == requested


@pytest.mark.parametrize("requested", [None, 50])
def test_a_pinned_partition_key_is_one_query(requested):
    assert total_segments(500 * GIB, 80, requested, pinned=True) == 1


@given(total=st.integers(0, 400), tasks=st.integers(1, 60), seed=st.integers())
def test_order_is_disjoint_complete_even_and_repeatable(total, tasks, seed):
    visits = order_of_visit(total, tasks, seed)
    assert sorted(segment for visit in visits for segment in visit) == list(range(total))
    assert len(visits) == tasks
    assert max(map(len, visits)) - min(map(len, visits)) <= 1
    assert visits == order_of_visit(total, tasks, seed)


@given(tasks=st.integers(2, 60), each=st.integers(2, 40), extra=st.integers(0, 59), seed=st.integers())
def test_segments_walked_at_the_same_time_are_a_stripe_apart(tasks, each, extra, seed):
    # case C041: neighbours share a partition, so walking them together heats it
    visits = order_of_visit(tasks * each + extra % tasks, tasks, seed)
    for step in range(each):
        together = sorted(visit[step] for visit in visits)
        gaps = [after - before for before, after in pairwise(together)]
        assert min(gaps) >= each


def test_every_task_walks_all_over_the_table_in_no_order():
    # case C041: 1,000 segments, 50 tasks
    visits = order_of_visit(1000, 50, seed=7)
    assert all(len(visit) == 20 and visit != sorted(visit) for visit in visits)
    assert all(max(visit) - min(visit) > 400 for visit in visits)
    assert visits != order_of_visit(1000, 50, seed=8)
