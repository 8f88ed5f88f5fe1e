"""The durable local log: what programs append stays here until a hub has it, and longer.

- ``contract.py``: what the log promises; the rest of the agent knows only this;
- ``sqlite_log.py``: the log on SQLite; ``schema.py``: its migrations; ``sql/``: its statements;
- ``process_lease.py``: one process a data folder;
- ``log_thread.py``: the thread that owns the log and commits in groups.
"""
