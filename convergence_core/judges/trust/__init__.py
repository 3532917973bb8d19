"""Trust in a judge: earned on items whose truth was executed, lost by a bound.

A critic that can be pleased will be (arXiv 2411.16905, §2.1). ``audit`` says how far a judge is trusted
and when it is switched off, ``drift`` whether its marks wander from the truth, ``exploitation`` whether
somebody learns to please it.
"""
