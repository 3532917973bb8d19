"""Judge and debate: what earns, what does not; and the contract of all games."""

import json
import math

import numpy as np
import pytest

from convergence_core.games.contract import GARBAGE, FixedPlayer, broken_rules
from convergence_core.games.game import Game, PlayKey, Scores, Transcript
from convergence_core.games.judge_games import DebateGame, JudgeGame, log_score, probability_of
from convergence_core.games.play import play
from convergence_core.games.registry import solved_games
from convergence_core.judges.texts import json_objects
from convergence_core.ports import Ask, Player
from tests.support.labelled_pairs import labelled_pair

PAIRS = tuple(
    labelled_pair(
        f"What is {k} + 1?", str(k + k % 2), str(k + 1 - k % 2), first_is_right=k % 2 == 1
    )
    for k in range(20)
)  # fmt: skip


def played(game: Game, n: int = 1, **players: Player) -> list[Transcript]:
    return [play(game, players, PlayKey(run_seed=11, round_number=0, index=i)) for i in range(n)]


def scores(game: Game, role: str, n: int = 1, **players: Player) -> list[float]:
    return [one.scores.by_role[role] for one in played(game, n, **players)]


class Judge:
    """Says p for the right answer; biased: adds log-odds to whichever comes first."""

    def __init__(self, p: float, bias: float = 0.0) -> None:
        self.p, self.bias = p, bias

    def answer(self, ask: Ask, rng: np.random.Generator) -> str:
        texts = ask.text.split("[[BEGIN ")
        task, first = (one.split("]]\n")[1].split("\n")[0] for one in texts[1:3])
        is_right = int(first) == int(task.removeprefix("What is ").split(" ")[0]) + 1
        odds = math.log(self.p / (1 - self.p)) * (1 if is_right else -1) + self.bias
        return json.dumps({"p": 1 / (1 + math.exp(-odds))})


class Helped(Judge):
    """Knows more once an argument was made."""

    def answer(self, ask: Ask, rng: np.random.Generator) -> str:
        told = Judge(0.9 if "argument for" in ask.text else 0.6)
        return told.answer(ask, rng)


@pytest.mark.parametrize("game", solved_games(), ids=lambda game: game.id)
def test_solved_games_keep_the_contract(game: Game):
    assert broken_rules(game) == []


@pytest.mark.parametrize("game", [JudgeGame(PAIRS), DebateGame(PAIRS)])
def test_games_of_answers_keep_the_contract(game: Game):
    assert broken_rules(game) == []
    assert isinstance(game, Game)


def test_a_judge_is_paid_its_log_score_and_a_bias_for_the_first_place_cancels():
    for bias in (0.0, 1.5):
        found = scores(JudgeGame(PAIRS), "judge", 10, judge=Judge(0.8, bias))
        assert found == pytest.approx([math.log(0.8)] * 10)
    assert log_score("0.5", "0.5", True) == pytest.approx(-math.log(2))


def test_a_sure_and_wrong_judge_and_an_unreadable_one_score_the_least():
    assert log_score("0", "1", True) == pytest.approx(math.log(0.01))
    assert log_score("1", "0", True) == pytest.approx(math.log(0.99))
    for reply in GARBAGE:
        assert log_score(reply, "0.9", True) == math.log(0.01)


def test_a_debate_is_worth_what_the_judge_gains():
    found = scores(
        DebateGame(PAIRS), "advocate", 5, advocate=FixedPlayer("So."), judge=Helped(0.6)
    )
    assert found == pytest.approx([math.log(0.9) - math.log(0.6)] * 5)
    deaf = scores(DebateGame(PAIRS), "advocate", 5, advocate=FixedPlayer("So."), judge=Judge(0.6))
    assert deaf == pytest.approx([0.0] * 5)


def test_arguments_follow_their_answers_in_both_orders():
    class Advocate:
        def answer(self, ask: Ask, rng: np.random.Generator) -> str:
            return (
                f"I argue for {ask.text.split('answer')[1].split(']]')[1].split('[[')[0].strip()}"
            )

    (seen,) = played(DebateGame(PAIRS[:1]), advocate=Advocate(), judge=Judge(0.6))
    for turn in seen.turns[-2:]:
        parts = [
            one.split("]]\n")[1].split("\n")[0] for one in turn.ask.text.split("[[BEGIN ")[1:]
        ]
        _, first, second, for_first, for_second = parts
        assert (for_first, for_second) == (f"I argue for {first}", f"I argue for {second}")


@pytest.mark.parametrize(
    ("reply", "p"),
    [
        ("0.7", 0.7), ('{"p": 0.7}', 0.7), ('So {"p": 1} it is', 1.0), ("I say .25.", 0.25), ("1", 1.0),
        ("0.2 or 0.3", None), ('{"p": 2}', None), ('{"p": true}', None), ("70%", None), ("1.5", None),
        ('{"q": 0.5}', None), ("v0.5", None),
    ],
)  # fmt: skip
def test_a_probability_is_the_only_one_in_a_reply(reply: str, p: float | None):
    assert probability_of(reply) == p


def test_many_brackets_are_not_all_tried():
    assert not [*json_objects('{"' * 9_000)]
    assert not [*json_objects('{"a": ' * 200 + "1")]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"id": "Kuhn Poker"}, "`id` must be"),
        ({"version": 0}, "`version` must be 1 or more"),
        ({"roles": ("first", "first")}, "`roles` must name each role once"),
        ({"cost": {"first": 1}}, "`cost` must give the calls of each role"),
        ({"feeds": "fun"}, "`feeds` must be one of hard_cases, "),
        ({"grounded": "yes"}, "`grounded` must be True or False"),
    ],
)
def test_the_contract_names_a_wrong_declaration(wrong, says: str):
    game = type("Own", (Plain,), wrong)()
    (found, *_) = broken_rules(game)
    assert says in found


class Plain:
    """A game of one ask, right in every way."""

    id = "plain"
    version = 1
    roles: tuple[str, ...] = ("speaker",)
    cost = {"speaker": 1}  # noqa: RUF012 - read only
    feeds = "players"
    grounded = True

    def protocol(self, rng):
        reply = yield Ask(role="speaker", text=f"Say {rng.integers(9)}.")
        return {"n": len(reply)}

    def score(self, turns, facts):
        return Scores(by_role={"speaker": float(facts["n"])})


def test_the_contract_finds_a_void_play_without_a_reason():
    class Silent(Plain):
        def score(self, turns, facts):
            return Scores(by_role={})

    assert "must give its reason" in broken_rules(Silent())[0]  # type: ignore[arg-type]
    assert broken_rules(object()) == [  # type: ignore[arg-type]
        "a game must have id, version, roles, cost, feeds, grounded, protocol and score"
    ]
