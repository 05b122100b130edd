"""The entry point: the script tools/bin/k2mps runs `python -m k2mps`."""

import signal

if __name__ == "__main__":
    # Until `interrupts.install`, Ctrl-C ends the process; Python would print a traceback.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from k2mps.cli import ending

    ending.run()
