//! The embedded default with its real parts: what is started answers, nothing outlives its owner, and no two share a folder.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use holdfast::local::{Error, Options, Part, Parts, Running};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use secrecy::{ExposeSecret, SecretString};
use sqlx::{Connection, PgConnection, Row};

/// Set for the second process of a test: the owner that gets killed.
const OWNER_DIR: &str = "HOLDFAST_TEST_OWNER_DIR";

/// A folder of its own for one test, in a place that any user can pass through; removed when it ends.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("holdfast-local-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn options(dir: &Path, parts: Parts) -> Options {
    let mut options = Options::new(dir, parts);
    options.fsync = false;
    options.guard_program = Some(env!("CARGO_BIN_EXE_holdfast").into());
    options
}

fn parts(dir: &Path) -> Parts {
    Parts::find(None, dir, true).expect("`make tools` fetches the parts")
}

async fn start(dir: &Path) -> Result<Running, Error> {
    Running::start(options(dir, parts(dir)), |_| {}).await
}

async fn postgres(running: &Running) -> PgConnection {
    PgConnection::connect(running.owner_url.expose_secret()).await.expect("the owner logs in")
}

/// `user:password@host:port` of a URL, taken apart.
fn authority(url: &SecretString) -> (String, String) {
    let rest = url.expose_secret().split_once("//").expect("a URL").1;
    let rest = rest.split('/').next().expect("a host");
    match rest.rsplit_once('@') {
        Some((login, host)) => (login.rsplit(':').next().unwrap_or_default().to_owned(), host.to_owned()),
        None => (String::new(), rest.to_owned()),
    }
}

fn redis_says(url: &SecretString, commands: &str, bytes: usize) -> std::io::Result<String> {
    let (password, host) = authority(url);
    let mut stream = TcpStream::connect(host)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(format!("AUTH {password}\r\n{commands}").as_bytes())?;
    let mut answer = vec![0; "+OK\r\n".len() + bytes];
    stream.read_exact(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

fn chain_says(url: &SecretString, method: &str) -> std::io::Result<String> {
    let (_, host) = authority(url);
    let mut stream = TcpStream::connect(&host)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":[]}}"#);
    let head =
        format!("POST / HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}", body.len());
    stream.write_all(format!("{head}\r\n\r\n{body}").as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

fn eventually(what: &str, condition: impl Fn() -> bool) {
    let since = Instant::now();
    while !condition() {
        assert!(since.elapsed() < Duration::from_secs(30), "{what}: not so after 30 s");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Every live process that has to do with this folder: by its arguments, or by where it works.
fn processes_of(dir: &Path) -> Vec<String> {
    let name = dir.to_string_lossy().into_owned();
    let entries = fs::read_dir("/proc").expect("/proc").flatten().map(|e| e.path());
    entries
        .filter(|p| p.file_name().is_some_and(|n| n.to_string_lossy().parse::<u32>().is_ok()))
        .filter_map(|p| {
            let arguments = fs::read(p.join("cmdline")).ok()?;
            let arguments = String::from_utf8_lossy(&arguments).replace('\0', " ");
            let works_there = fs::read_link(p.join("cwd")).is_ok_and(|cwd| cwd.starts_with(dir));
            (works_there || arguments.contains(&name)).then(|| format!("{} {arguments}", p.display()))
        })
        .collect()
}

fn is_gone(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with(['Z', 'X']))
}

fn signal(pid: u32, signal: Signal) {
    kill(Pid::from_raw(pid.try_into().expect("a pid")), signal).expect("the process is there");
}

fn pid_of(running: &Running, part: Part) -> u32 {
    running.pids.iter().find(|(p, _)| *p == part).expect("it was started").1
}

/// Runs [`plays_the_owner`] in a process of its own; returns it with the pid of its guard.
fn owner_process(dir: &Path) -> (Child, u32) {
    let mut owner = Command::new(std::env::current_exe().expect("our path"))
        .args(["plays_the_owner", "--nocapture", "--test-threads=1"])
        .env(OWNER_DIR, dir)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the owner starts");
    let lines = BufReader::new(owner.stdout.take().expect("its output")).lines();
    let guard = lines.map_while(Result::ok).find_map(|l| l.split_once("guard=")?.1.trim().parse().ok());
    (owner, guard.expect("the owner says that it is ready"))
}

/// No test of its own: the body of the second process.
#[tokio::test]
async fn plays_the_owner() {
    let Ok(dir) = std::env::var(OWNER_DIR) else { return };
    let running = start(Path::new(&dir)).await.expect("the parts start");
    println!("guard={}", running.guard_pid);
    running.ended().await;
}

#[tokio::test]
async fn what_is_started_answers_and_a_second_start_finds_what_the_first_left() {
    let scratch = Scratch::new("again");
    let first = start(&scratch.0).await.expect("the first start");
    let mut connection = postgres(&first).await;
    sqlx::raw_sql("CREATE TABLE kept (word text); INSERT INTO kept VALUES ('yes')").execute(&mut connection).await.expect("the owner may");
    let row = sqlx::query("SELECT current_setting('server_version_num')::int, current_setting('fsync'), current_setting('server_encoding'), datcollate FROM pg_database WHERE datname = current_database()")
        .fetch_one(&mut connection)
        .await
        .expect("it answers");
    assert!(row.get::<i32, _>(0) >= 160_000);
    assert_eq!((row.get::<&str, _>(1), row.get::<&str, _>(2), row.get::<&str, _>(3)), ("off", "UTF8", "C.UTF-8"));
    let answer = redis_says(&first.redis_url, "CONFIG GET maxmemory-policy\r\n", 44).expect("Redis answers");
    assert!(answer.contains("noeviction"), "{answer}");
    assert_eq!(first.chain_id, Some(31337));
    assert!(chain_says(&first.rpc_url, "eth_chainId").expect("the node answers").contains("0x7a69"));
    let urls = |r: &Running| [&r.owner_url, &r.database_url, &r.redis_url, &r.rpc_url].map(|u| u.expose_secret().to_owned());
    let before = urls(&first);
    connection.close().await.expect("closed");
    first.stop().await.expect("it stops");
    assert_eq!(processes_of(&scratch.0), Vec::<String>::new());

    let second = start(&scratch.0).await.expect("the second start");
    assert_eq!(urls(&second), before);
    let kept: String = sqlx::query_scalar("SELECT word FROM kept").fetch_one(&mut postgres(&second).await).await.expect("the row is there");
    assert_eq!(kept, "yes");
    second.stop().await.expect("it stops, a connection being open");
    assert_eq!(processes_of(&scratch.0), Vec::<String>::new());
}

#[tokio::test]
async fn an_owner_killed_with_sigkill_leaves_no_process_behind() {
    let scratch = Scratch::new("killed");
    let (mut owner, guard) = owner_process(&scratch.0);
    assert!(processes_of(&scratch.0).len() >= 3);
    owner.kill().expect("killed");
    owner.wait().expect("waited for");
    eventually("everything is gone", || is_gone(guard) && processes_of(&scratch.0).is_empty());
}

#[tokio::test]
async fn owner_and_guard_killed_at_once_leave_nothing_that_hinders_the_next_start() {
    let scratch = Scratch::new("both");
    let (mut owner, guard) = owner_process(&scratch.0);
    signal(guard, Signal::SIGKILL);
    owner.kill().expect("killed");
    owner.wait().expect("waited for");
    start(&scratch.0).await.expect("the next start").stop().await.expect("it stops");
    assert_eq!(processes_of(&scratch.0), Vec::<String>::new());
}

#[tokio::test]
async fn a_guard_told_to_end_stops_its_parts_and_its_owner_learns_of_it() {
    let scratch = Scratch::new("term");
    let running = start(&scratch.0).await.expect("it starts");
    signal(running.guard_pid, Signal::SIGTERM);
    tokio::time::timeout(Duration::from_secs(30), running.ended()).await.expect("the owner learns of it");
    eventually("everything is gone", || processes_of(&scratch.0).is_empty());
}

#[tokio::test]
async fn a_folder_in_use_is_refused_with_the_process_that_has_it() {
    let scratch = Scratch::new("twice");
    let first = start(&scratch.0).await.expect("the first");
    match start(&scratch.0).await {
        Err(error @ Error::InUse { pid, .. }) => {
            assert_eq!(pid, std::process::id());
            assert!(error.to_string().contains(&format!("process {pid}")), "{error}");
        }
        other => panic!("{other:?}"),
    }
    assert!(chain_says(&first.rpc_url, "eth_chainId").is_ok(), "the first is unharmed");
    first.stop().await.expect("it stops");
}

#[tokio::test]
async fn a_part_that_is_killed_comes_back_where_it_was() {
    let scratch = Scratch::new("crash");
    let (tell, told) = std::sync::mpsc::channel();
    let running = Running::start(options(&scratch.0, parts(&scratch.0)), move |line| {
        let _ = tell.send(line.to_owned());
    })
    .await
    .expect("it starts");
    for part in [Part::Postgres, Part::Redis, Part::EvmNode] {
        signal(pid_of(&running, part), Signal::SIGKILL);
    }
    eventually("Redis is back", || redis_says(&running.redis_url, "PING\r\n", 7).is_ok_and(|a| a.ends_with("+PONG\r\n")));
    eventually("the node is back", || chain_says(&running.rpc_url, "eth_chainId").is_ok_and(|a| a.contains("0x7a69")));
    let since = Instant::now();
    while PgConnection::connect(running.owner_url.expose_secret()).await.is_err() {
        assert!(since.elapsed() < Duration::from_secs(30), "Postgres is not back after 30 s");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let lines: Vec<String> = told.try_iter().collect();
    assert!(lines.iter().any(|l| l == "Redis ended by itself and was restarted"), "{lines:?}");
    running.stop().await.expect("it stops");
    assert_eq!(processes_of(&scratch.0), Vec::<String>::new());
}

#[tokio::test]
async fn an_owner_that_gives_up_early_leaves_nothing_half_made() {
    let scratch = Scratch::new("early");
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let starting = Running::start(options(&scratch.0, parts(&scratch.0)), move |line| {
        let _ = tell.send(line.to_owned());
    });
    tokio::select! {
        result = starting => panic!("ready too soon: {result:?}"),
        _ = async { while !told.recv().await.is_some_and(|l| l.contains("making a new Postgres")) {} } => {}
    }
    eventually("everything is gone", || processes_of(&scratch.0).is_empty());
    start(&scratch.0).await.expect("the next start").stop().await.expect("it stops");
}

#[tokio::test]
async fn a_part_that_cannot_run_is_named_with_its_log() {
    let scratch = Scratch::new("broken");
    let mut parts = parts(&scratch.0);
    parts.anvil = Some("/bin/false".into());
    match Running::start(options(&scratch.0, parts), |_| {}).await {
        Err(Error::Part { part: Part::EvmNode, log, .. }) => assert!(log.ends_with("evm.log")),
        other => panic!("{other:?}"),
    }
    eventually("everything is gone", || processes_of(&scratch.0).is_empty());
}

#[tokio::test]
async fn an_operators_own_node_is_used_and_none_is_started() {
    let scratch = Scratch::new("external");
    let mut options = options(&scratch.0, Parts::find(None, &scratch.0, false).expect("`make tools` fetches the parts"));
    options.external_rpc = Some("http://127.0.0.1:1".into());
    let running = Running::start(options, |_| {}).await.expect("it starts");
    assert_eq!(running.rpc_url.expose_secret(), "http://127.0.0.1:1");
    assert_eq!((running.pids.len(), running.chain_id), (2, None));
    assert!(!format!("{running:?}").contains("postgres://"), "no secret is shown");
    running.stop().await.expect("it stops");
}

/// A checkout in root's home is nothing unusual, and the user that runs Postgres cannot look into it.
#[tokio::test]
async fn programs_out_of_reach_of_the_user_that_runs_postgres_are_copied_to_where_they_are_not() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let (scratch, hidden) = (Scratch::new("reach"), Scratch::new("hidden"));
    let mut parts = parts(&scratch.0);
    fs::create_dir_all(&hidden.0).expect("made");
    fs::set_permissions(&hidden.0, fs::Permissions::from_mode(0o700)).expect("hidden");
    let home = parts.postgres.parent().expect("a folder above").to_owned();
    assert!(Command::new("cp").arg("-a").arg(&home).arg(hidden.0.join("pg")).status().expect("cp").success());
    parts.postgres = hidden.0.join("pg/bin");
    let running = Running::start(options(&scratch.0, parts.clone()), |_| {}).await.expect("it starts");
    postgres(&running).await;
    running.stop().await.expect("it stops");

    match Running::start(options(&hidden.0.join("data"), parts), |_| {}).await {
        Err(Error::Unreachable { at, .. }) => assert_eq!(at, hidden.0),
        other => panic!("{other:?}"),
    }
}
