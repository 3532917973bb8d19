"""Runtime bandit: posteriors, propensities, drift detection, routing by case.

``BetaArms``, ``WarmArms`` (with a nightly prior) and ``ContextualArms`` are posteriors;
``Policy`` is one version of their exact propensities; ``DriftWatch`` detects that a mean has changed;
``receive`` says whether a reward is learned, stored or refused.
"""
