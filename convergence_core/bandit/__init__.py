"""Runtime bandit: posteriors, propensities, drift detection, routing by case.

``BetaArms``, ``WarmArms`` (with a nightly prior) and ``ContextualArms`` are posteriors. ``Policy``
is one version of their exact propensities. ``DriftWatch`` detects changes of a mean. ``receive``
decides whether a reward is learned, stored or rejected.
"""
