"""The deployer of overlays, after PADRES' PANDA: processes on many machines from one file.

`topology.py` reads the file, `places.py` says what a machine can do, `local.py` and `ssh.py` do it,
`deployment.py` goes through the phases, `watching.py` sees that the overlay is there, `commands.py`
is what one can type.
"""
