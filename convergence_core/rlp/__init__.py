"""RLP: thoughts of an LLM, rewarded by information gain (arXiv 2510.01265).

A thought forecasts scores before they are known and is paid for the information that it adds to the
search's own posterior. Pure NumPy; ``tasks.rlp`` makes the calls.

==================  =============================================================
``quantiles``       forecasts as 10, 50 and 90 % quantiles, and their density
``gain``            information gain (eq. 5), resolution, e-values
``statistical``     the search's posterior as a forecast: the baseline
``reply``           notes, forecasts and settings in a model's answer
``commitments``     thoughts and forecasts, fixed before outcomes
``outcomes``        trials → scores of what was committed
``experts``         weight of the model's forecasts in the draws
``advantage``       group advantages (eq. 7), generalized advantages, normalization
``policy``          clipped update (eq. 8) of a softmax over actions; value
``learner``         the update after a generation; the state
``rows`` ``report`` tables, and a summary for people
==================  =============================================================
"""
