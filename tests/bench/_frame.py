"""How a benchmark is run: its options are the parameters of the function that measures, its figures JSON or lines."""

from __future__ import annotations

import argparse
import asyncio
import inspect
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType, NoneType
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_origin, get_type_hints

import numpy as np

if TYPE_CHECKING:  # a machine that is lent for its accelerator may have no database
    from storage.store import Store

Figures = dict[str, Any]
T = TypeVar("T")
#: Serves on the port that follows the last option.
SERVE = (sys.executable, "-m", "ui.cli", "serve")
NOTHING: Mapping[str, float] = MappingProxyType({})


def run(
    measure: Callable[..., Figures | None],
    arguments: Sequence[str] | None = None,
    promised: Mapping[str, float] = NOTHING,
) -> None:
    """Measure as the command line says and print. A parameter of `measure` without a default is a positional argument;
    what stands beside its type in `Annotated` is its help. `promised`: figure -> the most that it may be; where figures
    are named as `not_kept`, the exit code is 1."""
    parser = argparse.ArgumentParser(
        prog=f"trinity bench {Path(inspect.getfile(measure)).stem}",
        description=inspect.getmodule(measure).__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    hints = get_type_hints(measure, include_extras=True)
    for name, one in inspect.signature(measure).parameters.items():
        _add(parser, name, hints[name], one.default)
    parser.add_argument("--json", action="store_true", help="print JSON")
    chosen = vars(parser.parse_args(arguments))
    as_json = chosen.pop("json")
    try:
        found = measure(**chosen)
    except ValueError as error:
        parser.error(str(error))
    if found is None:
        return
    print(json.dumps(found)) if as_json else print("\n".join(_lines(found, promised)))
    if found.get("not_kept"):
        sys.exit(1)


def run_apart(found: Coroutine[Any, Any, T]) -> T:
    """What a coroutine gives, run in a thread of its own: a browser's driver has a loop in the main one."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, found).result()


def _add(parser: argparse.ArgumentParser, name: str, hint: Any, default: Any) -> None:
    """The option, or the positional argument, of a parameter."""
    kind, help = (get_args(hint)[0], hint.__metadata__[0]) if hasattr(hint, "__metadata__") else (hint, "")
    look: dict[str, Any] = {"help": help}
    if get_origin(kind) is list:
        look |= {"nargs": "*"}
    elif kind is bool:
        look |= {"action": "store_true"}
    else:
        [look["type"]] = [one for one in get_args(kind) or (kind,) if one is not NoneType]
    if default is inspect.Parameter.empty:
        parser.add_argument(name, **look)
    else:
        parser.add_argument(f"--{name.replace('_', '-')}", default=default, **look)


def _lines(found: Figures, promised: Mapping[str, float], within: str = "") -> Iterator[str]:
    """A line for every figure, with what is promised of it."""
    for name, value in found.items():
        path = f"{within}{name.replace('_', ' ')}"
        if value is promised:
            continue
        if isinstance(value, dict):
            yield from _lines(value, promised, f"{path}, ")
            continue
        shown = f"{value:,.3f}".rstrip("0").rstrip(".") if isinstance(value, float) else value
        most = promised.get(name)
        kept = "" if most is None else f"   at most {most:,g}: {'kept' if value <= most else 'BROKEN'}"
        yield f"{path:44} {shown}{kept}"


def say(words: str) -> None:
    """Tell the person who waits how far it is."""
    print(words, file=sys.stderr, flush=True)


def apart(module: str, options: Sequence[str], limit_s: float) -> Figures:
    """The figures of a benchmark in a process of its own, which tells how far it is at once. What fails or takes longer
    says so in the place of its figures, as {"failed": why}."""
    command = [sys.executable, "-m", module, *options, "--json"]
    last, late = "", threading.Event()
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8") as answer,
        subprocess.Popen(command, stdout=answer, stderr=subprocess.PIPE, text=True) as process,
    ):

        def give_up() -> None:
            late.set()
            process.kill()

        timer = threading.Timer(limit_s, give_up)
        timer.start()
        for line in process.stderr or ():
            say(line.rstrip())
            last = line.strip() or last
        code = process.wait()
        timer.cancel()
        answer.seek(0)
        said = answer.read()
    if late.is_set():
        return {"failed": f"it took longer than {limit_s:g} s"}
    try:
        found: Figures = json.loads(said)
    except ValueError:
        return {"failed": last or f"it ended with code {code}"}
    return found


def milliseconds(do: Callable[[], object]) -> float:
    """How long one call takes."""
    began = time.perf_counter()
    do()
    return 1000 * (time.perf_counter() - began)


def percentile(percent: float, values: Sequence[float], digits: int = 1) -> float:
    """A percentile of these values."""
    return round(float(np.percentile(values, percent)), digits)


@contextmanager
def sample_store() -> Iterator[Store]:
    """A store that holds the sample runs."""
    from storage.files.interchange import import_runs
    from storage.store import open_store
    from ui.runs import wiring

    with tempfile.TemporaryDirectory() as folder:
        store = open_store(Path(folder) / "samples.db")
        import_runs(store, wiring.SAMPLE_RUNS)
        yield store
        store.close()
