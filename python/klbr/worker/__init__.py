"""The worker process: `python3 -m klbr.worker`."""
