"""A server that speaks the Hub's HTTP protocol to the real `huggingface_hub` client; it keeps everything in memory.

It knows dataset repositories and buckets. Files come by LFS where ``HF_HUB_DISABLE_XET=1`` says so, else by
Xet (xet_store.py). Heads of cards are checked by rules of its own (hub_cards.py). It counts what it was sent and what
it served, and fails on purpose where a test asks for it:

    hub = HubServer()
    hub.fail("PUT /lfs/", status=429, retry_after=1)   # the next such request
    hub.fail("PUT /lfs/", cut_after=1000)              # the connection drops after so many bytes
    hub.fail("POST .*/commit/", answer=False)          # it is done, and the connection drops before that is said
"""

import base64
import hashlib
import importlib.util
import json
import re
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit


def _beside(name: str) -> Any:
    """Load a file beside this one, which is in no package."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


card_errors = _beside("hub_cards").card_errors
XET_TOKEN = "xet_shortLived"  # noqa: S105  # of this server
USER, TOKEN = "me", "hf_notArealTokenButItLooksLike1"
DATE = "2026-01-01T00:00:00.000Z"
LFS_ENDINGS = (".parquet", ".arrow", ".bin", ".gz", ".npy", ".zst")


@dataclass(frozen=True)
class Blob:
    content: bytes
    oid: str
    """SHA-256 of an LFS file, the SHA-1 that git gives any other."""
    is_lfs: bool
    xet: str | None = None
    """Its hash, if it came by Xet."""

    @classmethod
    def regular(cls, content: bytes) -> "Blob":
        return cls(content, hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest(), False)  # noqa: S324  # as git does

    def entry(self, path: str) -> dict[str, Any]:
        told = {"type": "file", "path": path, "size": len(self.content), "oid": self.oid[:40]}
        told |= {"xetHash": self.xet} if self.xet else {}
        return told | ({"lfs": {"oid": self.oid, "size": len(self.content), "pointerSize": 134}} if self.is_lfs else {})


@dataclass
class Commit:
    title: str
    files: dict[str, Blob]


@dataclass
class Repository:
    name: str
    private: bool
    commits: dict[str, Commit] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)

    def revision(self, name: str) -> str | None:
        name = name.removeprefix("refs/heads/").removeprefix("refs/tags/")
        return self.branches.get(name) or self.tags.get(name) or (name if name in self.commits else None)

    def files(self, revision: str = "main") -> dict[str, Blob]:
        return self.commits[self.revision(revision) or ""].files

    def last_commit(self, path: str, until: str) -> dict[str, str]:
        """Return the commit that has last changed a file; commits follow each other."""
        before, last = None, {}
        for sha, commit in self.commits.items():
            if commit.files.get(path) != before:
                before, last = commit.files.get(path), {"id": sha, "title": commit.title, "date": DATE}
            if sha == until:
                break
        return last

    def commit(self, branch: str, title: str, files: dict[str, Blob]) -> str:
        told = [title, len(self.commits), sorted((path, blob.oid) for path, blob in files.items())]
        sha = hashlib.sha1(json.dumps(told).encode()).hexdigest()  # noqa: S324  # as git does
        self.commits[sha] = Commit(title, files)
        self.branches[branch] = sha
        return sha


@dataclass(frozen=True)
class BucketFile:
    content: bytes
    xet: str
    changed: int
    """Milliseconds, as the client says."""

    def entry(self, path: str) -> dict[str, Any]:
        changed = datetime.fromtimestamp(self.changed / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        about = {"type": "file", "path": path, "size": len(self.content), "xetHash": self.xet}
        return about | {"mtime": changed, "uploadedAt": changed}


@dataclass
class Failure:
    request: str
    """A regular expression that is looked for in ``METHOD path``."""
    times: int = 1
    status: int = 500
    retry_after: int | None = None
    cut_after: int | None = None
    """Drop the connection after so many bytes of what is sent here, or served from here."""
    then: Callable[[], Any] | None = None
    """Instead, do this, and then what is asked."""
    answer: bool = True
    """False: do what is asked, and drop the connection instead of saying so."""


@dataclass(frozen=True)
class Bucket:
    """A new bucket, as tests of stores take one."""

    server: "HubServer"
    name: str

    def url(self, path: str = "") -> str:
        return f"hf://buckets/{self.name}/{path}"

    def files(self, folder: str) -> dict[str, str]:
        """Return the SHA-256 of all files below a folder, by the rest of their paths."""
        found = {path: file.content for path, file in self.server.buckets[self.name].items()}
        below = f"{folder}/"
        return {
            path.removeprefix(below): hashlib.sha256(content).hexdigest()
            for path, content in found.items()
            if path.startswith(below)
        }


class HubServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, *, multipart_over: int | None = None, page: int = 1000) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.multipart_over, self.page = multipart_over, page
        """LFS files of more bytes are asked for in parts of so many; listings come in pages of so many entries."""
        self.repositories: dict[str, Repository] = {}
        self.buckets: dict[str, dict[str, BucketFile]] = {}
        """Files by path, by name of a bucket; all are private."""
        self.blobs: dict[str, bytes] = {}
        self.xet = _beside("xet_store").XetStore()
        self.xet_hashes: dict[str, str] = {}
        """Xet hashes by the SHA-256 of a file."""
        self.xet_files: dict[str, bytes] = {}
        """Files by their Xet hash."""
        self.parts: dict[tuple[str, int], bytes] = {}
        self.failures: list[Failure] = []
        self.commit_operations: int | None = None
        """Commits of more files take too long, and end in a 504."""
        self.delay = 0.0
        """Seconds before each answer."""
        self.lock = threading.RLock()
        self._paths: dict[str, str] = {}
        self.reset()
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def reset(self) -> None:
        """Forget what was counted."""
        self.requests: list[str] = []
        self.received: Counter[str] = Counter()
        """Bytes of files, by the OID of an LFS file or the path of any other."""
        self.served: Counter[str] = Counter()
        """Bytes of files, by path."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def fail(self, request: str, **how: Any) -> None:
        self.failures.append(Failure(request, **how))

    def sent(self) -> dict[str, int]:
        """Return the bytes of files that came in, by path where a commit has said which."""
        return {self._paths.get(name, name): size for name, size in self.received.items()}

    regular = staticmethod(Blob.regular)

    def named(self, oid: str, path: str) -> None:
        self._paths[oid] = path

    def new_bucket(self) -> Bucket:
        name = f"{USER}/bucket-{len(self.buckets)}"
        self.buckets[name] = {}
        return Bucket(self, name)

    def stop(self) -> None:
        self.shutdown()
        self.server_close()

    def handle_error(self, request: Any, address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, address)


class _RefusedError(Exception):
    def __init__(self, status: int, code: str = "", message: str = "refused") -> None:
        super().__init__(message)
        self.status, self.code = status, code


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Without this, the body of a small answer waits for the client to acknowledge its head.
    wbufsize = -1
    server: HubServer

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002  # the parent's name
        pass

    def _answer(self) -> None:
        parts = urlsplit(self.path)
        self.query = parse_qs(parts.query)
        asked = f"{self.command} {unquote(parts.path)}"
        threading.Event().wait(self.server.delay)
        failure = self._failure(asked)
        cut = failure.cut_after if failure else None
        self._cut_after = cut if self.command in ("GET", "HEAD") else None
        if cut is not None and self._cut_after is None:
            self._read_body(cut)
            self._drop()
            return
        self.body = self._read_body()
        if failure and failure.then:
            failure.then()
            failure = None
        with self.server.lock:
            self.server.requests.append(asked)
        if failure and cut is None and failure.answer:
            head = {"Retry-After": str(failure.retry_after)} if failure.retry_after is not None else {}
            self._send({"error": "told to fail"}, failure.status, head)
            return
        try:
            with self.server.lock:
                route, groups = self._route(parts.path)
                content, status, head = route(self, *groups)
        except _RefusedError as refused:
            head = {"X-Error-Code": refused.code, "X-Error-Message": str(refused)} if refused.code else {}
            self._send({"error": str(refused)}, refused.status, head)
        else:
            if failure and not failure.answer:
                self._drop()
            else:
                self._send(content, status, head)

    do_GET = do_POST = do_PUT = do_HEAD = do_DELETE = _answer  # noqa: N815  # the parent's names

    def _failure(self, asked: str) -> Failure | None:
        with self.server.lock:
            for failure in self.server.failures:
                if failure.times and re.search(failure.request, asked):
                    failure.times -= 1
                    return failure
        return None

    def _read_body(self, most: int | None = None) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            length = int(self.headers.get("Content-Length") or 0)
            return self.rfile.read(length if most is None else min(length, most))
        read = b""
        while (size := int(self.rfile.readline(), 16)) and (most is None or len(read) < most):
            read += self.rfile.read(size)
            self.rfile.readline()
        if not size:
            self.rfile.readline()
        return read

    def _drop(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def _send(self, content: Any, status: int = 200, head: dict[str, str] | None = None) -> None:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        head = {"Content-Type": "application/json", "Content-Length": str(len(body))} | (head or {})
        self.send_response(status)
        for name, value in head.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body if self._cut_after is None else body[: self._cut_after])
        self.wfile.flush()
        if self._cut_after is not None:
            self._drop()

    def _route(self, path: str) -> tuple[Callable[..., Any], list[str]]:
        for methods, pattern, route in ROUTES:
            if self.command in methods and (found := re.fullmatch(pattern, path)):
                return route, [unquote(group or "") for group in found.groups()]
        raise _RefusedError(404, "", f"no such endpoint: {self.command} {path}")

    def _signed_in(self) -> bool:
        given = self.headers.get("Authorization")
        if given is not None and given != f"Bearer {TOKEN}":
            raise _RefusedError(401, "", "Invalid credentials in Authorization header")
        return given is not None

    def _repository(self, name: str, *, write: bool = False) -> Repository:
        signed_in = self._signed_in()
        repository = self.server.repositories.get(name)
        if repository is None or (repository.private and not signed_in):
            raise _RefusedError(404 if signed_in else 401, "RepoNotFound", "Repository not found")
        if write and not signed_in:
            raise _RefusedError(403, "", "you need to be signed in")
        return repository

    def _commit(self, repository: Repository, revision: str) -> tuple[str, dict[str, Blob]]:
        sha = repository.revision(revision or "main")
        if sha is None:
            raise _RefusedError(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return sha, repository.commits[sha].files

    def whoami(self) -> Any:
        if not self._signed_in():
            raise _RefusedError(401, "", "Invalid username or password.")
        return {"type": "user", "name": USER, "orgs": [], "auth": {"accessToken": {"role": "write"}}}, 200, {}

    def validate_yaml(self) -> Any:
        wrong, odd = card_errors(json.loads(self.body)["content"])
        status = 400 if wrong else 200
        if self.headers.get("Accept") == "text/plain":
            return "".join(f"- Error: {each}\n" for each in wrong).encode(), status, {"Content-Type": "text/plain"}
        told = {"errors": [{"message": each} for each in wrong], "warnings": [{"message": each} for each in odd]}
        return told, status, {}

    def create(self) -> Any:
        asked = json.loads(self.body)
        if not self._signed_in():
            raise _RefusedError(401, "", "Invalid username or password.")
        name = f"{asked.get('organization') or USER}/{asked['name']}"
        if not name.startswith(f"{USER}/"):
            raise _RefusedError(403, "", f"you have no rights for the namespace {name.partition('/')[0]}")
        address = f"{self.server.url}/datasets/{name}"
        if name in self.server.repositories:
            return {"error": "You already created this dataset repo", "url": address}, 409, {}
        private = asked.get("private") or asked.get("visibility") == "private"
        repository = self.server.repositories[name] = Repository(name, bool(private))
        lines = "".join(f"*{ending} filter=lfs diff=lfs merge=lfs -text\n" for ending in LFS_ENDINGS)
        repository.commit("main", "initial commit", {".gitattributes": Blob.regular(lines.encode())})
        return {"url": address, "name": name, "id": "0"}, 200, {}

    def info(self, name: str, revision: str = "") -> Any:
        repository = self._repository(name)
        sha, files = self._commit(repository, revision)
        told = {"_id": "0", "id": name, "author": name.partition("/")[0], "sha": sha, "private": repository.private}
        told |= {"gated": False, "disabled": False, "downloads": 0, "likes": 0, "tags": []}
        told |= {"lastModified": DATE, "createdAt": DATE, "siblings": [{"rfilename": path} for path in files]}
        return told, 200, {"X-Repo-Commit": sha}

    def no_model(self, _name: str) -> Any:
        raise _RefusedError(404 if self._signed_in() else 401, "RepoNotFound", "Repository not found")

    def tree(self, name: str, revision: str, folder: str = "") -> Any:
        sha, files = self._commit(self._repository(name), revision)
        inside = f"{folder.strip('/')}/" if folder else ""
        recursive = self.query.get("recursive", ["false"])[0].lower() in ("true", "1")
        found: dict[str, dict[str, Any]] = {}
        for path, blob in sorted(files.items()):
            if path.startswith(inside):
                steps = path[len(inside) :].split("/")
                for depth in range(1, len(steps) if recursive else min(2, len(steps))):
                    above = inside + "/".join(steps[:depth])
                    found[above] = {"type": "directory", "path": above, "size": 0, "oid": "0" * 40}
                if recursive or len(steps) == 1:
                    found[path] = blob.entry(path)
        if inside and not found:
            raise _RefusedError(404, "EntryNotFound", f"{folder} does not exist on {revision}")
        first = int(self.query.get("cursor", ["0"])[0])
        more = len(found) > first + self.server.page
        address = f"{self.server.url}{urlsplit(self.path).path}?recursive={recursive}&cursor={first + self.server.page}"
        head = {"X-Repo-Commit": sha} | ({"Link": f'<{address}>; rel="next"'} if more else {})
        return list(found.values())[first : first + self.server.page], 200, head

    def paths_info(self, name: str, revision: str) -> Any:
        repository = self._repository(name)
        sha, files = self._commit(repository, revision)
        asked = json.loads(self.body) if self.body[:1] == b"{" else parse_qs(self.body.decode())
        paths = asked.get("paths", [])
        found = []
        for path in [paths] if isinstance(paths, str) else paths:
            if path in files:
                found.append(files[path].entry(path) | {"lastCommit": repository.last_commit(path, sha)})
            elif any(each.startswith(f"{path}/") for each in files):
                found.append({"type": "directory", "path": path, "size": 0, "oid": "0" * 40})
        return found, 200, {}

    def refs(self, name: str) -> Any:
        repository = self._repository(name)
        branches = [
            {"name": each, "ref": f"refs/heads/{each}", "targetCommit": sha}
            for each, sha in repository.branches.items()
        ]
        tags = [
            {"name": each, "ref": f"refs/tags/{each}", "targetCommit": sha} for each, sha in repository.tags.items()
        ]
        return {"branches": branches, "converts": [], "tags": tags}, 200, {}

    def branch(self, name: str, branch: str) -> Any:
        repository = self._repository(name, write=True)
        asked = json.loads(self.body or b"{}")
        if branch in repository.branches:
            raise _RefusedError(409, "", f"the branch {branch} exists already")
        repository.branches[branch] = self._commit(repository, asked.get("startingPoint", "main"))[0]
        return {}, 200, {}

    def tag(self, name: str, revision: str) -> Any:
        repository = self._repository(name, write=True)
        tag = json.loads(self.body)["tag"]
        if tag in repository.tags:
            raise _RefusedError(409, "", f"the tag {tag} exists already")
        repository.tags[tag] = self._commit(repository, revision)[0]
        return {}, 200, {}

    def preupload(self, name: str, revision: str) -> Any:
        _, files = self._commit(self._repository(name, write=True), revision)
        told = []
        for each in json.loads(self.body)["files"]:
            path, sample = each["path"], base64.b64decode(each["sample"])
            is_lfs = path.endswith(LFS_ENDINGS) or each["size"] > 10_000_000 or b"\0" in sample
            there = files[path].oid if path in files else None
            mode = "lfs" if is_lfs else "regular"
            told.append({"path": path, "uploadMode": mode, "shouldIgnore": False, "oid": there})
        return {"files": told}, 200, {}

    def lfs_batch(self, name: str) -> Any:
        self._repository(name, write=True)
        told = []
        for each in json.loads(self.body)["objects"]:
            about: dict[str, Any] = {"oid": each["oid"], "size": each["size"]}
            if each["oid"] not in self.server.blobs:
                about["actions"] = {"upload": self._upload_action(each["oid"], each["size"])}
            told.append(about)
        return {"transfer": "basic", "objects": told}, 200, {"Content-Type": "application/vnd.git-lfs+json"}

    def _upload_action(self, oid: str, size: int) -> dict[str, Any]:
        part = self.server.multipart_over
        if part is None or size <= part:
            return {"href": f"{self.server.url}/lfs/{oid}", "header": {}}
        urls = {str(number + 1): f"{self.server.url}/lfs/{oid}/{number + 1}" for number in range(-(-size // part))}
        return {"href": f"{self.server.url}/lfs/{oid}/complete", "header": {"chunk_size": str(part), **urls}}

    def lfs_put(self, oid: str, part: str = "") -> Any:
        self.server.received[oid] += len(self.body)
        if part:
            self.server.parts[oid, int(part)] = self.body
        else:
            self._keep(oid, self.body)
        return {}, 200, {"ETag": f'"{hashlib.md5(self.body).hexdigest()}"'}  # noqa: S324  # as S3 does

    def lfs_complete(self, oid: str) -> Any:
        numbers = [part["partNumber"] for part in json.loads(self.body)["parts"]]
        self._keep(oid, b"".join(self.server.parts[oid, number] for number in numbers))
        return {}, 200, {}

    def _keep(self, oid: str, content: bytes) -> None:
        if hashlib.sha256(content).hexdigest() != oid:
            raise _RefusedError(422, "", "the content does not have this SHA-256")
        self.server.blobs[oid] = content

    def xet_token(self, name: str, kind: str, _revision: str) -> Any:
        self._repository(name, write=kind == "write")
        return self._xet_answer()

    def _xet_answer(self) -> Any:
        told = {"accessToken": XET_TOKEN, "exp": int(time.time()) + 3600, "casUrl": f"{self.server.url}/xet"}
        head = {"X-Xet-Access-Token": XET_TOKEN, "X-Xet-Token-Expiration": str(told["exp"])}
        return told, 200, head | {"X-Xet-Cas-Url": f"{self.server.url}/xet"}

    def xet_xorb(self, xorb: str) -> Any:
        self._with_xet_token()
        self.server.received[f"xorb {xorb}"] += len(self.body)
        self.server.xet.xorbs[xorb] = self.body
        return {"was_inserted": True}, 200, {}

    def xet_shard(self) -> Any:
        self._with_xet_token()
        for xet, content in self.server.xet.add_shard(self.body).items():
            oid = hashlib.sha256(content).hexdigest()
            self.server.xet_hashes[oid], self.server.xet_files[xet] = xet, content
            self._keep(oid, content)
        return {"result": 1}, 200, {}

    def xet_reconstruction(self, name: str) -> Any:
        self._with_xet_token()
        return self.server.xet.reconstruction(name, f"{self.server.url}/xet/data"), 200, {}

    def xet_data(self, xorb: str) -> Any:
        first, last = map(int, re.findall(r"\d+", self.headers["Range"]))
        content = self.server.xet.xorbs[xorb][first : last + 1]
        self.server.served[f"xorb {xorb}"] += len(content)
        return content, 206, {"Content-Range": f"bytes {first}-{last}/{len(self.server.xet.xorbs[xorb])}"}

    def _with_xet_token(self) -> None:
        if self.headers.get("Authorization") != f"Bearer {XET_TOKEN}":
            raise _RefusedError(401, "", "the storage takes no token but its own")

    def _bucket(self, name: str) -> dict[str, BucketFile]:
        if not self._signed_in() or name not in self.server.buckets:
            raise _RefusedError(404, "RepoNotFound", "Repository not found")
        return self.server.buckets[name]

    def bucket_info(self, name: str) -> Any:
        files = self._bucket(name)
        size = sum(len(file.content) for file in files.values())
        told = {"id": name, "private": True, "createdAt": DATE, "size": size, "totalFiles": len(files)}
        return told, 200, {}

    def bucket_tree(self, name: str, prefix: str = "") -> Any:
        inside = f"{prefix.strip('/')}/" if prefix else ""
        recursive = self.query.get("recursive", ["false"])[0].lower() in ("true", "1")
        found: dict[str, dict[str, Any]] = {}
        for path, file in sorted(self._bucket(name).items()):
            if path.startswith(inside):
                step, below, _ = path[len(inside) :].partition("/")
                if recursive or not below:
                    found[path] = file.entry(path)
                else:
                    found[inside + step] = {"type": "directory", "path": inside + step, "uploadedAt": DATE}
        first = int(self.query.get("cursor", ["0"])[0])
        last = first + self.server.page
        address = f"{self.server.url}{urlsplit(self.path).path}?recursive={recursive}&cursor={last}"
        head = {"Link": f'<{address}>; rel="next"'} if len(found) > last else {}
        return list(found.values())[first:last], 200, head

    def bucket_batch(self, name: str) -> Any:
        """Do what is asked line by line; the last one to write a path wins, as there are no conditions."""
        files, failed = self._bucket(name), []
        for each in map(json.loads, self.body.splitlines()):
            path = each["path"]
            if each["type"] == "addFile":
                files[path] = BucketFile(self.server.xet_files[each["xetHash"]], each["xetHash"], each["mtime"])
            elif files.pop(path, None) is None:
                failed.append({"path": path, "error": "not found"})
        return {"success": not failed, "failed": failed}, 422 if failed else 200, {}

    def bucket_token(self, name: str, _kind: str) -> Any:
        self._bucket(name)
        return self._xet_answer()

    def bucket_file(self, name: str, path: str) -> Any:
        file = self._bucket(name).get(path)
        if file is None:
            raise _RefusedError(404, "EntryNotFound", "Entry not found")
        return self._ranged(path, file.content, {"ETag": f'"{file.xet}"'})

    def commit(self, name: str, branch: str) -> Any:
        repository = self._repository(name, write=True)
        head, files = self._commit(repository, branch)
        header, *operations = [json.loads(line) for line in self.body.splitlines() if line.strip()]
        if self.server.commit_operations is not None and len(operations) > self.server.commit_operations:
            raise _RefusedError(504, "", "Gateway Time-out")
        if header["value"].get("parentCommit") not in (None, head):
            raise _RefusedError(412, "", "A commit has happened since. Please refresh and try again.")
        files = dict(files)
        for each in operations:
            self._apply(files, each["key"], each["value"])
        sha = repository.commit(branch, header["value"]["summary"], files)
        address = f"{self.server.url}/datasets/{name}/commit/{sha}"
        return {"success": True, "commitOid": sha, "commitUrl": address}, 200, {}

    def _apply(self, files: dict[str, Blob], key: str, value: dict[str, Any]) -> None:
        path = value["path"]
        if key == "file":
            files[path] = Blob.regular(base64.b64decode(value["content"]))
            self.server.received[path] += len(files[path].content)
        elif key == "lfsFile":
            if value["oid"] not in self.server.blobs:
                raise _RefusedError(422, "", f"{path} has not been uploaded")
            xet = self.server.xet_hashes.get(value["oid"])
            files[path] = Blob(self.server.blobs[value["oid"]], value["oid"], True, xet)
            self.server.named(value["oid"], path)
        elif key == "deletedFile":
            if files.pop(path, None) is None:
                raise _RefusedError(404, "EntryNotFound", "A file with this name doesn't exist")
        else:
            for each in [each for each in files if each.startswith(f"{path.rstrip('/')}/")]:
                del files[each]

    def resolve(self, name: str, revision: str, path: str) -> Any:
        sha, files = self._commit(self._repository(name), revision)
        if path not in files:
            raise _RefusedError(404, "EntryNotFound", "Entry not found")
        blob = files[path]
        head = {"X-Repo-Commit": sha, "ETag": f'"{blob.oid}"', "X-Linked-Etag": f'"{blob.oid}"'}
        if blob.xet:
            route = f"{self.server.url}/api/datasets/{name}/xet-read-token/{sha}"
            head |= {"X-Xet-Hash": blob.xet, "X-Xet-Refresh-Route": route}
        return self._ranged(path, blob.content, head)

    def _ranged(self, path: str, whole: bytes, head: dict[str, str]) -> Any:
        size = len(whole)
        head |= {"X-Linked-Size": str(size), "Accept-Ranges": "bytes", "Content-Type": "application/octet-stream"}
        asked = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        if asked is None:
            content, status = whole, 200
        else:
            first, last = asked.groups()
            start = int(first) if first else max(size - int(last), 0)
            stop = min(int(last) + 1, size) if first and last else size
            content, status = whole[start:stop], 206
            head["Content-Range"] = f"bytes {start}-{stop - 1}/{size}"
        if self.command == "GET":
            self.server.served[path] += len(content)
        return content, status, head | {"Content-Length": str(len(content))}


REPO = r"([^/]+/[^/]+?)"
API = rf"/api/datasets/{REPO}"
BUCKET = rf"/api/buckets/{REPO}"
ROUTES: list[tuple[tuple[str, ...], str, Callable[..., Any]]] = [
    (("GET",), "/api/whoami-v2", _Handler.whoami),
    (("POST",), "/api/validate-yaml", _Handler.validate_yaml),
    (("POST",), "/api/repos/create", _Handler.create),
    (("GET",), r"/api/models/(.+)", _Handler.no_model),
    (("GET",), API, _Handler.info),
    (("GET",), rf"{API}/revision/([^/]+)", _Handler.info),
    (("GET",), rf"{API}/tree/([^/]+)(?:/(.*))?", _Handler.tree),
    (("POST",), rf"{API}/paths-info/([^/]+)", _Handler.paths_info),
    (("GET",), rf"{API}/refs", _Handler.refs),
    (("POST",), rf"{API}/branch/([^/]+)", _Handler.branch),
    (("POST",), rf"{API}/tag/([^/]+)", _Handler.tag),
    (("POST",), rf"{API}/preupload/([^/]+)", _Handler.preupload),
    (("POST",), rf"{API}/commit/([^/]+)", _Handler.commit),
    (("POST",), rf"/datasets/{REPO}\.git/info/lfs/objects/batch", _Handler.lfs_batch),
    (("PUT",), r"/lfs/([0-9a-f]{64})(?:/(\d+))?", _Handler.lfs_put),
    (("POST",), r"/lfs/([0-9a-f]{64})/complete", _Handler.lfs_complete),
    (("GET",), rf"{API}/xet-(read|write)-token/([^/]+)", _Handler.xet_token),
    (("GET",), rf"{BUCKET}", _Handler.bucket_info),
    (("GET",), rf"{BUCKET}/tree(?:/(.*))?", _Handler.bucket_tree),
    (("POST",), rf"{BUCKET}/batch", _Handler.bucket_batch),
    (("GET",), rf"{BUCKET}/xet-(read|write)-token", _Handler.bucket_token),
    (("GET", "HEAD"), rf"/buckets/{REPO}/resolve/(.+)", _Handler.bucket_file),
    (("POST",), r"/xet/v1/xorbs/default/([0-9a-f]{64})", _Handler.xet_xorb),
    (("POST",), r"/xet/v1/shards", _Handler.xet_shard),
    (("GET",), r"/xet/v1/reconstructions/([0-9a-f]{64})", _Handler.xet_reconstruction),
    (("GET",), r"/xet/data/([0-9a-f]{64})", _Handler.xet_data),
    (("GET", "HEAD"), rf"/datasets/{REPO}/resolve/([^/]+)/(.+)", _Handler.resolve),
]
