"""Implementations: one file each, see harness/worker.py for what a file gives."""
