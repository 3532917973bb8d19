"""Solved games against closed forms."""

from functools import reduce
from operator import xor
from typing import TypeAlias

import pytest

from convergence_core.games.contract import FixedPlayer
from convergence_core.games.game import PlayKey
from convergence_core.games.play import play
from convergence_core.games.registry import solved_games
from convergence_core.games.solved.hidden_information import KuhnPoker, RockPaperScissors
from convergence_core.games.solved.perfect_information import Nim
from convergence_core.games.solved.solver import MovePolicy, solve
from convergence_core.games.solved.tree import GameTree, State, move_of

Weighted: TypeAlias = tuple[State, float]

SOLVED = {game.id: (game, solve(game)) for game in solved_games()}


def expected_payoff(tree: GameTree, first: MovePolicy, second: MovePolicy) -> float:
    """Return u(first, second), exactly."""
    found: dict[State, float] = {}

    def value(state: State) -> float:
        if state not in found:
            found[state] = visit(state)
        return found[state]

    def visit(state: State) -> float:
        if chances := tree.chances(state):
            return sum(p * value(after) for p, after in chances)
        seat = tree.seat(state)
        if seat is None:
            return tree.payoff(state)
        moves = tree.moves(state)
        policy = (first, second)[seat](tree.known(state), moves)
        return sum(
            float(p) * value(tree.after(state, move))
            for p, move in zip(policy, moves, strict=True)
            if p > 0.0
        )

    return value(tree.start())


def best_response(tree: GameTree, seat: int, other: MovePolicy) -> float:
    """Return what the best reply of a seat gets against the other one's policy, exactly.

    Positions that the seat cannot tell apart are weighed by how likely chance and the other one led
    there, and get one move: perfect recall makes these choices independent.
    """
    sign = 1.0 if seat == 0 else -1.0
    known_values: dict[State, float] = {}

    def value(belief: list[Weighted]) -> float:
        # Positions of one belief go on until it is the seat's turn again, or the end.
        total, waiting = 0.0, list(belief)
        own: dict[str, list[Weighted]] = {}
        while waiting:
            state, weight = waiting.pop()
            if chances := tree.chances(state):
                waiting += [(after, weight * p) for p, after in chances]
                continue
            turn = tree.seat(state)
            if turn is None:
                total += sign * weight * tree.payoff(state)
            elif turn == seat:
                own.setdefault(tree.known(state), []).append((state, weight))
            else:
                moves = tree.moves(state)
                chosen = other(tree.known(state), moves)
                waiting += [
                    (tree.after(state, move), weight * float(p))
                    for p, move in zip(chosen, moves, strict=True)
                    if p > 0.0
                ]
        return total + sum(best(states) for states in own.values())

    def best(states: list[Weighted]) -> float:
        if len(states) == 1:  # nothing is hidden: its value does not depend on the way there
            state, weight = states[0]
            if state not in known_values:
                known_values[state] = choice([(state, 1.0)])
            return weight * known_values[state]
        return choice(states)

    def choice(states: list[Weighted]) -> float:
        moves = tree.moves(states[0][0])
        return max(value([(tree.after(s, move), w) for s, w in states]) for move in moves)

    return value([(tree.start(), 1.0)])


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


def test_nim_is_won_by_moves_to_a_sum_of_zero():
    tree, solver = Nim(), SOLVED["nim"][1]
    waiting, seen = [tree.start()], set()
    while waiting:
        state = waiting.pop()
        if state in seen or tree.seat(state) is None:
            continue
        seen.add(state)
        moves = tree.moves(state)
        zero = {move for move in moves if reduce(xor, tree.after(state, move)[:-1]) == 0}
        # Where the sum is 0 every move loses, so none is better than another.
        chosen = solver.policy(tree.known(state), moves)
        best = {move for move, p in zip(moves, chosen, strict=True) if p > 0.0}
        assert best == (zero or set(moves)), state
        waiting += [tree.after(state, move) for move in moves]
    assert len(seen) > 200


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
    seen = play(game, {"first": FixedPlayer(reply), "second": solver}, key)
    assert seen.scores.by_role["first"] == -game.tree.most_payoff
    assert "no legal move" in seen.scores.reason
    assert len(seen.turns) == 1
