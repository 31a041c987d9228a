//! The endpoints of each chain: that they are on the chain, that enough of them are independent, and that their wire is closed.

use super::{Check, is_local};
use crate::chain::{Chain as _, EndpointView, Pool};
use crate::config::{Chain, Config};
use secrecy::ExposeSecret;

/// Two of three decide, and one may fail or lie.
const HOSTS_MIN: usize = 3;

pub(super) async fn examine(config: &Config) -> Vec<Check> {
    futures::future::join_all(config.chains.iter().map(one)).await.into_iter().flatten().collect()
}

async fn one(chain: &Chain) -> Vec<Check> {
    let name = |what: &str| format!("chain.{}.{what}", chain.id);
    let mut checks = vec![hosts(chain)];
    match Pool::connect(chain).await {
        Ok(pool) => {
            checks
                .push(Check::ok(name("identity"), format!("a majority of the endpoints and the one for writes are on chain {}", chain.id)));
            pool.probe().await;
            for view in pool.endpoints() {
                checks.extend(silent(chain.id, &view));
                checks.extend(able(chain, &view));
            }
        }
        Err(error) => checks.push(Check::fail(name("identity"), error.to_string(), "look at RPC_URL, RPC_READ_URLS and CHAIN_ID")),
    }
    let open = chain.read_urls.iter().chain([&chain.rpc_url]).filter(|url| {
        let url = url.expose_secret();
        !url.to_ascii_lowercase().starts_with("https://") && !is_local(url)
    });
    match open.count() {
        0 => {}
        count => checks.push(Check::warn(
            name("tls"),
            format!("{count} endpoints are reached without encryption"),
            "use https:// in RPC_URL and RPC_READ_URLS",
        )),
    }
    checks
}

fn hosts(chain: &Chain) -> Check {
    let (name, found) = (format!("chain.{}.hosts", chain.id), chain.distinct_hosts());
    if found >= HOSTS_MIN {
        Check::ok(name, format!("{found} independent hosts vote"))
    } else if chain.single_endpoint {
        Check::ok(name, "one endpoint is the whole quorum: development only")
    } else {
        Check::warn(
            name,
            format!("{found} independent hosts vote, {HOSTS_MIN} are needed to sign"),
            "set RPC_READ_URLS to endpoints on three hosts",
        )
    }
}

/// An endpoint that did not show the right chain; the majority may be sound without it.
fn silent(chain: u64, view: &EndpointView) -> Option<Check> {
    let name = format!("chain.{chain}.endpoint.{}", view.name);
    match view.chain_id_ok {
        Some(true) => None,
        Some(false) => Some(Check::fail(name, "it is on another chain", "take it out of RPC_READ_URLS")),
        None => Some(Check::warn(name, "it has not shown its chain id", "look at the endpoint, and at its key")),
    }
}

/// What it can do, and what that costs us.
fn able(chain: &Chain, view: &EndpointView) -> Option<Check> {
    let found = view.capabilities;
    let batch = found.batch_requests?;
    let name = format!("chain.{}.endpoint.{}.capabilities", chain.id, view.name);
    let word = |known: Option<bool>| known.map_or("unknown", |known| if known { "yes" } else { "no" });
    let bytes = found.request_bytes.map_or("unknown".to_owned(), |bytes| format!("{} KiB", bytes / 1024));
    let (finalized, receipts) = (word(found.finalized_tag), word(found.block_receipts));
    let told = format!("batches of {batch}, requests of {bytes}, finalized tag: {finalized}, block receipts: {receipts}");
    Some(if batch < chain.batch_requests {
        Check::warn(name, told, "it takes smaller batches than RPC_BATCH_REQUESTS: work through it is slower")
    } else {
        Check::ok(name, told)
    })
}

#[cfg(test)]
mod tests {
    use super::super::Status;
    use super::*;

    #[test]
    fn too_few_hosts_are_a_warning_but_in_development() {
        let mut chain = Chain::at(1, "http://127.0.0.1:1");
        assert_eq!(hosts(&chain).status, Status::Ok);
        chain.single_endpoint = false;
        assert_eq!(hosts(&chain).status, Status::Warn);
        chain.read_urls = ["https://a.example", "https://b.example", "https://c.example"].into_iter().map(Into::into).collect();
        assert_eq!(hosts(&chain).status, Status::Ok);
    }
}
