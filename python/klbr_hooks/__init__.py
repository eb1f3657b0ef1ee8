"""The policy that a new host begins with. A release holds a copy of this folder beside its `manifest.json`."""
