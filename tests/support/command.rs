//! The program's commands as an operator runs them beside the services of a world.

use super::parts::HOLDFAST;
use super::process::Process;
use super::world::{SOON, World};
use secrecy::ExposeSecret;
use serde_json::Value;
use std::collections::BTreeMap;

fn environment(world: &World) -> BTreeMap<String, String> {
    [
        ("DATABASE_URL", world.database.runtime.expose_secret().to_owned()),
        ("OPERATOR_ID", "tester".to_owned()),
        ("TX_CONFIRMATIONS", world.setting("TX_CONFIRMATIONS").to_owned()),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value))
    .collect()
}

/// What a command says to people. It has to succeed.
pub async fn told(world: &World, arguments: &[&str]) -> String {
    let process = Process::spawn(&arguments.join(" "), HOLDFAST, arguments, &environment(world));
    assert_eq!(process.exit(SOON).await, 0, "{}", process.tail());
    process.whole_log().await.join("\n")
}

/// The `data` of what a command says to programs.
pub async fn data(world: &World, arguments: &[&str]) -> Value {
    let text = told(world, &[arguments, &["-o", "json"]].concat()).await;
    let document = text.lines().find(|line| line.starts_with('{')).unwrap_or_else(|| panic!("no document in {text}"));
    serde_json::from_str::<Value>(document).expect("JSON")["data"].take()
}

/// The exit code of a command and all it said, with more of the environment.
pub async fn run(world: &World, arguments: &[&str], more: &[(&str, &str)]) -> (i32, String) {
    let mut environment = environment(world);
    environment.extend(more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    let process = Process::spawn(&arguments.join(" "), HOLDFAST, arguments, &environment);
    let code = process.exit(SOON).await;
    (code, process.whole_log().await.join("\n"))
}
