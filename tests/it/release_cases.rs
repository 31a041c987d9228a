//! What becomes of a nonce that was bound and never signed, when its call turns out to revert.

use crate::support::anvil::Mining;
use crate::support::wait::eventually;
use crate::support::world::{SOON, Setup, World};

const OPEN: &str = "jobs WHERE finished_at IS NULL";
const LINEAGES: &str = "SELECT nonce, state FROM holdfast.lineages ORDER BY created_at";
const FENCE: &str = "SELECT next_nonce FROM holdfast.lanes";

fn setup() -> Setup {
    Setup { mining: Mining::OnDemand, ..Setup::default() }.with("QUEUE_LOCK_SECONDS", 10)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jrn_11_an_unsigned_tail_whose_call_reverts_is_given_back_before_its_job_ends() {
    let world = World::with(setup()).await;
    let first = world.serve("all", &[("HOLDFAST_FAIL_POINT", "lane.reserved")]).await;
    let id = world.accept(&first, &world.record()).await;
    assert_eq!(first.exit(SOON).await, -9, "{}", first.tail());
    assert_eq!((world.rows(LINEAGES).await, world.rows(FENCE).await), (vec!["0|allocated".to_owned()], vec!["1".to_owned()]));
    world.anvil.set_failing(true).await;
    let second = world.serve("all", &[]).await;
    world.until_state(&id, "not_actionable").await;
    assert_eq!((world.rows(LINEAGES).await, world.rows(FENCE).await), (vec!["0|abandoned".to_owned()], vec!["0".to_owned()]));
    let proof = world.rows("SELECT proof->>'rule', proof->>'reason' FROM holdfast.lineages").await.concat();
    assert!(proof.starts_with("unsigned_tail|"), "{proof}");
    assert!(world.sent().is_empty(), "nothing was ever sent");
    // The nonce is the next job's, as if it had never been bound.
    world.anvil.set_failing(false).await;
    let next = world.accept(&second, &world.record()).await;
    world.mine_until_none(OPEN, SOON).await;
    assert_eq!(world.state(&next).await, "completed");
    assert_eq!(world.rows(LINEAGES).await, ["0|abandoned", "0|mined"]);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jrn_11_below_the_tail_the_nonce_is_used_up_by_a_no_op_and_the_ones_behind_it_are_mined() {
    let world = World::with(setup()).await;
    let first = world.serve("all", &[("HOLDFAST_FAIL_POINT", "lane.reserved")]).await;
    let id = world.accept(&first, &world.record()).await;
    assert_eq!(first.exit(SOON).await, -9, "{}", first.tail());
    let second = world.serve("all", &[]).await;
    let behind = world.accept(&second, &world.record()).await;
    world.until_state(&behind, "submitted").await;
    assert_eq!(world.rows(LINEAGES).await[0], "0|allocated", "its delivery has not come back yet");
    world.anvil.set_failing(true).await;
    eventually("a no-op is wanted", SOON, async || world.count("lineages WHERE nonce = 0 AND noop_reason = 'refused'").await == 1).await;
    world.anvil.set_failing(false).await;
    world.mine_until_none(OPEN, SOON).await;
    assert_eq!(world.state(&behind).await, "completed");
    assert_eq!(world.rows(LINEAGES).await, ["0|mined", "1|mined"]);
    let purposes =
        world.rows("SELECT a.purpose FROM holdfast.tx_attempts a JOIN holdfast.lineages l ON l.id = a.lineage_id WHERE l.nonce = 0").await;
    assert!(purposes.iter().all(|purpose| purpose == "noop"), "the call itself was never signed: {purposes:?}");
    assert_ne!(world.state(&id).await, "completed");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jrn_11_what_is_signed_is_never_given_back_whatever_a_simulation_says() {
    let world = World::with(setup()).await;
    let first = world.serve("all", &[("HOLDFAST_FAIL_POINT", "journal.committed")]).await;
    let id = world.accept(&first, &world.record()).await;
    assert_eq!(first.exit(SOON).await, -9, "{}", first.tail());
    assert_eq!(world.rows(LINEAGES).await, ["0|signed"]);
    world.anvil.set_failing(true).await;
    world.serve("all", &[]).await;
    world.mine_until_none(OPEN, SOON).await;
    assert_eq!(world.state(&id).await, "reverted", "the chain says so, of the bytes that were stored");
    assert_eq!((world.rows(LINEAGES).await, world.rows(FENCE).await), (vec!["0|reverted".to_owned()], vec!["1".to_owned()]));
    assert_eq!(world.count("tx_attempts").await, 1);
    world.finish().await;
}
