"""Language games: a plan, plays, and the choice of games to keep."""

from typing import Annotated

from prefect import flow, get_run_logger
from pydantic import Field

from convergence_core.games.round_records import GamesReport
from tasks.artifacts import show_games
from tasks.inputs.loader import load
from tasks.prefect_support.flow_runs import attended, task_runs_have_no_tags
from tasks.report.games_section import round_sentence
from tasks.run.games_opener import open_games_round
from tasks.steps import plan_games, play_game, save_games


@flow(name="games", flow_run_name="games {config}", validate_parameters=False)
def games(config: str, seed: Annotated[int | None, Field(ge=0)] = None) -> GamesReport:
    """Play a round of a system's games; report its plays, its cost and the kept games.

    Args:
        config: path of `optimization.yaml`.
        seed: replaces `optimization.seed`.
    """
    with attended(), task_runs_have_no_tags(), open_games_round(load(config), seed=seed) as opened:
        if not opened.is_finished:
            for game in plan_games(opened.run_id):
                play_game(opened.run_id, game)
        report = save_games(opened.run_id)
        get_run_logger().info("%s", round_sentence(report))
        show_games(report)
        return report
