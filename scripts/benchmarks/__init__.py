"""What ``scripts/bench.py`` measures: one module a command, and what they share.

- ``figures`` is what every command gives back; ``hub_process`` runs the hub that is measured;
- ``ingest`` (beside ``raw_sqlite``), ``leases`` (with ``lease_callers``, beside ``etcd``) and ``journal``
  (beside ``raw_journal``) are commands;
- ``disk`` measures bare syncs, in the same run and the same folder.

Whatever a hub is compared with runs in the same run, in turn with it and on the same disk, and is
said to be missing where it is not installed. Nothing here judges, and nothing is a test.
"""
