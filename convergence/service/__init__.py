"""HTTP service at run time: selections, rewards, arms and gates.

``convergence serve`` runs it (``running``); ``app.make_app`` is the ASGI application. Importing this
package loads nothing else.
"""
