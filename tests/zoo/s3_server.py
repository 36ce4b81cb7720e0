"""A real S3 server, moto's, as a process of its own, that fails or kills where it is told to.

``S3Server`` starts it and speaks to it; run as a program, this file is the server. Requests to the
store count, and the n-th from now can be struck. The server itself is the witness of what is there:
:meth:`S3Server.objects` asks it by a client of its own, botocore's, not by the code under test.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from typing_extensions import Self

TESTS = Path(__file__).resolve().parent.parent
CONTROL = "/--control--"
BUCKET = "experiments"
# What becomes of the n-th request, and of those after it:
KILL_BEFORE = "its process is killed instead"
KILL_AFTER = "it is done, then its process is killed"
KILLS = (KILL_BEFORE, KILL_AFTER)


class S3Server:
    """The server, and an environment in which a client finds it."""

    def __init__(self) -> None:
        path = os.pathsep.join(map(str, (TESTS, os.environ.get("PYTHONPATH", ""))))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "zoo.s3_server"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": path, **_CREDENTIALS},
        )
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], 60)
        assert ready, "the S3 server did not start within a minute"
        self.url = f"http://127.0.0.1:{int(self._process.stdout.readline())}"
        # for the clients of Python, and for tensorflow-io's
        endpoint = {"AWS_ENDPOINT_URL": self.url, "S3_ENDPOINT": self.url}
        self.environment = {**_CREDENTIALS, **endpoint}
        import botocore.session

        self.client = botocore.session.get_session().create_client(
            "s3", "us-east-1", endpoint_url=self.url, **_KEYS
        )
        self.client.create_bucket(Bucket=BUCKET)

    def calm(self) -> list[str]:
        """Strike nothing any more; what was asked since the last order, as "PUT /bucket/key"."""
        return self._control({})

    def objects(self, directory: str) -> list[str]:
        """The keys below a directory of the bucket, relative to it."""
        pages = self.client.get_paginator("list_objects_v2").paginate(
            Bucket=BUCKET, Prefix=f"{directory}/"
        )
        keys = [each["Key"] for page in pages for each in page.get("Contents", [])]
        return sorted(key.removeprefix(f"{directory}/") for key in keys)

    def put(self, key: str, data: bytes) -> None:
        self.client.put_object(Bucket=BUCKET, Key=key, Body=data)

    def _control(self, order: dict[str, Any]) -> list[str]:
        request = urllib.request.Request(self.url + CONTROL, json.dumps(order).encode())
        with urllib.request.urlopen(request) as answer:
            asked: list[str] = json.load(answer)
        return asked

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


_KEYS = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing"}
_CREDENTIALS = {
    **{name.upper(): value for name, value in _KEYS.items()},
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}


# What follows runs in the server.


class _Struck:
    """The server's application, with one request or several that are struck."""

    def __init__(self, application: Callable[..., Iterable[bytes]]) -> None:
        self._application = application
        self._order: dict[str, Any] = {}
        self._asked: list[str] = []
        self._lock = threading.Lock()

    def __call__(
        self, environ: dict[str, Any], start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        if environ["PATH_INFO"] == CONTROL:
            body = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
            with self._lock:
                asked, self._asked, self._order = self._asked, [], json.loads(body)
            start_response("200 OK", [("Content-Type", "application/json")])
            return [json.dumps(asked).encode()]
        with self._lock:
            self._asked.append(f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}")
            now, n, strike = len(self._asked), self._order.get("n", 0), self._order.get("strike")
        if strike is None or now < n:
            return self._application(environ, start_response)
        if strike == KILL_AFTER and now == n:
            list(self._application(environ, lambda *_: lambda _: None))
        if strike in KILLS and now == n:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._order["pid"], signal.SIGKILL)
        return _refused(environ, start_response)


def _refused(environ: Any, start_response: Any) -> Iterator[bytes]:
    """An error that no client repeats."""
    environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    start_response("400 Bad Request", [("Content-Type", "application/xml")])
    error = "<Error><Code>InvalidRequest</Code><Message>the test says so</Message></Error>"
    yield f"<?xml version='1.0'?>{error}".encode()


def _serve() -> None:
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    application = _Struck(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, application, threaded=True)
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    _serve()
