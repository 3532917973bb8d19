"""The policy over HTTP: decisions, outcomes, updates, and what is refused."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np
import pytest

from convergence.service.policy import PolicyMount
from convergence.service.server import Service, ServiceOptions
from convergence_core.judges.text_features import HASHED_NGRAMS
from convergence_core.policy.prompt_state import PROMPT_ACTIONS
from tasks.policy.prompt_mutator import PromptMutator
from tasks.policy.served_policy import ServedPolicy
from tasks.store.policy.experience_store import ExperienceStore
from tasks.store.runtime.runtime_store import RuntimeStore
from tests.policy.test_served_policy import DIM, settings
from tests.service.conftest import SECRETS, all_tokens

PROMPT = "Say whether the parcel of {customer} has arrived, please."


CLIENTS: list[httpx.Client] = []


@pytest.fixture(autouse=True)
def closed_clients() -> Iterator[None]:
    yield
    while CLIENTS:
        CLIENTS.pop().close()


class Caller:
    """Requests with one token."""

    def __init__(self, url: str, scope: str = "admin", prefix: str = "") -> None:
        self.http = httpx.Client(
            base_url=url + prefix, headers={"Authorization": f"Bearer {SECRETS[scope]}"}
        )
        CLIENTS.append(self.http)

    def __call__(self, path: str, /, **body: Any) -> httpx.Response:
        if path in {"stats", "health", "metrics"}:
            return self.http.get(f"/{path}")
        return self.http.post(f"/{path}", json=body)

    def act(self, reward: float = 0.5, **body: Any) -> dict[str, Any]:
        """Choose, and report an episode of one step."""
        chosen = self("select_action", **{"embedding": [1.0, 0, 0, 0]} | body).json()
        found = self("store_experience", **outcome(chosen, reward))
        assert found.status_code == 200, found.text
        assert found.json()["status"] == "stored"
        return dict(chosen)


def outcome(chosen: dict[str, Any], reward: float = 0.5, **more: Any) -> dict[str, Any]:
    named = {name: chosen[name] for name in ("decision_id", "episode_id", "step")}
    return {**named, "reward": reward, "terminated": True, "truncated": False, **more}


@pytest.fixture
def runtime(tmp_path: Any) -> Iterator[RuntimeStore]:
    with RuntimeStore(tmp_path / "store") as opened:
        yield opened


@pytest.fixture
def served(runtime: RuntimeStore) -> Iterator[ServedPolicy]:
    with ExperienceStore(runtime.root) as store, ServedPolicy(store, settings()) as policy:
        yield policy


@pytest.fixture
def call(runtime: RuntimeStore, served: ServedPolicy) -> Iterator[Caller]:
    """A service whose callers give embeddings of four numbers."""
    mount = PolicyMount(policy=served, mutator=PromptMutator())
    with Service(runtime, all_tokens(), ServiceOptions(port=0), policy=mount) as service:
        yield Caller(service.url)


@pytest.fixture
def ngrams(runtime: RuntimeStore) -> Iterator[Caller]:
    """A service that embeds prompts itself, below ``/policy``."""
    own = settings(embedding=HASHED_NGRAMS)
    with ExperienceStore(runtime.root) as store, ServedPolicy(store, own) as policy:
        mount = PolicyMount(policy=policy, mutator=PromptMutator(), prefix="/policy")
        with Service(runtime, all_tokens(), ServiceOptions(port=0), policy=mount) as service:
            yield Caller(service.url, prefix="/policy")


def test_a_decision_is_made_and_its_outcome_stored_once(call: Caller):
    chosen = call("select_action", embedding=[1, 0, 0, 0], score=0.5).json()
    assert set(chosen) == {
        "decision_id", "episode_id", "step", "action", "log_prob", "value", "mask", "probabilities",
        "policy_version",
    }  # fmt: skip
    assert (chosen["step"], chosen["policy_version"], chosen["mask"]) == (0, 0, [True] * 7)
    statuses = [call("store_experience", **outcome(chosen)).json()["status"] for _ in range(3)]
    assert statuses == ["stored", "duplicate", "duplicate"]
    other = call("store_experience", **outcome(chosen, 0.75))
    assert other.status_code == 409
    assert "has another outcome already" in other.json()["detail"]
    stats = call("stats").json()
    assert (stats["n_experiences"], stats["n_ready"], stats["n_pending"]) == (1, 1, 0)
    assert stats["config"]["eps_clip"] == 0.2
    assert stats["actions"] == list(PROMPT_ACTIONS)


def test_updates_learn_and_checkpoints_go_back(call: Caller):
    assert call("update").json() == {"updated": False, "policy_version": 0, "statistics": None}
    assert call("save", name="start").json() == {"name": "start", "policy_version": 0}
    before = call("get_distribution", embedding=[1, 0, 0, 0]).json()
    assert sum(before["probabilities"].values()) == pytest.approx(1.0)
    for _ in range(16):
        call.act()
    found = call("update").json()
    assert (found["updated"], found["policy_version"]) == (True, 1)
    assert found["statistics"]["n_steps"] == 16
    assert call("stats").json()["last_update"] == found["statistics"]
    after = call("get_distribution", embedding=[1, 0, 0, 0]).json()
    assert after["probabilities"] != before["probabilities"]
    assert call("load", name="start").json() == {"name": "start", "policy_version": 2}
    assert call("get_distribution", embedding=[1, 0, 0, 0]).json() == before | {
        "policy_version": 2
    }
    page = Caller(str(call.http.base_url))("metrics").text
    assert 'convergence_policy_total{kind="experience",status="stored"} 16.0' in page
    assert 'convergence_policy_total{kind="update",status="done"} 1.0' in page


def test_a_transition_without_ids_belongs_to_the_decision_that_waits_for_it(call: Caller):
    state, after = [1.0, 0, 0, 0], [0, 1.0, 0, 0]
    chosen = call("select_action", embedding=state).json()
    given = {"state": state, "action": chosen["action"], "reward": 0.4, "next_state": after}
    first = call("store_experience", **given, done=False).json()
    assert (first["decision_id"], first["status"]) == (chosen["decision_id"], "stored")
    assert call("stats").json()["n_pending"] == 0
    index = PROMPT_ACTIONS.index(chosen["action"])
    again = call("store_experience", **given | {"action": index}, done=True).json()
    assert (again["status"], again["policy_version"]) == ("off_policy", -1)
    assert again["decision_id"] != chosen["decision_id"]
    assert call("stats").json()["n_ready"] == 1
    refused(call("store_experience", **given | {"action": 7}, done=True), 422)
    refused(call("store_experience", **given | {"state": [1.0]}, done=True), 409, "4 numbers")
    # What was not seen any more counts by the value of the next state.
    for _ in range(15):
        chosen = call("select_action", embedding=state).json()
        given |= {"action": chosen["action"]}
        assert call("store_experience", **given, done=False).json()["status"] == "stored"
    assert call("update").json()["statistics"]["n_steps"] == 16


@pytest.fixture
def local(runtime: RuntimeStore, served: ServedPolicy) -> Iterator[Service]:
    """A service without tokens, on loopback."""
    mount = PolicyMount(policy=served, mutator=PromptMutator())
    with Service(runtime, None, ServiceOptions(port=0), policy=mount) as service:
        yield service


def test_without_tokens_loopback_is_answered_and_other_sites_and_names_are_not(local: Service):
    with httpx.Client(base_url=local.url) as http:
        # As `curl -d` sends it.
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        body = json.dumps({"embedding": [1, 0, 0, 0]})
        chosen = http.post("/select_action", content=body, headers=form)
        assert chosen.json()["decision_id"]
        port = local.url.rpartition(":")[2]
        assert http.get("/stats", headers={"Host": f"localhost:{port}"}).status_code == 200
        refused(http.get("/stats", headers={"Host": f"evil.example:{port}"}), 421, "--token")
        for headers in (
            {"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"},
        ):  # fmt: skip
            refused(http.post("/save", json={}, headers=headers), 403, "other sites")
        assert http.post("/save", json={}, headers={"Origin": local.url}).status_code == 200
        refused(http.get("/v1/feedback/status"), 401)


def refused(found: httpx.Response, status: int, *words: str) -> None:
    assert found.status_code == status, found.text
    assert found.headers["content-type"] == "application/problem+json"
    for word in words:
        assert word in found.text


def test_what_breaks_a_rule_is_a_clear_refusal_and_changes_nothing(call: Caller):
    chosen = call.act()
    before = call("stats").json()
    refused(call("select_action", embedding=[1, 0]), 409, "must have 4 numbers, but got 2")
    refused(call("select_action", embedding=[0, 0, 0, 0]), 409, "not all of them 0")
    refused(call("select_action"), 409, "`embedding` or `prompt` must be given")
    refused(call("select_action", prompt=PROMPT), 409, "serve with `--embedding hashed-ngrams`")
    refused(call("select_action", embedding=["1", 0, 0, 0]), 422, "embedding.0")
    refused(call("select_action", embedding=[1, 0, 0, 0], history=["summarize"]), 422, "history.0")
    refused(call("select_action", embedding=[1, 0, 0, 0], history=["stop"]), 409, "`history`")
    refused(call("select_action", embedding=[1, 0, 0, 0], excluded=["x"]), 422, "excluded.0")
    refused(call("select_action", embedding=[1, 0, 0, 0], score=1.5), 422, "score")
    refused(call("select_action", embedding=[1, 0, 0, 0], episode_id=chosen["episode_id"]), 409,
            "must be new in its episode")  # fmt: skip
    refused(call("store_experience", **outcome(chosen | {"decision_id": "x"})), 404, "waits")
    refused(call("store_experience", **outcome(chosen, 1e7)), 422, "reward")
    refused(call("store_experience", **outcome(chosen | {"step": 2})), 409, "`step` must be that")
    refused(
        call("store_experience", **outcome(chosen, final={"embedding": [1]}, truncated=True)), 409
    )
    for name in ("../x", "/etc/x", "a.safetensors", ""):
        for path in ("save", "load"):
            refused(call(path, name=name), 422, "name")
    refused(call("load", name="unknown"), 409, "saved/unknown.safetensors is not")
    for text in ("NaN", "Infinity", "1e999"):
        for path, body in (
            ("select_action", f'{{"embedding": [{text}, 0, 0, 0]}}'),
            ("store_experience", json.dumps(outcome(chosen)).replace("0.5", text)),
        ):
            refused(call.http.post(f"/{path}", content=body,
                                   headers={"Content-Type": "application/json"}), 422)  # fmt: skip
    assert call("stats").json() == before


def test_a_prompt_is_changed_by_the_action_that_is_chosen(ngrams: Caller):
    seen = set()
    for _ in range(40):
        found = ngrams("select_mutation", prompt=PROMPT)
        assert found.status_code == 200, found.text
        one = found.json()
        seen.add(one["action"])
        assert one["action"] != "reflect", "it needs failures"
        if one["action"] == "stop":
            assert (one["prompt"], one["writer"]) == (PROMPT, "")
        elif one["verdict"] == "kept":
            assert one["prompt"] != PROMPT
            assert "{customer}" in one["prompt"]
            assert one["writer"] == "rules"
        else:
            assert one["prompt"] is None
    assert len(seen) == 6
    failure = {"input": "?", "answer": "Yes", "expected": "No"}
    actions = set()
    for _ in range(40):
        one = ngrams("select_mutation", prompt=PROMPT, failures=[failure]).json()
        actions.add(one["action"])
    assert "reflect" in actions
    assert ngrams("select_action", embedding=[1, 0, 0, 0]).json()["decision_id"]
    assert ngrams("select_mutation", prompt="Go").json()["mask"][1] is False, "too short to reduce"
    refused(ngrams("select_action", prompt="?!"), 409, "not all of them 0")


def test_many_collectors_are_acknowledged_once_each(call: Caller, served: ServedPolicy):
    def collect(number: int) -> int:
        own = Caller(str(call.http.base_url))
        for _ in range(12):
            chosen = own("select_action", embedding=np.eye(DIM)[number % DIM].tolist()).json()
            statuses = [own("store_experience", **outcome(chosen)).json()["status"] for _ in "12"]
            assert statuses[0] in {"stored", "archived"}
            assert statuses[1] == "duplicate"
        return 12

    with ThreadPoolExecutor(8) as pool:
        n = sum(pool.map(collect, range(8)))
    assert n == 96
    assert served.stats()["n_experiences"] == 96
