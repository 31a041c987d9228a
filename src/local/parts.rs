//! Finds the programs that the embedded default runs, and says what is missing and how to get it. Never fetches anything.
//! Called by `app` and by tests before [`super::Running::start`].

use std::{
    fmt, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Older servers lack what the schema uses, and are not what it is tested on.
const POSTGRES_FLOOR: u32 = 16;
const REDIS_FLOOR: u32 = 7;
/// Where a distribution puts programs. The environment is not asked: what runs must not depend on who started it.
const SYSTEM_PROGRAMS: &[&str] = &["/usr/local/bin", "/usr/bin", "/bin"];
/// Debian keeps each major version of Postgres in a folder of its own, off the path.
const SYSTEM_POSTGRES: &str = "/usr/lib/postgresql";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parts {
    /// The folder of `postgres` and `initdb`.
    pub postgres: PathBuf,
    pub postgres_version: String,
    pub redis: PathBuf,
    /// `None` when it was not asked for.
    pub anvil: Option<PathBuf>,
}

/// Every missing part, each with what was found instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    pub parts: Vec<String>,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "missing: {}. Get them with `make tools`, or name the folder that has them", self.parts.join("; "))
    }
}

impl std::error::Error for Missing {}

impl Parts {
    /// Looks in `tools` if given, then in a `.tools` beside the data folder `near`, then in those above the current folder and
    /// above the running program, then where the system keeps programs.
    pub fn find(tools: Option<&Path>, near: &Path, needs_evm: bool) -> Result<Self, Missing> {
        let mut folders: Vec<PathBuf> = tools.map(Path::to_owned).into_iter().collect();
        let exe = fs::read_link("/proc/self/exe").unwrap_or_default();
        let here = fs::canonicalize(".").unwrap_or_default();
        let near = std::path::absolute(near).unwrap_or_default();
        for start in [&near, &here, &exe] {
            folders.extend(start.ancestors().map(|a| a.join(".tools")).filter(|f| f.is_dir()));
        }
        let system: Vec<PathBuf> = SYSTEM_PROGRAMS.iter().map(PathBuf::from).collect();
        find_in(&folders, &system, Path::new(SYSTEM_POSTGRES), needs_evm)
    }
}

fn find_in(tools: &[PathBuf], system: &[PathBuf], system_postgres: &Path, needs_evm: bool) -> Result<Parts, Missing> {
    let mut missing = Vec::new();
    let programs: Vec<PathBuf> = tools.iter().map(|t| t.join("bin")).chain(system.iter().cloned()).collect();

    let mut homes: Vec<PathBuf> = tools.iter().flat_map(|t| newest_first(&t.join("pg"))).collect();
    homes.extend(newest_first(system_postgres));
    let postgres = choose(homes.iter().map(|h| h.join("bin")).chain(programs.iter().cloned()), "postgres", POSTGRES_FLOOR, |bin| {
        bin.join("initdb").is_file()
    });
    let redis = choose(programs.iter().cloned(), "redis-server", REDIS_FLOOR, |_| true);
    let anvil = choose(programs.iter().cloned(), "anvil", 0, |_| true);
    let note = |what: &str, found: &Choice| match &found.refused {
        Some((version, bin)) => format!("{what} (found only {version}, in {})", bin.display()),
        None => what.to_owned(),
    };
    if postgres.taken.is_none() {
        missing.push(note("PostgreSQL 16 or newer", &postgres));
    }
    if redis.taken.is_none() {
        missing.push(note("Redis 7 or newer", &redis));
    }
    if needs_evm && anvil.taken.is_none() {
        missing.push("anvil, the EVM node (or set RPC_URL)".to_owned());
    }
    match (postgres.taken, redis.taken) {
        (Some((postgres_version, postgres)), Some((_, redis))) if missing.is_empty() => Ok(Parts {
            postgres,
            postgres_version,
            redis: redis.join("redis-server"),
            anvil: anvil.taken.filter(|_| needs_evm).map(|(_, bin)| bin.join("anvil")),
        }),
        _ => Err(Missing { parts: missing }),
    }
}

#[derive(Default)]
struct Choice {
    taken: Option<(String, PathBuf)>,
    /// The first that runs but is too old.
    refused: Option<(String, PathBuf)>,
}

fn choose(folders: impl Iterator<Item = PathBuf>, program: &str, floor: u32, complete: impl Fn(&Path) -> bool) -> Choice {
    let mut choice = Choice::default();
    for bin in folders {
        if !bin.join(program).is_file() || !complete(&bin) {
            continue;
        }
        let Some(version) = version_of(&bin.join(program)) else { continue };
        if major(&version) >= floor {
            choice.taken = Some((version, bin));
            return choice;
        }
        choice.refused.get_or_insert((version, bin));
    }
    choice
}

fn newest_first(folder: &Path) -> Vec<PathBuf> {
    let mut homes: Vec<PathBuf> = fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path()).collect();
    homes.sort_by_key(|h| {
        let name = h.file_name().unwrap_or_default().to_string_lossy().into_owned();
        std::cmp::Reverse(name.split('.').map(|n| n.parse::<u32>().unwrap_or(0)).collect::<Vec<_>>())
    });
    homes
}

fn version_of(program: &Path) -> Option<String> {
    let output = Command::new(program).arg("--version").stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    version_in(&String::from_utf8_lossy(&output.stdout)).filter(|_| output.status.success())
}

/// The first word with digits and a dot: "postgres (PostgreSQL) 18.6", "Redis server v=7.0.15 sha=…", "anvil Version: 1.7.1-v…".
fn version_in(text: &str) -> Option<String> {
    let words = text.split([' ', '\n', '=', '-']);
    words.map(|w| w.trim_start_matches('v')).find(|w| w.contains('.') && w.starts_with(|c: char| c.is_ascii_digit())).map(str::to_owned)
}

fn major(version: &str) -> u32 {
    version.split('.').next().and_then(|n| n.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn program(path: &Path, says: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("#!/bin/sh\necho '{says}'\n")).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// A folder of its own for one test, removed when it ends.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("holdfast-parts-{name}-{}", std::process::id()));
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
    fn each_programs_way_to_state_its_version_is_understood() {
        assert_eq!(version_in("postgres (PostgreSQL) 18.6\n").as_deref(), Some("18.6"));
        assert_eq!(version_in("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)").as_deref(), Some("15.18"));
        assert_eq!(version_in("Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc").as_deref(), Some("7.0.15"));
        assert_eq!(version_in("anvil Version: 1.7.1-v1.7.1\nCommit SHA: 1").as_deref(), Some("1.7.1"));
        assert_eq!(version_in("not found"), None);
    }

    #[test]
    fn every_missing_part_is_named_with_the_command_that_gets_it() {
        let missing = find_in(&[], &[], Path::new("/nowhere"), true).unwrap_err();
        assert_eq!(missing.parts.len(), 3);
        let text = missing.to_string();
        for word in ["PostgreSQL 16", "Redis 7", "anvil", "make tools"] {
            assert!(text.contains(word), "{text}");
        }
    }

    #[test]
    fn the_newest_postgres_is_taken_and_one_below_the_floor_is_refused_by_its_version() {
        let scratch = Scratch::new("floor");
        let tools = scratch.0.join("tools");
        let debian = scratch.0.join("postgresql");
        program(&tools.join("bin/redis-server"), "Redis server v=7.2.1 sha=0");
        program(&debian.join("15/bin/postgres"), "postgres (PostgreSQL) 15.18");
        program(&debian.join("15/bin/initdb"), "");
        let missing = find_in(std::slice::from_ref(&tools), &[], &debian, false).unwrap_err();
        assert_eq!(missing.parts.len(), 1);
        assert!(missing.parts[0].contains("PostgreSQL 16 or newer (found only 15.18"), "{missing}");

        for version in ["9.6", "16.3", "18.6", "17.10"] {
            program(&tools.join(format!("pg/{version}/bin/postgres")), &format!("postgres (PostgreSQL) {version}"));
            program(&tools.join(format!("pg/{version}/bin/initdb")), "");
        }
        let parts = find_in(&[tools], &[], &debian, false).unwrap();
        assert_eq!(parts.postgres_version, "18.6");
        assert_eq!(parts.anvil, None);
    }

    #[test]
    fn a_redis_below_the_floor_is_refused() {
        let scratch = Scratch::new("redis");
        program(&scratch.0.join("redis-server"), "Redis server v=6.2.1 sha=0");
        let missing = find_in(&[], std::slice::from_ref(&scratch.0), Path::new("/nowhere"), false).unwrap_err();
        assert!(missing.to_string().contains("Redis 7 or newer (found only 6.2.1"), "{missing}");
    }
}
