"""What belongs to the operating system: files and their limits, HTTP, memory, shipped resources, a cluster."""
