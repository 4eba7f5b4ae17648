"""The one driver of the pipeline: hosts, their two ports (post and executor), and a run with all servers in one process."""
