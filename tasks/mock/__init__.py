"""Stand-in for providers of language models, which needs no key.

``tasks.mock.mock_server.MockServer`` serves it in a thread, ``convergence mock`` as a command.
What it answers means nothing about real models. Importing this package loads nothing else.
"""
