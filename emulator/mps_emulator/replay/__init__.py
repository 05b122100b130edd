"""Repeats the recorded work of a program, on the emulated device or on a GPU.

mps_emulator.record() makes a recording.  README.md describes the files of a recording.

    python -m mps_emulator.replay check RECORDING
    python -m mps_emulator.replay prepare RECORDING FOLDER
    python FOLDER/replay.py           # on a machine with an NVIDIA GPU
"""
