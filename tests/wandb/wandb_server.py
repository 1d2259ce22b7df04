"""A server on this machine that W&B's own client uploads to: it keeps what arrives, as W&B does."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

STRANGER = "stranger"
"""An entity that may do nothing."""
NAMES = {"entity": {"id": "e", "name": "me"}, "id": "p", "name": "rffl_pl"}


@dataclass
class Uploaded:
    """A run as W&B has it.

    Attributes:
        about: Group, job type, tags, display name and the like, as last said.
        config: Its configuration.
        history: A row per line of the history, at the place that the client said.
        summary: Its summary.
        files: Everything else, by path.
    """

    about: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    history: dict[int, dict[str, Any]] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)


@dataclass
class Server:
    """What was uploaded: runs by identity, and the views (workspaces, reports) in their order."""

    url: str = ""
    runs: dict[str, Uploaded] = field(default_factory=lambda: defaultdict(Uploaded))
    views: list[dict[str, Any]] = field(default_factory=list)

    def answer(self, query: str, variables: dict[str, Any]) -> dict[str, Any]:
        """What W&B answers to the queries of its client."""
        if "upsertBucket" in query:
            return {"upsertBucket": {"bucket": self._run(variables), "inserted": True}}
        if "bucket(" in query:
            return {"model": {"bucket": self._so_far(variables["name"])}}
        if "upsertView" in query:
            self.views.append(variables)
            project = {"id": "p", "name": variables["projectName"], "entityName": variables["entityName"]}
            return {"upsertView": {"view": {**variables, "id": "v", "project": project}, "inserted": True}}
        if "createRunFiles" in query:
            place = f"{self.url}/storage/{variables['run']}"
            files = [{"name": name, "uploadUrl": f"{place}/{name}"} for name in variables["files"]]
            return {"createRunFiles": {"runID": "b", "uploadHeaders": [], "files": files}}
        if "models(entityName" in query:
            return {
                "models": {"pageInfo": {"__typename": "PageInfo", "endCursor": None, "hasNextPage": False}, "edges": []}
            }
        viewer = {"id": "u", "entity": "me", "username": "me", "flags": "{}", "teams": {"edges": []}}
        return {"viewer": viewer, "result": {"inserted": True}, "serverInfo": {"features": []}}

    def _run(self, variables: dict[str, Any]) -> dict[str, Any]:
        run = self.runs[variables["name"]]
        run.about |= {name: value for name, value in variables.items() if value is not None}
        run.config |= {key: item["value"] for key, item in json.loads(variables["config"] or "{}").items()}
        config = json.dumps({key: {"value": value} for key, value in run.config.items()})
        known = {"name": variables["name"], "displayName": "", "description": "", "sweepName": "", "id": "b"}
        return {**known, "config": config, "historyLineCount": len(run.history), "project": NAMES}

    def _so_far(self, identity: str) -> dict[str, Any] | None:
        """What W&B tells of a run to a client that goes on with it."""
        if identity not in self.runs:
            return None
        run = self.runs[identity]
        lines = [json.dumps(run.history[line]) for line in sorted(run.history)]
        config = json.dumps({key: {"value": value} for key, value in run.config.items()})
        known = {"name": identity, "displayName": "", "id": "b", "tags": [], "config": config}
        counts = {"historyLineCount": len(lines), "logLineCount": 0, "eventsLineCount": 0, "eventsTail": "[]"}
        tail = {"historyTail": json.dumps(lines[-1:]), "summaryMetrics": json.dumps(run.summary)}
        return {**known, **counts, **tail, "wandbConfig": json.dumps({"t": 1})}

    def stream(self, identity: str, files: dict[str, Any]) -> None:
        """Rows of the history, and the summary."""
        run = self.runs[identity]
        if rows := files.get("wandb-history.jsonl"):
            run.history |= {rows["offset"] + i: json.loads(row) for i, row in enumerate(rows["content"])}
        if summary := files.get("wandb-summary.json"):
            run.summary |= json.loads(summary["content"][-1])


@contextmanager
def wandb_server() -> Iterator[Server]:
    """A server while the context lasts."""
    server = Server()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args: Any) -> None:
            """Nothing."""

        def _body(self) -> bytes:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            return gzip.decompress(body) if self.headers.get("content-encoding") == "gzip" else body

        def _reply(self, content: dict[str, Any], status: int = 200) -> None:
            text = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def do_POST(self) -> None:
            body = self._body()
            if self.path == "/graphql":
                asked = json.loads(body)
                variables = asked.get("variables") or {}
                if STRANGER in variables.values():
                    self._reply({"errors": [{"message": "permission denied"}]}, status=403)
                else:
                    self._reply({"data": server.answer(asked["query"], variables)})
            elif self.path.endswith("/file_stream"):
                server.stream(self.path.split("/")[-2], json.loads(body).get("files") or {})
                self._reply({})
            else:
                self._reply({})

        def do_PUT(self) -> None:
            _, _, identity, name = self.path.split("/", 3)
            server.runs[identity].files[name] = self._body()
            self._reply({})

    class Quiet(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            """Nothing: a client that hangs up has what it wanted."""

    http = Quiet(("127.0.0.1", 0), Handler)
    server.url = f"http://127.0.0.1:{http.server_address[1]}"
    Thread(target=http.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()
