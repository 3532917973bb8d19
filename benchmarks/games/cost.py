"""CPU and memory of plays whose players answer at once."""

import resource
import time
from typing import Final

import numpy as np

from convergence_core.games.contract import FixedPlayer, LegalPlayer
from convergence_core.games.critic_game import CriticGame, CriticTask, arithmetic_check
from convergence_core.games.game import Game, PlayKey
from convergence_core.games.judge_games import DebateGame, JudgeGame, LabelledPair
from convergence_core.games.play import play
from convergence_core.games.prompt_game import PromptGame
from convergence_core.games.registry import solved_games
from convergence_core.games.search_games import ExploreGame, ForecastItem, PredictGame
from convergence_core.ports import Ask, Player
from convergence_core.space import Space
from convergence_core.space.parameters import Float
from tasks.games.players import SandboxPlayer

N_PLAYS: Final = 1_000
N_EXECUTED: Final = 20
_ROWS: Final = ", ".join(["[1,1,1,2,2,1,1,1,1,1]"] * 4)
FORECAST: Final = f'{{"thought": "as before", "forecast": [{_ROWS}]}}'
REGION: Final = '{"regions": [{"t": [0.6, 0.8]}]}'
WORDS: Final = tuple(f"word{i}" for i in range(300))


class Measures:
    """Four bins, or four rewards."""

    def answer(self, ask: Ask, rng: np.random.Generator) -> str:
        """Draw them."""
        if ask.text.startswith('{"bins"'):
            return str([int(one) for one in rng.integers(0, 10, 4)])
        return str([round(float(one), 3) for one in rng.random(4)])


class Writes:
    """Prompts of random words."""

    def answer(self, ask: Ask, rng: np.random.Generator) -> str:
        """Draw one."""
        del ask
        return " ".join(rng.choice(WORDS, 12))


def games() -> list[tuple[Game, dict[str, Player]]]:
    """Return the nine games that run no programs, each with players that answer at once."""
    space = Space(parameters={"t": Float(min=0.0, max=1.0)})
    item = ForecastItem(
        history="Trials so far: none.",
        candidates=tuple({"t": t / 4} for t in range(4)),
        baseline=((0.1,) * 10,) * 4,
    )
    pair = LabelledPair(prompt="What is 1 + 1?", first="2", second="3", first_is_right=True)
    rng = np.random.default_rng(0)
    pool = tuple(" ".join(rng.choice(WORDS, 12)) for _ in range(200))
    legal, text = LegalPlayer(), FixedPlayer("It is right because it adds up.")
    made: list[tuple[Game, dict[str, Player]]] = [
        (PredictGame((item,)), {"explorer": FixedPlayer(FORECAST), "evaluator": Measures()}),
        (
            ExploreGame(space=space, history="Trials so far: none."),
            {"explorer": FixedPlayer(REGION), "evaluator": Measures()},
        ),
        (JudgeGame((pair,)), {"judge": legal}),
        (DebateGame((pair,)), {"judge": legal, "advocate": text}),
        (PromptGame(task="orders", personas=("A buyer.",), pool=pool), {"author": Writes()}),
    ]
    return made + [(game, {"first": legal, "second": legal}) for game in solved_games()]


def cpu_of_plays(n_plays: int = N_PLAYS) -> dict[str, float]:
    """Return CPU seconds of so many plays, all games together, by game."""
    offered = games()
    found = {}
    for k, (game, players) in enumerate(offered):
        began = time.process_time()
        for index in range(n_plays * k // len(offered), n_plays * (k + 1) // len(offered)):
            seen = play(game, players, PlayKey(run_seed=0, round_number=0, index=index))
            assert not seen.scores.is_void, seen.scores
        found[game.id] = time.process_time() - began
    return found


def critic() -> tuple[Game, dict[str, Player]]:
    """Return the critic's game with players that answer at once; its programs run."""
    task = CriticTask(
        task_id="sum", prompt="Calculate: {input}", rules="An input is an expression.",
        reference="from checkers import evaluate\n\ndef solve(input):\n    return str(evaluate(input))\n",
        check=arithmetic_check(),
    )  # fmt: skip
    players: dict[str, Player] = {
        "critic": FixedPlayer("12*(3+4)"), "incumbent": FixedPlayer("84"), "sandbox": SandboxPlayer(),
    }  # fmt: skip
    return CriticGame((task,)), players


def cpu_of_executed_play(n_plays: int = N_EXECUTED) -> float:
    """Return CPU seconds of one play of the critic's game, its limited processes included."""
    game, players = critic()
    play(game, players, PlayKey(run_seed=0, round_number=0, index=0))  # looks for the filter once
    before = cpu_s()
    for index in range(n_plays):
        play(game, players, PlayKey(run_seed=0, round_number=1, index=index))
    return (cpu_s() - before) / n_plays


def cpu_s() -> float:
    """Return CPU seconds of this process and of children that have ended."""
    own, children = (
        resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def report_cost() -> None:
    """Print CPU by game, CPU of an executed play, and the peak memory."""
    spent = cpu_of_plays()
    print(f"\n{N_PLAYS:,} plays of nine games, players that answer at once:")
    print("| game | CPU s |\n|---|---|")
    for name, seconds in spent.items():
        print(f"| {name} | {seconds:.2f} |")
    print(f"| all | {sum(spent.values()):.2f} |")
    print(
        f"\nOne play of the critic's game, three limited processes: {cpu_of_executed_play():.2f} CPU s"
    )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"Peak memory of this process: {peak:.0f} MiB")
