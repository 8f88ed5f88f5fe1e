"""The service on the agent's Unix socket, for programs on the same machine.

- ``service.py``: the methods; ``codec.py``: between messages and values;
- ``error_table.py``: every error of the tree as a status, and back;
- ``socket_path.py``: where the socket lies and how it is dialled; ``server.py``: listening on it.
"""
