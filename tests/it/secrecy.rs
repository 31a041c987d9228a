//! Nothing that must stay secret is told: not in logs at their most talkative, not in answers, metrics or stored errors.

use crate::support::wait::eventually;
use crate::support::world::{SOON, Setup, World};
use std::time::Duration;

/// As a provider's key stands in the path and the query of its URL.
const PATH_CANARY: &str = "c4nar1e0path7d3adb33f";
const QUERY_CANARY: &str = "c4nar1e0query5f00dcafe";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s_01_s_02_no_secret_is_told_however_much_is_logged_and_whatever_fails() {
    let world = World::with(Setup { postgres_proxy: true, ..Setup::default() }.with("LOG_LEVEL", "trace")).await;
    let urls: Vec<String> =
        world.providers.iter().map(|provider| format!("{}/v3/{PATH_CANARY}?apikey={QUERY_CANARY}", provider.url)).collect();
    let all = world.serve("all", &[("RPC_URL", &urls[0]), ("RPC_READ_URLS", &urls.join(","))]).await;
    world.accept_records(&all, 3).await;
    world.until_completed(SOON).await;
    // Every kind of failure tells something.
    let writer = world.writer();
    let faults = [
        writer.reset("eth_sendRawTransaction").times(2),
        writer.status("eth_getBlockByNumber", 500).times(2),
        writer.hang("eth_estimateGas", Duration::from_secs(3)).times(1),
    ];
    let postgres = world.postgres.as_ref().expect("a proxy");
    world.accept_records(&all, 3).await;
    postgres.reset();
    eventually("the faults were met", SOON, async || faults[0].applied() > 0).await;
    let wrong =
        world.client.get(format!("{}/v1/jobs", all.http)).bearer_auth(format!("{}x", world.api_key)).send().await.expect("an answer");
    let mut told = wrong.text().await.expect("text");
    drop(faults);
    world.writer().heal();
    world.until_completed(SOON).await;
    for path in ["metrics", "readyz", "admin/v1/rpc", "admin/v1/overview"] {
        let answer = world.client.get(format!("{}/{path}", all.admin)).bearer_auth(&world.admin_token).send().await.expect("an answer");
        told.push_str(&answer.text().await.expect("text"));
    }
    told.push_str(&world.rows("SELECT * FROM holdfast.job_attempts").await.join("\n"));
    told.push_str(&world.rows("SELECT error_type, error_title, error_detail FROM holdfast.jobs").await.join("\n"));
    told.push_str(&all.log.lines().join("\n"));
    for canary in [PATH_CANARY, QUERY_CANARY] {
        assert!(!told.to_lowercase().contains(canary), "{canary}: {:?}", told.lines().find(|line| line.to_lowercase().contains(canary)));
    }
    for secret in world.secrets() {
        assert!(!told.contains(secret.trim_start_matches("0x")), "a secret is told");
    }
    world.finish().await;
}
