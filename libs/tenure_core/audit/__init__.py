"""The pure rules of the audit trail: what an entry says, and how entries are chained."""
