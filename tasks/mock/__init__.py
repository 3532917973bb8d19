"""Mock of providers of language models, without a key.

``tasks.mock.mock_server.MockServer`` serves it in a thread, ``convergence mock`` as a command.
What it answers means nothing about real models. Importing this package loads nothing else.
"""
