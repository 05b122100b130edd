"""`make mac-report`: one run that tells everything about k2 on this machine.

``python -m k2_mps_tests.report`` needs only Python 3.10 and its standard library, because it also
reports about a machine where torch and k2 cannot be installed or built.

  record.py      the record: JSON lines, only appended to
  tasks.py       the commands that a report runs, in order
  running.py     runs a command in a process group of its own, with a time limit
  series.py      runs the items of a command, and survives each of them
  names.py       replaces the names of users, hosts and folders
  pages.py       the text and the page that are made from the record
  archive.py     the archive with the record, the pages, all logs and the crash reports

The other modules are programs that a report runs: facts, xcrun, compiler, library, kernels, times
and questions.  Each of them is also a command that a person can run.
"""
