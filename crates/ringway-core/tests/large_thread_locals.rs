//! A program whose thread-local variables leave no room in a small stack: glibc puts them there.
//! (Other systems do not, so their code, which `ringway_portable` selects, adds nothing for them.)
#![cfg(not(ringway_portable))]

use ringway_core::{BackendKind, Options, op};
use std::cell::RefCell;

/// Nearly the stack that a pool's thread asks for.
const LEN: usize = 250_000;

thread_local! {
    static LARGE: RefCell<[u8; LEN]> = const { RefCell::new([0; LEN]) };
}

/// Uses 48 KiB of the stack.
fn use_stack() -> u8 {
    let mut bytes = [0_u8; 48 << 10];
    bytes[0] = 1;
    std::hint::black_box(&mut bytes).iter().sum()
}

#[test]
fn threads_start() {
    for (size, name) in [(64 << 10, c"small"), (256 << 10, c"usual")] {
        let (sender, receiver) = std::sync::mpsc::channel();
        let body = move || {
            LARGE.with_borrow_mut(|bytes| bytes[LEN - 1] = 7);
            assert_eq!(use_stack(), 1);
            sender.send(LARGE.with_borrow(|bytes| bytes[LEN - 1])).unwrap();
        };
        ringway_core::start_thread(name, size, body).unwrap();
        assert_eq!(receiver.recv(), Ok(7));
    }
    let mut queue = Options::new().backend(BackendKind::Threads).build().unwrap();
    let call = || {
        LARGE.with_borrow_mut(|bytes| bytes[0] = use_stack());
    };
    queue.push(op::blocking(call)).unwrap();
    assert_eq!(queue.reap(1).unwrap().next().unwrap().result, Ok(0));
    let explanation = queue.explain();
    assert!(explanation.refusals.is_empty(), "{explanation}");
}
