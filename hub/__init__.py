"""The hub: takes each event of many runtimes exactly once, says who is alive, decides who may act on what.

START HERE. A pushed event comes this way::

    hub.rpc.push_handler    a stream: checks each batch, keeps the order of answers
    hub.rpc.codec_push      protobuf → values, hashes computed
    hub.service.ingest      the use case: one command for the writer
    hub.service.writer      the one writer: a group of commands, one transaction, one COMMIT
    hub.core.ingest         the decision: accepted, duplicate or conflict, a pure function
    hub.store.writing       rows, in SQL that lies beside it in .sql files

and after the COMMIT the answer goes back, and watchers (``hub.service.watch``) wake. A lease and a commit
to the journal come the same way: ``rpc.lease_service``, ``service.leases``, ``core.lease``;
``rpc.journal_service``, ``service.journal``, ``core.journal``.

Where things are:

- ``core``: decisions, pure functions on values. Every error that the hub can tell is in
  ``core.errors``, every bound in ``core.limits``;
- ``store``: what is durable;
- ``service``: use cases, each a load, a decision and one transaction;
- ``rpc``: the gRPC edge; ``rpc.error_table`` says how an error looks on the wire;
- ``http``: health and metrics; ``telemetry``: traces, where they are asked for;
- ``cli``: the command line ``synchub``;
- ``config``: settings; ``app``: starts all of this and stops it, put together in ``assembly``.

ARCHITECTURE.md says why it is so; ``protos/synchub/v1`` is the contract with the outside.
"""
