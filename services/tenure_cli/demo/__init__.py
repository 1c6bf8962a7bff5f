"""`tenure demo`: the main job, shown on real processes and verified."""
