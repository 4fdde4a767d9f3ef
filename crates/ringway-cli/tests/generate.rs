//! The man pages and shell completions that `make install` installs. Each must mention every
//! option.

use clap::CommandFactory;
use ringway_cli::cli::Cli;
use std::fs;
use std::process::Command;

#[test]
fn man_pages_and_completions_mention_every_option() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let status = Command::new(env!("CARGO_BIN_EXE_ringway"))
        .arg("generate")
        .arg(folder.path())
        .status()
        .unwrap();
    assert!(status.success());
    let read = |name: &str| {
        fs::read_to_string(folder.path().join(name))
            .unwrap_or_else(|error| panic!("{name}: {error}"))
    };
    let main_page = read("man1/ringway.1");
    let completions = ["ringway.bash", "_ringway", "ringway.fish"];
    let completions = completions.map(|name| read(&format!("completions/{name}")));
    let cli = Cli::command();
    let subcommands: Vec<_> =
        cli.get_subcommands().filter(|command| !command.is_hide_set()).collect();
    assert_eq!(subcommands.len(), 3);
    for subcommand in subcommands {
        let name = subcommand.get_name();
        // roff escapes each hyphen.
        assert!(main_page.contains(&format!("ringway\\-{name}")), "{name}\n{main_page}");
        let page = read(&format!("man1/ringway-{name}.1"));
        assert!(page.contains("EXTRA") && page.contains("Examples"), "{page}");
        for option in subcommand.get_arguments().filter_map(|option| option.get_long()) {
            let escaped = format!("\\-\\-{}", option.replace('-', "\\-"));
            assert!(page.contains(&escaped), "--{option} in the man page of {name}\n{page}");
            for completion in &completions {
                // fish writes `-l option`.
                let is_known = completion.contains(&format!("--{option}"))
                    || completion.contains(&format!("-l {option}"));
                assert!(is_known, "--{option} of {name}\n{completion}");
            }
        }
    }
    for (shell, file) in [("bash", "ringway.bash"), ("zsh", "_ringway"), ("fish", "ringway.fish")] {
        let path = folder.path().join("completions").join(file);
        match Command::new(shell).arg("-n").arg(path).status() {
            Ok(status) => assert!(status.success(), "{shell} rejects {file}"),
            Err(_) => println!("skipped: {shell} is not installed"),
        }
    }
}
