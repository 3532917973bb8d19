"""Feedback over HTTP: answers logged, rated by their users, and arms that learn from it."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from convergence.client import Client
from convergence.service.server import Service
from convergence_core.feedback.records import Rating
from tasks.serving.rated_answers import pending_rewards, send_rewards
from tasks.serving.settings import RuntimeConfig
from tasks.serving.systems import Systems
from tasks.store.feedback.feedback_store import FeedbackStore
from tasks.store.runtime.runtime_store import RuntimeStore
from tests.feedback.answers import answer
from tests.service.conftest import SECRETS, Start
from tests.support.bandits import Bandit


class Caller:
    """Requests with one token."""

    def __init__(self, url: str, scope: str) -> None:
        headers = {"Authorization": f"Bearer {SECRETS[scope]}"}
        self.http = httpx.Client(base_url=url, headers=headers)

    def __call__(self, method: str, path: str, **body: Any) -> httpx.Response:
        return self.http.request(method, path, json=body or None)

    def log(self, **values: Any) -> str:
        given = {
            "user_id": "ann", "model": "hosted", "response": "4",
            "messages": [{"role": "user", "content": "2 + 2?"}],
        }  # fmt: skip
        found = self("POST", "/v1/interactions", **given | values)
        assert found.status_code == 200, found.text
        return str(found.json()["interaction_id"])


@pytest.fixture
def app(service: Service) -> Iterator[Caller]:
    """An application's token, of scope update."""
    caller = Caller(service.url, "update")
    yield caller
    caller.http.close()


@pytest.fixture
def feedback(service: Service, store: RuntimeStore) -> Iterator[FeedbackStore]:
    with FeedbackStore(store.root) as opened:
        yield opened


def test_an_answer_is_logged_rated_edited_and_unrated(app: Caller, feedback: FeedbackStore):
    one = app.log(event_id="e", sampling={"temperature": 0.5}, logprobs=[-0.5], cost_usd=0.25)
    again = app("POST", "/v1/interactions", user_id="ann", model="hosted", response="4",
                messages=[{"role": "user", "content": "2 + 2?"}], event_id="e")  # fmt: skip
    assert again.json() == {"interaction_id": one, "status": "duplicate"}
    stored = feedback.interaction(one)
    assert stored is not None
    assert (stored.role, stored.source, stored.logprobs) == ("assistant", "api", (-0.5,))
    assert (stored.sampling, stored.cost_usd) == ({"temperature": 0.5}, 0.25)
    path = f"/v1/interactions/{one}"
    first = app("POST", f"{path}/rating", user_id="ann", rating=4, event_id="click")
    assert first.json() == {
        "interaction_id": one, "status": "rated", "label": "4 Excellent", "reward": 0.5,
        "arm_reward": None,
    }  # fmt: skip
    twice = app("POST", f"{path}/rating", user_id="ann", rating=4, event_id="click")
    assert twice.json()["status"] == "duplicate"
    edited = app("POST", f"{path}/rating", user_id="ann", thumbs="down", reason="wrong")
    assert (edited.json()["status"], edited.json()["label"]) == ("edited", "thumbs down")
    for deleted in (True, False):
        found = app("DELETE", f"{path}/rating?user_id=ann")
        assert found.json() == {"interaction_id": one, "deleted": deleted}
    assert feedback.rating(one, "ann") is None


def test_a_user_rates_the_own_answers_and_a_token_of_scope_admin_any(
    app: Caller, service: Service, feedback: FeedbackStore
):
    own, shared = app.log(), app.log(is_shared=True)
    stranger = app("POST", f"/v1/interactions/{own}/rating", user_id="eve", rating=1)
    assert stranger.status_code == 403
    assert "ann" not in stranger.text
    assert app("POST", f"/v1/interactions/{shared}/rating", user_id="eve", rating=2).is_success
    assert (
        app("POST", "/v1/interactions/nobody/rating", user_id="eve", rating=2).status_code == 404
    )
    admin = Caller(service.url, "admin")
    assert admin("POST", f"/v1/interactions/{own}/rating", user_id="eve", rating=1).is_success
    assert [mark.user_id for mark in feedback.ratings(own)] == ["eve"]
    admin.http.close()


def test_a_rating_becomes_the_reward_of_the_decision_once(
    app: Caller, admin: Client, feedback: FeedbackStore
):
    admin.offer("bot", "a", {"n": 1})
    admin.offer("bot", "b", {"n": 2})
    chosen = admin.select("bot", user_id="ann")
    place = {"system": "bot", "decision_id": chosen.decision_id}
    one = app.log(**place)
    first = app("POST", f"/v1/interactions/{one}/rating", user_id="ann", rating=4).json()
    assert (first["arm_reward"]["status"], first["arm_reward"]["reward"]) == ("ok", 0.75)
    edited = app("POST", f"/v1/interactions/{one}/rating", user_id="ann", rating=1).json()
    assert (edited["status"], edited["arm_reward"]) == ("edited", None)
    assert app("DELETE", f"/v1/interactions/{one}/rating?user_id=ann").json()["deleted"]
    (arm,) = [arm for arm in admin.arms("bot") if arm.n]
    assert (arm.arm_id, arm.n, arm.alpha, arm.beta) == (chosen.arm_id, 1, 1.75, 1.25)
    assert app("GET", "/v1/feedback/status").json()["rewards"] == {"ok": 1}
    twin = app.log(**place, response="the same decision again")
    conflict = app("POST", f"/v1/interactions/{twin}/thumbs", user_id="ann", thumbs="down").json()
    assert conflict["arm_reward"]["status"] == "conflict"
    for alien in ({**place, "user_id": "eve"}, {**place, "decision_id": "nobody's"}):
        found = app("POST", "/v1/interactions", model="m", response="", **{"user_id": "ann", **alien},
                    messages=[{"role": "user", "content": "x"}])  # fmt: skip
        assert found.status_code == 404
    assert app("POST", "/v1/interactions", user_id="ann", model="m", response="", decision_id="d",
               messages=[{"role": "user", "content": "x"}]).status_code == 409  # fmt: skip
    assert list(pending_rewards(feedback)) == []


def test_a_reward_that_a_killed_process_left_is_sent_later_and_once(store: RuntimeStore):
    systems = Systems(store)
    systems.configure(RuntimeConfig(system="bot", default_arms=({"params": {}, "arm_id": "a"},
                                                                {"params": {"n": 1}, "arm_id": "b"})))  # fmt: skip
    chosen = Bandit(systems.store, "bot").select("ann")
    with FeedbackStore(store.root) as feedback:
        feedback.log(answer("i", system="bot", decision_id=chosen.decision_id))
        feedback.rate(Rating(interaction_id="i", user_id="ann", rating=5))
        ((_, _, left),) = pending_rewards(feedback)
        assert (left.decision_id, left.reward) == (chosen.decision_id, 1.0)
        assert [one.status for one in send_rewards(feedback, systems)] == ["ok"]
        assert send_rewards(feedback, systems) == []


def test_every_route_asks_for_its_scope(start: Start):
    service = start()
    select = Caller(service.url, "select")
    message = {"role": "user", "content": "x"}
    bodies: dict[str, dict[str, Any]] = {
        "/v1/interactions": {"user_id": "u", "model": "m", "response": "", "messages": [message]},
        "/v1/interactions/i/rating": {"user_id": "u", "rating": 1},
        "/v1/interactions/i/thumbs": {"user_id": "u", "thumbs": "up"},
        "/v1/comparisons": {"user_id": "u", "chosen_id": "a", "rejected_id": "b"},
    }
    for path, body in bodies.items():
        assert select("POST", path, **body).status_code == 403, path
        assert httpx.post(service.url + path, json=body).status_code == 401
    assert select("DELETE", "/v1/interactions/i/rating?user_id=u").status_code == 403
    assert select("GET", "/v1/feedback/status").is_success
    select.http.close()
