"""Descriptions as they are stored: what is found in them, and what is damaged."""

import pytest

from lodesman.languages.jobs.selection import DAMAGED, StoredText

SPEC = '{"name": "fit", "arguments": ["é", "\\"", 5], "environment": {"A": "1"}}'
TEXT = f'{{"tags": ["b", "a", "b"], "spec": {SPEC}, "limits": null}}'


@pytest.mark.parametrize(
    ("path", "value", "items"),
    [
        (("tags",), ["b", "a", "b"], ["b", "a"]),
        (("spec", "name"), "fit", ["fit"]),
        (("spec", "arguments"), ["é", '"', 5], ["é", '"', "5"]),
        (("spec", "environment"), {"A": "1"}, None),
        (("spec", "nothing"), None, []),
        (("limits", "wall_seconds"), None, []),
        (("nothing", "at_all"), None, []),
    ],
)
def test_members_are_found_by_their_paths(path, value, items):
    text = StoredText(TEXT)
    assert text.value(path) == value
    assert items is None or list(text.items(path)) == items
    assert text.encoded(path) in TEXT


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"a": 1}}', '{"spec": [1]}', '{"spec": {"name": "\\ud800"}}']
)
def test_what_is_no_record_is_damaged(text):
    with pytest.raises(DAMAGED):
        StoredText(text).value(("spec", "name"))
