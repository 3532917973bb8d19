"""Solved games against closed forms, and players that learn in them."""

import numpy as np
import pytest

from benchmarks.games.learned import trained
from convergence_core.games.game import PlayKey
from convergence_core.games.play import play
from convergence_core.games.registry import solved_games
from convergence_core.games.solved.hidden_information import KuhnPoker, RockPaperScissors
from convergence_core.games.solved.perfect_information import (
    Nim,
    TicTacToe,
    nim_sum,
)
from convergence_core.games.solved.solver import (
    best_response,
    expected_payoff,
    exploitability,
    solve,
    uniform,
)
from convergence_core.games.solved.table_player import TablePlayer, credits_of
from convergence_core.games.solved.tree import SEATS, move_of
from convergence_core.ports import Ask, Player

SOLVED = {game.id: (game, solve(game)) for game in solved_games()}


class Scripted:
    """Answers with a fixed text."""

    def __init__(self, text: str) -> None:
        self.text = text

    def answer(self, ask: Ask, rng: np.random.Generator) -> str:
        return self.text


@pytest.mark.parametrize(
    ("name", "value"),
    [("tic-tac-toe", 0.0), ("nim", 1.0), ("kuhn-poker", -1 / 18), ("rock-paper-scissors", 0.0)],
)
def test_values_are_those_of_the_literature_and_no_reply_gains_on_the_solver(name, value):
    game, solver = SOLVED[name]
    assert solver.value == pytest.approx(value, abs=1e-12)
    assert expected_payoff(game.tree, solver.policy, solver.policy) == pytest.approx(value)
    # Equilibrium: neither seat gains by another policy.
    assert best_response(game.tree, 0, solver.policy) == pytest.approx(value)
    assert best_response(game.tree, 1, solver.policy) == pytest.approx(-value)
    assert exploitability(game.tree, solver.policy) == pytest.approx(0.0, abs=1e-12)
    assert solver.loss(solver.policy) == pytest.approx(0.0, abs=1e-12)


def test_random_kuhn_poker_is_exploited_by_eleven_twenty_fourths():
    # Best replies to one half each: 1/2 as first and 5/12 as second, by hand over the six deals.
    tree = KuhnPoker()
    assert best_response(tree, 0, uniform) == pytest.approx(1 / 2)
    assert best_response(tree, 1, uniform) == pytest.approx(5 / 12)
    assert exploitability(tree, uniform) == pytest.approx(11 / 24)


def test_one_choice_always_is_exploited_by_one_in_each_round():
    tree = RockPaperScissors()

    def rock(known, moves):
        return np.array([1.0, 0.0, 0.0])

    assert best_response(tree, 1, rock) == pytest.approx(3.0)
    assert exploitability(tree, uniform) == pytest.approx(0.0, abs=1e-12)


def test_nim_is_won_by_moves_to_a_sum_of_zero():
    tree, solver = Nim(), SOLVED["nim"][1]
    waiting, seen = [tree.start()], set()
    while waiting:
        state = waiting.pop()
        if state in seen or tree.seat(state) is None:
            continue
        seen.add(state)
        moves = tree.moves(state)
        zero = {move for move in moves if nim_sum(tree.after(state, move)[:-1]) == 0}
        # Where the sum is 0 every move loses, so none is better than another.
        assert solver.optimal(tree.known(state), moves) == (zero or set(moves)), state
        waiting += [tree.after(state, move) for move in moves]
    assert len(seen) > 200
    assert nim_sum((3, 4, 5)) == 2


def test_positions_of_kuhn_poker_hide_the_other_card():
    tree = KuhnPoker()
    (_, one), (_, other), *_ = tree.chances(tree.start())
    assert one != other
    assert tree.known(one) == tree.known(other) == "Your card: J; moves so far: nothing"


def test_a_second_choice_knows_nothing_of_the_first():
    tree = RockPaperScissors()
    said = {tree.known((move,)) for move in tree.moves(())}
    assert said == {"Rounds so far: none"}
    assert tree.payoff(("rock", "paper", "scissors", "rock", "rock", "rock")) == -2.0


@pytest.mark.parametrize(
    ("reply", "move"),
    [("bet", "bet"), (" Bet.\n", "bet"), ("I bet", "bet"), ("bet or pass?", None), ("", None)],
)
def test_a_reply_counts_if_it_names_one_legal_move(reply, move):
    assert move_of(reply, ("pass", "bet")) == move


@pytest.mark.parametrize("name", sorted(SOLVED))
@pytest.mark.parametrize("reply", ["", "nothing legal", "x" * 100_000, "\x00\ud800"])
def test_an_illegal_move_loses_as_much_as_can_be_lost(name, reply):
    game, solver = SOLVED[name]
    key = PlayKey(run_seed=1, round_number=0, index=0)
    seen = play(game, {"first": Scripted(reply), "second": solver}, key)
    assert seen.scores.by_role["first"] == -game.tree.most_payoff
    assert "no legal move" in seen.scores.reason
    assert len(seen.turns) == 1


@pytest.mark.statistical
def test_mean_payoffs_of_plays_are_the_expected_ones():
    game, solver = SOLVED["kuhn-poker"]
    players: dict[str, Player] = {"first": TablePlayer(), "second": solver}
    n = 2_000
    paid = [
        play(game, players, PlayKey(run_seed=3, round_number=0, index=i)).scores.by_role["first"]
        for i in range(n)
    ]
    expected = expected_payoff(game.tree, uniform, solver.policy)
    error = np.std(paid, ddof=1) / np.sqrt(n)
    assert abs(np.mean(paid) - expected) < 3.3 * error, (np.mean(paid), expected, error)


@pytest.mark.statistical
@pytest.mark.parametrize("name", ["kuhn-poker", "nim"])
def test_two_thousand_plays_halve_the_loss_and_shuffled_scores_leave_it(name):
    game, solver = SOLVED[name]
    before = solver.loss(TablePlayer().policy)
    learned = solver.loss(trained(game, solver, 0, shuffled=False).policy)
    by_chance = solver.loss(trained(game, solver, 0, shuffled=True).policy)
    assert learned <= 0.5 * before, (before, learned)
    assert by_chance >= 0.9 * before, (before, by_chance)


def test_moves_of_losers_that_the_solver_would_not_play_leave_no_mark():
    game, solver = SOLVED["kuhn-poker"]
    table = TablePlayer()
    seen = [
        one
        for i in range(60)
        for one in credits_of(
            play(game, table.seats(), PlayKey(run_seed=5, round_number=0, index=i)), solver
        )
    ]
    assert {one.credit for one in seen} == {0.0, 0.1, 1.0}
    table.learn([one for one in seen if one.credit == 0.0])
    assert table.credits == {}


def test_an_illegal_move_is_not_learned_from():
    game, solver = SOLVED["nim"]
    key = PlayKey(run_seed=1, round_number=0, index=0)
    seen = play(game, {"first": solver, "second": Scripted("z9")}, key)
    (won,) = credits_of(seen, solver)
    assert (won.move, won.credit) == ("a2", 1.0)


def test_a_table_answers_in_both_seats_by_its_credits():
    table = TablePlayer({"s": np.array([1.0, 3.0])})
    assert table.policy("s", ("a", "b")).tolist() == [0.25, 0.75]
    assert set(table.seats()) == set(SEATS)
    assert TicTacToe().moves("xo.......") == ("3", "4", "5", "6", "7", "8", "9")
