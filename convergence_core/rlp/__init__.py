"""RLP: hypotheses of an LLM, rewarded by information gain (arXiv 2510.01265).

A thought is written before the outcomes it is judged by and is paid for the information it adds
about them. Pure numpy; who asks a model is in ``tasks.rlp``.

====================  =============================================================
``bins``              ten bins of reward; calibration's transform
``gain``              information gain (eq. 5), e-values
``baseline``          mixture of predictors that never see a thought
``statistical``       the search's posterior as one of them
``outcomes``          trials → outcomes of what was committed
``gain_rows``         commitments and outcomes → rows
``advantage``         group advantages (eq. 7), generalized advantages, no centring
``policy``            clipped update (eq. 8) of a softmax over strategies; value
``learner``           the update after a generation; the state
``replay``            ten thousand rows; calibration: one temperature for both arms
``exemplars``         old thoughts that predicted best, no two alike
``experts``           how much a thought may say in the draws
``history`` ``views`` what a thought may have read
``strategies``        the actions of the policy
``regions``           where a thought says to look
``commitments``       what is fixed before outcomes are known
``rows`` ``report``   tables, and a summary for people
====================  =============================================================
"""
