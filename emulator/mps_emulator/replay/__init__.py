"""Recordings of what a program asks of the device, done again elsewhere.

mps_emulator.record() makes a recording; README.md says what is in it.

    python -m mps_emulator.replay check RECORDING
    python -m mps_emulator.replay prepare RECORDING FOLDER
    python FOLDER/replay.py           # on a machine with an NVIDIA GPU
"""
