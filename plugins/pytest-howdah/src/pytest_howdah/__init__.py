"""A database of its own for each test: a lease of a service of Howdah."""

import pytest

from .leases import Database, LeaseError, take

__all__ = ["Database", "LeaseError", "take"]


def pytest_addoption(parser):
    group = parser.getgroup("howdah")
    group.addoption(
        "--howdah-from",
        help="the id or name of the service to copy; default: HOWDAH_LEASE_FROM",
    )
    group.addoption(
        "--howdah-reset",
        choices=["server", "database"],
        default="server",
        help="server: each test has a server of its own; database: a database in a server that "
        "tests share",
    )


@pytest.fixture
def howdah_database(request):
    """A database with the data of the service, which is returned when the test ends."""
    options = request.config.option
    database = take(options.howdah_from, options.howdah_reset)
    try:
        yield database
    finally:
        database.close()


@pytest.fixture
def howdah_url(howdah_database):
    """The URL of the database of the test, for psycopg, SQLAlchemy and asyncpg."""
    return howdah_database.url
