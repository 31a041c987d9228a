//! Asks the chain. Owns the endpoints: their health, hedging, votes and the meaning of their answers. Never signs, never stores, and
//! never decides what becomes of a transaction. Called by the actors and the job kinds through the trait `Chain`.

#[cfg(test)]
mod anvil_tests;
mod bucket;
mod calm;
mod classify;
mod codes;
pub mod dev_node;
mod endpoint;
mod error;
mod fees;
mod flags;
mod health;
mod http;
#[cfg(test)]
mod mock_node;
mod pool;
mod probe;
mod reads;
mod revert;
mod send;
mod simulate;
#[cfg(test)]
mod tests;
mod types;
mod web3_transport;
mod wire;

pub use classify::classify;
pub use error::{Error, Failure, RpcError, Unsent};
pub use health::Circuit;
pub use pool::Pool;
pub use types::{
    BlockTag, Call, Capabilities, EndpointHead, EndpointView, FeeQuote, Head, Heads, RawTx, Receipt, ReceiptVotes, Role, SendOutcome,
    Simulated, SimulationError, Votes,
};
pub use web3_transport::Web3Transport;

use crate::domain::quorum::Decision;
use entity::values::{Address, Hash, Wei};
use futures::FutureExt;
use futures::future::BoxFuture;

/// One chain. `Pool` asks real endpoints; tests have a chain of their own.
pub trait Chain: Send + Sync + 'static {
    /// The configured id, which the endpoints have shown.
    fn chain_id(&self) -> u64;

    /// The newest block, from the best endpoint.
    fn head(&self) -> BoxFuture<'_, Result<Head, Error>>;

    /// The newest block of every endpoint, and the one that a majority has reached. To be called at each head poll: it also measures
    /// lags and checks chain identities.
    fn heads(&self) -> BoxFuture<'_, Heads>;

    /// What the next block is expected to cost. An error is an error, never a zero.
    fn fees(&self) -> BoxFuture<'_, Result<FeeQuote, Error>>;

    /// Tries calls against the latest block; one outcome each, in their order.
    fn simulate(&self, calls: Vec<Call>) -> BoxFuture<'_, Vec<Result<Simulated, SimulationError>>>;

    /// Sends signed bytes to the write endpoint, and to those that get them too, in the given order; one outcome each.
    fn send_raw(&self, transactions: Vec<RawTx>) -> BoxFuture<'_, Vec<SendOutcome>>;

    /// How many nonces each account has used up, by quorum. At `Latest` the highest count that a majority has reached.
    fn consumed_nonces(&self, addresses: Vec<Address>, at: BlockTag) -> BoxFuture<'_, Vec<Decision<u64>>>;

    /// The receipts by quorum. `Agreed(None)`: a majority has none, each of whose endpoints was at the block `since` or past it before
    /// it was asked.
    fn receipts(&self, hashes: Vec<Hash>, since: u64) -> BoxFuture<'_, Vec<ReceiptVotes>>;

    /// The canonical hash at each height, by quorum.
    fn block_hashes(&self, numbers: Vec<u64>) -> BoxFuture<'_, Vec<Decision<Option<Hash>>>>;

    fn balances(&self, addresses: Vec<Address>) -> BoxFuture<'_, Vec<Result<Wei, Error>>>;

    /// Whether each account has delegated itself (EIP-7702). True where one endpoint shows it, false where a majority shows that it has
    /// not, None where nothing is known.
    fn delegated(&self, addresses: Vec<Address>) -> BoxFuture<'_, Vec<Option<bool>>> {
        futures::future::ready(vec![None; addresses.len()]).boxed()
    }

    /// What a contract answers with yes or no, by quorum.
    fn flag(&self, _contract: Address, _data: Vec<u8>) -> BoxFuture<'_, Decision<bool>> {
        futures::future::ready(Decision::Insufficient).boxed()
    }

    /// As one endpoint's pool sees it: a hint, never a ground to allocate by.
    fn pending_nonce(&self, address: Address) -> BoxFuture<'_, Result<u64, Error>>;

    fn endpoints(&self) -> Vec<EndpointView>;

    /// Asks endpoints that have connected anew what they can do. To be called now and then; costs nothing where nothing is due.
    fn probe(&self) -> BoxFuture<'_, ()> {
        futures::future::ready(()).boxed()
    }

    /// False while so many calls fail that nothing may be superseded, abandoned or failed.
    fn calm(&self) -> bool;
}

impl Chain for Pool {
    fn chain_id(&self) -> u64 {
        Pool::chain_id(self)
    }

    fn head(&self) -> BoxFuture<'_, Result<Head, Error>> {
        self.ask_head().boxed()
    }

    fn heads(&self) -> BoxFuture<'_, Heads> {
        self.ask_heads().boxed()
    }

    fn fees(&self) -> BoxFuture<'_, Result<FeeQuote, Error>> {
        self.ask_fees().boxed()
    }

    fn simulate(&self, calls: Vec<Call>) -> BoxFuture<'_, Vec<Result<Simulated, SimulationError>>> {
        async move { self.try_calls(&calls).await }.boxed()
    }

    fn send_raw(&self, transactions: Vec<RawTx>) -> BoxFuture<'_, Vec<SendOutcome>> {
        async move { self.send(&transactions).await }.boxed()
    }

    fn consumed_nonces(&self, addresses: Vec<Address>, at: BlockTag) -> BoxFuture<'_, Vec<Decision<u64>>> {
        async move { self.ask_consumed_nonces(&addresses, at).await }.boxed()
    }

    fn receipts(&self, hashes: Vec<Hash>, since: u64) -> BoxFuture<'_, Vec<ReceiptVotes>> {
        async move { self.ask_receipts(&hashes, since).await }.boxed()
    }

    fn block_hashes(&self, numbers: Vec<u64>) -> BoxFuture<'_, Vec<Decision<Option<Hash>>>> {
        async move { self.ask_block_hashes(&numbers).await }.boxed()
    }

    fn balances(&self, addresses: Vec<Address>) -> BoxFuture<'_, Vec<Result<Wei, Error>>> {
        async move { self.ask_balances(&addresses).await }.boxed()
    }

    fn delegated(&self, addresses: Vec<Address>) -> BoxFuture<'_, Vec<Option<bool>>> {
        async move { self.ask_delegated(&addresses).await }.boxed()
    }

    fn flag(&self, contract: Address, data: Vec<u8>) -> BoxFuture<'_, Decision<bool>> {
        async move { self.ask_flag(contract, &data).await }.boxed()
    }

    fn pending_nonce(&self, address: Address) -> BoxFuture<'_, Result<u64, Error>> {
        self.ask_pending_nonce(address).boxed()
    }

    fn endpoints(&self) -> Vec<EndpointView> {
        self.views()
    }

    fn probe(&self) -> BoxFuture<'_, ()> {
        self.find_capabilities().boxed()
    }

    fn calm(&self) -> bool {
        self.is_calm()
    }
}
