"""The end of certificates and tokens, and their renewal."""

from __future__ import annotations

import base64
import json
import subprocess
import time
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.server.engines import credentials
from lodesman.server.engines.credentials import Credential, end_of_certificates, end_of_token

DAY = 86_400.0
NOW = 1_800_000_000.0


def certificate(days, name="one"):
    """A certificate, without its key."""
    words = ["openssl", "req", "-x509", "-newkey", "ed25519", "-nodes", "-keyout", "/dev/null"]
    words += ["-subj", f"/CN={name}", "-days", str(days)]
    return subprocess.run(words, check=True, capture_output=True).stdout


def token(**claims):
    parts = [json.dumps(one).encode() for one in ({"alg": "none"}, claims)]
    return b".".join([*(base64.urlsafe_b64encode(one).rstrip(b"=") for one in parts), b"c2ln"])


@pytest.mark.parametrize("days", [1, 9, 9_000, 20_000])  # after 2049 the end is written otherwise
def test_the_end_of_a_certificate_is_openssl_s(days):
    text = certificate(days)
    words = ["openssl", "x509", "-noout", "-enddate", "-dateopt", "iso_8601"]
    said = subprocess.run(words, input=text, check=True, capture_output=True).stdout.decode()
    end = time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(end_of_certificates(text)))
    assert said.strip() == f"notAfter={end}"


def test_a_chain_ends_with_the_first_of_its_certificates():
    short, long = certificate(1), certificate(30)
    key = b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"
    ends = {end_of_certificates(text) for text in (short, short + key + long, long + short)}
    assert len(ends) == 1
    assert end_of_certificates(long) - ends.pop() == pytest.approx(29 * DAY, abs=60.0)


@pytest.mark.parametrize(
    ("content", "end"),
    [(token(exp=NOW), NOW), (token(exp=1.5, sub="x") + b"\n", 1.5), (token(sub="x"), inf)],
)
def test_the_end_of_a_token(content, end):
    assert end_of_token(content) == end


@pytest.mark.parametrize(
    "content",
    [b"", b"opaque", b"a.b.c", b"a.b", token(exp="soon"), token(exp=True), token(exp=-1), token(exp=None)],
)
def test_no_token_with_an_end(content):
    with pytest.raises(ValueError, match="no token with an end"):
        end_of_token(content)


@given(st.binary(max_size=200), st.integers(0, 300))
def test_hostile_certificates_are_refused(content, cut):
    armed = b"-----BEGIN CERTIFICATE-----\n%s\n-----END CERTIFICATE-----"
    for der in (content, VALID[:cut], VALID[:cut] + content):
        if der != VALID:
            with pytest.raises(ValueError, match="certificate"):
                end_of_certificates(armed % base64.b64encode(der))
    with pytest.raises(ValueError, match="certificate"):
        end_of_certificates(content)


VALID = base64.b64decode(b"".join(certificate(1).splitlines()[1:-1]))[:200]
"""The beginning of a certificate: it is cut off."""


@pytest.fixture
def proxy(tmp_path):
    """A file with a token, and a credential made of it that must be good for two days."""

    class Proxy:
        path = tmp_path / "token"

        def lives(self, days):
            self.path.write_bytes(token(exp=NOW + days * DAY))
            return self

        def doubt(self, *renew, now=NOW, required=2 * DAY, credential=None):
            found = credential or Credential(
                token_file=str(self.path), required_seconds=required, renew=renew
            )
            found.refresh(now)
            return found.doubt

    return Proxy()


def test_a_credential_that_lives_long_enough_is_good(proxy):
    assert not proxy.lives(2).doubt()
    assert not proxy.doubt(now=NOW - 1)


def test_one_that_ends_sooner_is_not_and_the_file_the_end_and_what_to_do_are_named(proxy):
    text = proxy.lives(1.5).doubt()
    assert text == (
        f"{proxy.path} ends in 36.0 h, at 2027-01-16 20:00 UTC; 48 h are required (requiredTimeLeft); "
        "renew it, or configure a command that does (renew)"
    )
    assert proxy.doubt(now=NOW + 9 * DAY).startswith(f"{proxy.path} ended at 2027-01-16 20:00 UTC; 48 h")


def test_an_unknown_end_is_no_good_end(proxy):
    assert proxy.doubt().startswith(f"when {proxy.path} ends is not known: No such file or directory")
    proxy.path.write_text("opaque")
    assert proxy.doubt().startswith(f"when {proxy.path} ends is not known: it holds no token")
    assert not proxy.doubt(required=0)  # its end does not matter


def test_before_the_first_look_nothing_is_known(proxy):
    fresh = Credential(token_file=str(proxy.lives(99).path), required_seconds=1.0)
    assert fresh.doubt == "when its credential ends is not known yet"


def test_certificate_and_token_are_both_looked_at(proxy, tmp_path):
    (tmp_path / "cert").write_bytes(certificate(1))
    files = {"certificate": str(tmp_path / "cert"), "token_file": str(proxy.lives(99).path)}
    both = Credential(**files, required_seconds=2 * DAY)
    both.refresh(time.time())
    assert str(tmp_path / "cert") in both.doubt
    assert str(proxy.path) not in both.doubt


def test_a_command_renews_it(proxy, tmp_path):
    (tmp_path / "new").write_bytes(token(exp=NOW + 9 * DAY))
    assert not proxy.lives(1).doubt("cp", str(tmp_path / "new"), str(proxy.path))


def test_a_command_runs_only_when_it_is_needed_and_not_again_at_once(proxy, tmp_path):
    ran = tmp_path / "ran"
    script = f'echo x >> "{ran}"; exit 3'
    one = Credential(
        token_file=str(proxy.lives(9).path), required_seconds=2 * DAY, renew=("sh", "-c", script)
    )
    assert not proxy.doubt(credential=one)
    assert not ran.exists()
    proxy.lives(1)
    for seconds in (0, 30, 299, 300):
        text = proxy.doubt(credential=one, now=NOW + seconds)
    assert text.endswith("(requiredTimeLeft); sh ended with exit code 3")
    assert ran.read_text() == "x\nx\n"
    proxy.lives(9)
    assert not proxy.doubt(credential=one, now=NOW + 301)  # someone else has renewed it


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("true",), "true ended well, and did not help"),
        (("/nowhere/renew",), "/nowhere/renew cannot be run: No such file or directory"),
        (("sh", "-c", "sleep 99 & wait"), "sh did not end within 0.2 s"),
    ],
)
def test_a_renewal_that_fails_says_why(proxy, monkeypatch, words, why):
    monkeypatch.setattr(credentials, "_RENEW_SECONDS", 0.2)
    assert proxy.lives(1).doubt(*words).endswith(f"; {why}")


def test_what_the_command_writes_and_the_server_s_variables_stay_where_they_are(
    proxy, tmp_path, monkeypatch, capfd, caplog
):
    monkeypatch.setenv("LODE_TOKEN", "secret")
    words = ("sh", "-c", f'env > "{tmp_path}/env"; echo secret; echo secret >&2; exit 1')
    assert "secret" not in proxy.lives(1).doubt(*words)
    assert "secret" not in "".join(capfd.readouterr()) + caplog.text
    assert "secret" not in (tmp_path / "env").read_text()
