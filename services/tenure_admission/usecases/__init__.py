"""What admission does, over ports: create, read, change, wait, explain, and record for leaders."""
