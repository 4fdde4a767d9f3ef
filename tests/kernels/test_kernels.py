#!/usr/bin/env python3
"""Tests of the harness itself, without a guest: what must count as a failure does."""

import concurrent.futures
import contextlib
import io
import json
import pathlib
import struct
import subprocess
import tempfile
import threading
import time
import unittest
import unittest.mock

import guest
import initramfs
import packages
import programs
import report
import results
import suites
import survey
from results import Expected, Machine

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
ROOT_ONLY = [Expected("core", "only root may", "the suite runs as a user", "5.19", "6.6")]


def judge(kind: str, status: int | None, output: str, version: str = "6.1.192-2",
          suite: str = "core"):
    """The outcome of a program."""
    return results.judge("program", kind, status, output, 1.0, Machine(version, "amd64"), suite,
                         ROOT_ONLY)


class Results(unittest.TestCase):
    """What a program's output and exit status mean."""

    def test_a_program_that_passes(self):
        outcome = judge("libtest", 0, PASSED)
        self.assertTrue(outcome.ok)
        self.assertEqual(outcome.passed, 2)
        self.assertEqual(outcome.skips, [results.Skip("b::c", "only root may mount")])

    def test_an_unexpected_skip(self):
        self.assertTrue(judge("libtest", 0, PASSED, "5.19").ok)
        self.assertTrue(judge("libtest", 0, PASSED, "6.5.99-1").ok)
        self.assertFalse(judge("libtest", 0, PASSED, "6.6.1-1").ok)
        self.assertFalse(judge("libtest", 0, PASSED, "6.12.118-1").ok)
        self.assertFalse(judge("libtest", 0, PASSED, "5.10.262-1").ok)
        self.assertFalse(judge("libtest", 0, PASSED, suite="core-user").ok)
        twice = PASSED.replace("skipped: only root may mount", "skipped: no disk /dev/shm/.tmpa1\n"
                               "skipped: no disk /dev/shm/.tmpb2")
        self.assertEqual(judge("libtest", 0, twice).skips,
                         [results.Skip("b::c", "no disk /dev/shm/.tmp")])
        ignored = PASSED.replace("test a ... ok", "test a ... ignored, takes an hour")
        self.assertEqual(judge("libtest", 0, ignored).unexpected,
                         [results.Skip("a", "ignored: takes an hour")])
        self.assertFalse(judge("libtest", 0, PASSED.replace("only root", "nobody")).ok)

    def test_a_failed_test(self):
        self.assertEqual(judge("libtest", 101, FAILED).failed, ["b"])
        # A status of 0 does not hide it.
        self.assertEqual(judge("libtest", 0, FAILED).failed, ["b"])

    def test_a_program_that_prints_nothing(self):
        for kind in results.READERS:
            self.assertFalse(judge(kind, 0, "").ok, kind)
        self.assertEqual(judge("libtest", 0, "").failed, ["no test ran"])

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
        # A passing test may leave a part out, and a skip without a reason is none that is right.
        part = "=== RUN   TestA\n    a_test.go:7: skipped: no fallocate\n--- PASS: TestA (0.01s)\n"
        self.assertEqual(judge("go", 0, part).unexpected,
                         [results.Skip("TestA", "no fallocate")])
        bare = "=== RUN   TestA\n--- SKIP: TestA (0.00s)\n--- PASS: TestB (0.01s)\n"
        self.assertEqual(judge("go", 0, bare).unexpected,
                         [results.Skip("TestA", "it gives no reason")])
        self.assertEqual(judge("go", 1, "--- FAIL: TestC (1s)\nFAIL\n").failed, ["TestC"])

    def test_c(self):
        outcome = judge("c", 0, "skipped: only root may mount\nfork.c (plain): passed\n")
        self.assertEqual((outcome.ok, outcome.skips),
                         (True, [results.Skip("fork.c", "only root may mount")]))
        failed = judge("c", 1, "fork.c:9: x is 1\nfork.c (plain): FAILED with exit code 1, in /x\n")
        self.assertEqual(failed.failed, ["fork.c"])
        # A test that is not run in this mode says so, and counts as no test.
        self.assertFalse(judge("c", 0, "tests/fork.c: not run in mode plain, because\n").ok)


    def test_a_probe(self):
        def report(uring, threads=True):
            return json.dumps({"backends": {
                "uring": uring, "threads": {"available": threads}}})

        self.assertTrue(judge("probe", 0, report({"available": True})).ok)
        refused = {"available": False, "errno": 1, "meaning": "a filter", "fix": "allow it"}
        self.assertTrue(judge("probe", 0, report(refused)).ok)
        silent = {"available": True, "flags": {"SQPOLL": {**refused, "fix": ""}}}
        self.assertEqual(judge("probe", 0, report(silent)).failed,
                         ["uring flags SQPOLL is refused without an explanation"])
        self.assertFalse(judge("probe", 0, report(refused, threads=False)).ok)
        self.assertFalse(judge("probe", 0, "backend uring").ok)

    def test_a_bench(self):
        def report(error, operations, not_run=()):
            return json.dumps({"jobs": [{"jobname": "a", "error": error,
                                         "ringway": {"ops": operations}}],
                               "ringway": {"not_run": list(not_run)}})

        self.assertEqual(judge("bench", 0, report(0, 5)).passed, 1)
        self.assertFalse(judge("bench", 0, report(5, 5)).ok)
        self.assertFalse(judge("bench", 0, report(0, 0)).ok)
        self.assertFalse(judge("bench", 4, report(0, 5)).ok)
        refused = [{"jobname": "b", "notes": ["no io_uring"]}]
        self.assertEqual(judge("bench", 0, report(0, 5, refused)).unexpected,
                         [results.Skip("b", "no io_uring")])


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

    def kernel(self, suites, wanted=("core", "c"), probe=None):
        """The result of a kernel."""
        return report.KernelResult("bookworm-amd64", "6.1.1-1", "6.1", suites, list(wanted),
                                   probe or {})

    def test_titles(self):
        kernel = self.kernel({})
        self.assertEqual(kernel.title, "bookworm-amd64 6.1.1-1")
        kernel.name = "bookworm-amd64-6.1.0-25-amd64_6.1.1-1"
        self.assertEqual(kernel.title, kernel.name)

    def test_a_suite_that_is_missing(self):
        good = [results.Outcome("program", 3)]
        self.assertTrue(report.all_passed([self.kernel({"core": good, "c": good})]))
        self.assertFalse(report.all_passed([self.kernel({"core": good})]))
        self.assertFalse(report.all_passed([self.kernel({"core": good, "c": []})]))
        bad = [results.Outcome("program", 3, failed=["a"])]
        self.assertFalse(report.all_passed([self.kernel({"core": good, "c": bad})]))
        self.assertFalse(report.all_passed([]))
        self.assertFalse(report.all_passed([self.kernel({}, ())]))

    def test_the_table(self):
        bad = [results.Outcome("p", 3, failed=["a"]), results.Outcome("q", 3)]
        text = report.table([self.kernel({"core": bad})], {"core": "Rust core", "c": "C"})
        self.assertIn("| Rust core | FAILED (1 of 2 programs) |", text)
        self.assertIn("| C | not run |", text)

    def test_what_is_available(self):
        probe = {"backends": {
            "uring": {"available": True, "flags": {
                "SQPOLL": {"available": False, "errno_name": "EPERM"}}},
            "threads": {"available": True}}}
        text = report.available([self.kernel({}, probe=probe), self.kernel({})])
        self.assertIn("| io_uring | yes | not run | kaio |", text)
        self.assertIn("| `SQPOLL` | no (EPERM) | not run | `io_uring_enter` |", text)
        self.assertIn("| `IOPOLL` | not probed | not run |", text)

    def test_a_device_that_is_missing(self):
        kernel = self.kernel({}, probe={"backends": {}})
        report.add_probe(kernel, "device", {"path": None})
        self.assertIn("| NVMe passthrough | no (no device) |", report.available([kernel]))
        report.add_probe(kernel, "device", {"path": {"passthrough_read": {"available": True}}})
        report.add_probe(kernel, "machine", {"path": {"io_poll_read": {"available": True}}})
        text = report.available([kernel])
        self.assertIn("| NVMe passthrough | yes |", text)
        self.assertIn("| polled direct read, NVMe | yes |", text)

    def test_the_page(self):
        with tempfile.TemporaryDirectory() as directory:
            page, found = pathlib.Path(directory) / "page.md", pathlib.Path(directory) / "found"
            page.write_text(f"a\n{report.BEGIN}\nold\n{report.END}\nz\n")
            skip = results.Skip("a", "no disk")
            good = self.kernel({"core": [results.Outcome("program", 3, skips=[skip])]},
                               probe={"backends": {"uring": {"available": True}}})
            report.merge(found, good, "core")
            # A run of another suite keeps the results of the first one, and its probe.
            again = self.kernel({"c": [results.Outcome("program", 5, unexpected=[skip])]})
            report.merge(found, again, "c")
            report.write(page, found, ["bookworm", "trixie-arm64"],
                         {"core": "Rust core", "c": "C", "go": "Go"})
            text = page.read_text()
            self.assertIn("| Rust core | 3 passed, 1 skipped | not run |", text)
            self.assertIn("| C | FAILED (1 of 1 programs) | not run |", text)
            self.assertIn("| Go | not run | not run |", text)
            self.assertIn("| io_uring | yes | not run |", text)
            self.assertNotIn("old", text)
            self.assertTrue(text.startswith("a\n") and text.endswith("\nz\n"))
            # Those of another version are not this kernel's.
            again.version = "6.1.2-1"
            report.merge(found, again, "c")
            self.assertEqual(list(json.loads(found.read_text())["kernels"]["bookworm-amd64"]
                                  ["suites"]), ["c"])


class Survey(unittest.TestCase):
    """What a guest observes of file systems."""

    def test_what_was_printed(self):
        output = ("---- they_do stdout ----\nskipped: f2fs: this kernel has no f2fs\n"
                  'observed: {"rows": [1]}\nobserved: {"rows": [1, 2]}\n\n---- other stdout ----')
        self.assertEqual(survey.observed(output), '{"rows": [1, 2]}')
        self.assertIsNone(survey.observed("test result: ok."))

    def test_what_may_be_missing(self):
        def allowed(reason, version):
            skip = results.Skip("they_do", reason)
            return any(entry.allows(skip, Machine(version, "amd64"), "survey")
                       for entry in suites.EXPECTED_SKIPS)

        self.assertTrue(allowed("f2fs: this kernel has no f2fs", "6.1.2-1"))
        self.assertFalse(allowed("f2fs: mkfs.f2fs: No such file or directory", "6.1.2-1"))
        self.assertFalse(allowed("nothing is recorded for Linux 6.1", "6.1.2-1"))
        rings = "no io_uring that tells who served a request: Invalid argument"
        self.assertTrue(allowed(rings, "5.10.262-1"))
        self.assertFalse(allowed(rings, "6.1.2-1"))


class FileSystems(unittest.TestCase):
    """The file systems of guests."""

    def places(self, tool, server, wanted=""):
        with unittest.mock.patch.multiple(guest, virtiofsd=lambda: server), \
             unittest.mock.patch.multiple(initramfs, find_tool=lambda _: tool), \
             unittest.mock.patch.dict("os.environ", RINGWAY_PLACE=wanted), \
             contextlib.redirect_stdout(io.StringIO()) as printed:
            return [place for place, _ in suites.chosen_places()], printed.getvalue()

    def test_what_has_no_server_is_left_out(self):
        places, printed = self.places(pathlib.Path("/exportfs"), "/virtiofsd")
        self.assertEqual((places[:-1], printed), (suites.PLACES, ""))
        places, printed = self.places(None, None)
        self.assertEqual(places[:-1],
                         [name for name in suites.PLACES if name not in ("NFS", "virtiofs")])
        self.assertIn("left out: NFS", printed)
        self.assertIn("left out: virtiofs", printed)

    def test_only_the_programs_that_run_are_built(self):
        commands = []

        def cargo(command, **_):
            commands.append(command)
            names = [command[at + 1] for at, word in enumerate(command) if word == "--test"]
            crates = {name.split("/")[1]: name.split("/")[0] for name in (
                *suites.NESTED, *(name for name, _ in suites.ON_FILE_SYSTEMS + suites.READ_ONLY))}
            built = [("test", name, f"/crates/{crates[name]}/Cargo.toml") for name in names]
            if "--bins" in command:
                built = [("bin", "hostile-fs", "/crates/ringway-hostile/Cargo.toml")]
            return subprocess.CompletedProcess(command, 0, "\n".join(json.dumps({
                "executable": f"/deps/{name}", "target": {"name": name, "kind": [kind]},
                "profile": {"test": kind == "test"}, "manifest_path": manifest})
                for kind, name, manifest in built))

        with unittest.mock.patch("subprocess.run", cargo), \
             unittest.mock.patch.dict("os.environ", RINGWAY_PLACE="f2fs"):
            suite = suites.file_systems_suite("amd64")
        self.assertEqual(sorted(word for word in commands[0] if "_" in word), [
            "other_file_systems", "read_only_file_systems"])
        self.assertIn(pathlib.Path("/deps/guarantees"), suite.files)
        self.assertEqual(len(suite.programs), 3)

    def test_what_is_wanted(self):
        places, _ = self.places(None, None, "9p, cached")
        self.assertEqual(places, ["9p, cached"])
        # Those that are only read are selected, too, and whoever finds none says so.
        with unittest.mock.patch.dict("os.environ", RINGWAY_PLACE="erofs, lz4"):
            [(place, tests)] = suites.chosen_places()
        self.assertEqual((place, tests), ("erofs, lz4",
                                          [*suites.ON_FILE_SYSTEMS, *suites.READ_ONLY]))
        self.assertTrue(self.allowed("no file system to write to is selected"))
        self.assertTrue(self.allowed("no file system that is only read is selected"))

    def allowed(self, reason, suite="file-systems", version="6.12.1-1"):
        """Whether something may be left out in a guest for a reason."""
        outcome = results.judge("program", "libtest", 0, f"test a ... ok\nskipped: {reason}\n"
                                "test result: ok. 1 passed; 0 failed", 1.0,
                                Machine(version, "amd64"), suite, suites.EXPECTED_SKIPS)
        self.assertEqual([skip.reason for skip in outcome.skips], [reason])
        return outcome.ok

    def test_a_server_that_fails_is_no_reason(self):
        self.assertTrue(self.allowed("virtiofs: no virtiofsd serves this guest"))
        self.assertFalse(self.allowed("virtiofs: mount: wrong fs type"))
        self.assertTrue(self.allowed("NFS 4.2: exportfs: No such file or directory (os error 2)"))
        self.assertFalse(self.allowed("NFS 4.2: exportfs: it does not support NFS export"))

    def test_skips_of_nested_programs_are_judged(self):
        self.assertFalse(self.allowed("f2fs: conformance: paths::link: no such thing"))
        self.assertTrue(self.allowed("f2fs: streams: drops::child_drops_a_writer: ignored: runs in "
                                     "the child process of the next test"))

    def test_faults_that_do_not_reach_threads(self):
        for what in ("buffered writes, which threads make", "sync_file_range(2)",
                     "direct writes on ext4, which threads make"):
            reason = f"kaio: injected faults do not reach {what}"
            self.assertTrue(self.allowed(reason, "engine"), reason)
            self.assertTrue(self.allowed(f"f2fs: guarantees: log::a: {reason}"), reason)
            self.assertFalse(self.allowed(reason, "core"), reason)

    def test_what_kernels_and_file_systems_lack(self):
        untorn = "a kernel before 6.16 has no untorn writes on XFS"
        uncached = "the disk's file system has no RWF_DONTCACHE: only root may mount"
        for suite, place in (("conformance", ""), ("file-systems", "ext4 on dm-crypt: a: ")):
            self.assertTrue(self.allowed(f"{place}{untorn}", suite))
            self.assertFalse(self.allowed(f"{place}{untorn}", suite, "7.2.13-1"))
            self.assertTrue(self.allowed(f"{place}{uncached}", suite))
            self.assertFalse(self.allowed(f"{place}{uncached}", suite, "7.2.13-1"))
        self.assertTrue(self.allowed(f"f2fs on dm-linear: a: {uncached}", version="7.2.13-1"))

    def test_a_skip_after_the_name_of_its_test(self):
        output = ("test a ... skipped: no such thing\nok\n"
                  "test result: ok. 1 passed; 0 failed; 0 ignored")
        self.assertEqual(judge("libtest", 0, output).unexpected,
                         [results.Skip("a", "no such thing")])

    def shared(self, servers, user=0):
        """QEMU's options for virtiofs."""
        with tempfile.TemporaryDirectory() as directory, \
             unittest.mock.patch.multiple(guest, VIRTIOFSD=servers), \
             unittest.mock.patch("os.geteuid", lambda: user), \
             guest.virtiofs(pathlib.Path(directory), 1024) as options:
            return options

    def test_a_directory_is_shared_only_if_there_is_a_server(self):
        self.assertEqual(self.shared([]), [])
        self.assertEqual(self.shared(["/no/such/program"]), [])
        self.assertEqual(self.shared(["/bin/false"], user=1000), [])

    def test_a_server_that_does_not_start_is_an_error(self):
        with tempfile.TemporaryDirectory() as directory:
            server = pathlib.Path(directory) / "server"
            server.write_text("#!/bin/sh\necho no such sandbox >&2\nexit 1\n")
            server.chmod(0o755)
            with self.assertRaisesRegex(guest.ServerError, "does not start: no such sandbox"):
                self.shared([str(server)])

    def test_a_server_leaves_no_file(self):
        with tempfile.TemporaryDirectory() as directory:
            state, server = pathlib.Path(directory), pathlib.Path(directory) / "server"
            # As QEMU's: a file with its number, named after the socket.
            server.write_text(
                "#!/bin/sh\nsocket=${1#--socket-path=}\n"
                f"touch \"{state}/$(echo $socket | tr / .).pid\" $socket\nexec sleep 1000\n")
            server.chmod(0o755)
            with unittest.mock.patch.multiple(guest, VIRTIOFSD_STATE=state):
                self.assertIn("vhost-user-fs-pci,chardev=virtiofs,tag=ringway-virtiofs",
                              self.shared([str(server)]))
            self.assertEqual(list(state.iterdir()), [server])


class Guests(unittest.TestCase):
    """Guests that are a program of this machine."""

    def test_a_stopped_guest_leaves_nothing(self):
        with tempfile.TemporaryDirectory() as directory:
            cache = pathlib.Path(directory)
            kernel = packages.Kernel(packages.Wanted("sid", "amd64"), "1.0", cache, [], cache)

            def new_guest() -> guest.Guest:
                return guest.Guest(kernel, initramfs.Archive("amd64"),
                                   [guest.Command("one", "true")])

            def program(_kernel, _archive, _scratch, mark, *_) -> list[str]:
                return ["sh", "-c", f"echo '@{mark} begin 0'; exec sleep 1000"]

            with unittest.mock.patch.multiple(guest, CACHE=cache, STOPPED=threading.Event(),
                                              qemu=program), \
                 concurrent.futures.ThreadPoolExecutor() as pool:
                one = new_guest()
                ended = pool.submit(lambda: list(one.run()))
                while one.parser.name is None and not ended.done():
                    time.sleep(0.01)
                self.assertEqual(len(list(cache.glob("guest-*"))), 1)
                guest.stop()
                self.assertEqual(ended.result(timeout=60), [])
                self.assertEqual(list(cache.iterdir()), [])
                # One that would start after that does not.
                later = new_guest()
                self.assertEqual(list(later.run()), [])
                self.assertIsNone(later.parser.name)
                self.assertEqual(list(cache.iterdir()), [])


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

    def test_names_of_kernels(self):
        wanted = packages.Wanted.parse
        self.assertEqual(wanted("bookworm"), packages.Wanted("bookworm", "amd64"))
        self.assertEqual(wanted("trixie-arm64"), packages.Wanted("trixie", "arm64"))
        self.assertEqual(wanted("bookworm-backports"), packages.Wanted("bookworm-backports"))
        self.assertEqual(wanted("bookworm-backports-arm64:linux-image-6.12.9+bpo-arm64"),
                         packages.Wanted("bookworm-backports", "arm64",
                                         "linux-image-6.12.9+bpo-arm64"))
        with tempfile.TemporaryDirectory(dir="/tmp") as directory:
            package = pathlib.Path(directory) / "linux-image-6.1.deb"
            self.assertRaises(packages.FetchError, wanted, f"sid:{package}")
            package.touch()
            self.assertEqual(wanted(f"sid:{package}").name, "sid-amd64-linux-image-6.1")
        names = {packages.Wanted("sid", "amd64", f"/a/linux-image-{name}").name
                 for name in ("6.1.0-25-amd64_6.1.106-3_amd64.deb",
                              "6.1.0-25-cloud-amd64_6.1.106-3_amd64.deb",
                              "unsigned-5.15.0-204-generic_5.15.0-204.214_amd64.deb,/a/b.deb")}
        self.assertEqual(names, {"sid-amd64-6.1.0-25-amd64_6.1.106-3",
                                 "sid-amd64-6.1.0-25-cloud-amd64_6.1.106-3",
                                 "sid-amd64-5.15.0-204-generic_5.15.0-204.214"})
        for text in ("", "6.1", "sid:a b", ":x", f"sid:{package}", "sid:", "sid-riscv64",
                     "/tmp/x.deb", "sid:/etc/passwd", f"sid:{__file__},b"):
            with self.assertRaises(packages.FetchError):
                wanted(text)

    def test_modules_of_an_image(self):
        with tempfile.TemporaryDirectory() as directory:
            tree = pathlib.Path(directory) / "modules"
            image = tree / "boot/vmlinuz-5.15.0-1"
            place = tree / "lib/modules/5.15.0-1"
            place.mkdir(parents=True)
            modules = [place / "virtio_blk.ko", place / "nvme.ko"]
            with self.assertRaisesRegex(packages.FetchError, "no virtio_blk nvme ext4"):
                packages.check_modules(tree, image, [])
            packages.check_modules(tree, image, modules)
            builtin = place / "modules.builtin"
            builtin.write_text("kernel/fs/xfs/xfs.ko\n")
            with self.assertRaisesRegex(packages.FetchError, "no ext4"):
                packages.check_modules(tree, image, modules)
            builtin.write_text("kernel/fs/ext4/ext4.ko\n")
            packages.check_modules(tree, image, modules)
            with self.assertRaisesRegex(packages.FetchError, "the modules are 6.8"):
                packages.check_modules(tree, image, [tree / "lib/modules/6.8/nvme.ko"])

    def test_packages_of_a_kernel(self):
        class Records:
            """An archive with a few packages."""
            known = {"linux-image-cloud-amd64": "linux-image-7.2-cloud-amd64 (= 7.2-1)",
                     "linux-image-7.2-cloud-amd64": "kmod, linux-binary-7.2, linux-modules-7.2",
                     "linux-binary-7.2": "", "linux-modules-7.2": ""}

            def record(self, name):
                """The record of a package."""
                return {"Depends": self.known[name]}

        files = {"linux-image-7.2-cloud-amd64", "linux-binary-7.2", "linux-modules-7.2"}
        for name in ("linux-image-cloud-amd64", "linux-image-7.2-cloud-amd64"):
            self.assertEqual(set(packages.kernel_packages(Records(), name)), files)

    def test_modules_after_what_they_need(self):
        with tempfile.TemporaryDirectory() as directory:
            root = pathlib.Path(directory)
            (root / "a-b.ko").write_bytes(b"\0depends=c,d\0")
            (root / "c.ko").write_bytes(b"x\0depends=d\0")
            (root / "d.ko").write_bytes(b"x\0depends=\0")
            (root / "e.ko").write_bytes(b"x\0depends=\0")
            order = packages.load_order(sorted(root.glob("*.ko")), ["a_b", "missing", "d"])
            self.assertEqual([file.name for file in order], ["d.ko", "c.ko", "a-b.ko"])
            kernel = packages.Kernel(packages.Wanted("sid"), "1.0", root, [root / "d.ko"], root)
            more = kernel.more_modules(["a_b", "e"])
            self.assertEqual([file.name for file in more], ["c.ko", "a-b.ko", "e.ko"])
            archive = initramfs.Archive("amd64")
            initramfs.add_modules(archive, kernel.modules)
            initramfs.add_modules(archive, more, len(kernel.modules))
            loaded = sorted(path for path in archive.entries if path.startswith("/modules/"))
            self.assertEqual(loaded, ["/modules/000-d", "/modules/001-c", "/modules/002-a_b",
                                      "/modules/003-e"])


if __name__ == "__main__":
    unittest.main()
