"""The fixtures, against an API that answers as Howdah does."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

import pytest_howdah.leases as leases


class Answers(BaseHTTPRequestHandler):
    calls = []
    polls_until_ready = 0

    def do_GET(self):
        self.answer(None)

    def do_POST(self):
        self.answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def answer(self, body):
        cls, path = type(self), self.path.split("/p1", 1)[-1]
        cls.calls.append((self.command, path, body))
        if self.path.endswith("/ca.pem"):
            return self.send(200, b"pem")
        if self.headers["Authorization"] != "Bearer public:secret":
            return self.send(401, json.dumps({"message": "no valid key"}).encode())
        lease = {
            "id": "lease1",
            "endpoint": {"host": "127.0.0.1", "port": 5444},
            "database": "tsdb",
            "role": "tsdbadmin",
            "ready": cls.polls_until_ready == 0,
        }
        if path == "/services":
            found = [
                {"service_id": "s1", "name": "orders"},
                {"service_id": "s2", "name": "twice"},
                {"service_id": "s3", "name": "twice"},
            ]
        elif path == "/leases":
            found = {"leases": [{**lease, "initial_password": "p/w"}]}
        elif path == "/leases/lease1":
            cls.polls_until_ready -= 1
            found = {**lease, "ready": cls.polls_until_ready == 0}
        else:
            found = {"leases": [lease]}
        self.send(200, json.dumps(found).encode())

    def send(self, status, payload):
        self.send_response(status)
        self.end_headers()
        self.wfile.write(payload)

    def log_message(self, *_):
        pass


@pytest.fixture
def api(monkeypatch):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    Answers.calls, Answers.polls_until_ready = [], 0
    leases._id_of.cache_clear()
    leases._ca_file.cache_clear()
    monkeypatch.setenv("HD_API", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("HD_KEY", "public:secret")
    monkeypatch.setenv("HD_PROJECT", "https://elsewhere/projects/p1")
    monkeypatch.setenv("HOWDAH_LEASE_FROM", "orders")
    yield Answers
    server.shutdown()
    server.server_close()


def test_a_test_has_a_database_which_is_returned(api, pytester):
    pytester.makepyfile(
        """
        def test_one(howdah_database, howdah_url):
            assert howdah_url == howdah_database.url
            assert howdah_url.startswith("postgresql://tsdbadmin:p%2Fw@127.0.0.1:5444/tsdb?")
            assert open(howdah_database.ca_file).read() == "pem"
            assert "p/w" not in repr(howdah_database).replace(howdah_url, "")

        def test_failing(howdah_database):
            raise AssertionError("made to fail")
        """
    )
    result = pytester.runpytest_inprocess(
        "-p", "pytest_howdah", "--howdah-reset=database"
    )
    result.assert_outcomes(passed=1, failed=1)
    taken = [body for _, path, body in api.calls if path == "/leases"]
    assert taken == [{"from": "s1", "reset": "database", "ttl_seconds": 120}] * 2
    returned = [body for _, path, body in api.calls if path == "/leases/return"]
    assert returned == [{"lease_ids": ["lease1"]}] * 2


def test_a_database_that_is_being_made_is_waited_for(api):
    api.polls_until_ready = 3
    database = leases.take()
    database.close()
    database.close()
    paths = [path for _, path, _ in api.calls]
    assert paths.count("/leases/lease1") == 3
    assert paths.count("/leases/return") == 1


def test_a_database_that_is_not_ready_in_time_is_returned(api, monkeypatch):
    monkeypatch.setattr(leases, "READY_WITHIN_SECONDS", 0)
    api.polls_until_ready = 1000
    with pytest.raises(leases.LeaseError, match="not ready in time"):
        leases.take()
    assert api.calls[-1][1] == "/leases/return"


def test_a_database_is_extended_while_it_is_used(api, monkeypatch):
    monkeypatch.setattr(leases, "TTL_SECONDS", 0.03)
    database = leases.take()
    seen = threading.Event()
    for _ in range(1000):
        if any(path == "/leases/extend" for _, path, _ in api.calls) or seen.wait(0.01):
            break
    database.close()
    assert ("POST", "/leases/extend") in [(method, path) for method, path, _ in api.calls]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("nothing", "there is no service nothing"),
        ("twice", "several services are called twice"),
    ],
)
def test_a_service_that_is_not_found_is_an_error(api, source, message):
    with pytest.raises(leases.LeaseError, match=message):
        leases.take(source)


def test_the_words_of_the_api_are_the_error(api, monkeypatch):
    monkeypatch.setenv("HD_KEY", "public:wrong")
    with pytest.raises(leases.LeaseError, match="no valid key"):
        leases.take()


def test_the_installation_on_this_machine_is_found(api, monkeypatch, tmp_path):
    url = leases._find_api().url
    for name in ("HD_API", "HD_KEY", "HD_PROJECT"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOWDAH_HOME", str(tmp_path))
    with pytest.raises(leases.LeaseError, match="howdah up"):
        leases.take()
    own = {"api_url": url, "public_key": "public", "secret_key": "secret", "project_id": "p1"}
    (tmp_path / "credentials.json").write_text(json.dumps(own))
    leases.take().close()
