"""Use cases: load what a decision needs, decide, apply it in one transaction.

- ``writer``: the one writer with its group commit; every change goes through it;
- ``ingest``, ``reconcile``, ``projects``, ``presence``: what changes something;
- ``readers``, ``reads``, ``watch``, ``alert_watch``: what does not;
- ``alert_book``: counts what is to be alerted, between commits.

No gRPC and no driver here: the edge is ``hub.rpc``, durability ``hub.store``, by its contract.
"""
