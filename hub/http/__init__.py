"""The operator's HTTP port: is the hub alive and ready, and its metrics.

No data of runs passes here; that is gRPC's.
"""
