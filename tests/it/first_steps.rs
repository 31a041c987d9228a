//! What a newcomer does wrong first, and what is said about it: before anything is started, with the exit code that scripts rely on.

use crate::support::parts::{HOLDFAST, serial};
use crate::support::process::Process;
use crate::support::world::{SOON, World};
use secrecy::ExposeSecret;
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::{Path, PathBuf};

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("holdfast-{name}-{}-{}", std::process::id(), serial())))
    }

    fn text(&self) -> String {
        self.0.display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Exit code and all that was said.
async fn run(arguments: &[&str], environment: &[(&str, &str)]) -> (i32, Vec<String>) {
    let environment: BTreeMap<_, _> = environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let process = Process::spawn(&arguments.join(" "), HOLDFAST, arguments, &environment);
    let code = process.exit(SOON).await;
    (code, process.whole_log().await)
}

/// The same for a program: every line is JSON, and the last is the problem.
async fn problem(arguments: &[&str], environment: &[(&str, &str)]) -> (i32, Value) {
    let (code, lines) = run(&[arguments, &["-o", "json"]].concat(), environment).await;
    let lines: Vec<Value> = lines.iter().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}"))).collect();
    (code, lines.last().cloned().unwrap_or_default())
}

#[tokio::test]
async fn a_command_with_servers_of_its_own_refuses_to_be_given_others_and_to_replace_required_ones() {
    let folder = Folder::new("own");
    let data = folder.text();
    let (pg, redis) = (("DATABASE_URL", "postgres://u@127.0.0.1:1/d"), ("REDIS_URL", "redis://127.0.0.1:1"));
    for command in ["dev", "demo", "bench"] {
        let arguments = [command, "--data", &data];
        let (code, told) = problem(&arguments, &[("INFRASTRUCTURE_REQUIRED", "true")]).await;
        assert_eq!(code, 2, "{command}: {told}");
        assert!(told["detail"].as_str().is_some_and(|detail| detail.contains("INFRASTRUCTURE_REQUIRED is true")), "{told}");
        for given in [&[pg, redis][..], &[pg], &[redis]] {
            let (code, told) = problem(&arguments, given).await;
            assert_eq!((code, told["gate"].as_str()), (4, Some("embedded-default")), "{command} {given:?}: {told}");
            assert!(told["next"].as_str().is_some_and(|next| next.starts_with("unset DATABASE_URL and REDIS_URL")), "{told}");
        }
    }
    assert!(!folder.0.exists(), "nothing was begun");
}

#[tokio::test]
async fn a_taken_address_is_found_before_anything_starts_and_is_named_with_its_flag() {
    let folder = Folder::new("taken");
    let data = folder.text();
    let held = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = held.local_addr().unwrap().to_string();
    let said = |told: &Value| told["detail"].as_str().unwrap_or_default().to_owned();
    for (flag, other, name) in [("--http", "--admin", "HTTP_LISTEN (--http)"), ("--admin", "--http", "ADMIN_LISTEN (--admin)")] {
        let (code, told) = problem(&["dev", "--data", &data, flag, &taken, other, "127.0.0.1:0"], &[]).await;
        assert_eq!((code, said(&told)), (2, format!("{name}: {taken} is taken by another listener")), "{told}");
    }
    let (code, told) = problem(&["dev", "--data", &data, "--http", "127.0.0.1:8", "--admin", "127.0.0.1:8"], &[]).await;
    assert!(code == 2 && said(&told).contains("are both 127.0.0.1:8"), "{told}");
    assert!(!folder.0.exists(), "nothing was begun");
    let service = [
        ("DATABASE_URL", "postgres://u@127.0.0.1:1/d"),
        ("REDIS_URL", "redis://127.0.0.1:1"),
        ("RPC_URL", "http://127.0.0.1:1"),
        ("HTTP_LISTEN", taken.as_str()),
        ("ADMIN_LISTEN", "127.0.0.1:0"),
    ];
    let (code, told) = problem(&["serve", "--role", "engine"], &service).await;
    assert!(code == 2 && said(&told).contains(&taken), "{told}");
}

#[tokio::test]
async fn what_can_be_no_data_folder_and_broken_secrets_are_told_with_what_to_do() {
    let (file, broken) = (Folder::new("file"), Folder::new("secrets"));
    std::fs::write(&file.0, "x").unwrap();
    let dev = async |data: &Path| {
        let data = data.display().to_string();
        problem(&["dev", "--data", &data, "--http", "127.0.0.1:0", "--admin", "127.0.0.1:0"], &[]).await
    };
    for unfit in [file.0.as_path(), &file.0.join("below"), Path::new("/proc/holdfast")] {
        let (code, told) = dev(unfit).await;
        assert_eq!((code, told["next"].as_str()), (2, Some("choose another folder: --data DIR")), "{told}");
        assert!(told["detail"].as_str().is_some_and(|detail| detail.contains(&unfit.display().to_string())), "{told}");
    }
    std::fs::create_dir(&broken.0).unwrap();
    for text in ["{", r#"{"journal_key":"c0ffee"}"#, r#"{"journal_key":"0x00","signers":["c0ffee"],"admin_token":"x"}"#] {
        std::fs::write(broken.0.join("secrets.json"), text).unwrap();
        let (code, told) = dev(&broken.0).await;
        let path = broken.0.join("secrets.json").display().to_string();
        assert!(code == 2 && told["detail"].as_str().is_some_and(|detail| detail.contains(&path)), "{told}");
        assert!(told["next"].as_str().is_some_and(|next| next.ends_with(&format!("rm -r {}", broken.0.display()))), "{told}");
        assert!(!told.to_string().contains("c0ffee"), "a secret is shown");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn why_postgres_is_not_reached_is_told_by_doctor_and_by_the_service() {
    let world = World::start().await;
    let right = world.database.runtime.expose_secret().to_owned();
    let (before, host) = right.rsplit_once('@').unwrap();
    let (user, _) = before.rsplit_once(':').unwrap();
    let wrong_password = format!("{user}:c0ffee@{host}");
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let refused = format!("postgres://u:c0ffee@{nobody}/d");
    let unknown = "postgres://u:c0ffee@nowhere.invalid/d".to_owned();
    for (url, cause) in [
        (&wrong_password, "password authentication failed"),
        (&refused, "refuses connections: no server listens there"),
        (&unknown, "the host of nowhere.invalid:5432 is not known"),
    ] {
        let environment = [("DATABASE_URL", url.as_str()), ("REDIS_URL", &world.redis_url), ("DB_CONNECTION_TIMEOUT", "1000")];
        let (code, lines) = run(&["doctor"], &environment).await;
        let told = lines.iter().find(|line| line.contains("FAIL") && line.contains("postgres ")).cloned().unwrap_or_default();
        assert!(code == 10 && told.contains(cause), "{lines:#?}");
        assert!(!lines.join("\n").contains("c0ffee"), "a secret is shown");
        let serve = world.launch("engine", &environment);
        serve.logged(cause, SOON).await;
        serve.kill9();
    }
    world.finish_open().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_warns_of_what_is_most_likely_not_meant() {
    let world = World::start().await;
    let all = world.launch("all", &[("SIGNER_KEYS", ""), ("TX_CONFIRMATION", "3"), ("DATABSE_URL", "c0ffee")]);
    all.logged("SIGNER_KEYS: is not set", SOON).await;
    all.logged("TX_CONFIRMATION: is no setting and changes nothing: is TX_CONFIRMATIONS meant?", SOON).await;
    all.logged("DATABSE_URL: is no setting and changes nothing: is DATABASE_URL meant?", SOON).await;
    assert!(!all.log.has("c0ffee"));
    all.kill9();
    world.finish_open().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_process_is_shown_as_silent_long_before_its_row_is_marked() {
    let world = World::start().await;
    let relayer = world.serve("relayer", &[("INSTANCE_ID", "killed")]).await;
    relayer.kill9();
    // As if three heartbeats had been missed: the clock of the database is the one that counts.
    sqlx::query("UPDATE holdfast.workers SET heartbeat_at = now() - interval '10 seconds' WHERE instance = 'killed'")
        .execute(&world.pool)
        .await
        .expect("the row is there");
    let workers = crate::support::command::data(&world, &["workers", "list"]).await;
    let worker = &workers["items"][0];
    assert_eq!((&worker["state"], &worker["live"], &worker["silent"]), (&"active".into(), &false.into(), &true.into()), "{worker}");
    let told = crate::support::command::told(&world, &["workers", "list"]).await;
    assert!(told.lines().any(|line| line.contains("killed") && line.contains("silent")), "{told}");
    let status = crate::support::command::told(&world, &["status"]).await;
    assert!(status.contains("worker killed is silent") && status.contains("0 live"), "{status}");
    world.finish_open().await;
}

#[tokio::test]
async fn a_command_that_needs_no_redis_is_told_of_the_other_faults_alone() {
    let environment = [("DATABASE_URL", "postgres://u@127.0.0.1:1/d"), ("DB_CONNECTION_TIMEOUT", "1000"), ("TX_CONFIRMATIONS", "x")];
    let (code, told) = problem(&["status"], &environment).await;
    assert_eq!((code, told["title"].as_str()), (2, Some("one setting is wrong")), "{told}");
    assert!(told["detail"].as_str().is_some_and(|detail| detail.starts_with("TX_CONFIRMATIONS: ")), "{told}");
    assert_eq!(problem(&["status"], &environment[..2]).await.0, 7, "with none it asks Postgres");
}

#[test]
fn the_makefile_asks_cargo_where_the_program_is() {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("Makefile")).unwrap();
    let commands: Vec<_> = text.lines().filter(|line| line.starts_with('\t') && line.contains("target/")).collect();
    assert!(commands.is_empty(), "CARGO_TARGET_DIR may be anywhere: {commands:?}");
}
