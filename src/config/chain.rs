//! Owns what the operator sets of a chain: its endpoints, how sure an outcome has to be, and what a transaction may cost.
//! Never asks an endpoint. Read by `chain`, the lane actors and the jobs.

use super::fault::Problem;
use super::layers::{Layers, Overrides, Section};
use super::membership::Membership;
use super::rpc_words::{self, ErrorOverride};
use super::url;
use entity::states::ChainProfile;
use entity::values::{Address, Wei};
use secrecy::{ExposeSecret, SecretString};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The variables that set something of a chain, and so cannot be used when a file lists several.
const VARIABLES: [&str; 29] = [
    "CHAIN_ID",
    "RPC_URL",
    "RPC_READ_URLS",
    "RPC_CIRCUIT_COOLDOWN_MILLISECONDS",
    "RPC_TIMEOUT_MILLISECONDS",
    "RPC_HEDGE_MILLISECONDS",
    "RPC_HEAD_POLL_MILLISECONDS",
    "RPC_BATCH_REQUESTS",
    "RPC_ERROR_OVERRIDES",
    "RPC_BROADCAST_URLS",
    "RPC_REQUESTS_PER_SECOND",
    "TX_CONFIRMATIONS",
    "TX_REORG_LOOKBACK_BLOCKS",
    "TX_RECONCILE_SECONDS",
    "TX_STUCK_SECONDS",
    "TX_FEE_BUMP_BASIS_POINTS",
    "TX_MAX_FEE_PER_GAS_WEI",
    "TX_MAX_REPLACEMENTS",
    "TX_NOOP_MAX_FEE_PER_GAS_WEI",
    "TX_MIN_PRIORITY_FEE_PER_GAS_WEI",
    "TX_GAS_BUFFER_BASIS_POINTS",
    "TX_CHAIN_PROFILE",
    "TX_LANE_WIDTH",
    "TX_LANE_WIDTHS",
    "TX_MAX_TOTAL_FEE_WEI",
    "TX_MAX_BLOCK_GAS_SHARE_BASIS_POINTS",
    "TX_SIGNER_BALANCE_FLOOR_WEI",
    "TX_SIGNER_MEMBERSHIP",
    Chain::SINGLE_ENDPOINT,
];

const SCHEMES: &str = "http:// or https://";
const MAX_BPS: u32 = 100_000;
const WIDTH_MAX: u32 = 10_000;

#[derive(Clone, Debug)]
pub struct Chain {
    pub id: u64,
    /// The one endpoint that transactions are sent to.
    pub rpc_url: SecretString,
    /// The endpoints that read and vote; never empty, the endpoint of writes alone if none was set.
    pub read_urls: Vec<SecretString>,
    /// Endpoints that get every transaction too; empty by default.
    pub broadcast_urls: Vec<SecretString>,
    pub circuit_cooldown: Duration,
    pub timeout: Duration,
    pub hedge: Duration,
    pub head_poll: Duration,
    pub confirmations: u64,
    pub reorg_lookback: u64,
    pub reconcile: Duration,
    pub stuck: Duration,
    pub fee_bump_bps: u32,
    pub max_fee_per_gas: Wei,
    pub max_replacements: u32,
    /// What a no-op that uses a nonce up may offer; at least `max_fee_per_gas`.
    pub noop_max_fee_per_gas: Wei,
    pub min_priority_fee: Wei,
    pub gas_buffer_bps: u32,
    /// The whole fee that no transaction may pass; zero for none.
    pub max_total_fee: Wei,
    /// The part of a block's gas that one transaction may ask for.
    pub block_gas_share_bps: u32,
    pub profile: ChainProfile,
    /// Most open nonces past the chain's latest; zero where the profile says.
    pub lane_width: u32,
    /// The same for single signers.
    pub lane_widths: BTreeMap<Address, u32>,
    /// A signer that holds less takes no work.
    pub signer_balance_floor: Wei,
    /// Who says which signers may work, where somebody does.
    pub membership: Option<Membership>,
    /// Most calls in one JSON-RPC batch.
    pub batch_requests: usize,
    /// Most calls a second to one endpoint; 0 for no limit.
    pub requests_per_second: u32,
    pub error_overrides: Vec<ErrorOverride>,
    /// The exception for development: one host may be the whole quorum.
    pub single_endpoint: bool,
}

impl Chain {
    /// Set by the program alone (`Overrides`), never by a file or the environment.
    pub const SINGLE_ENDPOINT: &'static str = "RPC_SINGLE_ENDPOINT";

    /// The defaults, for a development chain with one endpoint.
    #[must_use]
    pub fn at(id: u64, rpc_url: impl Into<String>) -> Self {
        let overrides = Overrides::default().with(Self::SINGLE_ENDPOINT, "true");
        let rpc_url = SecretString::from(rpc_url.into());
        let read = Self::read(&Layers::new(None, &|_| None, &overrides).section("chain"), rpc_url.clone());
        Self { id, read_urls: vec![rpc_url], ..read }
    }

    /// The hosts that vote, each once.
    #[must_use]
    pub fn distinct_hosts(&self) -> usize {
        let hosts: BTreeSet<_> = self.read_urls.iter().filter_map(|url| url::host(url.expose_secret())).collect();
        hosts.len()
    }

    pub(super) fn read_all(layers: &Layers<'_>) -> Vec<Self> {
        let sections = layers.chains();
        if sections.is_empty() {
            return Self::read_single(layers).into_iter().collect();
        }
        if sections.len() > 1 {
            for name in VARIABLES.into_iter().filter(|name| *name != Self::SINGLE_ENDPOINT && layers.is_set_outside(name)) {
                layers.fault(name, Problem::AmbiguousChain(sections.len()));
            }
        }
        let mut seen = BTreeSet::new();
        let mut chains = Vec::with_capacity(sections.len());
        for section in &sections {
            let Some(rpc_url) = Self::rpc_url(section) else { continue };
            let chain = Self::read(section, rpc_url);
            if !seen.insert(chain.id) {
                layers.fault(section.name_of("id", "CHAIN_ID"), Problem::DuplicateChain(chain.id));
            }
            chains.push(chain);
        }
        chains
    }

    /// Without an RPC_URL there is no chain, but its other settings are still looked at.
    fn read_single(layers: &Layers<'_>) -> Option<Self> {
        let section = layers.section("chain");
        let set = section.is_given("rpc_url", "RPC_URL");
        let read_only = section.is_given("read_urls", "RPC_READ_URLS");
        let rpc_url = if set || read_only { Self::rpc_url(&section) } else { None };
        let chain = Self::read(&section, rpc_url.clone().unwrap_or_default());
        rpc_url.map(|_| chain)
    }

    fn rpc_url(from: &Section<'_>) -> Option<SecretString> {
        if !from.is_given("rpc_url", "RPC_URL") {
            from.layers().fault(from.name_of("rpc_url", "RPC_URL"), Problem::Required);
            return None;
        }
        let url = from.secret("rpc_url", "RPC_URL")?;
        if !url::has_host(url.expose_secret(), &["http", "https"]) {
            from.layers().fault(from.name_of("rpc_url", "RPC_URL"), Problem::NotAUrl(SCHEMES));
            return None;
        }
        Some(url)
    }

    fn read(from: &Section<'_>, rpc_url: SecretString) -> Self {
        let id = from.integer("id", "CHAIN_ID", 1, i64::MAX.unsigned_abs());
        let single_endpoint = from.layers().inside_flag(Self::SINGLE_ENDPOINT);
        let mut read_urls = Self::voters(from, id, single_endpoint);
        if read_urls.is_empty() {
            read_urls.push(rpc_url.clone());
        }
        let max_fee_per_gas = from.sound_wei("max_fee_per_gas_wei", "TX_MAX_FEE_PER_GAS_WEI");
        let min_priority_fee = from.sound_wei("min_priority_fee_per_gas_wei", "TX_MIN_PRIORITY_FEE_PER_GAS_WEI");
        if max_fee_per_gas.is_some_and(|max| min_priority_fee.is_some_and(|min| min > max)) {
            let name = from.name_of("min_priority_fee_per_gas_wei", "TX_MIN_PRIORITY_FEE_PER_GAS_WEI");
            from.layers().fault(name, Problem::Above("TX_MAX_FEE_PER_GAS_WEI"));
        }
        let noop_max_fee_per_gas = from.sound_wei("noop_max_fee_per_gas_wei", "TX_NOOP_MAX_FEE_PER_GAS_WEI");
        if noop_max_fee_per_gas.is_some_and(|noop| max_fee_per_gas.is_some_and(|max| max > noop)) {
            let name = from.name_of("max_fee_per_gas_wei", "TX_MAX_FEE_PER_GAS_WEI");
            from.layers().fault(name, Problem::Above("TX_NOOP_MAX_FEE_PER_GAS_WEI"));
        }
        Self {
            id,
            rpc_url,
            read_urls,
            broadcast_urls: Self::broadcasters(from),
            circuit_cooldown: from.millis("circuit_cooldown_ms", "RPC_CIRCUIT_COOLDOWN_MILLISECONDS", 1),
            timeout: from.millis("timeout_ms", "RPC_TIMEOUT_MILLISECONDS", 1),
            hedge: from.millis("hedge_ms", "RPC_HEDGE_MILLISECONDS", 1),
            head_poll: from.millis("head_poll_ms", "RPC_HEAD_POLL_MILLISECONDS", 1),
            confirmations: from.integer("confirmations", "TX_CONFIRMATIONS", 1, 100_000),
            reorg_lookback: from.integer("reorg_lookback", "TX_REORG_LOOKBACK_BLOCKS", 1, 100_000),
            reconcile: from.seconds("reconcile_seconds", "TX_RECONCILE_SECONDS", 1),
            stuck: from.seconds("stuck_seconds", "TX_STUCK_SECONDS", 1),
            // Nodes refuse a replacement that is not a tenth dearer.
            fee_bump_bps: from.integer_u32("fee_bump_bps", "TX_FEE_BUMP_BASIS_POINTS", 1_000, MAX_BPS),
            max_fee_per_gas: max_fee_per_gas.unwrap_or_default(),
            max_replacements: from.integer_u32("max_replacements", "TX_MAX_REPLACEMENTS", 0, 1_000),
            noop_max_fee_per_gas: noop_max_fee_per_gas.unwrap_or_default(),
            min_priority_fee: min_priority_fee.unwrap_or_default(),
            gas_buffer_bps: from.integer_u32("gas_buffer_bps", "TX_GAS_BUFFER_BASIS_POINTS", 0, MAX_BPS),
            max_total_fee: from.sound_wei("max_total_fee_wei", "TX_MAX_TOTAL_FEE_WEI").unwrap_or_default(),
            block_gas_share_bps: from.integer_u32("max_block_gas_share_bps", "TX_MAX_BLOCK_GAS_SHARE_BASIS_POINTS", 1, 10_000),
            profile: Self::profile(from),
            lane_width: from.integer_u32("lane_width", "TX_LANE_WIDTH", 0, WIDTH_MAX),
            lane_widths: Self::lane_widths(from),
            signer_balance_floor: from.sound_wei("signer_balance_floor_wei", "TX_SIGNER_BALANCE_FLOOR_WEI").unwrap_or_default(),
            membership: Self::membership(from),
            batch_requests: from.size("batch_requests", "RPC_BATCH_REQUESTS", 1, 10_000),
            requests_per_second: from.integer_u32("requests_per_second", "RPC_REQUESTS_PER_SECOND", 0, 1_000_000),
            error_overrides: rpc_words::read(from),
            single_endpoint,
        }
    }

    /// They do not vote, so a host may be among the voters too.
    fn broadcasters(from: &Section<'_>) -> Vec<SecretString> {
        let urls = from.secret_list("broadcast_urls", "RPC_BROADCAST_URLS");
        for _ in urls.iter().filter(|url| !url::has_host(url.expose_secret(), &["http", "https"])) {
            from.layers().fault(from.name_of("broadcast_urls", "RPC_BROADCAST_URLS"), Problem::NotAUrl(SCHEMES));
        }
        urls
    }

    fn profile(from: &Section<'_>) -> ChainProfile {
        let words: Vec<_> = ChainProfile::all().into_iter().map(|profile| (profile.as_str(), profile)).collect();
        from.word("profile", "TX_CHAIN_PROFILE", &words, ChainProfile::Default)
    }

    fn membership(from: &Section<'_>) -> Option<Membership> {
        let text = from.text("signer_membership", "TX_SIGNER_MEMBERSHIP").filter(|text| !text.is_empty())?;
        let found = Membership::parse(&text);
        if found.is_none() {
            from.layers().fault(from.name_of("signer_membership", "TX_SIGNER_MEMBERSHIP"), Problem::NotAMembership);
        }
        found
    }

    fn lane_widths(from: &Section<'_>) -> BTreeMap<Address, u32> {
        let mut widths = BTreeMap::new();
        for (signer, width) in from.integers_by_name("lane_widths", "TX_LANE_WIDTHS") {
            match (signer.parse(), u32::try_from(width)) {
                (Ok(signer), Ok(width @ 1..=WIDTH_MAX)) => {
                    widths.insert(signer, width);
                }
                _ => from.layers().fault(from.name_of("lane_widths", "TX_LANE_WIDTHS"), Problem::NotAWidth { max: WIDTH_MAX }),
            }
        }
        widths
    }

    /// A host has one vote: two URLs of one host would let one provider decide alone.
    fn voters(from: &Section<'_>, chain: u64, single_endpoint: bool) -> Vec<SecretString> {
        let urls = from.secret_list("read_urls", "RPC_READ_URLS");
        let name = || from.name_of("read_urls", "RPC_READ_URLS");
        let mut first_of = BTreeMap::new();
        for (index, url) in urls.iter().enumerate() {
            let position = index + 1;
            let host = url::host(url.expose_secret()).filter(|_| url::has_host(url.expose_secret(), &["http", "https"]));
            let Some(host) = host else {
                from.layers().fault(name(), Problem::NotAUrl(SCHEMES));
                continue;
            };
            let first = *first_of.entry(host).or_insert(position);
            if first != position && !single_endpoint {
                from.layers().fault(name(), Problem::DuplicateHost { chain, first, second: position });
            }
        }
        urls
    }
}
