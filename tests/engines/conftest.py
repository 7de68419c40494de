"""A server in this process, as in tests/api, beside a real batch system."""

from tests.api.conftest import backend, house, templates  # noqa: F401 - fixtures of these tests
