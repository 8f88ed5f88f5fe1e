"""The wire contract that the hub and every runtime share.

- ``synchub.v1``: the ``.proto`` files, and the code generated from them beside them;
- ``synchub.contract``: what both sides must compute alike (hashes, identifier rules, wire bounds);
- ``synchub.channel``: what every client of the wire needs (dialling, decoding of errors).
"""
