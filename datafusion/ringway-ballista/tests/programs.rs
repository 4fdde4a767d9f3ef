//! The programs as a user runs them.

use std::fs;
use std::net::TcpListener;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How long a test waits for something that must happen soon.
const LIMIT: Duration = Duration::from_secs(60);

/// Waits until the function returns something.
fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < LIMIT, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A process that ends with the test.
struct Program(Child);

impl Program {
    fn status(&mut self) -> Option<ExitStatus> {
        self.0.try_wait().unwrap()
    }

    /// Whether it handles SIGINT itself.
    fn catches_interrupts(&self) -> bool {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0.id())).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        u64::from_str_radix(caught.trim(), 16).unwrap() & 2 != 0
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Ctrl-C ends a query for which the scheduler does nothing, also if standard error is a pipe that
/// nobody reads any more.
#[test]
fn ctrl_c_needs_no_standard_error() {
    let scheduler = TcpListener::bind("127.0.0.1:0").unwrap();
    scheduler.set_nonblocking(true).unwrap();
    let address = scheduler.local_addr().unwrap().to_string();
    for level in ["off", "debug"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ringway-ballista-sql"));
        command.args(["--scheduler", &address, "-c", "SELECT 1"]).env("RUST_LOG", level);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut sql = Program(command.spawn().unwrap());
        drop(sql.0.stderr.take());
        let _connection = wait_for("the query", || {
            assert_eq!(sql.status(), None, "{level}");
            scheduler.accept().ok()
        });
        wait_for("Ctrl-C to be awaited", || sql.catches_interrupts().then_some(()));
        let kill = Command::new("kill").args(["-INT", &sql.0.id().to_string()]).status();
        assert!(kill.unwrap().success());
        assert_eq!(wait_for("the end", || sql.status()).code(), Some(130), "{level}");
    }
}
