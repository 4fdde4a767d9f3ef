//! Gives the shared library its soname: programs that link it want this version's interface,
//! whatever file has it.

fn main() {
    // The first number that changes when the interface breaks: see "ABI" in include/ringway.h.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libringway.so.0");
    println!("cargo:rerun-if-changed=build.rs");
}
