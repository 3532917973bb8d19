"""Optimize a function and print the best settings."""

from convergence import run_optimization_sync


def answer(case: dict, params: dict) -> dict:
    """Return a value to compare with `expected`; replace this with your function."""
    return {"result": "yes" if case["n"] * params["slope"] > 1.0 else "no"}


if __name__ == "__main__":
    found = run_optimization_sync(
        {
            "api": {"name": "slope"},
            "search_space": {"parameters": {"slope": {"type": "float", "min": 0.0, "max": 2.0}}},
            "evaluation": {"metrics": {"exact_match": {"weight": 1.0}}},
            "optimization": {"seed": 1, "evolution": {"population_size": 6, "generations": 3}},
        },
        local_function=answer,
        test_cases=[
            {"input": {"n": n}, "expected": "yes" if n >= 2 else "no"} for n in range(1, 9)
        ],
    )
    print(found.best_config, round(found.best_score, 3))
