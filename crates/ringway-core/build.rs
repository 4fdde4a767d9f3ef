//! Sets `ringway_linux` where the crate uses Linux's own interfaces: io_uring, Linux AIO, eventfds,
//! sysfs. `RUSTFLAGS="--cfg ringway_portable"` builds the code of the other systems of the Unix
//! family on Linux instead, so that the tests of `make test-portable` run it. Nothing is compiled
//! or searched for here.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(ringway_linux)");
    let is_linux = std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|system| system == "linux");
    if is_linux && std::env::var_os("CARGO_CFG_RINGWAY_PORTABLE").is_none() {
        println!("cargo::rustc-cfg=ringway_linux");
    }
}
