"""Everything of the agent that talks to a hub, and the Python client for programs without an agent.

For programs: ``client.py`` (blocking) and ``async_client.py``; ``stored_values.py`` is what they answer,
``errors.py`` what they raise.

Their leases: ``lease.py`` and ``async_lease.py``; on top of them ``turn_lease.py``, ``process_lease.py``
and ``maintenance.py``, on resources named by ``lease_names.py``. What they have in common: ``held.py`` is
what each shows; ``lease_core.py`` with ``lease_kinds.py`` and ``lease_pair.py`` says what to send, as steps
that ``lease_steps.py`` does blocking or awaiting, on the connection of ``lease_channel.py``;
``lease_keeper.py`` is the thread that renews, by the rules of ``core/lease.py``. ``lease_methods.py`` and
``async_lease_methods.py`` are the clients' calls, ``lease_maker.py`` puts a lease together.

The journal: ``journal_values.py`` is what is given and got, ``journal_codec.py`` the same as messages;
``journal_calls.py`` are its calls as such steps, on a connection of their own, ``journal_methods.py`` and
``async_journal_methods.py`` the clients' calls. ``journal_watch.py`` goes on over reconnects. ``outbox.py``
and ``async_outbox.py`` deliver messages (``outgoing.py`` is one of them), by what ``outbox_core.py`` decides.

For the agent: ``link.py`` connects again and again and runs one ``push_session.py`` after the other,
which reconciles (``reconcile_queue.py``, ``reconciler.py``) and then pushes what ``core/push.py`` says;
``presence.py`` sends heartbeats on a connection of its own; ``hub_calls.py`` is all of gRPC that they
need; ``codec.py`` is where values become messages. Where a credential is refused, ``refusal_words.py``
says so in ``status``, and ``credential_wait.py`` waits until it is replaced.
"""
