"""The HTTP service at run time: choices of arms, rewards, arms, gates; JSON over bearer tokens.

``convergence serve`` runs it (``running``); ``app.make_app`` is the ASGI application. Importing this
package loads nothing else.
"""
