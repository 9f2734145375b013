"""Deployment of overlays, as PADRES' PANDA does it: processes on many machines from one file.

`topology.py` reads the file, `machine.py` defines what a machine can do, `ssh.py` does it on remote
machines, `deployment.py` runs the phases and checks the overlay, `commands.py` parses the commands.
"""
