"""HTTP service at run time: selections, rewards, arms and gates.

``convergence serve`` runs it (``server.Service``); ``app.make_app`` returns the ASGI application.
Importing this package loads nothing else.
"""
