"""Linear arms whose requests' texts have embeddings in the place of hashed n-grams."""

import json

import pytest

from convergence_core.bandit.contextual import ContextualArms
from convergence_core.bandit.features import request_features, text_features
from tasks.serving import bandit as served
from tasks.serving.settings import RuntimeArm, RuntimeConfig
from tasks.serving.systems import Systems
from tasks.store.runtime.runtime_store import RuntimeStore
from tests.support.bandits import Bandit

TOPICS = {"Is this clause void?": [1.0, 0.0], "Why does my loop end?": [0.0, 1.0]}


class Topics:
    """Embeds by heart."""

    name = "topics"

    def embed(self, text: str) -> list[float] | None:
        return TOPICS.get(text)


@pytest.fixture
def topics(monkeypatch: pytest.MonkeyPatch) -> Topics:
    embedder = Topics()
    monkeypatch.setattr(served, "text_embedder", lambda *, is_served: embedder)
    return embedder


def test_names_tell_vectors_apart(topics: Topics):
    law, code = (text_features(text, topics) for text in TOPICS)
    assert law["text.#topics.0"] == code["text.#topics.1"] == 1.0
    assert not {name for name in law if name.startswith("text.#")} & text_features("Why?").keys()
    assert text_features("late", topics).keys() == {"text.length", "text.script", "text.code"}


def test_what_one_vector_taught_is_not_read_as_another(topics: Topics):
    arms = ContextualArms([0.5, 0.5], [1.0, 1.0])
    for _ in range(30):
        for k, text in enumerate(TOPICS):
            for arm in (0, 1):
                arms.tell(arm, float(arm == k), request_features({"text": text}, None, topics))
    same = {"text": "no vector is ready"}
    missing = arms.posterior(request_features(same, None, topics)).mean_sd[0]
    hashed = arms.posterior(request_features(same)).mean_sd[0]
    assert hashed == pytest.approx(missing), "numbers of another vector count as missing"
    law = arms.posterior(request_features({"text": next(iter(TOPICS))}, None, topics))
    assert law.mean_sd[0] == pytest.approx([1.0, 0.0], abs=0.1)


def test_served_arms_learn_topics_and_log_the_vector_without_the_text(
    state: RuntimeStore, topics: Topics
):
    systems = Systems(state)
    arms = tuple(RuntimeArm(arm_id=name, params={"n": name}) for name in ("law", "code"))
    systems.configure(RuntimeConfig(system="bot", default_arms=arms, kind="linear", seed=3))
    bandit = Bandit(state, "bot", seed=1)
    for number in range(160):
        text = list(TOPICS)[number % 2]
        chosen = bandit.select("u", context={"text": text})
        bandit.update(chosen.decision_id, float(chosen.arm_id == ("law", "code")[number % 2]))
    late = [bandit.select("u", context={"text": next(iter(TOPICS))}).arm_id for _ in range(10)]
    assert late == ["law"] * 10
    rows = [json.loads(row[0]) for row in state.fetch("SELECT context_json FROM decisions")]
    assert all("text.#topics.1" in row and "text" not in row for row in rows)
