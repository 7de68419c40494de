"""Streams that would lie where another file of the job lies, or its folder, are refused in each language."""

import pytest
from tests.kits.table import hold_all

from lodesman.base.errors import InvalidJob
from lodesman.languages.jobs import read_description, read_job

REFUSED = {
    'StdOutput="a/b"; StdError="a";': "StdError is a, and StdOutput is a/b",
    'StdOutput="./a"; StdError="a/b/c";': "StdOutput is ./a, and StdError is a/b/c",
    'StdOutput="logs/%s.out"; StdError="logs"; Parameters=3;': "StdError is logs, and StdOutput is logs/%s.out",
    'StdOutput="std.err/x";': "StdError is std.err, and StdOutput is std.err/x",
    'InputSandbox={"x/e.sh"}; StdOutput="e.sh";': "StdOutput is e.sh, and a file of the InputSandbox is e.sh",
    'InputSandbox="std.out";': "StdOutput is std.out, and a file of the InputSandbox is std.out",
    'InputSandbox="d"; StdError="d/err";': "StdError is d/err, and a file of the InputSandbox is d",
    'InputSandbox="d/"; StdOutput="d";': "StdOutput is d, and a file of the InputSandbox is d",
    'InputSandbox="d/"; Executable="d/run"; StdOutput="d/run";': "StdOutput is d/run, and the Executable is d/run",
    'StdInput="in"; StdOutput="in";': "StdOutput is in, and StdInput is in",
}
TAKEN = (
    'StdOutput="a"; StdError="a";', 'StdOutput="a/b"; StdError="a/c";', 'StdOutput="ab"; StdError="a";',
    'InputSandbox="d/"; StdOutput="d/out";', 'Executable="hostname"; StdOutput="hostname";',
    'Executable="/bin/ls"; StdOutput="ls"; StdInput="/etc/ls";', 'StdOutput="%s.out"; StdError="%s.err"; Parameters=3;',
)  # fmt: skip


def described(text):
    parsed = read_description(text if "Executable" in text else f'Executable="/bin/true"; {text}', form="jdl")
    return read_job(parsed.record, parsed.positions)


def test_a_stream_in_the_place_of_another_file_is_refused_by_name():
    def check(case):
        text, wanted = case
        with pytest.raises(InvalidJob) as refused:
            described(text)
        assert refused.value.message.startswith(f"{wanted}: a node has room for one of them")
        assert refused.value.data["attribute"] == wanted.split()[0]

    hold_all(REFUSED.items(), check)


def test_streams_in_places_of_their_own_are_taken():
    hold_all(TAKEN, described)
