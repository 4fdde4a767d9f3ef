//! Sets the soname of the shared library, which programs linked with it load, and keeps the library
//! in memory.

fn main() {
    // The number changes when the ABI breaks: see "ABI" in include/ringway.h and SOVERSION in the
    // Makefile.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libringway.so.0");
    // Threads outlive their queue, so dlclose(3) must not unmap their code.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rerun-if-changed=build.rs");
}
