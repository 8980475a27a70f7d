"""A real S3 server on this machine (moto's), with its outages and its errors."""

import hashlib
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

import pytest

moto_server = pytest.importorskip("moto.server", reason="needs pip install 'moto[s3]' flask flask-cors")
s3fs = pytest.importorskip("s3fs", reason="needs pip install 'longcrawl[s3]'")
boto3 = pytest.importorskip("boto3", reason="needs pip install 'moto[s3]'")


class Store:
    """An S3 server, a bucket of each test in it, and what it answers instead of what it would."""

    def __init__(self, server: Any) -> None:
        self.endpoint = "http://{}:{}".format(*server.get_host_and_port())
        keys = {"aws_access_key_id": "me", "aws_secret_access_key": "hidden", "region_name": "us-east-1"}
        self.client = boto3.client("s3", endpoint_url=self.endpoint, **keys)
        app, server._server.app = server._server.app, self._answer
        self._app = app
        # A client that keeps its connection would keep the process from ending.
        server._server.daemon_threads = True

    @contextmanager
    def begin(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[Self]:
        """Make a new bucket, and let the environment name the server; s3fs asks it instead of Amazon's."""
        self.answers: Iterator[str | None] = iter(())
        """A status and a code for each request to come, or None for what the server itself answers."""
        self.asked: list[str] = []
        self.bucket = f"bucket-{uuid4().hex[:12]}"
        self.client.create_bucket(Bucket=self.bucket)
        for name, value in {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": "me",
            "AWS_SECRET_ACCESS_KEY": "hidden",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_MAX_ATTEMPTS": "1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }.items():
            monkeypatch.setenv(name, value)
        yield self

    @contextmanager
    def read_environment_again(self) -> Iterator[None]:
        """Let s3fs make new clients: it keeps those for the same options, and reads the environment once."""
        s3fs.S3FileSystem.clear_instance_cache()
        yield
        s3fs.S3FileSystem.clear_instance_cache()

    def _answer(self, environ: dict[str, Any], start_response: Any) -> Any:
        self.asked.append(f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}")
        if (instead := next(self.answers, None)) is None:
            return self._app(environ, start_response)
        code = instead.partition(" ")[2]
        body = f"<Error><Code>{code}</Code><Message>{code}, as the test wants</Message></Error>".encode()
        start_response(instead, [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
        return [body if environ["REQUEST_METHOD"] != "HEAD" else b""]

    def url(self, key: str = "") -> str:
        return f"s3://{self.bucket}/{key}"

    def put(self, key: str, content: bytes) -> None:
        self.client.put_object(Bucket=self.bucket, Key=key, Body=content)

    def files(self, folder: str) -> dict[str, str]:
        """Return the SHA-256 of all objects below a folder, by the rest of their keys."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=f"{folder}/")
        keys = [found["Key"] for page in pages for found in page.get("Contents", [])]
        read = {key: self.client.get_object(Bucket=self.bucket, Key=key)["Body"].read() for key in keys}
        return {key.removeprefix(f"{folder}/"): hashlib.sha256(content).hexdigest() for key, content in read.items()}

    def put_folder(self, folder: Path) -> None:
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                self.put(file.relative_to(folder).as_posix(), file.read_bytes())


@contextmanager
def serve() -> Iterator[Store]:
    """Start a server; its thread would look for its end twice a second, and each test would wait for that."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = moto_server.ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    yield Store(server)
    s3fs.S3FileSystem.clear_instance_cache()
    server.stop()
