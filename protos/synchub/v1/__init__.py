"""Version 1 of the wire contract: generated code, written by ``scripts/gen_protos.py``."""
