"""The benchmark of language games: its plays are scored, its tables learn what they are told."""

from benchmarks.games.cost import cpu_of_executed_play, cpu_of_plays
from benchmarks.games.learned import mean_and_interval


def test_every_game_without_programs_is_played():
    spent = cpu_of_plays(27)
    assert len(spent) == 9
    assert {"predict", "explore", "judge", "debate", "prompts", "kuhn-poker"} <= spent.keys()


def test_an_executed_play_is_measured_with_its_processes():
    assert 0.01 < cpu_of_executed_play(1) < 5.0


def test_intervals_over_seeds_are_of_student():
    assert mean_and_interval([0.0, 1.0]) == "0.500 ± 6.353"
