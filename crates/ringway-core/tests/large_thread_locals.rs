//! A program whose thread-local variables leave no room in a small stack: glibc puts them there.

use ringway_core::{BackendKind, Options, op};
use std::cell::RefCell;

const LEN: usize = 3 << 19;

thread_local! {
    static LARGE: RefCell<[u8; LEN]> = const { RefCell::new([0; LEN]) };
}

#[test]
fn threads_start() {
    for (size, name) in [(64 << 10, c"small"), (2 << 20, c"usual")] {
        let (sender, receiver) = std::sync::mpsc::channel();
        let body = move || {
            LARGE.with_borrow_mut(|bytes| bytes[LEN - 1] = 7);
            sender.send(LARGE.with_borrow(|bytes| bytes[LEN - 1])).unwrap();
        };
        ringway_core::start_thread(name, size, body).unwrap();
        assert_eq!(receiver.recv(), Ok(7));
    }
    let mut queue = Options::new().backend(BackendKind::Threads).build().unwrap();
    queue.push(op::blocking(|| LARGE.with_borrow_mut(|bytes| bytes[0] = 1))).unwrap();
    assert_eq!(queue.reap(1).unwrap().next().unwrap().result, Ok(0));
    let explanation = queue.explain();
    assert!(explanation.refusals.is_empty(), "{explanation}");
}
