"""SAO: synthetic preference data with judge audits."""

from prefect import flow, runtime

from tasks.artifacts import notices, show_rounds, show_tags
from tasks.prefect_support.flow_runs import attended, label_of_round, task_runs_have_no_tags
from tasks.run.run import is_open
from tasks.run.sao_rounds import finish, open_rounds, should_continue
from tasks.steps import prefer, save_round


@flow(name="sao", flow_run_name=label_of_round, validate_parameters=False)
def sao(
    config: str | None = None, run_id: str | None = None, generation: int | None = None
) -> int:
    """Play rounds of preferences; return the number of kept pairs.

    Within an optimization it plays one round, saved with the next generation. Alone, as
    ``sao/weekly``, it plays up to ``society.sao.iterative_rounds`` rounds on the evidence of the
    system's newest run.

    Args:
        config: path of ``optimization.yaml``, if it runs alone.
        run_id: id of a run that this process holds open.
        generation: generation of that run after the round.
    """
    with attended(), task_runs_have_no_tags():
        if run_id is not None and generation is not None and is_open(run_id):
            return prefer(run_id, generation)
        run = open_rounds(config, flow_run_id=runtime.flow_run.id, notices=notices)
        n_kept = 0
        with run:
            show_tags(run)
            while should_continue(run):
                n_kept += prefer(run.run_id, run.next_generation)
                save_round(run.run_id, run.next_generation)
            show_rounds(run)
            finish(run)
        return n_kept
