//! When the backend of a queue has failed, the queue completes everything in flight.

use ringway_core::c as libc;
use ringway_core::{BackendKind, Options, Reason, op};
use std::io;
use std::sync::mpsc;
use std::time::Duration;

/// An operation that does not end in time is completed too, and does no harm when it ends.
#[test]
fn a_failed_queue_completes_operations_that_outlast_it() {
    for kind in [BackendKind::Uring, BackendKind::Kaio, BackendKind::Threads] {
        let Ok(mut queue) = Options::new().backend(kind).build() else {
            println!("skipped: {kind} is not available");
            continue;
        };
        let (go_on, waits) = mpsc::channel::<()>();
        let (done, is_done) = mpsc::channel();
        let (begins, has_begun) = mpsc::channel();
        let work = move || {
            begins.send(()).unwrap();
            _ = waits.recv();
            _ = done.send(());
        };
        queue.push(op::blocking(work).user_data(7)).unwrap();
        queue.submit().unwrap();
        has_begun.recv_timeout(Duration::from_secs(20)).unwrap();
        let error = io::Error::from_raw_os_error(libc::EPERM);
        queue.fail(&error, Duration::from_millis(10)).unwrap();
        let results: Vec<_> = queue
            .reap(0)
            .unwrap()
            .map(|done| (done.user_data, done.result.unwrap_err().errno()))
            .collect();
        assert_eq!(results, [(7, libc::EIO)], "{kind}");
        assert!(queue.explain().to_string().contains("EPERM"), "{kind}");
        assert_eq!(queue.push(op::nop()).unwrap_err().reason(), Reason::Closed);
        drop(queue);
        go_on.send(()).unwrap();
        is_done.recv_timeout(Duration::from_secs(20)).unwrap();
    }
}

/// Reaping selected operations leaves the others in order, even if one of them was abandoned after
/// it completed.
#[test]
fn completions_that_were_not_selected_keep_their_order() {
    let mut queue = Options::new().backend(BackendKind::Null).build().unwrap();
    let first = queue.push(op::nop().user_data(0)).unwrap();
    for number in 1..4 {
        _ = queue.push(op::nop().user_data(number)).unwrap();
    }
    assert_eq!(queue.submit().unwrap(), 4);
    assert!(queue.abandon(first));
    queue.reap_matching(0, |number| number == 2, |done| assert_eq!(done.user_data, 2)).unwrap();
    assert_eq!(queue.reap(0).unwrap().map(|done| done.user_data).collect::<Vec<_>>(), [1, 3]);
}
