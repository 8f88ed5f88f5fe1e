"""Durability: one SQL store over named statements, an engine a folder.

- ``contract``: what services may rely on;
- ``writing``, ``reading``: the store's Python, written once for every engine;
- ``session``: what an engine must give, ``sql_files``: the loader of the named ``.sql`` files;
- ``committed_cache``: caches that move only after COMMIT;
- ``sqlite/``: the embedded engine (apsw), its statements and migrations.
"""
