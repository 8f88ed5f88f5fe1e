"""What ``hub.app`` puts a hub together from: parts, services, whom it lets in, what it knows of itself.

Part of the composition root: these modules may know all layers, and no layer knows them.
"""
