"""Which field of a record differs, and how it is said."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paribus.runs.differences import LONGEST, Difference, differences, short

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(VALUES)
def test_a_record_does_not_differ_from_its_own_copy(value: Any):
    assert list(differences(value, json.loads(json.dumps(value)))) == []


@given(VALUES, VALUES)
def test_two_records_differ_where_they_are_not_equal(before: Any, now: Any):
    # JSON tells True from 1, and a key that is null from one that is not there; what is compared here does not.
    found = list(differences(before, now))
    assert all(each.before != each.now for each in found)
    if found:
        assert before != now


@pytest.mark.parametrize(
    ("before", "now", "field"),
    [
        ({"a": {"b": [1, 2]}}, {"a": {"b": [1, 3]}}, "a.b.1"),
        ({"a": [1]}, {"a": [1, 2]}, "a"),
        ({"a": 1}, {}, "a"),
        ({}, {"a": 1}, "a"),
        (1, 2, ""),
    ],
)
def test_the_field_is_named_from_the_outside_in(before: Any, now: Any, field: str):
    assert [each.field for each in differences(before, now)] == [field]


def test_every_field_is_told_and_long_values_are_cut():
    found = list(differences({"a": 1, "b": "x", "c": 0}, {"a": 2, "b": "y" * 100, "c": 0}))
    assert [each.field for each in found] == ["a", "b"]
    assert found[0].sentence == "a: 1, now 2"
    assert len(short("y" * 100)) == LONGEST
    assert Difference("k", None, 1).sentence == "k: null, now 1"
