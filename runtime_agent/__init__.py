"""The runtime agent: keeps what programs append in a durable local log, and brings it to the hub.

Start here:

- ``core``: decisions and values, without I/O: what to push next, how long to wait, what a hub's
  answer means. ``core/errors.py`` draws the tree of everything that can be refused.
- ``event_log``: the durable local log (SQLite). ``event_log/contract.py`` says what it promises;
  ``event_log/log_thread.py`` is how the rest of the program calls it.
- ``hub_client``: the edge towards the hub, and a Python client for programs without an agent.
- ``local_api``: the service on the Unix socket for programs on this machine.
- ``local_client.py``: the Python API for those programs: ``open_local_log(folder).append(...)``.
- ``agent.py``: puts all of it together; ``cli`` is the command line ``runtime-agent``.

The agent imports nothing of the hub; what they share is the package ``synchub``.
"""

__version__ = "0.1.0"
