"""Language games: a look, coins, plays, and which games are kept."""

from typing import Annotated

from prefect import flow, get_run_logger
from pydantic import Field

from convergence_core.games.round_records import GamesReport
from tasks.artifacts import show_games
from tasks.prefect_support.flow_runs import attended, label_of_games, task_runs_have_no_tags
from tasks.report.games_section import round_sentence
from tasks.run.games_opener import open_round
from tasks.steps import look_at_held_out, play_game, save_games, toss_coins


@flow(name="games", flow_run_name=label_of_games, validate_parameters=False)
def games(
    config: str | None = None,
    seed: Annotated[int | None, Field(ge=0)] = None,
    run_id: str | None = None,
    generation: int | None = None,  # noqa: ARG001 - names the flow run
) -> GamesReport:
    """Play a round of a system's games, and say what was played, what it cost, and which games are kept.

    Within an optimization the round is saved with the generation after it; alone, as `games/weekly`, it is a
    run of its own.

    Args:
        config: path of `optimization.yaml`, where it runs alone.
        seed: in place of `optimization.seed`, where it runs alone.
        run_id: a run that this process holds open.
        generation: of that run, before which the round is played.
    """
    with attended(), task_runs_have_no_tags(), open_round(config, run_id, seed) as opened:
        if not opened.is_finished:
            look_at_held_out(opened.run_id)
            for game in toss_coins(opened.run_id):
                play_game(opened.run_id, game)
        report = save_games(opened.run_id)
        get_run_logger().info("%s", round_sentence(report))
        show_games(report)
        return report
