#!/usr/bin/env python3
"""Lists text lines that are longer than 100 columns, and exits with 1 if there are any.

    scripts/check-columns.py [--repository DIRECTORY] [FILE...]

Without files it reads every file that git tracks. A tab reaches to the next multiple of 4 in Go and
of 8 elsewhere; a wide character counts as one column. Not checked:

- lines with a word of more than 80 columns, such as a URL: it cannot be wrapped;
- Markdown: table rows, and fenced blocks of terminal output (```text, or no language);
- generated files and data: lock files, go.sum, JSON, CSV, SVG, sanitizer suppressions, licences,
  and everything in directories named testdata, corpus, vendor or proptest-regressions;
- binary files.

It does not reflow anything.
"""

import argparse
import os
import re
import subprocess
import sys

LIMIT = 100
LONG_WORD = 80
SKIPPED_NAMES = {"Cargo.lock", "go.sum", "go.work.sum", "LICENSE-APACHE", "LICENSE-MIT"}
SKIPPED_ENDINGS = (".json", ".csv", ".svg", ".supp", ".symbols", ".proptest-regressions")
SKIPPED_DIRECTORIES = {"testdata", "corpus", "vendor", "proptest-regressions"}


def is_skipped(path):
    *directories, name = path.split("/")
    return (name in SKIPPED_NAMES or name.endswith(SKIPPED_ENDINGS)
            or not SKIPPED_DIRECTORIES.isdisjoint(directories))


def columns(line, tab):
    return len(line.expandtabs(tab))


def long_lines(path, text):
    """Yields (line number, columns) of the lines that are too long."""
    tab = 4 if path.endswith((".go", "go.mod", "go.work")) else 8
    markdown = path.endswith(".md")
    fence = None  # the marker of the fenced block this line is in
    verbatim = False  # whether that block is terminal output
    for number, line in enumerate(text.splitlines(), 1):
        if markdown:
            opening = re.match(r"\s*(`{3,}|~{3,})\s*([\w+-]*)", line)
            if opening and fence is None:
                fence, verbatim = opening[1], opening[2] in ("", "text", "console")
            elif fence and line.strip().startswith(fence):
                fence, verbatim = None, False
        # Most lines are short, also when every byte were a tab's width.
        if len(line) * tab <= LIMIT or (width := columns(line, tab)) <= LIMIT:
            continue
        is_table = markdown and fence is None and line.lstrip().startswith("|")
        has_long_word = max(map(len, line.split()), default=0) > LONG_WORD
        if not (verbatim or is_table or has_long_word):
            yield number, width


def tracked(repository):
    # git refuses to read a checkout that belongs to another user.
    git = ["git", "-c", "safe.directory=*", "-C", repository]
    try:
        listed = subprocess.run([*git, "ls-files", "-z"], check=True, stdout=subprocess.PIPE).stdout
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        sys.exit(f"{error}: name the files if this is not a git checkout")
    return [os.fsdecode(name) for name in listed.split(b"\0") if name]


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--repository", default=os.path.join(os.path.dirname(__file__), ".."))
    options.add_argument("files", nargs="*")
    options = options.parse_args()
    found = 0
    for path in options.files or tracked(options.repository):
        full = os.path.join(options.repository, path)
        if is_skipped(path) or os.path.islink(full) or not os.path.isfile(full):
            continue
        with open(full, "rb") as file:
            data = file.read()
        if b"\0" in data:
            continue
        for number, width in long_lines(path, data.decode("utf-8", "replace")):
            print(f"{path}:{number}: {width} columns")
            found += 1
    if found:
        sys.exit(f"{found} lines are longer than {LIMIT} columns; wrap them")


if __name__ == "__main__":
    main()
