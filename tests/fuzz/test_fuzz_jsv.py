"""Hostile scripts: whatever a script says, the dialogue ends well formed, and what it leaves can be sent again."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st
from tests.kits.jsv_kit import JOB

from lodesman.server.jsv.parameters import parameter_lines
from lodesman.server.jsv.protocol import Dialogue

WORD = st.sampled_from(
    "STARTED START PARAM ENV ADD MOD DEL LOG INFO RESULT STATE ACCEPT CORRECT REJECT SEND BEGIN QUIT N jc l_hard CMDARGS "
    "CMDARG1 CMDARG99999 b y USER p 7 -3 9999999999999999 FOO a=b,c \u00b2 \udce9".split()
)
LINE = st.one_of(st.lists(WORD, max_size=5).map(" ".join), st.text(max_size=40))


@example(["ENV \udce9"], False)
@given(st.lists(st.one_of(LINE, st.none()), max_size=20), st.booleans())
def test_any_words_of_a_script(said, strict):
    dialogue = Dialogue(JOB, "/etc/jsv", strict_accept=strict)
    for line in said:
        if dialogue.has_ended():
            break
        if line is None:
            dialogue.take_silence()
        else:
            for sent in dialogue.take_line(line):
                assert "\n" not in sent
    if not dialogue.has_ended():
        dialogue.take_complaints(["end"])
    found = dialogue.outcome()
    found.message.encode()
    for line in found.log:
        line.text.encode()
    assert found.accepted or found.parameters == JOB
    assert (found.parameters.user, found.parameters.context) == (JOB.user, JOB.context)
    assert parameter_lines(found.parameters)
