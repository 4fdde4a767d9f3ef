//! What a failed writeback tells whom: a bad block below a file, made with the device mapper.

use crate::cells::{PAGE, page, text};
use rustix::fs::{Advice, Mode, OFlags, fadvise, fdatasync, fsync, open};
use rustix::io::{dup, pread, pwrite};
use std::fs;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};

/// Writes a page of a file, one block of which fails, and syncs through three descriptors, each
/// twice. Then the block is good again.
pub(crate) fn observe(
    dir: &Path,
    mapped: &str,
    set: &mut impl FnMut(&str, String),
) -> io::Result<()> {
    let path = dir.join("fails");
    fs::write(&path, vec![b'o'; 16 * PAGE])?;
    let open = || open(&path, OFlags::RDWR, Mode::empty());
    let (writer, other) = (open()?, open()?);
    fsync(&writer)?;
    let duplicate = dup(&writer)?;
    let sector = first_sector(&path)?;
    let good = table(mapped)?;
    replace_table(mapped, &with_bad_block(&good, sector)?)?;
    let told = tell(&writer, &duplicate, &other);
    // Whatever was seen: what is not repaired cannot be unmounted.
    replace_table(mapped, &good)?;
    set("failed writeback", told?);
    set("after it", {
        let synced = text(&fdatasync(&writer));
        fadvise(&writer, 0, None, Advice::DontNeed)?;
        let mut memory = page();
        let content = match pread(&other, &mut memory[0].0[..], 0) {
            Ok(_) if memory[0].0[0] == b'o' => "old".to_owned(),
            Ok(_) => "new".to_owned(),
            refused => text(&refused),
        };
        format!("{synced}; {content}")
    });
    Ok(())
}

fn tell(writer: &OwnedFd, duplicate: &OwnedFd, other: &OwnedFd) -> io::Result<String> {
    pwrite(writer, &vec![b'n'; PAGE], 0)?;
    let twice = |(name, fd): (&str, &OwnedFd)| {
        format!("{name} {}, {}", text(&fdatasync(fd)), text(&fdatasync(fd)))
    };
    let all = [("writer", writer), ("its dup", duplicate), ("another", other)].map(twice);
    Ok(all.join("; "))
}

/// The sector of the device in which the file begins.
fn first_sector(path: &Path) -> io::Result<u64> {
    let mut command = Command::new("filefrag");
    command.args(["-v", "-b512"]).arg(path);
    let shown = output(command, "")?;
    // As in "   0:        0..     127:     139264..    139391:    128: last,eof".
    let extent = shown.lines().find(|line| line.trim_start().starts_with("0:"));
    extent
        .and_then(|line| line.split(':').nth(2)?.split("..").next()?.trim().parse().ok())
        .ok_or_else(|| io::Error::other(format!("filefrag shows no extent: {shown}")))
}

/// The table of a device with one linear target, without its key words: its length, device and
/// start.
fn table(mapped: &str) -> io::Result<String> {
    let mut command = Command::new("dmsetup");
    command.args(["table", mapped]);
    output(command, "")
}

/// The same with a bad block of the size of a page.
fn with_bad_block(table: &str, sector: u64) -> io::Result<String> {
    const SECTORS: u64 = PAGE as u64 / 512;
    let words: Vec<&str> = table.split_whitespace().collect();
    let ["0", length, "linear", device, "0"] = words[..] else {
        return Err(io::Error::other(format!("no linear device: {table}")));
    };
    let after = sector + SECTORS;
    let rest = length.parse::<u64>().map_err(io::Error::other)?.saturating_sub(after);
    Ok(format!(
        "0 {sector} linear {device} 0\n{sector} {SECTORS} error\n\
         {after} {rest} linear {device} {after}\n"
    ))
}

fn replace_table(mapped: &str, table: &str) -> io::Result<()> {
    // The file system is not told, and syncs nothing.
    for (arguments, input) in [
        (&["suspend", "--nolockfs", mapped][..], ""),
        (&["load", mapped], table),
        (&["resume", mapped], ""),
    ] {
        let mut command = Command::new("dmsetup");
        command.args(arguments);
        output(command, input)?;
    }
    Ok(())
}

fn output(mut command: Command, input: &str) -> io::Result<String> {
    // The administrator's programs are outside an ordinary PATH.
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin:/sbin"));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    child.stdin.take().expect("it is a pipe").write_all(input.as_bytes())?;
    let output = child.wait_with_output()?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()))
}
