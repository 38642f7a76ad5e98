"""A folder that looks like an installed NeMo Gym 0.7: servers of its shapes, and an interpreter that finds them.

The stub's agent plays as the release does: seed, ask the model, run the tools it asks for, verify. A task's category makes it
misbehave.
"""

from __future__ import annotations

import sys
from pathlib import Path

BASE = """
import http.server, json, os, sys, threading, urllib.error, urllib.request

CONFIG, NAME = json.loads(os.environ["NEMO_GYM_CONFIG_DICT"]), os.environ["NEMO_GYM_CONFIG_PATH"]


def own(name):
    (kind,) = CONFIG[name].values()
    (settings,) = kind.values()
    return settings


def post(server, path, body):
    at = own(server)
    asked = urllib.request.Request(
        f"http://{at['host']}:{at['port']}{path}", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    try:
        with urllib.request.urlopen(asked) as answered:
            return json.loads(answered.read())
    except urllib.error.HTTPError as error:
        raise RuntimeError(f"{server}{path} answered {error.code}: {error.read()[:300]!r}") from error


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *given):
        pass

    def do_GET(self):
        self.say(200, b"{}")

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])) or b"{}")
        try:
            self.say(*SERVE(self.path, body))
        except Exception as error:
            self.say(500, repr(error).encode())

    def say(self, status, content):
        self.send_response(status)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def main(serve):
    global SERVE
    SERVE = serve
    at = own(NAME)
    http.server.ThreadingHTTPServer((at["host"], at["port"]), Handler).serve_forever()
"""

AGENT = """
import json
import nemo_gym.base as base


def run(body):
    category = body["category"]
    if category == "fails":
        return 500, b"Internal Server Error"
    if category == "garbage":
        return 200, b"<html>"
    if category == "quick":
        return 200, json.dumps({"response": {"output": []}, "reward": 0.5}).encode()
    base.post("rollproof_resources", "/seed_session", body)
    items, asked = list(body["responses_create_params"]["input"]), body["responses_create_params"]
    for step in range(base.own(base.NAME)["max_steps"]):
        for repeat in range(2 if category == "repeats" else 1):
            answered = base.post("rollproof_policy", "/v1/responses", {**asked, "input": items})
        items += answered["output"]
        calls = [item for item in answered["output"] if item["type"] == "function_call"]
        for call in calls:
            told = base.post("rollproof_resources", "/" + call["name"], json.loads(call["arguments"]))
            items.append({"type": "function_call_output", "call_id": call["call_id"], "output": json.dumps(told)})
        if not calls:
            break
    if category == "masked":
        return 200, json.dumps({"reward": 0.0, "mask_sample": True, "failure_kind": "agent", "failure_reason": "why"}).encode()
    verified = base.post("rollproof_resources", "/verify", {**body, "response": {"output": items}})
    return 200, json.dumps({**verified, "response": {"output": items}, "mask_sample": False, "failure_kind": None}).encode()


base.main(lambda path, body: run(body) if path == "/run" else (404, b'{"detail":"Not Found"}'))
"""

RESOURCES = """
import json, os
import nemo_gym.base as base


def serve(path, body):
    if path == "/seed_session" and body["category"] == "dies":
        os._exit(3)
    if path == "/verify":
        calls = [item for item in body["response"]["output"] if item.get("type") == "function_call"]
        return 200, json.dumps({"reward": 1.0 if calls else 0.0}).encode()
    return 200, json.dumps({"output": "done"}).encode()


base.main(serve)
"""


def install(folder: Path, agent: str = AGENT) -> str:
    """Path of the interpreter."""
    package = folder / "nemo_gym"
    for path, text in (
        (package / "__init__.py", "from pathlib import Path\n__version__ = '0.7.0'\nPARENT_DIR = Path(__file__).parent.parent\n"),
        (package / "base.py", BASE),
        (folder / "responses_api_agents" / "simple_agent" / "app.py", agent),
        (folder / "resources_servers" / "workplace_assistant" / "app.py", RESOURCES),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    python = folder / "gym-python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{folder}" exec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    return str(python)
