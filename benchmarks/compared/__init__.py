"""Small tasks done with promptfoo, DSPy, Optuna, prompt optimizers and The Convergence.

``docs/compared.md`` shows what they print; each file has its command at the head.
"""
