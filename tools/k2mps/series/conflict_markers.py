"""The lines that git writes into a file around a conflict."""

import re

# A line of equal signs does not count, because it may underline a title.  After a marker, git
# writes a blank and the name of a side, if the side has a name.
MARKER = re.compile(rb"^(<{7}|>{7}|\|{7})(?: .*)?$", re.MULTILINE)
# The same in a line that a diff adds.
ADDED = re.compile(rb"^\+(?:<{7}|>{7}|\|{7})(?: .*)?$", re.MULTILINE)
BEGIN, END = b"<" * 7, b">" * 7
