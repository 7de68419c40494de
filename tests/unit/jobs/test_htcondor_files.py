"""Files of HTCondor are named as what they are, wherever they are taken for a description."""

import pytest
from tests.kits.table import hold_all

from lodesman.base.errors import InvalidRequest, SyntaxFault
from lodesman.languages.jobs import read_description
from lodesman.languages.jobs.foreign import kind_of_file
from lodesman.user.python.drafts import Options, draft_of

SUBMIT_FILE, DAG = "a submit file of HTCondor", "a DAG of HTCondor (DAGMan)"
SUBMIT = "universe = vanilla\nexecutable = a.sh\nrequest_memory = 1G\nQueue 5\n"
NODES = "# d\nJOB A a.sub\nJob B b.sub\nPARENT A CHILD B\n"
KINDS = {
    SUBMIT: SUBMIT_FILE, NODES: DAG, "FINAL clean clean.sub\n": DAG, "# all\nINCLUDE a.dag\n\ninclude b.dag\n": DAG,
    "INCLUDE a.dag\nCONFIG dag.config\nFinal f f.sub DIR x\nRETRY f 3\n": DAG,
    "#!/usr/bin/env condor_submit\nexecutable = a\nqueue": SUBMIT_FILE, "#!/usr/bin/condor_submit_dag\nJOB A a.sub\n": DAG,
}  # fmt: skip
OTHERS = [
    '[ Executable = "x"; Queue = 3; ]', "Executable = x\nJobName = y\n", '{"Executable": "queue"}', "",
    "INCLUDE a.dag\nExecutable = x\n", f"#!/bin/sh\ncat > a.sub <<EOT\n{SUBMIT}EOT\n", f"#!/bin/sh\ncat > a <<E\n{NODES}E\n",
]  # fmt: skip


def test_files_of_htcondor_are_recognised():
    def check(case):
        text, kind = case
        assert kind_of_file(text) == kind

    hold_all([*KINDS.items(), *((text, "") for text in OTHERS)], check)


@pytest.mark.parametrize("form", [None, "cfg", "jdl", "json"])
def test_they_are_refused_as_such_in_each_language(form):
    for text, kind in KINDS.items():
        with pytest.raises(InvalidRequest) as caught:
            read_description(text, form=form)
        assert caught.value.message == f"This is {kind}, which is not read here."


def test_another_text_that_cannot_be_read_keeps_its_own_fault():
    for text in OTHERS[-3:]:
        with pytest.raises(SyntaxFault):
            read_description(text)


def test_they_are_refused_in_python(tmp_path):
    path = tmp_path / "a.sub"
    path.write_text(SUBMIT)
    for what in (path, SUBMIT):
        with pytest.raises(InvalidRequest, match="This is a submit file of HTCondor"):
            draft_of(what, Options())
