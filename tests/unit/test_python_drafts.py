"""What users of the Python API submit, as descriptions."""

from __future__ import annotations

import pytest

from lodesman.user.python.drafts import Options, draft_of


@pytest.mark.parametrize(
    ("what", "options", "usual"),
    [
        (["/bin/true"], {}, True),
        (["/bin/true"], {"memory": "1G"}, True),
        (["/bin/true"], {"name": "mine"}, False),
        (["/bin/true"], {"JobName": "mine"}, False),
        ({"Executable": "/bin/true", "JobName": "true"}, {}, False),
    ],
    ids=str,
)
def test_the_name_of_a_command_is_no_word_of_the_user(what, options, usual):
    """A job class comes before it."""
    assert draft_of(what, Options().more(options)).usual_name is usual
