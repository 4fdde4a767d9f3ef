//! The server of a hostile file system: `hostile-fs BACKING MOUNTPOINT [OPTION...]`. README.md has
//! the options and the rules.

#[cfg(target_os = "linux")]
mod nodes;
#[cfg(target_os = "linux")]
mod rules;
#[cfg(target_os = "linux")]
mod server;

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    use std::process::ExitCode;
    let mut args = std::env::args_os().skip(1);
    let (Some(backing), Some(mountpoint)) = (args.next(), args.next()) else {
        eprintln!("usage: hostile-fs BACKING MOUNTPOINT [OPTION...]");
        return ExitCode::from(2);
    };
    let options: Vec<String> = args.map(|option| option.to_string_lossy().into_owned()).collect();
    match server::serve(backing.as_ref(), mountpoint.as_ref(), &options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("hostile-fs: {error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn main() {
    eprintln!("hostile-fs: FUSE is tested on Linux only");
    std::process::exit(2);
}
