"""What the product takes of its libraries: only those that `pyproject.toml` names, and only their public parts."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from tests.test_house import FLOORS, ROOT, imports, module_name, trees

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
#: Distributions whose import name is another.
IMPORTED_AS = {"markdown-it-py": "markdown_it", "scikit-learn": "sklearn"}

#: Private names of other people's objects that are public all the same, by their documentation.
DOCUMENTED = {"_asdict", "_exit", "_fields", "_make", "_replace", "_typeshed"}

#: (module, name) -> why there is no public way.
PRIVATE = {
    ("core.coordinator.attention", "_attn_implementation"): (
        "transformers sets a model's attention by a public method, and tells which it has by this name alone"
    ),
    ("core.planner.grpo", "_get_per_token_logps_and_entropies"): (
        "trl has no hook between a model's logits and its loss, and a planner's loss is over the tokens that its form "
        "allows alone; the version is pinned, and the test below holds the signature"
    ),
}

#: Modules of streamlit that its documentation does not name -> what they are taken for; `pyproject.toml` bounds the
#: version, and the browser tests show that they are there.
UNDOCUMENTED = {
    "streamlit.delta_generator": "the type of every container",
    "streamlit.elements.lib.column_types": "the type of a column's look, as st.column_config makes it",
    "streamlit.navigation.page": "the type of what st.Page gives",
    "streamlit.runtime.caching": "Settings shows what the caches hold, which nothing public tells",
}


def _own_names(nodes: list[ast.AST]) -> set[str]:
    """What the module itself defines: functions, methods, and attributes that its classes set."""
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)} | {
        node.attr for node in nodes if isinstance(node, ast.Attribute) and _is_own(node.value)
    }


def _is_own(value: ast.expr) -> bool:
    return isinstance(value, ast.Name) and value.id in ("self", "cls")


def _private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in DOCUMENTED


def _reached_for(tree: ast.Module) -> Iterator[str]:
    """Private names that a module takes from others: attributes, imports, and methods that it overrides."""
    nodes = [*ast.walk(tree)]
    own = _own_names(nodes)
    called = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    for node in nodes:
        if isinstance(node, ast.Attribute) and _private(node.attr):
            if not _is_own(node.value) and node.attr not in own:
                yield node.attr
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names] + [getattr(node, "module", None) or ""]
            yield from (part for name in names for part in name.split(".") if _private(part))
        elif isinstance(node, ast.ClassDef) and node.bases:
            methods = {
                one.name
                for one in node.body
                if isinstance(one, ast.FunctionDef) and not one.decorator_list  # a decorator calls it
            }
            # A base of our own calls what is overridden; a library's base is in no module of ours.
            yield from (name for name in sorted(methods - called) if _private(name))


def test_nothing_reaches_into_the_private_parts_of_others() -> None:
    found = {(module_name(path), name) for path, tree in trees().items() for name in _reached_for(tree)}
    assert found == PRIVATE.keys()


def test_of_streamlit_only_documented_modules_are_taken_but_for_those_with_a_reason() -> None:
    names = frozenset().union(*imports().values())
    assert {name for name in names if name.startswith("streamlit.")} == UNDOCUMENTED.keys()


def test_the_package_asks_for_every_library_that_is_imported_and_for_no_other() -> None:
    extras = PROJECT["optional-dependencies"]
    asked = {
        re.split(r"[\[<>=]", one)[0]
        for extra in (
            PROJECT["dependencies"],
            *(extras[name] for name in ("attribution", "conductor", "encoders", "ray", "serve")),
        )
        for one in extra
    }
    known = {IMPORTED_AS.get(name, name.replace("-", "_")) for name in asked}
    known -= {
        "accelerate",
        "httptools",
    }  # transformers imports the one, to load GGUF weights, uvicorn the other
    # What is not taken by whoever only runs the program: types, and what wrote the sandbox's filter.
    apart = {*FLOORS, *sys.stdlib_module_names, "_typeshed", "pyseccomp"}
    tops = {name.partition(".")[0] for names in imports().values() for name in names}
    assert tops - apart == known


def test_trls_trainer_asks_for_probabilities_by_the_method_that_planners_override() -> None:
    (trl,) = PROJECT["optional-dependencies"]["conductor"][:1]
    assert trl == "trl>=1.16,<1.17"
    # Read and not imported, which takes seconds.
    folder = find_spec("trl")
    assert folder
    assert folder.origin
    written = Path(folder.origin).parent / "trainer" / "grpo_trainer.py"
    methods = {
        method.name: method
        for trainer in ast.parse(written.read_text("utf-8")).body
        if isinstance(trainer, ast.ClassDef) and trainer.name == "GRPOTrainer"
        for method in trainer.body
        if isinstance(method, ast.FunctionDef)
    }
    asks = "_get_per_token_logps_and_entropies"
    assert [one.arg for one in methods[asks].args.args][:6] == [
        "self",
        "model",
        "input_ids",
        "attention_mask",
        "logits_to_keep",
        "batch_size",
    ]
    calls = [node.func for node in ast.walk(methods["_compute_loss"]) if isinstance(node, ast.Call)]
    assert asks in {one.attr for one in calls if isinstance(one, ast.Attribute) and _is_own(one.value)}
