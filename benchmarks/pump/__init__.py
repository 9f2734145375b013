"""The pump beside Sarracenia's own programs, sr3 and v2: files a second, latency, CPU a file."""
