"""A Ray cluster of several nodes in processes of this machine, models over HTTP that keep books, and what a run came to
as a digest: for tests and for `trinity bench engine`."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import json
import multiprocessing
import os
import re
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import psutil

from storage.store import Store, open_store
from tests.bench._overhead import message_in
from tests.zygote import FOLDER, forked

SOURCE = Path(__file__).resolve().parents[2]
#: Starts the nodes, prints the address, and does what it is told: lose a node that is not the head, or add one whose
#: processes get more of an environment. It holds them until its input ends.
_NODES = """
import json, os, sys
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
from ray.cluster_utils import Cluster
size = {"num_cpus": 1, "node_ip_address": "127.0.0.1", "object_store_memory": 80 * 2**20}
size |= {"include_log_monitor": False}
head = {"include_dashboard": False, "no_monitor": True, "_system_config": json.loads(sys.argv[2])}
cluster = Cluster(initialize_head=True, head_node_args={**size, **head})
nodes = [cluster.add_node(**size) for _ in range(int(sys.argv[1]) - 1)]
print(cluster.address, flush=True)
for line in sys.stdin:
    said, _, more = line.partition(" ")
    if said.strip() == "lose":
        cluster.remove_node(nodes.pop(), allow_graceful=False)
    else:
        before = dict(os.environ)
        os.environ.update(json.loads(more))
        nodes.append(cluster.add_node(**size))
        os.environ.clear()
        os.environ.update(before)
    print("done", flush=True)
cluster.shutdown()
"""


class Nodes:
    """A cluster that is up, at its `address`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        assert process.stdout
        assert process.stdin
        self._to, self._said = process.stdin, process.stdout
        self.address = self._said.readline().strip()

    def lose_one(self) -> None:
        """Kill the node that came last, which is not the head, with all that runs there."""
        self._tell("lose")

    def add_one(self, **env: str) -> None:
        """One more node; its processes have more of an environment."""
        self._tell(f"add {json.dumps(env)}")

    def lose_all(self) -> None:
        """Kill every process of every node."""
        for process in self._processes():
            with suppress(psutil.NoSuchProcess):
                process.kill()

    def lose(self, kind: str, how: signal.Signals = signal.SIGKILL) -> int:
        """Kill a process of the actors of this kind, which is not asked before, or stop it; its id, 0 where there is
        none."""
        found = self.actors(kind)
        for process in found[:1]:
            process.send_signal(how)
        return found[0].pid if found else 0

    def actors(self, kind: str) -> list[psutil.Process]:
        """The processes of the actors of this kind."""
        return [one for one in self._processes() if re.match(rf"ray::{kind}\b", _title(one))]

    def _processes(self) -> list[psutil.Process]:
        found: list[psutil.Process] = psutil.Process(self._process.pid).children(recursive=True)
        return found

    def _tell(self, words: str) -> None:
        self._to.write(f"{words}\n")
        self._to.flush()
        assert self._said.readline().strip() == "done"


def _title(process: psutil.Process) -> str:
    try:
        return str((process.cmdline() or [""])[0])
    except psutil.Error:  # it has just ended
        return ""


@contextmanager
def cluster(nodes: int, system: Mapping[str, Any] | None = None) -> Iterator[Nodes]:
    """So many nodes of one core each, all on 127.0.0.1; `system` changes what Ray itself goes by."""
    with subprocess.Popen(
        [sys.executable, "-c", _NODES, str(nodes), json.dumps(system or {})],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,  # when it dies, Ray ends all processes of its group
    ) as process:
        try:
            yield Nodes(process)
        finally:
            assert process.stdin
            started = psutil.Process(process.pid).children(recursive=True)
            process.stdin.close()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
            for one in started:  # those that were stopped do not end by themselves
                with suppress(psutil.NoSuchProcess):
                    one.kill()


class _Model(asyncio.Protocol):
    """A model whose reply follows from what it is asked, after a while; at /books what was asked so far."""

    books: Counter[str] = Counter()
    wait_s = 0.0

    def __init__(self) -> None:
        self._came = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._came += data
        while (found := message_in(self._came)) is not None:
            head, content, self._came = found
            if head.startswith(b"GET"):
                self._send(self.books)
                continue
            self.books["calls"] += 1
            self.books["at_once"] += 1
            self.books["most_at_once"] = max(self.books["most_at_once"], self.books["at_once"])
            asyncio.get_running_loop().call_later(self.wait_s, self._answer, content)

    def _answer(self, content: bytes) -> None:
        self.books["at_once"] -= 1
        asked = json.loads(content)
        prompt = "\n".join(message["content"] for message in asked["messages"])
        tag = prompt.rpartition("VERDICT-")[2].partition(":")[0]
        # The tag is drawn for each call; what is said must not hang on it.
        plain = f"{asked['model']} {prompt.replace(tag, '') if 'VERDICT-' in prompt else prompt}"
        number = int.from_bytes(hashlib.blake2b(plain.encode(), digest_size=4).digest())
        verdict = "ACCEPT" if number % 3 else "REVISE"
        text = f"I see.\nVERDICT-{tag}: {verdict}" if "VERDICT-" in prompt else str(number % 20)
        sent, written = len(prompt) // 4, 1 + number % 30
        self.books["tokens_in"] += sent
        self.books["tokens_out"] += written
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        self._send(
            {"choices": [choice], "usage": {"prompt_tokens": sent, "completion_tokens": written}},
        )

    def _send(self, said: Mapping[str, Any]) -> None:
        body = json.dumps(said).encode()
        head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        if not self._transport.is_closing():
            self._transport.write(head.encode() + body)


def _serve(listener: socket.socket, wait_s: float) -> None:
    async def serve() -> None:
        _Model.wait_s = wait_s
        server = await asyncio.get_running_loop().create_server(_Model, sock=listener, backlog=4096)
        await server.serve_forever()

    asyncio.run(serve())


class Models:
    """Models over HTTP that are up, at their `address`."""

    def __init__(self, address: str) -> None:
        self.address = address

    def books(self) -> Counter[str]:
        """Calls and tokens so far, and the most calls at once."""
        return Counter(httpx.get(f"{self.address}/books", trust_env=False, timeout=60).json())

    def pool(
        self, file: Path, *, concurrency: int = 8, key: str = "", models: int = 3, more: str = ""
    ) -> str:
        """A pool.toml of these models, with a price, at 127.0.0.1 to which a private address is allowed."""
        shared = f'base_url = "{self.address}/v1"\nstream = false\nprice_in = 1.0\nprice_out = 2.0\n'
        shared += f"concurrency = {concurrency}\n" + (f'api_key_env = "{key}"\n' if key else "") + more
        file.write_text(
            "".join(f'[[model]]\nname = "m{i}"\nmodel = "m{i}"\n{shared}\n' for i in range(models))
        )
        return str(file)


@contextmanager
def models(wait_s: float) -> Iterator[Models]:
    """Models that take so long for each call, in a process of their own."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(4096)
    process = multiprocessing.get_context("spawn").Process(
        target=_serve, args=(listener, wait_s), daemon=True
    )
    process.start()
    port = listener.getsockname()[1]
    listener.close()
    try:
        yield Models(f"http://127.0.0.1:{port}")
    finally:
        process.terminate()
        process.join()


#: Runs the command line where some names of modules have other values.
_PATCHED = """
import importlib, json, sys
for name, value in json.loads(sys.argv.pop(1)).items():
    module, _, attribute = name.rpartition(".")
    setattr(importlib.import_module(module), attribute, value)
from ui.cli import main
sys.exit(main())
"""


def patched_program(patched: Mapping[str, Any]) -> list[str]:
    """The command line in a process of its own where names such as "ray.__version__" have these values."""
    return [sys.executable, "-c", _PATCHED, json.dumps(patched)]


def trinity(
    store: Path | str,
    *arguments: object,
    env: Mapping[str, str] | None = None,
    patched: Mapping[str, Any] | None = None,
) -> subprocess.Popen[str]:
    """The command line in a process of its own, on one thread, with this store; within the suite it is forked off one
    that has imported what it needs. `patched`: as for `patched_program`, in a process that is no other one's fork."""
    program = [str(forked("trinity"))] if FOLDER in os.environ else [sys.executable, "-m", "ui.cli"]
    if patched is not None:
        program = patched_program(patched)
    return subprocess.Popen(
        [*program, *map(str, arguments), "--store", str(store)],
        cwd=SOURCE,
        env={**os.environ, "OMP_NUM_THREADS": "1", **(env or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def said(process: subprocess.Popen[str]) -> str:
    """What it said; AssertionError where it failed."""
    out, err = process.communicate()
    assert process.returncode == 0, (out, err)
    return out + err


#: What differs from run to run, and is no part of what it came to.
_OWN = {"id", "run_id", "episode_id", "checkpoint_id", "latency_s", "cost_usd", "at_most_usd", "unread_usd"}
_OWN |= {"spent_usd", "reading_s", "forwards", "seconds", "wall_s"}
#: Of these, an update that was resumed tells only what its last process asked.
_OWN |= {"calls", "calls_saved"}


def digest_of(store: Path | str) -> str:
    """What the newest run of a store came to: every episode with all of its turns, plans and what it was forked from,
    every update with its numbers and candidates, and every checkpoint, of coordinators and planners, without times and
    names."""
    with closing(open_store(str(store))) as opened:
        runs = opened.runs.list(limit=1_000)
        came: list[Any] = [
            _plain(opened.episodes.get(name))
            for name in sorted(one.id for one in opened.episodes.of_run(runs[0].id))
        ]
        for update in opened.learning.updates(runs[0].id):
            came += [_plain(update), _plain(opened.learning.candidates(runs[0].id, update.index))]
            came.append(_weights_of(opened, update.checkpoint_id))
        if (state := opened.learning.state(runs[0].id)) is not None:
            came.append(hashlib.sha256(state[1]).hexdigest())
        # Checkpoints are called by their content, to which the run that made them belongs.
        named = {one.id: str(_weights_of(opened, one.id)) for one in opened.checkpoints.list(planners=None)}
        # A run's episodes are called by what follows the first letter of its own name.
        named |= {one.id[1:]: f"RUN{number}" for number, one in enumerate(reversed(runs))}
    text = json.dumps(came, sort_keys=True, default=str)
    for name, meant in named.items():
        text = text.replace(name, meant)
    return hashlib.sha256(re.sub(r"VERDICT-\w+", "VERDICT", text).encode()).hexdigest()[:16]


def _weights_of(store: Store, checkpoint: str | None) -> str | None:
    """A digest of the numbers of a coordinator or planner; None where there is none."""
    if checkpoint is None or not store.checkpoints.has(checkpoint, planner=None):
        return None
    if store.checkpoints.has(checkpoint, planner=True):
        return str(store.checkpoints.get(checkpoint).config["weights_sha256"])
    return hashlib.sha256(store.checkpoints.load(checkpoint).vector.tobytes()).hexdigest()


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {one.name: getattr(value, one.name) for one in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items() if key not in _OWN}
    return [_plain(one) for one in value] if isinstance(value, tuple | list) else value
