"""What a process tells about itself: logs, traces and metrics."""
