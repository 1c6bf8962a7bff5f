"""Who may call: what a credential grants, the life of an API key, and how often one may try."""
