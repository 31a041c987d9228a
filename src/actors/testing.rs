//! Runs a test as the process runs: actors on arbiters, everything else on a multi-thread runtime.

use std::future::Future;
use std::time::Duration;

pub fn in_system(test: impl Future<Output = ()>) {
    let runtime = || tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    actix_rt::System::with_tokio_rt(runtime)
        .block_on(async { tokio::time::timeout(Duration::from_secs(60), test).await.expect("the test hangs") });
}
