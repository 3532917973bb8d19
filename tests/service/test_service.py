"""The HTTP service on loopback: what it answers, and whom."""

import json
import re
import socket
import threading
from concurrent.futures import ThreadPoolExecutor, as_completed

import httpx
import pytest
from pydantic import TypeAdapter, ValidationError

from convergence.client import Client, ServiceRefusedError
from convergence.service.policy import ActionBody
from convergence.service.server import Service, ServiceOptions
from convergence.service.socket_server import ServiceError
from convergence_core.caveats import TRAFFIC
from tasks.serving import bandit
from tasks.serving.settings import RuntimeArm, RuntimeConfig
from tasks.serving.systems import Systems
from tasks.store.runtime.runtime_store import RuntimeStore
from tests.service.conftest import SECRETS, Start, all_tokens

ROUTES = [
    ("POST", "/v1/systems/bot/select"),
    ("POST", "/v1/systems/bot/update"),
    ("GET", "/v1/systems/bot/arms"),
    ("PUT", "/v1/systems/bot/arms/a"),
    ("DELETE", "/v1/systems/bot/arms/a"),
    ("GET", "/v1/systems/bot/decisions/d?user_id=u"),
    ("GET", "/v1/systems/bot/gates"),
    ("GET", "/health"),
    ("GET", "/metrics"),
    ("GET", "/openapi.json"),
    ("GET", "/docs"),
    ("GET", "/nothing"),
]
SCOPE_OF: dict[int, set[str]] = {0: {"select"}, 1: {"update"}, 2: {"select"}, 3: set(), 4: set(), 5: {"select", "update"},
            6: {"select"}}  # fmt: skip


def bearer(scope: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {SECRETS[scope]}"}


@pytest.fixture
def arms(admin: Client) -> list[str]:
    for name in ("a", "b", "c"):
        admin.offer("bot", name, {"model": name})
    return ["a", "b", "c"]


def test_no_token_no_answer(service: Service):
    for method, path in ROUTES:
        for headers in ({}, {"Authorization": "Bearer " + "x" * 43}):
            answer = httpx.request(method, service.url + path, headers=headers, json={})
            assert answer.status_code == 401, path
            assert answer.headers["www-authenticate"] == "Bearer"
            assert answer.headers["content-type"] == "application/problem+json"


def test_every_route_asks_for_its_scope(service: Service):
    bodies: dict[str, dict[str, object]] = {
        "select": {"user_id": "u"},
        "update": {"user_id": "u", "decision_id": "d"},
        "a": {"params": {}},
    }
    for number, allowed in SCOPE_OF.items():
        method, path = ROUTES[number]
        body = bodies.get(path.rpartition("/")[2]) if method != "DELETE" else None
        for scope in ("select", "update"):
            answer = httpx.request(method, service.url + path, headers=bearer(scope), json=body)
            assert (answer.status_code == 403) == (scope not in allowed), (path, scope)
        answer = httpx.request(method, service.url + path, headers=bearer("admin"), json=body)
        assert answer.status_code != 403, path


UNREAD = {
    b"{": "body: must be JSON, but at character 2: Expecting property name enclosed in double quotes",
    b'{"user_id": "private" x': "body: must be JSON, but at character 23: Expecting ',' delimiter",
    b'{"user_id": ' + b"7" * 5000 + b"}": "body: a whole number must have at most 4,300 digits",
    b"[" * 30_000: "body: is nested too deeply. Send fewer levels",
    b'{"user_id": "\xff"}': "body: must be UTF-8 text, but byte 14 is not",
}


def test_a_body_that_cannot_be_read_is_refused_after_the_scope_with_its_rule_and_place(
    service: Service,
):
    routes = {
        "/v1/systems/bot/select": "select",
        "/v1/systems/bot/update": "update",
        "/v1/interactions": "update",
        "/v1/comparisons": "update",
    }
    with httpx.Client(base_url=service.url) as http:
        for path, scope in routes.items():
            for body, reason in UNREAD.items():
                told = http.post(path, headers=bearer(scope), content=body)
                assert (told.status_code, told.json()["errors"]) == (422, [reason]), path
                refused = http.post(path, headers=bearer("chat"), content=body)
                assert refused.status_code == 403, (path, refused.text)
                assert f"lacks the scope {scope}." in refused.text


def test_a_reward_that_is_no_number_is_told_as_a_number(service: Service):
    numbers = ("reward", "engagement_score", "grading_score")
    body = {"decision_id": "d", "signals": {"solved": "yes"}} | dict.fromkeys(numbers, "yes")
    path = f"{service.url}/v1/systems/bot/update"
    told = httpx.post(path, headers=bearer("update"), json=body).json()["errors"]
    names = ("reward", "signals.solved", "engagement_score", "grading_score")
    assert told == [f"body.{name}: Input should be a valid number" for name in names]


def test_a_request_is_served_rewarded_and_seen(admin: Client, arms: list[str], service: Service):
    chosen = admin.select("bot", user_id="u", context={"language": "de", "words": 12})
    assert chosen.arm_id in arms
    assert chosen.params == {"model": chosen.arm_id}
    assert chosen.propensity == pytest.approx(1 / 3)
    assert chosen.decision_id is not None
    told = admin.update(
        "bot", user_id="u", decision_id=chosen.decision_id, reward=0.5, metadata={"n": 1}
    )
    assert (told.status, told.computed_update) == ("ok", {"alpha": 0.5, "beta": 0.5})
    again = admin.update("bot", user_id="u", decision_id=chosen.decision_id, reward=0.5)
    assert (again.success, again.status) == (True, "duplicate")
    other = admin.update("bot", user_id="u", decision_id=chosen.decision_id, reward=0.7)
    assert (other.success, other.status) == (False, "conflict")
    nobody = admin.update("bot", user_id="u", decision_id="nobody's", reward=0.7)
    assert (nobody.success, nobody.status) == (False, "unknown")
    with pytest.raises(ServiceRefusedError, match="the decision knows its user"):
        admin.update("bot", user_id="v", decision_id=chosen.decision_id, reward=0.5)
    unnamed = admin.update("bot", decision_id=chosen.decision_id, reward=0.5)
    assert unnamed.status == "duplicate"
    nothing = admin.update("bot", user_id="u", decision_id=chosen.decision_id)
    assert (nothing.success, nothing.status) == (False, "none")
    found = admin.decision("bot", user_id="u", decision_id=chosen.decision_id)
    assert (found.arm_id, found.reward, found.reward_status) == (chosen.arm_id, 0.5, "ok")
    (learned,) = [arm for arm in admin.arms("bot") if arm.n]
    assert (learned.arm_id, learned.alpha, learned.beta) == (chosen.arm_id, 1.5, 1.5)
    gates = admin.gates("bot")
    assert gates.champion is None
    assert sum(gates.evidence["default"]["numbers"]) == 1
    assert gates.evidence["default"]["caveat"] == TRAFFIC
    raw = httpx.post(
        service.url + "/v1/systems/bot/update", headers=bearer("update"),
        json={"user_id": "u", "decision_id": "nobody's", "reward": 0.1},
    )  # fmt: skip
    assert raw.status_code == 404


def test_truth_values_and_retired_defaults_are_treated_as_in_python(
    admin: Client, store: RuntimeStore
):
    arm = RuntimeArm(arm_id="a", params={"model": "a"})
    Systems(store).configure(RuntimeConfig(system="bot", default_arms=(arm,)))
    decision_id = admin.select("bot", user_id="u").decision_id or ""
    with pytest.raises(ServiceRefusedError, match="does not match the schema"):
        admin.update("bot", decision_id=decision_id, reward=True, cost=True)
    told = admin.update("bot", decision_id=decision_id, reward=True, signals={"solved": True})
    assert (told.status, told.reward) == ("ok", 1.0)
    assert admin.retire("bot", "a")
    with pytest.raises(ServiceRefusedError, match="are retired"):
        admin.select("bot", user_id="u")


def test_a_name_asked_twice_is_answered_alike(service: Service, admin: Client, arms: list[str]):
    def ask(key: str, user: str = "u") -> httpx.Response:
        return httpx.post(
            service.url + "/v1/systems/bot/select", json={"user_id": user},
            headers={**bearer("select"), "Idempotency-Key": key},
        )  # fmt: skip

    first = ask("one")
    assert [ask("one").json() | {"sampled_value": 0} for _ in range(5)] == [
        first.json() | {"sampled_value": 0}
    ] * 5
    assert ask("two").json()["decision_id"] != first.json()["decision_id"]
    reused = ask("one", "another")
    assert reused.status_code == 409
    assert "one request" in reused.json()["detail"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "user_id"),
        ({"user_id": ""}, "user_id"),
        ({"user_id": "u", "more": 1}, "more"),
        ({"user_id": "u\x00"}, "user_id"),
        ({"user_id": "u", "context": {"x": [1]}}, "context"),
        ({"user_id": "u", "context": {"x": "\ud800"}}, "body.context.x"),
        (
            {"user_id": "u", "context": {"x": "w" * 2_001}},
            "`x` must have at most 2,000 characters",
        ),
    ],
)
def test_wrong_bodies_are_refused_by_place(
    service: Service, arms: list[str], body: dict[str, object], words: str
):
    answer = httpx.post(
        service.url + "/v1/systems/bot/select", content=json.dumps(body).encode(),
        headers={**bearer("select"), "Content-Type": "application/json"},
    )  # fmt: skip
    assert answer.status_code == 422, answer.text
    assert words in " ".join(answer.json()["errors"])


def test_a_message_is_a_text_of_any_length(service: Service, admin: Client, arms: list[str]):
    chosen = admin.select("bot", user_id="u", context={"text": "w" * 12_000})
    found = admin.decision("bot", user_id="u", decision_id=str(chosen.decision_id))
    assert json.loads(found.context_json or "") == {"text": "w" * 10_000}, "what counts"


@pytest.mark.parametrize("reward", [{"reward": 1.5}, {"reward": -0.1}])
def test_an_impossible_reward_is_no_conflict(
    service: Service, admin: Client, arms: list[str], reward: dict[str, object]
):
    chosen = admin.select("bot", user_id="u")
    answer = httpx.post(
        service.url + "/v1/systems/bot/update", headers=bearer("update"),
        json={"decision_id": chosen.decision_id, **reward},
    )  # fmt: skip
    assert answer.status_code == 422, answer.text
    assert any(rule in answer.text for rule in ("in [0, 1]", "than or equal to"))


def test_unknown_systems_and_arms_are_not_found(service: Service):
    for method, path, body in (
        ("POST", "/v1/systems/none/select", {"user_id": "u"}),
        ("GET", "/v1/systems/none/arms", None),
        ("GET", "/v1/systems/none/gates", None),
        ("DELETE", "/v1/systems/none/arms/a", None),
        ("GET", "/v1/systems/none/decisions/d?user_id=u", None),
        ("GET", "/nothing", None),
    ):
        answer = httpx.request(method, service.url + path, headers=bearer("admin"), json=body)
        assert answer.status_code == 404, path
        assert answer.headers["content-type"] == "application/problem+json"


def test_bodies_have_a_limit_even_without_a_length(start: Start):
    service = start(max_body=2_000)
    url, headers = service.url + "/v1/systems/bot/select", bearer("select")
    body = json.dumps({"user_id": "u", "context": {"x": "y" * 3_000}}).encode()
    assert httpx.post(url, headers=headers, content=body).status_code == 413
    parts = (body[n : n + 500] for n in range(0, len(body), 500))
    assert httpx.post(url, headers=headers, content=parts).status_code == 413


def test_each_token_has_a_rate(start: Start):
    # The next one comes in a thousand seconds, so that none comes while a busy machine asks.
    url = start(rate=0.001).url + "/health"
    answers = [httpx.get(url, headers=bearer("select")) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 429, 429]
    assert all(900 < int(answer.headers["retry-after"]) <= 1_000 for answer in answers[1:])
    assert httpx.get(url, headers=bearer("update")).status_code == 200


def test_the_numbers_are_those_of_the_traffic(service: Service, admin: Client, arms: list[str]):
    url, headers = service.url + "/v1/systems/bot/select", bearer("select")
    for _ in range(3):
        key = {"Idempotency-Key": "k"}
        httpx.post(url, headers=headers | key, json={"user_id": "u"}).raise_for_status()
    for n in range(3):
        chosen = admin.select("bot", user_id="u")
        admin.update("bot", user_id="u", decision_id=str(chosen.decision_id), reward=n % 2)
    page = httpx.get(service.url + "/metrics", headers=bearer("select"))
    assert page.headers["content-type"].startswith("text/plain; version=0.0.4")
    decided = re.findall(r'convergence_decisions_total\{arm="\w",system="bot"\} (\d+)', page.text)
    assert sum(map(int, decided)) == 4
    assert 'convergence_rewards_total{status="ok",system="bot"} 3.0' in page.text
    select = 'convergence_requests_total{route="/v1/systems/{system}/select",status="200"} 6.0'
    assert select in page.text
    assert "convergence_waiting 0.0" in page.text


def test_an_address_that_is_taken_is_told(store: RuntimeStore):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ServiceError, match=f"`--port` {port} of 127.0.0.1 cannot"):
            Service(store, all_tokens(), ServiceOptions(port=port))


def test_what_waits_has_a_limit(store: RuntimeStore, start: Start):
    """While the store is held, requests gather; beyond the limit they are refused at once."""
    service = start(most_waiting=1)
    with Client(service.url, token=SECRETS["admin"], retries=0) as client:
        client.offer("bot", "a", {})
        held, release = threading.Event(), threading.Event()

        def hold() -> None:
            with store.database.transaction():
                held.set()
                release.wait(60)

        holder = threading.Thread(target=hold)
        holder.start()
        held.wait(60)
        with ThreadPoolExecutor(8) as pool:
            asks = [
                pool.submit(
                    httpx.post, service.url + "/v1/systems/bot/select",
                    headers=bearer("select"), json={"user_id": "u"}, timeout=60,
                )
                for _ in range(8)
            ]  # fmt: skip
            refused = next(as_completed(asks)).result()
            assert refused.status_code == 503
            assert refused.headers["retry-after"] == "1"
            release.set()
            codes = sorted(ask.result().status_code for ask in asks)
        holder.join()
    assert 200 in codes


def test_no_store_holds_a_token_of_the_service(
    service: Service, admin: Client, arms: list[str], store: RuntimeStore
):
    secret = SECRETS["chat"]
    text = f"my token is {secret}!"
    chosen = admin.select("bot", user_id="u", context={"text": text, secret: 1})
    assert chosen.arm_id in arms
    assert chosen.decision_id is not None
    admin.update("bot", user_id="u", decision_id=chosen.decision_id, reward=0.5,
                 metadata={"notes": [text]})  # fmt: skip
    with httpx.Client(base_url=service.url, headers=bearer("admin")) as http:
        message = {"role": "user", "content": text}
        body = {"user_id": "u", "model": "m", "response": text, "messages": [message]}
        rating = f"/v1/interactions/{http.post('/v1/interactions', json=body).json()['interaction_id']}/rating"
        assert http.post(rating, json={"user_id": "u", "rating": 4, "reason": text}).is_success
        select = "/v1/systems/bot/select"
        refusals = [
            http.post(rating, json={"user_id": secret, "rating": 4}),
            http.post(select, json={"user_id": secret}),
            http.post(select, json={"user_id": "u"}, headers={"Idempotency-Key": secret}),
        ]
        refusals.append(http.post(f"/v1/systems/{secret}/select", json={"user_id": "u"}))
        key = http.post(select, json={"user_id": "u", secret: 1})
    told = "`{}` must not hold a secret, because it is stored. Send another identifier"
    names = ("user_id", "user_id", "Idempotency-Key", "system")
    places = ("body", "body", "header.Idempotency-Key", "path.system")
    assert [refusal.json()["errors"] for refusal in refusals] == [
        [f"{place}: {told.format(name)}"] for place, name in zip(places, names, strict=True)
    ]
    assert "Extra inputs are not permitted" in key.text
    assert not any(secret in refusal.text for refusal in (*refusals, key))
    with pytest.raises(ValidationError, match="must not hold a secret"):
        TypeAdapter(ActionBody).validate_python({"prompt": "p", "episode_id": secret})
    files = [path for path in store.root.rglob("*.sqlite*") if path.is_file()]
    assert len(files) > 2
    assert not [path for path in files if secret.encode() in path.read_bytes()]


def test_texts_are_embedded_before_the_transactions_of_others(
    admin: Client, store: RuntimeStore, monkeypatch: pytest.MonkeyPatch
):
    threads = []

    class Embedder:
        name = "one"

        def embed(self, text: str) -> list[float] | None:
            threads.append(threading.current_thread().name)
            return [float(len(text))]

    monkeypatch.setattr(bandit, "text_embedder", lambda **_: Embedder())
    arm = RuntimeArm(arm_id="a", params={"model": "a"})
    Systems(store).configure(RuntimeConfig(system="bot", default_arms=(arm,), kind="linear"))
    admin.select("bot", user_id="u", context={"text": "Why?"})
    admin.select("bot", user_id="u", context={"words": 2})
    assert len(threads) == 1
    assert threads[0] != "committer"
    rows = [
        row[0] for row in store.fetch("SELECT context_json FROM decisions ORDER BY created_us")
    ]
    assert ["text.#one.0" in row for row in rows] == [True, False]
