//! Our records under BullMQ's own Node client and bull-board's adapter. Needs node and a folder with the modules, named by
//! INTEROP_MODULES; without them there is nothing to ask and the test ends.

use crate::{delivery_common::*, support};
use holdfast::delivery::{Card, Counts, Standing, delivery_id};
use std::{path::Path, process::Stdio, time::Duration};

#[tokio::test]
async fn node_clients_and_bull_board_understand_our_records_and_we_survive_theirs() {
    let Ok(modules) = std::env::var("INTEROP_MODULES") else { return };
    let (url, prefix) = support::redis_url_and_prefix();
    let delivery = delivery(&url, &prefix);
    let (handler, mut seen) = recorder();
    let consumer = delivery.consume(options(1), handler);
    let finished = card(job());
    published(&delivery, &[finished]).await;
    next(&mut seen, Duration::from_secs(5)).await;
    until_standing(&delivery, finished, Standing::Finished).await;
    closed(consumer).await;

    let waiting = Card { priority: 7, ..card(job()) };
    let delayed = Card { delay: Duration::from_secs(3600), ..card(job()) };
    published(&delivery, &[waiting, delayed]).await;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/interop/bullmq.mjs");
    let node = tokio::process::Command::new("node")
        .arg(script)
        .envs([("REDIS_URL", url.as_str()), ("PREFIX", prefix.as_str()), ("INTEROP_MODULES", modules.as_str())])
        .envs([("WAITING", waiting), ("DELAYED", delayed), ("FINISHED", finished)].map(|(name, card)| (name, delivery_id(card.job_id, 1))))
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(Duration::from_secs(60), node).await.expect("node ends").expect("node runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    // What Node's worker finished is finished for us; what a Node producer added is not ours and ends as failed.
    assert_eq!(standing(&delivery, waiting).await, Standing::Finished);
    assert_eq!(standing(&delivery, delayed).await, Standing::Finished);
    let (handler, mut seen) = recorder();
    let consumer = delivery.consume(options(1), handler);
    until("the foreign job failed", Duration::from_secs(5), async || {
        delivery.counts().await.is_ok_and(|counts| counts == Counts { completed: 3, failed: 1, ..Counts::default() })
    })
    .await;
    closed(consumer).await;
    assert!(seen.try_recv().is_err());
}
