"""Trust in a judge: earned on items whose truth was executed.

A critic that can be pleased will be (arXiv 2411.16905, §2.1). ``audit`` states how far a judge is trusted
and when it is disabled.
"""
