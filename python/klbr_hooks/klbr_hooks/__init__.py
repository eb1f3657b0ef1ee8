"""The policy that a new host begins with. The folder around this package is a release as it stands."""
