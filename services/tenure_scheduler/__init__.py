"""The brain: one elected leader a pool plans, commits and enacts. README.md beside this file."""
