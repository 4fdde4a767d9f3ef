"""Builds the programs that the guests run: the tests of each binding, optimized with assertions.

They have a target directory of their own. In a guest they have the same paths as here, because
tests find their cases, their examples and each other by the paths that were compiled in.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterable

import guest

ROOT = guest.ROOT
BUILD = guest.CACHE / "build"
# Cargo's name of the target, and the compiler's prefix, if it is not this machine's.
TRIPLES = {"arm64": ("aarch64-unknown-linux-gnu", "aarch64-linux-gnu-")}


def cargo(arch: str) -> dict[str, str]:
    """The environment of cargo for an architecture."""
    environment = {**os.environ, "CARGO_INCREMENTAL": "0"}
    if arch in TRIPLES and arch != guest.initramfs.HOST:
        triple, prefix = TRIPLES[arch]
        environment["CARGO_BUILD_TARGET"] = triple
        environment[f"CARGO_TARGET_{triple.upper().replace('-', '_')}_LINKER"] = f"{prefix}gcc"
    return environment


def scratch(arch: str) -> pathlib.Path:
    """The directory for files of the Rust tests that cargo compiles into them."""
    triple = cargo(arch).get("CARGO_BUILD_TARGET", "")
    return BUILD / triple / "tmp"


def rust(arch: str, tests: list[str], binaries: list[str],
         only: Iterable[str] = ()) -> dict[str, pathlib.Path]:
    """Builds the tests and examples of crates, and the binaries of crates. `only` names the tests
    to build, as `crate/target`, where a suite runs few.

    Returns the tests as `crate/target`, and binaries and examples by their names.
    """
    programs = {}
    targets = [word for name in only for word in ("--test", name.split("/")[1])]
    for command, crates in ((["test", "--no-run", *targets], tests),
                            (["build", "--bins"], binaries)):
        if not crates:
            continue
        result = subprocess.run(
            ["cargo", *command, "--profile", "kernels", "--target-dir", str(BUILD),
             "--all-features", "--message-format", "json-render-diagnostics",
             *(word for crate in crates for word in ("-p", crate))],
            cwd=ROOT, env=cargo(arch), check=True, stdout=subprocess.PIPE, text=True)
        for line in result.stdout.splitlines():
            message = json.loads(line)
            if not message.get("executable"):
                continue
            target = message["target"]
            name = target["name"]
            if message["profile"]["test"]:
                crate = pathlib.Path(message["manifest_path"]).parent.name
                kind = "lib" if "lib" in target["kind"] else name
                name = f"{crate}/{kind}"
            programs[name] = pathlib.Path(message["executable"])
    return programs


def c(arch: str) -> pathlib.Path:
    """Builds the C tests. Returns the directory with them."""
    build = BUILD / f"c-{arch}"
    triple, prefix = TRIPLES.get(arch, ("", "")) if arch != guest.initramfs.HOST else ("", "")
    environment = {
        **cargo(arch), "CARGO_TARGET_DIR": str(BUILD / "c-target"),
        "CARGO_PROFILE_RELEASE_LTO": "off", "CARGO_PROFILE_RELEASE_CODEGEN_UNITS": "16",
        "CARGO_PROFILE_RELEASE_DEBUG": "false", "CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS": "true"}
    if triple:
        environment["CROSS_COMPILE"] = prefix
    crate = ROOT / "crates/ringway-c"
    sources = sorted([*crate.glob("tests/*.c"), *crate.glob("tests/*.cc")])
    if triple:
        sources = [source for source in sources if source.suffix == ".c"]
    targets = [str(build / "tests" / source.name) for source in sources]
    targets += [str(build / "ioqueuemt/tests" / source.name) for source in sources
                if source.name.startswith("ioqueue_") and source.suffix == ".c"]
    subprocess.run(["make", "-C", str(crate), f"BUILD={build}", *targets], env=environment,
                   check=True, stdout=sys.stderr)
    return build


def go(arch: str) -> dict[str, pathlib.Path]:
    """Builds the tests of the Go packages."""
    programs = {}
    for package in ("ring", "ringway"):
        programs[package] = BUILD / f"go-{arch}" / f"{package}.test"
        subprocess.run(
            ["go", "test", "-buildvcs=false", "-c", "-o", programs[package], f"./{package}"],
            cwd=ROOT / "go", env={**os.environ, "GOARCH": arch, "CGO_ENABLED": "0"}, check=True)
    return programs


def ocaml() -> pathlib.Path:
    """Builds the OCaml tests. Returns the directory with them."""
    build = BUILD / "c-target/ocaml"
    environment = {
        **cargo("amd64"), "CARGO_TARGET_DIR": str(BUILD / "c-target"), "DUNE_CACHE": "disabled",
        "CARGO_PROFILE_RELEASE_LTO": "off", "CARGO_PROFILE_RELEASE_CODEGEN_UNITS": "16",
        "CARGO_PROFILE_RELEASE_DEBUG": "false", "CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS": "true"}
    subprocess.run(["make", "-C", str(ROOT / "ocaml"), "check"],
                   env=environment, check=True, stdout=sys.stderr)
    subprocess.run(["dune", "build", "--profile", "dev", "--build-dir", str(build / "dev"),
                    "@all"], cwd=ROOT / "ocaml", env={
                        **environment,
                        "RINGWAY_INCLUDEDIR": str(ROOT / "crates/ringway-c/include"),
                        "RINGWAY_LIBDIR": str(BUILD / "c-target/c/testing"),
                        "RINGWAY_DOCS": str(ROOT / "docs"),
                        "RINGWAY_CONFORMANCE": str(ROOT / "conformance")},
                   check=True, stdout=sys.stderr)
    return build / "dev/default/test"


def refuse(arch: str) -> pathlib.Path:
    """Builds the program that refuses system calls to another one."""
    program = BUILD / f"refuse-{arch}"
    BUILD.mkdir(parents=True, exist_ok=True)
    prefix = TRIPLES[arch][1] if arch in TRIPLES and arch != guest.initramfs.HOST else ""
    subprocess.run([f"{prefix}gcc" if prefix else "cc", "-O1", "-Wall", "-Wextra", "-Werror",
                    "-static", "-o", program, ROOT / "tests/kernels/refuse.c"], check=True)
    return program


def run_line(source: pathlib.Path) -> str:
    """The environment that a C test asks for in its first lines."""
    found = re.search(r"^/\* run: (.*) \*/$", source.read_text(), re.MULTILINE)
    return found[1] if found else ""
