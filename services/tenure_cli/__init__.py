"""The command line of Tenure: a client like any other, and the way to run it on one machine."""
