"""The policy that a new host begins with: a release has this folder beside its `manifest.json`."""
