//! Tests as a user who may not open every file, also where the tests run as root.

use crate::session::skip;
use std::env;
use std::fs::{File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Set in the child process.
const CHILD: &str = "RINGWAY_TEST_CHILD";
/// The user `nobody` of most systems; none has to exist.
const OTHER: u32 = 65534;

/// Runs the body of a test: in this process if permissions apply to it, and else in a child process
/// of another user, which runs the test of this name (`module::test`) and nothing else.
pub fn as_ordinary(test: &str, body: impl FnOnce()) {
    if !opens_every_file() {
        return body();
    }
    assert!(env::var_os(CHILD).is_none(), "user {OTHER} may open every file too");
    // The link, rather than the path, whose directories the user may not be allowed to search.
    let mut command = Command::new("/proc/self/exe");
    command.args([test, "--exact", "--nocapture"]).env(CHILD, "1").uid(OTHER).gid(OTHER);
    match command.output() {
        Err(error) => skip(&format!("no process of another user: {error}")),
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout);
            println!("{text}{}", String::from_utf8_lossy(&output.stderr));
            assert!(output.status.success(), "{test}: {}", output.status);
            assert!(text.contains("1 passed"), "there is no test {test}");
        }
    }
}

/// Whether this process may open files without permission, as root may.
fn opens_every_file() -> bool {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::set_permissions(file.path(), Permissions::from_mode(0o000)).unwrap();
    File::open(file.path()).is_ok()
}
