"""Leases by the API of Howdah, with nothing but the standard library."""

import atexit
import json
import os
import shutil
import tempfile
import threading
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from urllib.parse import quote

# A killed runner leaves its databases for so long.
TTL_SECONDS = 120
READY_WITHIN_SECONDS = 60
POLL_SECONDS = 0.1
# The API answers within 20 seconds.
CALL_WITHIN_SECONDS = 60


class LeaseError(Exception):
    """No database was taken; the message says why."""


@dataclass(frozen=True)
class Api:
    url: str
    key: str
    project: str

    def call(self, method, path, body=None):
        request = urllib.request.Request(
            f"{self.url}/projects/{self.project}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=CALL_WITHIN_SECONDS) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            raise LeaseError(_message_of(error)) from error
        except OSError as error:
            raise LeaseError(f"no answer from {self.url}: {error}") from error


def _message_of(error):
    text = error.read().decode(errors="replace")
    try:
        return json.loads(text)["message"]
    except (ValueError, KeyError, TypeError):
        return f"the API answered {error.code}: {text[:200]}"


@dataclass
class Database:
    """A database of a test. ``url`` has its password and the certificate of its server."""

    url: str
    host: str
    port: int
    user: str
    password: str = field(repr=False)
    name: str
    ca_file: str
    lease_id: str
    _api: Api = field(repr=False)
    _closed: threading.Event = field(repr=False, default_factory=threading.Event)

    def __post_init__(self):
        threading.Thread(target=self._keep, daemon=True).start()

    def _keep(self):
        body = {"lease_ids": [self.lease_id], "ttl_seconds": TTL_SECONDS}
        while not self._closed.wait(TTL_SECONDS / 3):
            try:
                self._api.call("POST", "/leases/extend", body)
            except LeaseError:
                pass  # the next one may succeed

    def close(self):
        """Returns the database. One that cannot be returned now ends by itself."""
        if self._closed.is_set():
            return
        self._closed.set()
        _give_back(self._api, self.lease_id)


def take(source=None, reset="server"):
    """Takes a copy of a service, by its id or name. The caller closes it."""
    source = source or os.environ.get("HOWDAH_LEASE_FROM")
    if not source:
        raise LeaseError("name the service to copy: --howdah-from, or HOWDAH_LEASE_FROM")
    api = _find_api()
    body = {"from": _id_of(api, source), "reset": reset, "ttl_seconds": TTL_SECONDS}
    lease = api.call("POST", "/leases", body)["leases"][0]
    try:
        _wait_until_ready(api, lease)
        return _database_of(api, lease)
    except BaseException:
        _give_back(api, lease["id"])
        raise


def _give_back(api, lease_id):
    try:
        api.call("POST", "/leases/return", {"lease_ids": [lease_id]})
    except LeaseError:
        pass  # it ends by itself


def _wait_until_ready(api, lease):
    if lease["ready"]:
        return
    end = time.monotonic() + READY_WITHIN_SECONDS
    while not lease["ready"]:
        if time.monotonic() > end:
            raise LeaseError(
                f"the database was not ready in time: {lease.get('problem', 'it is being made')}"
            )
        time.sleep(POLL_SECONDS)
        lease = api.call("GET", f"/leases/{lease['id']}")
    body = {"lease_ids": [lease["id"]], "ttl_seconds": TTL_SECONDS}
    api.call("POST", "/leases/extend", body)


def _database_of(api, lease):
    host, port = lease["endpoint"]["host"], lease["endpoint"]["port"]
    user, name = lease["role"], lease["database"]
    password, ca_file = lease["initial_password"], _ca_file(api.url)
    place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return Database(
        url=f"postgresql://{user}:{quote(password, safe='')}@{place}/{name}"
        f"?sslmode=verify-full&sslrootcert={quote(ca_file, safe='/')}",
        host=host,
        port=port,
        user=user,
        password=password,
        name=name,
        ca_file=ca_file,
        lease_id=lease["id"],
        _api=api,
    )


@lru_cache(maxsize=None)
def _id_of(api, wanted):
    services = api.call("GET", "/services")
    found = [one for one in services if one["service_id"] == wanted]
    found = found or [one for one in services if one["name"] == wanted]
    if not found:
        raise LeaseError(f"there is no service {wanted}; howdah service list shows them")
    if len(found) > 1:
        raise LeaseError(f"several services are called {wanted}; name one by its id")
    return found[0]["service_id"]


@lru_cache(maxsize=None)
def _ca_file(api_url):
    """Clients read the certificate from a file, which stays until this process ends."""
    with urllib.request.urlopen(f"{api_url}/ca.pem", timeout=CALL_WITHIN_SECONDS) as response:
        pem = response.read()
    directory = tempfile.mkdtemp(prefix="pytest-howdah-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    path = Path(directory, "ca.pem")
    path.write_bytes(pem)
    return str(path)


def _find_api():
    """HD_API, HD_KEY and HD_PROJECT (``howdah env``), else the installation on this machine."""
    url, key, project = (os.environ.get(name) for name in ("HD_API", "HD_KEY", "HD_PROJECT"))
    if url and key and project:
        # HD_PROJECT is the id of the project, or its address, which ends with the id.
        return Api(_with_path(url), key, project.rstrip("/").rsplit("/", 1)[-1])
    home = Path(os.environ.get("HOWDAH_HOME") or Path.home() / ".howdah")
    path = home / "credentials.json"
    if url or key or not path.exists():
        raise LeaseError(
            f"set HD_API, HD_KEY and HD_PROJECT (howdah env prints them), or run howdah up: {path}"
        )
    found = json.loads(path.read_text())
    own = f"{found['public_key']}:{found['secret_key']}"
    return Api(found["api_url"].rstrip("/"), own, found["project_id"])


def _with_path(url):
    url = url.rstrip("/")
    return url if url.count("/") > 2 else f"{url}/public/api/v1"
