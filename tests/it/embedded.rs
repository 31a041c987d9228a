//! The embedded default as a stranger meets it: `dev` and a small `demo`, with everything they start and stop.

use crate::support::parts::{HOLDFAST, serial};
use crate::support::process::Process;
use crate::support::wait::{eventually, found};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

const START: Duration = Duration::from_secs(90);

fn folder(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("holdfast-{name}-{}-{}", std::process::id(), serial()))
}

fn run(arguments: &[&str]) -> Process {
    Process::spawn(arguments[0], HOLDFAST, arguments, &BTreeMap::new())
}

/// Live processes that name the folder or work in it.
fn left_in(dir: &Path) -> Vec<String> {
    let name = dir.display().to_string();
    let pids = std::fs::read_dir("/proc").expect("/proc").flatten().map(|entry| entry.path());
    pids.filter_map(|path| {
        let arguments = std::fs::read(path.join("cmdline")).ok()?;
        let arguments = String::from_utf8_lossy(&arguments).replace('\0', " ");
        let there = std::fs::read_link(path.join("cwd")).is_ok_and(|cwd| cwd.starts_with(dir));
        (there || arguments.contains(&name)).then_some(arguments)
    })
    .collect()
}

async fn all_gone(dir: &Path) {
    eventually("everything it started is gone", Duration::from_secs(60), async || left_in(dir).is_empty()).await;
    let _ = std::fs::remove_dir_all(dir);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_small_demo_loses_nothing_doubles_nothing_and_leaves_no_gap() {
    let dir = folder("demo");
    let data = dir.display().to_string();
    let demo = run(&["demo", "--jobs", "60", "--lanes", "2", "--data", &data]);
    let code = demo.exit(START * 2).await;
    assert_eq!(code, 0, "{}", demo.tail());
    eventually("its last line was read", Duration::from_secs(5), async || demo.log.has("0 nonce gaps")).await;
    assert!(demo.log.has("demo: 60 jobs, 60 effects, 0 lost, 0 duplicated, 0 nonce gaps"), "{}", demo.tail());
    assert!(demo.log.lines().iter().any(|line| line.starts_with("relayer-1") && line.ends_with(" lost")), "{}", demo.tail());
    all_gone(&dir).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dev_says_how_it_is_reached_takes_a_job_to_its_end_and_stops_all_it_started() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let dir = folder("dev");
    let data = dir.display().to_string();
    let dev = run(&[
        "dev",
        "-o",
        "json",
        "--http",
        "127.0.0.1:0",
        "--admin",
        "127.0.0.1:0",
        "--data",
        &data,
        "--block-time",
        "0.2",
        "--lanes",
        "1",
    ]);
    let ready: Value = found("the ready line", START, async || {
        assert!(dev.is_alive(), "{}", dev.tail());
        dev.log.lines().iter().filter_map(|line| serde_json::from_str::<Value>(line).ok()).find(|line| line["event"] == "ready")
    })
    .await;
    for field in
        ["http", "admin", "rpc_url", "chain_id", "pool", "signers", "api_key", "recorder", "database_url", "redis_url", "admin_token"]
    {
        assert!(!ready[field].is_null(), "{field} is missing");
    }
    let text = |field: &str| ready[field].as_str().unwrap_or_default().to_owned();
    let http = text("http");
    let http = if http.starts_with("http") { http } else { format!("http://{http}") };
    let client = reqwest::Client::builder().no_proxy().build().expect("a client");
    let overview = client.get(format!("{}/admin/v1/overview", text("admin"))).bearer_auth(text("admin_token")).send().await;
    assert_eq!(overview.expect("an answer").status(), 200);
    // A second one in the same folder is refused by a gate, and the first does not notice.
    let second = run(&["dev", "-o", "json", "--http", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--data", &data]);
    assert_eq!(second.exit(START).await, 4, "{}", second.tail());
    let told: Value = serde_json::from_str(second.whole_log().await.last().expect("a problem")).expect("JSON");
    assert_eq!((&told["gate"], &told["code"]), (&json!("data-folder-in-use"), &json!("refused")), "{told}");
    let body = json!({
        "kind": "contract_call", "chain_id": ready["chain_id"], "pool": ready["pool"], "to": ready["recorder"],
        "function": "record(bytes32)", "args": [format!("0x{:064x}", 7)],
    });
    let submitted = client
        .post(format!("{http}/v1/jobs"))
        .bearer_auth(text("api_key"))
        .header("idempotency-key", "one")
        .json(&body)
        .send()
        .await
        .expect("an answer");
    assert_eq!(submitted.status(), 202, "{}", dev.tail());
    let id = serde_json::from_str::<Value>(&submitted.text().await.unwrap()).unwrap()["id"].as_str().unwrap().to_owned();
    eventually("the job is completed", START, async || {
        let answer = client.get(format!("{http}/v1/jobs/{id}")).bearer_auth(text("api_key")).send().await;
        let Ok(answer) = answer else { return false };
        answer.text().await.is_ok_and(|text| text.contains("\"completed\""))
    })
    .await;
    assert_eq!(dev.term(Duration::from_secs(60)).await, 0, "{}", dev.tail());
    all_gone(&dir).await;
}
