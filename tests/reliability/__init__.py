"""Long runs with a counter in a file, so that they can be interrupted and continued.

    PYTHONPATH=.:packages/penstock python -m tests.reliability.kills --results FILE
    PYTHONPATH=.:packages/penstock python -m tests.reliability.power_cuts --results FILE
    PYTHONPATH=.:packages/penstock python -m tests.reliability.fuzzing --results FILE
    PYTHONPATH=.:packages/penstock python -m tests.reliability.overload --results FILE
    PYTHONPATH=.:packages/penstock python -m tests.reliability.soak --results FILE

docs/reliability.md says how many were run. Short versions are part of the tests.
"""
