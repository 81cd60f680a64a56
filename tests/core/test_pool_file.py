"""pool.toml: the example is valid, every mistake is one sentence, and costs are bounded from above."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from core.episode import Ask, Episode, EpisodeFinished, Message, Role, Task
from core.errors import ConfigError, PoolError
from core.play.drive import drive
from core.play.policies import CyclePolicy
from core.pool.costs import Prices, estimate_cost, listed_prices
from core.pool.hosted import HttpPool
from core.pool.pool import MixedPool, check_pool
from core.pool.spec import ModelSpec, digest_of_specs
from core.pool_file import load_pool, load_specs, pool_template
from core.tasks.graders import grade_many
from tests.builders.encoder import tiny_qwen3
from tests.builders.pools import ScriptedPool
from tests.core.pool.faulty_server import fail, faulty_server, ok

GOOD = '[[model]]\nname = "a"\nbase_url = "http://127.0.0.1:9/v1"\n'


def load(tmp_path: Path, text: str, **env: str) -> object:
    path = tmp_path / "pool.toml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return load_pool(path, env)


def specs_of(tmp_path: Path, text: str) -> tuple[ModelSpec, ...]:
    """The entries of a pool.toml with this text."""
    path = tmp_path / "pool.toml"
    path.write_text(text.replace("company.pem", "").replace("POCKET-NAME", "sage"))
    return load_specs(path)


def test_the_template_is_a_pool(tmp_path: Path) -> None:
    pool = load(tmp_path, pool_template(), OPENAI_API_KEY="x", OPENROUTER_API_KEY="y")
    assert isinstance(pool, HttpPool)
    first, second = pool.specs
    assert (first.name, first.price_in, first.price_out) == ("gpt", 0.15, 0.6)
    assert (second.max_tokens, second.timeout_s, second.extra) == (2048, 90.0, {"top_p": 0.95})
    pool.close()


def examples() -> dict[str, str]:
    """The tables of the template that are commented out, as TOML, by the first word of the line before them."""
    found = {}
    for paragraph in re.split(r"\n\n+", pool_template()):
        prose, table, rest = paragraph.partition("# [")
        if table:
            words = prose.strip().splitlines()[-1].removeprefix("# ")
            found[words.partition(":")[0]] = "\n".join(
                line.removeprefix("# ") for line in (table + rest).splitlines()
            )
    return found


@pytest.mark.parametrize(
    ("service", "host"),
    [
        ("OpenRouter", "openrouter.ai"),
        ("Azure", "NAME.openai.azure.com"),
        ("Anthropic", "api.anthropic.com"),
        ("Google", "generativelanguage.googleapis.com"),
        ("vLLM", "127.0.0.1:8000"),
        ("SGLang", "127.0.0.1:30000"),
        ("llama.cpp", "127.0.0.1:8080"),
        ("Ollama", "127.0.0.1:11434"),
        ("LM Studio", "127.0.0.1:1234"),
    ],
)
def test_every_service_of_the_template_is_an_entry_that_can_be_un_commented(
    tmp_path: Path, service: str, host: str
) -> None:
    [spec] = specs_of(tmp_path, examples()[service])
    assert urlsplit(spec.base_url).netloc == host
    assert spec.model
    assert host.startswith("127.") or spec.api_key_env or spec.headers_env
    whole = specs_of(tmp_path, f"{pool_template()}\n{examples()[service]}")
    assert [one.name for one in whole] == ["gpt", "qwen", spec.name]


def test_every_line_of_the_template_that_is_commented_out_is_valid_too(tmp_path: Path) -> None:
    small = str(tiny_qwen3(tmp_path / "small"))
    for text in examples().values():
        text = text.replace("smollm2", small)
        assert specs_of(
            tmp_path, f"{text}\n{GOOD}" if text.startswith("[defaults]") or "judge = true" in text else text
        )
    [text] = [text for text in examples().values() if "stream_done" in text]
    [spec] = specs_of(tmp_path, text)
    assert (spec.name, spec.stream_done, spec.allow_private, spec.stream) == ("local", False, True, False)


def test_what_models_share_stands_once(tmp_path: Path) -> None:
    a, b, sage = specs_of(
        tmp_path,
        '[defaults]\nbase_url = "http://127.0.0.1:9/v1"\nmax_tokens = 64\ntemperature = 0.1\n'
        '[[model]]\nname = "a"\n[[model]]\nname = "b"\nmax_tokens = 128\n'
        '[[model]]\nname = "sage"\nprovider = "pocket"\nmax_tokens = 9\n',
    )
    assert (a.base_url, a.max_tokens, a.temperature) == ("http://127.0.0.1:9/v1", 64, 0.1)
    assert (b.base_url, b.max_tokens) == (a.base_url, 128)
    assert (sage.provider, sage.max_tokens, sage.temperature) == ("pocket", 9, 0.1)


def test_a_known_window_is_shared_by_prompt_and_reply_and_makes_another_pool(tmp_path: Path) -> None:
    [unknown] = specs_of(tmp_path, GOOD)
    [known] = specs_of(tmp_path, GOOD + "max_tokens = 1000\ncontext_window = 8192")
    assert (unknown.prompt_tokens, known.prompt_tokens) == (None, 7192)
    assert digest_of_specs([known]) != digest_of_specs([replace(known, context_window=None)])


def test_an_azure_deployment_is_an_address_a_version_and_a_header(tmp_path: Path) -> None:
    base = '[[model]]\nname = "a"\nbase_url = "https://x.openai.azure.com/openai/deployments/d"\n'
    own = 'query = { api-version = "2024-10-21" }\nheaders_env = { api-key = "AZURE" }'
    [spec] = specs_of(tmp_path, base + own)
    assert (spec.query, spec.headers_env) == ({"api-version": "2024-10-21"}, {"api-key": "AZURE"})


def test_a_role_may_have_a_temperature_of_its_own(tmp_path: Path) -> None:
    pocket = '[[model]]\nname = "sage"\nprovider = "pocket"\n'
    own = f"{GOOD}role_temperature = {{ verifier = 0.0 }}\n{pocket}role_temperature = {{ worker = 0.5 }}"
    hosted, sage = specs_of(tmp_path, own)
    assert [hosted.temperature_in(role) for role in ("thinker", "worker", "verifier")] == [0.7, 0.7, 0.0]
    assert sage.temperature_in("worker") == 0.5


def test_an_entry_without_prices_at_an_unknown_server_has_none(tmp_path: Path) -> None:
    [spec] = specs_of(tmp_path, GOOD + "price_in = 0")
    assert (spec.price_in, spec.price_out) == (0.0, None)


MISTAKES = [
    ("", "names no models"),
    ("model = []", "names no models"),
    ("model = [1]", "names no models"),
    ('model = "x"', "names no models"),
    ("[[model]\n", r"not valid TOML: .*line 1"),
    (GOOD + "x = = 1", r"not valid TOML: .*line 4"),
    ("[limits]\nx = 1\n" + GOOD, "'limits' is not a key of a pool file"),
    ('[[model]]\nname = "a"', r"model 1 \('a'\): base_url is missing"),
    ('[[model]]\nbase_url = "http://x/v1"', "model 1: name is missing"),
    (GOOD + GOOD, r"model 2 \('a'\): name is already taken"),
    (GOOD.replace('"a"', '"a b"'), r"model 1 \('a b'\): name must be"),
    (GOOD.replace('"a"', '"*"'), "name must be"),
    (GOOD.replace('"a"', "7"), "model 1: name should be a valid string"),
    (GOOD + "temprature = 1", "'temprature' is not a known field, did you mean 'temperature'"),
    (GOOD + 'api_key = "sk-secret-1234"', "'api_key' is not a known field, did you mean 'api_key_env'"),
    (GOOD + "temperature = 3", "temperature should be less than or equal to 2"),
    (GOOD + "temperature = nan", "temperature should be"),
    (GOOD + "role_temperature = { judge = 0.1 }", "role_temperature should be 'thinker', 'worker' or 'verifier'"),
    (GOOD + "role_temperature = { verifier = 3 }", "role_temperature should be less than or equal to 2"),
    (GOOD + "price_in = inf", "price_in should be a finite number"),
    (GOOD + "price_in = 1.0\nprice_cached = 2.0", r"1 \('a'\): price_cached must not be higher than price_in"),
    (GOOD + "price_in = -1", "price_in should be greater than or equal to 0"),
    (GOOD + "max_tokens = 0", "max_tokens should be greater"),
    ('[[model]]\nname = "atlas"\nprovider = "pocket"\nmax_tokens = 65\n', "max_tokens should be less than"),
    (GOOD + "max_tokens = 1.5", "max_tokens should be a valid integer"),
    (GOOD + "max_tokens = true", "max_tokens should be a valid integer"),
    (GOOD + "context_window = 4096", "context_window must be larger than max_tokens, which is 4096"),
    (GOOD + "context_window = 0", "context_window should be greater"),
    (GOOD + "timeout_s = 0", "timeout_s should be greater than 0"),
    (GOOD + "concurrency = 1000", "concurrency should be less"),
    (GOOD + 'dialect = "loud"', "dialect should be 'general' or 'terse'"),
    (GOOD + 'provider = "magic"', "provider should be 'openai' or 'pocket'"),
    (GOOD + "extra = { n = 3 }", "extra cannot set 'n', which the program sets itself"),
    (GOOD + "extra = { top_p = nan }", "extra holds a date or a number"),
    (GOOD + "extra = { stop = 2026-01-01 }", "extra holds a date or a number"),
    ('[[provider]]\nname = "p"\nrequests_per_minute = 0\n', r"provider 1 \('p'\): requests_per_minute"),
    ("[[provider]]\nconcurrency = 3\n", "name is missing"),
    ('[[provider]]\nname = "p"\n[[provider]]\nname = "p"\n', "already taken"),
    ('[[provider]]\nname = "p"\n[[model]]\nname = "m"\nprovider = "q"\n', "no provider 'q'"),
    ('[[provider]]\nname = "p"\nsurprise = 1\nbase_url = "http://h/v1"\n[[model]]\nname = "m"\nprovider = "p"\n',
     "'surprise' is not a known field"),
    ('[[model]]\nname = "nobody"\nprovider = "pocket"', "no pocket model 'nobody'"),
    ('[[model]]\nname = "atlas"\nprovider = "pocket"\nbase_url = "http://x"', "'base_url' is not a known field"),
    (f'[defaults]\nname = "a"\n{GOOD}', "without a name"),
    (GOOD + 'api_key_env = "sk-secret-1234"', "never the key itself"),
    (GOOD + 'headers_env = { authorization = "KEY" }', "must name headers such as api-key"),
    (GOOD + 'headers_env = { api-key = "sk-secret-1" }', "must be the name of an environment variable"),
    (GOOD + 'ca_file = "nowhere.pem"', "ca_file must be a file with certificates"),
    (GOOD + 'proxy = "socks"', "proxy must be an http or https address"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "sentence"), MISTAKES)
def test_a_mistake_is_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises((ConfigError, PoolError), match=sentence) as caught:
        load(tmp_path, text)
    assert "\n" not in str(caught.value)
    assert "sk-secret" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    ["ftp://x/v1", "file:///etc/passwd", "x/v1", "http://", "https:///v1", "http://x:99999/v1", "http://x:0/v1",
     "http://user:sk-secret@x/v1", "http://x/v1?key=sk-secret", "http://x/v1#sk-secret", "http://x y/v1",
     "http://x\\\\@169.254.169.254/v1", "http://[::1/v1", "javascript:alert(1)", ""],
)  # fmt: skip
def test_an_address_that_is_none_is_refused_without_repeating_it(tmp_path: Path, url: str) -> None:
    with pytest.raises(ConfigError, match="base_url must") as caught:
        load(tmp_path, GOOD.replace("http://127.0.0.1:9/v1", url))
    assert "sk-secret" not in str(caught.value)


def test_an_address_that_only_looks_like_one_is_refused(tmp_path: Path) -> None:
    for host in ("0177.0.0.1", "256.1.1.1", "1.2.3.4.5" + "\u2488"):
        with pytest.raises((ConfigError, PoolError), match=r"Model 'a': base_url is no address"):
            load(tmp_path, GOOD.replace("127.0.0.1:9", host))


def test_a_file_that_is_missing_or_not_text_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="trinity pool init"):
        load_pool(tmp_path / "none.toml", {})
    (tmp_path / "pool.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_pool(tmp_path / "pool.toml", {})


def test_prices_come_with_the_package_and_unknown_is_none() -> None:
    assert listed_prices("gpt-4o-mini", "https://api.openai.com/v1") == Prices(0.15, 0.075, 0.6)
    assert listed_prices("gpt-4", "https://api.openai.com/v1") == Prices(
        30.0, 30.0, 60.0
    )  # nothing is cheaper
    assert listed_prices("gpt-4o-mini", "http://127.0.0.1:8000/v1") == Prices()
    assert listed_prices("no-such-model", "https://api.openai.com/v1") == Prices()


@pytest.mark.parametrize(
    ("given", "cached"),
    [
        ("", 0.075),
        ("price_in = 0.15\nprice_out = 0.6", 0.075),
        ("price_cached = 0.01", 0.01),
        ("price_in = 0.05", 0.05),  # who pays less than the list says pays no more for what was read before
    ],
)
def test_tokens_read_before_cost_what_the_file_says_or_the_list(
    tmp_path: Path, given: str, cached: float
) -> None:
    mini = '[[model]]\nname = "mini"\nmodel = "gpt-4o-mini"\nbase_url = "https://api.openai.com/v1"\n'
    [spec] = specs_of(tmp_path, mini + given)
    assert spec.price_cached == pytest.approx(cached)


def test_no_episode_costs_more_than_the_estimate() -> None:
    """The longest replies there can be, in words, by a model that bills and one that does not."""
    words = 2000

    def say(ask: Ask) -> str:
        most = "w " * (words - 2)
        return {
            Role.THINKER: f"<suggestion>{most}</suggestion>",
            Role.WORKER: f"<answer>{most}</answer>",
            Role.VERIFIER: most,
        }[ask.role]

    dear = ModelSpec("dear", price_in=10.0, price_out=20.0, max_tokens=500)
    free = ModelSpec("free", price_in=0.0, price_out=0.0, max_tokens=words)
    pool = ScriptedPool([dear, free], say)
    cycle = (Role.THINKER, Role.WORKER, Role.WORKER, Role.VERIFIER)
    task = Task("t", "How many?", "1", "number")
    episode = Episode("e", "r", task, "p", ("dear", "free"), turn_budget=8)
    *_, ended = drive(episode, CyclePolicy(episode.models, ("free", "dear"), cycle, ""), pool, grade_many)
    assert isinstance(ended, EpisodeFinished)
    prompts = [turn.reply.usage.tokens_in or 0 for turn in ended.episode.turns]
    estimate = estimate_cost([dear], 1, 8, question_tokens=2, longest_reply=words)
    assert len(prompts) == 8
    assert sum(prompts) <= estimate.tokens_in <= 2 * sum(prompts)
    billed = sum(prompts) * 10 + 8 * 500 * 20  # had the dear one taken every turn
    assert estimate.cost_usd is not None
    assert billed / 1e6 <= estimate.cost_usd


def test_an_unknown_price_is_never_zero() -> None:
    dark = ModelSpec("dark", price_in=1.0)
    unknown = estimate_cost([ModelSpec("dear", price_in=10.0, price_out=20.0), dark], 3, 2)
    assert (unknown.cost_usd, unknown.unknown) == (None, ("dark",))
    assert estimate_cost([ModelSpec("free", price_in=0.0, price_out=0.0)], 3, 2).cost_usd == 0.0
    assert estimate_cost([], 3, 2).cost_usd == 0.0


def test_check_calls_each_model_once_and_says_which_fails(tmp_path: Path) -> None:
    with faulty_server(ok("2")) as good, faulty_server(fail(404, "no such model")) as bad:
        text = GOOD.replace("http://127.0.0.1:9/v1", good.url)
        text += GOOD.replace('"a"', '"b"').replace("http://127.0.0.1:9/v1", bad.url)
        pool = load(tmp_path, text)
        assert isinstance(pool, HttpPool)
        replies = dict(check_pool(pool))
        pool.close()
    assert replies["a"].text == "2"
    assert replies["b"].error is not None
    assert "no such model" in replies["b"].error.message
    assert (len(good.requests), good.requests[0].body["max_tokens"]) == (1, 16)


def test_each_ask_goes_to_the_provider_of_its_model() -> None:
    with faulty_server(ok("from afar")) as server:
        specs = (
            ModelSpec("near", provider="scripted"),
            ModelSpec("far", base_url=server.url),
        )
        hosted = HttpPool([specs[1]])
        pool = MixedPool(specs, {"scripted": ScriptedPool([specs[0]], lambda ask: "here"), "openai": hosted})
        asks = [Ask(name, Role.WORKER, (Message("user", "hi"),)) for name in ("far", "near", "near", "far")]
        replies = {index: reply.text for index, reply in pool.ask(asks)}
        *_, streamed = pool.stream(asks[1])
        with pytest.raises(PoolError, match="it has near, far"):
            list(pool.ask([Ask("z", Role.WORKER, ())]))
        hosted.close()
    assert replies == {0: "from afar", 1: "here", 2: "here", 3: "from afar"}
    assert not isinstance(streamed, str)
    assert streamed.text == "here"
    assert pool.specs == specs


def test_pocket_models_stand_beside_hosted_ones(tmp_path: Path) -> None:
    pool = load(tmp_path, GOOD + '[[model]]\nname = "atlas"\nprovider = "pocket"\nmax_tokens = 9\n')
    assert isinstance(pool, MixedPool)
    hosted, pocket = pool.specs
    assert (hosted.provider, pocket.provider) == ("openai", "pocket")
    assert (pocket.dialect, pocket.max_tokens, pocket.price_out) == ("terse", 9, 0.0)
