//! A contract says which signers may work.

use crate::support::anvil::CHAIN_ID;
use crate::support::wait::eventually;
use crate::support::world::{SOON, Setup, World};
use entity::values::Address;
use serde_json::json;

const REGISTRY: Address = Address([0xaa; 20]);
/// Answers with the storage that its second argument names.
const CODE: &str = "0x6024355460005260206000f3";

async fn admit(world: &World, signer: Address, member: bool) {
    let slot = format!("0x{}{}", "00".repeat(12), signer.to_string().trim_start_matches("0x"));
    world.anvil.ask("anvil_setStorageAt", json!([REGISTRY.to_string(), slot, format!("0x{:064x}", u8::from(member))])).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn non_06_a_signer_that_the_contract_does_not_know_takes_no_work_until_it_does() {
    let call = format!("{REGISTRY}/0x91d14854{}{{signer}}", "00".repeat(32));
    let world = World::with(Setup { lanes: 2, ..Setup::default() }.with("TX_SIGNER_MEMBERSHIP", call)).await;
    world.anvil.ask("anvil_setCode", json!([REGISTRY.to_string(), CODE])).await;
    let (member, stranger) = (world.signers[0].address, world.signers[1].address);
    admit(&world, member, true).await;
    let all = world.serve("all", &[]).await;
    let lanes = async || world.rows("SELECT state, split_part(reason, ':', 1) FROM holdfast.lanes ORDER BY state").await;
    eventually("one lane is out", SOON, async || lanes().await == ["active|", "paused|no_member"]).await;
    world.accept_records(&all, 10).await;
    world.until_completed(SOON).await;
    let used = world.rows("SELECT DISTINCT '0x' || encode(signer, 'hex') FROM holdfast.lineages").await;
    assert_eq!(used, [member.to_string().to_lowercase()], "no nonce of {stranger} was bound on lane {CHAIN_ID}");

    // Without a majority nothing changes.
    let mute: Vec<_> = world.providers[1..]
        .iter()
        .map(|provider| provider.reply("eth_call", json!({"error": {"code": -32603, "message": "busy"}})))
        .collect();
    admit(&world, stranger, true).await;
    eventually("it was asked", SOON, async || mute.iter().all(|rule| rule.applied() >= 2)).await;
    assert_eq!(lanes().await, ["active|", "paused|no_member"]);
    mute.into_iter().for_each(|rule| rule.lift());
    eventually("both work", SOON, async || lanes().await == ["active|", "active|"]).await;

    admit(&world, member, false).await;
    eventually("the other is out", SOON, async || lanes().await == ["active|", "paused|no_member"]).await;
    world.accept_records(&all, 5).await;
    world.until_completed(SOON).await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_membership_that_is_no_call_is_refused_at_start() {
    let world = World::start().await;
    let all = world.launch("all", &[("TX_SIGNER_MEMBERSHIP", "hasRole")]);
    assert_ne!(all.exit(SOON).await, 0);
    assert!(all.log.has("TX_SIGNER_MEMBERSHIP"), "{}", all.tail());
    world.finish_open().await;
}
