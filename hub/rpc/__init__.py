"""The wire edge: what comes in as protobuf is checked, handed to a service, and answered.

Handlers have a few lines each. Beside them lie the codecs (``codec_*``: the only place where values
become messages and back), the field checks (``requests``), identity, the error table, the ways in which
streams end, and the server itself. Nothing here decides anything or knows the store.
"""
