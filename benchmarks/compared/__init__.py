"""Small tasks solved with promptfoo, DSPy, Optuna, prompt optimizers and The Convergence.

``docs/compared.md`` shows their output; each file starts with its command.
"""
