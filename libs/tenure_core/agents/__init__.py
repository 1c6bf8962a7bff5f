"""The pure rules of an agent's life: its states, when it counts as lost, what it may send."""
