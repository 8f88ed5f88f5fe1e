"""Everything of the agent that talks to a hub, and the Python client for programs without an agent.

For programs: ``client.py`` (blocking) and ``async_client.py``; ``stored_values.py`` is what they answer,
``errors.py`` what they raise.

For the agent: ``link.py`` connects again and again and runs one ``push_session.py`` after the other,
which reconciles (``reconcile_queue.py``, ``reconciler.py``) and then pushes what ``core/push.py`` says;
``presence.py`` sends heartbeats on a connection of its own; ``hub_calls.py`` is all of gRPC that they
need; ``codec.py`` is where values become messages.
"""
