//! Sets the soname of the shared library, which programs linked with it load.

fn main() {
    // The number changes when the ABI breaks: see "ABI" in include/ringway.h and SOVERSION in the
    // Makefile.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libringway.so.0");
    println!("cargo:rerun-if-changed=build.rs");
}
