//! The data folder: who may use it now, which user owns the database in it, and the passwords and ports that last from one
//! start to the next. Called by `guard`; `app` asks for the default folder.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io::{self, Read, Seek, Write},
    net::TcpListener,
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use super::{
    child::Identity,
    messages::{Fault, Part},
};

/// A predecessor that was killed leaves a guard that is stopping Postgres at this moment.
const WAIT_FOR_PREDECESSOR: Duration = Duration::from_secs(45);
/// Below the range from which the kernel takes the ports of outgoing connections: one of those could take a port of ours while
/// its part restarts.
const PORTS: std::ops::Range<u16> = 18000..30000;
const NOBODY: u32 = 65534;

pub(super) fn absolute(dir: &Path) -> io::Result<PathBuf> {
    std::path::absolute(dir)
}

/// `.holdfast` in the current folder; for root, when the user that runs Postgres could not enter that, a folder it can.
pub fn default_dir() -> PathBuf {
    let here = fs::canonicalize(".").unwrap_or_else(|_| PathBuf::from("/")).join(".holdfast");
    match RunAs::for_dir(&here) {
        Some(user) if user.cannot_reach(&here).is_some() => PathBuf::from("/var/lib/holdfast"),
        _ => here,
    }
}

/// The user that Postgres runs as when we are root, which it refuses to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RunAs {
    pub name: String,
    pub uid: u32,
    pub gid: u32,
}

impl RunAs {
    /// `None` when we are not root. A folder that someone else has begun stays theirs.
    pub fn for_dir(dir: &Path) -> Option<Self> {
        if !nix::unistd::geteuid().is_root() {
            return None;
        }
        let owners = [dir.join(Part::Postgres.word()), dir.to_owned()];
        let owner = owners.iter().filter_map(|p| fs::metadata(p).ok()).find(|m| m.uid() != 0);
        let (uid, gid, known) = match owner {
            Some(meta) => (meta.uid(), meta.gid(), nix::unistd::User::from_uid(meta.uid().into()).ok().flatten()),
            None => match nix::unistd::User::from_name("nobody").ok().flatten() {
                Some(user) => (user.uid.as_raw(), user.gid.as_raw(), Some(user)),
                None => (NOBODY, NOBODY, None),
            },
        };
        Some(Self { name: known.map_or_else(|| uid.to_string(), |u| u.name), uid, gid })
    }

    /// The first folder on the way to `path` that this user cannot enter. What does not exist yet will be made enterable.
    pub fn cannot_reach(&self, path: &Path) -> Option<PathBuf> {
        let mut way: Vec<&Path> = path.ancestors().collect();
        way.reverse();
        way.into_iter().find(|at| fs::metadata(at).is_ok_and(|m| !self.may_execute(&m))).map(Path::to_owned)
    }

    fn may_execute(&self, meta: &fs::Metadata) -> bool {
        let bit = if meta.uid() == self.uid {
            0o100
        } else if meta.gid() == self.gid {
            0o010
        } else {
            0o001
        };
        meta.mode() & bit != 0
    }
}

#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Settings {
    pub owner_password: String,
    pub runtime_password: String,
    pub redis_password: String,
    /// Kept, so that a restart is where the last one was.
    pub ports: Vec<(Part, u16)>,
}

/// The folder, ours until this is dropped or the process ends in any way.
pub(super) struct Folder {
    pub dir: PathBuf,
    pub user: Option<RunAs>,
    pub settings: Settings,
    _lock: File,
}

impl Folder {
    /// Waits for a predecessor that is still stopping; refuses while `owner` is not the only live one.
    pub fn take(dir: &Path, owner: Identity) -> Result<Self, Fault> {
        if !dir.exists() {
            // Root's folder is passed through by the user that Postgres runs as, whatever the umask.
            let mode = if nix::unistd::geteuid().is_root() { 0o711 } else { 0o700 };
            DirBuilder::new().recursive(true).mode(mode).create(dir).map_err(|e| Fault::folder(dir, &e))?;
            let mode = fs::Permissions::from_mode(mode);
            fs::set_permissions(dir, mode).map_err(|e| Fault::io(format!("setting the mode of {}", dir.display()), &e))?;
        }
        // The kernel names folders without links, and processes are recognised by the folder they work in.
        let dir = fs::canonicalize(dir).map_err(|e| Fault::folder(dir, &e))?;
        if !dir.is_dir() {
            return Err(Fault::Folder { detail: "it is a file, not a folder".into(), at: dir });
        }
        let user = RunAs::for_dir(&dir);
        if let Some(user) = &user
            && let Some(at) = user.cannot_reach(&dir)
        {
            return Err(Fault::Unreachable { user: user.name.clone(), at });
        }
        let lock = lock(&dir, owner)?;
        let settings = settings(&dir)?;
        Ok(Self { dir, user, settings, _lock: lock })
    }

    /// The port of the last start if it is free, else another.
    pub fn port(&self, part: Part) -> Result<u16, Fault> {
        match self.settings.ports.iter().find(|(p, port)| *p == part && is_free(*port)) {
            Some((_, port)) => Ok(*port),
            None => free_port(),
        }
    }

    pub fn keep_ports(&mut self, ports: Vec<(Part, u16)>) -> Result<(), Fault> {
        for (part, port) in ports {
            self.settings.ports.retain(|(p, _)| *p != part);
            self.settings.ports.push((part, port));
        }
        write_private(&self.dir.join("local.json"), &serde_json::to_vec(&self.settings).unwrap_or_default())
    }

    pub fn log(&self, part: Part) -> PathBuf {
        self.dir.join(format!("{}.log", part.word()))
    }
}

pub(super) fn free_port() -> Result<u16, Fault> {
    for _ in 0..1000 {
        let port = PORTS.start + u16::from_be_bytes(random::<2>()?) % (PORTS.end - PORTS.start);
        if is_free(port) {
            return Ok(port);
        }
    }
    Err(Fault::Io { what: "looking for a free port".into(), detail: format!("none of 1000 in {PORTS:?} is free") })
}

fn is_free(port: u16) -> bool {
    TcpListener::bind(("127.0.0.1", port)).is_ok()
}

pub(super) fn make_dir(dir: &Path, mode: u32) -> Result<(), Fault> {
    DirBuilder::new().recursive(true).mode(mode).create(dir).map_err(|e| Fault::io(format!("making {}", dir.display()), &e))
}

/// Whole or not at all, and for no one else's eyes.
pub(super) fn write_private(path: &Path, content: &[u8]) -> Result<(), Fault> {
    let half = path.with_extension("half");
    let _ = fs::remove_file(&half);
    let write = || -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&half)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&half, path)
    };
    write().map_err(|e| Fault::io(format!("writing {}", path.display()), &e))
}

/// The kernel gives the lock back when its holder ends, so no lock is ever stale; the text in the file only says who it is.
fn lock(dir: &Path, owner: Identity) -> Result<File, Fault> {
    let path = dir.join("lock");
    let fault = |e: &io::Error| Fault::io(format!("locking {}", path.display()), e);
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(|e| Fault::folder(&path, &e))?;
    let since = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => break,
            Err(TryLockError::Error(error)) => return Err(fault(&error)),
            Err(TryLockError::WouldBlock) => {}
        }
        let mut text = String::new();
        file.rewind().and_then(|()| file.read_to_string(&mut text)).map_err(|e| fault(&e))?;
        let holder: Option<Holder> = serde_json::from_str(&text).ok();
        match holder {
            Some(holder) if holder.owner.is_alive() => return Err(Fault::InUse { pid: holder.owner.pid }),
            _ if since.elapsed() < WAIT_FOR_PREDECESSOR => std::thread::sleep(Duration::from_millis(50)),
            holder => return Err(Fault::InUse { pid: holder.map_or(0, |h| h.guard.pid) }),
        }
    }
    let holder = Holder { owner, guard: Identity::of(std::process::id()) };
    let mut write = || -> io::Result<()> {
        file.set_len(0)?;
        file.rewind()?;
        serde_json::to_writer(&file, &holder).map_err(io::Error::from)
    };
    write().map_err(|e| fault(&e))?;
    Ok(file)
}

#[derive(Serialize, Deserialize)]
struct Holder {
    owner: Identity,
    guard: Identity,
}

fn settings(dir: &Path) -> Result<Settings, Fault> {
    let path = dir.join("local.json");
    match fs::read(&path) {
        Ok(bytes) => {
            // Not the parser's own words: they quote what they found, and that may be a password.
            let broken = |e: serde_json::Error| {
                format!("it is broken at line {}; bring it back from a copy, or remove the folder to begin afresh", e.line())
            };
            serde_json::from_slice(&bytes).map_err(|e| Fault::Folder { detail: broken(e), at: path })
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let settings =
                Settings { owner_password: password()?, runtime_password: password()?, redis_password: password()?, ports: Vec::new() };
            write_private(&path, &serde_json::to_vec(&settings).unwrap_or_default())?;
            Ok(settings)
        }
        Err(error) => Err(Fault::folder(&path, &error)),
    }
}

/// Hexadecimal, so that it needs no escaping in a URL, an SQL string or a configuration file.
fn password() -> Result<String, Fault> {
    Ok(hex::encode(random::<24>()?))
}

fn random<const N: usize>() -> Result<[u8; N], Fault> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|e| Fault::Io { what: "asking the system for random bytes".into(), detail: e.to_string() })?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("holdfast-folder-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn passwords_survive_a_restart_and_are_readable_by_their_owner_only() {
        let scratch = Scratch::new("passwords");
        let first = settings(&scratch.0).unwrap();
        let second = settings(&scratch.0).unwrap();
        assert_eq!(first.owner_password, second.owner_password);
        assert_ne!(first.owner_password, first.runtime_password);
        assert_eq!(first.owner_password.len(), 48);
        assert_eq!(fs::metadata(scratch.0.join("local.json")).unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_folder_that_only_its_owner_enters_is_out_of_reach_for_others() {
        let scratch = Scratch::new("reach");
        let inner = scratch.0.join("a/b");
        fs::create_dir_all(&inner).unwrap();
        let meta = fs::metadata(&inner).unwrap();
        let stranger = RunAs { name: "stranger".into(), uid: meta.uid() + 1, gid: meta.gid() + 1 };
        let owner = RunAs { name: "owner".into(), uid: meta.uid(), gid: meta.gid() };
        fs::set_permissions(scratch.0.join("a"), fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!(stranger.cannot_reach(&inner), Some(scratch.0.join("a")));
        assert_eq!(owner.cannot_reach(&inner), None);
        fs::set_permissions(scratch.0.join("a"), fs::Permissions::from_mode(0o711)).unwrap();
        assert_eq!(stranger.cannot_reach(&inner), None);
        assert_eq!(stranger.cannot_reach(&inner.join("not/there/yet")), None);
    }

    #[test]
    fn a_second_taker_of_a_folder_is_told_who_has_it() {
        let scratch = Scratch::new("lock");
        let me = Identity::of(std::process::id());
        let held = lock(&scratch.0, me).unwrap();
        match lock(&scratch.0, me) {
            Err(Fault::InUse { pid }) => assert_eq!(pid, std::process::id()),
            other => panic!("{other:?}"),
        }
        drop(held);
        lock(&scratch.0, me).unwrap();
    }

    #[test]
    fn what_can_be_no_data_folder_is_named_with_its_reason() {
        let scratch = Scratch::new("unfit");
        let me = Identity::of(std::process::id());
        let told = |dir: &Path| match Folder::take(dir, me).map(|_| ()) {
            Err(Fault::Folder { at, detail }) => (at, detail),
            other => panic!("{other:?}"),
        };
        let file = scratch.0.join("file");
        fs::write(&file, "x").unwrap();
        assert_eq!(told(&file), (file.clone(), "it is a file, not a folder".into()));
        let below = file.join("below");
        assert_eq!(told(&below).0, below);
        // Nobody makes a folder in there, root included.
        assert_eq!(told(Path::new("/proc/holdfast")).0, PathBuf::from("/proc/holdfast"));
        let broken = scratch.0.join("broken");
        fs::create_dir(&broken).unwrap();
        fs::set_permissions(&broken, fs::Permissions::from_mode(0o711)).unwrap();
        fs::write(broken.join("local.json"), "{").unwrap();
        let (at, detail) = told(&broken);
        assert!(at.ends_with("local.json") && detail.contains("begin afresh"), "{detail}");
    }

    #[test]
    fn a_port_in_use_is_not_offered() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(!is_free(taken.local_addr().unwrap().port()));
        assert!(PORTS.contains(&free_port().unwrap()));
    }
}
