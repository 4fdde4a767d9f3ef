//! NFS from this machine's own server, in guests only: a server serves the whole machine.

use super::{Mounted, no, run};
use std::path::Path;
use std::process::{Child, Command};
use std::{env, fs, io};

/// Why there is none here.
pub fn missing() -> Option<String> {
    if env::var_os("RINGWAY_GUEST").is_none() {
        return Some("an NFS server is started in guests only".to_owned());
    }
    let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    let has = |name: &str| known.split_whitespace().any(|one| one == name);
    (!has("nfsd")).then(|| no("nfsd"))
}

impl Mounted {
    /// Exports a directory and mounts it. The server is stopped when what is `below` is released.
    pub fn nfs(below: Self) -> io::Result<Self> {
        const NFSD: &str = "/proc/fs/nfsd";
        if !Path::new(NFSD).join("threads").exists() {
            run("mount", &["-t", "nfsd", "nfsd", NFSD])?;
        }
        fs::create_dir_all("/var/lib/nfs/v4recovery")?;
        fs::write("/var/lib/nfs/etab", "")?;
        fs::write("/var/lib/nfs/rmtab", "")?;
        let dir = below.dir.to_string_lossy().into_owned();
        run("exportfs", &["-o", "rw,no_root_squash,insecure,fsid=0,sync", &format!("*:{dir}")])?;
        let mut mounted = Self::in_dir()?;
        mounted.device.clone_from(&below.device);
        let mountd = Command::new("/usr/sbin/rpc.mountd").args(["--foreground", "-N3"]).spawn()?;
        mounted.parts.insert(0, super::Part::Other(Box::new(Server(mountd))));
        mounted.parts.push(super::Part::Other(Box::new(below)));
        // The least time in which clients of an earlier server may claim locks again; others wait.
        for time in ["nfsv4leasetime", "nfsv4gracetime"] {
            fs::write(Path::new(NFSD).join(time), "10")?;
        }
        run("rpc.nfsd", &["--port=2049", "--no-nfs-version=3", "--no-udp", "4"])?;
        mounted.mount(&["-i", "-t", "nfs4", "-o", "vers=4.2,addr=127.0.0.1", "127.0.0.1:/"])?;
        Ok(mounted)
    }
}

/// The server, and the process that tells it what is exported. Dropping it stops both.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        for (program, arguments) in
            [("rpc.nfsd", &["0"]), ("exportfs", &["-ua"]), ("exportfs", &["-f"])]
        {
            if let Err(error) = run(program, arguments) {
                println!("not released: {error}");
            }
        }
        if let Err(error) = self.0.kill().and_then(|()| self.0.wait()) {
            println!("not released: {error}");
        }
    }
}
