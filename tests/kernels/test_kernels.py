#!/usr/bin/env python3
"""Tests of the harness itself, without a guest: what must count as a failure does."""

import pathlib
import struct
import tempfile
import unittest

import guest
import initramfs
import packages
import report
import results
from results import Expected

PASSED = """
running 2 tests
test a ... ok
test b::c ... ok

successes:

---- b::c stdout ----
skipped: only root may mount

test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.10s
"""
FAILED = """
test a ... ok
test b ... FAILED
test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.10s
"""
ROOT_ONLY = [Expected("bookworm|sid", "core", "only root may", "the suite runs as a user")]


def judge(kind: str, status: int | None, output: str, kernel: str = "bookworm"):
    """The outcome of a program of suite core."""
    return results.judge("program", kind, status, output, 1.0, kernel, "core", ROOT_ONLY)


class Results(unittest.TestCase):
    """What a program's output and exit status mean."""

    def test_a_program_that_passes(self):
        outcome = judge("libtest", 0, PASSED)
        self.assertTrue(outcome.ok)
        self.assertEqual(outcome.passed, 2)
        self.assertEqual(outcome.skips, [results.Skip("b::c", "only root may mount")])

    def test_an_unexpected_skip(self):
        self.assertFalse(judge("libtest", 0, PASSED, "trixie").ok)
        self.assertFalse(judge("libtest", 0, PASSED.replace("only root", "nobody")).ok)

    def test_a_failed_test(self):
        self.assertEqual(judge("libtest", 101, FAILED).failed, ["b"])
        # A status of 0 does not hide it.
        self.assertEqual(judge("libtest", 0, FAILED).failed, ["b"])

    def test_a_program_that_prints_nothing(self):
        for kind in results.READERS:
            self.assertEqual(judge(kind, 0, "").failed, ["no test ran"], kind)

    def test_a_program_that_dies(self):
        for kind in results.READERS:
            self.assertFalse(judge(kind, 139, PASSED).ok, kind)
            self.assertFalse(judge(kind, None, PASSED).ok, kind)
            self.assertFalse(judge(kind, 143, PASSED).ok, kind)

    def test_a_program_without_a_result(self):
        self.assertFalse(results.never_ran("program").ok)

    def test_go(self):
        output = ("=== RUN   TestA\n--- PASS: TestA (0.01s)\n=== RUN   TestB\n"
                  "    b_test.go:7: skipped: only root may mount\n--- SKIP: TestB (0.00s)\nPASS\n")
        outcome = judge("go", 0, output)
        self.assertTrue(outcome.ok)
        self.assertEqual((outcome.passed, outcome.skips),
                         (1, [results.Skip("TestB", "only root may mount")]))
        self.assertEqual(judge("go", 1, "--- FAIL: TestC (1s)\nFAIL\n").failed, ["TestC"])

    def test_c(self):
        outcome = judge("c", 0, "skipped: only root may mount\nfork.c (plain): passed\n")
        self.assertEqual((outcome.ok, outcome.skips),
                         (True, [results.Skip("fork.c", "only root may mount")]))
        failed = judge("c", 1, "fork.c:9: x is 1\nfork.c (plain): FAILED with exit code 1, in /x\n")
        self.assertEqual(failed.failed, ["fork.c"])
        # A test that is not run in this mode says so, and counts as no test.
        self.assertFalse(judge("c", 0, "tests/fork.c: not run in mode plain, because\n").ok)


class Channel(unittest.TestCase):
    """What the guest sends."""

    def follow(self, text: str):
        """Gives the lines of a text to a parser, one each second."""
        parser = guest.Parser("m")
        ended = [found for now, line in enumerate(text.splitlines())
                 if (found := parser.line(line, float(now)))]
        return parser, ended

    def test_commands(self):
        parser, ended = self.follow(
            "noise\n@m boot 6.1\n@m begin 000\nhello\n@n end 000 1\n\n@m end 000 0\n@m done")
        self.assertEqual(ended, [guest.Ended("000", 0, "hello\n@n end 000 1", 4.0)])
        self.assertTrue(parser.finished)
        self.assertIsNone(parser.died(9.0))

    def test_a_guest_that_dies(self):
        parser, ended = self.follow("@m boot 6.1\n@m begin 000\nhello")
        self.assertEqual(ended, [])
        self.assertFalse(parser.finished)
        self.assertEqual(parser.died(5.0), guest.Ended("000", None, "hello", 4.0))


class Reports(unittest.TestCase):
    """Which results make the whole run pass."""

    def kernel(self, suites):
        """The result of a kernel."""
        return report.KernelResult("bookworm", "amd64", "6.1.1-1", "6.1", suites)

    def test_a_suite_that_is_missing(self):
        good = [results.Outcome("program", 3)]
        titles = {"core": "Rust core", "c": "C"}
        self.assertTrue(report.all_passed([self.kernel({"core": good, "c": good})], titles))
        self.assertFalse(report.all_passed([self.kernel({"core": good})], titles))
        self.assertFalse(report.all_passed([self.kernel({"core": good, "c": []})], titles))
        bad = [results.Outcome("program", 3, failed=["a"])]
        self.assertFalse(report.all_passed([self.kernel({"core": good, "c": bad})], titles))
        self.assertFalse(report.all_passed([], titles))
        self.assertFalse(report.all_passed([self.kernel({})], {}))

    def test_the_table(self):
        bad = [results.Outcome("p", 3, failed=["a"]), results.Outcome("q", 3)]
        text = report.table([self.kernel({"core": bad})], {"core": "Rust core", "c": "C"})
        self.assertIn("| Rust core | FAILED (1 of 2 programs) |", text)
        self.assertIn("| C | not run |", text)

    def test_the_page(self):
        with tempfile.TemporaryDirectory() as directory:
            page = pathlib.Path(directory) / "page.md"
            page.write_text(f"a\n{report.BEGIN}\nold\n{report.END}\nz\n")
            good = self.kernel({"core": [results.Outcome("program", 3)]})
            known = report.merge(pathlib.Path(directory) / "j", [good], {"core": "Rust core"})
            report.write(page, known)
            text = page.read_text()
            self.assertIn("| Rust core | 3 passed |", text)
            self.assertNotIn("old", text)
            self.assertTrue(text.startswith("a\n") and text.endswith("\nz\n"))


class Images(unittest.TestCase):
    """The initramfs and the modules in it."""

    def test_the_archive(self):
        archive = initramfs.Archive("amd64")
        archive.file("/bin/x", b"12345", 0o755)
        with tempfile.TemporaryDirectory() as directory:
            path = pathlib.Path(directory) / "archive"
            archive.write(path)
            data = path.read_bytes()
        names, at = [], 0
        while at < len(data):
            fields = struct.unpack("6s" + "8s" * 13, data[at:at + 110])
            self.assertEqual(fields[0], b"070701")
            length, name = int(fields[7], 16), int(fields[12], 16)
            names.append((data[at + 110:at + 109 + name].decode(), length))
            at = (at + 110 + name + 3) // 4 * 4
            at = (at + length + 3) // 4 * 4
        self.assertEqual(names, [("bin", 0), ("bin/x", 5), ("TRAILER!!!", 0)])

    def test_modules_after_what_they_need(self):
        with tempfile.TemporaryDirectory() as directory:
            root = pathlib.Path(directory)
            (root / "a-b.ko").write_bytes(b"\0depends=c,d\0")
            (root / "c.ko").write_bytes(b"x\0depends=d\0")
            (root / "d.ko").write_bytes(b"x\0depends=\0")
            (root / "e.ko").write_bytes(b"x\0depends=\0")
            order = packages.load_order(sorted(root.glob("*.ko")), ["a_b", "missing", "d"])
            self.assertEqual([file.name for file in order], ["d.ko", "c.ko", "a-b.ko"])


if __name__ == "__main__":
    unittest.main()
