//! A queue whose backend has failed is given up: all that is in flight is answered.

use ringway_core::{BackendKind, Options, Reason, op};
use std::io;
use std::sync::mpsc;
use std::time::Duration;

/// What does not end in time is answered all the same, and takes nothing with it when it ends.
#[test]
fn what_outlasts_a_queue_that_is_given_up_is_answered() {
    for kind in [BackendKind::Uring, BackendKind::Kaio, BackendKind::Threads] {
        let Ok(mut queue) = Options::new().backend(kind).build() else {
            println!("skipped: {kind} is not granted");
            continue;
        };
        let (go_on, waits) = mpsc::channel::<()>();
        let (done, is_done) = mpsc::channel();
        let work = move || {
            _ = waits.recv();
            _ = done.send(());
        };
        queue.push(op::blocking(work).user_data(7)).unwrap();
        queue.submit().unwrap();
        // It has begun when it has its thread.
        std::thread::sleep(Duration::from_millis(100));
        let error = io::Error::from_raw_os_error(libc::EPERM);
        queue.fail(&error, Duration::from_millis(10)).unwrap();
        let answers: Vec<_> = queue
            .reap(0)
            .unwrap()
            .map(|done| (done.user_data, done.result.unwrap_err().errno()))
            .collect();
        assert_eq!(answers, [(7, libc::EIO)], "{kind}");
        assert!(queue.explain().to_string().contains("EPERM"), "{kind}");
        assert_eq!(queue.push(op::nop()).unwrap_err().reason(), Reason::Closed);
        drop(queue);
        go_on.send(()).unwrap();
        is_done.recv_timeout(Duration::from_secs(20)).unwrap();
    }
}

/// Who waits for some leaves the others in their order, though one of those was given up when it
/// was done.
#[test]
fn those_that_nobody_waited_for_keep_their_order() {
    let mut queue = Options::new().backend(BackendKind::Null).build().unwrap();
    let first = queue.push(op::nop().user_data(0)).unwrap();
    (1..4).for_each(|number| _ = queue.push(op::nop().user_data(number)).unwrap());
    assert_eq!(queue.submit().unwrap(), 4);
    assert!(queue.abandon(first));
    queue.reap_matching(0, |number| number == 2, |done| assert_eq!(done.user_data, 2)).unwrap();
    assert_eq!(queue.reap(0).unwrap().map(|done| done.user_data).collect::<Vec<_>>(), [1, 3]);
}
