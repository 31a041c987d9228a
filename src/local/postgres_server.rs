//! How the Postgres of the embedded default is run: made once, on loopback only, and never as root. Called by `guard`.

use std::{
    fs, io,
    os::unix::fs::{PermissionsExt, chown},
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use nix::sys::signal::Signal;
use tokio::io::AsyncWriteExt;

use super::{
    child::{Program, open_log, tail},
    folder::{Folder, make_dir, write_private},
    messages::{Fault, Part},
};

pub const DATABASE: &str = "holdfast";
/// Owns the schema, and is the superuser of this private server.
pub const OWNER_LOGIN: &str = "holdfast_owner";
/// What the service logs in as. The migration makes it.
pub const RUNTIME_LOGIN: &str = "holdfast_runtime";

/// Fast shutdown, then immediate: the next start recovers from that.
const STOP: &[(Signal, Duration)] = &[(Signal::SIGINT, Duration::from_secs(20)), (Signal::SIGQUIT, Duration::from_secs(5))];

pub(super) fn url(login: &str, password: &str, port: u16) -> String {
    format!("postgres://{login}:{password}@127.0.0.1:{port}/{DATABASE}")
}

pub(super) fn is_new(folder: &Folder) -> bool {
    !data(folder).join("PG_VERSION").exists()
}

/// The folder of its programs, as the user that runs them can reach it: copied into the data folder if it could not else.
pub(super) fn programs(folder: &Folder, bin: &Path, version: &str) -> Result<PathBuf, Fault> {
    let Some(user) = &folder.user else { return Ok(bin.to_owned()) };
    let real = fs::canonicalize(bin.join("postgres")).map_err(|e| Fault::io(format!("opening {}", bin.display()), &e))?;
    if user.cannot_reach(&real).is_none() {
        return Ok(bin.to_owned());
    }
    let copy = folder.dir.join(format!("postgres-{version}"));
    if !copy.exists() {
        let half = folder.dir.join("postgres-programs.new");
        let home = bin.parent().unwrap_or(bin);
        let _ = fs::remove_dir_all(&half);
        copy_tree(home, &half)
            .and_then(|()| fs::rename(&half, &copy))
            .map_err(|e| Fault::io(format!("copying {} to {}", home.display(), copy.display()), &e))?;
    }
    Ok(copy.join("bin"))
}

fn copy_tree(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    fs::set_permissions(to, fs::Permissions::from_mode(0o755))?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_tree(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), &target)?;
        }
    }
    Ok(())
}

/// Makes the cluster and the database beside their place and moves them there when they are whole, so that a start that was
/// cut off is simply done again.
pub(super) async fn create(folder: &Folder, bin: &Path, durable: bool) -> Result<(), Fault> {
    let half = folder.dir.join("postgres.new");
    if half.exists() {
        fs::remove_dir_all(&half).map_err(|e| Fault::io(format!("removing {}", half.display()), &e))?;
    }
    make_dir(&half, 0o700)?;
    let secret = folder.dir.join("postgres.pw");
    write_private(&secret, folder.settings.owner_password.as_bytes())?;
    if let Some(user) = &folder.user {
        for path in [&half, &secret] {
            chown(path, Some(user.uid), Some(user.gid))
                .map_err(|e| Fault::io(format!("giving {} to {}", path.display(), user.name), &e))?;
        }
    }
    let mut arguments: Vec<String> =
        ["--auth=scram-sha-256", "--encoding=UTF8", "--locale=C.UTF-8", "--no-instructions"].into_iter().map(str::to_owned).collect();
    arguments.extend([format!("--pgdata={}", half.display()), format!("--username={OWNER_LOGIN}")]);
    arguments.push(format!("--pwfile={}", secret.display()));
    if !durable {
        arguments.push("--no-sync".into());
    }
    let made = run_once(folder, program_in(folder, &half, bin, "initdb", arguments), "").await;
    let _ = fs::remove_file(&secret);
    made?;
    // Without a server there is no one to connect, so nobody can come between.
    let single = ["--single", "-D"].into_iter().map(str::to_owned).chain([half.display().to_string(), "postgres".to_owned()]).collect();
    run_once(folder, program_in(folder, &half, bin, "postgres", single), &format!("CREATE DATABASE {DATABASE}\n")).await?;
    fs::rename(&half, data(folder)).map_err(|e| Fault::io(format!("moving {} into place", half.display()), &e))
}

/// Runs to its end; `input` is all it reads.
async fn run_once(folder: &Folder, program: Program, input: &str) -> Result<(), Fault> {
    let log = folder.log(Part::Postgres);
    let io_fault = |e: &io::Error| Fault::io(format!("running {}", program.path.display()), e);
    let out = open_log(&log).map_err(|e| io_fault(&e))?;
    let mut child =
        program.command().stdin(Stdio::piped()).stdout(out).stderr(Stdio::piped()).kill_on_drop(true).spawn().map_err(|e| io_fault(&e))?;
    if let Some(mut stdin) = child.stdin.take() {
        // It may have ended already, and then says why itself.
        let _ = stdin.write_all(input.as_bytes()).await;
    }
    let output = child.wait_with_output().await.map_err(|e| io_fault(&e))?;
    let said = String::from_utf8_lossy(&output.stderr);
    // A single-user server ends well whatever became of its statements.
    if output.status.success() && !said.contains("ERROR:") && !said.contains("FATAL:") {
        return Ok(());
    }
    Err(Fault::Part { part: Part::Postgres, detail: format!("{}{said}", tail(&log)), log })
}

pub(super) fn program(folder: &Folder, bin: &Path, port: u16, durable: bool) -> Program {
    let mut arguments = vec!["-D".to_owned(), data(folder).display().to_string()];
    let durable = if durable { "on" } else { "off" };
    for (key, value) in [
        ("port", port.to_string().as_str()),
        ("listen_addresses", "127.0.0.1"),
        // Nothing of ours uses a socket file, and its path may be no longer than 107 bytes.
        ("unix_socket_directories", ""),
        ("max_connections", "100"),
        ("shared_buffers", "64MB"),
        ("timezone", "UTC"),
        ("log_timezone", "UTC"),
        ("password_encryption", "scram-sha-256"),
        ("fsync", durable),
        ("full_page_writes", durable),
        ("log_line_prefix", "%m [%p] %q%u@%d "),
    ] {
        arguments.extend(["-c".to_owned(), format!("{key}={value}")]);
    }
    program_in(folder, &data(folder), bin, "postgres", arguments)
}

/// Ready when the process of this number says so in its own file.
pub(super) fn answers(folder: &Folder, pid: u32) -> bool {
    let text = fs::read_to_string(pid_file(folder)).unwrap_or_default();
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    lines.first() == Some(&pid.to_string().as_str()) && lines.get(7) == Some(&"ready")
}

/// After a crash of everything at once, the file may name a process that has ended but that nobody waited for; Postgres takes
/// it for a live server, and in a container without an init it stays so for ever. The file goes only if no process works in
/// the data folder.
pub(super) fn forget_the_dead(folder: &Folder) {
    let text = fs::read_to_string(pid_file(folder)).unwrap_or_default();
    let Some(pid) = text.lines().next().and_then(|l| l.trim().parse::<u32>().ok()) else { return };
    let ended = fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|s| s.rsplit_once(')').is_some_and(|(_, r)| r.trim_start().starts_with('Z')));
    if ended && at_work(folder).is_empty() {
        let _ = fs::remove_file(pid_file(folder));
    }
}

/// The processes whose current folder is the data folder: every process of a Postgres server, and nothing else.
pub(super) fn at_work(folder: &Folder) -> Vec<u32> {
    let data = data(folder);
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|e| e.file_name().to_str().and_then(|n| n.parse::<u32>().ok()));
    pids.filter(|pid| fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd == data)).collect()
}

fn data(folder: &Folder) -> PathBuf {
    folder.dir.join(Part::Postgres.word())
}

fn pid_file(folder: &Folder) -> PathBuf {
    data(folder).join("postmaster.pid")
}

fn program_in(folder: &Folder, home: &Path, bin: &Path, name: &str, arguments: Vec<String>) -> Program {
    let libraries = bin.parent().unwrap_or(bin).join("lib");
    Program {
        path: bin.join(name),
        arguments,
        home: home.to_owned(),
        environment: vec![("LC_ALL", "C.UTF-8".into()), ("LD_LIBRARY_PATH", libraries.display().to_string())],
        user: folder.user.clone(),
        stop_signals: STOP,
    }
}
