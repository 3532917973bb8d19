"""Mock of language-model providers, without a key.

``tasks.mock.mock_server.MockServer`` serves it in a thread, ``convergence mock`` as a command. Its
answers say nothing about real models. Importing this package loads nothing else.
"""
